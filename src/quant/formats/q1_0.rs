use crate::quant::format::{Bytes, Format, u32_at};

/// 128 weights: an f16 scale, then one bit per weight, which is clear for -1 and set for 1.
#[derive(Clone, Copy)]
pub(crate) struct Q1_0;

impl Format for Q1_0 {
    type Block = [u8; 18];
    const ELEMENTS: usize = 128;
    const BIAS: u8 = 1;
    const MAX: u8 = 2;

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 18], chunk: usize) -> S::V {
        s.flags(u32_at(block, 2 + 4 * chunk), 2)
    }
}
