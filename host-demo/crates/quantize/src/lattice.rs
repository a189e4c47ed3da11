//! IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S: signs are stored apart, and the magnitudes of 8 or 4 weights are one
//! point of a codebook.
//!
//! The search is ggml's (`quantize_row_iq*_impl`), written once for all five formats; a table holds their
//! differences.

use std::sync::OnceLock;

use arenite::quant::{TensorType, decode_row};
use half::f16;

use super::search::{Fit, TINY, nearest, positive, sum_of_squares, weigh};

/// The contents of a block of 256 weights, before packing.
pub struct Block {
    pub d: f16,
    /// Index of the codebook point for each 8 or 4 weights.
    pub indices: [u16; 64],
    /// Signs of the weights: one byte for each 8 weights. The lowest bit belongs to the first weight; a set bit means
    /// negative.
    pub signs: [u8; 32],
    /// Code of each group's scale.
    pub scales: [u8; 16],
}

impl Block {
    pub const ZERO: Self = Self { d: f16::ZERO, indices: [0; 64], signs: [0; 32], scales: [0; 16] };
}

/// The codebook of a format: points of `D` weights, as levels. A magnitude is `2 * level + 1` times the scale.
pub struct Codebook<const D: usize> {
    pub points: Vec<[u8; D]>,
    /// For each [`key`](Self::key) of levels, the point with exactly these levels; `None` if there is no such point.
    on_grid: Vec<Option<u16>>,
    /// For each [`key`](Self::key) of levels that are not a point, the range of nearby points in `neighbours`.
    near: Vec<(u32, u32)>,
    neighbours: Vec<u16>,
}

impl<const D: usize> Codebook<D> {
    /// Bits per level in a key.
    const BITS: usize = if D == 8 { 2 } else { 3 };

    /// Builds the codebook of a format. The points are decoded by the format's decoder, so the program has only one
    /// table of points. Levels that are not a point have neighbours: all points at the `distances` smallest distances.
    pub fn read(kind: TensorType, count: u16, levels: u8, distances: usize, pack: fn(&Block, &mut [u8])) -> Self {
        let mut bytes = vec![0; kind.block().1];
        let mut values = Vec::new();
        for first in (0..count).step_by(256 / D) {
            let mut block = Block { d: f16::ONE, ..Block::ZERO };
            block.indices.iter_mut().zip(first..).take(256 / D).for_each(|(index, i)| *index = i);
            pack(&block, &mut bytes);
            let mut row = [0.0; 256];
            assert!(decode_row(kind, &bytes, &mut row), "the core decodes {kind:?}");
            values.extend(row.as_chunks::<D>().0.iter().copied());
        }
        // A level is the rank of its value.
        let mut ranks: Vec<f32> = values.iter().flatten().copied().collect();
        ranks.sort_by(f32::total_cmp);
        ranks.dedup();
        assert_eq!(ranks.len(), usize::from(levels), "levels of {kind:?}");
        let level = |value: f32| ranks.partition_point(|&rank| rank < value) as u8;
        let points: Vec<[u8; D]> = values.iter().map(|point| point.map(level)).collect();

        let mut book = Self {
            on_grid: vec![None; 1 << (Self::BITS * D)],
            near: vec![(0, 0); 1 << (Self::BITS * D)],
            neighbours: Vec::new(),
            points,
        };
        for (point, i) in book.points.iter().zip(0..) {
            book.on_grid[Self::key(point)] = Some(i);
        }
        for key in 0..book.near.len() {
            let wanted: [u8; D] = std::array::from_fn(|i| (key >> (Self::BITS * i)) as u8 & ((1 << Self::BITS) - 1));
            if book.on_grid[key].is_none() && wanted.iter().all(|&level| level < levels) {
                book.add_neighbours(key, &wanted, distances);
            }
        }
        book
    }

    fn add_neighbours(&mut self, key: usize, wanted: &[u8; D], distances: usize) {
        let distance =
            |point: &[u8; D]| -> u32 { point.iter().zip(wanted).map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2)).sum() };
        let mut all: Vec<(u32, u16)> = self.points.iter().map(distance).zip(0..).collect();
        let mut furthest = 0;
        for _ in 0..distances {
            let next = all.iter().map(|(d, _)| *d).filter(|&d| d > furthest).min();
            furthest = next.unwrap_or(furthest);
        }
        all.retain(|(d, _)| *d <= furthest);
        all.sort_unstable();
        let start = self.neighbours.len() as u32;
        self.neighbours.extend(all.iter().map(|(_, i)| i));
        self.near[key] = (start, self.neighbours.len() as u32);
    }

    fn key(levels: &[u8; D]) -> usize {
        levels.iter().rev().fold(0, |key, &level| key << Self::BITS | usize::from(level))
    }

    /// The point with exactly these levels.
    pub fn exact(&self, levels: &[u8; D]) -> Option<u16> {
        self.on_grid[Self::key(levels)]
    }

    /// Returns the grid point near `levels` that has the smallest `error`. If several points have the same error,
    /// returns the first of them.
    pub fn nearest(&self, levels: &[u8; D], error: impl Fn(&[u8; D]) -> f32) -> u16 {
        let (start, end) = self.near[Self::key(levels)];
        let (mut least, mut best) = (f32::MAX, 0);
        for &i in &self.neighbours[start as usize..end as usize] {
            let error = error(&self.points[usize::from(i)]);
            if error < least {
                (least, best) = (error, i);
            }
        }
        best
    }
}

