//! The two shapes of a quantized matrix product, stated once over [`Blocks`] and
//! [`Panel`].
//!
//! - **Decode**, one token: the file's own rows, [`Blocks::ROWS`] at a time, nothing repacked.
//! - **Prefill**, several tokens: 16 rows are packed into a panel that suits the instruction set, and the
//!   panel is multiplied with every token.
//!
//! An instruction set states the inner loops; here are the edges. Both shapes give the bits of
//! [`super::scalar`].

use core::mem::MaybeUninit;

use super::job::Row;
use super::linear::PANEL_ROWS;
use super::{Acts, Job};

/// One block format under one instruction set.
///
/// # Safety
///
/// All functions need the instruction set. `w` points to rows of whole blocks, `row_bytes` apart;
/// `x` has the length of a row.
pub(super) trait Blocks {
    /// Rows that `dot` takes at once.
    const ROWS: usize;

    /// The dot products of `ROWS` rows with one token, to `out[..ROWS]`.
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32);

    /// The dot product of one row, for what is left where there are fewer than `ROWS`.
    fn dot_one(row: &[u8], x: Row<'_>) -> f32;
}

/// A block format that is packed into panels for several tokens.
///
/// # Safety
///
/// As for [`Blocks`].
pub(super) trait Panel: Blocks {
    /// Packs `rows` rows, 1 to 16, of `cols` weights into `panel`, which has
    /// [`panel_bytes`](super::panel_bytes). What stands for the rows that are missing is unimportant.
    unsafe fn pack(w: *const u8, row_bytes: usize, rows: usize, cols: usize, panel: *mut u8);

    /// Multiplies a panel with `T` tokens of `x` from `first` on: `out[t]` receives 16 rows for token
    /// `first + t`.
    unsafe fn multiply<const T: usize>(panel: *const u8, cols: usize, x: &Acts<'_>, first: usize, out: [*mut f32; T]);

    /// Asks for what will be written soon; any address will do.
    #[inline(always)]
    fn prefetch(_out: *const f32) {}
}

/// Rows times tokens, in the shape that suits their number. `T` is the number of tokens that the
/// instruction set has registers for.
///
/// # Safety
///
/// The caller has the instruction set of `B`; `job` as [`Job`] says.
#[inline(always)]
pub(super) unsafe fn matmul<B: Panel, const T: usize>(job: &mut Job<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        if job.x.tokens == 1 {
            decode::<B>(job);
        } else {
            prefill::<B, T>(job);
        }
    }
}

/// Rows times tokens, one token after another.
///
/// # Safety
///
/// As for [`matmul`].
#[inline(always)]
pub(super) unsafe fn decode<B: Blocks>(job: &mut Job<'_>) {
    for t in 0..job.x.tokens {
        // SAFETY: passed on to the caller.
        unsafe { decode_token::<B>(job, t) };
    }
}

#[inline(always)]
unsafe fn decode_token<B: Blocks>(job: &Job<'_>, t: usize) {
    let row_bytes = job.w.len() / job.rows.max(1);
    let x = job.x.row(t);
    // SAFETY: rows `r..r + ROWS` are the job's, in `w` and in `out`.
    unsafe {
        let out = job.out.add(t * job.stride);
        if job.rows < B::ROWS {
            for (r, row) in job.w.chunks_exact(row_bytes.max(1)).enumerate() {
                *out.add(r) = B::dot_one(row, x);
            }
            return;
        }
        let mut r = 0;
        while r < job.rows {
            // The last rows are taken together with some that are done: the same bits again.
            r = r.min(job.rows - B::ROWS);
            B::dot(job.w.as_ptr().add(r * row_bytes), row_bytes, x, out.add(r));
            r += B::ROWS;
        }
    }
}

#[inline(always)]
unsafe fn prefill<B: Panel, const T: usize>(job: &mut Job<'_>) {
    let row_bytes = job.w.len() / job.rows.max(1);
    let mut r = 0;
    while r < job.rows {
        let rows = PANEL_ROWS.min(job.rows - r);
        // SAFETY: the job has these rows, and `panel` has room for 16 of them.
        unsafe {
            let panel = job.panel.as_mut_ptr();
            B::pack(job.w.as_ptr().add(r * row_bytes), row_bytes, rows, job.cols, panel);
            let mut t = 0;
            while t < job.x.tokens {
                let out = job.out.add(t * job.stride + r);
                t += if job.x.tokens - t >= T {
                    multiply::<B, T>(panel, job, t, rows, out)
                } else {
                    multiply::<B, 1>(panel, job, t, rows, out)
                };
            }
        }
        r += rows;
    }
}

/// Multiplies the panel with `T` tokens from `t` on and writes the rows that there are.
#[inline(always)]
unsafe fn multiply<B: Panel, const T: usize>(
    panel: *const u8,
    job: &Job<'_>,
    t: usize,
    rows: usize,
    out: *mut f32,
) -> usize {
    // Sixteen rows are written for each token: elsewhere, where there are fewer.
    let mut spare = MaybeUninit::<[[f32; PANEL_ROWS]; T]>::uninit();
    let spare: *mut [f32; PANEL_ROWS] = spare.as_mut_ptr().cast();
    // SAFETY: the panel is packed, tokens `t..t + T` are the job's, and so are the rows of `out`.
    unsafe {
        let whole = rows == PANEL_ROWS;
        let to = core::array::from_fn(|k| if whole { out.add(k * job.stride) } else { spare.add(k).cast() });
        // What the next tokens' results replace is asked for now: a line of each, far apart.
        for k in T..2 * T {
            B::prefetch(out.wrapping_add(k * job.stride));
        }
        B::multiply::<T>(panel, job.cols, &job.x, t, to);
        if !whole {
            for (k, from) in to.into_iter().enumerate() {
                core::ptr::copy_nonoverlapping(from, out.add(k * job.stride), rows);
            }
        }
    }
    T
}
