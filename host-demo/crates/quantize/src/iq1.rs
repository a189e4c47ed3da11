//! IQ1_S and IQ1_M: three levels per weight. Groups of eight weights are points of a codebook, shifted up or down by an
//! eighth.
//!
//! The search is ggml's (`quantize_row_iq1_*_impl`). Two borders split the sorted weights into three levels, so all
//! splits can be tried. Then each group of eight that is not a point of the codebook is moved to a nearby point.

use std::sync::LazyLock;

use arenite::quant::TensorType;
use half::f16;

use super::lattice::{Block, Codebook};
use super::search::{Fit, nearest, sum_of_squares, weigh};

/// The values of the three levels: for a group whose levels are shifted up, and for a group whose levels are shifted
/// down.
const VALUES: [[f32; 3]; 2] = [[-0.875, 0.125, 1.125], [-1.125, -0.125, 0.875]];

static CODEBOOK: LazyLock<Codebook<8>> =
    LazyLock::new(|| Codebook::read(TensorType::IQ1_S, 2048, 3, 3, |block, out| pack_iq1_s(block, &[0; 8], out)));

/// Parameters of a stored group: the scale, and the shift of each eight weights as an index into [`VALUES`].
#[derive(Clone, Copy)]
struct Group<const EIGHTS: usize> {
    shifts: [usize; EIGHTS],
    scale: f32,
}

/// The best split so far.
struct Best<const EIGHTS: usize> {
    score: f32,
    scale: f32,
    split: Option<(usize, usize, [usize; EIGHTS])>,
}

impl<const EIGHTS: usize> Best<EIGHTS> {
    const NONE: Self = Self { score: f32::MIN, scale: 0.0, split: None };

    fn offer(&mut self, fit: Fit, first: usize, second: usize, shifts: [usize; EIGHTS]) {
        if fit.beats(self.score) {
            self.scale = fit.scale();
            self.score = self.scale * fit.xq;
            self.split = Some((first, second, shifts));
        }
    }
}

/// The indices that sort `x` in ascending order.
fn ascending(x: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[a].total_cmp(&x[b]));
    order
}

/// Finds the best split of 32 weights with one shift.
fn split_iq1_s(x: &[f32], weights: &[f32], order: &[usize]) -> Best<4> {
    let (mut xs, mut ws) = ([0.0; 33], [0.0; 33]);
    for (j, &i) in order.iter().enumerate() {
        xs[j + 1] = xs[j] + weights[i] * x[i];
        ws[j + 1] = ws[j] + weights[i];
    }
    let mut best = Best::NONE;
    for first in 0..=32 {
        for second in first..=32 {
            for (shift, v) in VALUES.iter().enumerate() {
                let xq = (xs[first] - xs[0]) * v[0] + (xs[second] - xs[first]) * v[1] + (xs[32] - xs[second]) * v[2];
                let q2 = (ws[first] - ws[0]) * v[0] * v[0]
                    + (ws[second] - ws[first]) * v[1] * v[1]
                    + (ws[32] - ws[second]) * v[2] * v[2];
                best.offer(Fit { xq, q2 }, first, second, [shift; 4]);
            }
        }
    }
    best
}

/// Finds the best levels for 16 weights of IQ1_M. Each half of them has a shift of its own.
fn split_iq1_m(x: &[f32], weights: &[f32], order: &[usize]) -> Best<2> {
    let (mut xs, mut ws) = ([[0.0; 17]; 2], [[0.0; 17]; 2]);
    for (j, &i) in order.iter().enumerate() {
        for half in 0..2 {
            let here = half == i / 8;
            xs[half][j + 1] = if here { xs[half][j] + weights[i] * x[i] } else { xs[half][j] };
            ws[half][j + 1] = if here { ws[half][j] + weights[i] } else { ws[half][j] };
        }
    }
    let mut best = Best::NONE;
    for first in 0..=16 {
        for second in first..=16 {
            let fit = |half: usize, shift: usize| {
                let (v, xs, ws) = (VALUES[shift], &xs[half], &ws[half]);
                // Neighbouring levels differ by 1. The sum over a group is therefore the highest level times the sum of
                // all weights, minus the sums of the weights below each of the two borders.
                let xq = xs[16] * v[2] - (xs[first] + xs[second]);
                let q2 = ws[16] * v[2] * v[2]
                    + ws[first] * (v[0] * v[0] - v[1] * v[1])
                    + ws[second] * (v[1] * v[1] - v[2] * v[2]);
                Fit { xq, q2 }
            };
            for shifts in [[0, 0], [0, 1], [1, 0], [1, 1]] {
                let (a, b) = (fit(0, shifts[0]), fit(1, shifts[1]));
                best.offer(Fit { xq: a.xq + b.xq, q2: a.q2 + b.q2 }, first, second, shifts);
            }
        }
    }
    best
}

