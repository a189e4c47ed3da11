//! Norms, activation functions and float dot products, defined once over [`Isa`](super::lanes::Isa). Sums have 16
//! lanes; the last vector is padded with zeros.

use core::ops::Range;

use bytemuck::Zeroable;

use super::lanes::{Isa, Lanes, copy, exp_parts, load, padded, store};
use super::{Activation, Job};
use crate::built;
#[cfg(feature = "lora")]
use crate::quant::TensorType;

/// `tanh(x)` with a relative error below 4e-7. Computes `e / (e + 2)` with `e = exp(2 x) - 1`. The 1 is subtracted from
/// the power of two before the multiplication, so that small `x` stay accurate.
#[inline(always)]
pub(super) fn tanh<S: Isa>(s: S, x: S::V) -> S::V {
    let (r, q, n) = exp_parts(s, x.add(x));
    let power = n.exp2i();
    let e = q.mul(r).fma(power, power.sub(s.splat(1.0)));
    e.div(e.add(s.splat(2.0)))
}

/// `x = cap * tanh(x / cap)`.
#[inline(always)]
pub(super) fn soft_cap<S: Isa>(s: S, x: &mut [f32], cap: f32) {
    for i in (0..x.len()).step_by(16) {
        store(capped(s, load(s, x, i), cap), x, i);
    }
}

/// `cap * tanh(x / cap)`.
#[inline(always)]
pub(super) fn capped<S: Isa>(s: S, x: S::V, cap: f32) -> S::V {
    tanh(s, x.div(s.splat(cap))).mul(s.splat(cap))
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
pub(super) fn silu<S: Isa>(s: S, x: S::V) -> S::V {
    x.div(s.splat(1.0).add(s.exp(s.splat(0.0).sub(x))))
}

/// `ln(1 + exp(x))` with a relative error below 4e-7 for `x` from -87.3 on; smaller `x` are clamped to -87.3. Computes
/// `max(x, 0) + ln(1 + u)` with `u = exp(-|x|)`, where `ln(1 + u) = 2 artanh(z)` is a series in `z = u / (u + 2)`, and
/// `z` is at most 1/3.
#[inline(always)]
pub(super) fn softplus<S: Isa>(s: S, x: S::V) -> S::V {
    let u = s.exp(s.splat(0.0).sub(x.abs()));
    let z = u.div(u.add(s.splat(2.0)));
    let squared = z.mul(z);
    let mut p = s.splat(2.0 / 15.0);
    for c in [2.0 / 13.0, 2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 2.0] {
        p = p.fma(squared, s.splat(c));
    }
    p.fma(z, s.splat(0.0).max(x))
}

/// GELU in the tanh approximation, `x / 2 (1 + tanh u)` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`, rewritten as
/// `x / (1 + exp(-2 u))`.
#[inline(always)]
fn gelu_tanh<S: Isa>(s: S, x: S::V) -> S::V {
    let cubic = x.mul(x).fma(s.splat(0.044_715), s.splat(1.0));
    let minus_2u = x.mul(s.splat(-1.595_769)).mul(cubic);
    x.div(s.splat(1.0).add(s.exp(minus_2u)))
}

/// Exact GELU, `x / 2 (1 + erf(x / sqrt(2)))`, with an error below 3e-7 times `|x|`. Computes `erf` by formula 7.1.26
/// of Abramowitz and Stegun: `erf(u) = 1 - P(t) exp(-u^2)` with `t = 1 / (1 + 0.3275911 u)` for positive `u`.
#[inline(always)]
fn gelu_erf<S: Isa>(s: S, x: S::V) -> S::V {
    let u = x.abs().mul(s.splat(core::f32::consts::FRAC_1_SQRT_2));
    let t = s.splat(1.0).div(u.fma(s.splat(0.327_591_1), s.splat(1.0)));
    let mut p = s.splat(1.061_405_4);
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6, 0.0] {
        p = p.fma(t, s.splat(c));
    }
    let rest = p.mul(s.exp(s.splat(0.0).sub(u.mul(u)))); // 1 - erf(u)
    let half = x.abs().mul(s.splat(0.5));
    // x / 2 + |x| / 2 erf(u)
    x.mul(s.splat(0.5)).add(half.sub(half.mul(rest)))
}

