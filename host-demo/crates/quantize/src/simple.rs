//! Encoders of Q4_1, Q5_0, Q5_1, MXFP4, NVFP4 and the 1-bit, 2-bit and ternary types, and of Q4_0 with an importance
//! matrix.

use half::f16;

use super::search::{WEIGHTED, affine, extreme, sum_of_squares, symmetric, weigh};

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Writes 32 codes of `BITS` bits. The low nibbles take 16 bytes: the first half of the codes is in the low nibbles of
/// these bytes, the second half in the high nibbles. If codes have a fifth bit, the fifth bits come first.
fn pack<const BITS: u32>(codes: &[u8; 32], out: &mut [u8]) {
    let out = if BITS == 5 {
        let high = codes.iter().rev().fold(0u32, |bits, code| bits << 1 | u32::from(code >> 4 & 1));
        out[..4].copy_from_slice(&high.to_le_bytes());
        &mut out[4..]
    } else {
        out
    };
    let (low, high) = codes.split_at(16);
    for ((byte, low), high) in out.iter_mut().zip(low).zip(high) {
        *byte = low & 15 | high << 4;
    }
}

/// Iterates over the blocks of a row. If there is an importance matrix, each block comes with the weights of its
/// errors.
fn blocks<'a>(row: &'a [f32], importance: Option<&'a [f32]>) -> impl Iterator<Item = (&'a [f32], Option<[f32; 32]>)> {
    let sigma2 = if importance.is_some() { sum_of_squares(row) / row.len() as f32 } else { 0.0 };
    row.chunks_exact(32).enumerate().map(move |(i, x)| {
        let weights = importance.map(|importance| {
            let mut weights = [0.0; 32];
            weigh(x, &importance[i * 32..], sigma2, &mut weights);
            weights
        });
        (x, weights)
    })
}

/// Encodes Q4_0 and Q5_0: a scale for 32 weights, and codes whose middle value stands for 0. Without an importance
/// matrix, the weight with the largest magnitude gets the lowest code.
pub fn centred<const BITS: u32>(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let top = 1 << (BITS - 1);
    let bytes = out.len() / (row.len() / 32);
    for ((x, weights), out) in blocks(row, importance).zip(out.chunks_exact_mut(bytes)) {
        let mut codes = [0; 32];
        let d = match weights {
            Some(weights) => symmetric(top, x, &weights, &mut codes),
            None => {
                let d = extreme(x) / -top as f32;
                let id = inverse(d);
                let half = top as f32 + 0.5;
                codes.iter_mut().zip(x).for_each(|(c, x)| *c = ((x * id + half) as u8).min(2 * top as u8 - 1));
                d
            }
        };
        out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        pack::<BITS>(&codes, &mut out[2..]);
    }
}

/// Encodes Q4_1 and Q5_1: a scale and a minimum for 32 weights, and codes that start at 0.
pub fn with_minimum<const BITS: u32>(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let top = (1 << BITS) - 1;
    let bytes = out.len() / (row.len() / 32);
    for ((x, weights), out) in blocks(row, importance).zip(out.chunks_exact_mut(bytes)) {
        let mut codes = [0; 32];
        let (d, min) = match weights {
            Some(weights) => {
                let (d, below) = affine(top, x, &weights, WEIGHTED, &mut codes);
                (d, -below)
            }
            None => {
                let (min, max) = x.iter().fold((f32::MAX, f32::MIN), |(min, max), &x| {
                    (if x < min { x } else { min }, if x > max { x } else { max })
                });
                let d = (max - min) / top as f32;
                let id = inverse(d);
                codes.iter_mut().zip(x).for_each(|(c, x)| *c = (((x - min) * id + 0.5) as u8).min(top as u8));
                (d, min)
            }
        };
        out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        out[2..4].copy_from_slice(&f16::from_f32(min).to_le_bytes());
        pack::<BITS>(&codes, &mut out[4..]);
    }
}

/// Finds a code for each weight: the FP4 value that, times `d`, is nearest to the weight. The table has twice the FP4
/// values.
fn fp4(x: &[f32], d: f32, codes: &mut [u8]) {
    const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
    for (code, x) in codes.iter_mut().zip(x) {
        let mut least = x.abs();
        for (i, &value) in (0..).zip(&VALUES) {
            let error = (f32::from(value) * d - x).abs();
            if error < least {
                (least, *code) = (error, i);
            }
        }
    }
}

/// Encodes a row as MXFP4: each block of 32 weights has a scale that is a power of two, and each weight has an FP4
/// code.
pub fn mxfp4(row: &[f32], out: &mut [u8]) {
    for (x, out) in row.chunks_exact(32).zip(out.chunks_exact_mut(17)) {
        let max = extreme(x).abs();
        let exponent = if max > 0.0 { (max.log2().floor() - 2.0 + 127.0) as u8 } else { 0 };
        // The factor `d` is half of 2^(exponent - 127). For the exponents 0 and 1, `d` is a subnormal number.
        let d = f32::from_bits(match exponent {
            0 | 1 => 0x20_0000 << exponent,
            _ => u32::from(exponent - 1) << 23,
        });
        let mut codes = [0; 32];
        fp4(x, d, &mut codes);
        out[0] = exponent;
        pack::<4>(&codes, &mut out[1..]);
    }
}

