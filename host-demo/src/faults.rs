//! Faults that the system reports as signals: a file that shrinks while it is mapped, and a limit on the size of
//! files. Each becomes an ordinary error.

#[cfg(unix)]
mod unix {
    #![allow(unsafe_code)]

    use std::ffi::CString;
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    /// Mapped files at most that are known to the handler; of more, the first ones.
    const FILES: usize = 16;

    /// A mapping: its addresses, and the message if one of them cannot be read.
    struct Mapping {
        start: AtomicUsize,
        end: AtomicUsize,
        message: AtomicPtr<libc::c_char>,
    }

    static MAPPINGS: [Mapping; FILES] = [const {
        Mapping { start: AtomicUsize::new(0), end: AtomicUsize::new(0), message: AtomicPtr::new(null_mut()) }
    }; FILES];
    static USED: AtomicUsize = AtomicUsize::new(0);

    /// Sets how the process takes these signals. Called once, first thing.
    pub fn prepare() {
        // SAFETY: SIGXFSZ is ignored, so that a write beyond the limit fails with EFBIG. The handler of SIGBUS
        // only reads atomics and calls `write`, `_exit` and `signal`, which POSIX allows in a handler; the
        // structure is zeroed, which is a valid one, and outlives the call.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = unreadable as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &action, null_mut());
        }
    }

    /// From here on a failure to read these bytes of the file at `path` is reported with its name.
    pub fn mapped(bytes: &[u8], path: &Path) {
        let text =
            format!("error: {} became shorter while it was in use; run again with the whole file\n", path.display());
        let Ok(text) = CString::new(text) else { return };
        let Some(mapping) = MAPPINGS.get(USED.fetch_add(1, Ordering::Relaxed)) else { return };
        mapping.message.store(text.into_raw(), Ordering::Relaxed); // for as long as the process runs
        let start = bytes.as_ptr().addr();
        mapping.end.store(start + bytes.len(), Ordering::Relaxed);
        mapping.start.store(start, Ordering::Release);
    }

    extern "C" fn unreadable(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system hands over a valid `info`. A message is a C string that is never freed.
        unsafe {
            let at = (*info).si_addr().addr();
            // The newest first: addresses may be used again.
            for mapping in MAPPINGS.iter().rev() {
                if (mapping.start.load(Ordering::Acquire)..mapping.end.load(Ordering::Relaxed)).contains(&at) {
                    let message = mapping.message.load(Ordering::Relaxed);
                    libc::write(2, message.cast(), libc::strlen(message));
                    libc::_exit(1);
                }
            }
            // Something else: what would have happened without a handler happens when this returns.
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
}

#[cfg(unix)]
pub use unix::{mapped, prepare};

#[cfg(not(unix))]
pub fn prepare() {}

#[cfg(not(unix))]
pub fn mapped(_: &[u8], _: &std::path::Path) {}
