//! Runs an encoder of pictures: patches, blocks of attention and feed-forward, and the projector.
//!
//! A view's rows are ordered by the blocks of patches that the projector joins, so that a block's states are adjacent.
//! In encoders with windows, the rows of a window are also adjacent. The order does not change the result of attention,
//! because attention has no mask.
//!
//! As in other encoders, a layer stores the keys and values of all rows before the first row attends. Each layer
//! processes the batches twice: first for keys and values, then for the rest.

use super::Vision;
use super::picture::Picture;
use super::plan::{Pieces, Plan, Window};
use super::positions::fill_rotations;
use super::resize::{PIXEL, Plane, Table as Taps, resize};
use super::spec::Spec;
use super::tensors::Table;
use super::views::{View, Views};
use crate::Error;
use crate::engine::{Compute, rows_mut};
use crate::kernel::Kernels;
use crate::memory::{Arena, TILE};
use crate::workers::Workers;

/// An encoder of pictures with its memory, for pictures of the planned size. See the [module](super) for an example.
pub struct Encoder<'m, 'w> {
    pub(super) spec: Spec<'m>,
    pub(super) plan: Plan,
    pub(super) table: Table<'m, 'w>,
    pub(super) compute: Compute<'m, 'w>,
    pub(super) states: States<'w>,
    pub(super) pixels: Pixels<'w>,
}

/// The states of a view, and the positions of its rows.
pub(super) struct States<'w> {
    pub hidden: &'w mut [f32],
    pub branch: &'w mut [f32],
    pub inner: &'w mut [f32],
    pub cache: &'w mut [u8],
    pub pages: &'w [u32],
    pub places: &'w mut [u32],
    pub slots: &'w mut [u32],
    pub windows: &'w mut [Window],
    pub rotations: &'w [f32],
    pub sums: &'w mut [f32],
    /// Number of rows, and of windows.
    pub count: usize,
    pub window_count: usize,
}

/// The resized picture.
pub(super) struct Pixels<'w> {
    canvas: &'w mut [u8],
    overview: &'w mut [u8],
    via: &'w mut [u8],
    middle: &'w mut [u8],
    taps: Taps<'w>,
}

impl Pixels<'_> {
    /// The pixels of view `index`.
    pub fn plane(&self, views: &Views, index: usize) -> Option<Plane<'_>> {
        let Some((column, line)) = views.get(index)?.tile else {
            return Some(Plane::packed(self.overview, views.overview?.0));
        };
        let ((width, height), stride) = (views.tile, PIXEL * views.canvas.0);
        let bytes = self.canvas.get(line * height * stride + column * width * PIXEL..)?;
        Some(Plane { bytes, width, height, stride })
    }
}

impl<'m, 'w> Encoder<'m, 'w> {
    /// Creates an encoder in `workspace`, which has at least the planned size and starts on an
    /// [`ALIGN`](crate::memory::ALIGN) boundary. The memory need not be zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::WorkspaceTooSmall`] and [`Error::Misaligned`]; [`Error::PlanMismatch`] if the plan was made for a
    /// different file.
    pub fn new(vision: &'m Vision<'_>, plan: Plan, workspace: &'w mut [u8]) -> Result<Self, Error> {
        if !plan.is_for(vision.gguf()) {
            return Err(Error::PlanMismatch);
        }
        let short = Error::WorkspaceTooSmall { needed: plan.workspace, given: workspace.len() };
        let arena = Arena::new(workspace.get_mut(..plan.workspace).ok_or(short)?)?;
        let pieces = Pieces::cut(&plan.layout, arena).ok_or(short)?;
        let spec = *vision.spec();
        let table = Table::fill(vision.gguf(), &spec, pieces.weights)?;
        let kernels = Kernels::detect();
        pieces.pages.iter_mut().zip(0..).for_each(|(page, number)| *page = number);
        fill_rotations(&spec, pieces.rotations);
        let scratch = (pieces.quants, pieces.scales, pieces.quant_sums, pieces.panels);
        Ok(Self {
            spec,
            plan,
            table,
            compute: Compute::plain(kernels, vision.gguf().pieces(), plan.options.workers, scratch),
            states: States {
                hidden: pieces.hidden,
                branch: pieces.branch,
                inner: pieces.inner,
                cache: pieces.cache,
                pages: pieces.pages,
                places: pieces.places,
                slots: pieces.slots,
                windows: pieces.windows,
                rotations: pieces.rotations,
                sums: pieces.sums,
                count: 0,
                window_count: 0,
            },
            pixels: Pixels {
                canvas: pieces.canvas,
                overview: pieces.overview,
                via: pieces.via,
                middle: pieces.middle,
                taps: Taps { weights: pieces.taps, bounds: pieces.bounds },
            },
        })
    }

