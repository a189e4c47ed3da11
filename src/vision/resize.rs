//! Resizes pictures with the bits of Pillow's `Image.resize` before version 13.
//!
//! The horizontal pass comes first, and each pass rounds to bytes; a pass that would not change the picture's size is
//! left out. An output pixel is a weighted sum of the input pixels around the output's center. When a picture shrinks,
//! the filter is widened by the scale, which removes details that the smaller picture cannot show. Weights are computed
//! in f64 and rounded to 22 fraction bits, so that the sums are exact in integers.

use bytemuck::{Pod, Zeroable};

use crate::kernel::fork_chunks;
use crate::workers::Workers;

/// Fraction bits of weights.
const BITS: u32 = 22;
/// Bytes of a pixel.
pub(super) const PIXEL: usize = 3;

/// The function that weighs inputs by their distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Bilinear,
    /// With `a = -0.5`.
    Bicubic,
    /// `sinc(x) sinc(x / 3)`.
    Lanczos,
}

impl Filter {
    /// Distance from which on weights are 0.
    const fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let far = if x < 0.0 { -x } else { x };
        match self {
            Self::Bilinear if far < 1.0 => 1.0 - far,
            Self::Bicubic if far < 1.0 => ((A + 2.0) * far - (A + 3.0)) * far * far + 1.0,
            Self::Bicubic if far < 2.0 => (((far - 5.0) * far + 8.0) * far - 4.0) * A,
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }

    /// For resizing `from` pixels to `to` pixels, returns the number of inputs per output, the factor by which the
    /// filter is widened, and how far the widened filter reaches to each side.
    const fn reach(self, from: usize, to: usize) -> (f64, f64, f64) {
        let scale = from as f64 / to as f64;
        let widened = if scale < 1.0 { 1.0 } else { scale };
        (scale, widened, self.support() * widened)
    }

    /// Returns an upper limit for the number of input pixels from which an output pixel is computed.
    pub const fn taps(self, from: usize, to: usize) -> usize {
        let (.., reach) = self.reach(from, to);
        2 * (reach as usize) + 3
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * core::f64::consts::PI;
    libm::sin(x) / x
}

/// The inputs that an output depends on.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Bound {
    first: u32,
    count: u32,
}

/// Memory for the weights of one pass.
pub(super) struct Table<'t> {
    /// `[outputs][taps]`
    pub weights: &'t mut [i32],
    pub bounds: &'t mut [Bound],
}

impl Table<'_> {
    /// Computes, for a resizing pass from `from` pixels to `to` pixels, the weights of the inputs for each output.
    fn pass(&mut self, filter: Filter, from: usize, to: usize) -> Pass<'_> {
        let taps = filter.taps(from, to);
        let (scale, widened, reach) = filter.reach(from, to);
        let narrowed = 1.0 / widened;
        let weights = self.weights.get_mut(..taps * to).unwrap_or_default();
        let bounds = self.bounds.get_mut(..to).unwrap_or_default();
        for (i, (bound, weights)) in bounds.iter_mut().zip(weights.chunks_mut(taps.max(1))).enumerate() {
            let center = (i as f64 + 0.5) * scale;
            // Conversions truncate; negative numbers become 0.
            let first = (center - reach + 0.5) as usize;
            let last = ((center + reach + 0.5) as usize).min(from);
            let weight = |input: usize| filter.weight((input as f64 - center + 0.5) * narrowed);
            let total: f64 = (first..last).map(weight).sum();
            let total = if total == 0.0 { 1.0 } else { total };
            for (input, to) in (first..last).zip(weights.iter_mut()) {
                let share = weight(input) / total * f64::from(1 << BITS);
                *to = (if share < 0.0 { share - 0.5 } else { share + 0.5 }) as i32;
            }
            *bound = Bound { first: first as u32, count: last.saturating_sub(first).min(taps) as u32 };
        }
        Pass { weights, bounds, taps }
    }
}

/// The weights of a pass.
struct Pass<'t> {
    weights: &'t [i32],
    bounds: &'t [Bound],
    taps: usize,
}

impl Pass<'_> {
    /// For each output from `output` on: the index of the first input that contributes to it, and the weights of the
    /// inputs from there on.
    fn from(&self, output: usize) -> impl Iterator<Item = (usize, &[i32])> {
        let weights = self.weights.chunks(self.taps.max(1)).skip(output);
        let bounds = self.bounds.iter().skip(output);
        bounds
            .zip(weights)
            .map(|(bound, weights)| (bound.first as usize, weights.get(..bound.count as usize).unwrap_or(&[])))
    }
}

/// Rows of RGB bytes.
#[derive(Clone, Copy)]
pub(super) struct Plane<'p> {
    pub bytes: &'p [u8],
    pub width: usize,
    pub height: usize,
    /// Bytes from one row to the next.
    pub stride: usize,
}

