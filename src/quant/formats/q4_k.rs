use crate::quant::format::{Bytes, Format, Shape, SuperBlock, part, u32_at};

/// 256 numbers: f16 scales of scales and minimums, both of six bits for every 32, four bits each.
#[derive(Clone, Copy)]
pub(crate) struct Q4K;

impl Format for Q4K {
    type Block = [u8; 144];
    const ELEMENTS: usize = 256;
    const MAX: u8 = 15;
    const BYTEWISE: bool = true;
    const SUPER: Option<SuperBlock> = Some(SuperBlock::Q4K);
    const M: Option<(usize, f32)> = Some((2, -1.0));
    const SIX_BITS: bool = true;
    const SHAPE: Shape = Shape::Halves(16);

    #[inline(always)]
    fn scale_words(block: &[u8; 144]) -> [u64; 2] {
        scales(block)
    }
    #[inline(always)]
    fn minimum_words(block: &[u8; 144]) -> [u64; 2] {
        minimums(block)
    }

    /// 32 bytes hold 64 numbers.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 144], chunk: usize) -> S::V {
        s.shift(s.load(part(block, 16 + 32 * (chunk / 2))), -4 * (chunk as i32 % 2), 15)
    }
}

/// Eight scales in the twelve bytes from 4: six bits of four, six bits of four minimums, and four bits of
/// the others, whose high two bits are those left over before.
#[inline(always)]
pub(super) fn scales(block: &[u8]) -> [u64; 2] {
    let (first, rest) = (u32_at(block, 4), u32_at(block, 12));
    eight(first & 0x3f3f_3f3f, rest & 0x0f0f_0f0f | first >> 2 & 0x3030_3030)
}

/// The eight minimums, of the same bytes.
#[inline(always)]
pub(super) fn minimums(block: &[u8]) -> [u64; 2] {
    let (first, rest) = (u32_at(block, 8), u32_at(block, 12));
    eight(first & 0x3f3f_3f3f, rest >> 4 & 0x0f0f_0f0f | first >> 2 & 0x3030_3030)
}

#[inline(always)]
fn eight(a: u32, b: u32) -> [u64; 2] {
    [u64::from(a) | u64::from(b) << 32, 0]
}
