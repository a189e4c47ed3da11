use super::iq4_nl::TABLE;
use crate::quant::format::{Bytes, Format, part, u16_at};

/// 256 numbers: an f16 scale, scales of six bits for every 32 (two bits of each, then four of each), four bits
/// each, which stand for the values of IQ4_NL.
#[derive(Clone, Copy)]
pub(crate) struct Iq4Xs;

impl Format for Iq4Xs {
    type Block = [u8; 136];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 127;
    const MAX: u8 = 240;

    #[inline(always)]
    fn scales(block: &[u8; 136]) -> [i8; 16] {
        let (high, low) = (u16_at(block, 2), u32::from_le_bytes(*part(block, 4)));
        core::array::from_fn(|i| {
            let i = i % 8;
            (low >> (4 * i) & 15) as i8 + (((high >> (2 * i) & 3) as i8) << 4) - 32
        })
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 136], chunk: usize) -> S::V {
        s.lookup(TABLE, s.nibbles(part(block, 8 + 16 * chunk)))
    }
}
