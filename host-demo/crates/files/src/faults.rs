//! Turns two signals into ordinary errors: SIGBUS, raised by a read from a mapped file that was truncated, and SIGXFSZ,
//! raised by a write beyond the limit on file size.

#[cfg(unix)]
mod unix {
    #![allow(unsafe_code)]

    use std::ffi::CString;
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    /// Maximum number of registered mappings; any further mapping is not registered. The table is static because a
    /// signal handler must neither allocate nor lock.
    const FILES: usize = 128;

    /// The address range of a file's mapping, and the message that is printed if reading from it fails.
    struct Mapping {
        start: AtomicUsize,
        end: AtomicUsize,
        message: AtomicPtr<libc::c_char>,
    }

    static MAPPINGS: [Mapping; FILES] = [const {
        Mapping { start: AtomicUsize::new(0), end: AtomicUsize::new(0), message: AtomicPtr::new(null_mut()) }
    }; FILES];
    static USED: AtomicUsize = AtomicUsize::new(0);

    /// Installs the signal handlers. A program calls it once, at startup.
    pub fn prepare() {
        // SAFETY: SIGXFSZ is ignored, so that a write beyond the limit fails with EFBIG. The handler of SIGBUS only
        // reads atomics and calls `write`, `_exit` and `signal`, which POSIX allows in a handler. `action` is zeroed,
        // which is a valid value, and it outlives the call.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = unreadable as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &action, null_mut());
        }
    }

    /// Registers a mapping, so that a failed read from it is reported with the file's name.
    pub fn mapped(bytes: &[u8], path: &Path) {
        let text = format!("error: {} was truncated while in use; run again with the complete file\n", path.display());
        let Ok(text) = CString::new(text) else { return };
        let Some(mapping) = MAPPINGS.get(USED.fetch_add(1, Ordering::Relaxed)) else { return };
        mapping.message.store(text.into_raw(), Ordering::Relaxed); // never freed: the handler may read it
        let start = bytes.as_ptr().addr();
        mapping.end.store(start + bytes.len(), Ordering::Relaxed);
        // The start is stored last. A mapping without a start is unused, so the handler never sees a mapping without
        // its other values.
        mapping.start.store(start, Ordering::Release);
    }

    extern "C" fn unreadable(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system passes a valid `info`. A message is a C string that is never freed.
        unsafe {
            let at = (*info).si_addr().addr();
            // Search the newest mapping first, because it may have the same addresses as an older mapping that was
            // removed.
            for mapping in MAPPINGS.iter().rev() {
                if (mapping.start.load(Ordering::Acquire)..mapping.end.load(Ordering::Relaxed)).contains(&at) {
                    let message = mapping.message.load(Ordering::Relaxed);
                    libc::write(2, message.cast(), libc::strlen(message));
                    libc::_exit(1);
                }
            }
            // The address is in none of our mappings. Restore the default action, because the failed read is repeated
            // when this handler returns, and would otherwise fail again and again.
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
}

#[cfg(unix)]
pub use unix::{mapped, prepare};

/// Signals of this kind exist only on Unix.
#[cfg(not(unix))]
pub fn prepare() {}

/// Signals of this kind exist only on Unix.
#[cfg(not(unix))]
pub fn mapped(_: &[u8], _: &std::path::Path) {}
