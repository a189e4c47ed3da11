//! Functions of the kernel table: assembly for the common cases, plain Rust for the others.

use super::exp::silu;
use super::float::Fpu;
use super::{plain, vectors};
use crate::kernel::cache::{self, Place};
use crate::kernel::scalar::Scalar;
use crate::kernel::{Activation, float};
use crate::memory::KvType;

/// The function [`Kernels::activate`](crate::kernel::Kernels). SiLU is in assembly; all other activations are computed
/// over [`Fpu`].
pub(super) unsafe fn activate(f: Activation, x: &mut [f32], up: Option<&[f32]>) {
    if !float::is_silu(f) {
        return other_activation(f, x, up);
    }
    let len = up.map_or(x.len(), |up| up.len().min(x.len()));
    // The assembly computes groups of four floats, the last `len % 4` floats are computed one by one. If there is no
    // `up`, all floats are computed one by one.
    let whole = if up.is_some() { len & !3 } else { 0 };
    let x = x.as_mut_ptr();
    // SAFETY: `x` has at least `len` floats, and so has `up`.
    unsafe {
        if let (Some(up), 4..) = (up, whole) {
            silu(x, up.as_ptr(), whole / 4);
        }
        for i in whole..len {
            let (mut four, up) = ([*x.add(i); 4], [up.map_or(1.0, |up| *up.as_ptr().add(i)); 4]);
            silu(four.as_mut_ptr(), up.as_ptr(), 1);
            *x.add(i) = four[0];
        }
    }
}

#[inline(never)]
fn other_activation(f: Activation, x: &mut [f32], up: Option<&[f32]>) {
    float::activate(Scalar::<Fpu>::HERE, f, x, up);
}

/// [`Kernels::rms_norm`](crate::kernel::Kernels).
pub(super) unsafe fn rms_norm(x: &mut [f32], weight: &[u8], eps: f32) {
    let fits = x.len().is_multiple_of(16)
        && !x.is_empty()
        && weight.len() == 4 * x.len()
        && weight.as_ptr().addr().is_multiple_of(4);
    if fits {
        // SAFETY: the length is a multiple of 16 and not 0, and `weight` has as many aligned floats.
        unsafe { vectors::rms_norm(x.as_mut_ptr(), weight.as_ptr(), x.len(), eps) };
    } else {
        plain::rms_norm(x, weight, eps);
    }
}

/// [`Kernels::store_floats`](crate::kernel::Kernels).
pub(super) unsafe fn store_floats(at: &Place, tiles: &mut [u8], keys: &[f32], values: &[f32]) {
    if const { KvType::F32.is_built() } && !store_fast(at, tiles, keys, values) {
        cache::store_floats(at, tiles, keys, values);
    }
}

/// Stores keys and values if `dim` is a multiple of four and values are not parts of keys. Returns false in other
/// cases, and if a slice is too short.
fn store_fast(at: &Place, tiles: &mut [u8], keys: &[f32], values: &[f32]) -> bool {
    let Some(Ok(tiles)) = tiles.get_mut(at.start..).map(bytemuck::try_cast_slice_mut::<_, f32>) else { return false };
    let (dim, slot, apart) = (at.layout.dim, at.slot, at.head_bytes / 4);
    let width = dim.next_multiple_of(16);
    let (tile, count) = (16 * (dim + width), |numbers: &[f32]| numbers.len().checked_div(dim).unwrap_or(0));
    let heads = count(keys).min(count(values)).min(tiles.len().div_ceil(apart.max(1)));
    let fits = heads > 0
        && dim.is_multiple_of(4)
        && slot < 16
        && !at.layout.shares()
        && tile <= apart.min(tiles.len())
        && (heads - 1) * apart <= tiles.len() - tile;
    if fits {
        // SAFETY: `keys` and `values` have `heads * dim` floats, the last head's tile ends inside `tiles`, and the
        // conditions on `dim`, `slot` and `heads` are checked above.
        unsafe {
            vectors::store_kv((keys.as_ptr(), values.as_ptr()), tiles.as_mut_ptr(), (heads, apart), (dim, width), slot)
        };
    }
    fits
}
