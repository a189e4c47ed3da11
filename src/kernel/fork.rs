//! Sharing one operation's work among the caller's workers.

#[cfg(target_has_atomic = "ptr")]
use core::sync::atomic::{AtomicUsize, Ordering};

use super::job::SUM_SPAN;
use super::{Form, Kernels};
use crate::workers::Workers;

/// Multiplications, or what takes as long, below which an operation is not shared.
///
/// Measured with two threads that spin (Zen 5): to fork and to join costs 0.2 microseconds, which are
/// some 10000 multiplications of a quantized row. Microseconds a token of a 15 M model (layers of
/// 83000 and 221000 multiplications) by this number: 0: 230, 2^14: 215, 2^16: 216, 2^17: 262,
/// 2^18: 290; nothing shared: 514.
#[cfg_attr(not(target_has_atomic = "ptr"), allow(dead_code))]
pub(super) const SERIAL_BELOW: usize = 1 << 15;

/// Pieces of a matrix for each worker, which others can take over if it is slow or late. Two and four are
/// equally fast; one is 2 or 3 % faster as long as nobody else wants a core.
pub(super) const PIECES: usize = 4;

/// How many weights a piece of a large matrix has, about: whoever is done waits for the last piece. Worth 1 %
/// of the speed of a 0.6 B model, whose head has 156 M, while two threads read twice as fast as one (Zen 4), and
/// nothing while they read little faster.
pub(super) const PIECE: usize = 1 << 21;

/// The most workers that have a part of the items of their own.
#[cfg(target_has_atomic = "ptr")]
const PARTS: usize = 16;

/// How many items of a part have been taken, in a cache line of its own.
#[cfg(target_has_atomic = "ptr")]
#[repr(align(64))]
struct Taken(AtomicUsize);

/// A pointer that may cross threads; what is reached through it is divided by the code beside it.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);
// SAFETY: every use hands disjoint parts of T to different threads, and T: Send.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// `len` elements from `start`.
    ///
    /// # Safety
    ///
    /// The range must be inside the slice that was shared, and no other reference to it may live.
    #[allow(clippy::mut_from_ref)]
    unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}

/// Runs `f(item, scratch)` once for each item, on as many workers as `scratch` has pieces of
/// `per_worker` elements. `work` says how much there is to do in all, as for [`SERIAL_BELOW`].
///
/// Each worker takes the items of its own part, one after another: one long stream of memory, worth 1
/// to 4 % of the speed of a 0.6 B model and 3 to 7 % of a 135 M one (Zen 4, two threads). Then it takes what is left
/// of others' parts, so that a worker that was interrupted does not hold up the rest. An implementation of
/// [`Workers`] cannot run an item twice.
pub(crate) fn fork<S: Send>(
    workers: &dyn Workers,
    items: usize,
    work: usize,
    scratch: &mut [S],
    per_worker: usize,
    f: &(dyn Fn(usize, &mut [S]) + Sync),
) {
    // Without compare-and-swap there is no second thread to share with.
    #[cfg(target_has_atomic = "ptr")]
    if items > 1 && work >= SERIAL_BELOW && workers.count() > 1 {
        let slots = scratch.len().checked_div(per_worker).unwrap_or(usize::MAX);
        let shared = Shared(scratch.as_mut_ptr());
        return share(workers, items, slots, &|slot, item| {
            // SAFETY: the slot is this thread's alone, and `slot < slots` keeps it inside `scratch`.
            f(item, unsafe { shared.part(slot.wrapping_mul(per_worker), per_worker) });
        });
    }
    let _ = (workers, work);
    let Some(scratch) = scratch.get_mut(..per_worker) else { return };
    (0..items).for_each(|item| f(item, scratch));
}

