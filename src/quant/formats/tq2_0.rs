use crate::quant::format::{Bytes, Format, bytes_at};

/// 256 weights of -1, 0 or 1: two bits per weight, then an f16 scale.
#[derive(Clone, Copy)]
pub(crate) struct Tq2_0;

impl Format for Tq2_0 {
    type Block = [u8; 66];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 1;
    const MAX: u8 = 3;
    const BYTEWISE: bool = true;
    const D: Option<(usize, f32)> = Some((64, 1.0));

    /// Unpacks a chunk of 32 weights. 32 bytes hold the weights of four chunks, which have two bits of each byte.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 66], chunk: usize) -> S::V {
        s.shift(s.load(bytes_at(block, 32 * (chunk / 4))), -2 * (chunk as i32 % 4), 3)
    }
}
