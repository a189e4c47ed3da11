use crate::quant::format::{Bytes, Format, bytes_at, u64_at};

/// 256 weights: the low four bits of each weight, the high two bits of each, a signed scale per 16 weights, and an f16
/// scale.
#[derive(Clone, Copy)]
pub(crate) struct Q6K;

impl Format for Q6K {
    type Block = [u8; 210];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    const BIAS: u8 = 32;
    const MAX: u8 = 63;
    const BYTEWISE: bool = true;
    const D: Option<(usize, f32)> = Some((208, 1.0));

    #[inline(always)]
    fn scale_words(block: &[u8; 210]) -> [u64; 2] {
        [192, 200].map(|at| u64_at(block, at))
    }

    /// Each half of 128 weights has 64 bytes of low bits and 32 bytes of high bits. Chunk `k` of a half takes nibble
    /// `k / 2` of 32 bytes of low bits (the first 32 if `k` is even), and bits `2 * k` and `2 * k + 1` of the bytes of
    /// high bits.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 210], chunk: usize) -> S::V {
        let (half, k) = (chunk / 4, chunk % 4);
        let low = s.shift(s.load(bytes_at(block, 64 * half + 32 * (k % 2))), -4 * (k as i32 / 2), 15);
        s.or(low, s.shift(s.load(bytes_at(block, 128 + 32 * half)), 4 - 2 * k as i32, 0x30))
    }
}
