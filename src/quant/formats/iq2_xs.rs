use crate::quant::format::{Bytes, Format, ONES, spread_nibbles, u16_at, u32_at};
use crate::quant::grids::{IQ2_XS, signed, signs};

/// 256 weights: an f16 scale; per eight weights, a u16 with a nine-bit index into the grid and seven sign bits; a
/// four-bit scale per 16 weights.
#[derive(Clone, Copy)]
pub(crate) struct Iq2Xs;

impl Format for Iq2Xs {
    type Block = [u8; 74];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    const BIAS: u8 = 43;
    const MAX: u8 = 86;
    const D: Option<(usize, f32)> = Some((0, 0.125));

    #[inline(always)]
    fn scale_words(block: &[u8; 74]) -> [u64; 2] {
        [66, 70].map(|at| spread_nibbles(u32_at(block, at)) << 1 | ONES)
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 74], chunk: usize) -> S::V {
        let indices = [0, 1, 2, 3].map(|i| u16_at(block, 2 + 8 * chunk + 2 * i));
        let [a, b, c, d] = indices.map(|index| u32::from(index >> 9));
        let grid = indices.map(|index| IQ2_XS[usize::from(index % 512)]);
        signed(s, s.words(grid), signs(a | b << 7 | c << 14 | d << 21), Self::BIAS)
    }
}
