use crate::quant::format::{Bytes, EACH, Format, SuperBlock, minus, part, u32_at, u64_at};

/// 256 numbers: a third bit each, two bits each, scales of six bits for every 16, an f16 scale; 4 too large.
#[derive(Clone, Copy)]
pub(crate) struct Q3K;

impl Format for Q3K {
    type Block = [u8; 110];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    const BIAS: u8 = 4;
    const MAX: u8 = 7;
    const BYTEWISE: bool = true;
    const SUPER: Option<SuperBlock> = Some(SuperBlock::Q3K);
    const D: Option<(usize, f32)> = Some((108, 1.0));

    /// Eight bytes with four bits of two scales, then four with two bits of four.
    #[inline(always)]
    fn scale_words(block: &[u8; 110]) -> [u64; 2] {
        let (low, high) = (u64_at(block, 96), u64::from(u32_at(block, 104)));
        // The first two bits of four scales, then the next two of four others.
        let (first, second) = (high | high << 30, high >> 4 | high << 26);
        let high = [first, second].map(|bits| (bits & (3 * EACH)) << 4);
        [minus(low & (15 * EACH) | high[0], 32), minus((low >> 4) & (15 * EACH) | high[1], 32)]
    }

    /// 32 bytes hold the low bits of 128 numbers; other 32 the high bits of all.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 110], chunk: usize) -> S::V {
        let low = s.shift(s.load(part(block, 32 + 32 * (chunk / 4))), -2 * (chunk as i32 % 4), 3);
        s.or(low, s.shift(s.load(part(block, 0)), 2 - chunk as i32, 4))
    }
}
