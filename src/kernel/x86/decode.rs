//! Decode: eight rows of the file's own blocks times one token.
//!
//! Two rows share a 256-bit register, 16 bytes of each, so that the partial sums of eight rows are four
//! registers of four lanes a row; one tree adds them across, and one fused multiply-add serves all eight.
//! Wider registers gain nothing here. Eight rows lie in one piece of memory, but are read as eight short
//! streams, which the hardware prefetcher does not follow: while a group is computed, later groups are
//! prefetched line after line.

use core::arch::x86_64::*;
use core::marker::PhantomData;
use core::ops::Range;

use super::q6k;
use crate::kernel::quantized::Blocks;
use crate::kernel::{Row, scalar};

/// Products of unsigned and signed bytes, four of them summed into each of eight i32.
pub(super) trait Dot: Sized {
    /// 32 activations, as the products want them.
    type X: Copy;
    unsafe fn x(x: __m256i) -> Self::X;
    /// `acc` plus the products. Sums of a 128-bit half stay in that half, in whatever lanes.
    unsafe fn dot(acc: __m256i, w: __m256i, x: Self::X) -> __m256i;
    /// Eight i32 whose sum is the integer dot product of a block of [`Q6K`].
    #[inline(always)]
    unsafe fn q6_k(block: *const u8, x: *const i8, offsets: *const i32) -> __m256i {
        // SAFETY: passed on to the caller.
        unsafe { q6k::sums::<Self>(block, x, offsets) }
    }
}

/// AVX2: both operands widened to 16 bits, so that nothing saturates.
pub(super) struct Madd;
impl Dot for Madd {
    type X = (__m256i, __m256i);
    #[inline(always)]
    unsafe fn x(x: __m256i) -> Self::X {
        // SAFETY: the caller has AVX2.
        unsafe {
            let wide = |twice| _mm256_srai_epi16::<8>(twice);
            (wide(_mm256_unpacklo_epi8(x, x)), wide(_mm256_unpackhi_epi8(x, x)))
        }
    }
    #[inline(always)]
    unsafe fn dot(acc: __m256i, w: __m256i, x: Self::X) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe {
            let zero = _mm256_setzero_si256();
            let low = _mm256_madd_epi16(_mm256_unpacklo_epi8(w, zero), x.0);
            let high = _mm256_madd_epi16(_mm256_unpackhi_epi8(w, zero), x.1);
            _mm256_add_epi32(acc, _mm256_add_epi32(low, high))
        }
    }
}

/// AVX-VNNI.
pub(super) struct Vnni;
impl Dot for Vnni {
    type X = __m256i;
    #[inline(always)]
    unsafe fn x(x: __m256i) -> __m256i {
        x
    }
    #[inline(always)]
    unsafe fn dot(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the caller has the features.
        unsafe { _mm256_dpbusd_avx_epi32(acc, w, x) }
    }
}

/// AVX-512 with VNNI and VL.
pub(super) struct Vnni512;
impl Dot for Vnni512 {
    type X = __m256i;
    #[inline(always)]
    unsafe fn x(x: __m256i) -> __m256i {
        x
    }
    #[inline(always)]
    unsafe fn dot(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the caller has the features.
        unsafe { _mm256_dpbusd_epi32(acc, w, x) }
    }
    #[inline(always)]
    unsafe fn q6_k(block: *const u8, x: *const i8, offsets: *const i32) -> __m256i {
        // SAFETY: passed on to the caller.
        unsafe { q6k::sums512(block, x, offsets) }
    }
}