/// True if the activation function is SiLU. If a build lacks a function, it treats the function as SiLU, here and in
/// [`activate`], so that a build with only SiLU needs no branch.
#[cfg(arm_fpu)]
pub(super) fn is_silu(f: Activation) -> bool {
    match f {
        Activation::Silu => true,
        Activation::GeluTanh => !built::GELU_TANH,
        Activation::GeluErf => !built::GELU_ERF,
        Activation::Sigmoid => !built::SIGMOID,
        Activation::Relu => !built::RELU,
        Activation::ReluSquared => !built::RELU_SQUARED,
        Activation::ClampedSwiglu => !built::GPT_OSS,
        Activation::Decay | Activation::DoubleExponential => !built::RWKV,
    }
}

/// Applies an activation function in place: `x = f(x)` or, if the feed-forward has a gate (so that `x` is the gate), `x
/// = f(x) * up`.
#[inline(always)]
pub(super) fn activate<S: Isa>(s: S, f: Activation, x: &mut [f32], up: Option<&[f32]>) {
    for i in (0..x.len()).step_by(16) {
        let v = load(s, x, i);
        if built::GPT_OSS
            && let (Activation::ClampedSwiglu, Some(up)) = (f, up)
        {
            let limit = s.splat(7.0);
            let v = limit.min(v); // the constants come first, so NaN passes through
            let up = s.splat(-7.0).max(limit.min(load(s, up, i))).add(s.splat(1.0));
            let gate = v.div(s.splat(1.0).add(s.exp(v.mul(s.splat(-1.702)))));
            store(gate.mul(up), x, i);
            continue;
        }
        let v = match f {
            Activation::GeluTanh if built::GELU_TANH => gelu_tanh(s, v),
            Activation::GeluErf if built::GELU_ERF => gelu_erf(s, v),
            Activation::Sigmoid if built::SIGMOID => {
                let one = s.splat(1.0);
                one.div(one.add(s.exp(s.splat(0.0).sub(v))))
            }
            Activation::DoubleExponential if built::RWKV => s.exp(s.splat(0.0).sub(s.exp(v))),
            Activation::Decay if built::RWKV => {
                let one = s.splat(1.0);
                s.exp(s.splat(-0.606_530_66).div(one.add(s.exp(s.splat(0.0).sub(v)))))
            }
            // Adding 0 turns -0 into 0, because the sign of a zero from `max` depends on the instruction set. NaN
            // passes through.
            Activation::Relu if built::RELU => s.splat(0.0).max(v).add(s.splat(0.0)),
            Activation::ReluSquared if built::RELU_SQUARED => {
                let v = s.splat(0.0).max(v);
                v.mul(v)
            }
            _ => silu(s, v),
        };
        store(if let Some(up) = up { v.mul(load(s, up, i)) } else { v }, x, i);
    }
}

/// RMS norm: `x / sqrt(mean(x^2) + eps) * weight`.
#[inline(always)]
pub(super) fn rms_norm<S: Isa>(s: S, x: &mut [f32], weight: &[u8], eps: f32) {
    let mut sum = s.zero();
    for i in (0..x.len()).step_by(16) {
        let v = load(s, x, i);
        sum = v.fma(v, sum);
    }
    let scale = 1.0 / libm::sqrtf(sum.sum() / x.len() as f32 + eps);
    affine(s, x, 0.0, scale, weight, &[]);
}

/// The divisor of a layer norm, computed from the `n` differences from the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deviation {
    /// `sqrt(mean of squares + eps)`, the usual one.
    Within(f32),
    /// `sqrt(sum of squares / (n - 1)) + eps`.
    Unbiased(f32),
}

