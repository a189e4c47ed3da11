//! The linear layer: rows of weights times tokens, divided among workers by rows.

use core::ops::Range;

use super::Kernels;
use super::addend::Addend;
use super::fork::{ITEM_TOKENS, ITEM_WEIGHTS, Parts, fork};
use super::form::{Form, SUM_SPAN};
use super::job::{Acts, Job};
use super::matrix::Matrix;
use super::panel::{PANEL_ROWS, panel_bytes};
use crate::workers::Workers;

/// A matrix, if there is one, and the index in `out` where the outputs of the first token begin.
pub type Product<'a> = (Option<Matrix<'a>>, usize);

/// Several matrices that are multiplied with the same input: `out[at + t * stride + r] = row r of w * token t of x` for
/// each `(w, at)` of `products`.
///
/// The outputs must not overlap. The outputs of a product are either next to the outputs of the previous product,
/// within the same stride, or after the outputs of all previous products.
pub struct Batch<'a> {
    pub products: &'a [Product<'a>],
    pub x: Acts<'a>,
    pub out: &'a mut [f32],
    pub stride: usize,
}

impl<'a> Batch<'a> {
    pub fn products(&self) -> impl Iterator<Item = (&'a Matrix<'a>, usize)> + use<'a> {
        self.products.iter().filter_map(|(w, at)| Some((w.as_ref()?, *at)))
    }
}

/// Computes the products of `batch`, and adds `addend` to their outputs. The workers divide the rows of all matrices as
/// if they were one matrix.
///
/// `panels` has room for one panel per worker that takes part. Each row is computed by one worker, so the result does
/// not depend on the number of workers.
pub fn linear(kernels: &Kernels, workers: &dyn Workers, panels: &mut [u8], batch: Batch<'_>, addend: &impl Addend) {
    let Batch { x, stride, .. } = batch;
    if !fit(batch.products(), x.tokens, batch.out.len(), stride) || !addend.fits(x.tokens, batch.out.len(), stride) {
        debug_assert!(false, "linear: the shapes do not match");
        return;
    }
    let out = Out(batch.out.as_mut_ptr());
    let (mut all_panels, mut work, mut panel) = (0, 0usize, 0);
    for (w, _) in batch.products() {
        all_panels += w.rows().div_ceil(PANEL_ROWS);
        work = work.saturating_add(w.rows().saturating_mul(w.cols()).saturating_mul(x.tokens));
        panel = panel.max(if x.tokens > 1 { panel_bytes(w.kind(), w.cols()) } else { 0 });
    }
    let large = work.checked_div(x.tokens.min(ITEM_TOKENS) * ITEM_WEIGHTS).unwrap_or(0);
    // There is at least one item, because without items there would be no results.
    let items = workers.parts(work).max(large).max(1).min(all_panels);
    fork(workers, items, work, panels, panel, &|item, panel| {
        let mut range = share(item, items, all_panels);
        for (w, at) in batch.products() {
            if let Some((first, w)) = part(w, &mut range) {
                let at = at + first;
                addend.prefetch(kernels, at..at + w.rows());
                addend.prepare(kernels);
                // SAFETY: each item has its own rows, so nobody else writes these outputs; `fit` and `fits` checked
                // that all outputs are inside `out`.
                unsafe {
                    rows(kernels, &w, &x, (out.at(at), stride), panel);
                    addend.add(kernels, out.at(0), stride, at..at + w.rows());
                }
            }
        }
    });
}

/// The range of panels that belong to work item `item`. All panels are divided among `items` items, whose numbers of
/// panels differ by at most one.
pub(super) fn share(item: usize, items: usize, panels: usize) -> Range<usize> {
    let begin = |item: usize| (item * panels).checked_div(items).unwrap_or(0);
    begin(item)..begin(item + 1)
}

/// Returns those rows of `w` that are in a range of panels, and the index of the first of them; `None` if there are no
/// such rows. At first, `range` counts panels from the first row of `w`. It is then changed to count them from the
/// first row of the matrix that follows `w`.
#[inline(always)]
pub(super) fn part<'a>(w: &Matrix<'a>, range: &mut Range<usize>) -> Option<(usize, Matrix<'a>)> {
    let (first, last) = (w.rows().min(range.start * PANEL_ROWS), w.rows().min(range.end * PANEL_ROWS));
    let panels = w.rows().div_ceil(PANEL_ROWS);
    *range = range.start.saturating_sub(panels)..range.end.saturating_sub(panels);
    Some((first, w.part(first, last - first).filter(|w| w.rows() > 0)?))
}