/// Chooses the levels of a group, then the nearest points.
fn group<const EIGHTS: usize>(
    x: &[f32],
    weights: &[f32],
    tiny: f32,
    split: fn(&[f32], &[f32], &[usize]) -> Best<EIGHTS>,
    indices: &mut [u16],
) -> Group<EIGHTS> {
    if x.iter().all(|x| x.abs() < tiny) {
        return Group { shifts: [0; EIGHTS], scale: 0.0 };
    }
    let order = ascending(x);
    let Best { mut scale, split: Some((first, second, mut shifts)), .. } = split(x, weights, &order) else {
        return Group { shifts: [0; EIGHTS], scale: 0.0 };
    };
    let mut levels = [0; 32];
    for (j, &i) in order.iter().enumerate() {
        levels[i] = u8::from(j >= first) + u8::from(j >= second);
    }
    if scale < 0.0 {
        levels.iter_mut().for_each(|level| *level = 2 - *level);
        shifts.iter_mut().for_each(|shift| *shift = 1 - *shift);
        scale = -scale;
    }
    let mut all_exact = true;
    for (k, levels) in levels.as_chunks::<8>().0.iter().enumerate().take(EIGHTS) {
        let v = VALUES[shifts[k]];
        indices[k] = CODEBOOK.exact(levels).unwrap_or_else(|| {
            all_exact = false;
            CODEBOOK.nearest(levels, |point| {
                (0..8).fold(0.0, |sum, i| {
                    let difference = scale * v[usize::from(point[i])] - x[8 * k + i];
                    sum + weights[8 * k + i] * difference * difference
                })
            })
        });
    }
    if !all_exact {
        let mut fit = Fit::default();
        add(&mut fit, x, weights, indices, &shifts, 1.0);
        if fit.xq > 0.0 && fit.q2 > 0.0 {
            scale = fit.scale();
        }
    }
    Group { shifts, scale }
}

/// Adds the weights of an already quantized group to a fit of the scale. `factor` multiplies the values that the
/// group's codes stand for.
fn add(fit: &mut Fit, x: &[f32], weights: &[f32], indices: &[u16], shifts: &[usize], factor: f32) {
    for (k, (&index, &shift)) in indices.iter().zip(shifts).enumerate() {
        for (i, &level) in CODEBOOK.points[usize::from(index)].iter().enumerate() {
            fit.add_code_first(weights[8 * k + i], x[8 * k + i], VALUES[shift][usize::from(level)] * factor);
        }
    }
}

/// Error weights of group `i` of a block.
fn weights<const N: usize>(x: &[f32], importance: Option<&[f32]>, i: usize, sigma2: f32) -> [f32; N] {
    let mut weights = [0.0; N];
    match importance {
        Some(importance) => weigh(&x[N * i..], &importance[N * i..], sigma2, &mut weights),
        None => weights.iter_mut().zip(&x[N * i..]).for_each(|(w, x)| *w = x * x),
    }
    weights
}

/// Quantizes the scales of the groups to `codes`. Returns the scale that belongs to these codes.
fn code_scales(scales: impl Iterator<Item = f32> + Clone, codes: &mut [u8; 16]) -> f32 {
    let d = scales.clone().fold(0.0, |max: f32, scale| max.max(scale)) / 15.0;
    let inverse = 1.0 / d;
    if d > 0.0 {
        codes.iter_mut().zip(scales).for_each(|(c, s)| *c = nearest(0.5 * (inverse * s - 1.0)).clamp(0, 7) as u8);
    }
    d
}

