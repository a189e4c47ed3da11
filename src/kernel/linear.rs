//! The linear layer: rows of weights times tokens, divided among workers by rows.

use super::Kernels;
use super::fork::{ITEM_WEIGHTS, ITEMS_PER_WORKER, Parts, fork};
use super::form::{Form, SUM_SPAN};
use super::job::{Acts, Job};
use super::matrix::Matrix;
use super::panel::{PANEL_ROWS, panel_bytes};
use crate::workers::Workers;

/// An optional matrix, and the index in `out` where the outputs of the first token begin.
pub(crate) type Product<'a> = (Option<Matrix<'a>>, usize);

/// `out[at + t * stride + r] = row r of w * token t of x` for each `(w, at)` of `products`. The workers divide the rows
/// of all matrices as if they were one matrix.
///
/// The outputs must not overlap: in the order of `products` they are side by side within a stride, or each ends before
/// the next begins. `panels` has room for one panel per worker that takes part. Each row is computed by one worker, so
/// the result does not depend on the number of workers.
pub(crate) fn linear(
    kernels: &Kernels,
    workers: &dyn Workers,
    panels: &mut [u8],
    products: &[Product<'_>],
    x: &Acts<'_>,
    out: &mut [f32],
    stride: usize,
) {
    let products = || products.iter().filter_map(|(w, at)| Some((w.as_ref()?, *at)));
    if !fit(products(), x.tokens, out.len(), stride) {
        debug_assert!(false, "linear: the shapes do not match");
        return;
    }
    let out = Out(out.as_mut_ptr());
    let all_panels = products().map(|(w, _)| w.rows.div_ceil(PANEL_ROWS)).sum();
    let weights = products().fold(0, |sum: usize, (w, _)| sum.saturating_add(w.rows.saturating_mul(w.cols)));
    let work = weights.saturating_mul(x.tokens);
    let panel = products().map(|(w, _)| panel_bytes(w.kind, w.cols)).max().filter(|_| x.tokens > 1).unwrap_or(0);
    let items = workers.count().saturating_mul(ITEMS_PER_WORKER).max(weights / ITEM_WEIGHTS).min(all_panels);
    // Items are whole panels, divided as evenly as possible.
    let begin = |item: usize| (item * all_panels).checked_div(items).unwrap_or(0);
    fork(workers, items, work, panels, panel, &|item, panel| {
        // Row ranges are counted in panels from the first row of each matrix.
        let (mut begin, mut end) = (begin(item), begin(item + 1));
        for (w, at) in products() {
            let (first, last) = (w.rows.min(begin * PANEL_ROWS), w.rows.min(end * PANEL_ROWS));
            if let Some(w) = w.part(first, last - first).filter(|w| w.rows > 0) {
                // SAFETY: each item has its own rows, so nobody else writes these outputs; `fit` checked that they are
                // inside `out`.
                unsafe { rows(kernels, &w, x, (out.at(at + first), stride), panel) };
            }
            let panels = w.rows.div_ceil(PANEL_ROWS);
            (begin, end) = (begin.saturating_sub(panels), end.saturating_sub(panels));
        }
    });
}

/// `out[at + t * stride + r] = row r of w * token t of x`, on the calling thread. `last` is the distance in `out` from
/// the first token to the last.
#[inline(always)]
pub(crate) fn linear_alone(
    kernels: &Kernels,
    panel: &mut [u8],
    (w, at): (&Matrix<'_>, usize),
    x: &Acts<'_>,
    out: &mut [f32],
    (stride, last): (usize, usize),
) {
    if at.saturating_add(last).saturating_add(w.rows) > out.len() {
        debug_assert!(false, "linear: the shapes do not match");
        return;
    }
    // SAFETY: the check above keeps the outputs inside `out`, which is borrowed mutably.
    unsafe { rows(kernels, w, x, (out.as_mut_ptr().add(at), stride), panel) };
}

/// Multiplies all rows of a matrix with all tokens.
///
/// # Safety
///
/// For every row `r` and token `t`, `out + t * stride + r` may be written and nobody else accesses it.
unsafe fn rows(kernels: &Kernels, w: &Matrix<'_>, x: &Acts<'_>, out: (*mut f32, usize), panel: &mut [u8]) {
    // SAFETY: the caller promises this.
    let job = unsafe { Job::new(w, x, out, panel) };
    debug_assert!(job.is_some(), "linear: the shapes do not match");
    if let Some(mut job) = job {
        kernels.matmul(&mut job);
    }
}

/// True if the outputs of all products are inside `len` floats and do not overlap: see [`linear`].
pub(super) fn fit<'a>(
    products: impl Iterator<Item = (&'a Matrix<'a>, usize)>,
    tokens: usize,
    len: usize,
    stride: usize,
) -> bool {
    let last_token = tokens.saturating_sub(1).saturating_mul(stride);
    // The current run of outputs that are side by side: its start and end for the first token, its end for the last
    // token.
    let (mut begin, mut end, mut last_end) = (0, 0, 0);
    for (w, at) in products {
        if at < end || w.data.len() < w.rows.max(1) {
            return false;
        }
        if at >= last_end {
            begin = at;
        }
        end = at.saturating_add(w.rows);
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
        // SAFETY: `x` is part of the whole, for which the slices are long enough: it was checked above. `CHUNK` is a
        // multiple of all spans, and `fork` runs each item once, so each part has one user.
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
struct Out(*mut f32);
// SAFETY: `linear` gives each worker its own rows, and only `at` uses the pointer.
unsafe impl Sync for Out {}

impl Out {
    /// The output of row `r` for the first token.
    unsafe fn at(&self, r: usize) -> *mut f32 {
        // SAFETY: the caller passes an index inside the output.
        unsafe { self.0.add(r) }
    }
}
