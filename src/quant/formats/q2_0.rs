use crate::quant::format::{Bytes, Format, u16_at};

/// 64 numbers: an f16 scale, two bits each, four neighbours in a byte; 1 too large.
#[derive(Clone, Copy)]
pub(crate) struct Q2_0;

impl Format for Q2_0 {
    type Block = [u8; 18];
    const ELEMENTS: usize = 64;
    const BIAS: u8 = 1;
    const MAX: u8 = 3;

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 18], chunk: usize) -> S::V {
        s.words([0, 1, 2, 3].map(|i| {
            // Pairs of bits to bytes.
            let x = u64::from(u16_at(block, 2 + 8 * chunk + 2 * i));
            let x = (x | x << 24) & 0x0000_00ff_0000_00ff;
            let x = (x | x << 12) & 0x000f_000f_000f_000f;
            (x | x << 6) & 0x0303_0303_0303_0303
        }))
    }
}
