//! Runs an encoder of pictures: patches, blocks of attention and feed-forward, and the projector.
//!
//! A view's rows are ordered by the blocks of patches that the projector joins, so that a block's states are adjacent. In
//! encoders with windows, the rows of a window are adjacent as well. Attention has no mask, so the order does not matter
//! to it.
//!
//! As in other encoders, a layer stores the keys and values of all rows before the first row attends. Each layer
//! processes the batches twice: first for keys and values, then for the rest.

use core::ops::Range;

use super::Vision;
use super::picture::Picture;
use super::plan::{Pieces, Plan, Window, head_layout, patches};
use super::positions::{add_learned, fill_rotations, rotate};
use super::resize::{PIXEL, Plane, Table as Weights, resize};
use super::spec::{Join, Spec};
use super::tensors::{Role, Table};
use super::views::View;
use crate::Error;
use crate::engine::{Compute, add_bias, rows, rows_mut};
use crate::kernel::{Activation, Attention, Bias, Deviation, Kernels, Matrix, add, copy, fork_chunks, sqrt, store};
use crate::memory::{Arena, HeadLayout, TILE};
use crate::model::Norm;
use crate::quant::{decode_row, le_f32};
use crate::workers::Workers;

/// Rows per chunk when workers share the rows of attention.
const ROWS: usize = 8;

/// An encoder of pictures with its memory, for pictures of the planned size. See the [module](super) for an example.
pub struct Encoder<'m, 'w> {
    spec: Spec<'m>,
    plan: Plan,
    table: Table<'m, 'w>,
    compute: Compute<'m, 'w>,
    states: States<'w>,
    pixels: Pixels<'w>,
}

/// The states of a view, and what describes its rows.
struct States<'w> {
    hidden: &'w mut [f32],
    branch: &'w mut [f32],
    inner: &'w mut [f32],
    cache: &'w mut [u8],
    pages: &'w [u32],
    places: &'w mut [u32],
    slots: &'w mut [u32],
    windows: &'w mut [Window],
    rotations: &'w [f32],
    sums: &'w mut [f32],
    /// Number of rows, and of windows.
    count: usize,
    window_count: usize,
}

/// The resized picture.
struct Pixels<'w> {
    canvas: &'w mut [u8],
    overview: &'w mut [u8],
    via: &'w mut [u8],
    middle: &'w mut [u8],
    taps: Weights<'w>,
}

