//! Vectors of sixteen f32 lanes, in which every float kernel is written.
//!
//! Each float operation is defined once over [`Isa`] and [`Lanes`] (in [`super::float`] and [`super::attention`]) and
//! compiled for the scalar array and for each instruction set. The number of lanes is part of the arithmetic: a sum is
//! 16 partial sums, added in one fixed tree.

use core::ops::Range;

#[cfg(feature = "lora")]
use crate::quant::{TensorType, le_f16};

/// Number of columns of a recurrent state that are stored together: as many as a vector has lanes.
pub(crate) const TILE: usize = 16;

/// The elements of a row of the KV cache.
#[derive(Clone, Copy)]
pub(super) enum Elements {
    F16,
    I8,
    /// The low or high four bits of each of 16 bytes, minus 8.
    I4 {
        high: bool,
    },
}

/// An instruction set. A value of the implementing type is a proof that the processor has it. Vectors are only created
/// through such a value, so that operations on them are safe.
///
/// # Safety
///
/// A method that stores writes every element of the given array. A method with pointers accesses only the memory that
/// its documentation names.
pub(super) unsafe trait Isa: Copy {
    /// The vector of 16 floats.
    type V: Lanes;
    /// Number of query rows that attention processes at once: as many as fit in the registers.
    const ROWS: usize;

    /// # Safety
    ///
    /// The processor has the instruction set. The caller is compiled for the instruction set, or is inlined into a
    /// function that is compiled for it.
    unsafe fn new() -> Self;

    /// Runs `work`. If the instruction set splits long functions, it runs in a function of its own, otherwise inline.
    #[inline(always)]
    fn apart<W: Work<Self>>(self, work: W) {
        work.run(self);
    }
    fn splat(self, x: f32) -> Self::V;
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> Self::V {
        self.load_f32(bytemuck::must_cast_ref(x))
    }
    /// Loads little-endian f32.
    fn load_f32(self, bytes: &[u8; 64]) -> Self::V;
    fn load_f16(self, bytes: &[u8; 32]) -> Self::V;
    fn load_bf16(self, bytes: &[u8; 32]) -> Self::V;
    fn load_i8(self, bytes: &[u8; 16]) -> Self::V;
    /// The low or high four bits of each of 16 bytes, minus 8.
    #[inline(always)]
    fn load_i4(self, bytes: &[u8; 16], high: bool) -> Self::V {
        let shift = if high { 4 } else { 0 };
        self.load_i8(&bytes.map(|byte| ((byte >> shift) & 15).wrapping_sub(8)))
    }
    /// Loads a row of 16 elements.
    ///
    /// # Safety
    ///
    /// The row may be read.
    #[inline(always)]
    unsafe fn load_row(self, elements: Elements, row: *const u8) -> Self::V {
        // SAFETY: the caller promises this row.
        unsafe {
            match elements {
                Elements::F16 => self.load_f16(&*row.cast()),
                Elements::I8 => self.load_i8(&*row.cast()),
                Elements::I4 { high } => self.load_i4(&*row.cast(), high),
            }
        }
    }
    /// Returns `sums + row[0] * x[0] + row[1] * x[1] + ...` for `n` rows of 16 elements, `stride` bytes apart. Each row
    /// takes one fused multiply-add per lane, in order.
    ///
    /// # Safety
    ///
    /// The rows and factors may be read, and rows are aligned to four bytes.
    #[inline(always)]
    unsafe fn add_rows(
        self,
        elements: Elements,
        mut sums: Self::V,
        rows: *const u8,
        stride: usize,
        x: *const f32,
        n: usize,
    ) -> Self::V {
        for i in 0..n {
            // SAFETY: the caller promises row `i` and its factor.
            let (row, x) = unsafe { (self.load_row(elements, rows.add(i * stride)), *x.add(i)) };
            sums = row.fma(self.splat(x), sums);
        }
        sums
    }
    /// Returns the first four weights of each of 16 rows: four vectors, each with one weight of every row. Rows are
    /// `stride` bytes apart. `kind` is a float type.
    ///
    /// # Safety
    ///
    /// The four weights of each row may be read.
    #[cfg(feature = "lora")]
    #[inline(always)]
    unsafe fn four_columns(self, kind: TensorType, rows: *const u8, stride: usize) -> [Self::V; 4] {
        let mut columns = [[0.0; 16]; 4];
        for r in 0..16 {
            // SAFETY: the caller promises these bytes.
            let row = unsafe { four(kind, rows.add(r * stride)) };
            for (column, x) in columns.iter_mut().zip(row) {
                if let Some(to) = column.get_mut(r) {
                    *to = x;
                }
            }
        }
        columns.map(|column| self.load(&column))
    }
    /// Like [`four_columns`](Self::four_columns), but returns the first eight weights of each of 16 rows.
    ///
    /// # Safety
    ///
    /// The eight weights of each row may be read.
    #[cfg(feature = "lora")]
    #[inline(always)]
    unsafe fn eight_columns(self, kind: TensorType, rows: *const u8, stride: usize) -> [Self::V; 8] {
        let four = if kind == TensorType::F32 { 16 } else { 8 }; // bytes
        // SAFETY: the caller promises these weights.
        let ([a, b, c, d], [e, f, g, h]) =
            unsafe { (self.four_columns(kind, rows, stride), self.four_columns(kind, rows.add(four), stride)) };
        [a, b, c, d, e, f, g, h]
    }

