use crate::quant::format::{Bytes, Format, ONES, bytes_at, u64_at};

/// 256 weights: a four-bit scale and a four-bit minimum per 16 weights, then two bits per weight, then an f16 factor of
/// the scales and an f16 factor of the minimums.
#[derive(Clone, Copy)]
pub(crate) struct Q2K;

impl Format for Q2K {
    type Block = [u8; 84];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    const MAX: u8 = 3;
    const BYTEWISE: bool = true;
    const D: Option<(usize, f32)> = Some((80, 1.0));
    const M: Option<(usize, f32)> = Some((82, -1.0));

    #[inline(always)]
    fn scale_words(block: &[u8; 84]) -> [u64; 2] {
        [0, 8].map(|at| u64_at(block, at) & (15 * ONES))
    }
    #[inline(always)]
    fn minimum_words(block: &[u8; 84]) -> [u64; 2] {
        [0, 8].map(|at| (u64_at(block, at) >> 4) & (15 * ONES))
    }

    /// Unpacks a chunk of 32 weights. 32 bytes hold the weights of four chunks, which have two bits of each byte.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 84], chunk: usize) -> S::V {
        s.shift(s.load(bytes_at(block, 16 + 32 * (chunk / 4))), -2 * (chunk as i32 % 4), 3)
    }
}
