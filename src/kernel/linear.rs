//! The linear layer: rows of weights times tokens, divided among workers by rows.

use super::fork::{ITEM_WEIGHTS, ITEMS_PER_WORKER, fork};
use super::panel::{PANEL_ROWS, panel_bytes};
use super::{Acts, Form, Job, Kernels};
use crate::quant::{TensorType, formats_list, le_f32};
use crate::workers::Workers;

/// A weight matrix in the layout of the file: `rows` outputs, each with a row of `cols` weights.
///
/// `data` holds exactly these rows, and the type is built: [`Kind::matrix`] checks it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    pub(super) kind: TensorType,
    pub(super) form: Form,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) data: &'a [u8],
    /// Factors on the products: little-endian f32, one for the matrix or for each of its experts; empty for none.
    pub(super) scales: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// The matrix that begins at byte `start` of `file`; `None` if it would end past the end, or if the type is not
    /// built.
    #[cfg(any(test, feature = "bench"))] // a model looks up the type's number only once
    pub fn at(kind: TensorType, shape: (usize, usize), file: &'a [u8], start: usize) -> Option<Self> {
        Kind::number(kind)?.matrix(shape, file, start)
    }

    /// The type of the weights.
    pub fn kind(&self) -> TensorType {
        self.kind
    }

    /// The form of the activations that it is multiplied with.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The bytes of all rows.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The bytes of row `r`; empty if `r` is out of range.
    pub fn row(&self, r: usize) -> &'a [u8] {
        let bytes = self.data.len() / self.rows.max(1);
        self.data.chunks_exact(bytes.max(1)).nth(r).unwrap_or(&[])
    }

    /// The matrix of rows `first..first + rows`; `None` if they are out of range.
    pub fn part(&self, first: usize, rows: usize) -> Option<Self> {
        let bytes = self.data.len() / self.rows.max(1);
        let data = self.data.get(first.checked_mul(bytes)?..)?.get(..rows.checked_mul(bytes)?)?;
        Some(Self { rows, data, ..*self })
    }

    /// The matrix of an expert, which has `rows` rows of this one.
    pub fn expert(&self, expert: usize, rows: usize) -> Option<Self> {
        let scales = match self.scales.as_chunks::<4>().0.get(expert) {
            Some(scale) => scale,
            None => self.scales,
        };
        Some(Self { scales, ..self.part(expert.checked_mul(rows)?, rows)? })
    }

    /// The same with factors on its products.
    pub fn scaled(self, scales: &'a [u8]) -> Self {
        Self { scales, ..self }
    }

    /// The factor on its products.
    pub fn scale(&self) -> f32 {
        if self.scales.is_empty() { 1.0 } else { le_f32(self.scales, 0) }
    }
}

/// A weight type, by its index in the list of built types.
#[derive(Clone, Copy)]
pub(crate) struct Kind(pub u8);

/// The properties of a weight type that a matrix needs.
struct KindInfo {
    kind: TensorType,
    form: Form,
    /// Elements and bytes of a block.
    elements: u16,
    bytes: u16,
}

impl KindInfo {
    const fn of(kind: TensorType) -> Self {
        let (elements, bytes) = kind.block();
        let Some(form) = Form::of(kind) else { panic!("not a weight type of this build") };
        Self { kind, form, elements: elements as u16, bytes: bytes as u16 }
    }
}

macro_rules! kinds {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        static KINDS: &[KindInfo] = &[
            const { KindInfo::of(TensorType::F32) },
            #[cfg(feature = "half-floats")]
            const { KindInfo::of(TensorType::F16) },
            #[cfg(feature = "half-floats")]
            const { KindInfo::of(TensorType::BF16) },
            $(
                #[cfg(feature = $feature)]
                const { KindInfo::of(TensorType::$name) },
            )*
        ];
    };
}
formats_list!(kinds);

impl Kind {
    /// The index of a type; `None` if it is not built.
    #[inline(never)]
    pub fn number(kind: TensorType) -> Option<Self> {
        KINDS.iter().position(|info| info.kind == kind).map(|number| Self(number as u8))
    }

    /// The matrix of this type that begins at byte `start` of `file`; `None` if it would end past the end.
    #[inline]
    pub fn matrix(self, (rows, cols): (usize, usize), file: &[u8], start: usize) -> Option<Matrix<'_>> {
        let KindInfo { kind, form, elements, bytes } = KINDS.get(usize::from(self.0))?;
        let blocks = cols.checked_div(usize::from(*elements))?;
        if cols == 0 || blocks * usize::from(*elements) != cols {
            return None;
        }
        let bytes = blocks.checked_mul(usize::from(*bytes))?.checked_mul(rows)?;
        let data = file.get(start..start.checked_add(bytes)?)?;
        Some(Matrix { kind: *kind, form: *form, rows, cols, data, scales: &[] })
    }
}

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
