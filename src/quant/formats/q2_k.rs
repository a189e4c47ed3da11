use crate::quant::format::{Bytes, Format, part};

/// 256 numbers: a scale and a minimum of four bits for every 16, two bits each, f16 scales of both.
#[derive(Clone, Copy)]
pub(crate) struct Q2K;

impl Format for Q2K {
    type Block = [u8; 84];
    const ELEMENTS: usize = 256;
    const GROUP: usize = 16;
    const MAX: u8 = 3;
    const D: Option<(usize, f32)> = Some((80, 1.0));
    const M: Option<(usize, f32)> = Some((82, -1.0));

    #[inline(always)]
    fn scales(block: &[u8; 84]) -> [i8; 16] {
        part::<16>(block, 0).map(|x| (x & 15) as i8)
    }
    #[inline(always)]
    fn minimums(block: &[u8; 84]) -> [i8; 16] {
        part::<16>(block, 0).map(|x| (x >> 4) as i8)
    }

    /// 32 bytes hold 128 numbers.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 84], chunk: usize) -> S::V {
        s.shift(s.load(part(block, 16 + 32 * (chunk / 4))), -2 * (chunk as i32 % 4), 3)
    }
}
