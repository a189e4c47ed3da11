//! The memory of an encoder, computed from the encoder's file and the size of a picture.

use super::resize::{Bound, PIXEL};
use super::spec::Spec;
use super::tensors::Table;
use super::views::{Size, View, Views};
use crate::engine::Formats;
use crate::engine::layout::{max, pieces, product, sum};
use crate::engine::stop;
use crate::hash::Hash;
use crate::kernel::MAX_ROWS;
use crate::memory::{Arena, HeadLayout, KvType, TILE};
use crate::model::Entry;
use crate::{Error, Gguf, tri};

/// Options for the memory of an encoder of pictures.
///
/// ```
/// use arenite::vision::Options;
/// const OPTIONS: Options = Options::new().batch(32).workers(2);
/// assert_eq!(OPTIONS.workers, 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Number of patches that are computed together. With more patches, computation is faster and needs more workspace.
    pub batch: usize,
    /// Maximum number of workers, at least 1; each worker needs scratch memory.
    pub workers: usize,
}

impl Options {
    /// 64 patches at a time, one worker.
    pub const DEFAULT: Self = Self { batch: 64, workers: 1 };

    /// Same as [`DEFAULT`](Self::DEFAULT).
    pub const fn new() -> Self {
        Self::DEFAULT
    }

    /// Sets `batch`.
    #[must_use]
    pub const fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    /// Sets `workers`.
    #[must_use]
    pub const fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

pieces! {
    /// Table of weights.
    weights: Entry,
    /// `[rows][dim]`: the states of a view.
    hidden: f32,
    /// `[batch][dim]`: the input or output of a linear layer.
    branch: f32,
    /// Intermediate values of a batch.
    inner: f32,
    /// Keys and values of a layer, `[heads]` tiles.
    cache: u8,
    /// Page of each tile: its own number.
    pages: u32,
    /// `[patches]`: line and column of each patch.
    places: u32,
    /// `[rows]`: the position in the cache at which each row is stored in layers with windows.
    slots: u32,
    /// The windows of attention.
    windows: Window,
    /// Rotations for the lines or columns of a view: for each of its `side` lines, first the cosines, then the sines of
    /// a head's pairs.
    rotations: f32,
    /// The input of a matrix product, quantized: the activations, their scales, and their sums per 16 elements.
    quants: i8,
    scales: f32,
    quant_sums: i16,
    /// Scratch of attention, per worker.
    sums: f32,
    /// A packed panel of weights per worker.
    panels: u8,
    /// The resized picture before it is cut into tiles, and the overview of the whole picture.
    canvas: u8,
    overview: u8,
    /// The picture before it is resized to the canvas.
    via: u8,
    /// The picture after the horizontal pass of resizing.
    middle: u8,
    /// Weights of resizing.
    taps: i32,
    bounds: Bound,
}

/// Rows that attend to each other in layers with windows.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Window {
    /// First row.
    pub first: u32,
    /// Number of rows.
    pub len: u32,
    /// First tile of the cache.
    pub tile: u32,
}

/// The exact memory that an encoder needs for pictures of one size. The sizes are the same on every target.
///
/// ```
/// use arenite::Gguf;
/// use arenite::vision::{Options, Plan, Vision};
///
/// # let file = std::fs::read("tests/fixtures/pixtral.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let plan = Plan::new(&gguf, 640, 480, Options::new())?;
/// let vision = Vision::new(&gguf)?;
/// assert_eq!(plan.rows, plan.views.tokens() * vision.row_len());
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// Workspace in bytes.
    pub workspace: usize,
    /// Elements of the result: the rows of all views.
    pub rows: usize,
    /// The views of the picture.
    pub views: Views,
    /// The options, with limits applied.
    pub options: Options,
    pub(super) layout: Layout,
    /// Hash over the file and all public fields.
    seal: u64,
}

impl Plan {
    /// Plans for the encoder in `file`. In a `const`, an error in the file stops compilation, and the compiler prints the
    /// error's message.
    ///
    /// # Panics
    ///
    /// If [`new`](Self::new) would fail.
    pub const fn of(file: &[u8], width: usize, height: usize, options: Options) -> Self {
        let gguf = match Gguf::parse(file) {
            Ok(gguf) => gguf,
            Err(error) => stop(error),
        };
        match Self::new(&gguf, width, height, options) {
            Ok(plan) => plan,
            Err(error) => stop(error),
        }
    }