/// Layer norm: `(x - mean) / deviation * weight + bias`.
#[inline(always)]
pub(super) fn layer_norm<S: Isa>(s: S, x: &mut [f32], weight: &[u8], bias: &[u8], deviation: Deviation) {
    let n = x.len();
    let mut sum = s.splat(0.0);
    for i in (0..n).step_by(16) {
        sum = sum.add(load(s, x, i));
    }
    let mean = sum.sum() / n as f32;
    let mut squares = s.splat(0.0);
    for i in (0..n).step_by(16) {
        let here = if i + 16 <= n { u16::MAX } else { (1 << (n - i)) - 1 };
        let v = load(s, x, i).sub(s.splat(mean)).select(here, s.splat(0.0));
        squares = v.fma(v, squares);
    }
    let deviation = match deviation {
        Deviation::Unbiased(eps) if built::UNBIASED_NORM => libm::sqrtf(squares.sum() / (n as f32 - 1.0)) + eps,
        Deviation::Within(eps) | Deviation::Unbiased(eps) => libm::sqrtf(squares.sum() / n as f32 + eps),
    };
    affine(s, x, mean, 1.0 / deviation, weight, bias);
}

/// Computes `(x - mean) * scale * weight + bias` in place. Weight and bias are little-endian f32; an empty slice means
/// that there is no weight or no bias.
#[inline(always)]
fn affine<S: Isa>(s: S, x: &mut [f32], mean: f32, scale: f32, weight: &[u8], bias: &[u8]) {
    for i in (0..x.len()).step_by(16) {
        let mut v = load(s, x, i).sub(s.splat(mean)).mul(s.splat(scale));
        if !weight.is_empty() {
            v = v.mul(floats(s, weight, i));
        }
        if !bias.is_empty() {
            v = v.add(floats(s, bias, i));
        }
        store(v, x, i);
    }
}

/// The 16 little-endian f32 from element `i` of `bytes`; zeros past the end.
#[inline(always)]
pub(super) fn floats<S: Isa>(s: S, bytes: &[u8], i: usize) -> S::V {
    match bytes.get(i * 4..).and_then(|bytes| bytes.first_chunk()) {
        Some(bytes) => s.load_f32(bytes),
        None => s.load_f32(&padded(bytes, i * 4)),
    }
}

/// Rounds the floats of `x` to little-endian f16; `out` has 2 bytes per element.
#[inline(always)]
pub(super) fn to_f16<S: Isa>(s: S, x: &[f32], out: &mut [u8]) {
    for (i, out) in out.chunks_mut(32).enumerate() {
        let v = load(s, x, i * 16);
        match out.first_chunk_mut() {
            Some(out) => v.store_f16(out),
            None => {
                let mut tail = [0; 32];
                v.store_f16(&mut tail);
                copy(&tail, out);
            }
        }
    }
}

/// Quantizes activations for weights in blocks of 32, like llama.cpp's `quantize_row_q8_0`: the scale is the largest
/// magnitude divided by 127, rounded to f16, and values are rounded half to even.
#[inline(always)]
pub(super) fn quantize_q8<S: Isa>(s: S, x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
    let blocks = x.as_chunks::<32>().0.iter().zip(q.as_chunks_mut::<32>().0);
    for (((x, q), d), sums) in blocks.zip(d).zip(sums.as_chunks_mut::<2>().0) {
        *d = s.round_to_f16(s.quantize_block(x, q, sums) / 127.0);
    }
}

/// Quantizes activations for weights in blocks of 256, like llama.cpp's `quantize_row_q8_K`: there is one f32 scale per
/// 256 elements.
#[inline(always)]
pub(super) fn quantize_q8k<S: Isa>(s: S, x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
    let blocks = x.as_chunks::<256>().0.iter().zip(q.as_chunks_mut::<256>().0);
    for (((x, q), d), sums) in blocks.zip(d).zip(sums.as_chunks_mut::<16>().0) {
        *d = 1.0 / (127.0 / s.quantize_block(x, q, sums)); // 0 if the whole block is 0
    }
}

