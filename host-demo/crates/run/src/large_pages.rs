//! Holds model files in large pages.
//!
//! Decoding reads every weight for every token. With pages of 4 KB, page table walks take about a third of the decoding
//! time under a hypervisor, and most file systems have only small pages in the page cache. [`LargePages`] copies a file
//! to anonymous memory of 2 MB pages, before the file is used or in the background while the file is in use. Readers
//! always see the same bytes.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::available_memory::available_memory;

/// Size of a large page.
const LARGE: usize = 2 << 20;
/// Size of the smallest page that Linux uses.
const SMALLEST: usize = 4 << 10;
/// Number of bytes that are copied at a time.
const CHUNK: usize = 16 * LARGE;
/// The copy in the background starts when the number of the file's pages in the page cache has not grown for this time.
/// The first wait is longer (once this time for every [`BYTES_PER_DELAY`] bytes of the file), so that a run of 16
/// tokens ends before the copy starts.
const DELAY: Duration = Duration::from_millis(400);
const BYTES_PER_DELAY: usize = 256 << 20;

/// The bytes of a file, at an address that is a multiple of 2 MB.
pub struct LargePages {
    range: Aligned,
    /// Number of bytes that have been copied.
    copied: Arc<AtomicUsize>,
    /// The copying thread and the flag that stops it.
    copying: Option<(JoinHandle<()>, Arc<AtomicBool>)>,
}

impl LargePages {
    /// Maps the file, and copies it. If `later` is `None`, copies the file at once with `threads` threads. Otherwise
    /// the file is copied in the background, if there is room for the copy and for as many bytes as `later` says.
    /// `later` is read when the copy would start.
    pub fn open(file: File, len: usize, later: Option<Arc<AtomicUsize>>, threads: usize) -> io::Result<Self> {
        let range = Aligned::file(&file, len)?;
        let (stop, copied) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (start, next) = (range.start(), AtomicUsize::new(0));
        let job = Job { file, start, len, next, stop: stop.clone(), copied: copied.clone() };
        if let Some(planned) = later {
            let thread = std::thread::Builder::new().name("large pages".to_string()).spawn(move || {
                // Memory that was planned and is already in use is counted twice here: as planned, and as no longer
                // available. The copy may therefore be left out although there is room for it.
                let has_room = || available_memory() >= len.saturating_add(planned.load(Ordering::Relaxed));
                if job.wait(|| job.cached()) && has_room() {
                    job.run();
                }
            })?;
            return Ok(Self { range, copied, copying: Some((thread, stop)) });
        }
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| job.run());
            }
            job.run();
        });
        Ok(Self { range, copied, copying: None })
    }

    /// True until the copy in the background has ended.
    pub fn is_copying(&self) -> bool {
        self.copying.as_ref().is_some_and(|(thread, _)| !thread.is_finished())
    }

    /// Returns the number of bytes that have been copied to large pages. All other bytes are read from the mapping of
    /// the file.
    pub fn copied(&self) -> usize {
        self.copied.load(Ordering::Relaxed)
    }
}

impl Drop for LargePages {
    fn drop(&mut self) {
        if let Some((thread, stop)) = self.copying.take() {
            stop.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            let _ = thread.join(); // before `range` is unmapped
        }
    }
}

impl Deref for LargePages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is mapped and readable as long as `self` lives. The copy to large pages replaces pages of
        // the range only by pages with the same bytes.
        unsafe { std::slice::from_raw_parts(self.range.at as *const u8, self.range.len) }
    }
}

/// Copies the chunks of a file over its mapping.
struct Job {
    file: File,
    /// The address of the mapping.
    start: usize,
    len: usize,
    /// Offset of the next chunk.
    next: AtomicUsize,
    stop: Arc<AtomicBool>,
    copied: Arc<AtomicUsize>,
}

impl Job {
    /// Waits until the number of `cached` pages has not grown for [`DELAY`]. By then the first passes have read the
    /// file. Returns false if the job is stopped. Also returns false if the number falls, because this means that the
    /// memory is too small for the file, and thus also for a copy.
    fn wait(&self, cached: impl Fn() -> usize) -> bool {
        let mut before = cached();
        let mut delay = DELAY * (self.len / BYTES_PER_DELAY).max(1) as u32;
        loop {
            std::thread::park_timeout(delay);
            delay = DELAY;
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let now = cached();
            if now <= before {
                return now == before;
            }
            before = now;
        }
    }

    /// Number of the file's pages in the page cache. For a file that the user neither owns nor may write, Linux reports
    /// all pages as cached.
    fn cached(&self) -> usize {
        let mut pages = vec![0; self.len.div_ceil(SMALLEST)];
        // SAFETY: the file is mapped at `start`, and `pages` has at least one byte for each page of the mapping.
        let failed = unsafe { libc::mincore(self.start as *mut libc::c_void, self.len, pages.as_mut_ptr()) } != 0;
        if failed { 0 } else { pages.iter().filter(|page| **page & 1 != 0).count() }
    }