    /// Plans for pictures of `width` by `height` pixels.
    ///
    /// # Errors
    ///
    /// The errors of [`Vision::new`](super::Vision::new) for the metadata; [`Error::Picture`] for sizes that the
    /// encoder does not take; [`Error::PlanTooLarge`]; [`Error::TensorType`] for a tensor type that this build cannot
    /// run.
    pub const fn new(gguf: &Gguf<'_>, width: usize, height: usize, options: Options) -> Result<Self, Error> {
        let spec = tri!(Spec::read(gguf));
        let views = tri!(spec.views(width, height));
        if options.workers > 1 << 16 || options.batch > 1 << 20 {
            return Err(Error::PlanTooLarge);
        }
        let rows = max_rows(&spec, &views);
        let batch = if options.batch < rows { options.batch } else { rows };
        let options = Options { batch: max(batch, 1), workers: max(options.workers, 1) };
        let layout = tri!(Layout::of(gguf, &spec, &views, options));
        let workspace = tri!(layout.bytes());
        let rows = tri!(product(&[views.tokens(), spec.row_len()]));
        let mut plan = Self { workspace, rows, views, options, layout, seal: 0 };
        plan.seal = plan.sealed(gguf);
        Ok(plan)
    }

    /// True if the plan was made for this file, and the plan's numbers were not changed.
    pub(super) fn is_for(&self, gguf: &Gguf<'_>) -> bool {
        self.seal == self.sealed(gguf)
    }

    /// Hash of the file's directory and the public numbers.
    const fn sealed(&self, gguf: &Gguf<'_>) -> u64 {
        let mut hash = Hash::new();
        gguf.hash_directory(&mut hash);
        let numbers = [self.workspace, self.rows, self.options.batch, self.options.workers];
        // The plan's numbers are hashed after the file, and all of them twice. If someone has changed a number, a
        // second changed number could undo the effect on the hash in one pass, but not in both.
        let mut pass = 0;
        while pass < 2 {
            hash.numbers(&numbers);
            hash.numbers(&self.views.numbers());
            pass += 1;
        }
        hash.finish()
    }
}

/// Number of patches of a view from left to right, and number from top to bottom.
pub(super) const fn patches(spec: &Spec<'_>, view: &View) -> Size {
    (view.columns * spec.merge, view.lines * spec.merge)
}

/// Largest number of rows of a view's states.
const fn max_rows(spec: &Spec<'_>, views: &Views) -> usize {
    let [tile, overview] = views.kinds();
    spec.before() + max(tile.tokens(), overview.tokens()) * spec.block()
}

impl Layout {
    const fn of(gguf: &Gguf<'_>, spec: &Spec<'_>, views: &Views, options: Options) -> Result<Self, Error> {
        let Options { batch, workers } = options;
        let Spec { dim, ffn, layers, .. } = *spec;
        let rows = max_rows(spec, views);
        let head = head_layout(spec);
        let windows = max_windows(spec, views);
        let tiles = rows.div_ceil(TILE) + windows; // each window begins with a new tile
        let side = max_side(spec, views);
        let gates = if spec.tensors.gated { 2 * ffn } else { ffn };
        let inner = tri!(product(&[batch, max(max(spec.patch_len(), 2 * dim), gates)]));
        let inner = max(inner, tri!(product(&[spec.joined_at_once(batch), spec.projection()])));
        let widest = max(max(spec.patch_len(), ffn), max(spec.joined(), max(spec.tensors.inner, dim)));
        let formats = tri!(Formats::of(gguf, widest));
        let quantized = if formats.quantized { batch } else { 0 };
        let pictures = [
            views.canvas,
            match views.overview {
                Some((size, _)) => size,
                None => (0, 0),
            },
        ];
        let resizing = tri!(Resizing::of(spec, views));
        let mut layout = Self {
            weights: tri!(product(&[Table::len(1), layers])),
            hidden: tri!(product(&[rows, dim])),
            branch: tri!(product(&[batch, dim])),
            inner,
            cache: tri!(product(&[spec.heads, tiles, head.tile_bytes()])),
            pages: tiles,
            places: rows,
            quants: tri!(product(&[quantized, widest])),
            scales: tri!(product(&[quantized, widest.div_ceil(32)])),
            quant_sums: tri!(product(&[quantized, widest.div_ceil(16)])),
            sums: tri!(product(&[workers, MAX_ROWS, head.padded()])),
            panels: if batch > 1 { tri!(product(&[workers, formats.panel])) } else { 0 },
            canvas: tri!(product(&[PIXEL, pictures[0].0, pictures[0].1])),
            overview: tri!(product(&[PIXEL, pictures[1].0, pictures[1].1])),
            via: resizing.via,
            middle: resizing.middle,
            taps: resizing.taps,
            bounds: resizing.bounds,
            ..Self::EMPTY
        };
        if windows > 0 {
            (layout.windows, layout.slots) = (windows, rows);
        }
        if spec.rules.axes.is_some() {
            layout.rotations = tri!(product(&[side, spec.head_dim()]));
        }
        Ok(layout)
    }
}

