//! Feed-forward with experts: a router sends each token to a few of many experts.
//!
//! For each expert in ascending order, the tokens that chose it are gathered and run together; the weights of unused
//! experts are not read. The terms of a token's sum are therefore always added in the same order, whatever else is in
//! the batch.

use super::compute::Compute;
use super::feed_forward::{Limit, activate};
use super::{Forward, add, add_bias, copy, enter, leave, norm, norm_sum, rows, rows_mut, scale};
use crate::engine::profile::Section;
use crate::kernel::Matrix;
use crate::model::{Experts, Gate, GroupExperts, Layer, Role, Router, Scores, Spec, Weights};
use crate::quant::le_f32;

impl<'m> Forward<'m, '_> {
    /// Runs the feed-forward of the chosen experts: adds to `x` the sum of `weight * down(f(gate(norm(x))) *
    /// up(norm(x)))` over these experts.
    pub(super) fn experts(&mut self, layer: &Layer, tokens: usize) {
        let Self { spec, weights, compute, hidden, branch, inner, .. } = self;
        let (index, dim, ffn) = (layer.index, spec.dim, layer.expert_width);
        let Some(experts) = spec.experts() else { return };
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..tokens * dim), branch.get_mut(..tokens * dim)) else {
            return;
        };
        let held = tokens * spec.held(layer);
        let Some((inner, held)) = inner.split_at_mut_checked(inner.len() - held.min(inner.len())) else { return };
        let mut rest = inner;
        let groups = spec.group_experts().map_or(0, |group| experts.count.checked_div(group.size).unwrap_or(0));
        let [chosen, of_groups, gathered, sum] = [experts.count, groups, dim, dim].map(|width| {
            let (piece, after) = core::mem::take(&mut rest).split_at_mut_checked(tokens * width).unwrap_or_default();
            rest = after;
            piece
        });
        let inner = rest;
        let of_all = |role| weights.matrix(role, index);
        let Some(router) = of_all(Role::FfnGateInp) else { return };

        let beside = spec.experts_beside();
        let (before, bias) = match beside {
            true => (Role::PreFfwNorm2, Role::PreFfwNorm2),
            #[cfg(feature = "mixtures")]
            false if spec.experts_of_input() => (Role::FfnNormExps, Role::FfnNormExps),
            false => Role::before_ffn(spec, layer),
        };
        let input = if spec.is_parallel() || spec.experts_of_input() { &*held } else { &*hidden };
        enter(compute, spec, weights, (before, bias, index), input, branch);
        let routed = if beside {
            scaled_norm(compute, spec, weights.vector(Role::FfnGateInpScale, index), hidden, gathered);
            &*gathered
        } else if spec.early_router() {
            &*held
        } else {
            &*branch
        };
        compute.times((routed, tokens), router, chosen, experts.count);
        add_bias(chosen, experts.count, weights.vector(Role::FfnGateInpBias, index));
        if let Some(group) = spec.group_experts() {
            let scale =
                if let Router::Scored { scale, .. } = spec.router() { group.scale * scale } else { group.scale };
            let group = GroupExperts { scale, ..group };
            let tokens = rows(chosen, experts.count).zip(rows_mut(of_groups, groups));
            tokens.for_each(|(scores, weights)| choose_groups(scores, experts.used, group, weights));
        }
        let bias = weights.vector(Role::ExpProbsBias, index);
        rows_mut(chosen, experts.count).for_each(|scores| choose(scores, experts, spec.router(), bias));

        sum.fill(0.0);
        let layer = (*spec, &*weights, index);
        run_chosen(compute, layer, &Bank::all(spec, experts.count, ffn), (chosen, branch), gathered, inner, sum);
        #[cfg(feature = "mixtures")]
        if let Some(group) = spec.group_experts() {
            // As in llama.cpp, the shared experts of groups process the output of the chosen experts, not their input.
            copy(branch, sum);
            run_chosen(compute, layer, &Bank::shared(groups, group.width), (of_groups, branch), gathered, inner, sum);
        }
        if let Some(shared) = spec.shared_experts() {
            let up = of_all(Role::FfnUpShexp);
            let (gate, up) = match shared.fused {
                true => (up.and_then(|w| w.part(0, shared.width)), up.and_then(|w| w.part(shared.width, shared.width))),
                false => (of_all(Role::FfnGateShexp).filter(|_| spec.gate() != Gate::None), up),
            };
            let Some(down) = of_all(Role::FfnDownShexp) else { return };
            let factors = of_all(Role::FfnGateInpShexp).filter(|_| shared.gated);
            if let Some(w) = factors {
                compute.times((branch, tokens), w, chosen, 1);
            }
            let sizes = (tokens, shared.width, Limit::of(spec, index, false));
            expert_of(compute, spec, (gate, up, down), sizes, [&[]; 2], branch, inner);
            for ((sum, y), factor) in rows_mut(sum, dim).zip(rows(branch, dim)).zip(&*chosen) {
                let factor = if factors.is_some() { 1.0 / (1.0 + libm::expf(-factor)) } else { 1.0 };
                sum.iter_mut().zip(y).for_each(|(sum, y)| *sum += factor * y);
                scale(sum, if shared.averaged { 0.5 } else { 1.0 });
            }
        }
        copy(branch, sum);
        compute.done(Section::FeedForward);
        if beside {
            norm(compute, spec, weights, (Role::PostFfwNorm2, Role::PostFfwNorm2, index), branch);
            add(branch, held);
        }
        leave(compute, spec, weights, (Role::PostFfwNorm, index), branch, hidden);
        norm_sum(compute, spec, weights, (Role::LayerOutputNorm, Role::LayerOutputNormBias, index), hidden);
    }
}

