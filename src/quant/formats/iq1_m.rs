use crate::quant::format::{Bytes, Format, ONES, u16_at, u32_at};
use crate::quant::grids::IQ1_S;

/// 256 weights of -1, 0 or 1, plus or minus an eighth: per eight weights, the low eight bits of an index into the grid
/// of IQ1_S; per eight weights, a nibble with three high bits of the index and the sign of the eighth; then four u16,
/// each with three-bit scales for four groups of 16 and four bits of the f16 scale.
#[derive(Clone, Copy)]
pub(crate) struct Iq1M;

impl Format for Iq1M {
    type Block = [u8; 56];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    /// A code is the weight in eighths, plus 9.
    const BIAS: u8 = 9;
    const MAX: u8 = 18;
    const D: Option<(usize, f32)> = None;

    #[inline(always)]
    fn d(block: &[u8; 56], _at: usize, f16: impl Fn([u8; 2]) -> f32) -> f32 {
        let bits = [0, 1, 2, 3].map(|i| u16_at(block, 48 + 2 * i) >> 12 << (4 * i));
        f16(bits.iter().fold(0, |all, bits| all | bits).to_le_bytes()) * 0.125
    }

    #[inline(always)]
    fn scale_words(block: &[u8; 56]) -> [u64; 2] {
        // Spreads four fields of three bits into four bytes.
        let four = |at: usize| {
            let x = u64::from(u16_at(block, at) & 0xfff);
            let x = (x | x << 10) & 0x003f_003f;
            (x | x << 5) & 0x0707_0707
        };
        [48, 52].map(|at| (four(at) | four(at + 2) << 32) << 1 | ONES)
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 56], chunk: usize) -> S::V {
        let (low, high) = (u32_at(block, 4 * chunk), u16_at(block, 32 + 2 * chunk));
        s.words([0, 1, 2, 3].map(|i| {
            let high = high >> (4 * i);
            let grid = IQ1_S[(low >> (8 * i)) as usize & 0xff | usize::from(high & 7) << 8];
            grid + if high & 8 == 0 { 0x0202_0202_0202_0202 } else { 0 }
        }))
    }
}
