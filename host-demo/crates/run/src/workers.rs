//! Creates the worker threads of all commands.

use arenite::workers::{Pool, Serial, Workers};

/// Default number of threads: one per core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts workers for `threads` threads.
pub fn start(threads: usize) -> Box<dyn Workers + Send> {
    match threads {
        0 | 1 => Box::new(Serial),
        #[cfg(target_os = "linux")]
        _ => Box::new(Pool::on(&linux::System, threads)),
        #[cfg(not(target_os = "linux"))]
        _ => Box::new(Pool::new(threads)),
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // calls libc
mod linux {
    use std::mem::{MaybeUninit, size_of};

    /// Reads and changes the core of a thread through Linux's scheduler. Only cores on which the process may run are
    /// used.
    #[derive(Debug)]
    pub struct System;

    impl arenite::workers::Cores for System {
        fn current(&self) -> usize {
            // SAFETY: the function has no arguments and no preconditions.
            usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(usize::MAX)
        }

        fn leave(&self, core: usize) {
            if core >= libc::CPU_SETSIZE as usize {
                return;
            }
            let size = size_of::<libc::cpu_set_t>();
            let mut allowed = MaybeUninit::<libc::cpu_set_t>::zeroed();
            // SAFETY: a set of zeros is valid, and both functions get the size of the set. The first thread of the
            // process has the affinity that the user set, because a pool moves only its own threads.
            unsafe {
                if libc::sched_getaffinity(libc::getpid(), size, allowed.as_mut_ptr()) == 0 {
                    let mut others = allowed.assume_init();
                    libc::CPU_CLR(core, &mut others);
                    // Fails without effect if no other core is allowed.
                    libc::sched_setaffinity(0, size, &others);
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::System;
        use arenite::workers::Cores;

        #[test]
        fn a_thread_moves_to_another_core() {
            std::thread::spawn(|| {
                let core = System.current();
                System.leave(core);
                // SAFETY: a set of zeros is valid, and the function gets the size of the set.
                let allowed = unsafe {
                    let mut set = std::mem::zeroed();
                    assert_eq!(libc::sched_getaffinity(libc::getpid(), size_of::<libc::cpu_set_t>(), &mut set), 0);
                    libc::CPU_COUNT(&set)
                };
                assert_eq!(System.current() == core, allowed == 1);
                System.leave(usize::MAX);
            })
            .join()
            .unwrap();
        }
    }
}
