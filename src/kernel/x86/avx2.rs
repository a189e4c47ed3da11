//! Sixteen lanes in two 256-bit registers.

use core::arch::x86_64::*;

use bytemuck::must_cast;

use super::ahead;
use crate::kernel::lanes::{Isa, Lanes, Work};
#[cfg(feature = "lora")]
use crate::quant::TensorType;

/// A proof that the processor has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// Lanes 0 to 7 and 8 to 15.
#[derive(Clone, Copy)]
pub(super) struct Floats(__m256, __m256);

/// Combines eight lanes to one value by an operation: lane `i` with lane `i + 4`, then with lane `i + 2`, then `i + 1`.
macro_rules! tree {
    ($x:expr, $op:ident, $op1:ident) => {{
        let x: __m256 = $x;
        let x = $op(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = $op(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32($op1(x, _mm_movehdup_ps(x)))
    }};
}
pub(super) use tree;

/// Decodes four little-endian weights of a float type.
#[cfg(feature = "lora")]
#[inline(always)]
unsafe fn four(kind: TensorType, at: *const u8) -> __m128 {
    // SAFETY: the caller promises the weights, AVX2 and F16C.
    unsafe {
        match kind {
            TensorType::F16 => _mm_cvtph_ps(_mm_loadl_epi64(at.cast())),
            TensorType::BF16 => _mm_castsi128_ps(_mm_slli_epi32::<16>(_mm_cvtepu16_epi32(_mm_loadl_epi64(at.cast())))),
            _ => _mm_loadu_ps(at.cast()),
        }
    }
}

/// Loads the first four weights of each of two rows and converts them to floats. The weights of both rows are side by
/// side. The second row is `apart` bytes after the first.
#[cfg(feature = "lora")]
#[inline(always)]
pub(super) unsafe fn pair(kind: TensorType, at: *const u8, apart: usize) -> __m256 {
    // SAFETY: the caller promises both rows.
    unsafe { _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(four(kind, at)), four(kind, at.add(apart))) }
}

/// [`Isa::four_columns`] of eight rows.
#[cfg(feature = "lora")]
#[inline(always)]
unsafe fn eight_rows(kind: TensorType, at: *const u8, stride: usize) -> [__m256; 4] {
    // SAFETY: the caller promises the rows.
    unsafe {
        let a = pair(kind, at, 4 * stride);
        let b = pair(kind, at.add(stride), 4 * stride);
        let c = pair(kind, at.add(2 * stride), 4 * stride);
        let d = pair(kind, at.add(3 * stride), 4 * stride);
        let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        let (high_ab, high_cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        [
            _mm256_shuffle_ps::<0x44>(ab, cd),
            _mm256_shuffle_ps::<0xee>(ab, cd),
            _mm256_shuffle_ps::<0x44>(high_ab, high_cd),
            _mm256_shuffle_ps::<0xee>(high_ab, high_cd),
        ]
    }
}

// SAFETY: every store method of `Floats` writes the whole array; `four_columns` reads the rows' weights only.
unsafe impl Isa for Avx2 {
    type V = Floats;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
    #[inline(always)]
    fn apart<W: Work<Self>>(self, work: W) {
        #[inline(never)]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn apart<W: Work<Avx2>>(s: Avx2, work: W) {
            work.run(s);
        }
        // SAFETY: `self` proves that the processor has the features.
        unsafe { apart(self, work) }
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8; 64]) -> Floats {
        let [low, high] = must_cast(*bytes);
        Floats(low, high)
    }
    #[cfg(feature = "lora")]
    #[inline(always)]
    unsafe fn four_columns(self, kind: TensorType, rows: *const u8, stride: usize) -> [Floats; 4] {
        // SAFETY: the caller promises sixteen rows.
        let ([a, b, c, d], [e, f, g, h]) =
            unsafe { (eight_rows(kind, rows, stride), eight_rows(kind, rows.add(8 * stride), stride)) };
        [Floats(a, e), Floats(b, f), Floats(c, g), Floats(d, h)]
    }
    #[inline(always)]
    fn prefetch(self, soon: *const u8) {
        ahead::prefetch::<_MM_HINT_T1>(soon);
    }
    methods! {
        Avx2, "avx2,fma,f16c";
        fn splat(_s, x: f32) -> Floats {
            let x = _mm256_set1_ps(x);
            Floats(x, x)
        }
        fn load_f16(_s, bytes: &[u8; 32]) -> Floats {
            let [low, high] = must_cast(*bytes);
            Floats(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        }
        fn load_bf16(_s, bytes: &[u8; 32]) -> Floats {
            let [low, high] = must_cast(*bytes);
            let wide = |x| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(x)));
            Floats(wide(low), wide(high))
        }
        fn load_i8(_s, bytes: &[u8; 16]) -> Floats {
            let [low, high] = must_cast(*bytes);
            let wide = |x| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(x)));
            Floats(wide(low), wide(high))
        }
        fn load_i4(_s, bytes: &[u8; 16], high: bool) -> Floats {
            let shift = _mm_cvtsi32_si128(if high { 4 } else { 0 });
            let codes = _mm_and_si128(_mm_srl_epi16(must_cast(*bytes), shift), _mm_set1_epi8(15));
            // The table has the high bytes of the f16 values from -8 to 7. Their low bytes are 0.
            let f16 = _mm_setr_epi8(-56, -57, -58, -59, -60, -62, -64, -68, 0, 60, 64, 66, 68, 69, 70, 71);
            let (f16, zero) = (_mm_shuffle_epi8(f16, codes), _mm_setzero_si128());
            Floats(_mm256_cvtph_ps(_mm_unpacklo_epi8(zero, f16)), _mm256_cvtph_ps(_mm_unpackhi_epi8(zero, f16)))
        }
    }
}

