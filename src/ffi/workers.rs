//! Threads and instruction sets.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // `ffi.rs` has the requirements of all functions

use core::ffi::{CStr, c_char, c_void};
use core::fmt::Write;
#[cfg(feature = "std")]
use core::mem::size_of;

use super::{Text, argument, slice_mut};
#[cfg(feature = "std")]
use super::{arenite_error, arenite_status, place, report};
use crate::workers::Workers;
use crate::{Error, Kernels};

/// A job of a pass; called by each participating thread.
pub type arenite_job = unsafe extern "C" fn(argument: *const c_void);

/// Threads of the caller, or the second core of a microcontroller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct arenite_workers {
    /// Number of threads, including the calling one.
    pub count: usize,
    /// Passed to `run`.
    pub user: *mut c_void,
    /// Calls `job(argument)` on up to `count` threads at once, at least once, and returns when all calls have returned.
    /// The job itself divides the work among the threads, so a late thread finds nothing to do.
    pub run: Option<unsafe extern "C" fn(user: *mut c_void, job: arenite_job, argument: *const c_void)>,
    /// Returns true if the calling thread should return from the job, because the system will soon interrupt the
    /// thread; the other threads then do that thread's work. If this is null, no thread leaves early.
    pub should_leave: Option<unsafe extern "C" fn(user: *mut c_void) -> bool>,
}

// SAFETY: only the session that was given the workers calls their functions. The caller guarantees that this is allowed
// on all threads that run jobs.
unsafe impl Sync for arenite_workers {}

impl Workers for arenite_workers {
    fn count(&self) -> usize {
        self.count.max(1)
    }

    fn run(&self, job: &(dyn Fn() + Sync)) {
        unsafe extern "C" fn call(argument: *const c_void) {
            // SAFETY: `argument` points to `job` below, which is valid until `run` returns.
            unsafe { (*argument.cast::<&(dyn Fn() + Sync)>())() }
        }
        match self.run {
            // SAFETY: the caller's function, called as documented.
            Some(run) => unsafe { run(self.user, call, (&raw const job).cast()) },
            None => job(),
        }
    }

    fn should_leave(&self) -> bool {
        // SAFETY: as above.
        self.should_leave.is_some_and(|should_leave| unsafe { should_leave(self.user) })
    }
}

/// The kernels called `name`, or the fastest kernels if `name` is null.
///
/// # Safety
///
/// `name` points to a zero-terminated string, or is null.
pub(super) unsafe fn kernels(name: *const c_char) -> Result<&'static Kernels, Error> {
    if name.is_null() {
        return Ok(Kernels::detect());
    }
    // SAFETY: as for this function.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok();
    name.and_then(Kernels::by_name).ok_or(argument("for the instruction set"))
}

/// Writes the name of one of this machine's instruction sets to `out`, terminated by a zero byte and cut to `capacity`
/// bytes. `number` selects the instruction set; 0 is the fastest. Returns the length of the name, or 0 if there is no
/// such instruction set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_isa(number: usize, out: *mut c_char, capacity: usize) -> usize {
    // SAFETY: see the module.
    let out = unsafe { slice_mut(out.cast(), capacity) }.unwrap_or_default();
    let mut text = Text { out, len: 0 };
    if let Some(kernels) = Kernels::available().nth(number) {
        let _ = text.write_str(kernels.name);
    }
    text.end();
    text.len
}

/// A pool of threads owned by the library.
#[cfg(feature = "std")]
#[derive(Debug)]
pub struct arenite_pool {
    pool: crate::workers::Pool,
    workers: arenite_workers,
}

/// Size of a pool in bytes.
#[cfg(feature = "std")]
#[unsafe(no_mangle)]
pub extern "C" fn arenite_pool_size() -> usize {
    size_of::<arenite_pool>()
}

/// Starts `count - 1` threads, and creates a pool in `memory`. The pool consists of these threads and the calling
/// thread. A pool is the only object that must be freed. Free it with `arenite_pool_free` after the last use of the
/// sessions that use the pool.
#[cfg(feature = "std")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pool_new(
    count: usize,
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut arenite_pool,
    error: *mut arenite_error,
) -> arenite_status {
    unsafe extern "C" fn run(user: *mut c_void, job: arenite_job, argument: *const c_void) {
        struct Argument(*const c_void);
        // SAFETY: whoever calls `run` promises that `job(argument)` may run on all threads of the pool at once.
        unsafe impl Sync for Argument {}
        let argument = Argument(argument);
        // SAFETY: `user` points to the pool of `arenite_pool_workers`.
        let pool = unsafe { &*user.cast::<arenite_pool>() };
        pool.pool.run(&|| {
            let Argument(argument) = &argument;
            // SAFETY: `job` and `argument` were passed together to this function.
            unsafe { job(*argument) }
        });
    }
    unsafe extern "C" fn should_leave(user: *mut c_void) -> bool {
        // SAFETY: as above.
        unsafe { &*user.cast::<arenite_pool>() }.pool.should_leave()
    }
    // SAFETY: see the module.
    let result = unsafe {
        place(memory, capacity, out, || {
            let pool = crate::workers::Pool::new(count);
            let (run, should_leave) = (Some(run as _), Some(should_leave as _));
            let workers = arenite_workers { count: pool.count(), user: memory, run, should_leave };
            Ok(arenite_pool { pool, workers })
        })
    };
    report(result, error)
}

/// Returns the pool as workers for a session, or null if `pool` is null.
#[cfg(feature = "std")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pool_workers(pool: *const arenite_pool) -> *const arenite_workers {
    // SAFETY: see the module.
    unsafe { pool.as_ref() }.map_or(core::ptr::null(), |pool| &raw const pool.workers)
}

/// Stops the threads of a pool.
#[cfg(feature = "std")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pool_free(pool: *mut arenite_pool) {
    if !pool.is_null() {
        // SAFETY: see the module; no session uses the pool any more.
        unsafe { pool.drop_in_place() };
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::null_mut;

    use super::*;

    #[test]
    fn should_leave_is_optional() {
        unsafe extern "C" fn always(_: *mut c_void) -> bool {
            true
        }
        let workers = arenite_workers { count: 1, user: null_mut(), run: None, should_leave: None };
        assert!(!workers.should_leave());
        assert!(arenite_workers { should_leave: Some(always), ..workers }.should_leave());
    }
}