    /// Shares the work among `workers`. [`Options::workers`](super::Options::workers) limits how many of them take
    /// part.
    #[must_use]
    pub fn with_workers(mut self, workers: &'m dyn Workers) -> Self {
        self.compute.workers = workers;
        self
    }

    /// Replaces the automatically detected kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: &'static Kernels) -> Self {
        self.compute.kernels = kernels;
        self
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Computes the rows of a picture: `[tokens of all views][row_len]` in `out`, which has at least [`Plan::rows`]
    /// elements. This is the same as [`load`](Self::load) and then [`encode`](Self::encode) for each view.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] for `out`, and the error of [`load`](Self::load).
    pub fn see(&mut self, picture: &Picture<'_>, out: &mut [f32]) -> Result<(), Error> {
        let (needed, given) = (self.plan.rows, out.len());
        let mut rest =
            out.get_mut(..needed).ok_or(Error::BufferTooSmall { what: "floats of a picture's rows", needed, given })?;
        self.load(picture)?;
        for index in 0..self.plan.views.count() {
            let len = self.rows_of(index).unwrap_or(0);
            let Some((here, after)) = rest.split_at_mut_checked(len) else { break };
            self.encode(index, here)?;
            rest = after;
        }
        Ok(())
    }

    /// Resizes a picture into the encoder's memory. The picture is not needed afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Picture`] if the picture does not have the planned size.
    pub fn load(&mut self, picture: &Picture<'_>) -> Result<(), Error> {
        let views = self.plan.views;
        if (picture.width(), picture.height()) != views.picture {
            return Err(Error::Picture { why: "does not have the size that was planned: plan for its size" });
        }
        let Pixels { canvas, overview, via, middle, taps } = &mut self.pixels;
        let (workers, filter) = (self.compute.workers, self.spec.rules.filter);
        let mut source = picture.plane();
        if let Some(size) = views.via {
            resize(workers, filter, source, (via, size), middle, taps);
            source = Plane::packed(via, size);
        }
        resize(workers, filter, source, (canvas, views.canvas), middle, taps);
        if let Some((size, of_canvas)) = views.overview {
            let source = if of_canvas { Plane::packed(canvas, views.canvas) } else { picture.plane() };
            resize(workers, filter, source, (overview, size), middle, taps);
        }
        Ok(())
    }

    /// Loads a picture of the planned size that needs no resizing, such as a camera's: calls `fill` for each row, with
    /// the row's number from the top and the buffer for the row's RGB bytes. This way, a picture in a different pixel
    /// format needs no RGB copy.
    ///
    /// # Errors
    ///
    /// [`Error::Picture`] if the encoder resizes pictures of the planned size.
    pub fn load_rows(&mut self, mut fill: impl FnMut(usize, &mut [u8])) -> Result<(), Error> {
        let views = self.plan.views;
        if views.canvas != views.picture || views.overview.is_some() || views.via.is_some() {
            return Err(Error::Picture { why: "must be resized: load it as RGB" });
        }
        rows_mut(self.pixels.canvas, PIXEL * views.canvas.0).enumerate().for_each(|(y, row)| fill(y, row));
        Ok(())
    }

