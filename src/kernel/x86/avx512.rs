//! Sixteen lanes in one 512-bit register.

use core::arch::x86_64::*;

use bytemuck::must_cast;

use super::ahead;
#[cfg(feature = "lora")]
use super::avx2::pair;
use super::avx2::tree;
use crate::kernel::lanes::{Isa, Lanes, Work};
#[cfg(feature = "lora")]
use crate::quant::TensorType;

/// A proof that the processor has AVX-512 (F, DQ, BW, VL, VNNI).
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Lanes 0 to 15.
#[derive(Clone, Copy)]
pub(super) struct Floats(__m512);

/// The lower and the upper 8 lanes.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn halves(x: __m512) -> (__m256, __m256) {
    (_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x))
}

/// Adds up the lanes of four vectors as [`Lanes::sum`] does, each step for all of them.
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn four_sums([a, b, c, d]: [Floats; 4]) -> __m128 {
    // Adds lane `i + 8` to lane `i`; the results of two vectors are side by side.
    let eights = |a, b| _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
    let (ab, cd) = (eights(a.0, b.0), eights(c.0, d.0));
    let fours = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd));
    let twos = _mm512_add_ps(fours, _mm512_permute_ps::<0xee>(fours));
    let ones = _mm512_add_ps(twos, _mm512_permute_ps::<0x55>(twos));
    let first_of_four = must_cast(core::array::from_fn::<i32, 16, _>(|i| i as i32 % 4 * 4));
    _mm512_castps512_ps128(_mm512_permutexvar_ps(first_of_four, ones))
}

/// Loads the first four weights of the rows 0, 4, 8 and 12 and converts them to floats. The weights of the four rows
/// are side by side in the result.
#[cfg(feature = "lora")]
#[inline(always)]
unsafe fn four_rows(kind: TensorType, at: *const u8, stride: usize) -> __m512 {
    // SAFETY: the caller promises the rows and AVX-512.
    unsafe {
        let (low, high) = (pair(kind, at, 4 * stride), pair(kind, at.add(8 * stride), 4 * stride));
        _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
    }
}

/// Loads the first eight columns of 16 rows of 16-bit weights. Each result has a pair of columns.
#[cfg(feature = "lora")]
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
unsafe fn columns_of_halves(rows: *const u8, stride: usize) -> [__m512i; 4] {
    // SAFETY: the caller promises the rows.
    let row = |r: usize| unsafe { _mm_loadu_si128(rows.add(r * stride).cast()) };
    // Loads four rows from row `r` on, side by side.
    let four = |r: usize| {
        if stride == 16 {
            // SAFETY: the rows follow each other without gaps, and the caller promises that they may be read.
            return unsafe { _mm512_loadu_si512(rows.add(r * 16).cast()) };
        }
        let x = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(row(r)), row(r + 1));
        _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(x, row(r + 2)), row(r + 3))
    };
    // For each word of the result, the index of the word before the last shuffle. Word `i` of the result belongs to row
    // `i % 16`, and is in column `i / 16` of a pair of columns.
    let words: [i16; 32] = core::array::from_fn(|i| (i % 4 * 8 + i / 16 * 4 + i % 16 / 4) as i16);
    let order = must_cast(words);
    let (a, b, c, d) = (four(0), four(4), four(8), four(12));
    let (low_ab, low_cd) = (_mm512_unpacklo_epi16(a, b), _mm512_unpacklo_epi16(c, d));
    let (high_ab, high_cd) = (_mm512_unpackhi_epi16(a, b), _mm512_unpackhi_epi16(c, d));
    let pairs = [
        _mm512_unpacklo_epi32(low_ab, low_cd),
        _mm512_unpackhi_epi32(low_ab, low_cd),
        _mm512_unpacklo_epi32(high_ab, high_cd),
        _mm512_unpackhi_epi32(high_ab, high_cd),
    ];
    pairs.map(|pair| _mm512_permutexvar_epi16(order, pair))
}

/// Decodes pairs of columns of 16-bit weights.
#[cfg(feature = "lora")]
#[inline]
#[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
fn sixteen_bits(kind: TensorType, pairs: [__m512i; 4]) -> [Floats; 8] {
    let column = |half: __m256i| {
        Floats(if kind == TensorType::F16 {
            _mm512_cvtph_ps(half)
        } else {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)))
        })
    };
    let [[a, b], [c, d], [e, f], [g, h]] =
        pairs.map(|pair| [column(_mm512_castsi512_si256(pair)), column(_mm512_extracti64x4_epi64::<1>(pair))]);
    [a, b, c, d, e, f, g, h]
}

