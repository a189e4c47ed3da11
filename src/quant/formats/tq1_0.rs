use crate::quant::format::{Bytes, Format, bytes_at, u32_at, u64_at};

/// 256 weights of -1, 0 or 1, then an f16 scale. A byte has five weights, and each of the last four bytes has four. The
/// weights of a byte, plus 1, are the digits of a fraction in base 3; the byte is 256 times that fraction.
#[derive(Clone, Copy)]
pub(crate) struct Tq1_0;

impl Format for Tq1_0 {
    type Block = [u8; 54];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 1;
    const MAX: u8 = 2;
    const D: Option<(usize, f32)> = Some((52, 1.0));

    /// Unpacks a chunk. The weights of a byte are the digits of a fraction in base 3. Multiplying the byte by 3 modulo
    /// 256 drops the first digit, so that digit `k` is read after `k` such steps.
    #[inline(always)]
    fn unpack<S: Bytes>(s: S, block: &[u8; 54], chunk: usize) -> S::V {
        let fractions = if chunk < 5 {
            // 32 bytes with five weights each: chunk `k` is digit `k`.
            let mut x = s.load(bytes_at(block, 0));
            for _ in 0..chunk {
                x = s.add(x, s.add(x, x));
            }
            x
        } else {
            // 16 bytes with five weights each, then four bytes with four weights each.
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
        // A byte `x` is a fraction in base 3. Its first digit is the integer part of `3 x / 256`: 1 if `x` is at least
        // 86, and 2 if it is at least 171.
        s.sub(s.sub(s.splat(0), s.at_least(fractions, 86)), s.at_least(fractions, 171))
    }
}

/// Multiplies each byte of a word by `factor`, modulo 256. `factor` is below 256.
#[inline(always)]
fn times(bytes: u64, factor: u64) -> u64 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let (even, odd) = ((bytes & EVEN) * factor, (bytes >> 8 & EVEN) * factor);
    even & EVEN | (odd & EVEN) << 8
}