pub fn iq1_s(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (b, (x, out)) in row.chunks_exact(256).zip(out.chunks_exact_mut(50)).enumerate() {
        let importance = importance.map(|importance| &importance[b * 256..]);
        let sigma2 = 2.0 * sum_of_squares(x) / 256.0;
        let mut block = Block::ZERO;
        let groups: [Group<4>; 8] = std::array::from_fn(|i| {
            let weights: [f32; 32] = weights(x, importance, i, sigma2);
            group(&x[32 * i..][..32], &weights, 1e-12, split_iq1_s, &mut block.indices[4 * i..][..4])
        });
        let d = code_scales(groups.iter().map(|group| group.scale), &mut block.scales);
        block.d = f16::from_f32(d * 1.125); // empirical factor from ggml
        pack_iq1_s(&block, &groups.map(|group| group.shifts[0]), out);
    }
}

fn pack_iq1_s(block: &Block, shifts: &[usize; 8], out: &mut [u8]) {
    out[..2].copy_from_slice(&block.d.to_le_bytes());
    for (i, &index) in block.indices[..32].iter().enumerate() {
        out[2 + i] = index as u8;
    }
    for (i, four) in block.indices[..32].chunks_exact(4).enumerate() {
        let high = (0..4).fold(0, |bits, k| bits | (four[k] >> 8) << (3 * k));
        let bits = high | u16::from(block.scales[i]) << 12 | (shifts[i] as u16) << 15;
        out[34 + 2 * i..][..2].copy_from_slice(&bits.to_le_bytes());
    }
}

pub fn iq1_m(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (b, (x, out)) in row.chunks_exact(256).zip(out.chunks_exact_mut(56)).enumerate() {
        let importance = importance.map(|importance| &importance[b * 256..]);
        let sigma2 = 2.0 * sum_of_squares(x) / 256.0;
        let mut block = Block::ZERO;
        let groups: [Group<2>; 16] = std::array::from_fn(|i| {
            let weights: [f32; 16] = weights(x, importance, i, sigma2);
            group(&x[16 * i..][..16], &weights, 1e-7, split_iq1_m, &mut block.indices[2 * i..][..2])
        });
        let mut d = code_scales(groups.iter().map(|group| group.scale), &mut block.scales);
        if d > 0.0 {
            let mut fit = Fit::default();
            for (i, group) in groups.iter().enumerate() {
                let weights: [f32; 16] = weights(x, importance, i, sigma2);
                let factor = f32::from(2 * block.scales[i] + 1);
                add(&mut fit, &x[16 * i..], &weights, &block.indices[2 * i..][..2], &group.shifts, factor);
            }
            d = if fit.q2 > 0.0 { fit.scale() } else { d };
        }
        block.d = f16::from_f32(d * 1.1125); // empirical factor from ggml
        pack_iq1_m(&block, &groups.map(|group| group.shifts), out);
    }
}

fn pack_iq1_m(block: &Block, shifts: &[[usize; 2]; 16], out: &mut [u8]) {
    for (i, &index) in block.indices[..32].iter().enumerate() {
        out[i] = index as u8;
    }
    for (i, pair) in block.indices[..32].chunks_exact(2).enumerate() {
        let half = |k: usize| (pair[k] >> 8) as u8 | (shifts[i][k] as u8) << 3;
        out[32 + i] = half(0) | half(1) << 4;
    }
    for (i, four) in block.scales.chunks_exact(4).enumerate() {
        let scales = (0..4).fold(0, |bits, k| bits | u16::from(four[k]) << (3 * k));
        let d = block.d.to_bits() >> (4 * i) & 15; // each nibble of `d` is stored above four scales
        out[48 + 2 * i..][..2].copy_from_slice(&(scales | d << 12).to_le_bytes());
    }
}