/// Longest side of a view in patches.
const fn max_side(spec: &Spec<'_>, views: &Views) -> usize {
    let [tile, overview] = views.kinds();
    max(max(tile.columns, tile.lines), max(overview.columns, overview.lines)) * spec.merge
}

/// The largest number of attention windows of a view. 0 if all layers attend to the whole view.
const fn max_windows(spec: &Spec<'_>, views: &Views) -> usize {
    const fn windows(view: &View, side: usize) -> usize {
        match ((view.columns + side - 1).checked_div(side), (view.lines + side - 1).checked_div(side)) {
            (Some(columns), Some(lines)) => columns * lines,
            _ => 0,
        }
    }
    let [tile, overview] = views.kinds();
    match spec.window() {
        Some(side) => max(windows(&tile, side), windows(&overview, side)),
        None => 0,
    }
}

/// Layout of the keys and values of a head.
pub(super) const fn head_layout(spec: &Spec<'_>) -> HeadLayout {
    HeadLayout { kind: KvType::F32, dim: spec.head_dim(), shared: 0 }
}

/// Memory for the steps of resizing, one after another.
struct Resizing {
    via: usize,
    middle: usize,
    taps: usize,
    bounds: usize,
}

impl Resizing {
    const fn of(spec: &Spec<'_>, views: &Views) -> Result<Self, Error> {
        let mut all = Self { via: 0, middle: 0, taps: 0, bounds: 0 };
        let mut source = views.picture;
        if let Some(via) = views.via {
            all.via = tri!(product(&[PIXEL, via.0, via.1]));
            tri!(all.add(spec, source, via));
            source = via;
        }
        tri!(all.add(spec, source, views.canvas));
        if let Some((size, of_canvas)) = views.overview {
            tri!(all.add(spec, if of_canvas { views.canvas } else { views.picture }, size));
        }
        Ok(all)
    }

    const fn add(&mut self, spec: &Spec<'_>, from: Size, to: Size) -> Result<(), Error> {
        // A pass that does not change its side is left out.
        if from.0 != to.0 {
            tri!(self.add_pass(spec, from.0, to.0));
        }
        if from.1 != to.1 {
            tri!(self.add_pass(spec, from.1, to.1));
        }
        if from.0 != to.0 && from.1 != to.1 {
            self.middle = max(self.middle, tri!(product(&[PIXEL, to.0, from.1])));
        }
        Ok(())
    }

    const fn add_pass(&mut self, spec: &Spec<'_>, from: usize, to: usize) -> Result<(), Error> {
        self.bounds = max(self.bounds, to);
        self.taps = max(self.taps, tri!(product(&[to, spec.rules.filter.taps(from, to)])));
        Ok(())
    }
}

impl Spec<'_> {
    /// Number of rows that the projector computes together.
    pub(super) const fn joined_at_once(&self, batch: usize) -> usize {
        match batch.checked_div(self.block()) {
            Some(rows) => max(rows, 1),
            None => 1,
        }
    }

    /// Number of floats per row in the projector's second buffer. The buffer is used for reordered patches, for the
    /// outputs of the first linear layer, and for a row of a transposed matrix.
    pub(super) const fn between(&self) -> usize {
        let joined = if self.tensors.has_merger { self.block() * self.dim } else { 0 };
        max(max(joined, self.tensors.inner), if self.tensors.transposed { self.tensors.out } else { 0 })
    }

    /// Number of floats of scratch memory that the projector needs per output row: for the joined patches or their
    /// mean, for intermediate values, and for the outputs.
    const fn projection(&self) -> usize {
        self.joined() + self.between() + self.tensors.out
    }
}