    /// [`Lanes::sum`] of each vector, in as few instructions as the instruction set allows.
    #[inline(always)]
    fn sums<const N: usize>(self, x: [Self::V; N]) -> [f32; N] {
        x.map(Lanes::sum)
    }
    /// Computes [`exp`], in as many lanes at a time as fit in the registers.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        exp(self, x)
    }
    /// Does the same as [`quantize_block`], in as few instructions as the instruction set allows.
    #[inline(always)]
    fn quantize_block<const N: usize, const SUMS: usize>(
        self,
        x: &[f32; N],
        q: &mut [i8; N],
        sums: &mut [i16; SUMS],
    ) -> f32 {
        quantize_block(self, x, q, sums)
    }
    /// Multiplies the attention scores in `lanes` by `factor`, in place, and raises lanes of `top` so that the largest
    /// lane of `top` is at least the largest of these scores. The scores in other lanes may be overwritten.
    ///
    /// # Safety
    ///
    /// 16 floats at `at` may be read and written; `lanes` is not empty and ends at 16 or before.
    #[inline(always)]
    unsafe fn scale(self, at: *mut f32, factor: f32, lanes: Range<usize>, top: &mut Self::V) {
        // SAFETY: the caller promises 16 floats.
        let scores = unsafe { &mut *at.cast() };
        let scaled = self.load(scores).mul(self.splat(factor));
        let scaled = scaled.masked(mask(&lanes), self.splat(f32::NEG_INFINITY));
        scaled.store(scores);
        *top = top.max(scaled);
    }
    /// Replaces the scores at `at` by their softmax weights, `exp(score - best)`, in the lanes `lanes`. Adds these
    /// weights to `total`. The scores in all other lanes may be overwritten.
    ///
    /// # Safety
    ///
    /// The conditions of [`scale`](Self::scale) hold.
    #[inline(always)]
    unsafe fn softmax(self, at: *mut f32, best: f32, lanes: Range<usize>, total: &mut Self::V) {
        // SAFETY: the caller promises 16 floats.
        let scores = unsafe { &mut *at.cast() };
        let weights = self.exp(self.load(scores).sub(self.splat(best))).masked(mask(&lanes), self.zero());
        *total = total.add(weights);
        weights.store(scores);
    }
    /// Prefetches the cache line at an address into the second-level cache. The first-level cache is avoided, because
    /// it has few slots for outstanding misses, and a line from memory would occupy a slot for too long. Any address is
    /// allowed.
    #[inline(always)]
    fn prefetch(self, _soon: *const u8) {}
    /// `x` rounded to f16, to nearest even, and back.
    #[inline(always)]
    fn round_to_f16(self, x: f32) -> f32 {
        half::f16::from_f32_const(x).to_f32_const()
    }
}

