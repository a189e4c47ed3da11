//! The fused multiply-add of f32 in integers, for targets that have no such instruction. A Cortex-M0 only multiplies
//! 32-bit numbers.

use crate::quant::le_f16;

/// An f32 is infinite or NaN if its exponent is this.
const SPECIAL: u32 = 255;
const SIGN: u32 = 1 << 31;

/// `a * b + c`, rounded once, to nearest even. (If the result is a NaN, its bits are unspecified.)
#[inline(never)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    let (x, y) = (a.to_bits(), b.to_bits());
    let (x_exponent, y_exponent) = (exponent(x), exponent(y));
    if x << 1 == 0 || y << 1 == 0 || x_exponent == SPECIAL || y_exponent == SPECIAL {
        return a * b + c; // the product is exact, infinite or NaN
    }
    let [(x_bits, x_exponent), (y_bits, y_exponent)] = [normal(x, x_exponent), normal(y, y_exponent)];
    let product = if cfg!(any(cortex_m0, test)) {
        let [(x_high, x_low), (y_high, y_low)] = [x_bits, y_bits].map(|bits| (bits >> 12, bits & 0xfff));
        let middle = x_high * y_low + x_low * y_high;
        // Each of the three partial products fits in 32 bits. Shifting them one by one takes fewer instructions than
        // shifting their sum, which needs 64 bits.
        (u64::from(x_high * y_high) << 38) + (u64::from(middle) << 26) + (u64::from(x_low * y_low) << 14)
    } else {
        (u64::from(x_bits) * u64::from(y_bits)) << 14
    };
    add(product, x_exponent + y_exponent - 126, (x ^ y) & SIGN, c)
}

/// `acc + f16 * scale * sum`, with only one rounding if `scale` is also an f16, because the product of the scales is
/// then exact. The magnitude of `sum` is below 2^20.
#[inline(never)]
pub fn add_scaled(f16: [u8; 2], scale: f32, sum: i32, acc: f32) -> f32 {
    let (w, x) = (u32::from(u16::from_le_bytes(f16)), scale.to_bits());
    let (w_exponent, x_exponent) = (w >> 10 & 31, exponent(x));
    let w_bits = w & 0x3ff | u32::from(w_exponent > 0) << 10;
    if w_bits == 0 || sum == 0 || w_exponent == 31 || matches!(x_exponent, 0 | SPECIAL) || x & 0x1fff != 0 {
        return fma(le_f16(f16) * scale, sum as f32, acc);
    }
    let scales = w_bits * ((x & 0x7f_ffff | 1 << 23) >> 13);
    let sum_bits = sum.unsigned_abs();
    let product = if cfg!(any(cortex_m0, test)) {
        (u64::from((scales >> 11) * sum_bits) << 30) + (u64::from((scales & 0x7ff) * sum_bits) << 19)
    } else {
        (u64::from(scales) * u64::from(sum_bits)) << 19
    };
    // The value of the product's lowest bit is `2^(w_exponent - 25 + x_exponent - 137)`.
    add(product, w_exponent.max(1) as i32 + x_exponent as i32 + 7, (w << 16 ^ x ^ sum as u32) & SIGN, acc)
}

#[inline(always)]
fn exponent(bits: u32) -> u32 {
    bits << 1 >> 24
}

/// The significand and the exponent of a number that is not zero. The highest bit of the significand is bit 23.
#[inline(always)]
fn normal(bits: u32, exponent: u32) -> (u32, i32) {
    let significand = bits & 0x7f_ffff;
    if exponent > 0 {
        return (significand | 1 << 23, exponent as i32);
    }
    let shift = significand.leading_zeros() - 8;
    (significand << shift, 1 - shift as i32)
}

/// Returns the sum of `product` and `c`, rounded. `product` is not 0; its bit 61 is worth `2^(exponent - 127)`, and its
/// highest bit is between bits 29 and 61.
#[inline(always)]
fn add(mut product: u64, mut exponent: i32, mut sign: u32, c: f32) -> f32 {
    let z = c.to_bits();
    let z_exponent = self::exponent(z);
    if z_exponent == SPECIAL {
        return c + c;
    }
    // Shifts the addend's mantissa so that its highest bit is bit 61 (unless `c` is denormal). Later shifts to the
    // right then lose only bits that matter for nothing but rounding.
    let mut addend = (u64::from(z & 0x7f_ffff) | u64::from(z_exponent > 0) << 23) << 38;
    let z_exponent = z_exponent.max(1) as i32;
    let ahead = exponent - z_exponent;
    if ahead >= 0 {
        addend = shifted(addend, ahead as u32);
    } else {
        product = shifted(product, ahead.unsigned_abs());
        exponent = z_exponent;
    }
    let sum = if sign == z & SIGN {
        product + addend
    } else {
        // The product and the addend are below 2^63, so bit 63 of their difference is the difference's sign.
        let difference = product.wrapping_sub(addend);
        if difference == 0 {
            return 0.0;
        }
        if difference >> 63 == 0 {
            difference
        } else {
            sign = z & SIGN;
            difference.wrapping_neg()
        }
    };
    f32::from_bits(sign | rounded(sum, exponent))
}