/// The points that are searched again for the final scale.
#[derive(Clone, Copy, PartialEq)]
enum Again {
    /// All points.
    Always,
    /// All points, if at least one was not exactly on the grid.
    AllIfOff,
    /// Only points that were not exactly on the grid.
    Off,
}

/// Parameters of one of the five formats.
pub struct Lattice<const D: usize> {
    kind: TensorType,
    /// Number of weights that share a scale.
    group: usize,
    levels: u8,
    points: u16,
    /// Number of distances at which neighbours are tried.
    distances: usize,
    /// Number of scales that are tried below the first scale, and number that are tried above it.
    tries: i8,
    step: f32,
    /// True if the search for a scale starts with the best scale of plain rounding. Otherwise it starts with a scale
    /// that follows from the largest magnitude.
    rounded_first: bool,
    again: Again,
    /// True if the format stores only seven of eight signs. The number of negative signs in eight must then be even,
    /// because readers derive the eighth sign.
    even_signs: bool,
    /// If all magnitudes of a group are below this value, the group is encoded as zeros.
    tiny: f32,
    /// Used with an importance matrix: multiple of the block's mean square that [`weigh`] adds to the square of each
    /// weight.
    sigma: f32,
    /// Used without an importance matrix: an error in a weight then costs the square of the weight plus this factor
    /// times `sigma` times the mean square.
    flat: f32,
    /// Empirical factor from ggml for the final scale.
    fudge: f32,
    pack: fn(&Block, &mut [u8]),
    codebook: OnceLock<Codebook<D>>,
}

pub static IQ2_XXS: Lattice<8> = Lattice {
    kind: TensorType::IQ2_XXS,
    group: 32,
    levels: 3,
    points: 256,
    distances: 2,
    tries: 6,
    step: 0.1,
    rounded_first: true,
    again: Again::Always,
    even_signs: true,
    tiny: TINY,
    sigma: 1.0,
    flat: 0.0,
    fudge: 1.0,
    pack: |block, out| {
        put_d(block, out);
        for (i, out) in out[2..].chunks_exact_mut(8).enumerate() {
            out[..4].iter_mut().zip(&block.indices[4 * i..]).for_each(|(byte, &index)| *byte = index as u8);
            out[4..].copy_from_slice(&signs_and_scale(block, i));
        }
    },
    codebook: OnceLock::new(),
};

pub static IQ2_XS: Lattice<8> = Lattice {
    kind: TensorType::IQ2_XS,
    group: 16,
    levels: 3,
    points: 512,
    distances: 2,
    tries: 9,
    step: 0.1,
    rounded_first: false,
    again: Again::Off,
    even_signs: true,
    tiny: TINY,
    sigma: 1.0,
    flat: 0.0,
    fudge: 1.0,
    pack: |block, out| {
        put_d(block, out);
        for (i, out) in out[2..66].chunks_exact_mut(2).enumerate() {
            out.copy_from_slice(&(block.indices[i] | u16::from(block.signs[i]) << 9).to_le_bytes());
        }
        put_scales(block, &mut out[66..]);
    },
    codebook: OnceLock::new(),
};

pub static IQ2_S: Lattice<8> = Lattice {
    kind: TensorType::IQ2_S,
    group: 16,
    levels: 3,
    points: 1024,
    distances: 1,
    tries: 9,
    step: 0.1,
    rounded_first: false,
    again: Again::Off,
    even_signs: false,
    tiny: 1e-8,
    sigma: 2.0,
    flat: 0.25,
    fudge: 0.9875,
    pack: |block, out| {
        put_d(block, out);
        for (i, &index) in block.indices[..32].iter().enumerate() {
            out[2 + i] = index as u8;
        }
        out[34..66].copy_from_slice(&block.signs);
        for (byte, four) in out[66..74].iter_mut().zip(block.indices.chunks_exact(4)) {
            *byte = (0..4).fold(0, |byte, k| byte | ((four[k] >> 8) as u8) << (2 * k));
        }
        put_scales(block, &mut out[74..]);
    },
    codebook: OnceLock::new(),
};

