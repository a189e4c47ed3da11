use crate::quant::format::{Bytes, Format, Shape, bytes_at};

/// 32 weights: an f16 scale, then four bits each.
#[derive(Clone, Copy)]
pub(crate) struct Q4_0;

impl Format for Q4_0 {
    type Block = [u8; 18];
    const ELEMENTS: usize = 32;
    const BIAS: u8 = 8;
    const MAX: u8 = 15;
    const BYTEWISE: bool = true;
    const SHAPE: Shape = Shape::Nibbles(2, None);

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 18], _chunk: usize) -> S::V {
        s.nibbles(bytes_at(block, 2))
    }
}