/// Multiplies on the calling thread: `out[at + t * stride + r] = row r of w * token t of x`, plus `addend`.
#[inline(always)]
pub(crate) fn linear_alone(
    kernels: &Kernels,
    panel: &mut [u8],
    (w, at): (&Matrix<'_>, usize),
    x: &Acts<'_>,
    (out, stride): (&mut [f32], usize),
    addend: &impl Addend,
) {
    let last = x.tokens.saturating_sub(1).saturating_mul(stride);
    if at.saturating_add(last).saturating_add(w.rows()) > out.len() || !addend.fits(x.tokens, out.len(), stride) {
        debug_assert!(false, "linear: the shapes do not match");
        return;
    }
    addend.prefetch(kernels, at..at + w.rows());
    let out = out.as_mut_ptr();
    // SAFETY: it was checked above that all outputs are inside `out`, which is borrowed mutably.
    unsafe {
        rows(kernels, w, x, (out.add(at), stride), panel);
        addend.prepare(kernels); // after the rows, which give the prefetches time
        addend.add(kernels, out, stride, at..at + w.rows());
    }
}

/// Multiplies all rows of a matrix with all tokens.
///
/// # Safety
///
/// For every row `r` and token `t`, `out + t * stride + r` may be written and nobody else accesses it.
pub(super) unsafe fn rows(kernels: &Kernels, w: &Matrix<'_>, x: &Acts<'_>, out: (*mut f32, usize), panel: &mut [u8]) {
    // SAFETY: the caller promises the same.
    let job = unsafe { Job::new(w, x, out, panel) };
    debug_assert!(job.is_some(), "linear: the shapes do not match");
    if let Some(mut job) = job {
        kernels.matmul(&mut job);
    }
}

/// True if the outputs of all products are inside `len` floats and do not overlap: see [`Batch`].
pub(super) fn fit<'a>(
    products: impl Iterator<Item = (&'a Matrix<'a>, usize)>,
    tokens: usize,
    len: usize,
    stride: usize,
) -> bool {
    let last_token = tokens.saturating_sub(1).saturating_mul(stride);
    // The products are examined in order of their outputs. Consecutive matrices whose outputs are adjacent form a run.
    // These variables belong to the current run: the start and the end of its outputs for the first token, and the end
    // for the last token.
    let (mut begin, mut end, mut last_end) = (0, 0, 0);
    for (w, at) in products {
        if at < end || w.data().len() < w.rows().max(1) {
            return false;
        }
        if at >= last_end {
            begin = at;
        }
        end = at.saturating_add(w.rows());
        last_end = end.saturating_add(last_token);
        if last_end > len || (tokens > 1 && end - begin > stride) {
            return false;
        }
    }
    true
}

/// [`Kernels::quantize`], divided among the workers.
pub(crate) fn quantize(
    kernels: &Kernels,
    workers: &dyn Workers,
    form: Form,
    x: &[f32],
    q: &mut [i8],
    d: &mut [f32],
    sums: &mut [i16],
) {
    /// Elements per item, a multiple of the span of every form.
    const CHUNK: usize = 1 << 13;
    let scales = |elements: usize| elements.checked_div(form.span()).unwrap_or(0);
    if q.len() < x.len() || d.len() < scales(x.len()) || sums.len() < x.len() / SUM_SPAN {
        debug_assert!(false, "quantize: the slices are too short");
        return;
    }
    let (q, d, sums) = (Parts::new(q), Parts::new(d), Parts::new(sums));
    fork(workers, x.len().div_ceil(CHUNK), x.len().saturating_mul(10), &mut [(); 0], 0, &|i, _| {
        let start = i * CHUNK;
        let Some(x) = x.get(start..x.len().min(start + CHUNK)) else { return };
        // SAFETY: it was checked above that the slices are long enough for all items. `CHUNK` is a multiple of every
        // span, so the parts of different items do not overlap, and `fork` runs each item once.
        let (q, d, sums) = unsafe {
            (
                q.part(start, x.len()),
                d.part(scales(start), scales(x.len())),
                sums.part(start / SUM_SPAN, x.len() / SUM_SPAN),
            )
        };
        kernels.quantize(form, x, q, d, sums);
    });
}

/// The output pointer, shared by workers that write disjoint rows.
pub(super) struct Out(pub *mut f32);
// SAFETY: each worker has its own rows, and only `at` uses the pointer.
unsafe impl Sync for Out {}

impl Out {
    /// The output of row `r` for the first token.
    pub(super) unsafe fn at(&self, r: usize) -> *mut f32 {
        // SAFETY: the caller passes an index inside the output.
        unsafe { self.0.add(r) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::TensorType;

    /// Products are rejected if their outputs overlap or if outputs are out of bounds.
    #[test]
    fn outputs_of_products() {
        let w = Matrix::at(TensorType::F32, (4, 1), &[0; 16], 0).unwrap();
        let fits = |at: &[usize], tokens| fit(at.iter().map(|&at| (&w, at)), tokens, 32, 10);
        assert!(fits(&[], 1) && fits(&[28], 1) && fits(&[0, 4, 8, 12], 1));
        assert!(!fits(&[29], 1) && !fits(&[usize::MAX], 1) && !fits(&[0, 3], 1) && !fits(&[4, 0], 1));
        assert!(fits(&[8], 3) && fits(&[2, 8], 3) && fits(&[0, 14, 18], 2) && fits(&[0, 4, 18], 2));
        assert!(!fits(&[9], 3) && !fits(&[0, 7], 3) && !fits(&[0, 10], 2) && !fits(&[0, 6, 18], 2));
        assert!(!fit([(&w, 0)].into_iter(), 2, 32, 3), "its own next token");
    }
}
