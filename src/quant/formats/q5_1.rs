use crate::quant::format::{Bytes, Format, bytes_at, u32_at};

/// 32 weights: an f16 scale, an f16 minimum, the fifth bit of each weight, then the low four bits of each.
#[derive(Clone, Copy)]
pub(crate) struct Q5_1;

impl Format for Q5_1 {
    type Block = [u8; 24];
    const ELEMENTS: usize = 32;
    const MAX: u8 = 31;
    const M: Option<(usize, f32)> = Some((2, 1.0));

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 24], _chunk: usize) -> S::V {
        s.or(s.nibbles(bytes_at(block, 8)), s.flags(u32_at(block, 4), 16))
    }
}
