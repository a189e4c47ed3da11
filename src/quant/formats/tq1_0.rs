use crate::quant::format::{Bytes, Format, part, u32_at, u64_at};

/// 256 numbers, -1, 0 or 1: five in a byte (four in the last four bytes), as the digits of a fraction to the base 3, of
/// which the byte is 256 times; an f16 scale.
#[derive(Clone, Copy)]
pub(crate) struct Tq1_0;

impl Format for Tq1_0 {
    type Block = [u8; 54];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 1;
    const LONG: bool = true;
    const MAX: u8 = 2;
    const D: Option<(usize, f32)> = Some((52, 1.0));

    /// A digit is what becomes of the fraction's first when it is times 3, modulo 1, once for each digit before.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 54], chunk: usize) -> S::V {
        let fractions = if chunk < 5 {
            // 32 bytes with five numbers each.
            let mut x = s.load(part(block, 0));
            for _ in 0..chunk {
                x = s.add(x, s.add(x, x));
            }
            x
        } else {
            // 16 bytes with five each, then four with four each.
            let five = [u64_at(block, 32), u64_at(block, 40)];
            let digit = |power| five.map(|word| times(word, power));
            let four = u64::from(u32_at(block, 48));
            let two = |low, high| times(four, low) | times(four, high) << 32;
            let ([a, b], [c, d]) = match chunk {
                5 => (digit(1), digit(3)),
                6 => (digit(9), digit(27)),
                _ => (digit(81), [two(1, 3), two(9, 27)]),
            };
            s.words([a, b, c, d])
        };
        // 3 x / 256: how many of its thirds x has.
        s.sub(s.sub(s.splat(0), s.at_least(fractions, 86)), s.at_least(fractions, 171))
    }
}

/// Each byte times a number below 256, modulo 256.
#[inline(always)]
fn times(bytes: u64, factor: u64) -> u64 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let (even, odd) = ((bytes & EVEN) * factor, (bytes >> 8 & EVEN) * factor);
    even & EVEN | (odd & EVEN) << 8
}
