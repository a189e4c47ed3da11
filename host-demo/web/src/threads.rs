//! Helpers for the thread that runs a session: workers of the page, each with this module on the same memory and a stack of
//! its own. They take part in its jobs; whoever waits looks for a while, and then sleeps.

use core::ffi::c_void;
use core::hint::spin_loop;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use arenite::ffi::{arenite_job, arenite_workers};

// The module's own instructions for this are not to be had from a stable compiler: `worker.js` has them.
#[link(wasm_import_module = "threads")]
unsafe extern "C" {
    /// Sleeps until it is woken, unless the gate is no longer like this.
    safe fn wait(gate: &AtomicU32, value: u32);
    /// Wakes all that sleep there.
    safe fn wake(gate: &AtomicU32);
}

/// A job and its argument.
type Task = (arenite_job, *const c_void);

/// The number of the job, whether helpers may join ([`OPEN`]), and how many are at it ([`RUNNING`]).
static GATE: AtomicU32 = AtomicU32::new(0);
/// The job, while the gate is open or helpers are at it: in the frame of [`run`].
static TASK: AtomicPtr<Task> = AtomicPtr::new(null_mut());
/// Threads that must be woken.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// How often helpers have joined.
static JOINED: AtomicU32 = AtomicU32::new(0);

const RUNNING: u32 = OPEN - 1;
const OPEN: u32 = 1 << 8;
const NEXT: u32 = OPEN << 1;
/// Looks at the gate before a thread sleeps: longer than it takes to sample a token.
const LOOKS: u32 = 1 << 19;

/// Waits until the gate is `right`, and returns it.
fn look(right: impl Fn(u32) -> bool) -> u32 {
    for _ in 0..LOOKS {
        let gate = GATE.load(SeqCst);
        if right(gate) {
            return gate;
        }
        spin_loop();
    }
    // All of one order: either this thread sees the gate change, or whoever changes it sees that this thread sleeps.
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

/// To be called when the gate has changed.
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
        // SAFETY: called as the caller says.
        return unsafe { job(argument) };
    }
    let mut task = (job, argument);
    TASK.store(&raw mut task, Relaxed);
    GATE.store(gate.wrapping_add(NEXT) | OPEN, SeqCst);
    changed();
    // SAFETY: called as the caller says.
    unsafe { job(argument) };
    // By now all of it has been taken. Who is late stays out.
    GATE.fetch_and(!OPEN, SeqCst);
    look(|gate| gate & RUNNING == 0);
}

/// Writes `count` threads, the calling one and helpers, to `out`: for the sessions of one thread.
///
/// # Safety
///
/// `out` is to memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn web_workers(count: usize, out: *mut arenite_workers) {
    // SAFETY: as above.
    unsafe { out.write(arenite_workers { count, user: null_mut(), run: Some(run) }) };
}

/// The loop of a helper thread.
#[unsafe(no_mangle)]
pub extern "C" fn web_help() -> ! {
    let number = |gate| gate & !(OPEN | RUNNING);
    let mut done = 0;
    loop {
        let gate = look(|gate| gate & OPEN != 0 && number(gate) != done);
        // An open gate: one more at it keeps `run` from returning.
        if GATE.compare_exchange(gate, gate + 1, SeqCst, Relaxed).is_err() {
            continue;
        }
        done = number(gate);
        JOINED.fetch_add(1, Relaxed);
        // SAFETY: stored before the gate was opened, which the exchange has seen. It is in the frame of `run`, which does
        // not return before this thread is no longer counted, below; and `run` may call the job on several threads.
        unsafe {
            let (job, argument) = *TASK.load(Relaxed);
            job(argument);
        }
        // The last one to leave a closed gate: `run` may sleep.
        if GATE.fetch_sub(1, SeqCst) & (OPEN | RUNNING) == 1 {
            changed();
        }
    }
}

/// How often helpers have joined a job.
#[unsafe(no_mangle)]
pub extern "C" fn web_joined() -> u32 {
    JOINED.load(Relaxed)
}