impl<'m, 'w> Encoder<'m, 'w> {
    /// Creates an encoder in `workspace`, which has at least the planned size and starts on an
    /// [`ALIGN`](crate::memory::ALIGN) boundary. The memory need not be zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::WorkspaceTooSmall`] and [`Error::Misaligned`]; [`Error::PlanMismatch`] if the plan was made for another
    /// file.
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
                taps: Weights { weights: pieces.taps, bounds: pieces.bounds },
            },
        })
    }

    /// Shares the work among `workers`. [`Options::workers`](super::Options::workers) limits how many take part.
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

    /// Computes the rows of a picture: `[tokens of all views][row_len]` in `out`, which has exactly
    /// [`Plan::rows`] elements. The same as [`load`](Self::load) and then [`encode`](Self::encode) for each view.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load) and [`encode`](Self::encode).
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

    /// Resizes a picture. It is not needed afterwards.
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

    /// The pixels of a view, as [`load`](Self::load) has left them: width, height and RGB rows from the top. `None` if
    /// there is no such view.
    pub fn pixels(&self, index: usize) -> Option<(usize, usize, impl Iterator<Item = &[u8]>)> {
        let plane = self.plane(index)?;
        Some((plane.width, plane.height, (0..plane.height).map(move |y| plane.row(y))))
    }

    fn plane(&self, index: usize) -> Option<Plane<'_>> {
        let views = self.plan.views;
        let Some((column, line)) = views.get(index)?.tile else {
            return Some(Plane::packed(self.pixels.overview, views.overview?.0));
        };
        let (width, height) = views.tile;
        let stride = PIXEL * views.canvas.0;
        let bytes = self.pixels.canvas.get(line * height * stride + column * width * PIXEL..)?;
        Some(Plane { bytes, width, height, stride })
    }

    /// Elements of the rows of view `index`; `None` if there is no such view.
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
                self.project(&view, Head::deep(layer), (out, stream));
            }
        }
        self.norm_after();
        self.project(&view, Head::LAST, (out, 0));
        Ok(())
    }

    /// The states after the last [`encode`](Self::encode), `[rows][dim]`, with the norm after the last block. See
    /// [`place`](Self::place) for their order.
    pub fn states(&self) -> &[f32] {
        self.states.hidden.get(..self.states.count * self.spec.dim).unwrap_or(&[])
    }

    /// Column and line of the patch of row `row` of the [states](Self::states); `None` for a row that is not a patch.
    pub fn place(&self, row: usize) -> Option<(usize, usize)> {
        let place = *self.states.places.get(row.checked_sub(self.spec.before())?)?;
        Some(((place & 0xffff) as usize, (place >> 16) as usize))
    }

    /// Orders the patches of a view.
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

    /// Computes the inputs of the first block: linear layers on patches, and learned positions.
    fn embed(&mut self, index: usize, view: &View) {
        let Self { spec, table, plan, .. } = self;
        let (dim, before, batch, patch) = (spec.dim, spec.before(), plan.options.batch.max(1), spec.patch_len());
        let (spec, table) = (*spec, *table);
        let Some(plane) = self.plane(index) else { return };
        // The borrow of the pixels ends the others' of `self`, so the plane is taken apart.
        let Plane { width, height, stride, .. } = plane;
        let from_overview = self.plan.views.get(index).is_some_and(|view| view.tile.is_none());
        let start = match self.plan.views.get(index).and_then(|view| view.tile) {
            Some((column, line)) => line * height * stride + column * width * PIXEL,
            None => 0,
        };
        let Self { compute, states, pixels, .. } = self;
        let bytes = if from_overview { &*pixels.overview } else { &*pixels.canvas };
        let plane = Plane { bytes: bytes.get(start..).unwrap_or(&[]), width, height, stride };
        let States { hidden, branch, inner, places, count: all, .. } = states;
        let grid = patches(&spec, view);
        if before > 0 {
            let class = table.vector(Role::Class, 0);
            let Some(first) = hidden.get_mut(..dim) else { return };
            first.iter_mut().enumerate().for_each(|(i, x)| *x = le_f32(class, i));
            add_learned(&spec, &table, (grid, None), first, branch);
        }
        for first in (before..*all).step_by(batch) {
            let count = batch.min(*all - first);
            let (Some(places), Some(inner), Some(hidden), Some(branch)) = (
                places.get(first - before..first - before + count),
                inner.get_mut(..count * patch),
                hidden.get_mut(first * dim..(first + count) * dim),
                branch.get_mut(..count * dim),
            ) else {
                return;
            };
            let Some(weights) = table.matrix(Role::Patches, 0) else { return };
            compute.by_tokens(inner, patch, &|start, inner| {
                let places = places.get(start.checked_div(patch).unwrap_or(0)..).unwrap_or(&[]);
                for (place, to) in places.iter().zip(rows_mut(inner, patch)) {
                    read_patch(&spec, &plane, *place, to);
                }
            });
            compute.times((inner, count), weights, hidden, dim);
            if let Some(again) = table.matrix(Role::PatchesAgain, 0) {
                compute.times((inner, count), again, branch, dim);
                add(hidden, branch);
            }
            add_bias(hidden, dim, table.vector(Role::PatchesBias, 0));
            for (place, x) in places.iter().zip(rows_mut(hidden, dim)) {
                add_learned(&spec, &table, (grid, Some(*place)), x, branch);
            }
            norm(compute, spec.norm(), (table.vector(Role::NormBefore, 0), &[]), hidden);
        }
    }

    /// Stores the keys and values of all rows of a layer.
    fn store_keys(&mut self, layer: usize) {
        let Self { spec, table, compute, states, plan, .. } = self;
        let States { hidden, branch, inner, cache, pages, places, slots, rotations, count: all, .. } = states;
        let (dim, batch, head) = (spec.dim, plan.options.batch.max(1), head_layout(spec));
        let [_, k, v] = projections(table, layer, dim);
        let is_whole = spec.sees_all(layer);
        for first in (0..*all).step_by(batch) {
            let count = batch.min(*all - first);
            let (Some(hidden), Some(branch), Some(kv)) = (
                hidden.get(first * dim..(first + count) * dim),
                branch.get_mut(..count * dim),
                inner.get_mut(..2 * count * dim),
            ) else {
                return;
            };
            copy(branch, hidden);
            norm(compute, spec.norm(), norm_of(table, layer, Role::Norm1, Role::Norm1Bias), branch);
            compute.times_each((branch, count), &[(k.0, 0), (v.0, dim)], kv, 2 * dim);
            add_bias(kv, 2 * dim, k.1);
            add_bias(kv.get_mut(dim..).unwrap_or_default(), 2 * dim, v.1);
            compute.by_tokens(kv, 2 * dim, &|start, kv| {
                let first = first + start.checked_div(2 * dim).unwrap_or(0);
                for (row, kv) in (first..).zip(rows_mut(kv, 2 * dim)) {
                    let Some(keys) = kv.get_mut(..dim) else { return };
                    rotate(spec, rotations, place_of(places, spec, row), keys);
                }
            });
            let each = compute.piece(spec.heads);
            let bytes = cache.len().checked_div(spec.heads).unwrap_or(0);
            let (kv, work) = (&*kv, kv.len() * 10);
            fork_chunks(compute.workers, cache, each * bytes, work, &mut [(); 0], 0, &|i, tiles, _| {
                let at = i * each * head.dim;
                for (row, kv) in (first..).zip(rows(kv, 2 * dim)) {
                    let position = if is_whole { row } else { slots.get(row).map_or(0, |slot| *slot as usize) };
                    let Some((k, v)) = kv.split_at_checked(dim) else { return };
                    let (Some(k), Some(v)) = (k.get(at..), v.get(at..)) else { return };
                    store(compute.kernels, head, (tiles, bytes), pages, position, k, v);
                }
            });
        }
    }

    /// Runs attention and feed-forward of a layer on all rows, whose keys and values are stored.
    fn block(&mut self, layer: usize) {
        let batch = self.plan.options.batch.max(1);
        for first in (0..self.states.count).step_by(batch) {
            let range = first..self.states.count.min(first + batch);
            self.attend(layer, range.clone());
            self.feed_forward(layer, range);
        }
    }

    /// `x += scale1 * output(attention(norm1(x)))` for some rows.
    fn attend(&mut self, layer: usize, range: Range<usize>) {
        let Self { spec, table, compute, states, .. } = self;
        let (dim, count) = (spec.dim, range.len());
        let States {
            hidden,
            branch,
            inner,
            cache,
            pages,
            places,
            windows,
            rotations,
            sums,
            count: all,
            window_count,
            ..
        } = states;
        let Some(hidden) = hidden.get_mut(range.start * dim..range.end * dim) else { return };
        let Some(branch) = branch.get_mut(..count * dim) else { return };
        let Some((q, rest)) = inner.split_at_mut_checked(count * dim) else { return };
        let Some(out) = rest.get_mut(..count * dim) else { return };
        copy(branch, hidden);
        norm(compute, spec.norm(), norm_of(table, layer, Role::Norm1, Role::Norm1Bias), branch);
        let [(weights, bias), ..] = projections(table, layer, dim);
        let Some(weights) = weights else { return };
        compute.times((branch, count), weights, q, dim);
        add_bias(q, dim, bias);
        compute.by_tokens(q, dim, &|start, q| {
            let first = range.start + start.checked_div(dim).unwrap_or(0);
            for (row, q) in (first..).zip(rows_mut(q, dim)) {
                rotate(spec, rotations, place_of(places, spec, row), q);
            }
        });
        let whole = [Window { first: 0, len: *all as u32, tile: 0 }];
        let windows = if spec.sees_all(layer) { &whole } else { windows.get(..*window_count).unwrap_or(&[]) };
        let view = Seen { spec, head: head_layout(spec), cache, pages, windows };
        let (q, scratch) = (&*q, sums.len().checked_div(compute.threads).unwrap_or(0));
        let work = count * 2 * dim * windows.iter().map(|window| window.len as usize).max().unwrap_or(0);
        fork_chunks(compute.workers, out, ROWS * dim, work, sums, scratch, &|i, out, sums| {
            let (first, q) = (range.start + i * ROWS, q.get(i * ROWS * dim..).unwrap_or(&[]));
            view.attend(compute.kernels, first, q, out, sums);
        });
        if let Some(weights) = table.matrix(Role::Output, layer) {
            compute.times((out, count), weights, branch, dim);
        }
        add_bias(branch, dim, table.vector(Role::OutputBias, layer));
        scale_rows(branch, dim, table.vector(Role::Scale1, layer));
        add(hidden, branch);
    }

    /// `x += scale2 * down(f(gate(norm2(x))) * up(norm2(x)))` for some rows, or without the gate.
    fn feed_forward(&mut self, layer: usize, range: Range<usize>) {
        let Self { spec, table, compute, states, .. } = self;
        let (dim, ffn, count) = (spec.dim, spec.ffn, range.len());
        let Some(hidden) = states.hidden.get_mut(range.start * dim..range.end * dim) else { return };
        let Some(branch) = states.branch.get_mut(..count * dim) else { return };
        copy(branch, hidden);
        norm(compute, spec.norm(), norm_of(table, layer, Role::Norm2, Role::Norm2Bias), branch);
        let (gate, up) = (table.matrix(Role::Gate, layer), table.matrix(Role::Up, layer));
        // Without a gate, the output of `up` is stored in the gate's place.
        let up_at = if gate.is_some() { count * ffn } else { 0 };
        compute.times_each((branch, count), &[(gate, 0), (up, up_at)], states.inner, ffn);
        let Some((inner, rest)) = states.inner.split_at_mut_checked(count * ffn) else { return };
        let mut up = gate.and(rest.get_mut(..count * ffn));
        let first_bias = if up.is_some() { Role::GateBias } else { Role::UpBias };
        add_bias(inner, ffn, table.vector(first_bias, layer));
        if let Some(up) = &mut up {
            add_bias(up, ffn, table.vector(Role::UpBias, layer));
        }
        let kernels = compute.kernels;
        compute.by_tokens(inner, ffn, &|start, inner| {
            kernels.activate(spec.activation, inner, up.as_deref().and_then(|up| up.get(start..)));
        });
        if let Some(weights) = table.matrix(Role::Down, layer) {
            compute.times((inner, count), weights, branch, dim);
        }
        add_bias(branch, dim, table.vector(Role::DownBias, layer));
        scale_rows(branch, dim, table.vector(Role::Scale2, layer));
        add(hidden, branch);
    }

    /// Norms the states after the last block, if the encoder does so.
    fn norm_after(&mut self) {
        let Self { spec, table, compute, states, .. } = self;
        let Some(hidden) = states.hidden.get_mut(..states.count * spec.dim) else { return };
        norm(compute, spec.norm(), norm_of(table, 0, Role::NormAfter, Role::NormAfterBias), hidden);
    }

    /// Computes vectors for the language model from the states: number `stream` in each row of `out`.
    fn project(&mut self, view: &View, head: Head, (out, stream): (&mut [f32], usize)) {
        let Self { spec, table, compute, states, plan, .. } = self;
        let States { hidden, inner, places, count: all, .. } = states;
        let (block, dim, width) = (spec.block(), spec.dim, spec.tensors.out);
        let (before, joined) = (spec.before(), block * dim);
        let batch = spec.joined_at_once(plan.options.batch).max(1);
        let tokens = (*all - before).checked_div(block).unwrap_or(0);
        for first in (0..tokens).step_by(batch) {
            let count = batch.min(tokens - first);
            let start = before * dim + first * joined;
            let Some(from) = hidden.get(start..start + count * joined) else { return };
            let Some((a, rest)) = inner.split_at_mut_checked(count * joined) else { return };
            let Some((b, c)) = rest.split_at_mut_checked(count * joined.max(spec.tensors.inner)) else { return };
            let Some(result) = head.run((spec, table, compute), (from, count), [a, b, c]) else { return };
            for (token, result) in (first..).zip(rows(result, width)) {
                let Some(place) = places.get(token * block) else { return };
                let (line, column) = ((place >> 16) as usize, (place & 0xffff) as usize);
                let at = line.checked_div(spec.merge).unwrap_or(0) * view.columns
                    + column.checked_div(spec.merge).unwrap_or(0);
                let at = at * spec.row_len() + stream * width;
                copy(out.get_mut(at..at + width).unwrap_or_default(), result);
            }
        }
    }
}

