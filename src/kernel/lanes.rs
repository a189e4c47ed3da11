//! Sixteen f32 lanes: the vector that every float kernel is written in.
//!
//! One definition of each float operation, stated once over [`Isa`] and [`Lanes`] (in [`super::float`] and
//! [`super::attention`]), is instantiated for the scalar array and for each instruction set. The
//! lanes are part of the arithmetic: a sum runs in 16 partial sums, joined by one fixed tree.

use core::ops::Range;

/// An instruction set, as a value that exists only where the processor has it. Vectors are made by such a value alone,
/// so their arithmetic is safe.
///
/// # Safety
///
/// Stores write all elements that they are given, and the methods with pointers stay within what they name.
pub(super) unsafe trait Isa: Copy {
    /// Its vector.
    type V: Lanes;
    /// Query rows that attention takes at once: as many as have room in the registers.
    const ROWS: usize;

    /// # Safety
    ///
    /// The processor has the instruction set, and the caller is compiled for it or inlined into a function that is.
    unsafe fn new() -> Self;

    /// Runs work in a function of its own, compiled for the instruction set.
    #[inline(always)]
    fn apart<W: Work<Self>>(self, work: W) {
        work.run(self);
    }
    fn splat(self, x: f32) -> Self::V;
    /// Zeros.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> Self::V {
        self.load_f32(bytemuck::must_cast_ref(x))
    }
    /// Little-endian f32.
    fn load_f32(self, bytes: &[u8; 64]) -> Self::V;
    fn load_f16(self, bytes: &[u8; 32]) -> Self::V;
    fn load_bf16(self, bytes: &[u8; 32]) -> Self::V;
    fn load_i8(self, bytes: &[u8; 16]) -> Self::V;

    /// [`exp`], in as many lanes at once as have room in the registers.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        exp(self, x)
    }
    /// `x / (1 + exp(-x))` in place, times `up` where there is one, if the instruction set has a way of its own.
    #[inline(always)]
    fn silu(self, _x: &mut [f32], _up: Option<&[f32]>) -> bool {
        false
    }
    /// The RMS norm of [`Kernels::rms_norm`](super::Kernels::rms_norm), if the instruction set has a way of its own.
    #[inline(always)]
    fn rms_norm(self, _x: &mut [f32], _weight: &[u8], _eps: f32) -> bool {
        false
    }
    /// Whole sixteens as bytes, with the sums of each, to their largest magnitude; in the same sense.
    #[inline(always)]
    fn quantize(self, _x: &[f32], _q: &mut [i8], _sums: &mut [i16]) -> Option<f32> {
        None
    }
    /// Attention scores: those of some lanes times `factor` in place, and the largest of them and of `top`
    /// in some lane of the result. The other lanes of the scores may hold anything then.
    ///
    /// # Safety
    ///
    /// 16 floats at `at` may be read and written; `lanes` is not empty and ends at 16 or before.
    #[inline(always)]
    unsafe fn scale(self, at: *mut f32, factor: f32, lanes: Range<usize>, top: Self::V) -> Self::V {
        // SAFETY: 16 floats are there.
        let scores = unsafe { &mut *at.cast() };
        let scaled = self.load(scores).mul(self.splat(factor));
        let scaled = scaled.masked(mask(&lanes), self.splat(f32::NEG_INFINITY));
        scaled.store(scores);
        top.max(scaled)
    }
    /// The same of some scores of a block, where [`ROWS`](Self::ROWS) is 1: returns the largest.
    ///
    /// # Safety
    ///
    /// These scores, one at least, may be read and written, and what else is in their sixteens.
    #[inline(always)]
    unsafe fn scale_one(self, at: *mut f32, factor: f32, scores: Range<usize>) -> f32 {
        let mut top = self.splat(f32::NEG_INFINITY);
        for (start, lanes) in sixteens(scores) {
            // SAFETY: passed on to the caller.
            top = unsafe { self.scale(at.add(start), factor, lanes, top) };
        }
        top.largest()
    }
    /// The scores of some positions of a block, of which `at` has the tiles: the dot products of `q` with the keys, in f32,
    /// times `factor`, to `to`. Returns the largest.
    ///
    /// # Safety
    ///
    /// As for [`scale_one`](Self::scale_one), and each of these tiles has a row of 16 for each number of `q`.
    #[inline(always)]
    unsafe fn scores_one(
        self,
        at: &[*const f32; 4],
        q: &[f32],
        factor: f32,
        scores: Range<usize>,
        to: *mut f32,
    ) -> f32 {
        static ZEROS: [f32; 16] = [0.0; 16];
        for ((start, lanes), tile) in sixteens(scores.clone()).zip(at.iter().skip(scores.start / 16)) {
            // SAFETY: passed on to the caller.
            unsafe { self.add_products(ZEROS.as_ptr(), *tile, 16, q.as_ptr(), q.len(), lanes.end, to.add(start)) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.scale_one(to, factor, scores) }
    }
    /// Scores to weights: `exp(score - best)` in place for those of some lanes, added to `total`.
    ///
    /// # Safety
    ///
    /// As for [`scale`](Self::scale); the lanes are initialized.
    #[inline(always)]
    unsafe fn softmax(self, at: *mut f32, best: f32, lanes: Range<usize>, total: &mut Self::V) {
        // SAFETY: 16 floats are there.
        let scores = unsafe { &mut *at.cast() };
        let weights = self.exp(self.load(scores).sub(self.splat(best))).masked(mask(&lanes), self.zero());
        *total = total.add(weights);
        weights.store(scores);
    }
    /// The same for some scores of a block, where [`ROWS`](Self::ROWS) is 1.
    ///
    /// # Safety
    ///
    /// As for [`scale_one`](Self::scale_one); the scores are initialized.
    #[inline(always)]
    unsafe fn softmax_one(self, at: *mut f32, best: f32, scores: Range<usize>, total: &mut Self::V) {
        for (start, lanes) in sixteens(scores) {
            // SAFETY: passed on to the caller.
            unsafe { self.softmax(at.add(start), best, lanes, total) };
        }
    }
    /// What is at `start`, and for each of `n` rows, `stride` elements apart, and as many factors one
    /// `fma(row, x)` more, to `to`. The first `lanes` lanes are asked for.
    ///
    /// # Safety
    ///
    /// All pointers lie on boundaries of 4 bytes: 16 floats at `start` and in each row, `n` at `x`, room for 16 at `to`.
    #[allow(clippy::too_many_arguments)] // three pieces of memory, and how far they go
    #[inline(always)]
    unsafe fn add_products(
        self,
        start: *const f32,
        rows: *const f32,
        stride: usize,
        x: *const f32,
        n: usize,
        _lanes: usize,
        to: *mut f32,
    ) {
        // SAFETY: the caller has all these.
        unsafe {
            let mut acc = self.load(&*start.cast());
            for i in 0..n {
                acc = self.load(&*rows.add(i * stride).cast()).fma(self.splat(*x.add(i)), acc);
            }
            acc.store(&mut *to.cast());
        }
    }
    /// The same with rows of a block, sixteen from each of four places, and a factor for each, added to what is at `to`.
    ///
    /// # Safety
    ///
    /// As for [`add_products`](Self::add_products), for the rows and factors that `rows` names, one at least.
    #[inline(always)]
    unsafe fn add_rows(
        self,
        at: &[*const f32; 4],
        stride: usize,
        x: *const f32,
        rows: Range<usize>,
        lanes: usize,
        to: *mut f32,
    ) {
        for ((start, rows), at) in sixteens(rows.clone()).zip(at.iter().skip(rows.start / 16)) {
            // SAFETY: passed on to the caller.
            unsafe {
                let (first, x) = (at.add(rows.start * stride), x.add(start + rows.start));
                self.add_products(to, first, stride, x, rows.len(), lanes, to);
            }
        }
    }
    /// Asks for the line at an address that will be used soon, as far as the second cache: what comes from
    /// memory would keep the first one's few places for requests too long. Any address will do.
    #[inline(always)]
    fn prefetch(self, _soon: *const u8) {}
    /// `x` rounded to f16, nearest even, and back.
    #[inline(always)]
    fn round_to_f16(self, x: f32) -> f32 {
        half::f16::from_f32_const(x).to_f32_const()
    }
}

