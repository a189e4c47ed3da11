use crate::quant::format::{Bytes, Format, part, u16_at};
use crate::quant::grids::IQ1_S;

/// 256 numbers: for every eight, eight bits of a place in the grid of IQ1_S; then three more, and whether an eighth is
/// added or taken off; scales of three bits for every 16, four in two bytes, with four bits of an f16 scale.
#[derive(Clone, Copy)]
pub(crate) struct Iq1M;

impl Format for Iq1M {
    type Block = [u8; 56];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    /// In eighths, 9 too large.
    const BIAS: u8 = 9;
    const MAX: u8 = 18;
    const D: Option<(usize, f32)> = None;

    #[inline(always)]
    fn d(block: &[u8; 56], _at: usize, f16: impl Fn([u8; 2]) -> f32) -> f32 {
        let bits = [0, 1, 2, 3].map(|i| u16_at(block, 48 + 2 * i) >> 12 << (4 * i));
        f16(bits.iter().fold(0, |all, bits| all | bits).to_le_bytes()) * 0.125
    }

    #[inline(always)]
    fn scales(block: &[u8; 56]) -> [i8; 16] {
        bytemuck::must_cast([48, 50, 52, 54].map(|at| {
            let four = u16_at(block, at);
            [0, 3, 6, 9].map(|from| 2 * (four >> from & 7) as i8 + 1)
        }))
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 56], chunk: usize) -> S::V {
        let (low, high) = (part::<4>(block, 4 * chunk), u16_at(block, 32 + 2 * chunk));
        let [a, b, c, d] = *low;
        s.words([(a, 0), (b, 4), (c, 8), (d, 12)].map(|(low, from)| {
            let high = high >> from;
            let grid = IQ1_S[usize::from(low) | usize::from(high & 7) << 8];
            grid + if high & 8 == 0 { 0x0202_0202_0202_0202 } else { 0 }
        }))
    }
}