/// A block format as the decode kernel reads it.
pub(super) trait Format {
    /// Bytes and weights of a block, and the place of its f16 scale.
    const BYTES: usize;
    const SPAN: usize;
    const SCALE_AT: usize;
    /// Offsets of a block's activations.
    const OFFSETS: usize = 1;
    /// Whether a block's sums are formed before the last block's are added up, so that its loads and
    /// products run while those wait for each other.
    const AHEAD: bool = false;
    /// How long rows are, in bytes, if the next eight of them are called into the first cache, which has room
    /// for both groups: memory is then read in the order of its addresses. Worth 3 to 11 % of the speed of a 0.6 B
    /// model in Q4_0, 16 % in Q6_K (Zen 5). The cache would lose the lines of longer rows before their use;
    /// of shorter ones, what follows comes soon enough.
    const NEXT: Range<usize> = 512..2049;
    /// How many bytes ahead of its use a line of any other row is called into the first cache; 0 to leave it
    /// to the loads, where computing takes longer than they do.
    const NEAR: usize = 0;
    /// Four i32 whose sum is the integer dot product of block `a`, then four for block `b`.
    unsafe fn pair<D: Dot>(a: *const u8, b: *const u8, x: *const i8, offsets: *const i32) -> __m256i;
    fn dot_one(row: &[u8], x: Row<'_>) -> f32;
}

/// 16 bytes from each of two places.
#[inline(always)]
unsafe fn two(a: *const u8, b: *const u8) -> __m256i {
    // SAFETY: the caller has AVX2, and both have 16 bytes.
    unsafe {
        let a = _mm256_castsi128_si256(_mm_loadu_si128(a.cast()));
        _mm256_inserti128_si256::<1>(a, _mm_loadu_si128(b.cast()))
    }
}

/// 16 activations for both rows.
#[inline(always)]
unsafe fn both<D: Dot>(x: *const i8) -> D::X {
    // SAFETY: the caller has the features and 16 activations.
    unsafe { D::x(_mm256_broadcastsi128_si256(_mm_loadu_si128(x.cast()))) }
}

/// Bytes plus 128.
pub(super) struct Q8_0;
impl Format for Q8_0 {
    const BYTES: usize = 34;
    const SPAN: usize = 32;
    const SCALE_AT: usize = 0;
    const NEXT: Range<usize> = 1024..2049;
    const NEAR: usize = 384;
    #[inline(always)]
    unsafe fn pair<D: Dot>(a: *const u8, b: *const u8, x: *const i8, offsets: *const i32) -> __m256i {
        // SAFETY: the caller has the features, two blocks, their activations and an offset.
        unsafe {
            // The offset is -128 times the sum: a quarter in each lane.
            let start = _mm256_srai_epi32::<2>(_mm256_set1_epi32(*offsets));
            let half = |at: usize| _mm256_xor_si256(two(a.add(at), b.add(at)), _mm256_set1_epi8(-128));
            D::dot(D::dot(start, half(2), both::<D>(x)), half(18), both::<D>(x.add(16)))
        }
    }
    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        scalar::dot_q8_0(row, x)
    }
}

/// Nibbles as they are: the value plus 8.
pub(super) struct Q4_0;
impl Format for Q4_0 {
    const BYTES: usize = 18;
    const SPAN: usize = 32;
    const SCALE_AT: usize = 0;
    const AHEAD: bool = true;
    #[inline(always)]
    unsafe fn pair<D: Dot>(a: *const u8, b: *const u8, x: *const i8, offsets: *const i32) -> __m256i {
        // SAFETY: the caller has the features, two blocks, their activations and an offset.
        unsafe {
            // -8 times the sum, which is a sixteenth of the offset: a quarter in each lane.
            let start = _mm256_srai_epi32::<6>(_mm256_set1_epi32(*offsets));
            let nibbles = |q| _mm256_and_si256(q, _mm256_set1_epi8(15));
            let q = two(a.add(2), b.add(2));
            let low = D::dot(start, nibbles(q), both::<D>(x));
            D::dot(low, nibbles(_mm256_srli_epi16::<4>(q)), both::<D>(x.add(16)))
        }
    }
    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        scalar::dot_q4_0(row, x)
    }
}

/// Six bits as they are: the value plus 32.
pub(super) struct Q6K;
impl Format for Q6K {
    const BYTES: usize = 210;
    const SPAN: usize = 256;
    const SCALE_AT: usize = 208;
    const OFFSETS: usize = 16;
    #[inline(always)]
    unsafe fn pair<D: Dot>(a: *const u8, b: *const u8, x: *const i8, offsets: *const i32) -> __m256i {
        // SAFETY: the caller has the features, two blocks, their activations and offsets.
        unsafe {
            let (a, b) = (D::q6_k(a, x, offsets), D::q6_k(b, x, offsets));
            _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b))
        }
    }
    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        scalar::dot_q6_k(row, x)
    }
}

/// Eight rows of a format, multiplied by `D`.
pub(super) struct Rows<D, F>(PhantomData<(D, F)>);

impl<D: Dot, F: Format> Blocks for Rows<D, F> {
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        // SAFETY: passed on to the caller.
        unsafe {
            if F::NEXT.contains(&row_bytes) {
                dot::<D, F, true>(w, row_bytes, x, out);
            } else {
                dot::<D, F, false>(w, row_bytes, x, out);
            }
        }
    }

    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        F::dot_one(row, x)
    }
}

