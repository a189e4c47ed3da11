//! Q2_K to Q6_K: blocks of 256 weights in groups of 16 or 32. The scales of the groups are also quantized.

use half::f16;

use super::search::{
    TINY, Tries, WEIGHTED, affine, extreme, nearest, positive, sum_of_squares, symmetric, symmetric_by_descent, weigh,
};

/// Returns the importances of the 256 weights of a row from index `at` on.
fn part(importance: Option<&[f32]>, at: usize) -> Option<&[f32]> {
    importance.map(|importance| &importance[at..at + 256])
}

fn put_f16(x: f32, out: &mut [u8]) -> f32 {
    let x = f16::from_f32(x);
    out.copy_from_slice(&x.to_le_bytes());
    x.to_f32()
}

/// Packs codes of two bits. Each half of 128 codes takes 32 bytes; its quarter `q` goes to bits `2q` and `2q + 1`.
pub fn pack_two_bits(codes: &[u8; 256], out: &mut [u8]) {
    for (codes, out) in codes.chunks_exact(128).zip(out.chunks_exact_mut(32)) {
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = (0..4).fold(0, |byte, k| byte | (codes[i + 32 * k] & 3) << (2 * k));
        }
    }
}

/// Packs the low nibbles of codes. Each quarter of 64 codes takes 32 bytes: its first half goes to the low nibbles, its
/// second half to the high nibbles.
fn pack_nibbles(codes: &[u8; 256], out: &mut [u8]) {
    for (codes, out) in codes.chunks_exact(64).zip(out.chunks_exact_mut(32)) {
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = codes[i] & 15 | codes[i + 32] << 4;
        }
    }
}

/// Packs bit `bit` of every code. Byte `i` holds the bits of codes `i`, `i + 32`, ..., beginning with the lowest bit.
fn pack_bit(codes: &[u8; 256], bit: u32, out: &mut [u8]) {
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = (0..8).fold(0, |byte, k| byte | (codes[i + 32 * k] >> bit & 1) << k);
    }
}

/// A format with a scale and a minimum per group.
struct Affine {
    group: usize,
    top: i32,
    /// Largest code of a group's scale or minimum.
    scale_top: i32,
    /// The scales tried without an importance matrix.
    plain: Tries,
}

/// A block of an [`Affine`] format.
struct AffineBlock {
    codes: [u8; 256],
    scales: [u8; 16],
    mins: [u8; 16],
    d: f16,
    dmin: f16,
}

const Q2_K: Affine =
    Affine { group: 16, top: 3, scale_top: 15, plain: Tries { first: -0.5, step: 0.1, steps: 15, by_magnitude: true } };
const Q4_K: Affine = Affine {
    group: 32,
    top: 15,
    scale_top: 63,
    plain: Tries { first: -1.0, step: 0.1, steps: 20, by_magnitude: false },
};
const Q5_K: Affine = Affine {
    group: 32,
    top: 31,
    scale_top: 63,
    plain: Tries { first: -0.5, step: 0.1, steps: 15, by_magnitude: false },
};

impl Affine {
    fn block(&self, x: &[f32], importance: Option<&[f32]>) -> AffineBlock {
        let groups = 256 / self.group;
        let mut block = AffineBlock { codes: [0; 256], scales: [0; 16], mins: [0; 16], d: f16::ZERO, dmin: f16::ZERO };
        let (mut scales, mut mins, mut sums) = ([0.0; 16], [0.0; 16], [0.0; 16]);
        let sigma2 = sum_of_squares(x) / if self.group == 16 { 256.0 } else { 128.0 };
        for i in 0..groups {
            let at = i * self.group;
            let (x, codes) = (&x[at..at + self.group], &mut block.codes[at..at + self.group]);
            let mut weights = [0.0; 32];
            let weights = &mut weights[..self.group];
            let tries = match importance {
                Some(importance) => {
                    weigh(x, &importance[at..], sigma2, weights);
                    WEIGHTED
                }
                None => {
                    let base = if self.group == 16 { 0.0 } else { (sum_of_squares(x) / 32.0).sqrt() };
                    weights.iter_mut().zip(x).for_each(|(w, x)| *w = base + x.abs());
                    self.plain
                }
            };
            sums[i] = weights.iter().sum();
            (scales[i], mins[i]) = affine(self.top, x, weights, tries, codes);
        }
        let coded = |x: &[f32], codes: &mut [u8]| match importance {
            Some(_) => positive(self.scale_top, x, &sums[..groups], codes),
            None => {
                let max = x.iter().fold(0.0, |max: f32, &x| if x > max { x } else { max });
                let inverse = if max > 0.0 { self.scale_top as f32 / max } else { 0.0 };
                codes.iter_mut().zip(x).for_each(|(c, x)| *c = nearest(inverse * x).min(self.scale_top) as u8);
                max / self.scale_top as f32
            }
        };
        block.d = f16::from_f32(coded(&scales[..groups], &mut block.scales[..groups]));
        block.dmin = f16::from_f32(coded(&mins[..groups], &mut block.mins[..groups]));
        // Recomputes the codes for the stored scales and minimums.
        for i in 0..groups {
            let d = block.d.to_f32() * f32::from(block.scales[i]);
            let min = block.dmin.to_f32() * f32::from(block.mins[i]);
            if d != 0.0 {
                let at = i * self.group;
                let codes = &mut block.codes[at..at + self.group];
                codes.iter_mut().zip(&x[at..]).for_each(|(c, x)| *c = nearest((x + min) / d).clamp(0, self.top) as u8);
            }
        }
        block
    }
}