impl<'p> Plane<'p> {
    /// Rows without padding.
    pub fn packed(bytes: &'p [u8], (width, height): (usize, usize)) -> Self {
        Self { bytes, width, height, stride: PIXEL * width }
    }

    /// The bytes of row `y`.
    pub fn row(&self, y: usize) -> &'p [u8] {
        self.bytes.get(y * self.stride..).and_then(|rest| rest.get(..PIXEL * self.width)).unwrap_or(&[])
    }
}

/// Resizes `from` to `(width, height)` in `to`, which has exactly that many pixels. `middle` has room for
/// `width * from.height` pixels.
pub(super) fn resize(
    workers: &dyn Workers,
    filter: Filter,
    from: Plane<'_>,
    (to, (width, height)): (&mut [u8], (usize, usize)),
    middle: &mut [u8],
    table: &mut Table<'_>,
) {
    if height == from.height {
        return horizontal(workers, filter, from, (to, width), table);
    }
    if width == from.width {
        return vertical(workers, filter, from, (to, height), table);
    }
    let Some(middle) = middle.get_mut(..PIXEL * width * from.height) else { return };
    horizontal(workers, filter, from, (middle, width), table);
    vertical(workers, filter, Plane::packed(middle, (width, from.height)), (to, height), table);
}

/// Resizes rows to `width` pixels, or copies them.
fn horizontal(
    workers: &dyn Workers,
    filter: Filter,
    from: Plane<'_>,
    (to, width): (&mut [u8], usize),
    table: &mut Table<'_>,
) {
    let pass = (width != from.width).then(|| table.pass(filter, from.width, width));
    let work = to.len() * pass.as_ref().map_or(1, |pass| pass.taps);
    fork_chunks(workers, to, PIXEL * width, work, &mut [(); 0], 0, &|y, to, _| {
        let from = from.row(y);
        let Some(pass) = &pass else {
            return to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        };
        let pixels = from.as_chunks::<PIXEL>().0;
        for (to, (first, weights)) in to.as_chunks_mut::<PIXEL>().0.iter_mut().zip(pass.from(0)) {
            let mut sums = [HALF; PIXEL];
            for (pixel, weight) in pixels.get(first..).unwrap_or(&[]).iter().zip(weights) {
                for (sum, byte) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*byte) * weight;
                }
            }
            *to = sums.map(rounded);
        }
    });
}

/// Resizes columns to `height` pixels.
fn vertical(
    workers: &dyn Workers,
    filter: Filter,
    from: Plane<'_>,
    (to, height): (&mut [u8], usize),
    table: &mut Table<'_>,
) {
    /// Bytes of a row that are summed at a time.
    const BYTES: usize = 48;
    let pass = table.pass(filter, from.height, height);
    let work = to.len() * pass.taps;
    fork_chunks(workers, to, PIXEL * from.width, work, &mut [(); 0], 0, &|y, to, _| {
        let Some((first, weights)) = pass.from(y).next() else { return };
        for (i, to) in to.chunks_mut(BYTES).enumerate() {
            let mut sums = [HALF; BYTES];
            for (row, weight) in (first..).zip(weights) {
                for (sum, byte) in sums.iter_mut().zip(from.row(row).get(i * BYTES..).unwrap_or(&[])) {
                    *sum += i32::from(*byte) * weight;
                }
            }
            to.iter_mut().zip(sums).for_each(|(to, sum)| *to = rounded(sum));
        }
    });
}

/// One half, in the units of sums.
const HALF: i32 = 1 << (BITS - 1);

/// The byte of a sum that started with [`HALF`].
fn rounded(sum: i32) -> u8 {
    (sum >> BITS).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::workers::Serial;

    fn resized(filter: Filter, from: &[u8], size: (usize, usize), to: (usize, usize)) -> Vec<u8> {
        let mut out = vec![0; PIXEL * to.0 * to.1];
        let taps = filter.taps(size.0, to.0).max(filter.taps(size.1, to.1));
        let most = to.0.max(to.1);
        let table = &mut Table { weights: &mut vec![0; most * taps], bounds: &mut vec![Bound::default(); most] };
        let middle = &mut vec![0; PIXEL * to.0 * size.1];
        resize(&Serial, filter, Plane::packed(from, size), (&mut out, to), middle, table);
        out
    }

    #[test]
    fn flat_pictures_stay_flat() {
        for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            for to in [(1, 1), (3, 40), (40, 3), (17, 9), (64, 64)] {
                assert!(resized(filter, &[77; PIXEL * 17 * 9], (17, 9), to).iter().all(|byte| *byte == 77));
            }
        }
    }

    #[test]
    fn weights_of_a_halved_row() {
        // The values of Pillow 12 for a row of grey 0, 0, 255, 255.
        let row: Vec<u8> = [0, 0, 255, 255].iter().flat_map(|grey| [*grey; PIXEL]).collect();
        let pair = resized(Filter::Bilinear, &row, (4, 1), (2, 1));
        assert_eq!(pair, [[36; PIXEL], [219; PIXEL]].concat());
    }
}
