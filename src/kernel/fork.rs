//! Divides the work of one operation among the caller's workers.
//!
//! An operation consists of numbered items. Each worker has a share, which is a run of consecutive items. A worker runs
//! the items of its own share before it helps other workers.

#[cfg(target_has_atomic = "ptr")]
use core::sync::atomic::{AtomicUsize, Ordering};

use core::marker::PhantomData;

use crate::workers::Workers;

/// Work, in multiplications, below which an operation runs on the calling thread only, because a fork costs more than
/// it saves.
///
/// Measured with two spinning threads (Zen 5): a fork and a join take 0.2 microseconds, as long as about 10000
/// multiplications of a quantized row. The limit was chosen with a 15 M model, whose layers have 83000 and 221000
/// multiplications. These are the microseconds per token for different limits: 0: 230, 2^14: 215, 2^16: 216, 2^17: 262,
/// 2^18: 290, always serial: 514.
pub(super) const SERIAL_BELOW: usize = 1 << 15;

/// Work, in multiplications, from which the workers may pause after each item of an operation on the calling thread. For
/// less, the call would cost more than it is worth.
const PAUSE_FROM: usize = 1 << 13;

/// Approximate number of weights per item of a large matrix product. Items are small, so that the wait for the last
/// item is short. Items of this size make a 0.6 B model (with 156 M weights in its output matrix) 1 % faster on a
/// processor whose two threads read memory twice as fast as one thread (Zen 4). They make no difference on a processor
/// whose two threads read hardly faster than one.
pub(super) const ITEM_WEIGHTS: usize = 1 << 21;

/// Maximum number of tokens that an item of [`ITEM_WEIGHTS`] weights multiplies. With more tokens, items have fewer
/// weights, so that an item takes 0.2 ms (about 33 M multiplications). The other workers wait up to this time for the
/// last item. They wait longer if the worker that runs the last item is interrupted.
pub(super) const ITEM_TOKENS: usize = 16;

/// Maximum number of shares into which items are divided. If there are more workers, the others only take items from
/// these shares.
#[cfg(target_has_atomic = "ptr")]
const MAX_SHARES: usize = 16;

/// Number of items that workers have taken from a share. The number has a cache line of its own, so that workers of
/// different shares do not disturb each other.
#[cfg(target_has_atomic = "ptr")]
#[repr(align(64))]
struct Taken(AtomicUsize);

/// A mutably borrowed slice that several threads use, each thread a different part.
pub(super) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: all access is through `part`, whose callers promise that parts in use at the same time do not overlap. A
// thread that has a part therefore has the only reference to the part's elements. This is the same as sending the
// elements to the thread, which `T: Send` allows.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Borrows the `len` elements from `start` on.
    ///
    /// # Safety
    ///
    /// `start + len` does not exceed the length of the slice, and no other part that is in use contains one of these
    /// elements.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        debug_assert!(start.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: the range is inside the slice, which `self` borrows mutably, and nothing else refers to the elements
        // of the range. The caller promises both.
        unsafe { core::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

/// Runs `f(item, scratch)` once for each item, on as many workers as there are chunks of `per_worker` elements in
/// `scratch`. `work` is the cost of all items, in the unit of [`SERIAL_BELOW`].
///
/// Each worker first takes the items of its share in order, so that it reads one long stream of memory. This order is
/// worth 1 to 4 % of the speed of a 0.6 B model and 3 to 7 % of the speed of a 135 M model (Zen 4, two threads). Then
/// the worker takes remaining items of other shares, so that an interrupted worker does not delay the end. No
/// implementation of [`Workers`] can make an item run twice or leave one out.
pub(crate) fn fork<S: Send>(
    workers: &dyn Workers,
    items: usize,
    work: usize,
    scratch: &mut [S],
    per_worker: usize,
    f: &(dyn Fn(usize, &mut [S]) + Sync),
) {
    // Targets without compare-and-swap have no second thread.
    #[cfg(target_has_atomic = "ptr")]
    if items > 1 && work >= SERIAL_BELOW && workers.count() > 1 {
        let slots = scratch.len().checked_div(per_worker).unwrap_or(usize::MAX);
        let shared = Parts::new(scratch);
        return run_shares(workers, items, slots, &|slot, item| {
            // SAFETY: `run_shares` gives each thread its own slot. Slots are below `slots`, which is the number of
            // whole parts of `per_worker` elements in `scratch`. (With `per_worker == 0` all parts are empty.)
            f(item, unsafe { shared.part(slot.wrapping_mul(per_worker), per_worker) });
        });
    }
    let Some(scratch) = scratch.get_mut(..per_worker) else { return };
    if work < PAUSE_FROM {
        return (0..items).for_each(|item| f(item, scratch));
    }
    (0..items).for_each(|item| {
        f(item, scratch);
        workers.pause();
    });
}

/// Calls `f(slot, item)` once for each item. Every participating thread has its own slot, below `slots`.
#[cfg(target_has_atomic = "ptr")]
fn run_shares(workers: &dyn Workers, items: usize, slots: usize, f: &(dyn Fn(usize, usize) + Sync)) {
    let shares = workers.count().clamp(1, MAX_SHARES);
    let share_len = items.div_ceil(shares);
    let taken = [const { Taken(AtomicUsize::new(0)) }; MAX_SHARES];
    let slot = AtomicUsize::new(0);
    let job = |may_leave: bool| {
        let slot = slot.fetch_add(1, Ordering::Relaxed);
        if slot >= slots {
            return;
        }
        let mut share = slot.checked_rem(shares).unwrap_or(0);
        for _ in 0..shares {
            let Some(Taken(taken)) = taken.get(share) else { return };
            let end = items.min((share + 1) * share_len);
            loop {
                let item = share * share_len + taken.fetch_add(1, Ordering::Relaxed);
                if item >= end {
                    break;
                }
                f(slot, item);
                if may_leave && workers.should_leave() {
                    return;
                }
            }
            share = if share + 1 < shares { share + 1 } else { 0 };
        }
    };
    workers.run(&|| job(true));
    // Runs the items that are left, on this thread, because every call of `job` may have left early. Slot 0 is free
    // again: all of these calls had returned when `run` returned.
    slot.store(0, Ordering::Relaxed);
    job(false);
}

/// The function that [`fork_chunks`] calls for each chunk, with the index of the chunk, the chunk, and the scratch
/// memory of a worker.
type OfChunk<'f, T, S> = &'f (dyn Fn(usize, &mut [T], &mut [S]) + Sync);

/// Runs `f(index, chunk, scratch)` for each chunk of `chunk` elements of `data`; the last chunk may be shorter. `work`,
/// `scratch` and `per_worker` have the same meaning as in [`fork`].
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
        // A single chunk needs no fork.
        if let Some(scratch) = scratch.get_mut(..per_worker) {
            f(0, data, scratch);
        }
        return;
    }
    let chunk = chunk.max(1);
    let data = Parts::new(data);
    fork(workers, len.div_ceil(chunk), work, scratch, per_worker, &|i, scratch| {
        let start = i * chunk;
        // SAFETY: `i < len.div_ceil(chunk)`, so `start < len`, and the chunk's length is cut to the rest of the slice.
        // `fork` runs each item once, so chunk `i` has one user.
        f(i, unsafe { data.part(start, chunk.min(len - start)) }, scratch);
    });
}

