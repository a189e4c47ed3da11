//! The Fourier transform of 400 real samples.
//!
//! Even and odd samples become real and imaginary parts of 200 complex numbers. Their transform has stages of radix 5,
//! 5, 4 and 2 (Stockham's form, without bit reversal). One more step separates the transforms of even and odd samples,
//! and combines them to the transform of all samples.

/// Samples of a frame.
pub(super) const SIZE: usize = 400;
/// Number of frequencies from 0 to half of the sampling rate.
pub(super) const FREQUENCIES: usize = SIZE / 2 + 1;
/// Number of complex numbers in each of the two buffers.
pub(super) const HALF: usize = SIZE / 2;

/// A complex number: real and imaginary part.
pub(super) type Complex = [f32; 2];

/// `cos(2 pi n / 400)`, rounded from f64.
static COSINES: [f32; SIZE] = {
    let (mut table, mut n) = ([0.0; SIZE], 0);
    while n < SIZE {
        table[n] = cosine(n) as f32;
        n += 1;
    }
    table
};

/// `cos(2 pi n / 400)` for `n` below 400. Symmetry reduces the angle to at most an eighth of a circle; a series
/// computes the cosine or sine of this angle.
const fn cosine(n: usize) -> f64 {
    let n = if n > SIZE / 2 { SIZE - n } else { n };
    if n > SIZE / 4 {
        return -cosine_below_quarter(SIZE / 2 - n);
    }
    cosine_below_quarter(n)
}

const fn cosine_below_quarter(n: usize) -> f64 {
    let is_sine = n > SIZE / 8;
    let n = if is_sine { SIZE / 4 - n } else { n };
    let x = core::f64::consts::TAU * n as f64 / SIZE as f64;
    // The cosine and the sine are computed by their series. In both, a term is `-x^2 / (i (i + 1))` times the term
    // before it.
    let (mut term, mut i) = if is_sine { (x, 2.0) } else { (1.0, 1.0) };
    let mut sum = term;
    while i < 24.0 {
        term *= -x * x / (i * (i + 1.0));
        sum += term;
        i += 2.0;
    }
    sum
}

/// `cos(2 pi n / 400)`.
pub(super) fn cos(n: usize) -> f32 {
    COSINES.get(n % SIZE).copied().unwrap_or(0.0)
}

/// `exp(-2 pi i n / 400)`.
fn turn(n: usize) -> Complex {
    [cos(n), -cos(n + 3 * SIZE / 4)]
}

fn add(a: Complex, b: Complex) -> Complex {
    [a[0] + b[0], a[1] + b[1]]
}

fn sub(a: Complex, b: Complex) -> Complex {
    [a[0] - b[0], a[1] - b[1]]
}

fn mul(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

fn scale(a: Complex, by: f32) -> Complex {
    [a[0] * by, a[1] * by]
}

/// `-i a`.
fn back(a: Complex) -> Complex {
    [a[1], -a[0]]
}

/// One stage of the Fourier transform, of radix `P`. `small` transforms `P` numbers. The stage processes `ROWS`
/// interleaved rows, each of `P * COLUMNS` numbers.
fn stage<const P: usize, const COLUMNS: usize, const ROWS: usize>(
    from: &[Complex],
    to: &mut [Complex],
    small: impl Fn([Complex; P]) -> [Complex; P],
) {
    for j in 0..COLUMNS {
        let turns: [Complex; P] = core::array::from_fn(|r| turn(SIZE / (P * COLUMNS) * j * r));
        for q in 0..ROWS {
            let inputs = core::array::from_fn(|k| at(from, q + ROWS * (j + COLUMNS * k)));
            for (r, (out, by)) in small(inputs).into_iter().zip(turns).enumerate() {
                if let Some(to) = to.get_mut(q + ROWS * (P * j + r)) {
                    *to = if r == 0 { out } else { mul(out, by) };
                }
            }
        }
    }
}

fn at(x: &[Complex], i: usize) -> Complex {
    x.get(i).copied().unwrap_or_default()
}

fn two([a, b]: [Complex; 2]) -> [Complex; 2] {
    [add(a, b), sub(a, b)]
}

fn four([a, b, c, d]: [Complex; 4]) -> [Complex; 4] {
    let (ac, a_c, bd, b_d) = (add(a, c), sub(a, c), add(b, d), back(sub(b, d)));
    [add(ac, bd), add(a_c, b_d), sub(ac, bd), sub(a_c, b_d)]
}

fn five([a, b, c, d, e]: [Complex; 5]) -> [Complex; 5] {
    let [c1, s1] = [cos(SIZE / 5), cos(SIZE / 5 + 3 * SIZE / 4)];
    let [c2, s2] = [cos(2 * SIZE / 5), cos(2 * SIZE / 5 + 3 * SIZE / 4)];
    let (be, cd, b_e, c_d) = (add(b, e), add(c, d), sub(b, e), sub(c, d));
    let even1 = add(a, add(scale(be, c1), scale(cd, c2)));
    let even2 = add(a, add(scale(be, c2), scale(cd, c1)));
    let odd1 = back(add(scale(b_e, s1), scale(c_d, s2)));
    let odd2 = back(sub(scale(b_e, s2), scale(c_d, s1)));
    [add(a, add(be, cd)), add(even1, odd1), add(even2, odd2), sub(even2, odd2), sub(even1, odd1)]
}

/// Calls `each` with every frequency `k`, in order, and its power `|X(k)|^2`. `z` holds the samples of a frame as
/// complex numbers: the even samples are real parts, the odd samples imaginary parts. `z` and the scratch buffer
/// `other` have [`HALF`] numbers each.
pub(super) fn powers(z: &mut [Complex], other: &mut [Complex], mut each: impl FnMut(usize, f32)) {
    stage::<5, 40, 1>(z, other, five);
    stage::<5, 8, 5>(other, z, five);
    stage::<4, 2, 25>(z, other, four);
    stage::<2, 1, 100>(other, z, two);
    for k in 0..FREQUENCIES {
        let (here, mirrored) = (at(z, k % HALF), at(z, (HALF - k) % HALF));
        let mirrored = [mirrored[0], -mirrored[1]];
        let even = scale(add(here, mirrored), 0.5);
        let odd = back(scale(sub(here, mirrored), 0.5));
        let [re, im] = add(even, mul(odd, turn(k)));
        each(k, re * re + im * im);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn as_by_definition() {
        let mut seed = 7u32;
        let x: [f32; SIZE] = core::array::from_fn(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
        });
        let mut z: [Complex; HALF] = core::array::from_fn(|i| [x[2 * i], x[2 * i + 1]]);
        let mut count = 0;
        powers(&mut z, &mut [[0.0; 2]; HALF], |k, power| {
            let (mut re, mut im) = (0.0f64, 0.0f64);
            for (n, x) in x.iter().enumerate() {
                let angle = core::f64::consts::TAU * ((n * k) % SIZE) as f64 / SIZE as f64;
                re += f64::from(*x) * libm::cos(angle);
                im -= f64::from(*x) * libm::sin(angle);
            }
            let right = re * re + im * im;
            assert!((f64::from(power) - right).abs() < 1e-5 * right.max(10.0), "{k}: {power}, not {right}");
            count += 1;
        });
        assert_eq!(count, FREQUENCIES);
    }

    #[test]
    fn table_of_cosines() {
        for n in 0..SIZE {
            let right = libm::cos(core::f64::consts::TAU * n as f64 / SIZE as f64);
            assert!((cosine(n) - right).abs() < 1e-15, "{n}");
        }
    }
}
