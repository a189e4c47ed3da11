use super::mxfp4::TABLE;
use crate::quant::format::{Bytes, Format, ONES, bytes_at, u64_at};

/// 64 weights: an unsigned E4M3 scale per 16 weights, then four bits per weight, which are an index into the table of
/// MXFP4. Every 16 weights take eight bytes, whose low halves are the first eight weights.
#[derive(Clone, Copy)]
pub(crate) struct Nvfp4;

impl Format for Nvfp4 {
    type Block = [u8; 36];
    const ELEMENTS: usize = 64;
    const GROUP: usize = 16;
    const BIAS: u8 = 12;
    const MAX: u8 = 24;
    const D: Option<(usize, f32)> = None;
    const FLOAT_GROUPS: bool = true;

    /// Returns half of the block's scale. The table of NVFP4's values has the doubled values, which makes up for this.
    #[inline(always)]
    fn d(block: &[u8; 36], at: usize, _f16: impl Fn([u8; 2]) -> f32) -> f32 {
        let [byte] = *bytes_at(block, at / 16 % 4);
        let (exponent, mantissa) = (u32::from(byte >> 3 & 15), u32::from(byte & 7));
        match (byte, exponent) {
            (0x7f, _) => 0.0, // NaN
            (_, 0) => mantissa as f32 / 1024.0,
            _ => f32::from_bits((exponent + 127 - 8) << 23 | mantissa << 20),
        }
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 36], chunk: usize) -> S::V {
        let (a, b) = (u64_at(block, 4 + 16 * chunk), u64_at(block, 12 + 16 * chunk));
        s.lookup(TABLE, s.words([a, a >> 4, b, b >> 4].map(|word| word & (15 * ONES))))
    }
}
