use crate::quant::format::{Bytes, Format, part, u32_at};
use crate::quant::grids::{IQ2_XXS, signed, signs};

/// 256 numbers: an f16 scale; for every 32, four places in a grid of eight numbers each, then the signs of these (seven
/// bits for eight) and a scale of four bits.
#[derive(Clone, Copy)]
pub(crate) struct Iq2Xxs;

impl Format for Iq2Xxs {
    type Block = [u8; 66];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 43;
    const MAX: u8 = 86;
    const D: Option<(usize, f32)> = Some((0, 0.125));

    #[inline(always)]
    fn scales(block: &[u8; 66]) -> [i8; 16] {
        core::array::from_fn(|i| 2 * (u32_at(block, 6 + 8 * (i % 8)) >> 28) as i8 + 1)
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 66], chunk: usize) -> S::V {
        let grid = part::<4>(block, 2 + 8 * chunk).map(|i| IQ2_XXS[usize::from(i)]);
        signed(s, s.words(grid), signs(u32_at(block, 6 + 8 * chunk)), Self::BIAS)
    }
}
