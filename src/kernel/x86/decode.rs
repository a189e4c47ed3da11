//! Decode: eight rows of the file's own blocks times one token.
//!
//! The eight rows share the lanes of a 256-bit register: each row's partial sums are added across
//! by one tree for all eight, then one fused multiply-add serves all. Eight rows lie in one piece
//! of memory, but are read as eight short streams, which the hardware prefetcher does not follow:
//! while a group is computed, a later group is prefetched line after line.

use core::arch::x86_64::*;
use core::marker::PhantomData;

use crate::kernel::quantized::Blocks;
use crate::kernel::{Row, scalar};

/// Products of unsigned and signed bytes, summed exactly into eight i32 (in an order that does not
/// matter). The second operand is 32 activations.
pub(super) trait Dot {
    /// 32 activations, as the products want them.
    type X: Copy;
    unsafe fn load(x: *const i8) -> Self::X;
    /// Lanes 0 to 3 hold sums over bytes 0 to 15, lanes 4 to 7 over bytes 16 to 31.
    unsafe fn dot(w: __m256i, x: Self::X) -> __m256i;
}

/// AVX2: both operands widened to 16 bits, so that nothing saturates.
pub(super) struct Madd;
impl Dot for Madd {
    type X = (__m256i, __m256i);
    #[inline(always)]
    unsafe fn load(x: *const i8) -> Self::X {
        // SAFETY: the caller has AVX2 and 32 bytes.
        unsafe {
            let half = |x: *const i8| _mm256_cvtepi8_epi16(_mm_loadu_si128(x.cast()));
            (half(x), half(x.add(16)))
        }
    }
    #[inline(always)]
    unsafe fn dot(w: __m256i, x: Self::X) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe {
            let low = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(w)), x.0);
            let high = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256::<1>(w)), x.1);
            // `hadd` adds pairs and interleaves by 128 bits: low, high, low, high.
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(low, high))
        }
    }
}

/// AVX-VNNI.
pub(super) struct Vnni;
impl Dot for Vnni {
    type X = __m256i;
    #[inline(always)]
    unsafe fn load(x: *const i8) -> __m256i {
        // SAFETY: the caller has the features and 32 bytes.
        unsafe { _mm256_loadu_si256(x.cast()) }
    }
    #[inline(always)]
    unsafe fn dot(w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the caller has the features.
        unsafe { _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), w, x) }
    }
}

/// A block format as the decode kernel reads it.
pub(super) trait Format {
    /// Bytes and weights of a block, and the place of its f16 scale.
    const BYTES: usize;
    const SPAN: usize;
    const SCALE_AT: usize;
    /// Eight i32 whose sum, plus [`offset`](Self::offset), is the block's integer dot product.
    unsafe fn partial<D: Dot>(block: *const u8, x: *const i8, offsets: *const i32) -> __m256i;
    /// What is added for every row alike.
    unsafe fn offset(offsets: *const i32) -> i32;
    fn dot_one(row: &[u8], x: Row<'_>) -> f32;
}

/// Bytes plus 128.
pub(super) struct Q8_0;
impl Format for Q8_0 {
    const BYTES: usize = 34;
    const SPAN: usize = 32;
    const SCALE_AT: usize = 0;
    #[inline(always)]
    unsafe fn partial<D: Dot>(block: *const u8, x: *const i8, _: *const i32) -> __m256i {
        // SAFETY: the caller has the features, a block and its activations.
        unsafe {
            let w = _mm256_loadu_si256(block.add(2).cast());
            D::dot(_mm256_xor_si256(w, _mm256_set1_epi8(-128)), D::load(x))
        }
    }
    #[inline(always)]
    unsafe fn offset(offsets: *const i32) -> i32 {
        // SAFETY: the caller's block has an offset.
        unsafe { *offsets }
    }
    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        scalar::dot_q8_0(row, x)
    }
}

