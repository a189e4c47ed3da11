//! Sixteen lanes in two 256-bit registers.

use core::arch::x86_64::*;

use crate::kernel::lanes::{Isa, Lanes, Work};
#[cfg(feature = "lora")]
use crate::quant::TensorType;

/// A proof that the processor has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// Lanes 0 to 7 and 8 to 15.
#[derive(Clone, Copy)]
pub(super) struct Floats(__m256, __m256);

impl Floats {
    #[inline(always)]
    fn map(self, f: impl Fn(__m256) -> __m256) -> Self {
        Self(f(self.0), f(self.1))
    }
    #[inline(always)]
    fn zip(self, b: Self, f: impl Fn(__m256, __m256) -> __m256) -> Self {
        Self(f(self.0, b.0), f(self.1, b.1))
    }
}

/// Reduces eight lanes: combines lane `i` with lane `i + 4`, then with `i + 2`, `i + 1`.
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

/// [`Isa::four_columns`] of a row and the row `apart` bytes after it, side by side.
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

// SAFETY of every block below: a value of `Avx2` proves the features, and each load has the size of its reference.
// Every store method of `Floats` writes the whole array.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl Isa for Avx2 {
    type V = Floats;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
    #[inline(always)]
    fn apart<W: Work<Self>>(self, work: W) {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn apart<W: Work<Avx2>>(s: Avx2, work: W) {
            work.run(s);
        }
        unsafe { apart(self, work) }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Floats {
        let x = unsafe { _mm256_set1_ps(x) };
        Floats(x, x)
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8; 64]) -> Floats {
        let p: *const f32 = bytes.as_ptr().cast();
        unsafe { Floats(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))) }
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 32]) -> Floats {
        let p: *const __m128i = bytes.as_ptr().cast();
        unsafe { Floats(_mm256_cvtph_ps(_mm_loadu_si128(p)), _mm256_cvtph_ps(_mm_loadu_si128(p.add(1)))) }
    }
    #[inline(always)]
    fn load_bf16(self, bytes: &[u8; 32]) -> Floats {
        let p: *const __m128i = bytes.as_ptr().cast();
        unsafe {
            let wide = |p| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p))));
            Floats(wide(p), wide(p.add(1)))
        }
    }
    #[inline(always)]
    fn load_i8(self, bytes: &[u8; 16]) -> Floats {
        let p = bytes.as_ptr();
        unsafe {
            let wide = |p: *const u8| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())));
            Floats(wide(p), wide(p.add(8)))
        }
    }
    #[cfg(feature = "lora")]
    #[inline(always)]
    unsafe fn four_columns(self, kind: TensorType, rows: *const u8, stride: usize) -> [Floats; 4] {
        let ([a, b, c, d], [e, f, g, h]) =
            unsafe { (eight_rows(kind, rows, stride), eight_rows(kind, rows.add(8 * stride), stride)) };
        [Floats(a, e), Floats(b, f), Floats(c, g), Floats(d, h)]
    }
    #[inline(always)]
    fn prefetch(self, soon: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(soon.cast()) }
    }
}

// SAFETY of every block below: vectors are only created through a value of `Avx2`, which proves the features; each
// store has the size of its reference.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Floats {
    #[inline(always)]
    fn store(self, to: &mut [f32; 16]) {
        let p = to.as_mut_ptr();
        unsafe {
            _mm256_storeu_ps(p, self.0);
            _mm256_storeu_ps(p.add(8), self.1);
        }
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u8; 32]) {
        let p: *mut __m128i = to.as_mut_ptr().cast();
        unsafe {
            _mm_storeu_si128(p, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
            _mm_storeu_si128(p.add(1), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.1));
        }
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8; 16]) {
        unsafe {
            let x = _mm256_packs_epi32(_mm256_cvtps_epi32(self.0), _mm256_cvtps_epi32(self.1));
            let x = _mm256_permute4x64_epi64::<0b11_01_10_00>(x);
            let x = _mm_packs_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            _mm_storeu_si128(to.as_mut_ptr().cast(), x);
        }
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.zip(b, |a, b| unsafe { _mm256_add_ps(a, b) })
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.zip(b, |a, b| unsafe { _mm256_sub_ps(a, b) })
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.zip(b, |a, b| unsafe { _mm256_mul_ps(a, b) })
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        self.zip(b, |a, b| unsafe { _mm256_div_ps(a, b) })
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        unsafe { Self(_mm256_fmadd_ps(self.0, b.0, c.0), _mm256_fmadd_ps(self.1, b.1, c.1)) }
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        self.zip(b, |a, b| unsafe { _mm256_max_ps(a, b) })
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        self.zip(b, |a, b| unsafe { _mm256_min_ps(a, b) })
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.map(|x| unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), x) })
    }
    #[inline(always)]
    fn round(self) -> Self {
        self.map(|x| unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x) })
    }
    #[inline(always)]
    fn exp2i(self) -> Self {
        self.map(|x| unsafe {
            let n = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(n))
        })
    }
    #[inline(always)]
    fn select(self, mask: u16, other: Self) -> Self {
        unsafe {
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let pick = |mask: u16, a, b| {
                let on = _mm256_and_si256(_mm256_set1_epi32(mask.into()), bits);
                _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_cmpeq_epi32(on, bits)))
            };
            Self(pick(mask, self.0, other.0), pick(mask >> 8, self.1, other.1))
        }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        unsafe { tree!(_mm256_add_ps(self.0, self.1), _mm_add_ps, _mm_add_ss) }
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        unsafe { tree!(_mm256_max_ps(self.0, self.1), _mm_max_ps, _mm_max_ss) }
    }
}
