//! Norms, activation functions, rotary positions and float dot products, stated once over
//! [`Lanes`]. Sums run in 16 lanes, the last ones padded with zeros.

use super::lanes::{Lanes, copy, load, padded, store};
use super::{Activation, Deviation, Job};
use crate::built;

/// `exp(x)`: relative error below 2e-7 from -87.3 to 88.3, and the value at the nearer end beyond.
///
/// `2^n * P(r)` with `n = round(x / ln 2)`, `r = x - n ln 2` in two steps, and the polynomial of
/// Cephes' `expf`.
#[inline(always)]
pub(super) unsafe fn exp<L: Lanes>(x: L) -> L {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let (r, q, n) = exp_parts(x);
        q.fma(r, L::splat(1.0)).mul(n.exp2i())
    }
}

/// `r`, `q` and `n` with `exp(x) = (q * r + 1) * 2^n`.
#[inline(always)]
unsafe fn exp_parts<L: Lanes>(x: L) -> (L, L, L) {
    // SAFETY: the caller has the instruction set.
    unsafe {
        // Constants first: NaN passes through.
        let x = L::splat(-87.33).max(L::splat(88.37).min(x));
        let n = x.mul(L::splat(core::f32::consts::LOG2_E)).round();
        let r = n.fma(L::splat(-0.693_359_4), x);
        let r = n.fma(L::splat(2.121_944_4e-4), r);
        let mut q = L::splat(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0] {
            q = q.fma(r, L::splat(c));
        }
        (r, q, n)
    }
}

/// `tanh(x)`: relative error below 4e-7. `e / (e + 2)` with `e = exp(2 x) - 1`, of which the 1 is taken
/// off the power of two, so that little of a small `x` is lost.
#[inline(always)]
pub(super) unsafe fn tanh<L: Lanes>(x: L) -> L {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let (r, q, n) = exp_parts(x.add(x));
        let power = n.exp2i();
        let e = q.mul(r).fma(power, power.sub(L::splat(1.0)));
        e.div(e.add(L::splat(2.0)))
    }
}

/// `x = cap * tanh(x / cap)`.
#[inline(always)]
pub(super) unsafe fn soft_cap<L: Lanes>(x: &mut [f32], cap: f32) {
    // SAFETY: the caller has the instruction set.
    unsafe {
        for i in (0..x.len()).step_by(16) {
            store(capped(load::<L>(x, i), cap), x, i);
        }
    }
}

/// `cap * tanh(x / cap)`.
#[inline(always)]
pub(super) unsafe fn capped<L: Lanes>(x: L, cap: f32) -> L {
    // SAFETY: the caller has the instruction set.
    unsafe { tanh(x.div(L::splat(cap))).mul(L::splat(cap)) }
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
pub(super) unsafe fn silu<L: Lanes>(x: L) -> L {
    // SAFETY: the caller has the instruction set.
    unsafe { x.div(L::splat(1.0).add(L::splat(0.0).sub(x).exp())) }
}

/// The tanh form of GELU, `x / 2 (1 + tanh u)` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`, as the
/// equal `x / (1 + exp(-2 u))`.
#[inline(always)]
unsafe fn gelu_tanh<L: Lanes>(x: L) -> L {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let cubic = x.mul(x).fma(L::splat(0.044_715), L::splat(1.0));
        let minus_2u = x.mul(L::splat(-1.595_769)).mul(cubic);
        x.div(L::splat(1.0).add(minus_2u.exp()))
    }
}

/// GELU, `x / 2 (1 + erf(x / sqrt(2)))`: absolute error below 3e-7 of `x`, by Abramowitz and Stegun 7.1.26:
/// `erf(u) = 1 - P(t) exp(-u^2)` with `t = 1 / (1 + 0.3275911 u)` for positive `u`.
#[inline(always)]
unsafe fn gelu_erf<L: Lanes>(x: L) -> L {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let u = x.abs().mul(L::splat(core::f32::consts::FRAC_1_SQRT_2));
        let t = L::splat(1.0).div(u.fma(L::splat(0.327_591_1), L::splat(1.0)));
        let mut p = L::splat(1.061_405_4);
        for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6, 0.0] {
            p = p.fma(t, L::splat(c));
        }
        let rest = p.mul(exp(L::splat(0.0).sub(u.mul(u)))); // 1 - erf(u)
        let half = x.abs().mul(L::splat(0.5));
        // x / 2 + |x| / 2 erf(u)
        x.mul(L::splat(0.5)).add(half.sub(half.mul(rest)))
    }
}

