//! The linear layer: rows of weights times tokens, divided among workers by rows.

use super::fork::{PIECE, PIECES, fork};
use super::panel::{PANEL_ROWS, panel_bytes};
use super::{Acts, Form, Job, Kernels};
use crate::quant::{TensorType, formats_list};
use crate::workers::Workers;

/// A weight matrix in the file's own layout: `rows` outputs, each a row of `cols` inputs.
///
/// It is right by construction: `data` holds exactly these rows, of a type that is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    pub(super) kind: TensorType,
    pub(super) form: Form,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) data: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// That begins at a place in a file; `None` if it goes on beyond the end, or is of a type that is not built.
    #[cfg(any(test, feature = "bench"))] // a model has looked up the type's number
    pub fn at(kind: TensorType, shape: (usize, usize), file: &'a [u8], start: usize) -> Option<Self> {
        Kind::number(kind)?.matrix(shape, file, start)
    }

    /// The type of the weights.
    pub fn kind(&self) -> TensorType {
        self.kind
    }

    /// The form in which it wants its input.
    pub fn form(&self) -> Form {
        self.form
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// All rows.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The bytes of row `r`; empty if there is no such row.
    pub fn row(&self, r: usize) -> &'a [u8] {
        let bytes = self.data.len() / self.rows.max(1);
        self.data.chunks_exact(bytes.max(1)).nth(r).unwrap_or(&[])
    }

    /// Rows `first..first + rows` as a matrix; `None` if there are fewer.
    pub fn part(&self, first: usize, rows: usize) -> Option<Self> {
        let bytes = self.data.len() / self.rows.max(1);
        let data = self.data.get(first.checked_mul(bytes)?..)?.get(..rows.checked_mul(bytes)?)?;
        Some(Self { rows, data, ..*self })
    }
}

/// A type of weights, by its number among those that are built.
#[derive(Clone, Copy)]
pub(crate) struct Kind(pub u8);

/// What a matrix has to know of its type.
struct Known {
    kind: TensorType,
    form: Form,
    /// Of a block.
    elements: u16,
    bytes: u16,
}

impl Known {
    const fn of(kind: TensorType) -> Self {
        let (elements, bytes) = kind.block();
        let Some(form) = Form::of(kind) else { panic!("no type of weights") };
        Self { kind, form, elements: elements as u16, bytes: bytes as u16 }
    }
}

macro_rules! known {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        static KNOWN: &[Known] = &[
            const { Known::of(TensorType::F32) },
            #[cfg(feature = "half-floats")]
            const { Known::of(TensorType::F16) },
            #[cfg(feature = "half-floats")]
            const { Known::of(TensorType::BF16) },
            $(
                #[cfg(feature = $feature)]
                const { Known::of(TensorType::$name) },
            )*
        ];
    };
}
formats_list!(known);

impl Kind {
    /// `None` for types that are not built.
    #[inline(never)]
    pub fn number(kind: TensorType) -> Option<Self> {
        KNOWN.iter().position(|known| known.kind == kind).map(|number| Self(number as u8))
    }

    /// A matrix of this type that begins at a place in a file; `None` if it goes on beyond the end.
    #[inline]
    pub fn matrix(self, (rows, cols): (usize, usize), file: &[u8], start: usize) -> Option<Matrix<'_>> {
        let Known { kind, form, elements, bytes } = KNOWN.get(usize::from(self.0))?;
        let blocks = cols.checked_div(usize::from(*elements))?;
        if blocks * usize::from(*elements) != cols {
            return None;
        }
        let bytes = blocks.checked_mul(usize::from(*bytes))?.checked_mul(rows)?;
        let data = file.get(start..start.checked_add(bytes)?)?;
        Some(Matrix { kind: *kind, form: *form, rows, cols, data })
    }
}

/// A matrix, if it is there, and where its outputs begin.
pub(crate) type Product<'a> = (Option<Matrix<'a>>, usize);

/// `out[at + t * stride + r] = row r of w * token t of x` for each `(w, at)` of `products`, which
/// are shared out among the workers as if they were one matrix.
///
/// Their outputs do not overlap: in this order, they lie side by side within a stride, or each ends
/// before the next begins. `panels` has room for one panel for each worker that takes part. Each row
/// belongs to one worker, so the result does not depend on their number.
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
        debug_assert!(false, "linear: shapes do not fit");
        return;
    }
    let out = Out(out.as_mut_ptr());
    let units = products().map(|(w, _)| w.rows.div_ceil(PANEL_ROWS)).sum();
    let weights = products().fold(0, |sum: usize, (w, _)| sum.saturating_add(w.rows.saturating_mul(w.cols)));
    let work = weights.saturating_mul(x.tokens);
    let panel = products().map(|(w, _)| panel_bytes(w.kind, w.cols)).max().filter(|_| x.tokens > 1).unwrap_or(0);
    let pieces = workers.count().saturating_mul(PIECES).max(weights / PIECE).min(units);
    // Whole panels, as evenly as can be.
    let begin = |piece: usize| (piece * units).checked_div(pieces).unwrap_or(0);
    fork(workers, pieces, work, panels, panel, &|piece, panel| {
        // Counted from the first panel of each matrix.
        let (mut begin, mut end) = (begin(piece), begin(piece + 1));
        for (w, at) in products() {
            let (first, last) = (w.rows.min(begin * PANEL_ROWS), w.rows.min(end * PANEL_ROWS));
            if let Some(w) = w.part(first, last - first).filter(|w| w.rows > 0) {
                // SAFETY: these rows are nobody else's, and `fit` says that they are inside `out`.
                unsafe { rows(kernels, &w, x, (out.at(at + first), stride), panel) };
            }
            let units = w.rows.div_ceil(PANEL_ROWS);
            (begin, end) = (begin.saturating_sub(units), end.saturating_sub(units));
        }
    });
}

/// `out[at + t * stride + r] = row r of w * token t of x`, by this thread alone; the last token's are `last` numbers after the
/// first one's.
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
        debug_assert!(false, "linear: shapes do not fit");
        return;
    }
    // SAFETY: the rows are inside `out`, which is this thread's.
    unsafe { rows(kernels, w, x, (out.as_mut_ptr().add(at), stride), panel) };
}

/// Rows times tokens.
///
/// # Safety
///
/// `out + t * stride + r` is valid for writes, and nobody else's, for every row and token.
unsafe fn rows(kernels: &Kernels, w: &Matrix<'_>, x: &Acts<'_>, out: (*mut f32, usize), panel: &mut [u8]) {
    // SAFETY: as the caller says.
    let job = unsafe { Job::new(w, x, out, panel) };
    debug_assert!(job.is_some(), "linear: shapes do not fit");
    if let Some(mut job) = job {
        kernels.matmul(&mut job);
    }
}

/// Whether these outputs lie in `len` floats, no two of them in one place: see [`linear`].
pub(super) fn fit<'a>(
    products: impl Iterator<Item = (&'a Matrix<'a>, usize)>,
    tokens: usize,
    len: usize,
    stride: usize,
) -> bool {
    let last_token = tokens.saturating_sub(1).saturating_mul(stride);
    // Where those that lie side by side begin and end for the first token, and end for the last.
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
