//! Products of unsigned bytes with signed bytes for each instruction set, and functions that sum the lanes of a vector.

use core::arch::asm;
use core::arch::x86_64::*;

use crate::quant::Format;

/// Products of codes and activations. All sums of products are exact.
///
/// # Safety
///
/// The methods require a processor that has the instruction set of the implementing type.
pub(super) trait Dot: Sized {
    /// True if the instruction set has 512-bit registers.
    const WIDE: bool = false;
    /// True if the kernel multiplies signed weights instead of codes, so that no bias is subtracted, in formats that
    /// are [`signed`].
    fn signed<F: Format>() -> bool {
        false
    }
    /// Adds the products of `codes` and `x` to `acc`. Each i32 lane gets the sum of four or more products, which may
    /// come from any places in the same 128-bit half. Codes are at most `F::MAX`.
    unsafe fn dot<F: Format>(acc: __m256i, codes: __m256i, x: __m256i) -> __m256i;
    /// `acc` plus the products of i16, summed in pairs.
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i;
}

/// True if `n` products of codes of the format and activations can be added in an i16 without overflow.
pub(super) const fn fits_i16<F: Format>(n: u32) -> bool {
    F::MAX as u32 * 127 * n <= 32767
}

/// True if AVX2 multiplies signed weights instead of codes, because the sum of two products of codes does not fit an
/// i16, but the sum of two products of signed weights does.
pub(super) const fn signed<F: Format>() -> bool {
    !fits_i16::<F>(2)
}

/// Multiplies codes with activations and adds the products in pairs, as i16. If the format's products are [`signed`],
/// weights are multiplied instead of codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn pairs<F: Format>(codes: __m256i, x: __m256i) -> __m256i {
    if !signed::<F>() {
        return _mm256_maddubs_epi16(codes, x);
    }
    let w = _mm256_sub_epi8(codes, _mm256_set1_epi8(F::BIAS as i8));
    _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
}

/// Products by AVX2.
pub(super) struct Madd;
impl Dot for Madd {
    #[inline(always)]
    fn signed<F: Format>() -> bool {
        signed::<F>()
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn dot<F: Format>(acc: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        _mm256_add_epi32(acc, _mm256_madd_epi16(pairs::<F>(codes, x), _mm256_set1_epi16(1)))
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))
    }
}

/// Products by AVX-VNNI.
pub(super) struct Vnni;
impl Dot for Vnni {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    unsafe fn dot<F: Format>(acc: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        _mm256_dpbusd_avx_epi32(acc, codes, x)
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        _mm256_dpwssd_avx_epi32(acc, a, b)
    }
}

/// Products by AVX-512 with VNNI and VL.
pub(super) struct Vnni512;
impl Dot for Vnni512 {
    const WIDE: bool = true;
    #[inline]
    #[target_feature(enable = "avx512vl,avx512vnni")]
    unsafe fn dot<F: Format>(acc: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        _mm256_dpbusd_epi32(acc, codes, x)
    }
    #[inline]
    #[target_feature(enable = "avx512vl,avx512vnni")]
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        words256(acc, a, b)
    }
}

/// Defines a function for one `vpdpwssd`: `acc` plus products of i16, summed in pairs. The intrinsic is not used,
/// because the compiler splits it into a multiplication and an addition, in an order in which registers run out: Q4_K
/// would lose 10 % of its speed.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $features:literal, $v:ty, $register:ident, $b:ty, $operand:ident, $form:literal $(, $unsafe:tt)?) => {
        $(#[$doc])*
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) $($unsafe)? fn $name(mut acc: $v, a: $v, b: $b) -> $v {
            // SAFETY: uses registers and, if `b` is a pointer, the two i16 that the caller promises.
            unsafe { asm!($form, inout($register) acc, in($register) a, in($operand) b, options(pure, readonly, nostack, preserves_flags)) };
            acc
        }
    };
}
words!(
    /// `acc` plus the products of i16, summed in pairs, in 512-bit vectors.
    words512, "avx512f,avx512vnni", __m512i, zmm_reg, __m512i, zmm_reg, "vpdpwssd {}, {}, {}"
);
words!(
    /// Like [`words512`], but the second factor has the same two i16, which are at `b`, in every lane.
    ///
    /// # Safety
    ///
    /// `b` points to two i16.
    words_by, "avx512f,avx512vnni", __m512i, zmm_reg, *const i16, reg, "vpdpwssd {}, {}, dword ptr [{}]{{1to16}}", unsafe
);
words!(
    /// `acc` plus the products of i16, summed in pairs, in 256-bit vectors.
    words256, "avx512f,avx512vl,avx512vnni", __m256i, ymm_reg, __m256i, ymm_reg, "vpdpwssd {}, {}, {}"
);

/// Adds the two halves of each argument. The result has four lanes of `a`, then four lanes of `b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn join(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b))
}

/// Adds the four lanes of each half of four registers. The result has the sums of the four lower halves, then those of
/// the four upper halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_across(pairs: [__m256i; 4]) -> __m256i {
    let [a, b, c, d] = pairs;
    let ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd))
}
