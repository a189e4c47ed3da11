//! Thirty-two bytes in a 256-bit register.

use core::arch::asm;
use core::arch::x86_64::*;

use crate::quant::Bytes;

/// A proof that the processor has AVX2 and F16C.
#[derive(Clone, Copy)]
pub(super) struct Ymm(());

impl Ymm {
    /// # Safety
    ///
    /// The caller has AVX2 and F16C.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }

    /// Decodes a little-endian f16.
    #[inline(always)]
    pub fn f16(self, bytes: [u8; 2]) -> f32 {
        // SAFETY: a value of `Ymm` proves F16C.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(u16::from_le_bytes(bytes).into()))) }
    }
}

// SAFETY of every block below: a value of `Ymm` proves AVX2, and each load has the size of its reference.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Bytes for Ymm {
    type V = __m256i;
    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> __m256i {
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }
    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> __m256i {
        unsafe {
            let x = _mm_loadu_si128(bytes.as_ptr().cast());
            let x = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(x), _mm_srli_epi16::<4>(x));
            _mm256_and_si256(x, _mm256_set1_epi8(15))
        }
    }
    #[inline(always)]
    fn words(self, [a, b, c, d]: [u64; 4]) -> __m256i {
        unsafe { _mm256_setr_epi64x(a as i64, b as i64, c as i64, d as i64) }
    }
    /// The first word is hidden from the compiler. Otherwise it gathers all eight words under AVX-512, which takes
    /// twice as long as eight loads.
    #[inline(always)]
    fn grid(self, [mut a, b, c, d, e, f, g, h]: [u32; 8]) -> __m256i {
        unsafe {
            asm!("/* {:e} */", inout(reg) a, options(pure, nomem, nostack, preserves_flags));
            let [a, b, c, d, e, f, g, h] = [a, b, c, d, e, f, g, h].map(|word| word as i32);
            _mm256_setr_epi32(a, b, c, d, e, f, g, h)
        }
    }
    #[inline(always)]
    fn splat(self, byte: u8) -> __m256i {
        unsafe { _mm256_set1_epi8(byte as i8) }
    }
    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_and_si256(a, b) }
    }
    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_xor_si256(a, b) }
    }
    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi8(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi8(a, b) }
    }
    /// The shift moves bits between the bytes of a 16-bit word; the mask is reduced to the bits that stay in their
    /// byte.
    #[inline(always)]
    fn shift(self, x: __m256i, left: i32, mask: u8) -> __m256i {
        unsafe {
            let by = _mm_cvtsi32_si128(left.abs());
            let x = if left < 0 { _mm256_srl_epi16(x, by) } else { _mm256_sll_epi16(x, by) };
            let mask = if left < 0 { mask & (0xff >> -left) } else { mask & (0xff << left) };
            _mm256_and_si256(x, _mm256_set1_epi8(mask as i8))
        }
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: __m256i) -> __m256i {
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, x)
        }
    }
    #[inline(always)]
    fn spread(self, bits: u32) -> __m256i {
        unsafe {
            // Copies each byte of the word to eight lanes, then tests one bit per lane.
            let byte = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let x = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), byte);
            _mm256_cmpeq_epi8(_mm256_and_si256(x, bit), bit)
        }
    }
    #[inline(always)]
    fn at_least(self, x: __m256i, least: u8) -> __m256i {
        unsafe { _mm256_cmpeq_epi8(_mm256_max_epu8(x, _mm256_set1_epi8(least as i8)), x) }
    }
}

/// Hides from the compiler that it knows the contents of `x`, so that it reads them back from memory: a load broadcasts
/// for free, but broadcasting a register takes a shuffle.
#[inline(always)]
pub(super) fn hide<T>(x: &T) {
    // SAFETY: contains no instruction.
    unsafe { asm!("/* {} */", in(reg) x, options(nostack, preserves_flags)) };
}

/// Compiler barrier: keeps loads in program order. Interleaving independent steps would need more registers than there
/// are.
#[inline(always)]
pub(super) fn in_order() {
    // SAFETY: contains no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// Returns `x`, and hides from the compiler how it was computed. If the compiler knows that scales were widened and
/// then shuffled, it shuffles first and widens each result, which takes five instructions for one.
///
/// # Safety
///
/// The caller has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn opaque(mut x: __m256i) -> __m256i {
    // SAFETY: contains no instruction.
    unsafe { asm!("/* {} */", inout(ymm_reg) x, options(pure, nomem, nostack, preserves_flags)) };
    x
}