/// Eight rows times one token, with the next eight prefetched or not: see [`Format::NEXT`].
#[inline(always)]
unsafe fn dot<D: Dot, F: Format, const NEXT: bool>(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
    // SAFETY: the caller has the features and eight rows as long as `x`, which has a block at least.
    unsafe {
        let rows: [*const u8; 8] = core::array::from_fn(|r| w.add(r * row_bytes));
        let mut acc = _mm256_setzero_ps();
        let mut next = if F::AHEAD { sums::<D, F, NEXT>(&rows, row_bytes, x, 0) } else { [_mm256_setzero_si256(); 4] };
        for (b, dx) in x.d.iter().enumerate() {
            let at = b * F::BYTES;
            let now = if F::AHEAD {
                let after = if b + 1 < x.d.len() { sums::<D, F, NEXT>(&rows, row_bytes, x, b + 1) } else { next };
                core::mem::replace(&mut next, after)
            } else {
                sums::<D, F, NEXT>(&rows, row_bytes, x, b)
            };
            let scales = _mm256_mul_ps(scales(&rows, at + F::SCALE_AT), _mm256_set1_ps(*dx));
            acc = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(add_across(now)), acc);
        }
        // Lanes hold even rows, then odd ones.
        let in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(acc, in_order));
    }
}

/// The sums of block `b` of eight rows: a register for two rows, four lanes for each.
#[inline(always)]
unsafe fn sums<D: Dot, F: Format, const NEXT: bool>(
    rows: &[*const u8; 8],
    row_bytes: usize,
    x: Row<'_>,
    b: usize,
) -> [__m256i; 4] {
    // SAFETY: the caller has the features and the block in every row and in `x`.
    unsafe {
        let (at, q, offsets) = (b * F::BYTES, x.q.as_ptr().add(b * F::SPAN), x.offsets.as_ptr().add(b * F::OFFSETS));
        let mut pairs = [_mm256_setzero_si256(); 4];
        for (i, pair) in pairs.iter_mut().enumerate() {
            prefetch::<F, NEXT>(rows, row_bytes, at, i);
            *pair = F::pair::<D>(rows[2 * i].add(at), rows[2 * i + 1].add(at), q, offsets);
        }
        pairs
    }
}

/// While pair `i` of eight rows' blocks, `at` bytes into them, is computed: prefetches its part of what the
/// block is to groups of eight rows further on, each of which lies in one piece. All at once would wait for each
/// other: 7 % of the speed of Q6_K.
///
/// Into the second cache, a group so far on that it comes in time: some 10 KB (less costs a model with rows of
/// 324 bytes a tenth). Into the first, the next group, for rows that [`Format::NEXT`] names, else what comes
/// [`Format::NEAR`] bytes later in the pair itself.
#[inline(always)]
unsafe fn prefetch<F: Format, const NEXT: bool>(rows: &[*const u8; 8], row_bytes: usize, at: usize, i: usize) {
    // SAFETY: prefetching never faults, wherever it reaches.
    unsafe {
        let group = 8 * row_bytes;
        let far = if row_bytes < 512 { 4 * group } else { 2 * group };
        let lines = (8 * F::BYTES).div_ceil(64);
        for k in 0..lines.div_ceil(4) {
            let line = i * lines.div_ceil(4) + k;
            if line < lines {
                let here = rows[0].wrapping_add(8 * at + 64 * line);
                _mm_prefetch::<_MM_HINT_T1>(here.wrapping_add(far).cast());
                if NEXT {
                    _mm_prefetch::<_MM_HINT_T0>(here.wrapping_add(group).cast());
                }
            }
        }
        if F::NEAR > 0 && !NEXT {
            // At the end of a row, the beginning of the one that is eight further.
            let near = at + F::NEAR;
            let near = if near < row_bytes { near } else { near + 7 * row_bytes };
            // Once for every 64 bytes.
            if near % 64 < F::BYTES {
                for row in &rows[2 * i..2 * i + 2] {
                    _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(near - near % 64).cast());
                }
            }
        }
    }
}

/// The scales of a block of eight rows, `at` bytes into them: even rows, then odd ones.
#[inline(always)]
unsafe fn scales(rows: &[*const u8; 8], at: usize) -> __m256 {
    // SAFETY: the caller has F16C and eight blocks.
    unsafe {
        let d = |r: usize| rows[r].add(at).cast::<i16>().read_unaligned();
        _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7)))
    }
}

/// The sums of four lanes each: first the lower halves of the four registers, then the upper ones.
#[inline(always)]
unsafe fn add_across(pairs: [__m256i; 4]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let [a, b, c, d] = pairs;
        let ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd))
    }
}
