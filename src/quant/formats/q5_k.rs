use super::q4_k::{minimums, scales};
use crate::quant::format::{Bytes, Format, bytes_at};

/// 256 weights, stored as in Q4_K, with 32 bytes of fifth bits before the low four bits.
#[derive(Clone, Copy)]
pub(crate) struct Q5K;

impl Format for Q5K {
    type Block = [u8; 176];
    const ELEMENTS: usize = 256;
    const MAX: u8 = 31;
    const BYTEWISE: bool = true;
    const M: Option<(usize, f32)> = Some((2, -1.0));

    #[inline(always)]
    fn scale_words(block: &[u8; 176]) -> [u64; 2] {
        scales(block)
    }
    #[inline(always)]
    fn minimum_words(block: &[u8; 176]) -> [u64; 2] {
        minimums(block)
    }

    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 176], chunk: usize) -> S::V {
        let low = s.shift(s.load(bytes_at(block, 48 + 32 * (chunk / 2))), -4 * (chunk as i32 % 2), 15);
        s.or(low, s.shift(s.load(bytes_at(block, 16)), 4 - chunk as i32, 16))
    }
}
