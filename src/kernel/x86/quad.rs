//! Transposes the codes of sixteen rows. Four rows are unpacked at once. Each row has a quarter of a register, so two
//! interleaving steps are enough.

use core::arch::x86_64::*;

use bytemuck::must_cast;

use crate::quant::{Bytes, Format, bytes_at};

/// An implementation of [`Bytes`] for four blocks at once: the quarters of one register have 16 bytes of each block,
/// and the quarters of a second register have the next 16 bytes of each. A value proves that the processor has AVX-512.
///
/// `load` and `nibbles` take their bytes from the first block, as [`Format::BYTEWISE`] says, and read the other blocks
/// at the same offset. Bytes outside the blocks are zeros.
#[derive(Clone, Copy)]
pub(super) struct Quad<'a>([&'a [u8]; 4]);

/// Unpacks the same chunk of 16 blocks and interleaves the codes, for a [bytewise](Format::BYTEWISE) format. The first
/// register has codes 0 to 3 of each block, the second has codes 4 to 7, and so on.
///
/// # Safety
///
/// The processor has AVX-512 (F, DQ, BW, VL).
#[inline(always)]
pub(super) unsafe fn transposed<F: Format>(blocks: [&F::Block; 16], chunk: usize) -> [__m512i; 8] {
    // Unpacks rows that are four apart, because interleaving the dwords of such rows then puts adjacent rows side by
    // side.
    macro_rules! rows {
        ($r:literal) => {{
            let [a, b, c, d] = [blocks[$r], blocks[$r + 4], blocks[$r + 8], blocks[$r + 12]];
            F::unpack(Quad([a.as_ref(), b.as_ref(), c.as_ref(), d.as_ref()]), a, chunk)
        }};
    }
    let [a, b, c, d] = [rows!(0), rows!(1), rows!(2), rows!(3)];
    let mut all = [a[0]; 8];
    for half in 0..2 {
        // SAFETY: the caller promises AVX-512.
        unsafe {
            let (ab, cd) = (_mm512_unpacklo_epi32(a[half], b[half]), _mm512_unpacklo_epi32(c[half], d[half]));
            let (ab2, cd2) = (_mm512_unpackhi_epi32(a[half], b[half]), _mm512_unpackhi_epi32(c[half], d[half]));
            all[half * 4] = _mm512_unpacklo_epi64(ab, cd);
            all[half * 4 + 1] = _mm512_unpackhi_epi64(ab, cd);
            all[half * 4 + 2] = _mm512_unpacklo_epi64(ab2, cd2);
            all[half * 4 + 3] = _mm512_unpackhi_epi64(ab2, cd2);
        }
    }
    all
}

impl Quad<'_> {
    /// Returns `N` bytes of block `r`. They are at the same offset as the bytes `place` in the first block.
    #[inline(always)]
    fn row<const N: usize>(&self, place: &[u8; N], r: usize) -> [u8; N] {
        let at = place.as_ptr().addr().wrapping_sub(self.0[0].as_ptr().addr());
        *bytes_at(self.0[r], at)
    }
}

impl Bytes for Quad<'_> {
    type V = [__m512i; 2];
    /// Never called, because a bytewise format uses neither `words` nor `spread`. Their arguments could only be those
    /// of the first block.
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
    methods! {
        Quad<'_>, "avx512dq,avx512bw,avx512vl";
        fn load(s, bytes: &[u8; 32]) -> [__m512i; 2] {
            let two = |r: usize| {
                let first = _mm512_castsi256_si512(must_cast(s.row(bytes, r)));
                _mm512_inserti64x4::<1>(first, must_cast(s.row(bytes, r + 1)))
            };
            let (a, b) = (two(0), two(2));
            [_mm512_shuffle_i64x2::<0b10_00_10_00>(a, b), _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b)]
        }
        fn nibbles(s, bytes: &[u8; 16]) -> [__m512i; 2] {
            let ab = _mm512_castsi128_si512(must_cast(s.row(bytes, 0)));
            let ab = _mm512_inserti32x4::<1>(ab, must_cast(s.row(bytes, 1)));
            let abc = _mm512_inserti32x4::<2>(ab, must_cast(s.row(bytes, 2)));
            let (x, low) = (_mm512_inserti32x4::<3>(abc, must_cast(s.row(bytes, 3))), _mm512_set1_epi8(15));
            [_mm512_and_si512(x, low), _mm512_and_si512(_mm512_srli_epi16::<4>(x), low)]
        }
        fn splat(_s, byte: u8) -> [__m512i; 2] {
            [_mm512_set1_epi8(byte as i8); 2]
        }
        fn or(_s, a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_or_si512(a[0], b[0]), _mm512_or_si512(a[1], b[1])]
        }
        fn and(_s, a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_and_si512(a[0], b[0]), _mm512_and_si512(a[1], b[1])]
        }
        fn xor(_s, a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_xor_si512(a[0], b[0]), _mm512_xor_si512(a[1], b[1])]
        }
        fn add(_s, a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_add_epi8(a[0], b[0]), _mm512_add_epi8(a[1], b[1])]
        }
        fn sub(_s, a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_sub_epi8(a[0], b[0]), _mm512_sub_epi8(a[1], b[1])]
        }
        /// There is only a shift of 16-bit words, which also moves bits from one byte of a word to the other. The mask
        /// removes these bits.
        fn shift(_s, x: [__m512i; 2], left: i32, mask: u8) -> [__m512i; 2] {
            let mask = if left < 0 { mask & (0xff >> -left) } else { mask & (0xff << left) };
            let (by, mask) = (_mm_cvtsi32_si128(left.abs()), _mm512_set1_epi8(mask as i8));
            let shift = |x| if left < 0 { _mm512_srl_epi16(x, by) } else { _mm512_sll_epi16(x, by) };
            [_mm512_and_si512(shift(x[0]), mask), _mm512_and_si512(shift(x[1]), mask)]
        }
        fn lookup(_s, table: &[u8; 16], x: [__m512i; 2]) -> [__m512i; 2] {
            let table = _mm512_broadcast_i32x4(must_cast(*table));
            [_mm512_shuffle_epi8(table, x[0]), _mm512_shuffle_epi8(table, x[1])]
        }
        fn at_least(_s, x: [__m512i; 2], least: u8) -> [__m512i; 2] {
            let least = _mm512_set1_epi8(least as i8);
            let at_least = |x| _mm512_movm_epi8(_mm512_cmpge_epu8_mask(x, least));
            [at_least(x[0]), at_least(x[1])]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{Named, TensorType};

    /// A wrong format for a test: it claims to be bytewise, but loads bytes from outside its block.
    #[derive(Clone, Copy)]
    struct Outside;

    static ELSEWHERE: [u8; 32] = [7; 32];

    impl Named for Outside {
        const KIND: TensorType = TensorType::Q8_0;
    }

    impl Format for Outside {
        type Block = [u8; 34];
        const ELEMENTS: usize = 32;
        const MAX: u8 = 255;
        const BYTEWISE: bool = true;
        fn unpack<S: Bytes>(s: S, _: &[u8; 34], _: usize) -> S::V {
            s.load(&ELSEWHERE)
        }
    }

    #[test]
    fn bytes_outside_the_blocks_are_zeros() {
        if !crate::kernel::x86::has_avx512::get() {
            return;
        }
        // SAFETY: the processor has AVX-512.
        let lines = unsafe { transposed::<Outside>([&[1; 34]; 16], 0) };
        assert_eq!(must_cast::<_, [[u8; 64]; 8]>(lines), [[0; 64]; 8]);
    }
}
