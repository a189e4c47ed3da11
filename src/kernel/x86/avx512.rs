//! Sixteen lanes in one 512-bit register.

use core::arch::x86_64::*;

use super::avx2::tree;
use crate::kernel::lanes::Lanes;

/// All lanes.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

/// The upper 8 lanes.
#[inline(always)]
unsafe fn upper(x: __m512) -> __m256 {
    // SAFETY: the caller has AVX-512 with DQ.
    unsafe { _mm512_extractf32x8_ps::<1>(x) }
}

// SAFETY of every block below: the caller has AVX-512 (F, DQ, BW, VL), and its pointers reach 16 elements.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Avx512 {
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        Self(unsafe { _mm512_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> Self {
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) })
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> Self {
        unsafe {
            let x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(x)))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> Self {
        Self(unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        unsafe { _mm512_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u8) {
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) }
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8) {
        unsafe { _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(self.0))) }
    }

    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        Self(unsafe { _mm512_add_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        Self(unsafe { _mm512_sub_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        Self(unsafe { _mm512_mul_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        Self(unsafe { _mm512_div_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        Self(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        Self(unsafe { _mm512_max_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        Self(unsafe { _mm512_min_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        Self(unsafe { _mm512_abs_ps(self.0) })
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        Self(unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
    }
    #[inline(always)]
    unsafe fn exp2i(self) -> Self {
        unsafe {
            let n = _mm512_add_epi32(_mm512_cvtps_epi32(self.0), _mm512_set1_epi32(127));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(n)))
        }
    }
    #[inline(always)]
    fn prefetch(soon: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(soon.cast()) }
    }
    #[inline(always)]
    unsafe fn select(self, mask: u16, other: Self) -> Self {
        Self(unsafe { _mm512_mask_blend_ps(mask, other.0, self.0) })
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe { tree!(_mm256_add_ps(_mm512_castps512_ps256(self.0), upper(self.0)), _mm_add_ps, _mm_add_ss) }
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        unsafe { tree!(_mm256_max_ps(_mm512_castps512_ps256(self.0), upper(self.0)), _mm_max_ps, _mm_max_ss) }
    }
}
