//! The two shapes of a quantized matrix product.
//!
//! - **Decode**, one token: the file's own rows, [`Blocks::ROWS`] at a time, nothing repacked.
//! - **Prefill**, several tokens: 16 rows are packed into a panel that suits the instruction set, and the
//!   panel is multiplied with every token.
//!
//! An instruction set states the inner loops; here are the edges. Both shapes give the bits of
//! [`super::dot`].

use core::mem::MaybeUninit;

use super::job::Row;
use super::panel::PANEL_ROWS;
use super::{Acts, Job};
use crate::quant::Format;

/// One block format under one instruction set.
///
/// # Safety
///
/// `dot` needs the instruction set. `w` points to rows of whole blocks, `row_bytes` apart; `x` has the length of a row;
/// `out` has room for `ROWS`.
pub(super) unsafe trait Blocks {
    type Format: Format;
    /// Rows that `dot` takes at once.
    const ROWS: usize;

    /// The dot products of `ROWS` rows with one token, to `out[..ROWS]`.
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32);
}

/// Rows times the job's `tokens`, some rows with each token after the other. Where the caller says 1, nothing is left
/// between the groups of rows of what several tokens need.
///
/// # Safety
///
/// The caller has the instruction set of `B`, and the job has as many tokens.
#[inline(always)]
pub(super) unsafe fn decode<B: Blocks>(job: &mut Job<'_>, tokens: usize) {
    let row_bytes = job.w.len() / job.rows.max(1);
    if job.rows < B::ROWS {
        // SAFETY: needs no instruction set.
        return unsafe { super::dot::matmul::<B::Format>(job) };
    }
    // In a decode step the only token: its part of the activations is found once.
    let first = job.x.row(0);
    let mut r = 0;
    while r < job.rows {
        // The last rows are taken together with some that are done: the same bits again.
        r = r.min(job.rows - B::ROWS);
        for t in 0..tokens {
            let x = if t == 0 { first } else { job.x.row(t) };
            // SAFETY: rows `r..r + ROWS` are the job's, in `w` and in `out`.
            unsafe {
                let out = job.out.add(t * job.stride + r);
                B::dot(job.w.as_ptr().add(r * row_bytes), row_bytes, x, out);
            }
        }
        r += B::ROWS;
    }
}

/// Rows, 1 to 16, and the panel that they are packed into.
pub(super) struct Pack<'a> {
    pub w: *const u8,
    /// From one row to the next.
    pub row_bytes: usize,
    /// Those that are missing may become anything.
    pub rows: usize,
    /// Weights of a row.
    pub cols: usize,
    /// It has [`panel_bytes`](super::panel_bytes).
    pub panel: *mut u8,
    /// What is called into the cache meanwhile: a part of the rows of the next panel.
    #[allow(dead_code)] // where nothing is
    pub ahead: &'a [u8],
}

/// How an instruction set packs panels of a format, and multiplies them.
pub(super) struct Panels {
    pub pack: unsafe fn(&Pack<'_>),
    /// The time that packing takes, in tokens multiplied, or 0 if it prefetches nothing. With prefetches two and
    /// four tokens are 1.7 and 1.3 times as fast (Zen 4, Q8_0 from memory).
    pub cost: usize,
    /// Packs and multiplies in one, for the first tokens of a batch; where there is none, `pack` goes before.
    pub both: Option<PackAndMultiply>,
    /// Functions for fewer and fewer tokens, the last one for one.
    pub multiply: &'static [Multiply],
}

/// A panel times some tokens, as many as the function takes.
pub(super) struct Tile<'a> {
    pub panel: *const u8,
    pub cols: usize,
    /// What makes codes unsigned: see [`Format::BIAS`].
    #[allow(dead_code)] // where codes are signed
    pub bias: u8,
    pub x: &'a Acts<'a>,
    /// The first of the tokens.
    pub first: usize,
    /// Where 16 rows go for the first token, `stride` apart for the next.
    pub out: *mut f32,
    pub stride: usize,
    /// Its part of the rows of the next panel, to be called into the cache meanwhile.
    #[allow(dead_code)] // where packing asks for them
    pub ahead: &'a [u8],
}

