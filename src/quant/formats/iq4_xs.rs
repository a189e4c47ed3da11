use super::iq4_nl::TABLE;
use crate::quant::format::{Bytes, Format, bytes_at, minus, spread_nibbles, spread_pairs, u16_at, u32_at};

/// 256 weights: an f16 scale; a six-bit scale per 32 weights (first the high two bits of all scales, then the low four
/// bits of all scales); then four bits per weight, which are an index into the table of IQ4_NL.
#[derive(Clone, Copy)]
pub(crate) struct Iq4Xs;

impl Format for Iq4Xs {
    type Block = [u8; 136];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 127;
    const MAX: u8 = 240;
    const BYTEWISE: bool = true;

    #[inline(always)]
    fn scale_words(block: &[u8; 136]) -> [u64; 2] {
        [minus(spread_nibbles(u32_at(block, 4)) | spread_pairs(u16_at(block, 2)) << 4, 32), 0]
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 136], chunk: usize) -> S::V {
        s.lookup(TABLE, s.nibbles(bytes_at(block, 8 + 16 * chunk)))
    }
}