impl core::fmt::Debug for Encoder<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encoder").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// The tensors of one projection.
#[derive(Clone, Copy)]
struct Head {
    layer: usize,
    norm: (Role, Role),
    first: (Role, Role),
    second: (Role, Role),
    is_last: bool,
}

impl Head {
    /// The projection of the last states.
    const LAST: Self = Self {
        layer: 0,
        norm: (Role::JoinNorm, Role::JoinNormBias),
        first: (Role::First, Role::FirstBias),
        second: (Role::Second, Role::SecondBias),
        is_last: true,
    };

    /// The projection of the states after `layer`.
    const fn deep(layer: usize) -> Self {
        Self {
            layer,
            norm: (Role::DeepNorm, Role::DeepNormBias),
            first: (Role::DeepFirst, Role::DeepFirstBias),
            second: (Role::DeepSecond, Role::DeepSecondBias),
            is_last: false,
        }
    }

    /// Projects `count` blocks of joined patches with the help of three buffers; returns the one with the results.
    fn run<'b>(
        self,
        (spec, table, compute): (&Spec<'_>, &Table<'_, '_>, &mut Compute<'_, '_>),
        (from, count): (&[f32], usize),
        [a, b, c]: [&'b mut [f32]; 3],
    ) -> Option<&'b mut [f32]> {
        let (block, dim, out) = (spec.block(), spec.dim, spec.tensors.out);
        let mut width = block * dim;
        let a = a.get_mut(..count * width)?;
        copy(a, from);
        if self.is_last {
            if spec.rules.join == Join::Mean {
                mean_rows(a, block, dim);
                width = dim;
            }
            let a = a.get_mut(..count * width)?;
            let (weight, bias) = norm_of(table, 0, Role::PatchNorm, Role::PatchNormBias);
            let rule = if bias.is_empty() { Norm::Rms } else { Norm::Layer };
            norm(compute, (rule, dim, spec.eps), (weight, bias), a);
            if let Some(merger) = table.matrix(Role::Merger, 0) {
                interleave(a, b, block, dim);
                compute.times((b.get(..count * width)?, count), merger, a, dim);
                width = dim;
            }
            if let Some(columns) = table.matrix(Role::Transposed, 0) {
                let c = c.get_mut(..count * out)?;
                times_columns((a.get(..count * width)?, width), &columns, c, b.get_mut(..out)?);
                return Some(c);
            }
        }
        let a = a.get_mut(..count * width)?;
        let (weight, bias) = norm_of(table, self.layer, self.norm.0, self.norm.1);
        norm(compute, (Norm::Layer, width, spec.rules.join_eps.unwrap_or(spec.eps)), (weight, bias), a);
        let first = table.matrix(self.first.0, self.layer)?;
        let b = b.get_mut(..count * first.rows())?;
        compute.times((a, count), first, b, first.rows());
        add_bias(b, first.rows(), table.vector(self.first.1, self.layer));
        let Some(second) = table.matrix(self.second.0, self.layer) else { return Some(b) };
        let kernels = compute.kernels;
        compute.by_tokens(b, first.rows(), &|_, b| kernels.activate(Activation::GeluErf, b, None));
        let c = c.get_mut(..count * out)?;
        compute.times((b, count), second, c, out);
        add_bias(c, out, table.vector(self.second.1, self.layer));
        Some(c)
    }
}

