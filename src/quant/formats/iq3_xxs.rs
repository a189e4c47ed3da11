use crate::quant::format::{Bytes, Format, bytes_at, u32_at};
use crate::quant::grids::{IQ3_XXS, odd_scales, signed, signs};

/// 256 weights: an f16 scale; one-byte indices into a grid of four weights each; then per 32 weights, a u32 with seven
/// sign bits per eight weights and a four-bit scale.
#[derive(Clone, Copy)]
pub(crate) struct Iq3Xxs;

impl Format for Iq3Xxs {
    type Block = [u8; 98];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 62;
    const MAX: u8 = 124;
    const D: Option<(usize, f32)> = Some((0, 0.25));

    #[inline(always)]
    fn scale_words(block: &[u8; 98]) -> [u64; 2] {
        [odd_scales(|i| u32_at(block, 66 + 4 * i) >> 28), 0]
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 98], chunk: usize) -> S::V {
        let grid = bytes_at::<8>(block, 2 + 8 * chunk).map(|index| IQ3_XXS[usize::from(index)]);
        signed(s, s.grid(grid), signs(u32_at(block, 66 + 4 * chunk)), Self::BIAS)
    }
}