/// What an instruction set can run [`apart`](Isa::apart): the time to compile a function grows faster than its size.
pub(super) trait Work<S> {
    /// Inlined always.
    fn run(self, s: S);
}

/// Sixteen f32. Every method does the same IEEE operation on each lane, rounding to nearest even.
pub(super) trait Lanes: Copy {
    fn store(self, to: &mut [f32; 16]);
    /// Rounds to f16, nearest even.
    fn store_f16(self, to: &mut [u8; 32]);
    /// Integral values from -128 to 127, as bytes.
    fn store_i8(self, to: &mut [i8; 16]);

    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// The larger; of a NaN in `b` a NaN. Instruction sets differ in the result for a NaN in `self`, and for
    /// zeros of both signs: nothing may depend on it.
    fn max(self, b: Self) -> Self;
    /// The smaller; NaN and zeros as in [`max`](Self::max).
    fn min(self, b: Self) -> Self;
    fn abs(self) -> Self;
    /// To the nearest integer, half to even, below 2^22 in magnitude; a zero may have either sign.
    fn round(self) -> Self;
    /// 2 to the power of each lane: integral values from -126 to 127.
    fn exp2i(self) -> Self;
    /// Lane `i` where bit `i` of `mask` is set, else that of `other`.
    fn select(self, mask: u16, other: Self) -> Self;
    /// The same. Most masks have all lanes.
    #[inline(always)]
    fn masked(self, mask: u16, other: Self) -> Self {
        if mask == u16::MAX { self } else { self.select(mask, other) }
    }

