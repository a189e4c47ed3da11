use crate::quant::format::{Bytes, Format, bytes_at, u16_at};
use crate::quant::grids::{IQ1_S, odd_scales};

/// 256 weights of -1, 0 or 1, plus or minus an eighth: an f16 scale; per eight weights, the low eight bits of an index
/// into the grid; per 32 weights, a u16 with three high bits of each of the four indices, a three-bit scale, and the
/// sign of the eighth.
#[derive(Clone, Copy)]
pub(crate) struct Iq1S;

impl Format for Iq1S {
    type Block = [u8; 50];
    const ELEMENTS: usize = 256;
    /// A code is the weight in eighths, plus 9.
    const BIAS: u8 = 9;
    const MAX: u8 = 18;
    const D: Option<(usize, f32)> = Some((0, 0.125));

    #[inline(always)]
    fn scale_words(block: &[u8; 50]) -> [u64; 2] {
        [odd_scales(|i| u32::from(u16_at(block, 34 + 2 * i) >> 12 & 7)), 0]
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 50], chunk: usize) -> S::V {
        let (low, high) = (bytes_at::<4>(block, 2 + 4 * chunk), u16_at(block, 34 + 2 * chunk));
        let [a, b, c, d] = *low;
        let indices =
            [(a, 0), (b, 3), (c, 6), (d, 9)].map(|(low, from)| usize::from(low) | usize::from(high >> from & 7) << 8);
        let grid = s.words(indices.map(|index| IQ1_S[index % IQ1_S.len()]));
        s.add(grid, s.splat(if high >> 15 == 0 { 2 } else { 0 }))
    }
}
