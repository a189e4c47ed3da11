//! Gemma 4's additional input per layer, and the scale factor at a layer's end.

use super::{Forward, add, copy, norm_one, norm_rows, rows, rows_mut, scale};
use crate::TokenId;
use crate::model::{Layer, Need, Role};
use crate::quant::le_f32;

impl Forward<'_, '_> {
    /// Looks up the additional embeddings that each layer adds per token, and stores them in rows `first..` of
    /// `inputs`.
    pub(super) fn embed_for_layers(&mut self, tokens: &[TokenId], first: usize) {
        let Self { spec, weights, compute, inputs, .. } = self;
        let width = spec.per_layer_input();
        if width == 0 {
            return;
        }
        let all = spec.layers * width;
        let Some(words) = weights.matrix(Role::PerLayerTokenEmbd, 0) else { return };
        let Some(inputs) = inputs.get_mut(first * all..) else { return };
        for (&token, inputs) in tokens.iter().zip(rows_mut(inputs, all)) {
            compute.look_up(&words, token as usize, inputs);
            scale(inputs, libm::sqrtf(width as f32));
        }
    }

    /// Computes the additional inputs of all layers for all rows:
    /// `(embedding * sqrt(width) + norm(projection(x) / sqrt(dim))) / sqrt(2)`.
    pub(super) fn layer_inputs(&mut self) {
        let Self { spec, weights, compute, hidden, inner, inputs, rows, .. } = self;
        let (dim, width, rows) = (spec.dim, spec.per_layer_input(), *rows);
        if width == 0 {
            return;
        }
        let all = spec.layers * width;
        let Some(projection) = weights.matrix(Role::PerLayerModelProj, 0) else { return };
        let (Some(hidden), Some(inputs), Some(projected)) =
            (hidden.get(..rows * dim), inputs.get_mut(..rows * all), inner.get_mut(..rows * all))
        else {
            return;
        };
        compute.times((hidden, rows), projection, projected, all);
        scale(projected, 1.0 / libm::sqrtf(dim as f32));
        let weight = weights.vector(Role::PerLayerProjNorm, 0);
        for projected in rows_mut(projected, width) {
            norm_one(compute.kernels, spec, weight, &[], projected);
        }
        add(inputs, projected);
        scale(inputs, core::f32::consts::FRAC_1_SQRT_2);
    }

    /// Ends a layer: `x += norm(projection(f(gate(x)) * input))`, where `input` is the layer's own input for the token,
    /// then `x *= scale` or `x += scale * embedding`. Steps that the model does not have are left out.
    pub(super) fn layer_end(&mut self, layer: &Layer, tokens: usize) {
        let at = self.beside_at();
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
            let factors = weights.vector(Role::AltupCorrectScale, index);
            let mut input = &*hidden;
            if !factors.is_empty() {
                copy(branch, hidden);
                for row in rows_mut(branch, dim) {
                    row.iter_mut().zip(factors.as_chunks().0).for_each(|(x, f)| *x *= f32::from_le_bytes(*f));
                }
                input = &*branch;
            }
            compute.times((input, tokens), w_gate, gate, width);
            for (gate, inputs) in rows_mut(gate, width).zip(rows(inputs, spec.layers * width)) {
                let input = inputs.get(index * width..(index + 1) * width);
                compute.kernels.activate(spec.activation(), gate, input);
            }
            compute.times((gate, tokens), w_proj, branch, dim);
            let weight = weights.vector(Role::PostNorm, index);
            compute.by_tokens(branch, dim, &|_, branch| norm_rows(compute.kernels, spec, weight, &[], branch));
            if spec.altup().is_some() {
                return self.add_to_streams();
            }
            compute.by_tokens(hidden, dim, &|start, hidden| add(hidden, branch.get(start..).unwrap_or(&[])));
        }
        if spec.layer_scale() == Need::Absent {
            return;
        }
        let factor = weights.vector(Role::LayerOutputScale, index);
        if spec.embedding_skip() {
            let (factor, kept) = (le_f32(factor, 0), inputs.get(at..).unwrap_or(&[]));
            hidden.iter_mut().zip(kept).for_each(|(x, kept)| *x += factor * kept);
        } else if !factor.is_empty() {
            scale(hidden, le_f32(factor, 0));
        }
    }
}