    /// Sum of the lanes: `i` with `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    fn sum(self) -> f32;
    /// The largest lane; zero of either sign, and anything where a lane is NaN.
    fn largest(self) -> f32;
}

/// `exp(x)`: relative error below 2e-7 from -87.3 to 88.3, and the value at the nearer end beyond.
///
/// `2^n * P(r)` with `n = round(x / ln 2)`, `r = x - n ln 2` in two steps, and the polynomial of
/// Cephes' `expf`.
#[inline(always)]
pub(super) fn exp<S: Isa>(s: S, x: S::V) -> S::V {
    let (r, q, n) = exp_parts(s, x);
    q.fma(r, s.splat(1.0)).mul(n.exp2i())
}

/// `r`, `q` and `n` with `exp(x) = (q * r + 1) * 2^n`.
#[inline(always)]
pub(super) fn exp_parts<S: Isa>(s: S, x: S::V) -> (S::V, S::V, S::V) {
    // Constants first: NaN passes through.
    let x = s.splat(-87.33).max(s.splat(88.37).min(x));
    // So large a number, 1.5 * 2^23, has no room for fractions.
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

/// Where the sixteens begin of which a range has some, and what it has of each.
#[inline(always)]
pub(super) fn sixteens(range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let Range { start, end } = range;
    (start / 16 * 16..end).step_by(16).map(move |at| (at, start.saturating_sub(at)..(end - at).min(16)))
}

/// A bit for each lane of a range within 16.
#[inline(always)]
pub(super) fn mask(lanes: &Range<usize>) -> u16 {
    (1u32 << lanes.end).wrapping_sub(1 << lanes.start) as u16
}

/// The 16 elements of `x` from `i`, zeros beyond its end.
#[inline(always)]
pub(super) fn load<S: Isa>(s: S, x: &[f32], i: usize) -> S::V {
    match x.get(i..).and_then(|x| x.first_chunk()) {
        Some(x) => s.load(x),
        None => s.load(&padded(x, i)),
    }
}

/// Stores into `x` from `i`, only as far as it reaches.
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
