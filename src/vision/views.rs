//! The views of a picture. A picture is resized, cut into tiles, or both, in the same way as by each model's own
//! processor.
//!
//! The numbers are taken from the processors in `transformers`, because the models were trained with these processors.

use super::picture::check_sides;
use super::projector::Projector;
use super::spec::Spec;
use crate::{Error, tri};

/// Width and height in pixels.
pub(super) type Size = (usize, usize);

/// The views of a picture: tiles row by row, from left to right in each row, then an overview of the whole picture if
/// there is more than one tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Views {
    pub(super) picture: Size,
    /// If a picture is resized in two steps, this is its size after the first step. `None` if it is resized to `canvas`
    /// in one step.
    pub(super) via: Option<Size>,
    /// Size of the picture before it is cut into tiles.
    pub(super) canvas: Size,
    pub(super) tile: Size,
    /// Size of the overview. The flag is true if the overview is a scaled copy of the canvas, and false if it is scaled
    /// from the original picture.
    pub(super) overview: Option<(Size, bool)>,
    /// Side, in pixels, of the square of patches that the encoder joins to one row of its result.
    cell: usize,
}

/// One view of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// Rows of the encoder's result from left to right.
    pub columns: usize,
    /// Rows of the encoder's result from top to bottom.
    pub lines: usize,
    /// The column and the line that the view has in the picture if it is a tile. `None` for the overview of the whole
    /// picture.
    pub tile: Option<(usize, usize)>,
}

impl View {
    /// Number of rows that the view becomes. Each of them replaces the embedding of a token.
    pub const fn tokens(&self) -> usize {
        self.columns * self.lines
    }
}

impl Views {
    /// Tiles from left to right, and from top to bottom.
    pub const fn grid(&self) -> (usize, usize) {
        match (self.canvas.0.checked_div(self.tile.0), self.canvas.1.checked_div(self.tile.1)) {
            (Some(columns), Some(lines)) => (columns, lines),
            _ => (0, 0),
        }
    }

    /// True if the last view is an overview.
    pub const fn has_overview(&self) -> bool {
        self.overview.is_some()
    }

    /// Number of views.
    pub const fn count(&self) -> usize {
        let (columns, lines) = self.grid();
        columns * lines + self.has_overview() as usize
    }

    /// View `index`; `None` past the last.
    pub const fn get(&self, index: usize) -> Option<View> {
        let (columns, lines) = self.grid();
        let (tile, (width, height)) = match (index.checked_div(columns), index.checked_rem(columns)) {
            (Some(line), Some(column)) if line < lines => (Some((column, line)), self.tile),
            _ => match self.overview {
                Some((size, _)) if index == columns * lines => (None, size),
                _ => return None,
            },
        };
        match (width.checked_div(self.cell), height.checked_div(self.cell)) {
            (Some(columns), Some(lines)) => Some(View { columns, lines, tile }),
            _ => None,
        }
    }

    /// All fields. A size of 0 by 0 stands for `None`.
    pub(super) const fn numbers(&self) -> [usize; 12] {
        let Self { picture, canvas, tile, cell, .. } = *self;
        let via = if let Some(via) = self.via { via } else { (0, 0) };
        let (overview, of_canvas) = if let Some(overview) = self.overview { overview } else { ((0, 0), false) };
        let [(a, b), (c, d), (e, f), (g, h), (i, j)] = [picture, via, canvas, tile, overview];
        [a, b, c, d, e, f, g, h, i, j, of_canvas as usize, cell]
    }

    /// Number of rows of all views.
    pub const fn tokens(&self) -> usize {
        let [tile, overview] = self.kinds();
        let (columns, lines) = self.grid();
        columns * lines * tile.tokens() + overview.tokens()
    }

    /// The views of different sizes: a tile and the overview. All tiles have the same size, so the first tile stands
    /// for all. The overview is empty if the picture has none.
    pub(super) const fn kinds(&self) -> [View; 2] {
        const NONE: View = View { columns: 0, lines: 0, tile: None };
        let tile = match self.get(0) {
            Some(tile) => tile,
            None => NONE,
        };
        match self.get(self.count().saturating_sub(1)) {
            Some(last) if self.has_overview() => [tile, last],
            _ => [tile, NONE],
        }
    }
}