/// Quantizes activations for weights in groups of `N`, like `quantize` of llama2.c's `runq.c`, except that halves are
/// rounded to even and not away from zero. The scale is the largest magnitude divided by 127, in f32. A group's scale
/// is stored once per 32 elements.
#[inline(always)]
pub(super) fn quantize_groups<S: Isa, const N: usize, const SCALES: usize, const SUMS: usize>(
    s: S,
    x: &[f32],
    q: &mut [i8],
    d: &mut [f32],
    sums: &mut [i16],
) {
    let groups = x.as_chunks::<N>().0.iter().zip(q.as_chunks_mut::<N>().0);
    for (((x, q), d), sums) in groups.zip(d.as_chunks_mut::<SCALES>().0).zip(sums.as_chunks_mut::<SUMS>().0) {
        *d = [s.quantize_block(x, q, sums) / 127.0; SCALES];
    }
}

/// A float weight type.
pub(super) trait Weight {
    /// The bytes of 16 weights.
    type Sixteen: bytemuck::Pod;
    /// Bytes of one weight.
    const BYTES: usize = size_of::<Self::Sixteen>() / 16;
    /// True for bf16.
    #[cfg(cortex_m_fpu)]
    const BRAIN: bool = false;
    fn load<S: Isa>(s: S, w: &Self::Sixteen) -> S::V;
    #[cfg(feature = "lora")]
    const KIND: TensorType;
}

macro_rules! weight {
    ($name:ident, $kind:ident, $bytes:literal, $load:ident $($brain:ident)?) => {
        pub(super) struct $name;
        impl Weight for $name {
            type Sixteen = [u8; 16 * $bytes];
            $(
                #[cfg(cortex_m_fpu)]
                const BRAIN: bool = stringify!($brain).len() > 0;
            )?
            #[inline(always)]
            fn load<S: Isa>(s: S, w: &Self::Sixteen) -> S::V {
                s.$load(w)
            }
            #[cfg(feature = "lora")]
            const KIND: TensorType = TensorType::$kind;
        }
    };
}
weight!(F32, F32, 4, load_f32);
weight!(F16, F16, 2, load_f16);
weight!(Bf16, BF16, 2, load_bf16 brain);

/// Bytes of a block of rows, which is multiplied with all tokens while it is in the second-level cache.
const NEAR: usize = 1 << 17;

/// Multiplies float weights with float activations, in tiles of `R` rows by at most `T` tokens; `T` is at most five.
/// Each output is added up in 16 lanes.
#[inline(always)]
pub(super) fn matmul<S: Isa, W: Weight, const R: usize, const T: usize>(s: S, job: &mut Job<'_>) {
    const { assert!(T <= 5) }
    let (all, tokens, row_bytes) = (job.rows, job.x.tokens, job.cols * W::BYTES);
    if T == 1 {
        for t in 0..tokens {
            tile_rows::<S, W, R, 1>(s, job, 0..all, t, &[]);
        }
        return;
    }
    if T < 5 {
        // With fewer registers, more forms of the tile than these two halve the speed (AVX2).
        let whole = tokens / T * T;
        for t in (0..whole).step_by(T) {
            tile_rows::<S, W, R, T>(s, job, 0..all, t, &[]);
        }
        for t in whole..tokens {
            tile_rows::<S, W, R, 1>(s, job, 0..all, t, &[]);
        }
        return;
    }
    // The numbers of tokens of the tiles differ by at most one, because a tile of one token is slow.
    let tiles = tokens.div_ceil(T);
    let share = |whole: usize, tile: usize| (whole * tile).checked_div(tiles).unwrap_or(0);
    let near = NEAR.checked_div(row_bytes).unwrap_or(0).max(1).next_multiple_of(R);
    let mut first = 0;
    while first < all {
        let rows = first..all.min(first + near);
        // While these rows are multiplied, the next ones are fetched, a part with each tile of tokens.
        let next = job.w.get(rows.end * row_bytes..).unwrap_or_default();
        let next = next.get(..near * row_bytes).unwrap_or(next);
        for tile in 0..tiles {
            let (t, end) = (share(tokens, tile), share(tokens, tile + 1));
            let soon = next.get(share(next.len(), tile)..share(next.len(), tile + 1)).unwrap_or_default();
            let rows = rows.clone();
            match end - t {
                5 if T >= 5 => tile_rows::<S, W, R, 5>(s, job, rows, t, soon),
                4 if T >= 4 => tile_rows::<S, W, R, 4>(s, job, rows, t, soon),
                3 if T >= 3 => tile_rows::<S, W, R, 3>(s, job, rows, t, soon),
                2 => tile_rows::<S, W, R, 2>(s, job, rows, t, soon),
                _ => tile_rows::<S, W, R, 1>(s, job, rows, t, soon),
            }
        }
        first += near;
    }
}

