//! The attention part of a block.

use core::ops::Range;

use super::compute::TOKENS;
use super::{Engine, add_bias, copy, enter, leave, norm_one, norm_sum, rows, rows_mut, scale};
use crate::kernel::{Attention, Bias, Kernels, Masks, fork_chunks, store};
use crate::memory::HeadLayout;
use crate::model::{Layer, QkNorm, Role, Spec, Temperature};

/// What an attention is done with, and how much of it.
#[derive(Clone)]
pub(super) struct View<'v> {
    /// Bytes of the cache where the layer's keys and values are.
    pub ring: Range<usize>,
    /// Tokens of this pass, and the position of the first.
    pub tokens: usize,
    pub position: usize,
    pub part: Part,
    /// Across: keys and values are those of the encoder's states.
    pub cross: bool,
    /// What every token sees, if it is not itself and those before it.
    pub reach: Option<usize>,
    /// The tokens are hypotheses for one position, each with a mask of what it sees.
    pub masks: Masks<'v>,
}

/// How much of an attention is done: the keys and values of some tokens may be needed before the first
/// of them looks at any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// Only to put keys and values into the cache.
    Keys,
    /// Only to look at those that are there.
    Queries,
}

/// The tensors of an attention, each with its bias.
struct Roles {
    before: (Role, Role),
    q: (Role, Role),
    k: (Role, Role),
    v: (Role, Role),
    output: (Role, Role),
    after: (Role, Role),
}

const WITHIN: Roles = Roles {
    before: (Role::AttnNorm, Role::AttnNormBias),
    q: (Role::AttnQ, Role::AttnQBias),
    k: (Role::AttnK, Role::AttnKBias),
    v: (Role::AttnV, Role::AttnVBias),
    output: (Role::AttnOutput, Role::AttnOutputBias),
    after: (Role::AttnOutputNorm, Role::AttnOutputNormBias),
};

const ACROSS: Roles = Roles {
    before: (Role::CrossAttnNorm, Role::CrossAttnNormBias),
    q: (Role::CrossAttnQ, Role::CrossAttnQBias),
    k: (Role::CrossAttnK, Role::CrossAttnKBias),
    v: (Role::CrossAttnV, Role::CrossAttnVBias),
    output: (Role::CrossAttnOutput, Role::CrossAttnOutputBias),
    after: (Role::CrossAttnOutputNorm, Role::CrossAttnOutputNormBias),
};

