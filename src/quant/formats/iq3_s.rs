use crate::quant::format::{Bytes, Format, ONES, bytes_at, spread_nibbles, u32_at};
use crate::quant::grids::{IQ3_S, signed};

/// 256 weights: an f16 scale; per four weights, the low eight bits of an index into the grid; a ninth bit per index; a
/// sign bit per weight; a four-bit scale per 32 weights.
#[derive(Clone, Copy)]
pub(crate) struct Iq3S;

impl Format for Iq3S {
    type Block = [u8; 110];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 15;
    const MAX: u8 = 30;

    #[inline(always)]
    fn scale_words(block: &[u8; 110]) -> [u64; 2] {
        [spread_nibbles(u32_at(block, 106)) << 1 | ONES, 0]
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 110], chunk: usize) -> S::V {
        let (low, [high]) = (bytes_at::<8>(block, 2 + 8 * chunk), *bytes_at(block, 66 + chunk));
        let grid = core::array::from_fn(|i| IQ3_S[usize::from(low[i]) | usize::from(high >> i & 1) << 8]);
        signed(s, s.grid(grid), u32_at(block, 74 + 4 * chunk), Self::BIAS)
    }
}
