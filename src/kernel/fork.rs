//! Sharing one operation's work among the caller's workers.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Form, Kernels};
use crate::workers::Workers;

/// Multiplications, or what takes as long, below which an operation is not shared.
///
/// Measured with two threads that spin (Zen 5): to fork and to join costs 0.2 microseconds, which are
/// some 10000 multiplications of a quantized row. Microseconds a token of a 15 M model (layers of
/// 83000 and 221000 multiplications) by this number: 0: 230, 2^14: 215, 2^16: 216, 2^17: 262,
/// 2^18: 290; nothing shared: 514.
pub(super) const SERIAL_BELOW: usize = 1 << 15;

/// Pieces of a matrix for each worker. More let others take over from a worker that is slow or late;
/// fewer are longer streams of memory. Milliseconds a token of a 0.6 B model on two threads, by this
/// number: 1: 13.3, 2: 13.3, 4: 14.1, 8: 14.3.
pub(super) const PIECES: usize = 2;

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
/// Each worker takes the next item until there are none, so a worker that was interrupted does not
/// hold up the rest, and an implementation of [`Workers`] cannot run an item twice.
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
        let next = AtomicUsize::new(0);
        let slot = AtomicUsize::new(0);
        let slots = scratch.len().checked_div(per_worker).unwrap_or(usize::MAX);
        let shared = Shared(scratch.as_mut_ptr());
        let job = || {
            let slot = slot.fetch_add(1, Ordering::Relaxed);
            if slot >= slots {
                return;
            }
            // SAFETY: the slot is this call's alone, and `slot < slots` keeps it inside `scratch`.
            let scratch = unsafe { shared.part(slot.wrapping_mul(per_worker), per_worker) };
            loop {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= items {
                    return;
                }
                f(item, scratch);
            }
        };
        workers.run(&job);
        // All calls have returned: `job` cannot outlive `run`. What is left, this thread does.
        slot.store(0, Ordering::Relaxed);
        return job();
    }
    let _ = (workers, work);
    let Some(scratch) = scratch.get_mut(..per_worker) else { return };
    (0..items).for_each(|item| f(item, scratch));
}

/// Runs `f(index, chunk, scratch)` for each chunk of `data`, the last one possibly shorter; `work` as
/// for [`fork`].
pub(crate) fn fork_chunks<T: Send, S: Send>(
    workers: &dyn Workers,
    data: &mut [T],
    chunk: usize,
    work: usize,
    scratch: &mut [S],
    per_worker: usize,
    f: impl Fn(usize, &mut [T], &mut [S]) + Sync,
) {
    let len = data.len();
    let chunk = chunk.max(1);
    let data = Shared(data.as_mut_ptr());
    fork(workers, len.div_ceil(chunk), work, scratch, per_worker, &|i, scratch| {
        let start = i * chunk;
        // SAFETY: `fork` runs each item once, so each chunk has one user; `start < len`.
        f(i, unsafe { data.part(start, chunk.min(len - start)) }, scratch);
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
    offsets: &mut [i32],
) {
    /// Elements of one piece of work: whole spans of every form.
    const CHUNK: usize = 1 << 13;
    let (scales, sums) = form.spans();
    let spans = |elements: usize, span| elements.checked_div(span).unwrap_or(0);
    if q.len() < x.len() || d.len() < spans(x.len(), scales) || offsets.len() < spans(x.len(), sums) {
        debug_assert!(false, "quantize: shapes do not fit");
        return;
    }
    let (q, d, offsets) = (Shared(q.as_mut_ptr()), Shared(d.as_mut_ptr()), Shared(offsets.as_mut_ptr()));
    fork(workers, x.len().div_ceil(CHUNK), x.len().saturating_mul(10), &mut [(); 0], 0, &|i, _| {
        let start = i * CHUNK;
        let Some(x) = x.get(start..x.len().min(start + CHUNK)) else { return };
        // SAFETY: `fork` runs each item once, so each piece has one user; the lengths are checked above.
        let (q, d, offsets) = unsafe {
            (
                q.part(start, x.len()),
                d.part(spans(start, scales), spans(x.len(), scales)),
                offsets.part(spans(start, sums), spans(x.len(), sums)),
            )
        };
        kernels.quantize(form, x, q, d, offsets);
    });
}
