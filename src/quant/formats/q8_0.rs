use crate::quant::format::{Bytes, Format, Shape, bytes_at};

/// 32 weights: an f16 scale, then a signed byte each.
#[derive(Clone, Copy)]
pub(crate) struct Q8_0;

impl Format for Q8_0 {
    type Block = [u8; 34];
    const ELEMENTS: usize = 32;
    const BIAS: u8 = 128;
    const MAX: u8 = 255;
    const BYTEWISE: bool = true;
    const SHAPE: Shape = Shape::Bytes(2);

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 34], _chunk: usize) -> S::V {
        s.xor(s.load(bytes_at(block, 2)), s.splat(128))
    }
}
