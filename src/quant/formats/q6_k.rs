use crate::quant::format::{Bytes, Format, part, u64_at, SuperBlock};

/// 256 numbers: four low bits each, two high bits each, a signed scale for every 16, an f16 scale; 32 too large.
#[derive(Clone, Copy)]
pub(crate) struct Q6K;

impl Format for Q6K {
    type Block = [u8; 210];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    const BIAS: u8 = 32;
    const MAX: u8 = 63;
    const BYTEWISE: bool = true;
    const SUPER: Option<SuperBlock> = Some(SuperBlock::Q6K);
    const D: Option<(usize, f32)> = Some((208, 1.0));

    #[inline(always)]
    fn scale_words(block: &[u8; 210]) -> [u64; 2] {
        [192, 200].map(|at| u64_at(block, at))
    }

    /// Each half of 128 has 64 low bytes and 32 high bytes; quarter `k` of the half takes a nibble (`k / 2`) and two
    /// bits (`2 * k`).
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 210], chunk: usize) -> S::V {
        let (half, k) = (chunk / 4, chunk % 4);
        let low = s.shift(s.load(part(block, 64 * half + 32 * (k % 2))), -4 * (k as i32 / 2), 15);
        s.or(low, s.shift(s.load(part(block, 128 + 32 * half)), 4 - 2 * k as i32, 0x30))
    }
}
