//! Thirty-two bytes in a 256-bit register.

use core::arch::asm;
use core::arch::x86_64::*;

use bytemuck::must_cast;

use crate::quant::Bytes;

/// A proof that the processor has AVX2 and F16C.
#[derive(Clone, Copy)]
pub(super) struct Ymm(());

impl Ymm {
    /// # Safety
    ///
    /// The processor has AVX2 and F16C.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }

    /// Decodes a little-endian f16.
    #[inline(always)]
    pub fn f16(self, bytes: [u8; 2]) -> f32 {
        // SAFETY: `self` proves F16C.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(u16::from_le_bytes(bytes).into()))) }
    }
}

impl Bytes for Ymm {
    type V = __m256i;
    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> __m256i {
        must_cast(*bytes)
    }
    #[inline(always)]
    fn words(self, words: [u64; 4]) -> __m256i {
        must_cast(words)
    }
    methods! {
        Ymm, "avx2,f16c";
        fn nibbles(_s, bytes: &[u8; 16]) -> __m256i {
            let x = must_cast(*bytes);
            let x = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(x), _mm_srli_epi16::<4>(x));
            _mm256_and_si256(x, _mm256_set1_epi8(15))
        }
        /// Combines eight words, which were read from a grid, to a vector. The compiler must not see where the first
        /// word comes from. Otherwise, under AVX-512, it would gather all eight words, which takes twice as long as
        /// eight loads.
        fn grid(_s, words: [u32; 8]) -> __m256i {
            let [mut a, b, c, d, e, f, g, h] = words;
            // SAFETY: contains no instruction.
            unsafe { asm!("/* {:e} */", inout(reg) a, options(pure, nomem, nostack, preserves_flags)) };
            let [a, b, c, d, e, f, g, h] = [a, b, c, d, e, f, g, h].map(|word| word as i32);
            _mm256_setr_epi32(a, b, c, d, e, f, g, h)
        }
        fn splat(_s, byte: u8) -> __m256i {
            _mm256_set1_epi8(byte as i8)
        }
        fn or(_s, a: __m256i, b: __m256i) -> __m256i {
            _mm256_or_si256(a, b)
        }
        fn and(_s, a: __m256i, b: __m256i) -> __m256i {
            _mm256_and_si256(a, b)
        }
        fn xor(_s, a: __m256i, b: __m256i) -> __m256i {
            _mm256_xor_si256(a, b)
        }
        fn add(_s, a: __m256i, b: __m256i) -> __m256i {
            _mm256_add_epi8(a, b)
        }
        fn sub(_s, a: __m256i, b: __m256i) -> __m256i {
            _mm256_sub_epi8(a, b)
        }
        /// Shifts each byte. The instruction shifts words of 16 bits, so that bits move from byte to byte; the mask
        /// clears such bits.
        fn shift(_s, x: __m256i, left: i32, mask: u8) -> __m256i {
            let by = _mm_cvtsi32_si128(left.abs());
            let x = if left < 0 { _mm256_srl_epi16(x, by) } else { _mm256_sll_epi16(x, by) };
            let mask = if left < 0 { mask & (0xff >> -left) } else { mask & (0xff << left) };
            _mm256_and_si256(x, _mm256_set1_epi8(mask as i8))
        }
        fn lookup(_s, table: &[u8; 16], x: __m256i) -> __m256i {
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(must_cast(*table)), x)
        }
        fn spread(_s, bits: u32) -> __m256i {
            // Each byte of the word is copied to eight lanes. Then each of these lanes tests another bit of the byte.
            let byte = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let x = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), byte);
            _mm256_cmpeq_epi8(_mm256_and_si256(x, bit), bit)
        }
        fn at_least(_s, x: __m256i, least: u8) -> __m256i {
            _mm256_cmpeq_epi8(_mm256_max_epu8(x, _mm256_set1_epi8(least as i8)), x)
        }
    }
}

/// Makes the compiler forget the contents of `x`, so that it loads them from memory again. A load can broadcast a value
/// at no cost, but broadcasting from a register takes a shuffle.
#[inline(always)]
pub(super) fn hide<T>(x: &T) {
    // SAFETY: contains no instruction.
    unsafe { asm!("/* {} */", in(reg) x, options(nostack, preserves_flags)) };
}

/// Compiler barrier: keeps loads in program order, because interleaving independent steps would need more registers
/// than there are.
#[inline(always)]
pub(super) fn in_order() {
    // SAFETY: contains no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// Returns `x`, and hides from the compiler how `x` was computed. If the compiler sees that scales are widened and then
/// shuffled, it shuffles first and then widens each result, which takes five instructions instead of one.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn opaque(mut x: __m256i) -> __m256i {
    // SAFETY: contains no instruction.
    unsafe { asm!("/* {} */", inout(ymm_reg) x, options(pure, nomem, nostack, preserves_flags)) };
    x
}
