//! Copies keys and values to other positions.

use super::{Forward, hadamard};
use crate::engine::layout::head_layout;
use crate::kernel::{load, store};

impl Forward<'_, '_> {
    /// Copies the keys and values of `count` positions to new positions, whose pages are reserved. Each side is a
    /// context and its first position. Keys are rotated by the distance.
    pub fn move_keys(&mut self, (from, first): (usize, usize), (to, position): (usize, usize), count: usize) {
        for rotary in &mut self.rotary {
            rotary.turn_from(first, position);
        }
        for index in 0..self.spec.layers {
            let layer = self.spec.layer(index);
            let tiles = self.tiles(&layer);
            let Self { spec, compute, inner, rotary, pools, kv, store: stored, .. } = self;
            if !layer.owns_kv {
                continue;
            }
            let (head, dim) = (head_layout(stored.kind, &layer), layer.kv_dim());
            let (Some(cache), Some(pool)) = (kv.get_mut(tiles), pools.get(layer.pool())) else { return };
            let Some(rotary) = rotary.get(spec.rotation(&layer)) else { return };
            let Some((keys, values)) = inner.get_mut(..2 * dim).and_then(|both| both.split_at_mut_checked(dim)) else {
                return;
            };
            let head_bytes = cache.len().checked_div(layer.kv_heads).unwrap_or(0);
            for i in 0..count {
                load(head, (cache, head_bytes), pool.table(from), first + i, keys, values);
                // The same call undoes the rotation of quantized caches, because that rotation is its own inverse.
                if head.kind.is_rotated() {
                    hadamard::rotate(keys, hadamard::keys(head.dim));
                }
                rotary.rotate(0, keys, head.dim);
                if head.kind.is_rotated() {
                    hadamard::rotate(keys, hadamard::keys(head.dim));
                }
                store(compute.kernels, head, (cache, head_bytes), pool.table(to), position + i, keys, values);
            }
        }
    }
}
