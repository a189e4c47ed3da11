//! Computes the inputs of the first block from pixels.

use super::blocks::norm;
use super::encoder::{Encoder, States};
use super::plan::patches;
use super::positions::add_learned;
use super::resize::{PIXEL, Plane};
use super::roles::Role;
use super::spec::Spec;
use super::views::View;
use crate::engine::{add_bias, rows_mut};
use crate::kernel::add;
use crate::quant::decode_row;

impl Encoder<'_, '_> {
    /// Computes the inputs of the first block: linear layers on patches, and learned positions.
    pub(super) fn embed(&mut self, index: usize, view: &View) {
        let Self { spec, table, compute, states, pixels, plan } = self;
        let (dim, before, batch, patch) = (spec.dim, spec.before(), plan.options.batch.max(1), spec.patch_len());
        let Some(plane) = pixels.plane(&plan.views, index) else { return };
        let States { hidden, branch, inner, places, count: all, .. } = states;
        let grid = patches(spec, view);
        if before > 0 {
            let (Some(class), Some(first)) = (table.matrix(Role::Class, 0), hidden.get_mut(..dim)) else { return };
            decode_row(class.kind(), class.data(), first);
            add_learned(spec, table, (grid, None), first, branch);
        }
        for first in (before..*all).step_by(batch) {
            let count = batch.min(*all - first);
            let (Some(places), Some(inner), Some(hidden), Some(branch)) = (
                places.get(first - before..first - before + count),
                inner.get_mut(..count * patch),
                hidden.get_mut(first * dim..(first + count) * dim),
                branch.get_mut(..count * dim),
            ) else {
                return;
            };
            let Some(weights) = table.matrix(Role::Patches, 0) else { return };
            compute.by_tokens(inner, patch, &|start, inner| {
                let places = places.get(start.checked_div(patch).unwrap_or(0)..).unwrap_or(&[]);
                for (place, to) in places.iter().zip(rows_mut(inner, patch)) {
                    read_patch(spec, &plane, *place, to);
                }
            });
            compute.times((inner, count), weights, hidden, dim);
            if let Some(again) = table.matrix(Role::PatchesAgain, 0) {
                compute.times((inner, count), again, branch, dim);
                add(hidden, branch);
            }
            add_bias(hidden, dim, table.vector(Role::PatchesBias, 0));
            for (place, x) in places.iter().zip(rows_mut(hidden, dim)) {
                add_learned(spec, table, (grid, Some(*place)), x, branch);
            }
            norm(compute, spec.norm(), (table.vector(Role::NormBefore, 0), &[]), hidden);
        }
    }
}

/// Reads the pixels of a patch and normalizes them. Their order is from the top, row by row, first the red values of
/// all pixels, then all green values, then all blue values.
fn read_patch(spec: &Spec<'_>, plane: &Plane<'_>, place: u32, to: &mut [f32]) {
    let side = spec.patch;
    let (top, left) = ((place >> 16) as usize * side, (place & 0xffff) as usize * side);
    for ((color, to), (mean, std)) in rows_mut(to, side * side).enumerate().zip(spec.mean.into_iter().zip(spec.std)) {
        for (y, to) in (top..).zip(rows_mut(to, side)) {
            let pixels = plane.row(y).as_chunks::<PIXEL>().0.get(left..).unwrap_or(&[]);
            for (to, pixel) in to.iter_mut().zip(pixels) {
                let byte = pixel.get(color).copied().unwrap_or(0);
                *to = (f32::from(byte) / 255.0 - mean) / std;
            }
        }
    }
}
