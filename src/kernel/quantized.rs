//! The two algorithms of a quantized matrix product.
//!
//! - **Decode**, for one token: multiplies the rows as they are stored in the file, [`Blocks::ROWS`] at a time.
//! - **Prefill**, for several tokens: packs 16 rows into a panel that suits the instruction set, then multiplies the
//!   panel with every token.
//!
//! This module has the loops over rows and tokens; the modules of the instruction sets have the inner loops. The
//! results of both algorithms are bit-equal to [`super::dot`].

use core::mem::MaybeUninit;

use super::job::Row;
use super::panel::{MAX_TOKENS, PANEL_ROWS};
use super::{Acts, Job};
use crate::quant::Format;

/// The dot product of one block format on one instruction set.
///
/// # Safety
///
/// `dot` requires the instruction set. `w` points to `ROWS` rows of whole blocks, `row_bytes` apart; `x` has the length
/// of a row; `out` has room for `ROWS` floats.
pub(super) unsafe trait Blocks {
    type Format: Format;
    /// Rows per call of `dot`.
    const ROWS: usize;

    /// Writes the dot products of `ROWS` rows with one token to `out[..ROWS]`.
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32);

    /// Like [`dot`](Self::dot), for `T` tokens, whose outputs are `stride` floats apart.
    #[inline(always)]
    unsafe fn dots<const T: usize>(w: *const u8, row_bytes: usize, x: [Row<'_>; T], out: *mut f32, stride: usize) {
        for (t, x) in x.into_iter().enumerate() {
            // SAFETY: the caller promises that each token has room for its outputs.
            unsafe { Self::dot(w, row_bytes, x, out.add(t * stride)) };
        }
    }
}

/// Multiplies all rows with all tokens: `B::ROWS` rows with every token, `T` at a time, then the next rows.
///
/// # Safety
///
/// The processor has the instruction set of `B`, and `T` divides the number of tokens.
#[inline(always)]
pub(super) unsafe fn decode<B: Blocks, const T: usize>(job: &mut Job<'_>) {
    let row_bytes = job.w.len() / job.rows.max(1);
    if job.rows < B::ROWS {
        // SAFETY: the scalar kernel needs no instruction set.
        return unsafe { super::dot::matmul::<B::Format>(job) };
    }
    let rows = |t: usize| core::array::from_fn(|i| job.x.row(t + i));
    // The pointers to the first tokens' activations are computed once, before the loop over rows, because usually there
    // are no other tokens.
    let first: [Row<'_>; T] = rows(0);
    let mut r = 0;
    while r < job.rows {
        // The last `ROWS` rows may overlap the previous `ROWS` rows, so that no row is left over. Rows in both groups
        // are computed twice, with the same bits.
        r = r.min(job.rows - B::ROWS);
        for t in (0..job.x.tokens).step_by(T) {
            let x = if t == 0 { first } else { rows(t) };
            // SAFETY: rows `r..r + ROWS` are inside the job's weights and outputs, because `r <= rows - ROWS`; tokens
            // `t..t + T` have the length of a row.
            unsafe {
                let out = job.out.add(t * job.stride + r);
                B::dots(job.w.as_ptr().add(r * row_bytes), row_bytes, x, out, job.stride);
            }
        }
        r += B::ROWS;
    }
}

/// The arguments of packing: 1 to 16 rows, and the panel into which they are packed.
pub(super) struct Pack<'a> {
    pub w: *const u8,
    /// Distance from one row to the next.
    pub row_bytes: usize,
    /// Number of rows to pack. If it is less than the number of rows of a panel, the panel's other rows may contain
    /// anything.
    pub rows: usize,
    /// Weights per row.
    pub cols: usize,
    /// Room for [`panel_bytes`](super::panel_bytes).
    pub panel: *mut u8,
    /// Rows of the next panel, to be prefetched while this panel is packed.
    #[allow(dead_code)] // some instruction sets do not prefetch
    pub ahead: &'a [u8],
}

/// The functions that pack panels of one format and multiply them, for one instruction set.
pub(super) struct Panels {
    pub pack: unsafe fn(&Pack<'_>),
    /// Duration of packing, as the number of tokens that are multiplied in the same time; 0 if packing does not
    /// prefetch. With prefetches in packing, batches of two and four tokens are 1.7 and 1.3 times as fast (Zen 4, Q8_0
    /// from memory).
    pub cost: usize,
    /// The functions that pack a panel and multiply it with the first tokens of a batch at the same time. If this is
    /// `None`, `pack` runs first.
    pub both: Option<PackAndMultiply>,
    /// The functions that multiply, in order of the number of tokens that they take, the largest number first. The last
    /// function takes one token.
    pub multiply: &'static [Multiply],
}

/// The arguments of a multiplication: a panel, and as many tokens as the function multiplies at once.
pub(super) struct Tile<'a> {
    pub panel: *const u8,
    pub cols: usize,
    /// The bias of the panel's codes: see [`Format::BIAS`].
    #[allow(dead_code)] // unused if the panel has signed codes
    pub bias: u8,
    pub x: &'a Acts<'a>,
    /// The first token.
    pub first: usize,
    /// Pointer to the outputs of 16 rows for the first token. The outputs for each further token are `stride` floats
    /// later.
    pub out: *mut f32,
    pub stride: usize,
    /// Rows of the next panel, to be prefetched while this panel is packed.
    #[allow(dead_code)] // some instruction sets prefetch only in packing
    pub ahead: &'a [u8],
}