pub static IQ3_XXS: Lattice<4> = Lattice {
    kind: TensorType::IQ3_XXS,
    group: 32,
    levels: 8,
    points: 256,
    distances: 2,
    tries: 15,
    step: 0.2,
    rounded_first: false,
    again: Again::Off,
    even_signs: true,
    tiny: 1e-8,
    sigma: 2.0,
    flat: 0.0,
    fudge: 1.0125,
    pack: |block, out| {
        put_d(block, out);
        out[2..66].iter_mut().zip(&block.indices).for_each(|(byte, &index)| *byte = index as u8);
        for (i, out) in out[66..].chunks_exact_mut(4).enumerate() {
            out.copy_from_slice(&signs_and_scale(block, i));
        }
    },
    codebook: OnceLock::new(),
};

pub static IQ3_S: Lattice<4> = Lattice {
    kind: TensorType::IQ3_S,
    group: 32,
    levels: 8,
    points: 512,
    distances: 3,
    tries: 9,
    step: 0.2,
    rounded_first: false,
    again: Again::AllIfOff,
    even_signs: false,
    tiny: f32::from_bits(1),
    sigma: 2.0,
    flat: 0.0,
    fudge: 1.033,
    pack: |block, out| {
        put_d(block, out);
        out[2..66].iter_mut().zip(&block.indices).for_each(|(byte, &index)| *byte = index as u8);
        for (byte, eight) in out[66..74].iter_mut().zip(block.indices.chunks_exact(8)) {
            *byte = (0..8).fold(0, |byte, k| byte | ((eight[k] >> 8) as u8) << k);
        }
        out[74..106].copy_from_slice(&block.signs);
        put_scales(block, &mut out[106..]);
    },
    codebook: OnceLock::new(),
};

fn put_d(block: &Block, out: &mut [u8]) {
    out[..2].copy_from_slice(&block.d.to_le_bytes());
}

/// Packs scales of four bits.
fn put_scales(block: &Block, out: &mut [u8]) {
    for (byte, pair) in out.iter_mut().zip(block.scales.chunks_exact(2)) {
        *byte = pair[0] | pair[1] << 4;
    }
}

/// Packs the signs of the 32 weights of group `i`, seven bits for each eight weights, and the group's scale in the
/// upper four bits.
fn signs_and_scale(block: &Block, i: usize) -> [u8; 4] {
    let signs = block.signs[4 * i..][..4].iter().rev().fold(0, |bits, &signs| bits << 7 | u32::from(signs));
    (signs | u32::from(block.scales[i]) << 28).to_le_bytes()
}

impl<const D: usize> Lattice<D> {
    pub fn encode(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let bytes = self.kind.block().1;
        for (i, (x, out)) in row.chunks_exact(256).zip(out.chunks_exact_mut(bytes)).enumerate() {
            (self.pack)(&self.block(x, importance.map(|importance| &importance[i * 256..])), out);
        }
    }

    fn block(&self, x: &[f32], importance: Option<&[f32]>) -> Block {
        let sigma2 = self.sigma * sum_of_squares(x) / 256.0;
        let mut block = Block::ZERO;
        let mut scales = [0.0; 16];
        for (i, x) in x.chunks_exact(self.group).enumerate() {
            let (mut weights, mut magnitudes) = ([0.0; 32], [0.0; 32]);
            let (weights, magnitudes) = (&mut weights[..self.group], &mut magnitudes[..self.group]);
            match importance {
                Some(importance) => weigh(x, &importance[i * self.group..], sigma2, weights),
                None => weights.iter_mut().zip(x).for_each(|(w, x)| *w = self.flat * sigma2 + x * x),
            }
            let signs = &mut block.signs[i * self.group / 8..][..self.group / 8];
            self.signs(x, weights, magnitudes, signs);
            let indices = &mut block.indices[i * self.group / D..][..self.group / D];
            scales[i] = match self.group_of(magnitudes, weights, indices) {
                Some(scale) if scale < 0.0 => {
                    let all = if self.even_signs { 127 } else { 255 };
                    signs.iter_mut().for_each(|signs| *signs ^= all);
                    -scale
                }
                Some(scale) => scale,
                None => {
                    signs.fill(0);
                    0.0
                }
            };
        }
        let max = scales.iter().fold(0.0, |max: f32, &scale| max.max(scale));
        if max == 0.0 {
            return Block::ZERO;
        }
        let d = max / 31.0;
        block.d = f16::from_f32(d * self.fudge);
        let inverse = 1.0 / d;
        for (code, scale) in block.scales.iter_mut().zip(&scales[..256 / self.group]) {
            *code = nearest(0.5 * (inverse * scale - 1.0)).clamp(0, 15) as u8;
        }
        block
    }

