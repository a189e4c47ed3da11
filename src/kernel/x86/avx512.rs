//! Sixteen lanes in one 512-bit register.

use core::arch::x86_64::*;

#[cfg(feature = "lora")]
use super::avx2::pair;
use super::avx2::tree;
use crate::kernel::lanes::{Isa, Lanes, Work};
#[cfg(feature = "lora")]
use crate::quant::TensorType;

/// A proof that the processor has AVX-512 (F, DQ, BW, VL).
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Lanes 0 to 15.
#[derive(Clone, Copy)]
pub(super) struct Floats(__m512);

impl Floats {
    /// The lower and the upper 8 lanes.
    #[inline(always)]
    fn halves(self) -> (__m256, __m256) {
        // SAFETY: vectors are only created through a value of `Avx512`, which proves the features.
        unsafe { (_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0)) }
    }
}

/// [`Isa::four_columns`] of rows 0, 4, 8 and 12, side by side.
#[cfg(feature = "lora")]
#[inline(always)]
unsafe fn four_rows(kind: TensorType, at: *const u8, stride: usize) -> __m512 {
    // SAFETY: the caller promises the rows and AVX-512.
    unsafe {
        let (low, high) = (pair(kind, at, 4 * stride), pair(kind, at.add(8 * stride), 4 * stride));
        _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
    }
}

// SAFETY of every block below: a value of `Avx512` proves the features, and each load has the size of its reference.
// Every store method of `Floats` writes the whole array.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl Isa for Avx512 {
    type V = Floats;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
    #[inline(always)]
    fn apart<W: Work<Self>>(self, work: W) {
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni")]
        fn apart<W: Work<Avx512>>(s: Avx512, work: W) {
            work.run(s);
        }
        unsafe { apart(self, work) }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Floats {
        Floats(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8; 64]) -> Floats {
        Floats(unsafe { _mm512_loadu_ps(bytes.as_ptr().cast()) })
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 32]) -> Floats {
        Floats(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(bytes.as_ptr().cast())) })
    }
    #[inline(always)]
    fn load_bf16(self, bytes: &[u8; 32]) -> Floats {
        unsafe {
            let x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bytes.as_ptr().cast()));
            Floats(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(x)))
        }
    }
    #[inline(always)]
    fn load_i8(self, bytes: &[u8; 16]) -> Floats {
        Floats(unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.as_ptr().cast()))) })
    }
    #[cfg(feature = "lora")]
    #[inline(always)]
    unsafe fn four_columns(self, kind: TensorType, rows: *const u8, stride: usize) -> [Floats; 4] {
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
    #[inline(always)]
    fn prefetch(self, soon: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(soon.cast()) }
    }
}

// SAFETY of every block below: vectors are only created through a value of `Avx512`, which proves the features; each
// store has the size of its reference.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Floats {
    #[inline(always)]
    fn store(self, to: &mut [f32; 16]) {
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u8; 32]) {
        unsafe {
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
        }
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8; 16]) {
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(self.0))) }
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Self(unsafe { _mm512_add_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Self(unsafe { _mm512_sub_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Self(unsafe { _mm512_mul_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        Self(unsafe { _mm512_div_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        Self(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        Self(unsafe { _mm512_max_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        Self(unsafe { _mm512_min_ps(self.0, b.0) })
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self(unsafe { _mm512_abs_ps(self.0) })
    }
    #[inline(always)]
    fn round(self) -> Self {
        Self(unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
    }
    #[inline(always)]
    fn exp2i(self) -> Self {
        unsafe {
            let n = _mm512_add_epi32(_mm512_cvtps_epi32(self.0), _mm512_set1_epi32(127));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(n)))
        }
    }
    #[inline(always)]
    fn select(self, mask: u16, other: Self) -> Self {
        Self(unsafe { _mm512_mask_blend_ps(mask, other.0, self.0) })
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let (low, high) = self.halves();
        unsafe { tree!(_mm256_add_ps(low, high), _mm_add_ps, _mm_add_ss) }
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        let (low, high) = self.halves();
        unsafe { tree!(_mm256_max_ps(low, high), _mm_max_ps, _mm_max_ss) }
    }
}