/// What rows attend to.
struct Seen<'s> {
    spec: &'s Spec<'s>,
    head: HeadLayout,
    cache: &'s [u8],
    pages: &'s [u32],
    windows: &'s [Window],
}

impl Seen<'_> {
    /// Computes attention for the rows from `first` on, whose queries are `q`: as many as `out` has room for.
    fn attend(&self, kernels: &Kernels, first: usize, q: &[f32], out: &mut [f32], sums: &mut [f32]) {
        let Spec { dim, heads, .. } = *self.spec;
        let end = first + out.len().checked_div(dim).unwrap_or(0);
        for window in self.windows {
            let (start, len) = (window.first as usize, window.len as usize);
            let range = first.max(start)..end.min(start + len);
            if range.is_empty() {
                continue;
            }
            let at = (range.start - first) * dim;
            let (Some(q), Some(out)) = (q.get(at..), out.get_mut(at..)) else { return };
            let job = Attention {
                heads,
                tiles: self.cache,
                pages: self.pages.get(window.tile as usize..).unwrap_or(&[]),
                layout: self.head,
                q,
                q_stride: dim,
                group: 1,
                tokens: range.len(),
                position: range.start - start,
                window: usize::MAX,
                reach: Some(len),
                span: None,
                scale: 1.0 / sqrt(self.head.dim as f32),
                cap: None,
                bias: Bias::NONE,
                sinks: &[],
            };
            kernels.attend(&job, out, dim, sums);
        }
    }
}

