use crate::quant::format::{Bytes, Format, Shape, bytes_at};

/// The codes of the 16 four-bit indices: the values of `kvalues_iq4nl` (ggml-common.h), plus 127.
pub(crate) const TABLE: &[u8; 16] = &[0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240];

/// 32 weights: an f16 scale, then four bits per weight, which are an index into [`TABLE`].
#[derive(Clone, Copy)]
pub(crate) struct Iq4Nl;

impl Format for Iq4Nl {
    type Block = [u8; 18];
    const ELEMENTS: usize = 32;
    const BIAS: u8 = 127;
    const MAX: u8 = 240;
    const BYTEWISE: bool = true;
    const SHAPE: Shape = Shape::Nibbles(2, Some(TABLE));

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 18], _chunk: usize) -> S::V {
        s.lookup(TABLE, s.nibbles(bytes_at(block, 2)))
    }
}
