use crate::quant::format::{Bytes, Format, spread_pairs, u16_at};

/// 64 weights: an f16 scale, then two bits per weight. Each byte has four consecutive weights.
#[derive(Clone, Copy)]
pub(crate) struct Q2_0;

impl Format for Q2_0 {
    type Block = [u8; 18];
    const ELEMENTS: usize = 64;
    const BIAS: u8 = 1;
    const MAX: u8 = 3;

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 18], chunk: usize) -> S::V {
        s.words([0, 1, 2, 3].map(|i| spread_pairs(u16_at(block, 2 + 8 * chunk + 2 * i))))
    }
}