    /// Splits weights into magnitudes and sign bits. If the number of negative signs must be even, the least important
    /// weight gets the wrong sign and a negative magnitude.
    fn signs(&self, x: &[f32], weights: &[f32], magnitudes: &mut [f32], signs: &mut [u8]) {
        let eights = x.chunks_exact(8).zip(weights.chunks_exact(8)).zip(magnitudes.chunks_exact_mut(8));
        for (((x, weights), magnitudes), signs) in eights.zip(signs) {
            *signs = (0..8).fold(0, |bits, i| bits | u8::from(x[i] < 0.0) << i);
            magnitudes.iter_mut().zip(x).for_each(|(m, x)| *m = if *x >= 0.0 { *x } else { -x });
            if self.even_signs {
                if signs.count_ones() % 2 == 1 {
                    let cost = |i: usize| weights[i] * x[i] * x[i];
                    let least = (1..8).fold(0, |least, i| if cost(i) < cost(least) { i } else { least });
                    magnitudes[least] = -magnitudes[least];
                    *signs ^= 1 << least;
                }
                *signs &= 127;
            }
        }
    }

    /// Finds the codebook's point for each group of 8 or 4 magnitudes, and the scale that these groups share. Returns
    /// the scale; `None` if all weights count as zeros.
    fn group_of(&self, x: &[f32], weights: &[f32], indices: &mut [u16]) -> Option<f32> {
        let codebook = self
            .codebook
            .get_or_init(|| Codebook::read(self.kind, self.points, self.levels, self.distances, self.pack));
        let max = x.iter().fold(x[0], |max, &x| if max > x { max } else { x });
        if max < self.tiny {
            return None;
        }
        let (mut scale, span) = if self.rounded_first {
            let levels = i32::from(self.levels);
            let scale = positive(levels + 1, x, weights, &mut [0; 32][..x.len()]);
            (scale, scale * levels as f32)
        } else {
            (max / f32::from(2 * self.levels - 1), max)
        };
        if span <= 0.0 {
            return None;
        }
        let mut roots = [0.0; 32];
        roots.iter_mut().zip(weights).for_each(|(root, weight)| *root = weight.sqrt());
        let (x_points, root_points) = (x.as_chunks::<D>().0, roots.as_chunks::<D>().0);
        // Finds the codebook's point for group `k` of the weights, which are divided by `scale`. The second value is
        // true if the point has exactly the rounded levels.
        let find = |k: usize, inverse: f32, scale: f32| {
            let (x, roots) = (&x_points[k], &root_points[k]);
            let top = i32::from(self.levels) - 1;
            let levels = x.map(|x| nearest(0.5 * (inverse * x - 1.0)).clamp(0, top) as u8);
            match codebook.exact(&levels) {
                Some(index) => (index, true),
                None => {
                    let error = |point: &[u8; D]| {
                        (0..D).fold(0.0, |sum, i| {
                            let difference = scale * f32::from(2 * point[i] + 1) - x[i];
                            sum + roots[i] * difference * difference
                        })
                    };
                    (codebook.nearest(&levels, error), false)
                }
            }
        };
        let fit = |indices: &[u16]| {
            let mut fit = Fit::default();
            for (k, &index) in indices.iter().enumerate() {
                for (i, &level) in codebook.points[usize::from(index)].iter().enumerate() {
                    fit.add(weights[k * D + i], x[k * D + i], f32::from(2 * level + 1));
                }
            }
            fit
        };
        let mut best = 0.0;
        let mut exact = [self.again == Again::Off; 8];
        let exact = &mut exact[..indices.len()];
        for step in -self.tries..=self.tries {
            let inverse = (f32::from(2 * self.levels - 1) + f32::from(step) * self.step) / span;
            let (mut tried, mut tried_exact) = ([0; 8], [false; 8]);
            for k in 0..indices.len() {
                (tried[k], tried_exact[k]) = find(k, inverse, 1.0 / inverse);
            }
            let fit = fit(&tried[..indices.len()]);
            if fit.beats(best) {
                scale = fit.scale();
                best = scale * fit.xq;
                indices.copy_from_slice(&tried[..indices.len()]);
                exact.copy_from_slice(&tried_exact[..indices.len()]);
            }
        }
        if scale > 0.0 && (self.again == Again::Always || exact.contains(&false)) {
            for k in 0..indices.len() {
                if self.again != Again::Off || !exact[k] {
                    indices[k] = find(k, 1.0 / scale, scale).0;
                }
            }
            let fit = fit(indices);
            if fit.q2 > 0.0 {
                scale = fit.scale();
            }
        }
        Some(scale)
    }
}