// SAFETY: every store method of `Floats` writes the whole array; `four_columns` reads the rows' weights only.
unsafe impl Isa for Avx512 {
    type V = Floats;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
    #[inline(always)]
    fn apart<W: Work<Self>>(self, work: W) {
        #[inline(never)]
        #[target_feature(enable = "avx512dq,avx512bw,avx512vl,avx512vnni")]
        fn apart<W: Work<Avx512>>(s: Avx512, work: W) {
            work.run(s);
        }
        // SAFETY: `self` proves that the processor has the features.
        unsafe { apart(self, work) }
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8; 64]) -> Floats {
        Floats(must_cast(*bytes))
    }
    #[cfg(feature = "lora")]
    #[inline(always)]
    unsafe fn four_columns(self, kind: TensorType, rows: *const u8, stride: usize) -> [Floats; 4] {
        // SAFETY: the caller promises sixteen rows.
        unsafe {
            let (a, b) = (four_rows(kind, rows, stride), four_rows(kind, rows.add(stride), stride));
            let (c, d) = (four_rows(kind, rows.add(2 * stride), stride), four_rows(kind, rows.add(3 * stride), stride));
            let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
            let (high_ab, high_cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
            [
                Floats(_mm512_shuffle_ps::<0x44>(ab, cd)),
                Floats(_mm512_shuffle_ps::<0xee>(ab, cd)),
                Floats(_mm512_shuffle_ps::<0x44>(high_ab, high_cd)),
                Floats(_mm512_shuffle_ps::<0xee>(high_ab, high_cd)),
            ]
        }
    }
    #[cfg(feature = "lora")]
    #[inline(always)]
    unsafe fn eight_columns(self, kind: TensorType, rows: *const u8, stride: usize) -> [Floats; 8] {
        // SAFETY: the caller promises sixteen rows.
        unsafe {
            if kind == TensorType::F32 {
                let low = self.four_columns(kind, rows, stride);
                let high = self.four_columns(kind, rows.add(16), stride);
                return [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]];
            }
            sixteen_bits(kind, columns_of_halves(rows, stride))
        }
    }
    #[inline(always)]
    fn sums<const N: usize>(self, x: [Floats; N]) -> [f32; N] {
        let mut sums = x.map(|_| 0.0);
        let (fours, rest) = x.as_chunks::<4>();
        let (to, to_rest) = sums.as_chunks_mut::<4>();
        for (to, four) in to.iter_mut().zip(fours) {
            // SAFETY: `self` proves that the processor has the features.
            *to = must_cast(unsafe { four_sums(*four) });
        }
        for (to, x) in to_rest.iter_mut().zip(rest) {
            *to = x.sum();
        }
        sums
    }
    #[inline(always)]
    fn prefetch(self, soon: *const u8) {
        ahead::prefetch::<_MM_HINT_T1>(soon);
    }
    methods! {
        Avx512, "avx512dq,avx512bw,avx512vl,avx512vnni";
        fn splat(_s, x: f32) -> Floats {
            Floats(_mm512_set1_ps(x))
        }
        fn load_f16(_s, bytes: &[u8; 32]) -> Floats {
            Floats(_mm512_cvtph_ps(must_cast(*bytes)))
        }
        fn load_bf16(_s, bytes: &[u8; 32]) -> Floats {
            Floats(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(must_cast(*bytes)))))
        }
        fn load_i8(_s, bytes: &[u8; 16]) -> Floats {
            Floats(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(must_cast(*bytes))))
        }
    }
}

impl Lanes for Floats {
    #[inline(always)]
    fn store(self, to: &mut [f32; 16]) {
        *to = must_cast(self.0);
    }
    methods! {
        Floats, "avx512dq,avx512bw,avx512vl,avx512vnni";
        fn store_f16(x, to: &mut [u8; 32]) {
            *to = must_cast(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x.0));
        }
        fn store_i8(x, to: &mut [i8; 16]) {
            *to = must_cast(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x.0)));
        }
        fn add(a, b: Floats) -> Floats {
            Floats(_mm512_add_ps(a.0, b.0))
        }
        fn sub(a, b: Floats) -> Floats {
            Floats(_mm512_sub_ps(a.0, b.0))
        }
        fn mul(a, b: Floats) -> Floats {
            Floats(_mm512_mul_ps(a.0, b.0))
        }
        fn div(a, b: Floats) -> Floats {
            Floats(_mm512_div_ps(a.0, b.0))
        }
        fn fma(a, b: Floats, c: Floats) -> Floats {
            Floats(_mm512_fmadd_ps(a.0, b.0, c.0))
        }
        fn max(a, b: Floats) -> Floats {
            Floats(_mm512_max_ps(a.0, b.0))
        }
        fn min(a, b: Floats) -> Floats {
            Floats(_mm512_min_ps(a.0, b.0))
        }
        fn abs(x) -> Floats {
            Floats(_mm512_abs_ps(x.0))
        }
        fn round(x) -> Floats {
            Floats(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x.0))
        }
        fn exp2i(x) -> Floats {
            let n = _mm512_add_epi32(_mm512_cvtps_epi32(x.0), _mm512_set1_epi32(127));
            Floats(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(n)))
        }
        fn select(x, mask: u16, other: Floats) -> Floats {
            Floats(_mm512_mask_blend_ps(mask, other.0, x.0))
        }
        fn sum(x) -> f32 {
            let (low, high) = halves(x.0);
            tree!(_mm256_add_ps(low, high), _mm_add_ps, _mm_add_ss)
        }
        fn largest(x) -> f32 {
            let (low, high) = halves(x.0);
            tree!(_mm256_max_ps(low, high), _mm_max_ps, _mm_max_ss)
        }
    }
}