impl Spec<'_> {
    /// The views of a picture of `width` by `height` pixels.
    pub const fn views(&self, width: usize, height: usize) -> Result<Views, Error> {
        tri!(check_sides(width, height));
        let (side, cell, picture) = (self.side, self.cell(), (width, height));
        let whole = Views { picture, via: None, canvas: (side, side), tile: (side, side), overview: None, cell };
        Ok(match self.projector {
            Projector::Gemma3 => whole,
            Projector::Idefics3 => {
                let via = fit_longest(width, height, self.longest);
                let canvas = up_to_tiles(via, side);
                let one = canvas.0 == side && canvas.1 == side;
                let overview = if one { None } else { Some(((side, side), true)) };
                Views { via: Some(via), canvas, overview, ..whole }
            }
            Projector::InternVl => {
                let grid = closest_grid(self.tiles.0, self.tiles.1, picture, side);
                let overview = if grid.0 * grid.1 > 1 { Some(((side, side), false)) } else { None };
                Views { canvas: (grid.0 * side, grid.1 * side), overview, ..whole }
            }
            Projector::Lfm2 => {
                /// A view has at least and at most this many rows, if the file has no limits for the number of pixels.
                const ROWS: (usize, usize) = (64, 256);
                // The side of a tile, the limits of the number of tiles, and the tolerance. They are constants, because
                // files do not have these numbers.
                const TILE: usize = 512;
                const TILES: (usize, usize) = (2, 10);
                const TOLERANCE: f64 = 2.0;
                let least = or(self.pixels.0, ROWS.0 * cell * cell);
                let most = at_least(or(self.pixels.1, ROWS.1 * cell * cell), least);
                let size = smart(picture, cell, cell, (least, most));
                let pixels = at_least(nearest(width, cell), self.patch) * at_least(nearest(height, cell), self.patch);
                if pixels as f64 <= most as f64 * TOLERANCE || !TILE.is_multiple_of(cell) {
                    Views { canvas: size, tile: size, ..whole }
                } else {
                    let (columns, lines) = closest_grid(TILES.0, TILES.1, picture, TILE);
                    let canvas = (columns * TILE, lines * TILE);
                    Views { canvas, tile: (TILE, TILE), overview: Some((size, false)), ..whole }
                }
            }
            Projector::Pixtral => {
                let size = below(picture, side);
                let size = (up(size.0, cell), up(size.1, cell));
                Views { canvas: size, tile: size, ..whole }
            }
            Projector::Qwen25Vl | Projector::Qwen3Vl => {
                /// Limits of the number of rows of a picture, if the file does not limit the number of pixels. They are
                /// the limits of llama.cpp.
                const ROWS: (usize, usize) = (8, 4096);
                if width > 200 * height || height > 200 * width {
                    return Err(Error::Picture { why: "is more than 200 times as long as wide: cut it" });
                }
                let least = or(self.pixels.0, ROWS.0 * cell * cell);
                let most = at_least(or(self.pixels.1, ROWS.1 * cell * cell), least);
                let size = smart(picture, cell, 0, (least, most));
                tri!(check_sides(size.0, size.1)); // a narrow picture may have been enlarged
                Views { canvas: size, tile: size, ..whole }
            }
        })
    }
}

/// Scales a picture so that its longer side is `longest`; the length of the other side is even.
const fn fit_longest(width: usize, height: usize, longest: usize) -> Size {
    let aspect = width as f64 / height as f64;
    if width >= height {
        let other = (longest as f64 / aspect) as usize;
        (longest, at_least(other + other % 2, 1))
    } else {
        let other = (longest as f64 * aspect) as usize;
        (at_least(other + other % 2, 1), longest)
    }
}

/// Enlarges the longer side to a multiple of `tile`. Enlarges the other side in proportion, and then also to a multiple
/// of `tile`.
const fn up_to_tiles((width, height): Size, tile: usize) -> Size {
    let aspect = width as f64 / height as f64;
    if width >= height {
        let width = up(width, tile);
        (width, at_least(up((width as f64 / aspect) as usize, tile), tile))
    } else {
        let height = up(height, tile);
        (at_least(up((height as f64 * aspect) as usize, tile), tile), height)
    }
}

/// Scales a picture down until no side is longer than `longest`.
const fn below((width, height): Size, longest: usize) -> Size {
    let longer = if width > height { width } else { height };
    if longer <= longest {
        return (width, height);
    }
    let ratio = longer as f64 / longest as f64;
    (at_least((width as f64 / ratio) as usize, 1), at_least((height as f64 / ratio) as usize, 1))
}

