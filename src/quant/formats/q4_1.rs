use crate::quant::format::{Bytes, Format, Shape, bytes_at};

/// 32 weights: an f16 scale, an f16 minimum, then four bits per weight.
#[derive(Clone, Copy)]
pub(crate) struct Q4_1;

impl Format for Q4_1 {
    type Block = [u8; 20];
    const ELEMENTS: usize = 32;
    const MAX: u8 = 15;
    const BYTEWISE: bool = true;
    const M: Option<(usize, f32)> = Some((2, 1.0));
    const SHAPE: Shape = Shape::Nibbles(4, None);

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 20], _chunk: usize) -> S::V {
        s.nibbles(bytes_at(block, 4))
    }
}