/// Experts that a layer chooses from.
struct Bank {
    count: usize,
    width: usize,
    /// Gate, up and down.
    roles: [Role; 3],
    /// Biases of gate, up and down.
    biases: Option<[Role; 3]>,
    /// True if gate and up are one tensor.
    fused: bool,
}

impl Bank {
    /// The experts that the router scores.
    fn all(spec: &Spec<'_>, count: usize, width: usize) -> Self {
        let roles = [Role::FfnGateExps, Role::FfnUpExps, Role::FfnDownExps];
        let biases = Some([Role::FfnGateExpsBias, Role::FfnUpExpsBias, Role::FfnDownExpsBias]);
        Self { count, width, roles, biases, fused: spec.fused_experts() }
    }

    /// The shared experts, one for each group of experts.
    #[cfg(feature = "mixtures")]
    fn shared(count: usize, width: usize) -> Self {
        let roles = [Role::FfnGateChexps, Role::FfnUpChexps, Role::FfnDownChexps];
        Self { count, width, roles, biases: None, fused: false }
    }
}

/// Runs the experts that were chosen for each token, and adds their outputs, times their weights, to `sum`. `chosen`,
/// `[tokens][experts]`, has the weights. The weight of an expert that was not chosen is 0.
fn run_chosen(
    compute: &mut Compute<'_, '_>,
    (spec, weights, index): (&Spec<'_>, &Weights<'_, '_>, usize),
    bank: &Bank,
    (chosen, input): (&[f32], &[f32]),
    gathered: &mut [f32],
    inner: &mut [f32],
    sum: &mut [f32],
) {
    let (dim, ffn) = (spec.dim, bank.width);
    for expert in 0..bank.count {
        let bias = |place: usize, width: usize| {
            let role = bank.biases.as_ref().and_then(|biases| biases.get(place));
            let all = role.map_or(&[] as &[u8], |role| weights.vector(*role, index));
            all.get(4 * expert * width..4 * (expert + 1) * width).unwrap_or(&[])
        };
        let weight = |t: usize| chosen.get(t * bank.count + expert).copied().filter(|&weight| weight != 0.0);
        let mut n = 0;
        for (t, weight, x) in rows(input, dim).enumerate().filter_map(|(t, x)| Some((t, weight(t)?, x))) {
            compute.select(n, t);
            if let Some(place) = gathered.get_mut(n * dim..(n + 1) * dim) {
                copy(place, x);
                scale(place, if spec.weighted_inputs() { weight } else { 1.0 });
            }
            n += 1;
        }
        if n == 0 {
            continue;
        }
        let part = |role, rows: usize| weights.expert(role, index, expert, rows);
        let [gate, up, down] = bank.roles;
        let fused = if bank.fused { part(Role::FfnGateUpExps, 2 * ffn) } else { None };
        let (w_gate, w_up) = match fused {
            Some(both) => (both.part(0, ffn), both.part(ffn, ffn)),
            None => (part(gate, ffn).filter(|_| spec.gate() != Gate::None), part(up, ffn)),
        };
        let Some(w_down) = part(down, dim) else { return };
        let Some(x) = gathered.get_mut(..n * dim) else { return };
        compute.by_selected(true);
        let sizes = (n, ffn, Limit::of(spec, index, true));
        expert_of(compute, spec, (w_gate, w_up, w_down), sizes, [bias(0, ffn), bias(1, ffn)], x, inner);
        compute.by_selected(false);
        add_bias(x, dim, bias(2, dim));
        let mut made = rows(x, dim);
        for (t, sum) in rows_mut(sum, dim).enumerate() {
            let Some(weight) = weight(t) else { continue };
            let weight = if spec.weighted_inputs() { 1.0 } else { weight };
            for (sum, y) in sum.iter_mut().zip(made.next().unwrap_or(&[])) {
                *sum += weight * y;
            }
        }
    }
}

/// Computes the weights of the shared experts, one for each group of experts, from a router's scores. Each chosen
/// expert adds to the weight of its group's shared expert. As in llama.cpp, the added value is the softmax's value at
/// the group's index, not at the expert's index.
fn choose_groups(scores: &[f32], used: usize, group: GroupExperts, weights: &mut [f32]) {
    let top = scores.iter().fold(f32::NEG_INFINITY, |top, &score| if score > top { score } else { top });
    let total: f32 = scores.iter().map(|score| libm::expf(score - top)).sum();
    weights.fill(0.0);
    let mut kept = 0.0;
    let mut last: Option<(usize, f32)> = None;
    for _ in 0..used.min(weights.len()) {
        // True for experts that rank after the last chosen expert: they have a lower score, or the same score and a
        // higher index.
        let is_after = |i: usize, score: f32| last.is_none_or(|(at, best)| score < best || score == best && i > at);
        let mut best: Option<(usize, f32)> = None;
        for (i, &score) in scores.iter().enumerate().filter(|(i, score)| is_after(*i, **score)) {
            if best.is_none_or(|(_, best)| score > best) {
                best = Some((i, score));
            }
        }
        let Some((expert, _)) = best else { break };
        last = best;
        let number = expert.checked_div(group.size).unwrap_or(0);
        let share = scores.get(number).map_or(0.0, |score| libm::expf(score - top) / total);
        kept += share;
        if let Some(weight) = weights.get_mut(number) {
            *weight += share;
        }
    }
    const LEAST: f32 = 6.103_515_6e-5; // the smallest normal F16
    scale(weights, group.scale / if kept > LEAST { kept } else { LEAST });
}

/// Computes the input of a router in a layer that also has a dense feed-forward: `y = norm(x) / sqrt(dim) * factors`.
fn scaled_norm(compute: &Compute<'_, '_>, spec: &Spec<'_>, factors: &[u8], x: &[f32], y: &mut [f32]) {
    for (y, x) in rows_mut(y, spec.dim).zip(rows(x, spec.dim)) {
        copy(y, x);
        compute.kernels.rms_norm(y, factors, spec.norm_eps);
        scale(y, 1.0 / libm::sqrtf(spec.dim as f32));
    }
}

/// Runs an expert on `n` tokens: `x = down(f(gate(x)) * up(x))`, or `down(f(up(x)))` if experts have no gate. `width`
/// is the width of an expert.
fn expert_of(
    compute: &mut Compute<'_, '_>,
    spec: &Spec<'_>,
    (w_gate, w_up, w_down): (Option<Matrix<'_>>, Option<Matrix<'_>>, Matrix<'_>),
    (n, width, limit): (usize, usize, Option<Limit>),
    [gate_bias, up_bias]: [&[u8]; 2],
    x: &mut [f32],
    inner: &mut [f32],
) {
    // Without a gate, the output of `up` takes the gate's place, so that the same code activates and projects it.
    let up_at = if w_gate.is_some() { n * width } else { 0 };
    compute.times_each((x, n), &[(w_gate, 0), (w_up, up_at)], inner, width);
    let Some((gate, rest)) = inner.split_at_mut_checked(n * width) else { return };
    let mut up = w_gate.and(rest.get_mut(..n * width));
    add_bias(gate, width, if up.is_some() { gate_bias } else { up_bias });
    if let Some(up) = &mut up {
        add_bias(up, width, up_bias);
    }
    compute.by_tokens(gate, width, &|start, gate| {
        let up = up.as_deref().and_then(|up| up.get(start..));
        activate(compute.kernels, spec.activation(), limit, gate, up);
    });
    compute.times((gate, n), w_down, x, spec.dim);
}

/// Turns a router's scores into weights: zeros for all but the `used` largest scores. If scores are equal, the lowest
/// indices are chosen. The bias affects the choice, but not the weights.
fn choose(scores: &mut [f32], experts: Experts, router: Router, bias: &[u8]) {
    if let Router::Scored { scores: Scores::Sparse, .. } = router {
        return choose_sparsely(scores, experts.used);
    }
    let mut total = 0.0;
    match router {
        Router::Scored { scores: Scores::Sigmoid, .. } => {
            scores.iter_mut().for_each(|score| *score = 1.0 / (1.0 + libm::expf(-*score)));
        }
        _ => {
            let top = scores.iter().fold(f32::NEG_INFINITY, |top, &score| if score > top { score } else { top });
            for score in scores.iter_mut() {
                *score = libm::expf(*score - top);
                total += *score;
            }
            if !bias.is_empty() {
                // The bias is added to probabilities.
                scores.iter_mut().for_each(|score| *score /= total);
                total = 1.0;
            }
        }
    }
    let biased = |i: usize, score: f32| if bias.is_empty() { score } else { score + le_f32(bias, i) };
    let (size, open) = match router {
        Router::Scored { groups, used_groups, .. } if groups > 1 => {
            let size = scores.len().checked_div(groups).unwrap_or(0).max(1);
            let counted = if matches!(router, Router::Scored { scores: Scores::Softmax, .. }) { 1 } else { 2 };
            (size, best_groups(scores, (size, counted), used_groups, &biased))
        }
        _ => (usize::MAX, [u64::MAX; GROUP_WORDS]),
    };
    // The scores of experts that were already chosen are negated. So no list of the chosen experts is needed.
    let mut kept = 0.0;
    for _ in 0..experts.used {
        let mut best: Option<(&mut f32, f32)> = None;
        for (i, score) in scores.iter_mut().enumerate().filter(|(_, score)| score.is_sign_positive()) {
            let value = biased(i, *score);
            if bit(&open, i / size) && best.as_ref().is_none_or(|(_, best)| value > *best) {
                best = Some((score, value));
            }
        }
        let Some((best, _)) = best else { break };
        kept += *best;
        *best = -*best;
    }
    let divisor = match (router, experts.normed) {
        (Router::Softmax, true) => kept,
        (Router::Softmax, false) => total,
        (Router::Scored { scale, .. }, true) => (kept + 1e-20) / scale,
        (Router::Scored { scores: Scores::Softmax, scale, .. }, false) => total / scale,
        (Router::Scored { scale, .. }, false) => 1.0 / scale,
    };
    for score in scores {
        *score = if score.is_sign_negative() { -*score / divisor } else { 0.0 };
    }
}

/// Like [`choose`], for [`Scores::Sparse`]. The weight of a chosen expert is its share in a softmax over the experts
/// that were not chosen before it and have nearly the same score. Two scores are nearly the same if they differ by at
/// most `NEAR` times the larger magnitude.
fn choose_sparsely(scores: &mut [f32], used: usize) {
    const NEAR: f32 = 0.02;
    let mut chosen: [Option<(usize, f32)>; MOST_SPARSE] = [None; MOST_SPARSE];
    for n in 0..used.min(MOST_SPARSE) {
        let before = chosen;
        let open = |i: usize| before.iter().flatten().all(|(other, _)| *other != i);
        let mut best: Option<(usize, f32)> = None;
        for (i, score) in scores.iter().enumerate().filter(|(i, _)| open(*i)) {
            if best.is_none_or(|(_, best)| *score > best) {
                best = Some((i, *score));
            }
        }
        let Some((index, best)) = best else { break };
        let is_near = |score: f32| (best - score) / score.abs().max(best) <= NEAR;
        let all = scores.iter().enumerate().filter(|(i, score)| open(*i) && is_near(**score));
        let total: f32 = all.map(|(_, score)| libm::expf(score - best)).sum();
        if let Some(place) = chosen.get_mut(n) {
            *place = Some((index, 1.0 / total));
        }
    }
    scores.fill(0.0);
    for (index, weight) in chosen.into_iter().flatten() {
        if let Some(score) = scores.get_mut(index) {
            *score = weight;
        }
    }
}

/// A router that chooses more experts than this per token does not use [`choose_sparsely`].
const MOST_SPARSE: usize = 8;

/// Number of words of a bit set of groups of experts.
const GROUP_WORDS: usize = 8;

/// Returns the set of the `used` best groups of `size` experts. A group is rated by the sum of its `counted` best scores;
/// `counted` is 1 or 2.
fn best_groups(
    scores: &[f32],
    (size, counted): (usize, usize),
    used: usize,
    biased: &dyn Fn(usize, f32) -> f32,
) -> [u64; GROUP_WORDS] {
    let mut open = [0; GROUP_WORDS];
    for _ in 0..used {
        let mut best: Option<(usize, f32)> = None;
        for (group, members) in rows(scores, size).enumerate().filter(|(group, _)| !bit(&open, *group)) {
            let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
            for (i, score) in members.iter().enumerate() {
                let value = biased(group * size + i, *score);
                if value > first {
                    (first, second) = (value, first);
                } else if value > second {
                    second = value;
                }
            }
            let rated = if counted > 1 { first + second } else { first };
            if best.is_none_or(|(_, best)| rated > best) {
                best = Some((group, rated));
            }
        }
        let Some((group, _)) = best else { break };
        if let Some(word) = open.get_mut(group / 64) {
            *word |= 1 << (group % 64);
        }
    }
    open
}

/// True if a set has element `i`.
fn bit(set: &[u64; GROUP_WORDS], i: usize) -> bool {
    set.get(i / 64).is_some_and(|word| word >> (i % 64) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the weights of experts with their definition, computed in f64. `shares` has the values of the softmax
    /// or the sigmoid for all experts, `chosen` has the experts that must be chosen, and `scale` is a factor on the
    /// weights.
    #[test]
    fn weights_of_the_chosen() {
        let logits = [0.5f32, -1.0, 2.0, 0.5, -3.0]; // of equal logits the first is chosen
        let e = logits.map(|x| f64::from(x).exp());
        let softmax = e.map(|x| x / e.iter().sum::<f64>());
        let sigmoid = e.map(|x| x / (1.0 + x));
        let check = |router, normed, bias: &[f32], shares: [f64; 5], chosen: [usize; 2], scale: f64| {
            let mut scores = logits;
            let bias: heapless::Vec<u8, 20> = bias.iter().flat_map(|x| x.to_le_bytes()).collect();
            choose(&mut scores, Experts { count: 5, used: 2, width: None, normed, biases: false }, router, &bias);
            let sum: f64 = chosen.iter().map(|i| shares[*i]).sum();
            for (i, score) in scores.into_iter().enumerate() {
                let part = if normed { shares[i] / sum } else { shares[i] };
                let want = if chosen.contains(&i) { part * scale } else { 0.0 };
                assert!((f64::from(score) - want).abs() <= 1e-6 * want, "{router:?} {normed} {i}: {score}, not {want}");
            }
        };
        let scored = |scores, scale| Router::Scored { scores, scale, groups: 1, used_groups: 1 };
        for normed in [true, false] {
            check(Router::Softmax, normed, &[], softmax, [2, 0], 1.0);
            check(scored(Scores::Sigmoid, 2.5), normed, &[], sigmoid, [2, 0], 2.5);
            check(scored(Scores::Softmax, 2.5), normed, &[], softmax, [2, 0], 2.5);
            // A bias only affects the choice.
            let bias = [0.0, 0.0, 0.0, 0.0, 9.0];
            check(scored(Scores::Sigmoid, 1.0), normed, &bias, sigmoid, [4, 2], 1.0);
            check(scored(Scores::Softmax, 1.0), normed, &bias, softmax, [4, 2], 1.0);
        }
    }

    #[test]
    fn groups_by_their_two_best() {
        // Sums of the two best: 1.1, 1.4, 1.0.
        let scores = [1.0f32, 0.1, 0.0, 0.7, 0.2, 0.7, 0.5, 0.5, 0.4];
        let plain = |_, score| score;
        assert_eq!(best_groups(&scores, (3, 2), 1, &plain)[0], 0b010);
        assert_eq!(best_groups(&scores, (3, 2), 2, &plain)[0], 0b011);
        let biased = |i, score| if i == 8 { score + 1.0 } else { score };
        assert_eq!(best_groups(&scores, (3, 2), 1, &biased)[0], 0b100);

        let mut logits = [3.0f32, -2.0, 1.0, 1.5]; // groups: 3 and -2, 1 and 1.5
        let router = Router::Scored { scores: Scores::Sigmoid, scale: 1.0, groups: 2, used_groups: 1 };
        let experts = Experts { count: 4, used: 2, width: None, normed: true, biases: false };
        choose(&mut logits, experts, router, &[]);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let sum = sigmoid(1.0) + sigmoid(1.5);
        let want = [0.0, 0.0, sigmoid(1.0) / sum, sigmoid(1.5) / sum];
        for (got, want) in logits.into_iter().zip(want) {
            assert!((f64::from(got) - want).abs() < 1e-6);
        }
    }
}
