//! Transposes the codes of sixteen rows, four rows per register from the start.

use core::arch::x86_64::*;

use crate::quant::{Bytes, Format};

/// [`Bytes`] of four blocks at once: one register has 16 bytes of each block in its quarters, a second register the
/// next 16. A value proves that the processor has AVX-512.
#[derive(Clone, Copy)]
pub(super) struct Quad([*const u8; 4]);

impl Quad {
    /// Writes a chunk of codes of 16 blocks, interleaved: codes 0 to 3 of each block, then codes 4 to 7 of each block
    /// `line` bytes after them, and so on.
    ///
    /// # Safety
    ///
    /// The processor has AVX-512, `blocks` and `to` have the blocks and the room, and the format is
    /// [`Format::BYTEWISE`].
    #[inline(always)]
    pub unsafe fn transpose<F: Format>(blocks: [*const u8; 16], chunk: usize, to: *mut u8, line: usize) {
        // SAFETY: the caller promises AVX-512, the blocks and the room. In a bytewise format `unpack` reads the block
        // by `load` and `nibbles` alone, as the operations below require.
        unsafe {
            // Rows that are four apart, so that interleaving dwords puts adjacent rows side by side.
            macro_rules! rows {
                ($r:literal) => {
                    F::unpack(
                        Self([blocks[$r], blocks[$r + 4], blocks[$r + 8], blocks[$r + 12]]),
                        &*blocks[$r].cast::<F::Block>(),
                        chunk,
                    )
                };
            }
            let [a, b, c, d] = [rows!(0), rows!(1), rows!(2), rows!(3)];
            for half in 0..2 {
                let (ab, cd) = (_mm512_unpacklo_epi32(a[half], b[half]), _mm512_unpacklo_epi32(c[half], d[half]));
                let (ab2, cd2) = (_mm512_unpackhi_epi32(a[half], b[half]), _mm512_unpackhi_epi32(c[half], d[half]));
                let to = to.add(half * 4 * line);
                _mm512_storeu_si512(to.cast(), _mm512_unpacklo_epi64(ab, cd));
                _mm512_storeu_si512(to.add(line).cast(), _mm512_unpackhi_epi64(ab, cd));
                _mm512_storeu_si512(to.add(2 * line).cast(), _mm512_unpacklo_epi64(ab2, cd2));
                _mm512_storeu_si512(to.add(3 * line).cast(), _mm512_unpackhi_epi64(ab2, cd2));
            }
        }
    }

    /// Sixteen bytes of each block. `place` points to those of the first block.
    #[inline(always)]
    unsafe fn sixteen(self, place: *const u8) -> __m512i {
        // SAFETY: the caller promises AVX-512, and that the 16 bytes at `place` are in the first block, so that the
        // offset is inside every block.
        unsafe {
            let at = place.addr().wrapping_sub(self.0[0].addr());
            let row = |r: usize| _mm_loadu_si128(self.0[r].wrapping_add(at).cast());
            let a = _mm512_castsi128_si512(row(0));
            let ab = _mm512_inserti32x4::<1>(a, row(1));
            let abc = _mm512_inserti32x4::<2>(ab, row(2));
            _mm512_inserti32x4::<3>(abc, row(3))
        }
    }
}

/// Applies an operation to both registers.
macro_rules! both {
    ($f:expr, $a:ident $(, $b:ident)?) => {{
        // SAFETY: a value of `Quad` proves AVX-512.
        unsafe { [$f($a[0] $(, $b[0])?), $f($a[1] $(, $b[1])?)] }
    }};
}

// SAFETY of every block below: a value of `Quad` proves AVX-512. `unpack` takes the references that it passes to `load`
// and `nibbles` from the first block, and the other blocks are read at the same offset.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Bytes for Quad {
    type V = [__m512i; 2];
    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> Self::V {
        unsafe {
            let at = bytes.as_ptr().addr().wrapping_sub(self.0[0].addr());
            let row = |r: usize| _mm256_loadu_si256(self.0[r].wrapping_add(at).cast());
            let two = |r: usize| _mm512_inserti64x4::<1>(_mm512_castsi256_si512(row(r)), row(r + 1));
            let (a, b) = (two(0), two(2));
            [_mm512_shuffle_i64x2::<0b10_00_10_00>(a, b), _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b)]
        }
    }
    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> Self::V {
        unsafe {
            let (x, low) = (self.sixteen(bytes.as_ptr()), _mm512_set1_epi8(15));
            [_mm512_and_si512(x, low), _mm512_and_si512(_mm512_srli_epi16::<4>(x), low)]
        }
    }
    /// A word or bits belong to the first block only; bytewise formats have no use for them.
    #[inline(always)]
    fn words(self, _: [u64; 4]) -> Self::V {
        debug_assert!(false, "a bytewise format used `words`");
        self.splat(0)
    }
    #[inline(always)]
    fn spread(self, _: u32) -> Self::V {
        debug_assert!(false, "a bytewise format used `spread`");
        self.splat(0)
    }
    #[inline(always)]
    fn splat(self, byte: u8) -> Self::V {
        [unsafe { _mm512_set1_epi8(byte as i8) }; 2]
    }
    #[inline(always)]
    fn or(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm512_or_si512, a, b)
    }
    #[inline(always)]
    fn and(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm512_and_si512, a, b)
    }
    #[inline(always)]
    fn xor(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm512_xor_si512, a, b)
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm512_add_epi8, a, b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm512_sub_epi8, a, b)
    }
    /// The shift moves bits between the bytes of a 16-bit word; the mask is reduced to the bits that stay in their
    /// byte.
    #[inline(always)]
    fn shift(self, x: Self::V, left: i32, mask: u8) -> Self::V {
        let mask = if left < 0 { mask & (0xff >> -left) } else { mask & (0xff << left) };
        let shift = |x| unsafe {
            let by = _mm_cvtsi32_si128(left.abs());
            let x = if left < 0 { _mm512_srl_epi16(x, by) } else { _mm512_sll_epi16(x, by) };
            _mm512_and_si512(x, _mm512_set1_epi8(mask as i8))
        };
        [shift(x[0]), shift(x[1])]
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: Self::V) -> Self::V {
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm512_shuffle_epi8(table, x[0]), _mm512_shuffle_epi8(table, x[1])]
        }
    }
    #[inline(always)]
    fn at_least(self, x: Self::V, least: u8) -> Self::V {
        let at_least = |x| unsafe { _mm512_movm_epi8(_mm512_cmpge_epu8_mask(x, _mm512_set1_epi8(least as i8))) };
        [at_least(x[0]), at_least(x[1])]
    }
}