impl Tile<'_> {
    /// The quants of each token.
    #[inline(always)]
    pub unsafe fn q<const T: usize>(&self) -> [*const i8; T] {
        // SAFETY: the activations contain tokens `first..first + T`.
        core::array::from_fn(|t| unsafe { self.x.q.as_ptr().add((self.first + t) * self.cols) })
    }
    /// The scales of each token, one per `span` quants.
    #[inline(always)]
    pub unsafe fn d<const T: usize>(&self, span: usize) -> [*const f32; T] {
        // SAFETY: the activations contain tokens `first..first + T`.
        core::array::from_fn(|t| unsafe { self.x.d.as_ptr().add((self.first + t) * (self.cols / span)) })
    }
    /// The sums of each token, one per 16 quants.
    #[inline(always)]
    pub unsafe fn sums<const T: usize>(&self) -> [*const i16; T] {
        // SAFETY: the activations contain tokens `first..first + T`.
        core::array::from_fn(|t| unsafe { self.x.sums.as_ptr().add((self.first + t) * (self.cols / 16)) })
    }
    /// The outputs of each token.
    #[inline(always)]
    pub unsafe fn out<const T: usize>(&self) -> [*mut f32; T] {
        // SAFETY: the outputs contain tokens `first..first + T`.
        core::array::from_fn(|t| unsafe { self.out.add(t * self.stride) })
    }
}

/// Pointers `by` bytes after `q`. (`map` is not used, because for arrays it compiles slowly, and again for each
/// closure.)
///
/// # Safety
///
/// The new pointers stay inside the quants that `q` points into.
#[allow(dead_code)] // not every instruction set multiplies several tokens
#[inline(always)]
pub(super) unsafe fn further<const T: usize>(mut q: [*const i8; T], by: usize) -> [*const i8; T] {
    // SAFETY: the caller promises the same.
    q.iter_mut().for_each(|q| *q = unsafe { q.add(by) });
    q
}

/// A number of tokens, at most [`MAX_TOKENS`], and the function that multiplies a panel with this number of tokens at
/// once.
pub(super) type Multiply = (usize, unsafe fn(&Tile<'_>));

/// A number of tokens, and the function that packs a panel while it multiplies the panel with that many tokens, so that
/// neither packing nor multiplying waits for the other.
pub(super) type PackAndMultiply = (usize, unsafe fn(&Pack<'_>, &Tile<'_>));

/// Number of tokens at the end of a batch that prefetch the next panel. The other tokens do not prefetch, because the
/// last tokens already start the loads early enough, and prefetching slows each token down.
const PREFETCHING: usize = 16;

/// Multiplies all rows with all tokens, panel by panel.
///
/// # Safety
///
/// The processor has the instruction set of the functions, which are for the job's format and have the same panel
/// layout. Each function multiplies the number of tokens that is listed with it, at most [`MAX_TOKENS`].
pub(super) unsafe fn prefill(job: &mut Job<'_>, bias: u8, panels: &Panels) {
    let row_bytes = job.w.len() / job.rows.max(1);
    let panel = job.panel().as_mut_ptr();
    let both = panels.both.filter(|(tokens, _)| *tokens <= job.x.tokens);
    // The outputs of fewer than 16 rows go to `spare` first, because functions write 16 rows per token.
    let mut spare = MaybeUninit::<[[f32; PANEL_ROWS]; MAX_TOKENS]>::uninit();
    for r in (0..job.rows).step_by(PANEL_ROWS) {
        let rows = PANEL_ROWS.min(job.rows - r);
        let next = job.w.get((r + PANEL_ROWS) * row_bytes..).unwrap_or(&[]);
        let next = next.get(..PANEL_ROWS * row_bytes).unwrap_or(next);
        // Prefetches of the next rows are spread over packing and over the products with the last tokens. If there are
        // more tokens than `cost`, packing does not prefetch: the products take long enough for all prefetches, and
        // prefetching would make packing 4 % slower.
        let cost = if job.x.tokens <= panels.cost { panels.cost } else { 0 };
        let silent = job.x.tokens.saturating_sub(PREFETCHING);
        let share =
            |time: usize| next.len().saturating_mul(time).checked_div(cost + job.x.tokens - silent).unwrap_or(0);
        let until = |tokens: usize| share(cost + tokens.saturating_sub(silent));
        let ahead = next.get(..share(cost)).unwrap_or(&[]);
        // SAFETY: the job has row `r`.
        let w = unsafe { job.w.as_ptr().add(r * row_bytes) };
        let pack = Pack { w, row_bytes, rows, cols: job.cols, panel, ahead };
        if both.is_none() {
            // SAFETY: the job has these rows, and its panel has `panel_bytes`.
            unsafe { (panels.pack)(&pack) };
        }
        let mut first = 0;
        while first < job.x.tokens {
            let both = both.filter(|_| first == 0);
            let Some(&(fit, multiply)) = panels.multiply.iter().find(|(n, _)| *n <= job.x.tokens - first) else {
                break;
            };
            let tokens = both.map_or(fit, |(tokens, _)| tokens);
            // SAFETY: the panel is packed, or `both` packs it; the job has tokens `first..first + tokens` and rows
            // `r..r + rows`, and `spare` has room for 16 rows of `MAX_TOKENS` tokens.
            unsafe {
                let mine = job.out.add(first * job.stride + r);
                let (out, stride) =
                    if rows == PANEL_ROWS { (mine, job.stride) } else { (spare.as_mut_ptr().cast(), PANEL_ROWS) };
                let ahead = next.get(until(first)..until(first + tokens)).unwrap_or(&[]);
                let tile = Tile { panel, cols: job.cols, bias, x: job.x, first, out, stride, ahead };
                match both {
                    Some((_, both)) => both(&pack, &tile),
                    None => multiply(&tile),
                }
                if rows < PANEL_ROWS {
                    for t in 0..tokens {
                        core::ptr::copy_nonoverlapping(out.add(t * stride), mine.add(t * job.stride), rows);
                    }
                }
            }
            first += tokens;
        }
    }
}
