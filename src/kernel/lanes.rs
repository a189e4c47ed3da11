//! Sixteen f32 lanes: the vector that every float kernel is written in.
//!
//! One definition of each float operation, stated once over [`Lanes`] (in [`super::float`] and
//! [`super::attention`]), is instantiated for the scalar array and for each instruction set. The
//! lanes are part of the arithmetic: a sum runs in 16 partial sums, joined by one fixed tree.

use core::ops::Range;

/// Sixteen f32. Every method does the same IEEE operation on each lane, rounding to nearest even.
///
/// # Safety
///
/// All methods need the instruction set of the implementing type. Pointers may be unaligned and
/// must be valid for 16 elements (of the named type).
pub(super) trait Lanes: Copy {
    /// Query rows that attention takes at once: as many as have room in the registers.
    const ROWS: usize;

    unsafe fn splat(x: f32) -> Self;
    /// Zeros.
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: passed on to the caller.
        unsafe { Self::splat(0.0) }
    }
    unsafe fn load(p: *const f32) -> Self;
    unsafe fn load_f16(p: *const u8) -> Self;
    unsafe fn load_bf16(p: *const u8) -> Self;
    unsafe fn load_i8(p: *const u8) -> Self;
    unsafe fn store(self, p: *mut f32);
    /// Rounds to f16, nearest even.
    unsafe fn store_f16(self, p: *mut u8);
    /// Integral values from -128 to 127, as bytes.
    unsafe fn store_i8(self, p: *mut i8);

    unsafe fn add(self, b: Self) -> Self;
    unsafe fn sub(self, b: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    unsafe fn div(self, b: Self) -> Self;
    /// `self * b + c`, rounded once.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// The larger; of a NaN in `b` a NaN. Nothing may depend on what comes of a NaN in `self`, nor of
    /// zeros of both signs: instruction sets differ.
    unsafe fn max(self, b: Self) -> Self;
    /// The smaller, likewise.
    unsafe fn min(self, b: Self) -> Self;
    unsafe fn abs(self) -> Self;
    /// To the nearest integer, half to even, below 2^22 in magnitude; a zero may have either sign.
    unsafe fn round(self) -> Self;
    /// 2 to the power of each lane: integral values from -126 to 127.
    unsafe fn exp2i(self) -> Self;
    /// [`float::exp`](super::float::exp), in as many lanes at once as have room in the registers.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: passed on to the caller.
        unsafe { super::float::exp(self) }
    }
    /// Attention scores: those of some lanes times `factor` in place, and the largest of them and of `top`
    /// somewhere in what is returned. The other lanes may hold anything then.
    #[inline(always)]
    unsafe fn scale(at: *mut f32, factor: f32, lanes: Range<usize>, top: Self) -> Self {
        // SAFETY: passed on to the caller.
        unsafe {
            let scores = Self::load(at).mul(Self::splat(factor)).masked(mask(&lanes), f32::NEG_INFINITY);
            scores.store(at);
            top.max(scores)
        }
    }
    /// Scores to weights: `exp(score - best)` in place for those of some lanes, added to `total`.
    #[inline(always)]
    unsafe fn softmax(at: *mut f32, best: f32, lanes: Range<usize>, total: &mut Self) {
        // SAFETY: passed on to the caller.
        unsafe {
            let weights = Self::load(at).sub(Self::splat(best)).exp().masked(mask(&lanes), 0.0);
            *total = total.add(weights);
            weights.store(at);
        }
    }
    /// The lanes that are in `mask`, the others `rest`. Most tiles are seen as a whole.
    #[inline(always)]
    unsafe fn masked(self, mask: u16, rest: f32) -> Self {
        // SAFETY: passed on to the caller.
        if mask == u16::MAX { self } else { unsafe { self.select(mask, Self::splat(rest)) } }
    }
    /// What is at `start`, and for each of `n` rows, `stride` elements apart, and as many factors one
    /// `fma(row, x)` more, to `to`. All lie on boundaries of 4 bytes. The first `lanes` lanes are asked for.
    #[inline(always)]
    unsafe fn add_products(
        start: *const f32,
        rows: *const f32,
        stride: usize,
        x: *const f32,
        n: usize,
        _lanes: usize,
        to: *mut f32,
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut acc = Self::load(start);
            for i in 0..n {
                acc = Self::load(rows.add(i * stride)).fma(Self::splat(*x.add(i)), acc);
            }
            acc.store(to);
        }
    }
    /// Asks for the line at an address that will be used soon, as far as the second cache: what comes from
    /// memory would keep the first one's few places for requests too long. Any address will do.
    #[inline(always)]
    fn prefetch(_soon: *const u8) {}
    /// Lane `i` where bit `i` of `mask` is set, else that of `other`.
    unsafe fn select(self, mask: u16, other: Self) -> Self;

    /// Sum of the lanes: `i` with `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    unsafe fn sum(self) -> f32;
    /// The largest lane; zero of either sign, and anything where a lane is NaN.
    unsafe fn largest(self) -> f32;

    /// `x` rounded to f16, nearest even, and back.
    #[inline(always)]
    unsafe fn round_to_f16(x: f32) -> f32 {
        half::f16::from_f32_const(x).to_f32_const()
    }
}

/// A bit for each lane of a range within 16.
#[inline(always)]
pub(super) fn mask(lanes: &Range<usize>) -> u16 {
    (1u32 << lanes.end).wrapping_sub(1 << lanes.start) as u16
}

/// The 16 elements of `x` from `i`, zeros beyond its end.
#[inline(always)]
pub(super) unsafe fn load<L: Lanes>(x: &[f32], i: usize) -> L {
    // SAFETY: the caller has the instruction set; both pointers reach 16 elements.
    unsafe { if i + 16 <= x.len() { L::load(x.as_ptr().add(i)) } else { L::load(padded::<f32, 16>(x, i).as_ptr()) } }
}

/// Stores into `x` from `i`, only as far as it reaches.
#[inline(always)]
pub(super) unsafe fn store<L: Lanes>(v: L, x: &mut [f32], i: usize) {
    // SAFETY: as for `load`.
    unsafe {
        if i + 16 <= x.len() {
            v.store(x.as_mut_ptr().add(i));
        } else {
            let mut tail = [0.0; 16];
            v.store(tail.as_mut_ptr());
            copy(&tail, x.get_mut(i..).unwrap_or_default());
        }
    }
}

/// What there is of 16 elements from `i`, and zeros. Out of line, as tails are few and would slow the loops.
#[cold]
#[inline(never)]
pub(super) fn padded<T: Copy + Default, const N: usize>(x: &[T], i: usize) -> [T; N] {
    let mut tail = [T::default(); N];
    copy(x.get(i..).unwrap_or_default(), &mut tail);
    tail
}

/// Copies as many elements as both have.
#[cold]
#[inline(never)]
pub(super) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