/// Decodes four little-endian weights of a float type.
///
/// # Safety
///
/// The bytes of the four weights may be read.
#[cfg(feature = "lora")]
#[inline(always)]
unsafe fn four(kind: TensorType, at: *const u8) -> [f32; 4] {
    // SAFETY: the caller promises these bytes.
    unsafe {
        match kind {
            TensorType::F16 => at.cast::<[[u8; 2]; 4]>().read_unaligned().map(le_f16),
            TensorType::BF16 => at.cast::<[u16; 4]>().read_unaligned().map(|x| f32::from_bits(u32::from(x) << 16)),
            _ => at.cast::<[f32; 4]>().read_unaligned(),
        }
    }
}

/// A function body for [`Isa::apart`]. Long kernels are split, because compile time grows faster than linearly with the
/// size of a function.
pub(super) trait Work<S> {
    /// Runs the body. Implementations are always inlined.
    fn run(self, s: S);
}

/// Sixteen f32 lanes. Every method performs the same IEEE operation on each lane, rounding to nearest even.
pub(super) trait Lanes: Copy {
    fn store(self, to: &mut [f32; 16]);
    /// Rounds to f16, to nearest even.
    fn store_f16(self, to: &mut [u8; 32]);
    /// Stores the lanes as bytes. Each lane is an integer from -128 to 127.
    fn store_i8(self, to: &mut [i8; 16]);

    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// The larger value; NaN if `b` is NaN. No code may depend on the result if `self` is NaN or if both values are
    /// zeros of different sign, because instruction sets differ in these cases.
    fn max(self, b: Self) -> Self;
    /// The smaller value. For NaN and zeros, the rules of [`max`](Self::max) apply.
    fn min(self, b: Self) -> Self;
    fn abs(self) -> Self;
    /// Rounds to the nearest integer, half to even, for magnitudes below 2^22. A zero may have either sign.
    fn round(self) -> Self;
    /// Raises 2 to the power of each lane. The lanes are integers from -126 to 127.
    fn exp2i(self) -> Self;
    /// Takes lane `i` from `self` if bit `i` of `mask` is set, and otherwise from `other`.
    fn select(self, mask: u16, other: Self) -> Self;
    /// Does the same as [`select`](Self::select). A `mask` with all bits set, the most frequent one, takes a fast path.
    #[inline(always)]
    fn masked(self, mask: u16, other: Self) -> Self {
        if mask == u16::MAX { self } else { self.select(mask, other) }
    }

    /// Sum of the lanes: adds lane `i + 8` to lane `i`, then lane `i + 4`, then `i + 2`, then `i + 1`.
    fn sum(self) -> f32;
    /// The largest lane. A zero may have either sign; the result is arbitrary if a lane is NaN.
    fn largest(self) -> f32;
}

/// `exp(x)` with a relative error below 2e-7 for `x` from -87.3 to 88.3. Other arguments are clamped to this range.
///
/// Computes `2^n * P(r)` with `n = round(x / ln 2)` and `r = x - n ln 2` in two steps; `P` is the polynomial of Cephes'
/// `expf`.
#[inline(always)]
pub(super) fn exp<S: Isa>(s: S, x: S::V) -> S::V {
    let (r, q, n) = exp_parts(s, x);
    q.fma(r, s.splat(1.0)).mul(n.exp2i())
}

