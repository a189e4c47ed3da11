//! The linear layer: rows of weights times tokens, divided among workers by rows.

use super::fork::{PIECES, fork};
use super::{Acts, Job, Kernels};
use crate::quant::TensorType;
use crate::workers::Workers;

/// A weight matrix in the file's own layout: `rows` outputs, each a row of `cols` inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    pub kind: TensorType,
    pub rows: usize,
    pub cols: usize,
    pub data: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// The bytes of row `r`; empty if there is no such row.
    pub fn row(&self, r: usize) -> &'a [u8] {
        let bytes = self.data.len() / self.rows.max(1);
        self.data.chunks_exact(bytes.max(1)).nth(r).unwrap_or(&[])
    }

    /// Rows `first..first + rows` as a matrix; `None` if there are not so many.
    pub fn part(&self, first: usize, rows: usize) -> Option<Self> {
        let bytes = self.data.len() / self.rows.max(1);
        let data = self.data.get(first.checked_mul(bytes)?..)?.get(..rows.checked_mul(bytes)?)?;
        Some(Self { rows, data, ..*self })
    }
}

/// Rows that a packed panel holds, and the unit that workers take.
pub(crate) const PANEL_ROWS: usize = 16;

/// Bytes of scratch that a worker needs for matrices of this type, when there are several tokens.
/// The same on every target: 16 rows as bytes, and an f32 scale for every 32.
pub(crate) const fn panel_bytes(kind: TensorType, cols: usize) -> usize {
    match kind {
        TensorType::Q8_0 | TensorType::Q4_0 => PANEL_ROWS * (cols + cols / 32 * 4),
        _ => 0,
    }
}

/// `out[t * stride + r] = row r of w * token t of x`.
///
/// `panels` has room for one panel for each worker that takes part. Each row belongs to one worker,
/// so the result does not depend on their number.
pub(crate) fn linear(
    kernels: &Kernels,
    workers: &dyn Workers,
    panels: &mut [u8],
    w: Matrix<'_>,
    x: &Acts<'_>,
    out: &mut [f32],
    stride: usize,
) {
    let row_bytes = w.data.len() / w.rows.max(1);
    let reach = x.tokens.saturating_sub(1).checked_mul(stride).and_then(|start| start.checked_add(w.rows));
    if row_bytes == 0 || reach.is_none_or(|reach| reach > out.len()) || (x.tokens > 1 && stride < w.rows) {
        debug_assert!(false, "linear: shapes do not fit");
        return;
    }
    let units = w.rows.div_ceil(PANEL_ROWS);
    let pieces = match workers.count() {
        0 | 1 => 1,
        n => n.saturating_mul(PIECES).min(units),
    };
    // Whole panels, as evenly as can be.
    let begin = |piece: usize| w.rows.min((piece * units).checked_div(pieces).unwrap_or(0) * PANEL_ROWS);
    let panel = if x.tokens > 1 { panel_bytes(w.kind, w.cols) } else { 0 };
    let work = w.rows.saturating_mul(w.cols).saturating_mul(x.tokens);
    let out = Out(out.as_mut_ptr());
    fork(workers, pieces, work, panels, panel, &|piece, panel| {
        let first = begin(piece);
        let rows = begin(piece + 1) - first;
        let Some(bytes) = w.data.get(first * row_bytes..(first + rows) * row_bytes) else { return };
        // SAFETY: this piece's rows are written by nobody else, and `reach` keeps them inside `out`.
        unsafe {
            let out = out.at(first);
            kernels.matmul(w.kind, &mut Job { w: bytes, rows, cols: w.cols, x: *x, out, stride, panel });
        }
    });
}

/// The output, shared by workers that write disjoint rows.
struct Out(*mut f32);
// SAFETY: see the one use above.
unsafe impl Sync for Out {}

impl Out {
    /// The output of row `r` for the first token.
    unsafe fn at(&self, r: usize) -> *mut f32 {
        // SAFETY: `r` is a row of the matrix, inside the output.
        unsafe { self.0.add(r) }
    }
}
