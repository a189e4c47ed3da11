use crate::quant::format::{Bytes, Format, Shape, bytes_at, u32_at};

/// 256 weights: an f16 factor of the scales and an f16 factor of the minimums; a six-bit scale and a six-bit minimum
/// per 32 weights; then four bits per weight.
#[derive(Clone, Copy)]
pub(crate) struct Q4K;

impl Format for Q4K {
    type Block = [u8; 144];
    const ELEMENTS: usize = 256;
    const MAX: u8 = 15;
    const BYTEWISE: bool = true;
    const M: Option<(usize, f32)> = Some((2, -1.0));
    const SHAPE: Shape = Shape::Halves(16);

    #[inline(always)]
    fn scale_words(block: &[u8; 144]) -> [u64; 2] {
        scales(block)
    }
    #[inline(always)]
    fn minimum_words(block: &[u8; 144]) -> [u64; 2] {
        minimums(block)
    }

    /// 32 bytes hold two chunks, one in each half of a byte.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 144], chunk: usize) -> S::V {
        s.shift(s.load(bytes_at(block, 16 + 32 * (chunk / 2))), -4 * (chunk as i32 % 2), 15)
    }
}

/// The eight scales, which are in bytes 4 to 15. Bytes 4 to 7 hold scales 0 to 3 in their low six bits, and bytes 8 to
/// 11 hold minimums 0 to 3. Bytes 12 to 15 hold the low four bits of scales 4 to 7 (low half) and of minimums 4 to 7
/// (high half). The high two bits of these scales and minimums are the high bits of bytes 4 to 11.
#[inline(always)]
pub(super) fn scales(block: &[u8]) -> [u64; 2] {
    let (first, rest) = (u32_at(block, 4), u32_at(block, 12));
    eight(first & 0x3f3f_3f3f, rest & 0x0f0f_0f0f | first >> 2 & 0x3030_3030)
}

/// The eight minimums, from the same bytes as [`scales`].
#[inline(always)]
pub(super) fn minimums(block: &[u8]) -> [u64; 2] {
    let (first, rest) = (u32_at(block, 8), u32_at(block, 12));
    eight(first & 0x3f3f_3f3f, rest >> 4 & 0x0f0f_0f0f | first >> 2 & 0x3030_3030)
}

#[inline(always)]
fn eight(a: u32, b: u32) -> [u64; 2] {
    [u64::from(a) | u64::from(b) << 32, 0]
}