/// The `r`, `q` and `n` for which `exp(x) = (q * r + 1) * 2^n`.
#[inline(always)]
pub(super) fn exp_parts<S: Isa>(s: S, x: S::V) -> (S::V, S::V, S::V) {
    // The constants are the first operands, because `min` and `max` return NaN only if it is the second operand.
    let x = s.splat(-87.33).max(s.splat(88.37).min(x));
    // Adding 1.5 * 2^23 rounds to an integer, because floats of that size have no bits after the binary point.
    let whole = s.splat(12_582_912.0);
    let n = x.fma(s.splat(core::f32::consts::LOG2_E), whole).sub(whole);
    let r = n.fma(s.splat(-0.693_359_4), x);
    let r = n.fma(s.splat(2.121_944_4e-4), r);
    let mut q = s.splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0] {
        q = q.fma(r, s.splat(c));
    }
    (r, q, n)
}

/// Quantizes one block, scaling the largest magnitude to 127, and writes the sum of every 16 quants. Returns the
/// largest magnitude. If a block contains an infinity or a NaN, its quants become zeros and its scale becomes NaN.
#[inline(always)]
pub(super) fn quantize_block<S: Isa, const N: usize, const SUMS: usize>(
    s: S,
    x: &[f32; N],
    q: &mut [i8; N],
    sums: &mut [i16; SUMS],
) -> f32 {
    let mut amax = s.splat(0.0);
    for x in x.as_chunks().0 {
        amax = amax.max(s.load(x).abs());
    }
    let amax = amax.largest();
    // If `amax` is 0, or so small that the scale becomes 0, its inverse is infinite. The inverse is then replaced by 0,
    // so that all quants are 0.
    let inverse = 127.0 / amax;
    let inverse = s.splat(if inverse == f32::INFINITY { 0.0 } else { inverse });
    let mut total = 0.0;
    for ((x, q), to) in x.as_chunks::<16>().0.iter().zip(q.as_chunks_mut::<16>().0).zip(sums.iter_mut()) {
        let v = s.load(x).mul(inverse).round();
        v.store_i8(q);
        let sum = v.sum(); // at most 16 * 127: exact in any order
        *to = sum as i16;
        total += sum;
    }
    // If an element was NaN or infinite, the sum of the quotients is NaN. A NaN makes every product NaN. The inverse of
    // infinity is 0, and infinity times 0 is NaN.
    if total.is_nan() {
        *q = [0; N];
        *sums = [0; SUMS];
        return f32::NAN;
    }
    amax
}

/// A mask with one bit per lane, in which the bits of `lanes` are set. `lanes` must not exceed 16 lanes.
#[inline(always)]
pub(super) fn mask(lanes: &Range<usize>) -> u16 {
    (1u32 << lanes.end).wrapping_sub(1 << lanes.start) as u16
}

/// The 16 elements of `x` from `i`; zeros past its end.
#[inline(always)]
pub(super) fn load<S: Isa>(s: S, x: &[f32], i: usize) -> S::V {
    match x.get(i..).and_then(|x| x.first_chunk()) {
        Some(x) => s.load(x),
        None => s.load(&padded(x, i)),
    }
}

/// Stores into `x` from `i`, up to its end.
#[inline(always)]
pub(super) fn store<V: Lanes>(v: V, x: &mut [f32], i: usize) {
    let Some(x) = x.get_mut(i..) else { return };
    match x.first_chunk_mut() {
        Some(to) => v.store(to),
        None => {
            let mut tail = [0.0; 16];
            v.store(&mut tail);
            copy(&tail, x);
        }
    }
}

/// The `N` elements of `x` from `i` on; zeros past the end of `x`. The function is not inlined, because tails are rare
/// and their code would slow down the loops.
#[cold]
#[inline(never)]
pub(super) fn padded<T: Copy + Default, const N: usize>(x: &[T], i: usize) -> [T; N] {
    let mut tail = [T::default(); N];
    copy(x.get(i..).unwrap_or_default(), &mut tail);
    tail
}

/// Copies elements up to the shorter length.
#[cold]
#[inline(never)]
pub(super) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
