//! The feed-forward part of a block as experts: a router gives each token to a few of many.
//!
//! Expert by expert, in the order of their numbers, the tokens that chose it are gathered and run
//! together; its rows are not touched if none did. So a token's sum has one order, whatever else is
//! in the batch.

use super::{Forward, add_bias, copy, enter, leave, rows, rows_mut};
use crate::engine::profile::Section;
use crate::model::{Experts, Layer, Role};

impl Forward<'_, '_> {
    /// `x +=` the sum over the chosen experts of `weight * down(f(gate(norm(x))) * up(norm(x)))`.
    pub(super) fn experts(&mut self, layer: &Layer, tokens: usize) {
        let Self { spec, weights, compute, hidden, branch, inner, .. } = self;
        let (index, dim, ffn) = (layer.index, spec.dim, layer.ffn);
        let Some(experts) = spec.experts() else { return };
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..tokens * dim), branch.get_mut(..tokens * dim)) else {
            return;
        };
        let mut rest = &mut **inner;
        let [chosen, gathered, sum, inner] = [experts.count, dim, dim, 2 * ffn].map(|width| {
            let (piece, after) = core::mem::take(&mut rest).split_at_mut_checked(tokens * width).unwrap_or_default();
            rest = after;
            piece
        });
        let of_all = |role| weights.matrix(role, index);
        let (Some(router), Some(all_gate), Some(all_up), Some(all_down)) =
            (of_all(Role::FfnGateInp), of_all(Role::FfnGateExps), of_all(Role::FfnUpExps), of_all(Role::FfnDownExps))
        else {
            return;
        };

        enter(compute, spec, weights, (Role::FfnNorm, Role::FfnNormBias, index), hidden, branch);
        compute.input(branch, tokens).times(router, chosen, experts.count);
        add_bias(chosen, experts.count, weights.vector(Role::FfnGateInpBias, index));
        rows_mut(chosen, experts.count).for_each(|scores| choose(scores, experts));

        sum.fill(0.0);
        for expert in 0..experts.count {
            let bias = |role, width: usize| {
                let all = weights.vector(role, index);
                all.get(4 * expert * width..4 * (expert + 1) * width).unwrap_or(&[])
            };
            let weight = |t: usize| chosen.get(t * experts.count + expert).copied().filter(|&weight| weight != 0.0);
            let mut n = 0;
            for (_, x) in rows(branch, dim).enumerate().filter(|(t, _)| weight(*t).is_some()) {
                if let Some(place) = gathered.get_mut(n * dim..(n + 1) * dim) {
                    copy(place, x);
                }
                n += 1;
            }
            if n == 0 {
                continue;
            }
            let (Some(w_gate), Some(w_up), Some(w_down)) =
                (all_gate.part(expert * ffn, ffn), all_up.part(expert * ffn, ffn), all_down.part(expert * dim, dim))
            else {
                return;
            };
            let Some(x) = gathered.get_mut(..n * dim) else { return };
            compute.input(x, n).times_each(&[(Some(w_gate), 0), (Some(w_up), n * ffn)], inner, ffn);
            let Some((gate, up)) = inner.split_at_mut_checked(n * ffn) else { return };
            add_bias(gate, ffn, bias(Role::FfnGateExpsBias, ffn));
            add_bias(up, ffn, bias(Role::FfnUpExpsBias, ffn));
            compute.by_tokens(gate, ffn, &|start, gate| {
                compute.kernels.activate(spec.activation(), gate, up.get(start..));
            });
            compute.input(gate, n).times(w_down, x, dim);
            add_bias(x, dim, bias(Role::FfnDownExpsBias, dim));
            let mut made = rows(x, dim);
            for (t, sum) in rows_mut(sum, dim).enumerate() {
                let Some(weight) = weight(t) else { continue };
                for (sum, y) in sum.iter_mut().zip(made.next().unwrap_or(&[])) {
                    *sum += weight * y;
                }
            }
        }
        copy(branch, sum);
        compute.done(Section::FeedForward);
        leave(compute, spec, weights, (Role::PostFfwNorm, index), branch, hidden);
    }
}

/// Makes weights of a router's scores: softmax, then zeros for all but the `used` largest, of equals
/// those with the lowest numbers.
fn choose(scores: &mut [f32], experts: Experts) {
    let top = scores.iter().fold(f32::NEG_INFINITY, |top, &score| if score > top { score } else { top });
    let mut total = 0.0;
    for score in scores.iter_mut() {
        *score = libm::expf(*score - top);
        total += *score;
    }
    // Mark the chosen ones by a minus sign, then negate all.
    let mut kept = 0.0;
    for _ in 0..experts.used {
        let mut best: Option<&mut f32> = None;
        for score in scores.iter_mut().filter(|score| score.is_sign_positive()) {
            if best.as_ref().is_none_or(|best| *score > **best) {
                best = Some(score);
            }
        }
        let Some(best) = best else { break };
        kept += *best;
        *best = -*best;
    }
    let divisor = if experts.normed { kept } else { total };
    for score in scores {
        *score = if score.is_sign_negative() { -*score / divisor } else { 0.0 };
    }
}