/// The place of a row's patch.
fn place_of(places: &[u32], spec: &Spec<'_>, row: usize) -> Option<u32> {
    places.get(row.checked_sub(spec.before())?).copied()
}

/// Matrices and biases of queries, keys and values.
fn projections<'m>(table: &Table<'m, '_>, layer: usize, dim: usize) -> [(Option<Matrix<'m>>, &'m [u8]); 3] {
    let fused = (table.matrix(Role::Qkv, layer), table.vector(Role::QkvBias, layer));
    let part = |i: usize| {
        let bias = fused.1.get(4 * i * dim..).and_then(|bias| bias.get(..4 * dim)).unwrap_or(&[]);
        (fused.0.and_then(|w| w.part(i * dim, dim)), bias)
    };
    let apart = |w, bias| (table.matrix(w, layer), table.vector(bias, layer));
    match fused.0 {
        Some(_) => [part(0), part(1), part(2)],
        None => {
            [(Role::Q, Role::QBias), (Role::K, Role::KBias), (Role::V, Role::VBias)].map(|(w, bias)| apart(w, bias))
        }
    }
}

fn norm_of<'m>(table: &Table<'m, '_>, layer: usize, weight: Role, bias: Role) -> (&'m [u8], &'m [u8]) {
    (table.vector(weight, layer), table.vector(bias, layer))
}