impl Tile<'_> {
    /// Each token's quants.
    #[inline(always)]
    pub unsafe fn q<const T: usize>(&self) -> [*const i8; T] {
        // SAFETY: the tokens are there.
        core::array::from_fn(|t| unsafe { self.x.q.as_ptr().add((self.first + t) * self.cols) })
    }
    /// Each token's scales, one for `span` quants.
    #[inline(always)]
    pub unsafe fn d<const T: usize>(&self, span: usize) -> [*const f32; T] {
        // SAFETY: the tokens are there.
        core::array::from_fn(|t| unsafe { self.x.d.as_ptr().add((self.first + t) * (self.cols / span)) })
    }
    /// Each token's sums.
    #[inline(always)]
    pub unsafe fn sums<const T: usize>(&self) -> [*const i16; T] {
        // SAFETY: the tokens are there.
        core::array::from_fn(|t| unsafe { self.x.sums.as_ptr().add((self.first + t) * (self.cols / 16)) })
    }
    /// Where each token's rows go.
    #[inline(always)]
    pub unsafe fn out<const T: usize>(&self) -> [*mut f32; T] {
        // SAFETY: the tokens are there.
        core::array::from_fn(|t| unsafe { self.out.add(t * self.stride) })
    }
}

/// How many tokens a function takes, at most [`MAX_TOKENS`], and the function.
pub(super) type Multiply = (usize, unsafe fn(&Tile<'_>));

/// The same in one: packs while it multiplies, so that neither waits for the other.
pub(super) type PackAndMultiply = (usize, unsafe fn(&Pack<'_>, &Tile<'_>));

/// See [`Multiply`].
pub(super) const MAX_TOKENS: usize = 8;

/// So many of a batch's last tokens ask for the next panel, in the time of whose products it comes. To ask costs the others.
const ASKING: usize = 16;

/// Rows times tokens by panels.
///
/// # Safety
///
/// The caller has the instruction set of the functions, which belong together and to the job's format.
pub(super) unsafe fn prefill(job: &mut Job<'_>, bias: u8, panels: &Panels) {
    let row_bytes = job.w.len() / job.rows.max(1);
    let panel = job.panel.as_mut_ptr();
    let both = panels.both.filter(|(tokens, _)| *tokens <= job.x.tokens);
    // Sixteen rows are written for each token: elsewhere, where there are fewer.
    let mut spare = MaybeUninit::<[[f32; PANEL_ROWS]; MAX_TOKENS]>::uninit();
    for r in (0..job.rows).step_by(PANEL_ROWS) {
        let rows = PANEL_ROWS.min(job.rows - r);
        let next = job.w.get((r + PANEL_ROWS) * row_bytes..).unwrap_or(&[]);
        let next = next.get(..PANEL_ROWS * row_bytes).unwrap_or(next);
        // Prefetches are spread over packing and the last tokens. With more tokens than that, these are enough, and packing
        // would take 4 % longer.
        let cost = if job.x.tokens <= panels.cost { panels.cost } else { 0 };
        let quiet = job.x.tokens.saturating_sub(ASKING);
        let share = |time: usize| next.len().saturating_mul(time).checked_div(cost + job.x.tokens - quiet).unwrap_or(0);
        let until = |tokens: usize| share(cost + tokens.saturating_sub(quiet));
        let ahead = next.get(..share(cost)).unwrap_or(&[]);
        // SAFETY: the job has these rows.
        let w = unsafe { job.w.as_ptr().add(r * row_bytes) };
        let pack = Pack { w, row_bytes, rows, cols: job.cols, panel, ahead };
        if both.is_none() {
            // SAFETY: `panel` has room for 16 rows.
            unsafe { (panels.pack)(&pack) };
        }
        let mut first = 0;
        while first < job.x.tokens {
            let both = both.filter(|_| first == 0);
            let Some(&(fit, multiply)) = panels.multiply.iter().find(|(n, _)| *n <= job.x.tokens - first) else {
                break;
            };
            let tokens = both.map_or(fit, |(tokens, _)| tokens);
            // SAFETY: the panel is packed, or will be; the tokens are the job's, and so are the rows of `out`.
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
