//! Scale searches shared by the block formats. Given weights `x` and the cost of an error in each weight, a search
//! finds the scale (and the minimum) whose rounded codes have the smallest total error.
//!
//! The searches are the same as in ggml (`make_q*_quants` in `ggml-quants.c`), with the same order of operations, so
//! that the codes are equal: each sum runs from the first element to the last in f32.

/// If all magnitudes of a group are below this value, the group is encoded as zeros.
pub const TINY: f32 = 1e-15;

/// Rounds to the nearest integer, halves to even, by adding 1.5 * 2^23. The addition is used because baseline x86-64
/// has no instruction for rounding.
pub fn nearest(x: f32) -> i32 {
    ((x + 12_582_912.0).to_bits() & 0x7f_ffff) as i32 - 0x40_0000
}

/// Returns the element with the largest magnitude. If several elements have it, returns the first of them. Returns 0
/// for an empty slice.
pub fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |top: f32, &x| if x.abs() > top.abs() { x } else { top })
}

pub fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x)
}

/// Computes the cost of an error in each weight. The cost is the importance of the weight times a factor that grows
/// with its magnitude.
pub fn weigh(x: &[f32], importance: &[f32], sigma2: f32, weights: &mut [f32]) {
    for ((weight, x), importance) in weights.iter_mut().zip(x).zip(importance) {
        *weight = importance * (sigma2 + x * x).sqrt();
    }
}

/// The weighted sums for a least-squares fit of `x = scale * code`: the sum of `x * code`, and the sum of `code *
/// code`.
#[derive(Clone, Copy, Default)]
pub struct Fit {
    pub xq: f32,
    pub q2: f32,
}

impl Fit {
    pub fn add(&mut self, weight: f32, x: f32, q: f32) {
        self.xq += weight * x * q;
        self.q2 += weight * q * q;
    }

    /// Adds `(weight * q) * x` and `(weight * q) * q` to the sums. [`add`](Self::add) multiplies in another order. Some
    /// of ggml's searches use the order of this function, and the results must be equal to theirs bit for bit.
    pub fn add_code_first(&mut self, weight: f32, x: f32, q: f32) {
        self.xq += weight * q * x;
        self.q2 += weight * q * q;
    }

    pub fn scale(self) -> f32 {
        self.xq / self.q2
    }

    /// Returns true if this fit has a smaller error than another fit, whose `scale * xq` is `best`.
    pub fn beats(self, best: f32) -> bool {
        self.q2 > 0.0 && self.xq * self.xq > best * self.q2
    }
}

/// Finds codes from `-top` to `top - 1` and a scale of either sign. Writes each code plus `top` to `codes`. Returns the
/// scale.
pub fn symmetric(top: i32, x: &[f32], weights: &[f32], codes: &mut [u8]) -> f32 {
    let max = extreme(x);
    if max.abs() < TINY {
        codes.fill(0);
        return 0.0;
    }
    let code = |inverse: f32, x: f32| nearest(inverse * x).clamp(-top, top - 1);
    let fit = |inverse: f32| {
        let mut fit = Fit::default();
        x.iter().zip(weights).for_each(|(&x, &w)| fit.add(w, x, code(inverse, x) as f32));
        fit
    };
    let mut chosen = -top as f32 / max;
    let first = fit(chosen);
    let mut scale = if first.q2 == 0.0 { 0.0 } else { first.scale() };
    let mut best = scale * first.xq;
    for step in (-9..=9).filter(|&step| step != 0) {
        let inverse = -(top as f32 + 0.1 * step as f32) / max;
        let fit = fit(inverse);
        if fit.beats(best) {
            (chosen, scale) = (inverse, fit.scale());
            best = scale * fit.xq;
        }
    }
    codes.iter_mut().zip(x).for_each(|(c, &x)| *c = (code(chosen, x) + top) as u8);
    scale
}

/// Like [`symmetric`], but the square of each value of `x` is its weight. Starts from one scale, and changes single
/// codes as long as this reduces the error.
pub fn symmetric_by_descent(top: i32, x: &[f32], codes: &mut [u8]) -> f32 {
    let max = extreme(x);
    if max.abs() < TINY {
        codes.fill(0);
        return 0.0;
    }
    let inverse = -top as f32 / max;
    let mut fit = Fit::default();
    for (code, &x) in codes.iter_mut().zip(x) {
        let l = nearest(inverse * x).clamp(-top, top - 1);
        *code = (l + top) as u8;
        fit.add(x * x, x, l as f32);
    }
    for _ in 0..5 {
        let mut changed = false;
        for (code, &x) in codes.iter_mut().zip(x) {
            let (w, l) = (x * x, (i32::from(*code) - top) as f32);
            let mut other = Fit { xq: fit.xq - w * x * l, q2: fit.q2 };
            if other.xq > 0.0 {
                other.q2 -= w * l * l;
                let new = nearest(x * other.q2 / other.xq).clamp(-top, top - 1);
                if new as f32 != l {
                    other.add(w, x, new as f32);
                    if other.q2 > 0.0 && other.xq * other.xq * fit.q2 > fit.xq * fit.xq * other.q2 {
                        *code = (new + top) as u8;
                        fit = other;
                        changed = true;
                    }
                }
            }
        }
        if !changed {
            break;
        }
    }
    if fit.q2 > 0.0 { fit.scale() } else { 0.0 }
}

