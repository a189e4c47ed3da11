//! Helpers for the thread that runs a session: workers of the page that share this module's memory. Each helper has its
//! own stack, and takes part in the jobs of the session. A waiting thread first spins, then sleeps.

use core::ffi::c_void;
use core::hint::spin_loop;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use arenite::ffi::{arenite_job, arenite_workers};

// A stable compiler has no functions for the instructions that wait and wake, so `worker.js` provides them.
#[link(wasm_import_module = "threads")]
unsafe extern "C" {
    /// Sleeps until woken, unless the gate's value has changed.
    safe fn wait(gate: &AtomicU32, value: u32);
    /// Wakes all threads that sleep at the gate.
    safe fn wake(gate: &AtomicU32);
}

/// A job and its argument.
type Task = (arenite_job, *const c_void);

/// The number of the current job, the flag [`OPEN`] that tells helpers to join the job, and the number of helpers that
/// are running it, in the bits [`RUNNING`].
static GATE: AtomicU32 = AtomicU32::new(0);
/// The job, which is in the frame of [`run`]. It is valid while the gate is open or helpers are running.
static TASK: AtomicPtr<Task> = AtomicPtr::new(null_mut());
/// Number of sleeping threads.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// Number of times helpers have joined a job.
static JOINED: AtomicU32 = AtomicU32::new(0);

const RUNNING: u32 = OPEN - 1;
const OPEN: u32 = 1 << 8;
const NEXT: u32 = OPEN << 1;
/// Number of spins before a thread sleeps. Spinning takes longer than the sampling of a token.
const LOOKS: u32 = 1 << 19;

/// Waits until `right` accepts the gate's value, and returns the value. The thread first spins and then sleeps.
fn look(right: impl Fn(u32) -> bool) -> u32 {
    for _ in 0..LOOKS {
        let gate = GATE.load(SeqCst);
        if right(gate) {
            return gate;
        }
        spin_loop();
    }
    // The order is sequentially consistent, so that either this thread sees the new gate, or the thread that changes
    // the gate sees that this thread sleeps.
    ASLEEP.fetch_add(1, SeqCst);
    let gate = loop {
        let gate = GATE.load(SeqCst);
        if right(gate) {
            break gate;
        }
        wait(&GATE, gate);
    };
    ASLEEP.fetch_sub(1, SeqCst);
    gate
}

/// Wakes the threads that sleep. Must be called after each change of the gate, because a thread may wait for this
/// change.
fn changed() {
    if ASLEEP.load(SeqCst) > 0 {
        wake(&GATE);
    }
}

/// The `run` of [`arenite_workers`].
unsafe extern "C" fn run(_: *mut c_void, job: arenite_job, argument: *const c_void) {
    let gate = GATE.load(SeqCst);
    // A job within a job has no helpers.
    if gate & (OPEN | RUNNING) != 0 {
        // SAFETY: the caller's contract.
        return unsafe { job(argument) };
    }
    let mut task = (job, argument);
    TASK.store(&raw mut task, Relaxed);
    GATE.store(gate.wrapping_add(NEXT) | OPEN, SeqCst);
    changed();
    // SAFETY: the caller's contract.
    unsafe { job(argument) };
    // The whole job is taken. Late helpers cannot join.
    GATE.fetch_and(!OPEN, SeqCst);
    look(|gate| gate & RUNNING == 0);
}

/// Writes workers with `count` threads (the calling thread and helpers) to `out`. They can be used for sessions that
/// belong to a single thread.
///
/// # Safety
///
/// `out` must be valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn web_workers(count: usize, out: *mut arenite_workers) {
    // SAFETY: the caller's contract.
    unsafe { out.write(arenite_workers { count, user: null_mut(), run: Some(run), should_leave: None }) };
}

/// The loop of a helper thread.
#[unsafe(no_mangle)]
pub extern "C" fn web_help() -> ! {
    let number = |gate| gate & !(OPEN | RUNNING);
    let mut done = 0;
    loop {
        let gate = look(|gate| gate & OPEN != 0 && number(gate) != done);
        // The helper joins the open gate by adding 1 to the number of running helpers. While this number is not 0,
        // `run` does not return.
        if GATE.compare_exchange(gate, gate + 1, SeqCst, Relaxed).is_err() {
            continue;
        }
        done = number(gate);
        JOINED.fetch_add(1, Relaxed);
        // SAFETY: the job was stored before the gate was opened, and the exchange has seen the open gate. The job is in
        // the frame of `run`, which does not return before this thread has left the gate (see below). `run` allows
        // calls of the job on several threads.
        unsafe {
            let (job, argument) = *TASK.load(Relaxed);
            job(argument);
        }
        // The last thread to leave a closed gate wakes `run`.
        if GATE.fetch_sub(1, SeqCst) & (OPEN | RUNNING) == 1 {
            changed();
        }
    }
}

/// Returns the number of times helpers have joined a job.
#[unsafe(no_mangle)]
pub extern "C" fn web_joined() -> u32 {
    JOINED.load(Relaxed)
}
