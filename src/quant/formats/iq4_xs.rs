use super::iq4_nl::TABLE;
use crate::quant::format::{Bytes, Format, SuperBlock, fours, minus, part, twos, u16_at, u32_at};

/// 256 numbers: an f16 scale, scales of six bits for every 32 (two bits of each, then four of each), four bits
/// each, which stand for the values of IQ4_NL.
#[derive(Clone, Copy)]
pub(crate) struct Iq4Xs;

impl Format for Iq4Xs {
    type Block = [u8; 136];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 127;
    const MAX: u8 = 240;
    const BYTEWISE: bool = true;
    const SUPER: Option<SuperBlock> = Some(SuperBlock::Iq4Xs);

    #[inline(always)]
    fn scale_words(block: &[u8; 136]) -> [u64; 2] {
        [minus(fours(u32_at(block, 4)) | twos(u16_at(block, 2)) << 4, 32), 0]
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 136], chunk: usize) -> S::V {
        s.lookup(TABLE, s.nibbles(part(block, 8 + 16 * chunk)))
    }
}