/// `x = f(x)`, or `x = f(x) * up` where the feed-forward is gated.
#[inline(always)]
pub(super) unsafe fn activate<L: Lanes>(f: Activation, x: &mut [f32], up: Option<&[f32]>) {
    // SAFETY: the caller has the instruction set.
    unsafe {
        for i in (0..x.len()).step_by(16) {
            let v: L = load(x, i);
            if built::GPT_OSS
                && let (Activation::ClampedSwiglu, Some(up)) = (f, up)
            {
                let limit = L::splat(7.0);
                let v = limit.min(v); // constants first: NaN passes through
                let up = L::splat(-7.0).max(limit.min(load(up, i))).add(L::splat(1.0));
                let gate = v.div(L::splat(1.0).add(v.mul(L::splat(-1.702)).exp()));
                store(gate.mul(up), x, i);
                continue;
            }
            let v = match f {
                Activation::GeluTanh if built::GELU_TANH => gelu_tanh(v),
                Activation::GeluErf if built::GELU_ERF => gelu_erf(v),
                Activation::Sigmoid if built::GATED_QUERY => {
                    let one = L::splat(1.0);
                    one.div(one.add(L::splat(0.0).sub(v).exp()))
                }
                // Zeros of both signs are alike, and a NaN passes through.
                Activation::Relu if built::RELU => L::splat(0.0).max(v).add(L::splat(0.0)),
                _ => silu(v),
            };
            store(if let Some(up) = up { v.mul(load(up, i)) } else { v }, x, i);
        }
    }
}

/// Root-mean-square norm of each `width` elements: `x / sqrt(mean(x^2) + eps) * weight`.
#[inline(always)]
pub(super) unsafe fn rms_norm<L: Lanes>(x: &mut [f32], weight: &[u8], eps: f32) {
    // SAFETY: the caller has the instruction set; `scale` needs what it says.
    unsafe {
        let mut sum = L::zero();
        for i in (0..x.len()).step_by(16) {
            let v: L = load(x, i);
            sum = v.fma(v, sum);
        }
        let scale = 1.0 / libm::sqrtf(sum.sum() / x.len() as f32 + eps);
        affine::<L>(x, 0.0, scale, weight, &[]);
    }
}

/// Layer norm: `(x - mean) / deviation * weight + bias`.
#[inline(always)]
pub(super) unsafe fn layer_norm<L: Lanes>(x: &mut [f32], weight: &[u8], bias: &[u8], deviation: Deviation) {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let n = x.len();
        let mut sum = L::splat(0.0);
        for i in (0..n).step_by(16) {
            sum = sum.add(load(x, i));
        }
        let mean = sum.sum() / n as f32;
        let mut squares = L::splat(0.0);
        for i in (0..n).step_by(16) {
            let here = if i + 16 <= n { u16::MAX } else { (1 << (n - i)) - 1 };
            let v = load::<L>(x, i).sub(L::splat(mean)).select(here, L::splat(0.0));
            squares = v.fma(v, squares);
        }
        let deviation = match deviation {
            Deviation::Unbiased(eps) if built::UNBIASED_NORM => libm::sqrtf(squares.sum() / (n as f32 - 1.0)) + eps,
            Deviation::Within(eps) | Deviation::Unbiased(eps) => libm::sqrtf(squares.sum() / n as f32 + eps),
        };
        affine::<L>(x, mean, 1.0 / deviation, weight, bias);
    }
}

/// `(x - mean) * scale * weight + bias`; weight and bias are little-endian f32, where they are.
#[inline(always)]
unsafe fn affine<L: Lanes>(x: &mut [f32], mean: f32, scale: f32, weight: &[u8], bias: &[u8]) {
    // SAFETY: the caller has the instruction set; `floats` checks the bytes.
    unsafe {
        for i in (0..x.len()).step_by(16) {
            let mut v = load::<L>(x, i).sub(L::splat(mean)).mul(L::splat(scale));
            if !weight.is_empty() {
                v = v.mul(floats(weight, i));
            }
            if !bias.is_empty() {
                v = v.add(floats(bias, i));
            }
            store(v, x, i);
        }
    }
}