/// Rounds both sides to multiples of `cell` that are at least `side`. If the result would have fewer than `least` or
/// more than `most` pixels, the picture is scaled first. If `side` is 0, a picture is also scaled if one of its sides
/// is less than half a cell.
const fn smart((width, height): Size, cell: usize, side: usize, (least, most): (usize, usize)) -> Size {
    let (wide, high) = (at_least(nearest(width, cell), side), at_least(nearest(height, cell), side));
    let (pixels, unit) = (width as f64 * height as f64, cell as f64);
    if wide * high > most {
        let by = root(pixels / most as f64);
        let wide = (width as f64 / by / unit) as usize * cell;
        let high = (height as f64 / by / unit) as usize * cell;
        (at_least(wide, cell), at_least(high, cell))
    } else if wide * high < least {
        let by = root(least as f64 / pixels);
        (ceil(width as f64 * by / unit) * cell, ceil(height as f64 * by / unit) * cell)
    } else {
        (at_least(wide, cell), at_least(high, cell))
    }
}

/// The grid of `least` to `most` tiles whose aspect ratio is closest to the picture's. If two grids are equally close,
/// the larger grid is chosen if the picture has more than half as many pixels as that grid.
const fn closest_grid(least: usize, most: usize, (width, height): Size, tile: usize) -> Size {
    let (aspect, area) = (width as f64 / height as f64, width as f64 * height as f64);
    let (mut best, mut distance, mut tiles) = ((1, 1), f64::INFINITY, least);
    while tiles <= most {
        let mut columns = 1;
        while columns <= tiles {
            if let (Some(lines), true) = (tiles.checked_div(columns), tiles.is_multiple_of(columns)) {
                let other = aspect - columns as f64 / lines as f64;
                let other = if other < 0.0 { -other } else { other };
                let is_large = area > 0.5 * (tile * tile * tiles) as f64;
                if other < distance || other == distance && is_large {
                    (best, distance) = ((columns, lines), other);
                }
            }
            columns += 1;
        }
        tiles += 1;
    }
    best
}

/// Returns the multiple of `unit` that is nearest to `side`. If two are equally near, returns the even multiple.
const fn nearest(side: usize, unit: usize) -> usize {
    let (Some(whole), Some(rest)) = (side.checked_div(unit), side.checked_rem(unit)) else { return side };
    let is_up = 2 * rest > unit || 2 * rest == unit && whole % 2 == 1;
    (whole + is_up as usize) * unit
}

/// The next multiple of `unit`.
const fn up(side: usize, unit: usize) -> usize {
    match side.checked_next_multiple_of(unit) {
        Some(side) => side,
        None => side,
    }
}

/// The next integer of a positive number.
const fn ceil(x: f64) -> usize {
    let whole = x as usize;
    whole + ((whole as f64) < x) as usize
}

const fn or(number: Option<usize>, otherwise: usize) -> usize {
    match number {
        Some(number) => number,
        None => otherwise,
    }
}

const fn at_least(side: usize, least: usize) -> usize {
    if side < least { least } else { side }
}

/// The square root of a positive number, by Newton's method, because `libm::sqrt` is not a `const fn`.
const fn root(x: f64) -> f64 {
    let (mut root, mut step) = (if x > 1.0 { x } else { 1.0 }, 0);
    // `root` begins above the square root of `x`, or at it. Newton's method then only decreases `root`, until it
    // reaches the square root.
    while step < 64 {
        let next = (root + x / root) / 2.0;
        if next >= root {
            break;
        }
        root = next;
        step += 1;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_those_of_libm() {
        for n in 1..20_000u32 {
            for x in [f64::from(n) / 7.0, f64::from(n) * 0.001, f64::from(n) * f64::from(n), 1e9 / f64::from(n)] {
                let (ours, theirs) = (root(x), libm::sqrt(x));
                assert!(ours.to_bits().abs_diff(theirs.to_bits()) <= 1, "{x}");
            }
            assert_eq!(root(f64::from(n) * f64::from(n)), f64::from(n));
        }
    }

    #[test]
    fn halves_are_rounded_to_even_multiples() {
        assert_eq!([48, 80, 79, 81, 15].map(|side| nearest(side, 32)), [64, 64, 64, 96, 0]);
        assert_eq!((up(65, 32), up(64, 32), ceil(2.0), ceil(2.1)), (96, 64, 2, 3));
    }

    #[test]
    fn grids() {
        assert_eq!(closest_grid(1, 6, (121, 77), 64), (3, 2));
        assert_eq!(closest_grid(1, 4, (57, 131), 64), (1, 2));
        assert_eq!(closest_grid(2, 10, (1024, 512), 512), (2, 1));
    }
}
