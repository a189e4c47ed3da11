//! Memory that ends at an inaccessible page.

use core::ops::{Deref, DerefMut};

/// A copy of a slice. An access past its last element is a fault.
pub struct Edge<T> {
    start: *mut T,
    len: usize,
    #[allow(dead_code)] // freed when it is dropped
    memory: Memory,
}

impl<T: Copy> Edge<T> {
    pub fn of(numbers: &[T]) -> Self {
        let bytes = size_of_val(numbers);
        let memory = Memory::new(bytes);
        let start = memory.end().wrapping_sub(bytes).cast();
        // SAFETY: the memory has room for the slice, and its end is aligned for any element.
        unsafe { numbers.as_ptr().copy_to_nonoverlapping(start, numbers.len()) };
        Self { start, len: numbers.len(), memory }
    }
}

impl<T> Deref for Edge<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `of` has written `len` elements, and this value owns them.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T> DerefMut for Edge<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `of` has written `len` elements, and this value owns them.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

#[cfg(all(unix, not(miri)))]
use guarded::Memory;

#[cfg(all(unix, not(miri)))]
mod guarded {
    use core::ffi::{c_int, c_long, c_void};

    // From the C library, which the tests link through `std`.
    unsafe extern "C" {
        fn mmap(at: *mut c_void, len: usize, access: c_int, flags: c_int, file: c_int, from: c_long) -> *mut c_void;
        fn mprotect(at: *mut c_void, len: usize, access: c_int) -> c_int;
        fn munmap(at: *mut c_void, len: usize) -> c_int;
    }

    const READ_AND_WRITE: c_int = 3;
    const PRIVATE_ANONYMOUS: c_int = if cfg!(target_os = "linux") { 0x22 } else { 0x1002 };
    /// The largest page size of the systems that run the tests.
    const PAGE: usize = 1 << 16;

    /// Pages, the last of which is inaccessible.
    pub struct Memory {
        start: *mut u8,
        len: usize,
    }

    impl Memory {
        pub fn new(bytes: usize) -> Self {
            let len = bytes.next_multiple_of(PAGE) + PAGE;
            // SAFETY: maps new memory; nobody has its address before the last page is made inaccessible.
            unsafe {
                let start: *mut u8 = mmap(core::ptr::null_mut(), len, READ_AND_WRITE, PRIVATE_ANONYMOUS, -1, 0).cast();
                assert!(start.addr() != usize::MAX && mprotect(start.add(len - PAGE).cast(), PAGE, 0) == 0);
                Self { start, len }
            }
        }

        pub fn end(&self) -> *mut u8 {
            self.start.wrapping_add(self.len - PAGE)
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: `start` and `len` are the mapping's, and no borrow of it outlives this value.
            unsafe { munmap(self.start.cast(), self.len) };
        }
    }
}

/// Plain memory, on systems without page protection.
#[cfg(not(all(unix, not(miri))))]
struct Memory(std::vec::Vec<u64>);

#[cfg(not(all(unix, not(miri))))]
impl Memory {
    fn new(bytes: usize) -> Self {
        Self(std::vec![0; bytes.div_ceil(8)])
    }

    fn end(&self) -> *mut u8 {
        self.0.as_ptr_range().end.cast_mut().cast()
    }
}
