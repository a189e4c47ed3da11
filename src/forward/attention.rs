//! The attention part of a block.

use super::{Engine, add, add_bias, norm};
use crate::kernel::{Attention, fork_chunks, store};
use crate::model::Role;

impl Engine<'_, '_> {
    /// `x += output(attention(norm(x)))`; the tokens' keys and values are in the cache afterwards.
    pub(super) fn attention(&mut self, layer: usize, tokens: usize, position: usize) {
        let Self { spec, weights, compute, rotary, hidden, branch, inner, sums, kv, head, .. } = self;
        let (dim, head_dim) = (spec.dim, spec.head_dim);
        let (q_dim, kv_dim, stride) = (spec.q_dim(), spec.kv_dim(), spec.qkv_dim());
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..tokens * dim), branch.get_mut(..tokens * dim)) else {
            return;
        };
        let Some((qkv, rest)) = inner.split_at_mut_checked(tokens * stride) else { return };
        let Some(out) = rest.get_mut(..tokens * q_dim) else { return };
        let layer_bytes = kv.len() / spec.layers.max(1);
        let Some(cache) = kv.get_mut(layer * layer_bytes..(layer + 1) * layer_bytes) else { return };

        branch.copy_from_slice(hidden);
        norm(compute, spec, weights, (Role::AttnNorm, Role::AttnNormBias, layer), branch);

        // q, k and v of a token lie side by side, whether they come from one matrix or from three.
        let mut input = compute.input(branch, tokens);
        for (weight, bias, offset) in [
            (Role::AttnQkv, Role::AttnQkvBias, 0),
            (Role::AttnQ, Role::AttnQBias, 0),
            (Role::AttnK, Role::AttnKBias, q_dim),
            (Role::AttnV, Role::AttnVBias, q_dim + kv_dim),
        ] {
            if let (Some(w), Some(qkv)) = (weights.matrix(weight, layer), qkv.get_mut(offset..)) {
                input.times(w, qkv, stride);
                add_bias(qkv, stride, weights.vector(bias, layer));
            }
        }

        let (kernels, workers) = (compute.kernels, compute.workers);
        let (q_norm, k_norm) = (weights.vector(Role::AttnQNorm, layer), weights.vector(Role::AttnKNorm, layer));
        // Norm, rotation and storing take some ten times as long an element as a multiplication does.
        let work = qkv.len().saturating_mul(10);
        fork_chunks(workers, qkv, stride, work, &mut [(); 0], 0, |t, qkv, _| {
            let Some((q, kv)) = qkv.split_at_mut_checked(q_dim) else { return };
            let Some(k) = kv.get_mut(..kv_dim) else { return };
            for (heads, weight) in [(q, q_norm), (k, k_norm)] {
                for head in heads.chunks_exact_mut(head_dim.max(1)) {
                    if !weight.is_empty() {
                        kernels.rms_norm(head, weight, spec.norm_eps);
                    }
                    rotary.rotate(t, head);
                }
            }
        });

        let (qkv, head) = (&*qkv, *head);
        let ring_bytes = layer_bytes / spec.kv_heads.max(1);
        fork_chunks(workers, cache, ring_bytes, work, &mut [(); 0], 0, |h, ring, _| {
            for (t, qkv) in qkv.chunks_exact(stride.max(1)).enumerate() {
                let (k, v) = (q_dim + h * head_dim, q_dim + kv_dim + h * head_dim);
                if let (Some(k), Some(v)) = (qkv.get(k..k + head_dim), qkv.get(v..v + head_dim)) {
                    store(kernels, head, ring, position + t, k, v);
                }
            }
        });

        // One token is shared out by KV heads, several by tokens.
        let group = spec.group();
        let (chunk, heads) = if tokens == 1 { (group * head_dim, 1) } else { (TOKENS * q_dim, spec.kv_heads) };
        let scratch = sums.len() / compute.threads.max(1);
        let scale = spec.attention_scale.unwrap_or_else(|| 1.0 / libm::sqrtf(head_dim as f32));
        let cache = &*cache;
        let seen = (position + tokens).min(spec.window.unwrap_or(usize::MAX));
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
                    window: spec.window.unwrap_or(usize::MAX),
                    scale,
                };
                kernels.attend(&job, out, q_dim, sums);
            }
        });

        if let Some(w) = weights.matrix(Role::AttnOutput, layer) {
            compute.input(out, tokens).times(w, branch, dim);
            add_bias(branch, dim, weights.vector(Role::AttnOutputBias, layer));
            add(hidden, branch);
        }
    }
}

/// Tokens whose attention is one piece of work.
const TOKENS: usize = 8;