impl Lanes for Floats {
    #[inline(always)]
    fn store(self, to: &mut [f32; 16]) {
        *to = must_cast([self.0, self.1]);
    }
    methods! {
        Floats, "avx2,fma,f16c";
        fn store_f16(x, to: &mut [u8; 32]) {
            let half = |x| _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
            *to = must_cast([half(x.0), half(x.1)]);
        }
        fn store_i8(x, to: &mut [i8; 16]) {
            let x = _mm256_packs_epi32(_mm256_cvtps_epi32(x.0), _mm256_cvtps_epi32(x.1));
            let x = _mm256_permute4x64_epi64::<0b11_01_10_00>(x);
            *to = must_cast(_mm_packs_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)));
        }
        fn add(a, b: Floats) -> Floats {
            Floats(_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1))
        }
        fn sub(a, b: Floats) -> Floats {
            Floats(_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1))
        }
        fn mul(a, b: Floats) -> Floats {
            Floats(_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1))
        }
        fn div(a, b: Floats) -> Floats {
            Floats(_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1))
        }
        fn fma(a, b: Floats, c: Floats) -> Floats {
            Floats(_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1))
        }
        fn max(a, b: Floats) -> Floats {
            Floats(_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1))
        }
        fn min(a, b: Floats) -> Floats {
            Floats(_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1))
        }
        fn abs(x) -> Floats {
            let sign = _mm256_set1_ps(-0.0);
            Floats(_mm256_andnot_ps(sign, x.0), _mm256_andnot_ps(sign, x.1))
        }
        fn round(x) -> Floats {
            let round = |x| _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
            Floats(round(x.0), round(x.1))
        }
        fn exp2i(x) -> Floats {
            let power = |x| {
                let n = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(n))
            };
            Floats(power(x.0), power(x.1))
        }
        fn select(x, mask: u16, other: Floats) -> Floats {
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let pick = |mask: u16, a, b| {
                let on = _mm256_and_si256(_mm256_set1_epi32(mask.into()), bits);
                _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_cmpeq_epi32(on, bits)))
            };
            Floats(pick(mask, x.0, other.0), pick(mask >> 8, x.1, other.1))
        }
        fn sum(x) -> f32 {
            tree!(_mm256_add_ps(x.0, x.1), _mm_add_ps, _mm_add_ss)
        }
        fn largest(x) -> f32 {
            tree!(_mm256_max_ps(x.0, x.1), _mm_max_ps, _mm_max_ss)
        }
    }
}