/// Multiplies the rows `rows` with `T` tokens, from token `t` on, and prefetches `soon`.
#[inline(always)]
fn tile_rows<S: Isa, W: Weight, const R: usize, const T: usize>(
    s: S,
    job: &mut Job<'_>,
    rows: Range<usize>,
    t: usize,
    soon: &[u8],
) {
    let tiles = rows.len() / R;
    let share = soon.len().checked_div(tiles).map_or(0, |share| share + 1);
    let whole = rows.start + tiles * R;
    // SAFETY: `r` and `t` count the job's rows and tokens, and each tile ends inside the job.
    unsafe {
        for (index, r) in (rows.start..whole).step_by(R).enumerate() {
            let soon = soon.get(index * share..).unwrap_or_default();
            soon.iter().take(share).step_by(64).for_each(|byte| s.prefetch(byte));
            tile::<S, W, R, T>(s, job, r, t);
        }
        for r in whole..rows.end {
            tile::<S, W, 1, T>(s, job, r, t);
        }
    }
}

/// Multiplies `R` rows, from row `r` on, with `T` tokens, from token `t` on.
///
/// # Safety
///
/// The job has rows `r..r + R` and tokens `t..t + T`.
#[inline(always)]
unsafe fn tile<S: Isa, W: Weight, const R: usize, const T: usize>(s: S, job: &mut Job<'_>, r: usize, t: usize) {
    let cols = job.cols;
    let row_bytes = cols * W::BYTES;
    // SAFETY: the job has these rows and tokens, each has `cols` elements, and `whole <= cols`. The tail of a row is
    // copied to a padded array before it is loaded.
    unsafe {
        let w = job.w.as_ptr().add(r * row_bytes);
        let x = job.x.x.as_ptr().add(t * cols);
        let mut acc = [[s.splat(0.0); R]; T];
        // Adds the products of 16 weights of row `k`.
        let mut add = |k: usize, w: S::V, xs: [S::V; T]| {
            for (acc, x) in acc.iter_mut().filter_map(|acc| acc.get_mut(k)).zip(xs) {
                *acc = w.fma(x, *acc);
            }
        };
        let whole = cols / 16 * 16;
        for i in (0..whole).step_by(16) {
            let mut xs = [s.splat(0.0); T];
            for (k, x_k) in xs.iter_mut().enumerate() {
                *x_k = s.load(&*x.add(k * cols + i).cast());
            }
            for k in 0..R {
                let w = W::load(s, &*w.add(k * row_bytes + i * W::BYTES).cast());
                add(k, w, xs);
            }
        }
        if whole < cols {
            let mut xs = [s.splat(0.0); T];
            for (k, x_k) in xs.iter_mut().enumerate() {
                *x_k = load(s, core::slice::from_raw_parts(x.add(k * cols), cols), whole);
            }
            for k in 0..R {
                let mut tail = W::Sixteen::zeroed();
                core::ptr::copy_nonoverlapping(
                    w.add(k * row_bytes + whole * W::BYTES),
                    (&raw mut tail).cast(),
                    (cols - whole) * W::BYTES,
                );
                add(k, W::load(s, &tail), xs);
            }
        }
        for (j, acc) in acc.into_iter().enumerate() {
            job.out.add((t + j) * job.stride + r).cast::<[f32; R]>().write(s.sums(acc));
        }
    }
}