    /// Copies chunks until none is left. A chunk that cannot be copied remains mapped from the file.
    fn run(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let offset = self.next.fetch_add(CHUNK, Ordering::Relaxed);
            let len = CHUNK.min(self.len.saturating_sub(offset));
            if len == 0 || self.copy(offset, len).is_err() {
                return;
            }
            self.copied.fetch_add(len, Ordering::Relaxed);
        }
    }

    fn copy(&self, offset: usize, len: usize) -> io::Result<()> {
        let mut copy = Aligned::anonymous(len)?;
        self.file.read_exact_at(copy.bytes_mut(), offset as u64)?;
        copy.move_to(self.start + offset)
    }
}

/// Mapped memory at a multiple of 2 MB.
struct Aligned {
    at: *mut libc::c_void,
    len: usize,
}

// SAFETY: the memory is owned by this value and is not tied to a thread.
unsafe impl Send for Aligned {}
// SAFETY: shared references only read the memory.
unsafe impl Sync for Aligned {}

impl Aligned {
    /// Reserves the addresses of whole large pages for `len` bytes. Accesses fail until these addresses are mapped.
    fn reserve(len: usize) -> io::Result<Self> {
        let all = len
            .checked_next_multiple_of(LARGE)
            .and_then(|len| len.checked_add(LARGE))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: this makes a new mapping at an address that the system chooses.
        let first = unsafe { libc::mmap(null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let before = first.addr().next_multiple_of(LARGE) - first.addr();
        let at = first.wrapping_byte_add(before);
        let kept = len.next_multiple_of(LARGE);
        // SAFETY: both ranges are inside the new mapping, which nothing else uses; both begin and end at page
        // boundaries.
        unsafe {
            if before > 0 {
                libc::munmap(first, before);
            }
            if all - before > kept {
                libc::munmap(at.wrapping_byte_add(kept), all - before - kept);
            }
        }
        Ok(Self { at, len })
    }

    /// Maps a file, read-only.
    fn file(file: &File, len: usize) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let range = Self::reserve(len)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        // SAFETY: the new mapping replaces exactly the addresses that `range` has reserved, so no other memory is
        // affected.
        let mapped = unsafe { libc::mmap(range.at, len, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range belongs to this value. The advice changes no bytes; it only makes some file systems read
        // the file in large pages.
        unsafe { libc::madvise(range.at, len, libc::MADV_HUGEPAGE) };
        Ok(range)
    }

    /// Allocates zeroed, writable memory in large pages.
    fn anonymous(len: usize) -> io::Result<Self> {
        let range = Self::reserve(len)?;
        // SAFETY: the range belongs to this value.
        unsafe {
            if libc::mprotect(range.at, range.size(), libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(range.at, range.size(), libc::MADV_HUGEPAGE); // only a hint
        }
        Ok(range)
    }

    fn start(&self) -> usize {
        self.at.addr()
    }

    /// Size in bytes, rounded up to whole large pages.
    fn size(&self) -> usize {
        self.len.next_multiple_of(LARGE)
    }

    /// Returns the memory of a range that [`anonymous`](Self::anonymous) has made, so that it can be filled.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is readable and writable, zeroed, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.len) }
    }

    /// Makes the memory read-only and moves it to the address `to`. There it replaces a part of the file's mapping.
    fn move_to(self, to: usize) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the memory belongs to this value. `to` is the start of a large page of the mapping of the file that
        // `Job` copies, which outlives the job. The mapping has the same bytes at `to`, and the system replaces the
        // page for all threads at once.
        let moved = unsafe {
            libc::mprotect(self.at, self.size(), libc::PROT_READ);
            libc::mremap(self.at, self.size(), self.size(), flags, to)
        };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(self); // the memory is at `to` now
        Ok(())
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: this value owns the range, and no reference to the range outlives it.
        unsafe { libc::munmap(self.at, self.size()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Before, during and after the copying to large pages, readers see the bytes of the file.
    #[test]
    fn the_bytes_are_those_of_the_file() {
        let bytes: Vec<u8> = (0..CHUNK + 3 * LARGE + 12345).map(|i| (i / 7 * 31 % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        for (later, threads) in [(false, 1), (false, 3), (true, 1)] {
            let pages =
                LargePages::open(file.try_clone().unwrap(), bytes.len(), later.then(Arc::default), threads).unwrap();
            assert_eq!(pages.as_ptr().addr() % LARGE, 0);
            for _ in 0..20 {
                assert!(*pages == *bytes);
                std::thread::sleep(DELAY / 10);
            }
            while pages.is_copying() {
                std::thread::sleep(DELAY / 10);
            }
            assert_eq!(pages.copied(), bytes.len());
        }
    }

    /// If the pages of a file do not stay in the page cache, the program stops waiting for them and does not copy the
    /// file.
    #[test]
    fn short_memory_ends_the_wait() {
        let waits = |counts: &[usize]| {
            let (file, stop, copied) = (tempfile::tempfile().unwrap(), Arc::default(), Arc::default());
            let job = Job { file, start: 0, len: 0, next: AtomicUsize::new(0), stop, copied };
            let at = AtomicUsize::new(0);
            job.wait(|| counts[at.fetch_add(1, Ordering::Relaxed) % counts.len()])
        };
        assert!(!waits(&[5, 7, 6]));
        assert!(waits(&[5, 7, 7]));
    }

    /// A model that is closed at once stops its copy.
    #[test]
    fn a_copy_ends_with_its_file() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 * CHUNK as u64).unwrap();
        drop(LargePages::open(file, 10 * CHUNK, Some(Arc::default()), 1).unwrap());
    }
}