/// Packs eight scales and eight minimums of six bits into 12 bytes.
fn pack_six_bits(scales: &[u8; 16], mins: &[u8; 16], out: &mut [u8]) {
    for j in 0..4 {
        out[j] = scales[j] & 63 | scales[j + 4] >> 4 << 6;
        out[j + 4] = mins[j] & 63 | mins[j + 4] >> 4 << 6;
        out[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
}

pub fn q2_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (i, (x, out)) in row.chunks_exact(256).zip(out.chunks_exact_mut(84)).enumerate() {
        let block = Q2_K.block(x, part(importance, i * 256));
        for ((byte, scale), min) in out.iter_mut().zip(block.scales).zip(block.mins) {
            *byte = scale | min << 4;
        }
        pack_two_bits(&block.codes, &mut out[16..80]);
        out[80..82].copy_from_slice(&block.d.to_le_bytes());
        out[82..84].copy_from_slice(&block.dmin.to_le_bytes());
    }
}

pub fn q4_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (i, (x, out)) in row.chunks_exact(256).zip(out.chunks_exact_mut(144)).enumerate() {
        let block = Q4_K.block(x, part(importance, i * 256));
        out[..2].copy_from_slice(&block.d.to_le_bytes());
        out[2..4].copy_from_slice(&block.dmin.to_le_bytes());
        pack_six_bits(&block.scales, &block.mins, &mut out[4..16]);
        pack_nibbles(&block.codes, &mut out[16..]);
    }
}

pub fn q5_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (i, (x, out)) in row.chunks_exact(256).zip(out.chunks_exact_mut(176)).enumerate() {
        let block = Q5_K.block(x, part(importance, i * 256));
        out[..2].copy_from_slice(&block.d.to_le_bytes());
        out[2..4].copy_from_slice(&block.dmin.to_le_bytes());
        pack_six_bits(&block.scales, &block.mins, &mut out[4..16]);
        pack_bit(&block.codes, 4, &mut out[16..48]);
        pack_nibbles(&block.codes, &mut out[48..]);
    }
}

/// Recomputes the codes for the stored scales.
fn recode(x: &[f32], d: f32, scales: impl Iterator<Item = i32>, top: i32, codes: &mut [u8; 256]) {
    for ((x, codes), scale) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).zip(scales) {
        let d = d * scale as f32;
        if d != 0.0 {
            codes.iter_mut().zip(x).for_each(|(c, x)| *c = (nearest(x / d).clamp(-top, top - 1) + top) as u8);
        }
    }
}

pub fn q3_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (i, (x, out)) in row.chunks_exact(256).zip(out.chunks_exact_mut(110)).enumerate() {
        let (mut codes, mut scales, mut coded, mut sums) = ([0; 256], [0.0; 16], [0; 16], [0.0; 16]);
        let sigma2 = 2.0 * sum_of_squares(x) / 256.0;
        for (j, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
            scales[j] = match part(importance, i * 256) {
                Some(importance) => {
                    let mut weights = [0.0; 16];
                    weigh(x, &importance[j * 16..], sigma2, &mut weights);
                    sums[j] = weights.iter().sum();
                    symmetric(4, x, &weights, codes)
                }
                None => symmetric_by_descent(4, x, codes),
            };
        }
        let d = if importance.is_some() {
            symmetric(32, &scales, &sums, &mut coded)
        } else {
            let max = extreme(&scales);
            let inverse = -32.0 / max;
            if max != 0.0 {
                let code = |scale: &f32| (nearest(inverse * scale).clamp(-32, 31) + 32) as u8;
                coded.iter_mut().zip(&scales).for_each(|(c, scale)| *c = code(scale));
                1.0 / inverse
            } else {
                0.0
            }
        };
        let d = put_f16(d, &mut out[108..]);
        recode(x, d, coded.iter().map(|&c| i32::from(c) - 32), 4, &mut codes);
        pack_bit(&codes, 2, &mut out[..32]);
        pack_two_bits(&codes, &mut out[32..96]);
        let (low, high) = out[96..108].split_at_mut(8);
        for j in 0..8 {
            low[j] = coded[j] & 15 | coded[j + 8] << 4;
        }
        for j in 0..4 {
            high[j] = (0..4).fold(0, |byte, k| byte | (coded[j + 4 * k] >> 4 & 3) << (2 * k));
        }
    }
}

pub fn q6_k(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (i, (x, out)) in row.chunks_exact(256).zip(out.chunks_exact_mut(210)).enumerate() {
        let (mut codes, mut scales) = ([0; 256], [0.0; 16]);
        for (j, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
            let squares: [f32; 16] = std::array::from_fn(|l| x[l] * x[l]);
            let weights = part(importance, i * 256).map_or(&squares[..], |importance| &importance[j * 16..]);
            scales[j] = symmetric(32, x, weights, codes);
        }
        let max = extreme(&scales);
        if max.abs() < TINY {
            out.fill(0);
            continue;
        }
        let inverse = -128.0 / max;
        let coded = scales.map(|scale| nearest(inverse * scale).min(127) as i8);
        let d = put_f16(1.0 / inverse, &mut out[208..]);
        recode(x, d, coded.iter().map(|&c| i32::from(c)), 32, &mut codes);
        for (half, codes) in codes.chunks_exact(128).enumerate() {
            for l in 0..32 {
                out[64 * half + l] = codes[l] & 15 | codes[l + 64] << 4;
                out[64 * half + 32 + l] = codes[l + 32] & 15 | codes[l + 96] << 4;
                out[128 + 32 * half + l] = (0..4).fold(0, |byte, k| byte | (codes[l + 32 * k] >> 4) << (2 * k));
            }
        }
        out[192..208].iter_mut().zip(coded).for_each(|(byte, c)| *byte = c as u8);
    }
}
