//! Sine and cosine of angles for rotary positions. libm's functions are not used, because they have kilobytes of code
//! for very large angles.

use core::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI, TAU};

/// Angles are less than this. No position in any context reaches such an angle.
const LIMIT: f32 = 134_217_728.0;

/// Pairs of an angle and a multiple of pi/2, in ascending order. The multiple is the nearest one for all angles from
/// the previous pair's angle up to this pair's angle. Angles up to the last pair's angle are reduced by one
/// subtraction, because microcontrollers compute f64 in software.
const NEAR: [(f32, f64); 5] = [
    (FRAC_PI_4 as f32, 0.0),
    (3.0 * FRAC_PI_4 as f32, FRAC_PI_2),
    (5.0 * FRAC_PI_4 as f32, PI),
    (7.0 * FRAC_PI_4 as f32, 3.0 * FRAC_PI_2),
    (9.0 * FRAC_PI_4 as f32, TAU),
];

/// Sine and cosine of an angle in radians; (0, 1) from [`LIMIT`] on.
///
/// Computed in f64 with the polynomials of FreeBSD's `s_sinf.c`: a multiple of pi/2 is subtracted in two parts (Cody
/// and Waite), which leaves an angle within pi/4.
pub(crate) fn sine_cosine(angle: f32) -> (f32, f32) {
    let far = angle.abs();
    if far.is_nan() || far >= LIMIT {
        return (0.0, 1.0);
    }
    let near = NEAR.iter().position(|(most, _)| far <= *most);
    let (sine, cosine, quarters) = whole::sine_cosine(far, near).unwrap_or_else(|| in_floats(far, near));
    let (sine, cosine) = match quarters & 3 {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    };
    (if angle.is_sign_negative() { -sine } else { sine }, cosine)
}

/// Reduces an angle `far` for sine and cosine: subtracts the nearest multiple of pi/2. Returns the sine and cosine of
/// the difference, and which multiple was subtracted. `near` is this multiple's index in [`NEAR`], or `None` if that
/// table does not have it.
#[inline(never)]
fn in_floats(far: f32, near: Option<usize>) -> (f32, f32, i32) {
    /// pi/2 in two parts: its first 25 bits, so that multiples are exact, and the remainder.
    const QUARTER: [f64; 2] = [1.570_796_310_901_641_8, 1.589_325_477_352_819_6e-8];
    /// If this number is added to a value and subtracted again, the value is rounded to an integer.
    const ROUND: f64 = 1.5 / f64::EPSILON;
    let mut x = f64::from(far);
    let quarters = match near.and_then(|near| Some((near as i32, NEAR.get(near)?))) {
        Some((0, _)) => 0,
        Some((quarters, (_, turned))) => {
            x -= turned;
            quarters
        }
        None => {
            let quarters = (x * core::f64::consts::FRAC_2_PI + ROUND) - ROUND;
            x = x - quarters * QUARTER[0] - quarters * QUARTER[1];
            quarters as i32
        }
    };
    let squared = x * x;
    let (cubed, fourth) = (squared * x, squared * squared);
    let sine = {
        let first = x + cubed * (-0.166_666_666_416_265_24 + squared * 0.008_333_329_385_889_463);
        let second = -0.000_198_393_348_360_966_32 + squared * 0.000_002_718_311_493_989_822;
        (first + cubed * fourth * second) as f32
    };
    let cosine = {
        let first = (1.0 + squared * -0.499_999_997_251_031) + fourth * 0.041_666_623_323_739_06;
        let second = -0.001_388_676_377_460_993 + squared * 0.000_024_390_448_796_277_41;
        (first + fourth * squared * second) as f32
    };
    (sine, cosine, quarters)
}

/// Computes the same as `in_floats` in 64-bit integers with 62 fraction bits, if the result is certain to be equal.
/// This takes a fifth of the instructions on a Cortex-M, which has no f64 unit.
mod whole {
    use core::f64::consts::{FRAC_2_PI, FRAC_PI_2};

    /// Bound on the difference between this integer result and the result of f64, in units of 2^-62. The reduced angle
    /// is accurate to 2^-45.
    const ERROR: u64 = 1 << 18;

    const fn number(x: f64) -> u64 {
        (x * (1u64 << 62) as f64) as u64
    }

    const SINE: [u64; 4] = [
        number(0.000_002_718_311_493_989_822),
        number(0.000_198_393_348_360_966_32),
        number(0.008_333_329_385_889_463),
        number(0.166_666_666_416_265_24),
    ];
    const COSINE: [u64; 4] = [
        number(0.000_024_390_448_796_277_41),
        number(0.001_388_676_377_460_993),
        number(0.041_666_623_323_739_06),
        number(0.499_999_997_251_031),
    ];

