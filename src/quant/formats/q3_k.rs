use crate::quant::format::{Bytes, Format, ONES, bytes_at, minus, u32_at, u64_at};

/// 256 weights: the high bit of each weight, then the low two bits of each, a six-bit scale per 16 weights, and an f16
/// scale.
#[derive(Clone, Copy)]
pub(crate) struct Q3K;

impl Format for Q3K {
    type Block = [u8; 110];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    const BIAS: u8 = 4;
    const MAX: u8 = 7;
    const BYTEWISE: bool = true;
    const D: Option<(usize, f32)> = Some((108, 1.0));

    /// The sixteen scales of six bits are stored in twelve bytes. The first eight bytes have the low four bits of
    /// scales `i` and `i + 8`, and the last four bytes have the high two bits of scales `i`, `i + 4`, `i + 8` and `i +
    /// 12`.
    #[inline(always)]
    fn scale_words(block: &[u8; 110]) -> [u64; 2] {
        let (low, high) = (u64_at(block, 96), u64::from(u32_at(block, 104)));
        // Each word gets the high bits of eight scales: scales 0 to 7 or scales 8 to 15. The shifts move these bits to
        // the bytes of their scales.
        let (first, second) = (high | high << 30, high >> 4 | high << 26);
        let high = [first, second].map(|bits| (bits & (3 * ONES)) << 4);
        [minus(low & (15 * ONES) | high[0], 32), minus((low >> 4) & (15 * ONES) | high[1], 32)]
    }

    /// Unpacks a chunk of 32 weights. The low bits of 128 weights, two bits each, are in 32 bytes from offset 32 or 64
    /// on; the high bits of all 256 weights are in the first 32 bytes.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 110], chunk: usize) -> S::V {
        let low = s.shift(s.load(bytes_at(block, 32 + 32 * (chunk / 4))), -2 * (chunk as i32 % 4), 3);
        s.or(low, s.shift(s.load(bytes_at(block, 0)), 2 - chunk as i32, 4))
    }
}
