//! Sine and cosine of an angle, for rotary positions: without the kilobytes that reduce angles beyond every context.

use core::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI, TAU};

/// Angles from here on have no position in any context.
const LIMIT: f32 = 134_217_728.0;

/// The first multiples of pi/2, each with the largest angle that it is the nearest to: one subtraction, for f64 is
/// software on a microcontroller.
const NEAR: [(f32, f64); 5] = [
    (FRAC_PI_4 as f32, 0.0),
    (3.0 * FRAC_PI_4 as f32, FRAC_PI_2),
    (5.0 * FRAC_PI_4 as f32, PI),
    (7.0 * FRAC_PI_4 as f32, 3.0 * FRAC_PI_2),
    (9.0 * FRAC_PI_4 as f32, TAU),
];

/// The sine and the cosine of an angle in radians; (0, 1) from [`LIMIT`] on.
///
/// In f64, as FreeBSD's `s_sinf.c`, whose polynomials these are: a multiple of pi/2 is taken away in two parts
/// (Cody and Waite), the rest lies within pi/4.
pub(super) fn sine_cosine(angle: f32) -> (f32, f32) {
    /// pi/2: its first 25 bits, so that a multiple of them is exact, and what is left.
    const QUARTER: [f64; 2] = [1.570_796_310_901_641_8, 1.589_325_477_352_819_6e-8];
    /// Added and taken away again, it rounds to an integer.
    const ROUND: f64 = 1.5 / f64::EPSILON;
    let far = angle.abs();
    if far.is_nan() || far >= LIMIT {
        return (0.0, 1.0);
    }
    let mut x = f64::from(far);
    let quarters = match (0..).zip(NEAR).find(|(_, (most, _))| far <= *most) {
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
    let (sine, cosine) = match quarters & 3 {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    };
    (if angle.is_sign_negative() { -sine } else { sine }, cosine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_libm_rounds() {
        // A million angles of all sizes, either sign.
        for bits in (1..LIMIT.to_bits()).step_by(1237) {
            for angle in [f32::from_bits(bits), -f32::from_bits(bits)] {
                let (ours, theirs) = (sine_cosine(angle), libm::sincosf(angle));
                assert_eq!((ours.0.to_bits(), ours.1.to_bits()), (theirs.0.to_bits(), theirs.1.to_bits()), "{angle:e}");
            }
        }
    }

    #[test]
    fn as_the_mathematics() {
        // The standard library's f64, rounded: at most the last bit differs.
        for angle in (0..200_000).map(|i| i as f32 * i as f32 * 0.003) {
            let exact = f64::from(angle).sin_cos();
            let ours = sine_cosine(angle);
            for (ours, exact) in [(ours.0, exact.0), (ours.1, exact.1)] {
                assert!((f64::from(ours) - exact).abs() <= exact.abs() * 1.2e-7 + 1e-9, "{angle}: {ours} {exact}");
            }
        }
    }

    #[test]
    fn without_a_position() {
        for angle in [LIMIT, -LIMIT, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(sine_cosine(angle), (0.0, 1.0));
        }
    }
}