impl Engine<'_, '_> {
    /// `x += output(attention(norm(x)))`; the tokens' keys and values are in the cache afterwards.
    pub(super) fn attention(&mut self, layer: &Layer, view: View<'_>) {
        let View { ring, tokens, position, part, cross, reach, masks } = view;
        let Self { spec, plan, weights, compute, rotary: [first, second], hidden, branch, inner, sums, kv, .. } = self;
        let relative = &self.relative;
        let alternatives = !masks.is_none();
        let roles = if cross { ACROSS } else { WITHIN };
        let (index, dim, head_dim) = (layer.index, spec.dim, layer.head.dim);
        let (q_dim, kv_dim, stride) = (layer.q_dim(), layer.kv_dim(), layer.qkv_dim());
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..tokens * dim), branch.get_mut(..tokens * dim)) else {
            return;
        };
        let Some((qkv, rest)) = inner.split_at_mut_checked(tokens * stride) else { return };
        let Some(out) = rest.get_mut(..tokens * q_dim) else { return };
        let Some(cache) = kv.get_mut(ring) else { return };

        if cross && part == Part::Keys {
            branch.copy_from_slice(hidden); // the encoder's states have had their norm
        } else {
            enter(compute, spec, weights, (roles.before.0, roles.before.1, index), hidden, branch);
        }

        // q, k and v of a token lie side by side, whether they come from one matrix or from three. A
        // layer that reads another's keys and values has q alone.
        let (keys, queries) = (part != Part::Queries, part != Part::Keys);
        let all = [
            ((Role::AttnQkv, Role::AttnQkvBias), 0, !cross),
            (roles.q, 0, queries),
            (roles.k, q_dim, keys),
            (roles.v, q_dim + kv_dim, keys),
        ];
        let products = all.map(|((w, _), at, wanted)| (weights.matrix(w, index).filter(|_| wanted), at));
        compute.input(branch, tokens).times_each(&products, qkv, stride);
        for ((_, bias), at, wanted) in all {
            if let (true, Some(qkv)) = (wanted, qkv.get_mut(at..)) {
                add_bias(qkv, stride, weights.vector(bias, index));
            }
        }

        let (kernels, workers) = (compute.kernels, compute.workers);
        let (q_norm, k_norm) = (weights.vector(Role::AttnQNorm, index), weights.vector(Role::AttnKNorm, index));
        let v_is_k = spec.v_from_k() && weights.matrix(Role::AttnV, index).is_none();
        let rotary = if layer.is_local { second } else { first };
        // Norm, rotation and storing take some ten times as long an element as a multiplication does.
        let work = qkv.len().saturating_mul(10);
        fork_chunks(workers, qkv, stride, work, &mut [(); 0], 0, |t, qkv, _| {
            let Some((q, kv)) = qkv.split_at_mut_checked(q_dim) else { return };
            let (k, v) = kv.split_at_mut_checked(kv_dim).unwrap_or_default();
            if v_is_k {
                copy(v, k);
            }
            for (heads, weight) in [(&mut *q, q_norm), (k, k_norm)] {
                let after_rope = spec.qk_norm_after_rope();
                if !after_rope {
                    norm_heads(kernels, spec, heads, head_dim, weight);
                }
                for head in rows_mut(heads, head_dim) {
                    rotary.rotate(t, head);
                }
                if after_rope {
                    norm_heads(kernels, spec, heads, head_dim, weight);
                }
            }
            if let Some(Temperature { scale: by, length }) = spec.temperature() {
                let step = (position + t) / length.max(1);
                scale(q, 1.0 + by * libm::logf(1.0 + step as f32));
            }
            if spec.v_norm() {
                for head in rows_mut(v, head_dim) {
                    kernels.rms_norm(head, &[], spec.norm_eps);
                }
            }
        });

        let (qkv, head) = (&*qkv, HeadLayout { kind: plan.options.kv, dim: head_dim });
        let ring_bytes = cache.len() / layer.kv_heads.max(1);
        if layer.owns_kv && keys {
            // Hypotheses for one position have a place each.
            let first = if alternatives { position * tokens } else { position };
            fork_chunks(workers, cache, ring_bytes, work, &mut [(); 0], 0, |h, ring, _| {
                for (t, qkv) in rows(qkv, stride).enumerate() {
                    let (k, v) = (q_dim + h * head_dim, q_dim + kv_dim + h * head_dim);
                    if let (Some(k), Some(v)) = (qkv.get(k..k + head_dim), qkv.get(v..v + head_dim)) {
                        store(kernels, head, ring, first + t, k, v);
                    }
                }
            });
        }

        if !queries {
            return;
        }
        // One token is shared out by KV heads, several by tokens.
        let group = layer.group();
        let (chunk, heads) = if tokens == 1 { (group * head_dim, 1) } else { (TOKENS * q_dim, layer.kv_heads) };
        let scratch = sums.len() / compute.threads.max(1);
        let score_scale = spec.attention_scale.unwrap_or_else(|| 1.0 / libm::sqrtf(head_dim as f32));
        let sinks = weights.vector(Role::AttnSinks, index);
        let window = layer.head.window.unwrap_or(usize::MAX);
        let cache = &*cache;
        let seen = reach.unwrap_or((position + tokens).min(window));
        let work = tokens.saturating_mul(2 * q_dim).saturating_mul(seen);
        fork_chunks(workers, out, chunk, work, sums, scratch, |i, out, sums| {
            let (first_head, first_token) = if tokens == 1 { (i, 0) } else { (0, i * TOKENS) };
            for h in first_head..first_head + heads {
                let (Some(ring), Some(q), Some(out)) = (
                    cache.get(h * ring_bytes..(h + 1) * ring_bytes),
                    qkv.get(first_token * stride + h * group * head_dim..),
                    out.get_mut((h - first_head) * group * head_dim..),
                ) else {
                    return;
                };
                let job = Attention {
                    ring,
                    layout: head,
                    q,
                    q_stride: stride,
                    group,
                    tokens: TOKENS.min(tokens - first_token),
                    position: position + first_token,
                    window,
                    reach,
                    scale: score_scale,
                    cap: spec.attention_cap(),
                    bias: match (cross, alternatives) {
                        (true, _) => Bias::NONE, // there is no distance
                        (false, true) => relative.bias(h * group, position, tokens),
                        (false, false) => relative.bias(h * group, position + first_token, 1),
                    },
                    sinks: sinks.get(4 * h * group..).unwrap_or(&[]),
                    masks: masks.from(first_token),
                };
                kernels.attend(&job, out, q_dim, sums);
            }
        });

        if let Some(w) = weights.matrix(roles.output.0, index) {
            compute.input(out, tokens).times(w, branch, dim);
            add_bias(branch, dim, weights.vector(roles.output.1, index));
            leave(compute, spec, weights, (Role::PostAttentionNorm, index), branch, hidden);
            norm_sum(compute, spec, weights, (roles.after.0, roles.after.1, index), hidden);
        }
    }
}

/// Norms heads of `head_dim` in place, as the spec says; `weight` is empty where the file has none.
fn norm_heads(kernels: &Kernels, spec: &Spec<'_>, heads: &mut [f32], head_dim: usize, weight: &[u8]) {
    if weight.is_empty() {
        return;
    }
    match spec.qk_norm() {
        QkNorm::None => {}
        QkNorm::Whole => norm_one(kernels, spec, weight, &[], heads),
        QkNorm::Head => rows_mut(heads, head_dim).for_each(|x| norm_one(kernels, spec, weight, &[], x)),
        QkNorm::EachHead => {
            for (x, weight) in rows_mut(heads, head_dim).zip(weight.chunks_exact((4 * head_dim).max(1))) {
                norm_one(kernels, spec, weight, &[], x);
            }
        }
    }
}
