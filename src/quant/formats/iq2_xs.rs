use crate::quant::format::{Bytes, Format, part, u16_at};
use crate::quant::grids::{IQ2_XS, signed, signs};

/// 256 numbers: an f16 scale; for every eight, a place in a grid (nine bits) and signs (seven bits); scales of
/// four bits for every 16.
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
    fn scales(block: &[u8; 74]) -> [i8; 16] {
        odd_scales(part(block, 66))
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 74], chunk: usize) -> S::V {
        let places = [0, 1, 2, 3].map(|i| u16_at(block, 2 + 8 * chunk + 2 * i));
        let [a, b, c, d] = places.map(|place| u32::from(place >> 9));
        let grid = places.map(|place| IQ2_XS[usize::from(place % 512)]);
        signed(s, s.words(grid), signs(a | b << 7 | c << 14 | d << 21), Self::BIAS)
    }
}

/// Twice the four bits plus 1, the low halves of bytes first.
#[inline(always)]
pub(super) fn odd_scales(bytes: &[u8; 8]) -> [i8; 16] {
    bytemuck::must_cast(bytes.map(|two| [two & 15, two >> 4].map(|bits| 2 * bits as i8 + 1)))
}
