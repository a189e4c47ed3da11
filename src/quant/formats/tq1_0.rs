use crate::quant::format::{Bytes, Format, part};

/// 256 numbers, -1, 0 or 1: five in a byte (four in the last four bytes), as the digits of a fraction to the base 3, of
/// which the byte is 256 times; an f16 scale.
#[derive(Clone, Copy)]
pub(crate) struct Tq1_0;

impl Format for Tq1_0 {
    type Block = [u8; 54];
    const ELEMENTS: usize = 256;
    const BIAS: u8 = 1;
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
            const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
            let (five, four) = (part::<16>(block, 32), part::<4>(block, 48));
            s.load(&core::array::from_fn(|i| {
                let i = 32 * (chunk % 8) + i - 160;
                let (byte, digit) = if i < 80 { (five[i % 16], i / 16) } else { (four[i % 4], (i - 80) / 4) };
                byte.wrapping_mul(POWERS[digit % 5])
            }))
        };
        // 3 x / 256: how many of its thirds x has.
        s.sub(s.sub(s.splat(0), s.at_least(fractions, 86)), s.at_least(fractions, 171))
    }
}