/// The 16 little-endian f32 from element `i` of `bytes`, zeros beyond their end.
#[inline(always)]
unsafe fn floats<L: Lanes>(bytes: &[u8], i: usize) -> L {
    // SAFETY: the caller has the instruction set; `tail` and the checked range hold 64 bytes.
    unsafe {
        match bytes.get(i * 4..i * 4 + 64) {
            Some(b) => L::load(b.as_ptr().cast()),
            None => L::load(padded::<u8, 64>(bytes, i * 4).as_ptr().cast()),
        }
    }
}

/// Rounds to f16; both slices have the same length (2 bytes each in `out`).
#[inline(always)]
pub(super) unsafe fn to_f16<L: Lanes>(x: &[f32], out: &mut [u8]) {
    // SAFETY: the caller has the instruction set; the full store is checked, the rest is copied.
    unsafe {
        for (i, out) in out.chunks_mut(32).enumerate() {
            let v: L = load(x, i * 16);
            if out.len() == 32 {
                v.store_f16(out.as_mut_ptr());
            } else {
                let mut tail = [0u8; 32];
                v.store_f16(tail.as_mut_ptr());
                copy(&tail, out);
            }
        }
    }
}

/// Activations for weights in blocks of 32, as llama.cpp's `quantize_row_q8_0`: the scale is the largest
/// magnitude / 127, used as the f16 it would be stored as; values round half to even.
#[inline(always)]
pub(super) unsafe fn quantize_q8<L: Lanes>(x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
    // SAFETY: the caller has the instruction set; chunks are 32 elements.
    unsafe {
        let blocks = x.as_chunks::<32>().0.iter().zip(q.as_chunks_mut::<32>().0);
        for (((x, q), d), sums) in blocks.zip(d).zip(sums.as_chunks_mut::<2>().0) {
            *d = L::round_to_f16(quantize_block::<L, 32, 2>(x, q, sums) / 127.0);
        }
    }
}

/// Activations for weights in blocks of 256, as llama.cpp's `quantize_row_q8_K`: one f32 scale for 256.
#[inline(always)]
pub(super) unsafe fn quantize_q8k<L: Lanes>(x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
    // SAFETY: the caller has the instruction set; chunks are 256 elements.
    unsafe {
        let blocks = x.as_chunks::<256>().0.iter().zip(q.as_chunks_mut::<256>().0);
        for (((x, q), d), sums) in blocks.zip(d).zip(sums.as_chunks_mut::<16>().0) {
            *d = 1.0 / (127.0 / quantize_block::<L, 256, 16>(x, q, sums)); // 0 of 0
        }
    }
}

/// Activations for weights in groups of `N`, as `quantize` of llama2.c's `runq.c`, but for halves, which it rounds away
/// from zero: the scale is the largest magnitude / 127, in f32, for each 32 of the group.
#[inline(always)]
pub(super) unsafe fn quantize_groups<L: Lanes, const N: usize, const SCALES: usize, const SUMS: usize>(
    x: &[f32],
    q: &mut [i8],
    d: &mut [f32],
    sums: &mut [i16],
) {
    // SAFETY: the caller has the instruction set; chunks are N elements.
    unsafe {
        let groups = x.as_chunks::<N>().0.iter().zip(q.as_chunks_mut::<N>().0);
        for (((x, q), d), sums) in groups.zip(d.as_chunks_mut::<SCALES>().0).zip(sums.as_chunks_mut::<SUMS>().0) {
            *d = [quantize_block::<L, N, SUMS>(x, q, sums) / 127.0; SCALES];
        }
    }
}

/// Quantizes one block to its largest magnitude, which is returned, with the sums of each 16 quants.
/// A block that holds an infinity or a NaN becomes zeros under a NaN scale.
#[inline(always)]
unsafe fn quantize_block<L: Lanes, const N: usize, const SUMS: usize>(
    x: &[f32; N],
    q: &mut [i8; N],
    sums: &mut [i16; SUMS],
) -> f32 {
    // SAFETY: the caller has the instruction set; N is a multiple of 16.
    unsafe {
        let mut amax = L::splat(0.0);
        for i in (0..N).step_by(16) {
            amax = amax.max(L::load(x.as_ptr().add(i)).abs());
        }
        let amax = amax.largest();
        // Zeros, and what is so small that the scale becomes zero: all quants are zero.
        let inverse = 127.0 / amax;
        let inverse = L::splat(if inverse == f32::INFINITY { 0.0 } else { inverse });
        let mut total = 0.0;
        for ((x, q), to) in x.as_chunks::<16>().0.iter().zip(q.as_chunks_mut::<16>().0).zip(sums.iter_mut()) {
            let v = L::load(x.as_ptr()).mul(inverse).round();
            v.store_i8(q.as_mut_ptr());
            let sum = v.sum(); // at most 16 * 127: exact in any order
            *to = sum as i16;
            total += sum;
        }
        // NaN times anything is NaN, and infinity times an inverse of 0.
        if total.is_nan() {
            *q = [0; N];
            *sums = [0; SUMS];
            return f32::NAN;
        }
        amax
    }
}