/// Encodes NVFP4: an unsigned E4M3 scale for each 16 weights, and an FP4 code for each.
pub fn nvfp4(row: &[f32], out: &mut [u8]) {
    for (x, out) in row.chunks_exact(64).zip(out.chunks_exact_mut(36)) {
        let (scales, out) = out.split_at_mut(4);
        for ((x, scale), out) in x.chunks_exact(16).zip(scales).zip(out.chunks_exact_mut(8)) {
            *scale = e4m3(extreme(x).abs() / 6.0);
            let mut codes = [0; 16];
            fp4(x, of_e4m3(*scale) / 2.0, &mut codes);
            for (byte, (low, high)) in out.iter_mut().zip(codes[..8].iter().zip(&codes[8..])) {
                *byte = low | high << 4;
            }
        }
    }
}

/// Rounds to the nearest E4M3 number. Numbers from 256 on become the largest E4M3 number, as in llama.cpp.
fn e4m3(x: f32) -> u8 {
    if x < 1.0 / 64.0 {
        return ((x * 512.0 + 0.5) as u8).min(7);
    }
    // Rounds by adding half a step. The sum may carry into the exponent, which is right. The subtraction changes the
    // exponent's bias from 127 (F32) to 7 (E4M3).
    let code = ((x.to_bits() + (1 << 19)) >> 20) - (120 << 3);
    if code < 0x78 { code as u8 } else { 0x7e }
}

fn of_e4m3(code: u8) -> f32 {
    if code < 8 { f32::from(code) / 512.0 } else { f32::from_bits((u32::from(code) + (120 << 3)) << 20) }
}

/// Encodes Q1_0: the mean magnitude of 128 weights, and a sign bit for each weight (1 if the weight is not negative).
pub fn q1_0(row: &[f32], out: &mut [u8]) {
    for (x, out) in row.chunks_exact(128).zip(out.chunks_exact_mut(18)) {
        let d = x.iter().fold(0.0, |sum, x| sum + x.abs()) / 128.0;
        out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        for (byte, x) in out[2..].iter_mut().zip(x.chunks_exact(8)) {
            *byte = x.iter().rev().fold(0, |bits, x| bits << 1 | u8::from(*x >= 0.0));
        }
    }
}

/// Encodes Q2_0: the largest magnitude of 64 weights, and two bits for each weight, which mean -1, 0 or 1.
pub fn q2_0(row: &[f32], out: &mut [u8]) {
    for (x, out) in row.chunks_exact(64).zip(out.chunks_exact_mut(18)) {
        let (trits, d) = trits::<64>(x);
        out[..2].copy_from_slice(&d);
        for (byte, four) in out[2..].iter_mut().zip(trits.chunks_exact(4)) {
            *byte = four.iter().rev().fold(0, |bits, trit| bits << 2 | trit);
        }
    }
}

/// Quantizes weights to three levels. Returns a code for each weight, and the scale, which is the largest magnitude.
/// The codes 0, 1 and 2 stand for -1, 0 and 1 times the scale.
fn trits<const N: usize>(x: &[f32]) -> ([u8; N], [u8; 2]) {
    let d = extreme(x).abs();
    let id = inverse(d);
    let mut trits = [0; N];
    trits.iter_mut().zip(x).for_each(|(trit, x)| *trit = ((x * id).round() as i32 + 1) as u8);
    (trits, f16::from_f32(d).to_le_bytes())
}

/// Encodes TQ1_0: five ternary digits in a byte.
pub fn tq1_0(row: &[f32], out: &mut [u8]) {
    // Stores `digits / 243` in units of 1/256, rounded up, because readers multiply by 3 again and again to get the
    // digits.
    let byte = |digits: u16| (digits * 256).div_ceil(243) as u8;
    for (x, out) in row.chunks_exact(256).zip(out.chunks_exact_mut(54)) {
        let (trits, d) = trits::<256>(x);
        let digits = |at: usize, step: usize, count: usize| {
            (0..count).fold(0, |digits, i| digits * 3 + u16::from(trits[at + i * step]))
        };
        for (i, out) in out[..32].iter_mut().enumerate() {
            *out = byte(digits(i, 32, 5));
        }
        for i in 0..16 {
            out[32 + i] = byte(digits(160 + i, 16, 5));
        }
        for i in 0..4 {
            out[48 + i] = byte(digits(240 + i, 4, 4) * 3);
        }
        out[52..].copy_from_slice(&d);
    }
}

/// Encodes TQ2_0: ternary digits of two bits.
pub fn tq2_0(row: &[f32], out: &mut [u8]) {
    for (x, out) in row.chunks_exact(256).zip(out.chunks_exact_mut(66)) {
        let (trits, d) = trits::<256>(x);
        super::k_quants::pack_two_bits(&trits, &mut out[..64]);
        out[64..].copy_from_slice(&d);
    }
}
