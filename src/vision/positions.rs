//! Positions of patches: learned vectors, resized to the grid of a view, and rotations in two dimensions.

use super::projector::Places;
use super::roles::Role;
use super::spec::Spec;
use super::tensors::Table;
use super::views::Size;
use crate::engine::{rows_mut, sine_cosine};
use crate::quant::decode_row;

/// Base of the frequencies of rotations.
const BASE: f32 = 10_000.0;

/// Adds a learned position to `x`: that of the patch at `place`, in a view of `grid` patches. If there is no `place`,
/// adds the position of the row before the patches. `row` has room for a row of the table of positions.
pub(super) fn add_learned(
    spec: &Spec<'_>,
    table: &Table<'_, '_>,
    (grid, place): (Size, Option<u32>),
    x: &mut [f32],
    row: &mut [f32],
) {
    let (Some(learned), Some(row)) = (table.matrix(Role::Places, 0), row.get_mut(..x.len())) else { return };
    let mut add = |index: usize, weight: f32| {
        decode_row(learned.kind(), learned.row(index), row);
        x.iter_mut().zip(&*row).for_each(|(x, y)| *x += weight * y);
    };
    let Some(place) = place else { return add(0, 1.0) };
    let (line, column) = ((place >> 16) as usize, (place & 0xffff) as usize);
    let ((columns, lines), side) = (grid, spec.table_side());
    let by_line = Stretch::new(spec.rules.places, side, lines, line);
    let by_column = Stretch::new(spec.rules.places, side, columns, column);
    if spec.rules.places == Places::Learned {
        return add(spec.before() + line * columns + column, 1.0);
    }
    for (y, high) in by_line.weights() {
        for (x, wide) in by_column.weights() {
            add(y * side + x, (high * wide) as f32);
        }
    }
}

/// How one entry of a table is computed if the table is stretched from `side` to `len` entries: which range of the old
/// entries contributes to it, and with what weights.
struct Stretch {
    first: usize,
    last: usize,
    center: f64,
    reach: f64,
    total: f64,
}

impl Stretch {
    fn new(places: Places, side: usize, len: usize, i: usize) -> Self {
        let most = side.saturating_sub(1);
        let (center, reach) = match places {
            Places::Corners if len > 1 => (i as f64 * most as f64 / (len - 1) as f64, 1.0),
            Places::Antialiased => {
                let scale = side as f64 / len as f64;
                ((i as f64 + 0.5) * scale - 0.5, if scale < 1.0 { 1.0 } else { scale })
            }
            _ => (0.0, 1.0),
        };
        let first = libm::ceil(center - reach) as usize; // of a negative number: 0
        let last = (libm::floor(center + reach) as usize).min(most);
        let mut stretch = Self { first, last, center, reach, total: 1.0 };
        stretch.total = stretch.weights().map(|(_, weight)| weight).sum();
        stretch
    }

    /// Entries with a weight that is not 0.
    fn weights(&self) -> impl Iterator<Item = (usize, f64)> {
        (self.first..=self.last).filter_map(|entry| {
            let weight = 1.0 - libm::fabs(entry as f64 - self.center) / self.reach;
            (weight > 0.0).then(|| (entry, weight / self.total))
        })
    }
}

/// Computes, for each line or column of a view, the cosines and then the sines of a head's pairs.
pub(super) fn fill_rotations(spec: &Spec<'_>, rotations: &mut [f32]) {
    let (Some(axes), pairs) = (spec.rules.axes, spec.head_dim() / 2) else { return };
    for (position, row) in rows_mut(rotations, 2 * pairs).enumerate() {
        let Some((cosines, sines)) = row.split_at_mut_checked(pairs) else { return };
        for (i, (cosine, sine)) in cosines.iter_mut().zip(sines).enumerate() {
            let (number, elements) = axes.exponent(i, pairs);
            let frequency = 1.0 / libm::powf(BASE, (2 * number) as f32 / elements as f32);
            (*sine, *cosine) = sine_cosine(position as f32 * frequency);
        }
    }
}

/// Rotates the heads of the query or key of a row by the line and the column of the row's patch.
pub(super) fn rotate(spec: &Spec<'_>, rotations: &[f32], place: Option<u32>, heads: &mut [f32]) {
    let (Some(axes), Some(place)) = (spec.rules.axes, place) else { return };
    let (dim, pairs) = (spec.head_dim(), spec.head_dim() / 2);
    let row = |position: usize| rotations.get(position * 2 * pairs..(position + 1) * 2 * pairs).unwrap_or(&[]);
    let (by_line, by_column) = (row((place >> 16) as usize), row((place & 0xffff) as usize));
    let turn = |i: usize| {
        let row = if 2 * i < pairs { by_line } else { by_column };
        (row.get(i).copied().unwrap_or(0.0), row.get(pairs + i).copied().unwrap_or(0.0))
    };
    for head in rows_mut(heads, dim) {
        for i in 0..pairs {
            let (cos, sin) = turn(i);
            let (first, second) = axes.pair(i, pairs);
            let (Some(&a), Some(&b)) = (head.get(first), head.get(second)) else { return };
            if let Some(x) = head.get_mut(first) {
                *x = a * cos - b * sin;
            }
            if let Some(x) = head.get_mut(second) {
                *x = a * sin + b * cos;
            }
        }
    }
}