/// Finds codes from 0 to `top` for non-negative numbers. Returns the scale.
pub fn positive(top: i32, x: &[f32], weights: &[f32], codes: &mut [u8]) -> f32 {
    let max = x.iter().fold(0.0, |max: f32, &x| if max > x { max } else { x });
    if max < TINY {
        codes.fill(0);
        return 0.0;
    }
    let error = |inverse: f32, level: &dyn Fn(i32) -> f32| {
        let scale = 1.0 / inverse;
        x.iter().zip(weights).fold(0.0, |sum, (x, w)| {
            let difference = x - scale * level(nearest(inverse * x));
            sum + w * difference * difference
        })
    };
    let mut inverse = top as f32 / max;
    // In ggml, the codes are unsigned bytes here. So the code of a negative element becomes a large number, which makes
    // the error of the first scale large. The conversion to `u8` gives the same result.
    let mut least = error(inverse, &|l| f32::from(l as u8));
    for step in (-4..=4).filter(|&step| step != 0) {
        let other = (0.1 * step as f32 + top as f32) / max;
        let error = error(other, &|l| l.min(top) as f32);
        if error < least {
            (least, inverse) = (error, other);
        }
    }
    let mut fit = Fit::default();
    for ((code, &x), &w) in codes.iter_mut().zip(x).zip(weights) {
        let l = nearest(inverse * x).min(top);
        *code = l as u8;
        fit.add(w, x, l as f32);
    }
    for _ in 0..5 {
        let mut changed = false;
        for ((code, &x), &w) in codes.iter_mut().zip(x).zip(weights) {
            let l = f32::from(*code);
            let mut other = Fit { xq: fit.xq - w * x * l, q2: fit.q2 - w * l * l };
            if other.xq > 0.0 && other.q2 > 0.0 {
                let new = nearest(x * other.q2 / other.xq).min(top);
                if new as f32 != l {
                    other.add(w, x, new as f32);
                    if other.xq * other.xq * fit.q2 > fit.xq * fit.xq * other.q2 {
                        *code = new as u8;
                        fit = other;
                        changed = true;
                    }
                }
            }
        }
        if !changed {
            break;
        }
    }
    if fit.q2 > 0.0 { fit.scale() } else { 0.0 }
}

/// The inverse scales that [`affine`] tries. There are `steps + 1` of them: `(first + step * i + top) / range`.
#[derive(Clone, Copy)]
pub struct Tries {
    pub first: f32,
    pub step: f32,
    pub steps: i32,
    /// True if the search minimizes the sum of the magnitudes of the errors instead of the sum of their squares.
    pub by_magnitude: bool,
}

/// The inverse scales that a search for scale and minimum tries if there is an importance matrix.
pub const WEIGHTED: Tries = Tries { first: -0.9, step: 0.05, steps: 36, by_magnitude: false };

/// Finds codes from 0 to `top` for `x = scale * code - minimum` with a non-negative minimum. Returns scale and
/// minimum.
pub fn affine(top: i32, x: &[f32], weights: &[f32], tries: Tries, codes: &mut [u8]) -> (f32, f32) {
    let (mut min, mut max) = (x[0], x[0]);
    let (mut sum_w, mut sum_x) = (weights[0], weights[0] * x[0]);
    for (&x, &w) in x.iter().zip(weights).skip(1) {
        min = if x < min { x } else { min };
        max = if x > max { x } else { max };
        sum_w += w;
        sum_x += w * x;
    }
    min = if min > 0.0 { 0.0 } else { min };
    if max <= min {
        codes.fill(0);
        return (0.0, -min);
    }
    let code = |(inverse, low): (f32, f32), x: f32| nearest(inverse * (x - low)).clamp(0, top);
    let error = |start: (f32, f32), scale: f32, min: f32| {
        x.iter().zip(weights).fold(0.0, |sum, (&x, w)| {
            let difference = scale * code(start, x) as f32 + min - x;
            sum + w * if tries.by_magnitude { difference.abs() } else { difference * difference }
        })
    };
    // Each try computes codes from an inverse scale and the current minimum. If a try finds a better minimum, the
    // following tries use it.
    let mut chosen = (top as f32 / (max - min), min);
    let mut scale = 1.0 / chosen.0;
    let mut least = error(chosen, scale, min);
    for i in 0..=tries.steps {
        let start = ((tries.first + tries.step * i as f32 + top as f32) / (max - min), min);
        let (mut sum_l, mut sum_l2, mut sum_xl) = (0.0, 0.0, 0.0);
        for (&x, &w) in x.iter().zip(weights) {
            let l = code(start, x) as f32;
            sum_l += w * l;
            sum_l2 += w * l * l;
            sum_xl += w * l * x;
        }
        let determinant = sum_w * sum_l2 - sum_l * sum_l;
        if determinant > 0.0 {
            let mut new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
            let mut new_min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
            if new_min > 0.0 {
                (new_min, new_scale) = (0.0, sum_xl / sum_l2);
            }
            let error = error(start, new_scale, new_min);
            if error < least {
                (least, chosen, scale, min) = (error, start, new_scale, new_min);
            }
        }
    }
    codes.iter_mut().zip(x).for_each(|(c, &x)| *c = code(chosen, x) as u8);
    (scale, -min)
}
