use crate::quant::format::{Bytes, EACH, Format, fours, part, u32_at};
use crate::quant::grids::{IQ2_S, signed};

/// 256 numbers: an f16 scale; for every eight, eight bits of a place in a grid, then signs; two more bits of each place;
/// scales of four bits for every 16.
#[derive(Clone, Copy)]
pub(crate) struct Iq2S;

impl Format for Iq2S {
    type Block = [u8; 82];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    const BIAS: u8 = 43;
    const MAX: u8 = 86;
    const D: Option<(usize, f32)> = Some((0, 0.125));

    #[inline(always)]
    fn scale_words(block: &[u8; 82]) -> [u64; 2] {
        [74, 78].map(|at| fours(u32_at(block, at)) << 1 | EACH)
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 82], chunk: usize) -> S::V {
        let (low, [high]) = (part::<4>(block, 2 + 4 * chunk), *part(block, 66 + chunk));
        let [a, b, c, d] = *low;
        let places =
            [(a, 0), (b, 2), (c, 4), (d, 6)].map(|(low, from)| usize::from(low) | usize::from(high >> from & 3) << 8);
        signed(s, s.words(places.map(|place| IQ2_S[place % IQ2_S.len()])), u32_at(block, 34 + 4 * chunk), Self::BIAS)
    }
}