/// Calls `f(slot, item)` once for each item. The threads at it have slots of their own, less than `slots`.
#[cfg(target_has_atomic = "ptr")]
fn share(workers: &dyn Workers, items: usize, slots: usize, f: &(dyn Fn(usize, usize) + Sync)) {
    let parts = workers.count().clamp(1, PARTS);
    let part_len = items.div_ceil(parts);
    let taken = [const { Taken(AtomicUsize::new(0)) }; PARTS];
    let slot = AtomicUsize::new(0);
    let job = || {
        let slot = slot.fetch_add(1, Ordering::Relaxed);
        if slot >= slots {
            return;
        }
        let mut part = slot.checked_rem(parts).unwrap_or(0);
        for _ in 0..parts {
            let Some(Taken(taken)) = taken.get(part) else { return };
            let end = items.min((part + 1) * part_len);
            loop {
                let item = part * part_len + taken.fetch_add(1, Ordering::Relaxed);
                if item >= end {
                    break;
                }
                f(slot, item);
            }
            part = if part + 1 < parts { part + 1 } else { 0 };
        }
    };
    workers.run(&job);
    // All calls have returned: `job` cannot outlive `run`. What is left, this thread does.
    slot.store(0, Ordering::Relaxed);
    job();
}

/// What is done with a chunk: its index, itself, and a worker's scratch.
type OfChunk<'f, T, S> = &'f (dyn Fn(usize, &mut [T], &mut [S]) + Sync);

/// Runs `f(index, chunk, scratch)` for each chunk of `data`, the last one possibly shorter; `work` as
/// for [`fork`].
pub(crate) fn fork_chunks<T: Send, S: Send>(
    workers: &dyn Workers,
    data: &mut [T],
    chunk: usize,
    work: usize,
    scratch: &mut [S],
    per_worker: usize,
    f: OfChunk<'_, T, S>,
) {
    let len = data.len();
    if (1..=chunk).contains(&len) {
        // There is nothing to share.
        if let Some(scratch) = scratch.get_mut(..per_worker) {
            f(0, data, scratch);
        }
        return;
    }
    let chunk = chunk.max(1);
    let data = Shared(data.as_mut_ptr());
    fork(workers, len.div_ceil(chunk), work, scratch, per_worker, &|i, scratch| {
        let start = i * chunk;
        // SAFETY: `fork` runs each item once, so each chunk has one user; `start < len`.
        f(i, unsafe { data.part(start, chunk.min(len - start)) }, scratch);
    });
}

/// Runs `f(index, a's chunk, b's chunk)` for each pair of whole chunks of two slices; `work` as for [`fork`].
pub(crate) fn fork_pairs<T: Send>(
    workers: &dyn Workers,
    (a, a_chunk): (&mut [T], usize),
    (b, b_chunk): (&mut [T], usize),
    work: usize,
    f: impl Fn(usize, &mut [T], &mut [T]) + Sync,
) {
    let chunks = |len: usize, chunk: usize| len.checked_div(chunk).unwrap_or(0);
    let count = chunks(a.len(), a_chunk).min(chunks(b.len(), b_chunk));
    let (a, b) = (Shared(a.as_mut_ptr()), Shared(b.as_mut_ptr()));
    fork(workers, count, work, &mut [(); 0], 0, &|i, _| {
        // SAFETY: `fork` runs each item once, so each chunk has one user, and both slices have as many chunks.
        unsafe { f(i, a.part(i * a_chunk, a_chunk), b.part(i * b_chunk, b_chunk)) };
    });
}

/// Quantizes one or more tokens as [`Kernels::quantize`], shared among the workers.
pub(crate) fn quantize(
    kernels: &Kernels,
    workers: &dyn Workers,
    form: Form,
    x: &[f32],
    q: &mut [i8],
    d: &mut [f32],
    sums: &mut [i16],
) {
    /// Elements of one piece of work: whole spans of every form.
    const CHUNK: usize = 1 << 13;
    let scales = |elements: usize| elements.checked_div(form.span()).unwrap_or(0);
    if q.len() < x.len() || d.len() < scales(x.len()) || sums.len() < x.len() / SUM_SPAN {
        debug_assert!(false, "quantize: shapes do not fit");
        return;
    }
    let (q, d, sums) = (Shared(q.as_mut_ptr()), Shared(d.as_mut_ptr()), Shared(sums.as_mut_ptr()));
    fork(workers, x.len().div_ceil(CHUNK), x.len().saturating_mul(10), &mut [(); 0], 0, &|i, _| {
        let start = i * CHUNK;
        let Some(x) = x.get(start..x.len().min(start + CHUNK)) else { return };
        // SAFETY: `fork` runs each item once, so each piece has one user; the lengths are checked above.
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
