use crate::quant::format::{Bytes, Format, part};

/// 256 numbers: a third bit each, two bits each, scales of six bits for every 16, an f16 scale; 4 too large.
#[derive(Clone, Copy)]
pub(crate) struct Q3K;

impl Format for Q3K {
    type Block = [u8; 110];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    const BIAS: u8 = 4;
    const MAX: u8 = 7;
    const D: Option<(usize, f32)> = Some((108, 1.0));

    /// Eight bytes with four bits of two scales, then four with two bits of four.
    #[inline(always)]
    fn scales(block: &[u8; 110]) -> [i8; 16] {
        let low = u64::from_le_bytes(*part(block, 96));
        let high = u32::from_le_bytes(*part(block, 104));
        let pair = |shift: u32| u64::from(high >> shift & 0x0303_0303) << 4;
        const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
        let words = [low & LOW | pair(0) | pair(2) << 32, low >> 4 & LOW | pair(4) | pair(6) << 32];
        bytemuck::must_cast::<_, [i8; 16]>(words.map(u64::to_le_bytes)).map(|x| x - 32)
    }

    /// 32 bytes hold the low bits of 128 numbers; other 32 the high bits of all.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 110], chunk: usize) -> S::V {
        let low = s.shift(s.load(part(block, 32 + 32 * (chunk / 4))), -2 * (chunk as i32 % 4), 3);
        s.or(low, s.shift(s.load(part(block, 0)), 2 - chunk as i32, 4))
    }
}