/// Nibbles as they are: the value plus 8.
pub(super) struct Q4_0;
impl Q4_0 {
    /// The 32 nibbles of a block, in order.
    #[inline(always)]
    pub(super) unsafe fn nibbles(block: *const u8) -> __m256i {
        // SAFETY: the caller has AVX2 and a block.
        unsafe {
            let q = _mm_loadu_si128(block.add(2).cast());
            let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(q), _mm_srli_epi16::<4>(q));
            _mm256_and_si256(both, _mm256_set1_epi8(15))
        }
    }
}
impl Format for Q4_0 {
    const BYTES: usize = 18;
    const SPAN: usize = 32;
    const SCALE_AT: usize = 0;
    #[inline(always)]
    unsafe fn partial<D: Dot>(block: *const u8, x: *const i8, _: *const i32) -> __m256i {
        // SAFETY: the caller has the features, a block and its activations.
        unsafe { D::dot(Self::nibbles(block), D::load(x)) }
    }
    #[inline(always)]
    unsafe fn offset(offsets: *const i32) -> i32 {
        // SAFETY: the caller's block has an offset: -128 times the sum.
        unsafe { *offsets / 16 }
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
    #[inline(always)]
    unsafe fn partial<D: Dot>(block: *const u8, x: *const i8, offsets: *const i32) -> __m256i {
        // SAFETY: the caller has the features, a block (128 low bytes, 64 high bytes, 16 scales), 256
        // activations and 16 offsets.
        unsafe {
            let scales = _mm256_cvtepi8_epi16(_mm_loadu_si128(block.add(192).cast()));
            let low_scales = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(scales));
            let high_scales = _mm256_cvtepi16_epi32(_mm256_extracti128_si256::<1>(scales));
            let mut acc = _mm256_add_epi32(
                _mm256_mullo_epi32(low_scales, _mm256_loadu_si256(offsets.cast())),
                _mm256_mullo_epi32(high_scales, _mm256_loadu_si256(offsets.add(8).cast())),
            );
            let (nibble, bits) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
            for half in 0..2 {
                let scales = if half == 0 { low_scales } else { high_scales };
                let low = block.add(half * 64);
                let (a, b) = (_mm256_loadu_si256(low.cast()), _mm256_loadu_si256(low.add(32).cast()));
                let high = _mm256_loadu_si256(block.add(128 + half * 32).cast());
                let quarters = [
                    (a, _mm256_slli_epi16::<4>(high)),
                    (b, _mm256_slli_epi16::<2>(high)),
                    (_mm256_srli_epi16::<4>(a), high),
                    (_mm256_srli_epi16::<4>(b), _mm256_srli_epi16::<2>(high)),
                ];
                for (k, (low, high)) in quarters.into_iter().enumerate() {
                    let w = _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(high, bits));
                    let sums = D::dot(w, D::load(x.add(half * 128 + k * 32)));
                    // Four lanes for each of two scales.
                    let (first, second) = (2 * k as i32, 2 * k as i32 + 1);
                    let pick = _mm256_setr_epi32(first, first, first, first, second, second, second, second);
                    let scale = _mm256_permutevar8x32_epi32(scales, pick);
                    acc = _mm256_add_epi32(acc, _mm256_mullo_epi32(sums, scale));
                }
            }
            acc
        }
    }
    #[inline(always)]
    unsafe fn offset(_: *const i32) -> i32 {
        0
    }
    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        scalar::dot_q6_k(row, x)
    }
}

/// The integer dot products of a block of eight rows that lie `row_bytes` apart, without the
/// format's offset.
pub(super) trait Eight<F: Format> {
    unsafe fn sums(block: *const u8, row_bytes: usize, x: *const i8, offsets: *const i32) -> __m256i;
}

impl<D: Dot, F: Format> Eight<F> for D {
    #[inline(always)]
    unsafe fn sums(block: *const u8, row_bytes: usize, x: *const i8, offsets: *const i32) -> __m256i {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut sums = [_mm256_setzero_si256(); 8];
            for (r, sums) in sums.iter_mut().enumerate() {
                *sums = F::partial::<D>(block.add(r * row_bytes), x, offsets);
            }
            add_across(sums)
        }
    }
}

/// Eight rows of a format, their integer sums by `E`.
pub(super) struct Rows<E, F>(PhantomData<(E, F)>);

impl<E: Eight<F>, F: Format> Blocks for Rows<E, F> {
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        let per_block = x.offsets.len() / x.d.len().max(1);
        // SAFETY: the caller has the features and eight rows as long as `x`.
        unsafe {
            let mut acc = _mm256_setzero_ps();
            for (b, dx) in x.d.iter().enumerate() {
                let block = w.add(b * F::BYTES);
                prefetch::<F>(w, row_bytes, b);
                let offsets = x.offsets.as_ptr().add(b * per_block);
                let sums = E::sums(block, row_bytes, x.q.as_ptr().add(b * F::SPAN), offsets);
                let sums = _mm256_add_epi32(sums, _mm256_set1_epi32(F::offset(offsets)));
                let scales = _mm256_mul_ps(scales::<F>(block, row_bytes), _mm256_set1_ps(*dx));
                acc = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(sums), acc);
            }
            _mm256_storeu_ps(out, acc);
        }
    }

    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        F::dot_one(row, x)
    }
}

/// Prefetches what block `b` is to these eight rows for the eight after the next, which lie in one piece.
/// (Measured: for the next eight it comes too late where rows are short.)
#[inline(always)]
unsafe fn prefetch<F: Format>(w: *const u8, row_bytes: usize, b: usize) {
    let ahead = w.wrapping_add(8 * (2 * row_bytes + b * F::BYTES));
    for line in (0..8 * F::BYTES).step_by(64) {
        // SAFETY: prefetching never faults, wherever it reaches.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_add(line).cast()) };
    }
}

/// The scales of a block of eight rows.
#[inline(always)]
unsafe fn scales<F: Format>(block: *const u8, row_bytes: usize) -> __m256 {
    // SAFETY: the caller has F16C and eight blocks.
    unsafe {
        let d = |r: usize| block.add(r * row_bytes + F::SCALE_AT).cast::<i16>().read_unaligned();
        _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(1), d(2), d(3), d(4), d(5), d(6), d(7)))
    }
}

/// Lane `r` of the result is the sum of the lanes of `rows[r]`.
#[inline(always)]
unsafe fn add_across(rows: [__m256i; 8]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let [a, b, c, d, e, f, g, h] = rows;
        let low = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        let high = _mm256_hadd_epi32(_mm256_hadd_epi32(e, f), _mm256_hadd_epi32(g, h));
        _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high))
    }
}
