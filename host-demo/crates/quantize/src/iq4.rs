//! IQ4_NL and IQ4_XS: each weight has a 4-bit code for one of 16 values, which are denser near zero.

use half::f16;

use super::search::{Fit, TINY, extreme, nearest, sum_of_squares, weigh};

const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Returns the code of the value nearest to `x`. If two values are equally near, the higher code is returned.
fn code(x: f32) -> u8 {
    let above = VALUES.partition_point(|&value| f32::from(value) <= x);
    match above {
        0 => 0,
        16 => 15,
        above => {
            let (low, high) = (f32::from(VALUES[above - 1]), f32::from(VALUES[above]));
            if x - low < high - x { above as u8 - 1 } else { above as u8 }
        }
    }
}

/// Finds the scale of 32 weights.
fn scale(x: &[f32], weights: &[f32]) -> f32 {
    let max = extreme(x);
    if max.abs() < TINY {
        return 0.0;
    }
    let fit = |inverse: f32| {
        let mut fit = Fit::default();
        for (&x, &w) in x.iter().zip(weights) {
            fit.add_code_first(w, x, f32::from(VALUES[usize::from(code(inverse * x))]));
        }
        fit
    };
    let lowest = f32::from(VALUES[0]);
    let first = fit(1.0 / (-max / lowest));
    let mut scale = if first.q2 > 0.0 { first.scale() } else { 0.0 };
    let mut best = scale * first.xq;
    for step in -7i8..=7 {
        let fit = fit((f32::from(step) + lowest) / max);
        if fit.beats(best) {
            scale = fit.scale();
            best = scale * fit.xq;
        }
    }
    scale
}

/// Finds the scales of all groups of 32 in a block.
fn scales<const N: usize>(x: &[f32], importance: Option<&[f32]>) -> [f32; N] {
    let sigma2 = sum_of_squares(x) * (2.0 / x.len() as f32);
    std::array::from_fn(|i| {
        let x = &x[i * 32..][..32];
        let mut weights = [0.0; 32];
        match importance {
            Some(importance) => weigh(x, &importance[i * 32..], sigma2, &mut weights),
            None => weights.iter_mut().zip(x).for_each(|(w, x)| *w = x * x),
        }
        scale(x, &weights)
    })
}

/// Writes the codes of 32 weights for a given scale.
fn pack(x: &[f32], scale: f32, out: &mut [u8]) {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let (low, high) = x.split_at(16);
    for ((byte, low), high) in out.iter_mut().zip(low).zip(high) {
        *byte = code(inverse * low) | code(inverse * high) << 4;
    }
}

pub fn iq4_nl(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (i, (x, out)) in row.chunks_exact(32).zip(out.chunks_exact_mut(18)).enumerate() {
        let [d] = scales(x, importance.map(|importance| &importance[i * 32..]));
        out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        pack(x, d, &mut out[2..]);
    }
}

pub fn iq4_xs(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (i, (x, out)) in row.chunks_exact(256).zip(out.chunks_exact_mut(136)).enumerate() {
        let scales: [f32; 8] = scales(x, importance.map(|importance| &importance[i * 256..]));
        let d = -extreme(&scales) / 32.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        let coded = scales.map(|scale| nearest(inverse * scale).clamp(-32, 31));
        for (i, (x, &l)) in x.chunks_exact(32).zip(&coded).enumerate() {
            pack(x, d * l as f32, &mut out[8 + i * 16..][..16]);
        }
        let coded = coded.map(|l| (l + 32) as u8);
        let high = (0..8).fold(0, |bits, i| bits | u16::from(coded[i] >> 4) << (2 * i));
        out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        out[2..4].copy_from_slice(&high.to_le_bytes());
        for (byte, pair) in out[4..8].iter_mut().zip(coded.chunks_exact(2)) {
            *byte = pair[0] & 15 | pair[1] << 4;
        }
    }
}