/// `x >> by`. If the shift loses a bit that is set, the last bit of the result is also set. The two halves are shifted
/// separately, because small cores have no instructions for 64 bits.
#[inline(always)]
fn shifted(x: u64, by: u32) -> u64 {
    let (high, low) = ((x >> 32) as u32, x as u32);
    let (high, low, lost) = match by {
        0 => return x,
        1..32 => (high >> by, low >> by | high << (32 - by), low << (32 - by)),
        32 => (0, high, low),
        33..64 => (0, high >> (by - 32), high << (64 - by) | low),
        _ => (0, 0, high | low),
    };
    u64::from(high) << 32 | u64::from(low | u32::from(lost != 0))
}

/// Returns the bits of the positive float nearest to `sum`, whose bit 61 is worth `2^(exponent - 127)`. `sum` is not 0
/// and below 2^63.
#[inline(always)]
fn rounded(sum: u64, exponent: i32) -> u32 {
    let (mut high, mut low, mut exponent) = ((sum >> 32) as u32, sum as u32, exponent + 1);
    if high == 0 {
        (high, low, exponent) = (low >> 1, low << 31, exponent - 31);
    }
    // Shifts the highest bit to bit 30, so that rounding up cannot overflow. (If a tiny product is added to 0, the sum
    // can be 1; its only bit is then the lowest bit of `low`, below 31 zeros.)
    let zeros = leading_zeros(high << 1 | 1);
    (high, low) = (high << zeros | low >> 1 >> (31 - zeros), low << zeros);
    exponent -= zeros as i32;
    // `high` has the 24 bits of the significand and 7 more bits. The last of these is also set if the lower half is not
    // 0.
    high |= u32::from(low != 0);
    let mut base = (exponent as u32).wrapping_sub(1) << 23;
    if exponent >= SPECIAL as i32 {
        return SPECIAL << 23;
    }
    if exponent < 1 {
        let by = 1 - exponent;
        high = if by > 31 { 1 } else { high >> by | u32::from(high << (32 - by) != 0) };
        base = 0;
    }
    base + ((high + 0x3f + (high >> 7 & 1)) >> 7)
}

/// The number of zeros above the highest bit. (A Cortex-M0 and RISC-V have no instruction for this, and the compiler
/// would call a longer function.)
#[inline(always)]
fn leading_zeros(mut x: u32) -> u32 {
    if cfg!(all(target_arch = "arm", not(cortex_m0))) {
        return x.leading_zeros();
    }
    let mut zeros = 0;
    for half in [16, 8, 4, 2] {
        if x >> (32 - half) == 0 {
            (x, zeros) = (x << half, zeros + half);
        }
    }
    zeros + (x >> 31 ^ 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes floats that are hard for the sum of a product and a number: sums cancel, lie halfway between two floats,
    /// overflow or become denormal.
    fn hard(bits: u64) -> f32 {
        let significand = match bits >> 40 & 7 {
            0 => 0,
            1 => 0x7f_ffff,
            2 => 1 << (bits >> 48 & 31) & 0x7f_ffff,
            3 => (0x7f_ffff << (bits >> 48 & 31)) as u32 & 0x7f_ffff,
            _ => bits as u32 & 0x7f_ffff,
        };
        let exponent = match bits >> 32 & 7 {
            0 => (bits >> 24 & 31) as u32,
            1 => 255 - (bits >> 24 & 3) as u32,
            2 => 64 + (bits >> 24 & 7) as u32,
            3 | 4 => 127 + (bits >> 24 & 31) as u32,
            _ => (bits >> 24 & 255) as u32,
        };
        f32::from_bits((bits >> 63 << 31) as u32 | exponent << 23 | significand)
    }

    #[test]
    fn equals_the_hardware() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d)
        };
        assert_eq!(fma(1e-45, 1e-45, 0.0).to_bits(), 0);
        assert_eq!(fma(-1e-45, 1e-45, -0.0).to_bits(), SIGN);
        for i in 0..3_000_000u32 {
            let [a, b, c] = [random(), random(), random()];
            let (bits_a, bits_b, bits_c) = (a, b, c);
            let (a, b, mut c) = match i % 3 {
                0 => (f32::from_bits(a as u32), f32::from_bits(b as u32), f32::from_bits(c as u32)),
                _ => (hard(a), hard(b), hard(c)),
            };
            if i % 3 == 2 {
                // Near the negative of the product.
                c = f32::from_bits((-(a * b)).to_bits().wrapping_add(i % 5).wrapping_sub(2));
            }
            let (soft, hard) = (fma(a, b, c), a.mul_add(b, c));
            assert!(
                soft.to_bits() == hard.to_bits() || soft.is_nan() && hard.is_nan(),
                "{a:e} * {b:e} + {c:e}: {soft:e}, not {hard:e}"
            );
            let scale = le_f16((bits_a as u16).to_le_bytes());
            let (w, sum) = ((bits_b as u16).to_le_bytes(), (bits_c as i32) >> 11 >> (bits_c >> 60));
            let acc = if i % 4 == 0 { -(le_f16(w) * scale * sum as f32) } else { hard };
            let (soft, hard) = (add_scaled(w, scale, sum, acc), (le_f16(w) * scale).mul_add(sum as f32, acc));
            assert!(
                soft.to_bits() == hard.to_bits() || soft.is_nan() && hard.is_nan(),
                "{w:?} {scale:e} * {sum} + {acc:e}: {soft:e}, not {hard:e}"
            );
        }
    }
}
