use crate::quant::format::{Bytes, Format, Shape, bytes_at};

/// For each code, the value of FP4 (E2M1), doubled, plus 12 (OCP Microscaling Formats 1.0, 5.3.3).
pub(crate) const TABLE: &[u8; 16] = &[12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// 32 weights: a scale that is a power of two (E8M0), then four bits per weight, which are an index into [`TABLE`].
#[derive(Clone, Copy)]
pub(crate) struct Mxfp4;

impl Format for Mxfp4 {
    type Block = [u8; 17];
    const ELEMENTS: usize = 32;
    const BIAS: u8 = 12;
    const MAX: u8 = 24;
    const BYTEWISE: bool = true;
    const D: Option<(usize, f32)> = None;
    const SHAPE: Shape = Shape::Nibbles(1, Some(TABLE));

    /// Returns the block's scale, a power of two. It is halved, because the values in the table are doubled.
    #[inline(always)]
    fn d(block: &[u8; 17], _at: usize, _f16: impl Fn([u8; 2]) -> f32) -> f32 {
        let [exponent, ..] = *block;
        let exponent = u32::from(exponent);
        // Exponents below 2 give subnormal floats.
        f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 })
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 17], _chunk: usize) -> S::V {
        s.lookup(TABLE, s.nibbles(bytes_at(block, 1)))
    }
}