/// How one float weight type is read.
pub(super) trait Weight {
    /// Bytes of one weight.
    const BYTES: usize;
    /// The 16 weights at `p`.
    unsafe fn load<L: Lanes>(p: *const u8) -> L;
}

macro_rules! weight {
    ($name:ident, $bytes:literal, $load:ident) => {
        pub(super) struct $name;
        impl Weight for $name {
            const BYTES: usize = $bytes;
            #[inline(always)]
            unsafe fn load<L: Lanes>(p: *const u8) -> L {
                // SAFETY: passed on to the caller.
                unsafe { L::$load(p.cast()) }
            }
        }
    };
}
weight!(F32, 4, load);
weight!(F16, 2, load_f16);
weight!(Bf16, 2, load_bf16);

/// Float weights times float activations: tiles of `R` rows by `T` tokens, each output one sum in 16 lanes.
///
/// # Safety
///
/// The caller has the instruction set; `job` as [`Job`] says.
#[inline(always)]
pub(super) unsafe fn matmul<L: Lanes, W: Weight, const R: usize, const T: usize>(job: &mut Job<'_>) {
    // SAFETY: rows and tokens stay within the job.
    unsafe {
        let mut t = 0;
        while t + T <= job.x.tokens {
            tile_rows::<L, W, R, T>(job, t);
            t += T;
        }
        while t < job.x.tokens {
            tile_rows::<L, W, R, 1>(job, t);
            t += 1;
        }
    }
}

#[inline(always)]
unsafe fn tile_rows<L: Lanes, W: Weight, const R: usize, const T: usize>(job: &mut Job<'_>, t: usize) {
    // SAFETY: as the caller says.
    unsafe {
        let mut r = 0;
        while r + R <= job.rows {
            tile::<L, W, R, T>(job, r, t);
            r += R;
        }
        while r < job.rows {
            tile::<L, W, 1, T>(job, r, t);
            r += 1;
        }
    }
}

#[inline(always)]
unsafe fn tile<L: Lanes, W: Weight, const R: usize, const T: usize>(job: &mut Job<'_>, r: usize, t: usize) {
    let cols = job.cols;
    let row_bytes = cols * W::BYTES;
    // SAFETY: rows `r..r + R` and tokens `t..t + T` are the job's; the tail is padded in a copy.
    unsafe {
        let w = job.w.as_ptr().add(r * row_bytes);
        let x = job.x.x.as_ptr().add(t * cols);
        let mut acc = [[L::splat(0.0); T]; R];
        let whole = cols / 16 * 16;
        for i in (0..whole).step_by(16) {
            let mut xs = [L::splat(0.0); T];
            for (k, x_k) in xs.iter_mut().enumerate() {
                *x_k = L::load(x.add(k * cols + i));
            }
            for (k, acc) in acc.iter_mut().enumerate() {
                let w = W::load::<L>(w.add(k * row_bytes + i * W::BYTES));
                for (acc, x) in acc.iter_mut().zip(xs) {
                    *acc = w.fma(x, *acc);
                }
            }
        }
        if whole < cols {
            let mut xs = [L::splat(0.0); T];
            for (k, x_k) in xs.iter_mut().enumerate() {
                *x_k = load(core::slice::from_raw_parts(x.add(k * cols), cols), whole);
            }
            for (k, acc) in acc.iter_mut().enumerate() {
                let mut tail = [0u8; 64];
                core::ptr::copy_nonoverlapping(
                    w.add(k * row_bytes + whole * W::BYTES),
                    tail.as_mut_ptr(),
                    (cols - whole) * W::BYTES,
                );
                let w = W::load::<L>(tail.as_ptr());
                for (acc, x) in acc.iter_mut().zip(xs) {
                    *acc = w.fma(x, *acc);
                }
            }
        }
        for (k, acc) in acc.into_iter().enumerate() {
            for (j, acc) in acc.into_iter().enumerate() {
                *job.out.add((t + j) * job.stride + r + k) = acc.sum();
            }
        }
    }
}