/// Norms every `dim` elements of `x`, if there is a weight.
fn norm(
    compute: &Compute<'_, '_>,
    (rule, dim, eps): (Norm, usize, f32),
    (weight, bias): (&[u8], &[u8]),
    x: &mut [f32],
) {
    if weight.is_empty() {
        return;
    }
    let kernels = compute.kernels;
    compute.by_tokens(x, dim, &|_, x| {
        rows_mut(x, dim).for_each(|x| match rule {
            Norm::Rms => kernels.rms_norm(x, weight, eps),
            _ => kernels.layer_norm(x, weight, bias, Deviation::Within(eps)),
        });
    });
}

/// Reads a patch, normalized: all of red from the top, then green, then blue.
fn read_patch(spec: &Spec<'_>, plane: &Plane<'_>, place: u32, to: &mut [f32]) {
    let side = spec.patch;
    let (top, left) = ((place >> 16) as usize * side, (place & 0xffff) as usize * side);
    for ((color, to), (mean, std)) in rows_mut(to, side * side).enumerate().zip(spec.mean.into_iter().zip(spec.std)) {
        for (y, to) in (top..).zip(rows_mut(to, side)) {
            let pixels = plane.row(y).as_chunks::<PIXEL>().0.get(left..).unwrap_or(&[]);
            for (to, pixel) in to.iter_mut().zip(pixels) {
                let byte = pixel.get(color).copied().unwrap_or(0);
                *to = (f32::from(byte) / 255.0 - mean) / std;
            }
        }
    }
}

/// Multiplies each element of rows by the factor of its column, if there are factors.
fn scale_rows(x: &mut [f32], dim: usize, factors: &[u8]) {
    if !factors.is_empty() {
        rows_mut(x, dim).for_each(|x| x.iter_mut().enumerate().for_each(|(i, x)| *x *= le_f32(factors, i)));
    }
}

/// Replaces every `block` rows by their mean; the means are packed at the front.
fn mean_rows(x: &mut [f32], block: usize, dim: usize) {
    let count = x.len().checked_div(block * dim).unwrap_or(0);
    let share = 1.0 / block as f32;
    for (token, i) in (0..count).flat_map(|token| (0..dim).map(move |i| (token, i))) {
        let sum: f32 = (0..block).map(|row| x.get((token * block + row) * dim + i).copied().unwrap_or(0.0)).sum();
        if let Some(to) = x.get_mut(token * dim + i) {
            *to = sum * share;
        }
    }
}

/// Copies blocks of rows to `to` so that the elements of a column are adjacent.
fn interleave(from: &[f32], to: &mut [f32], block: usize, dim: usize) {
    for (from, to) in rows(from, block * dim).zip(rows_mut(to, block * dim)) {
        for (row, from) in rows(from, dim).enumerate() {
            to.iter_mut().skip(row).step_by(block.max(1)).zip(from).for_each(|(to, x)| *to = *x);
        }
    }
}

/// `out[t][i] = sum over k of x[t][k] * w[k][i]`: a product with a matrix that is stored by inputs. `row` has room for
/// a row of the matrix.
fn times_columns((x, width): (&[f32], usize), w: &Matrix<'_>, out: &mut [f32], row: &mut [f32]) {
    out.fill(0.0);
    for k in 0..w.rows() {
        decode_row(w.kind(), w.row(k), row);
        for (x, out) in rows(x, width).zip(rows_mut(out, row.len())) {
            let factor = x.get(k).copied().unwrap_or(0.0);
            out.iter_mut().zip(&*row).for_each(|(out, w)| *out += factor * w);
        }
    }
}
