//! Products of unsigned and signed bytes: where the instruction sets differ.

use core::arch::asm;
use core::arch::x86_64::*;

use crate::quant::Format;

/// Products of codes and activations.
///
/// # Safety
///
/// The methods need the instruction set; the sums are exact, and nothing but the arguments is read.
pub(super) unsafe trait Dot: Sized {
    /// Whether there are registers of 512 bits.
    const WIDE: bool = false;
    /// Whether [`signed`] is meant: then nothing has to make up for the bias.
    fn signed<F: Format>() -> bool {
        false
    }
    /// `acc` plus the products, four or more of them summed into each of eight i32. Sums of a 128-bit half stay in that
    /// half, in whatever lanes. Codes are at most `F::MAX`.
    unsafe fn dot<F: Format>(acc: __m256i, codes: __m256i, x: __m256i) -> __m256i;
    /// `acc` plus the products of words, each two summed.
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i;
}

/// Whether the sum of `n` products of codes and activations fits an i16.
pub(super) const fn fits_i16<F: Format>(n: u32) -> bool {
    F::MAX as u32 * 127 * n <= 32767
}

/// Whether AVX2 multiplies the weights themselves and not their codes: where not even two products of codes fit an i16, two
/// of signed numbers do.
pub(super) const fn signed<F: Format>() -> bool {
    !fits_i16::<F>(2)
}

/// The products of codes, or weights if they are [`signed`], and activations, each two summed into an i16.
#[inline(always)]
pub(super) unsafe fn pairs<F: Format>(codes: __m256i, x: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        if !signed::<F>() {
            return _mm256_maddubs_epi16(codes, x);
        }
        let w = _mm256_sub_epi8(codes, _mm256_set1_epi8(F::BIAS as i8));
        _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
    }
}

/// AVX2.
pub(super) struct Madd;
// SAFETY: registers only.
unsafe impl Dot for Madd {
    #[inline(always)]
    fn signed<F: Format>() -> bool {
        signed::<F>()
    }
    #[inline(always)]
    unsafe fn dot<F: Format>(acc: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { Self::words(acc, pairs::<F>(codes, x), _mm256_set1_epi16(1)) }
    }
    #[inline(always)]
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)) }
    }
}

/// AVX-VNNI.
pub(super) struct Vnni;
// SAFETY: registers only.
unsafe impl Dot for Vnni {
    #[inline(always)]
    unsafe fn dot<F: Format>(acc: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the caller has the features.
        unsafe { _mm256_dpbusd_avx_epi32(acc, codes, x) }
    }
    #[inline(always)]
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller has the features.
        unsafe { _mm256_dpwssd_avx_epi32(acc, a, b) }
    }
}

/// AVX-512 with VNNI and VL.
pub(super) struct Vnni512;
// SAFETY: registers, and what `sums512` reads of the block, the activations and their sums.
unsafe impl Dot for Vnni512 {
    const WIDE: bool = true;
    #[inline(always)]
    unsafe fn dot<F: Format>(acc: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the caller has the features.
        unsafe { _mm256_dpbusd_epi32(acc, codes, x) }
    }
    #[inline(always)]
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller has the features.
        unsafe { words256(acc, a, b) }
    }
}

/// A function of one `vpdpwssd`: `acc` plus the products of words, each two summed. Of the intrinsic the compiler makes two
/// instructions, a multiplication and an addition, and in their order registers run out: Q4_K lost a tenth of its speed.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $features:literal, $v:ty, $register:ident, $b:ty, $place:ident, $form:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The caller has the features, and two words where `b` is a place.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(mut acc: $v, a: $v, b: $b) -> $v {
            // SAFETY: registers, and memory that the caller names.
            unsafe { asm!($form, inout($register) acc, in($register) a, in($place) b, options(pure, readonly, nostack, preserves_flags)) };
            acc
        }
    };
}
words!(
    /// 512 bits.
    words512, "avx512f,avx512vnni", __m512i, zmm_reg, __m512i, zmm_reg, "vpdpwssd {}, {}, {}"
);
words!(
    /// 512 bits by the same two words, which lie at `b`.
    words_by, "avx512f,avx512vnni", __m512i, zmm_reg, *const i16, reg, "vpdpwssd {}, {}, dword ptr [{}]{{1to16}}"
);
words!(
    /// 256 bits.
    words256, "avx512f,avx512vl,avx512vnni", __m256i, ymm_reg, __m256i, ymm_reg, "vpdpwssd {}, {}, {}"
);