/// Runs `f(index, a's chunk, b's chunk)` for each pair of whole chunks of two slices. `work` has the same meaning as in
/// [`fork`].
pub(crate) fn fork_pairs<T: Send>(
    workers: &dyn Workers,
    (a, a_chunk): (&mut [T], usize),
    (b, b_chunk): (&mut [T], usize),
    work: usize,
    f: impl Fn(usize, &mut [T], &mut [T]) + Sync,
) {
    let chunks = |len: usize, chunk: usize| len.checked_div(chunk).unwrap_or(0);
    let count = chunks(a.len(), a_chunk).min(chunks(b.len(), b_chunk));
    let (a, b) = (Parts::new(a), Parts::new(b));
    fork(workers, count, work, &mut [(); 0], 0, &|i, _| {
        // SAFETY: both slices have at least `count` whole chunks, and `i < count`. `fork` runs each item once, so chunk
        // `i` of each slice has one user.
        unsafe { f(i, a.part(i * a_chunk, a_chunk), b.part(i * b_chunk, b_chunk)) };
    });
}

#[cfg(all(test, feature = "std"))]
mod tests {
    extern crate std;

    use super::*;
    use crate::workers::Pool;

    /// Workers whose helpers leave each job after one item.
    struct Impatient {
        pool: Pool,
        caller: std::thread::ThreadId,
    }

    impl Workers for Impatient {
        fn count(&self) -> usize {
            self.pool.count()
        }
        fn run(&self, job: &(dyn Fn() + Sync)) {
            self.pool.run(job);
        }
        fn should_leave(&self) -> bool {
            std::thread::current().id() != self.caller
        }
    }

    /// Workers that consist of the caller's thread only, and tell the thread to leave after every item.
    struct Leaving;

    impl Workers for Leaving {
        fn count(&self) -> usize {
            2
        }
        fn run(&self, job: &(dyn Fn() + Sync)) {
            job();
        }
        fn should_leave(&self) -> bool {
            true
        }
    }

    #[test]
    fn the_caller_runs_the_remaining_items() {
        let runs = [const { AtomicUsize::new(0) }; 24];
        fork(&Leaving, runs.len(), SERIAL_BELOW, &mut [(); 0], 0, &|item, _| {
            runs[item].fetch_add(1, Ordering::Relaxed);
        });
        assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn each_item_runs_once_when_workers_leave() {
        let workers = Impatient { pool: Pool::new(3), caller: std::thread::current().id() };
        let mut most = 0;
        for _ in 0..500 {
            let (runs, helped) = ([const { AtomicUsize::new(0) }; 24], AtomicUsize::new(0));
            fork(&workers, runs.len(), SERIAL_BELOW, &mut [(); 0], 0, &|item, _| {
                runs[item].fetch_add(1, Ordering::Relaxed);
                helped.fetch_add(usize::from(workers.should_leave()), Ordering::Relaxed);
                std::thread::yield_now();
            });
            assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
            most = most.max(helped.into_inner());
        }
        assert!((1..=2).contains(&most), "{most} items on two helpers that leave after one");
    }
}