/// Multiplies with few columns: `out[t * stride + r] += row r of w * token t`. Each output is the start of one chain of
/// fma over the columns. The lanes of a vector belong to different rows, so the lanes need not be added up at the end.
#[cfg(feature = "lora")]
#[inline(always)]
pub(super) fn add_product<S: Isa, W: Weight>(s: S, job: &mut Job<'_>) {
    let super::job::Operands { w, rows, cols, x, out, stride, .. } = **job;
    // With one token, blocks of 16 rows by 8 columns are multiplied without a bounds check for each product, because
    // the checks would take as long as the products.
    let whole = if x.tokens == 1 && cols.is_multiple_of(8) { rows / 16 * 16 } else { 0 };
    for (k, x) in x.x.as_chunks::<8>().0.iter().enumerate() {
        for r in (0..whole).step_by(16) {
            // SAFETY: the job has these weights and outputs, and nobody else accesses the outputs.
            let (columns, out) = unsafe {
                let first = w.as_ptr().add((r * cols + k * 8) * W::BYTES);
                (s.eight_columns(W::KIND, first, cols * W::BYTES), &mut *out.add(r).cast::<[f32; 16]>())
            };
            columns.into_iter().zip(x).fold(s.load(out), |sum, (column, x)| column.fma(s.splat(*x), sum)).store(out);
        }
    }
    for r in (whole..rows).step_by(16) {
        for k in (0..cols).step_by(8) {
            let columns = eight_columns::<S, W>(s, w, r * cols + k, cols);
            for t in 0..x.tokens {
                // SAFETY: rows `r` up to `r + 16` of token `t` are inside the job's outputs, and nobody else accesses
                // them.
                let out = unsafe { core::slice::from_raw_parts_mut(out.add(t * stride + r), (rows - r).min(16)) };
                let Some(x) = x.x.get(t * cols + k..(t + 1) * cols) else { return };
                let mut acc = load(s, out, 0);
                let mut add = |column: S::V, x: &f32| acc = column.fma(s.splat(*x), acc);
                match x.first_chunk::<8>() {
                    Some(x) => columns.into_iter().zip(x).for_each(|(column, x)| add(column, x)),
                    None => columns.into_iter().zip(x).for_each(|(column, x)| add(column, x)),
                }
                store(acc, out, 0);
            }
        }
    }
}

/// Loads eight weights of each of 16 rows, from column `first` on. In place of columns after the last one, the weights
/// may be anything.
#[cfg(feature = "lora")]
#[inline(always)]
fn eight_columns<S: Isa, W: Weight>(s: S, w: &[u8], first: usize, cols: usize) -> [S::V; 8] {
    let (at, stride) = (first * W::BYTES, cols * W::BYTES);
    if at + 15 * stride + 8 * W::BYTES > w.len() {
        return last_columns::<S, W>(s, w.get(at..).unwrap_or_default(), stride);
    }
    // SAFETY: the last eight weights end inside `w`.
    unsafe { s.eight_columns(W::KIND, w.as_ptr().add(at), stride) }
}

/// Does the same as [`eight_columns`] at the end of a matrix, where 16 whole rows may not be readable. `w` begins with
/// the weights of the first row. Bytes after the end of `w` count as zeros.
#[cfg(feature = "lora")]
#[inline(always)]
fn last_columns<S: Isa, W: Weight>(s: S, w: &[u8], stride: usize) -> [S::V; 8] {
    let mut rows = [[0; 32]; 16];
    for (r, row) in rows.iter_mut().enumerate() {
        copy(w.get(r * stride..).unwrap_or_default(), row);
    }
    // SAFETY: eight weights have at most 32 bytes.
    unsafe { s.eight_columns(W::KIND, rows.as_ptr().cast(), 32) }
}
