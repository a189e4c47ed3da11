//! What Gemma 4 does besides: an input of its own for every layer, and a factor at a layer's end.

use super::{Engine, add, norm_one, norm_rows, rows, rows_mut, scale};
use crate::TokenId;
use crate::model::{Layer, Need, Role};
use crate::quant::{decode_row, le_f32};

impl Engine<'_, '_> {
    /// The layers' own inputs of a batch, for all layers at once:
    /// `(embedding * sqrt(width) + norm(projection(x) / sqrt(dim))) / sqrt(2)`.
    pub(super) fn layer_inputs(&mut self, tokens: &[TokenId]) {
        let Self { spec, weights, compute, hidden, inner, inputs, .. } = self;
        let (dim, width) = (spec.dim, spec.per_layer_input());
        if width == 0 {
            return;
        }
        let all = spec.layers * width;
        let (Some(words), Some(projection)) =
            (weights.matrix(Role::PerLayerTokenEmbd, 0), weights.matrix(Role::PerLayerModelProj, 0))
        else {
            return;
        };
        let (Some(hidden), Some(inputs), Some(word)) =
            (hidden.get(..tokens.len() * dim), inputs.get_mut(..tokens.len() * all), inner.get_mut(..all))
        else {
            return;
        };
        compute.input(hidden, tokens.len()).times(projection, inputs, all);
        scale(inputs, 1.0 / libm::sqrtf(dim as f32));
        let weight = weights.vector(Role::PerLayerProjNorm, 0);
        for (&token, inputs) in tokens.iter().zip(rows_mut(inputs, all)) {
            for input in rows_mut(inputs, width) {
                norm_one(compute.kernels, spec, weight, &[], input);
            }
            decode_row(words.kind, words.row(token as usize), word);
            scale(word, libm::sqrtf(width as f32));
            add(inputs, word);
            scale(inputs, core::f32::consts::FRAC_1_SQRT_2);
        }
    }

    /// `x += norm(projection(f(gate(x)) * input))`, then `x *= scale`, as far as the model has them.
    pub(super) fn layer_end(&mut self, layer: &Layer, tokens: usize) {
        let Self { spec, weights, compute, hidden, branch, inner, inputs, .. } = self;
        let (index, dim, width) = (layer.index, spec.dim, spec.per_layer_input());
        let Some(hidden) = hidden.get_mut(..tokens * dim) else { return };
        if width > 0
            && let (Some(w_gate), Some(w_proj)) =
                (weights.matrix(Role::InpGate, index), weights.matrix(Role::Proj, index))
        {
            let (Some(gate), Some(branch)) = (inner.get_mut(..tokens * width), branch.get_mut(..tokens * dim)) else {
                return;
            };
            compute.input(hidden, tokens).times(w_gate, gate, width);
            for (gate, inputs) in rows_mut(gate, width).zip(rows(inputs, spec.layers * width)) {
                let input = inputs.get(index * width..(index + 1) * width);
                compute.kernels.activate(spec.activation(), gate, input);
            }
            compute.input(gate, tokens).times(w_proj, branch, dim);
            let weight = weights.vector(Role::PostNorm, index);
            compute.by_tokens(branch, dim, &|_, branch| norm_rows(compute.kernels, spec, weight, &[], branch));
            compute.by_tokens(hidden, dim, &|start, hidden| add(hidden, branch.get(start..).unwrap_or(&[])));
        }
        if spec.layer_scale() == Need::Absent {
            return;
        }
        let factor = weights.vector(Role::LayerOutputScale, index);
        if !factor.is_empty() {
            scale(hidden, le_f32(factor, 0));
        }
    }
}
