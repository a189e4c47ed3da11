use crate::quant::format::{Bytes, Format, bytes_at, u32_at};
use crate::quant::grids::{IQ2_XXS, odd_scales, signed, signs};

/// 256 weights: an f16 scale; per 32 weights, four one-byte indices into a grid of eight weights each, then a u32 with
/// seven sign bits per eight weights and a four-bit scale.
#[derive(Clone, Copy)]
pub(crate) struct Iq2Xxs;

impl Format for Iq2Xxs {
    type Block = [u8; 66];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 43;
    const MAX: u8 = 86;
    const D: Option<(usize, f32)> = Some((0, 0.125));

    #[inline(always)]
    fn scale_words(block: &[u8; 66]) -> [u64; 2] {
        [odd_scales(|i| u32_at(block, 6 + 8 * i) >> 28), 0]
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 66], chunk: usize) -> S::V {
        let grid = bytes_at::<4>(block, 2 + 8 * chunk).map(|i| IQ2_XXS[usize::from(i)]);
        signed(s, s.words(grid), signs(u32_at(block, 6 + 8 * chunk)), Self::BIAS)
    }
}