    /// Returns the same result as `in_floats`. `None` for very small and very large angles, and if the integer result
    /// is not certain to round to the same float.
    pub fn sine_cosine(far: f32, near: Option<usize>) -> Option<(f32, f32, i32)> {
        let (exponent, mantissa) = (far.to_bits() >> 23, (far.to_bits() & 0x7f_ffff) | 0x80_0000);
        if !(113..136).contains(&exponent) {
            return None;
        }
        // `far` in units of 2^-53; below 2^62.
        let x = u64::from(mantissa) << (exponent - 97);
        let quarters = match near {
            Some(near) => near as u64,
            None => {
                // `far` divided by pi/2, in units of 2^-16.
                let turns = ((x >> 37) * (FRAC_2_PI * (1u64 << 32) as f64) as u64) >> 32;
                if (turns & 0xffff).abs_diff(0x8000) < 64 {
                    return None;
                }
                (turns + 0x8000) >> 16
            }
        };
        let x = (x as i64).wrapping_sub((quarters * (FRAC_PI_2 * (1u64 << 53) as f64) as u64) as i64) << 9;
        let squared = product(x.unsigned_abs(), x.unsigned_abs());
        let sine = rounded(product(x.unsigned_abs(), polynomial(squared, &SINE)))?;
        let cosine = rounded(polynomial(squared, &COSINE))?;
        Some((if x < 0 { -sine } else { sine }, cosine, quarters as i32))
    }

    /// `1 - x (d - x (c - x (b - x a)))`.
    fn polynomial(x: u64, [a, b, c, d]: &[u64; 4]) -> u64 {
        [*b, *c, *d, 1 << 62].into_iter().fold(*a, |sum, next| next.wrapping_sub(product(x, sum)))
    }

    /// Fixed-point product; the last few bits are inexact.
    #[inline(never)]
    fn product(x: u64, y: u64) -> u64 {
        let halves = |x: u64| (x & 0xffff_ffff, x >> 32);
        let ((low, high), (other_low, other_high)) = (halves(x), halves(y));
        ((high * other_high) << 2) + ((high * other_low) >> 30) + ((low * other_high) >> 30)
    }

    /// Rounds `x` to the nearest f32; `None` if `x` is so close to the middle of two f32 that an error of [`ERROR`]
    /// could change the result.
    fn rounded(x: u64) -> Option<f32> {
        let drop = 40u32.checked_sub(x.leading_zeros())?;
        let (half, rest) = ((1 << drop) >> 1, x & ((1 << drop) - 1));
        if rest.abs_diff(half) < ERROR {
            return None;
        }
        let mantissa = (x >> drop) as u32 + u32::from(rest > half);
        Some(f32::from_bits(((drop + 87) << 23) + mantissa))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_libm() {
        // A million angles of all magnitudes and both signs.
        for bits in (1..LIMIT.to_bits()).step_by(1237) {
            for angle in [f32::from_bits(bits), -f32::from_bits(bits)] {
                let (ours, theirs) = (sine_cosine(angle), libm::sincosf(angle));
                assert_eq!((ours.0.to_bits(), ours.1.to_bits()), (theirs.0.to_bits(), theirs.1.to_bits()), "{angle:e}");
            }
        }
    }

    #[test]
    fn positions_need_no_floats() {
        // Steps of 0.005, up to position 500 of the fastest pair.
        let angles = (1..100_000).map(|i| i as f32 * 0.005);
        let rest = angles.filter(|&far| {
            let near = NEAR.iter().position(|(most, _)| far <= *most);
            let whole = whole::sine_cosine(far, near);
            assert!(whole.is_none_or(|whole| whole == in_floats(far, near)), "{far}");
            whole.is_none()
        });
        assert!(rest.count() < 300);
    }

    #[test]
    fn agrees_with_f64() {
        // The results are compared with those of the standard library in f64, rounded to f32. At most the last bit
        // differs.
        for angle in (0..200_000).map(|i| i as f32 * i as f32 * 0.003) {
            let exact = f64::from(angle).sin_cos();
            let ours = sine_cosine(angle);
            for (ours, exact) in [(ours.0, exact.0), (ours.1, exact.1)] {
                assert!((f64::from(ours) - exact).abs() <= exact.abs() * 1.2e-7 + 1e-9, "{angle}: {ours} {exact}");
            }
        }
    }

    #[test]
    fn angles_beyond_the_limit() {
        for angle in [LIMIT, -LIMIT, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(sine_cosine(angle), (0.0, 1.0));
        }
    }
}
