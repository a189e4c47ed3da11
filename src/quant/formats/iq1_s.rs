use crate::quant::format::{Bytes, Format, part, u16_at};
use crate::quant::grids::{IQ1_S, odd_scales};

/// 256 numbers: an f16 scale; for every eight, eight bits of a place in a grid of -1, 0 and 1; for every 32, three more
/// bits of the four places, a scale of three bits, and whether an eighth is added to the numbers or taken off.
#[derive(Clone, Copy)]
pub(crate) struct Iq1S;

impl Format for Iq1S {
    type Block = [u8; 50];
    const ELEMENTS: usize = 256;
    /// In eighths, 9 too large.
    const BIAS: u8 = 9;
    const MAX: u8 = 18;
    const D: Option<(usize, f32)> = Some((0, 0.125));

    #[inline(always)]
    fn scale_words(block: &[u8; 50]) -> [u64; 2] {
        [odd_scales(|i| u32::from(u16_at(block, 34 + 2 * i) >> 12 & 7)), 0]
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 50], chunk: usize) -> S::V {
        let (low, high) = (part::<4>(block, 2 + 4 * chunk), u16_at(block, 34 + 2 * chunk));
        let [a, b, c, d] = *low;
        let places =
            [(a, 0), (b, 3), (c, 6), (d, 9)].map(|(low, from)| usize::from(low) | usize::from(high >> from & 7) << 8);
        let grid = s.words(places.map(|place| IQ1_S[place % IQ1_S.len()]));
        s.add(grid, s.splat(if high >> 15 == 0 { 2 } else { 0 }))
    }
}