    /// The pixels of a view, as [`load`](Self::load) has left them: width, height and RGB rows from the top. `None` if
    /// there is no such view.
    pub fn pixels(&self, index: usize) -> Option<(usize, usize, impl Iterator<Item = &[u8]>)> {
        let plane = self.pixels.plane(&self.plan.views, index)?;
        Some((plane.width, plane.height, (0..plane.height).map(move |y| plane.row(y))))
    }

    /// Number of floats in all rows of the language model that view `index` becomes. `None` if there is no such view.
    fn rows_of(&self, index: usize) -> Option<usize> {
        Some(self.plan.views.get(index)?.tokens() * self.spec.row_len())
    }

    /// Computes the rows of view `index` of the [loaded](Self::load) picture: `[tokens][row_len]` in `out`, from left to
    /// right, then from top to bottom.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] for `out`; [`Error::NoPart`] if there is no such view.
    pub fn encode(&mut self, index: usize, out: &mut [f32]) -> Result<(), Error> {
        let view = self.plan.views.get(index).ok_or(Error::NoPart { part: "view of this number" })?;
        let (needed, given) = (view.tokens() * self.spec.row_len(), out.len());
        let short = Error::BufferTooSmall { what: "floats of a view's rows", needed, given };
        let out = out.get_mut(..needed).ok_or(short)?;
        self.arrange(&view);
        self.embed(index, &view);
        let mut stream = 0;
        for layer in 0..self.spec.layers {
            self.store_keys(layer);
            self.block(layer);
            if self.spec.is_deep(layer) {
                stream += 1;
                self.project(&view, Some(layer), (out, stream));
            }
        }
        self.norm_after();
        self.project(&view, None, (out, 0));
        Ok(())
    }

    /// The states after the last [`encode`](Self::encode), `[rows][dim]`. If the encoder has a norm after its last
    /// block, the states are normed. [`place`](Self::place) tells the order of the rows.
    pub fn states(&self) -> &[f32] {
        self.states.hidden.get(..self.states.count * self.spec.dim).unwrap_or(&[])
    }

    /// Column and line of the patch of row `row` of the [states](Self::states); `None` for a row that is not a patch.
    pub fn place(&self, row: usize) -> Option<(usize, usize)> {
        let place = *self.states.places.get(row.checked_sub(self.spec.before())?)?;
        Some(((place & 0xffff) as usize, (place >> 16) as usize))
    }

    /// Fills the tables that describe the rows of a view: the patch of each row, the row's position in the cache, and
    /// the windows in which rows attend to each other.
    fn arrange(&mut self, view: &View) {
        let (merge, before) = (self.spec.merge, self.spec.before());
        let States { places, slots, windows, count: all, window_count, .. } = &mut self.states;
        let side = self.spec.window().unwrap_or(view.columns.max(view.lines)).max(1);
        let (mut places, mut slots) = (places.iter_mut(), slots.iter_mut());
        let (mut next, mut tile, mut count) = (before, 0usize, 0);
        for top in (0..view.lines).step_by(side) {
            for left in (0..view.columns).step_by(side) {
                let (lines, columns) = (top..view.lines.min(top + side), left..view.columns.min(left + side));
                let len = lines.len() * columns.len() * merge * merge;
                for (line, column) in lines.flat_map(|line| columns.clone().map(move |column| (line, column))) {
                    for y in line * merge..(line + 1) * merge {
                        for x in column * merge..(column + 1) * merge {
                            if let Some(place) = places.next() {
                                *place = (y as u32) << 16 | x as u32;
                            }
                        }
                    }
                }
                (0..len).zip(&mut slots).for_each(|(i, slot)| *slot = (tile * TILE + i) as u32);
                if let Some(window) = windows.get_mut(count) {
                    *window = Window { first: next as u32, len: len as u32, tile: tile as u32 };
                }
                count += 1;
                next += len;
                tile += len.div_ceil(TILE);
            }
        }
        *all = next;
        *window_count = count.min(windows.len());
    }
}

impl core::fmt::Debug for Encoder<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encoder").field("plan", &self.plan).finish_non_exhaustive()
    }
}
