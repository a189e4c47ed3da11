use crate::quant::format::{Bytes, Format, bytes_at, u32_at};

/// 32 weights: an f16 scale, the fifth bit of each weight, then the low four bits of each.
#[derive(Clone, Copy)]
pub(crate) struct Q5_0;

impl Format for Q5_0 {
    type Block = [u8; 22];
    const ELEMENTS: usize = 32;
    const BIAS: u8 = 16;
    const MAX: u8 = 31;

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 22], _chunk: usize) -> S::V {
        s.or(s.nibbles(bytes_at(block, 6)), s.flags(u32_at(block, 2), 16))
    }
}
