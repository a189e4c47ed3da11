//! Aligned memory, and the arena that splits memory into typed slices.
#![allow(unsafe_code)] // for the static cell below

use core::cell::UnsafeCell;
#[cfg(any(target_has_atomic = "8", feature = "critical-section"))]
use core::sync::atomic::{AtomicBool, Ordering};

use bytemuck::{Pod, Zeroable};

use crate::Error;

/// Alignment of workspace and KV memory in bytes: one cache line, one 512-bit vector.
pub const ALIGN: usize = 64;

/// 64 aligned bytes. `[Line; N]` and `Vec<Line>` provide memory for a [`Session`](crate::Session).
///
/// # Examples
///
/// ```
/// use arenite::memory::Line;
/// let mut memory = vec![Line::ZERO; 1000usize.div_ceil(64)];
/// assert!(Line::bytes_mut(&mut memory).len() >= 1000);
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line([u8; ALIGN]);

impl Line {
    /// A line of zeros.
    pub const ZERO: Self = Self([0; ALIGN]);

    /// The bytes of a slice of lines.
    pub fn bytes_mut(lines: &mut [Self]) -> &mut [u8] {
        bytemuck::must_cast_slice_mut(lines)
    }
}

/// Aligns a value to [`ALIGN`]. [`include_model`](crate::include_model) uses it for the bytes of a file.
#[derive(Debug)]
#[repr(C)]
pub struct Aligned<T: ?Sized> {
    line: [Line; 0],
    value: T,
}

impl<T> Aligned<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self { line: [], value }
    }
}

impl<T: ?Sized> Aligned<T> {
    /// The value.
    pub const fn get(&self) -> &T {
        &self.value
    }
}

/// Like `include_bytes!`, aligned to [`ALIGN`](crate::memory::ALIGN), because microcontrollers read floats faster from
/// 4-byte boundaries. Models work at any alignment.
///
/// ```
/// static MODEL: &[u8] = arenite::include_model!("../../tests/fixtures/stories.gguf");
/// # assert!(MODEL.as_ptr().addr() % 64 == 0);
/// ```
///
/// With `section`, the model is placed in the given section, such as a mapped QSPI flash. (`#[link_section]` on a
/// `static` of type `&[u8]` would only move the reference.)
///
/// ```
/// static MODEL: &[u8] = arenite::include_model!("../../tests/fixtures/stories.gguf", section = unsafe(".qspi"));
/// # assert!(MODEL.starts_with(b"GGUF") && MODEL.as_ptr().addr() % 64 == 0);
/// ```
///
/// The name of a section is `unsafe`, because the system runs the bytes of some sections (`.init_array`) before `main`.
/// Without `unsafe`, this does not compile:
///
/// ```compile_fail
/// static MODEL: &[u8] = arenite::include_model!("../../tests/fixtures/stories.gguf", section = ".init_array");
/// ```
#[macro_export]
macro_rules! include_model {
    ($path:expr $(,)?) => {{
        const MODEL: &$crate::memory::Aligned<[u8]> = &$crate::memory::Aligned::new(*include_bytes!($path));
        MODEL.get()
    }};
    ($path:expr, section = unsafe($section:literal) $(,)?) => {{
        #[unsafe(link_section = $section)]
        static MODEL: $crate::memory::Aligned<[u8; include_bytes!($path).len()]> =
            $crate::memory::Aligned::new(*include_bytes!($path));
        MODEL.get() as &[u8]
    }};
}

/// `N` aligned bytes for a `static`. The bytes can be taken once. This needs compare-and-swap, or the feature
/// `critical-section`, so that two cores cannot both take the bytes.
///
/// # Examples
///
/// ```
/// use arenite::memory::Workspace;
/// static MEMORY: Workspace<256> = Workspace::new();
/// let bytes: &'static mut [u8] = MEMORY.take()?;
/// assert_eq!(bytes.len(), 256);
/// assert!(MEMORY.take().is_err());
/// # Ok::<(), arenite::Error>(())
/// ```
#[cfg(any(target_has_atomic = "8", feature = "critical-section"))]
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Workspace<const N: usize> {
    bytes: UnsafeCell<[u8; N]>,
    taken: AtomicBool,
}

// SAFETY: the bytes are only reached through `take`, which hands the bytes to one caller.
#[cfg(any(target_has_atomic = "8", feature = "critical-section"))]
unsafe impl<const N: usize> Sync for Workspace<N> {}

#[cfg(any(target_has_atomic = "8", feature = "critical-section"))]
impl<const N: usize> Workspace<N> {
    /// Zeroed memory; it is in `.bss` and takes no flash.
    #[allow(clippy::new_without_default)] // a default would be a large value on the stack
    pub const fn new() -> Self {
        Self { bytes: UnsafeCell::new([0; N]), taken: AtomicBool::new(false) }
    }

    /// Returns the memory, on the first call.
    ///
    /// # Errors
    ///
    /// [`Error::WorkspaceTaken`] on every later call.
    #[allow(clippy::mut_from_ref)] // `taken` ensures that there is only one reference
    pub fn take(&'static self) -> Result<&'static mut [u8], Error> {
        if swap(&self.taken) {
            return Err(Error::WorkspaceTaken);
        }
        // SAFETY: `taken` was false, so no reference to the bytes exists, and none will be made again.
        Ok(unsafe { &mut *self.bytes.get() })
    }
}

/// Number of bytes of RAM that a [`Workspace`] of `bytes` bytes takes, including its flag.
pub const fn static_bytes(bytes: usize) -> usize {
    Arena::padded(bytes.saturating_add(1))
}

#[cfg(any(target_has_atomic = "8", feature = "critical-section"))]
const _: () = assert!(size_of::<Workspace<64>>() == static_bytes(64) && size_of::<Workspace<7>>() == static_bytes(7));

/// Sets the flag and returns its previous value.
#[cfg(target_has_atomic = "8")]
fn swap(taken: &AtomicBool) -> bool {
    taken.swap(true, Ordering::AcqRel)
}

/// Sets the flag and returns its previous value, on targets without compare-and-swap.
#[cfg(all(not(target_has_atomic = "8"), feature = "critical-section"))]
fn swap(taken: &AtomicBool) -> bool {
    critical_section::with(|_| {
        let was = taken.load(Ordering::Acquire);
        taken.store(true, Ordering::Release);
        was
    })
}

/// Divides a slice of bytes into slices of other types, each aligned to [`ALIGN`].
pub(crate) struct Arena<'w> {
    rest: &'w mut [u8],
}

impl<'w> Arena<'w> {
    /// Creates an arena over `memory`.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] if `memory` does not start on an [`ALIGN`] boundary.
    pub fn new(memory: &'w mut [u8]) -> Result<Self, Error> {
        if !memory.as_ptr().addr().is_multiple_of(ALIGN) {
            return Err(Error::Misaligned { align: ALIGN });
        }
        Ok(Self { rest: memory })
    }

    /// Returns the next `len` elements, or `None` if the memory is too short. The contents of the elements are
    /// unspecified.
    pub fn take<T: Pod>(&mut self, len: usize) -> Option<&'w mut [T]> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let (piece, rest) = core::mem::take(&mut self.rest).split_at_mut_checked(Self::padded(bytes))?;
        self.rest = rest;
        bytemuck::try_cast_slice_mut(piece.get_mut(..bytes)?).ok()
    }

    /// Returns the remaining bytes.
    pub fn rest(self) -> &'w mut [u8] {
        self.rest
    }

    /// Rounds `bytes` up to a multiple of [`ALIGN`]. Sums of sizes overflow easily with 32 bits. A sum that overflows
    /// becomes the largest number instead, which exceeds any memory and is therefore refused.
    pub const fn padded(bytes: usize) -> usize {
        bytes.saturating_add(ALIGN - 1) & !(ALIGN - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_be_counted_do_not_fit() {
        for (bytes, padded) in [(0, 0), (1, 64), (63, 64), (64, 64), (65, 128)] {
            assert_eq!(Arena::padded(bytes), padded);
        }
        let mut lines = [Line::ZERO; 4];
        for bytes in [usize::MAX, usize::MAX - 1, usize::MAX - 62, usize::MAX - 63, isize::MAX as usize] {
            assert!(Arena::padded(bytes) > isize::MAX as usize && static_bytes(bytes) > isize::MAX as usize);
            let mut arena = Arena::new(Line::bytes_mut(&mut lines)).unwrap();
            assert!(arena.take::<u8>(bytes).is_none() && arena.take::<u64>(bytes / 8).is_none());
            assert!(arena.take::<u64>(bytes).is_none());
        }
        let mut arena = Arena::new(Line::bytes_mut(&mut lines)).unwrap();
        assert_eq!(arena.take::<u16>(33).map(|piece| piece.len()), Some(33));
        assert_eq!(arena.rest().len(), 128);
    }

    #[test]
    fn memory_is_handed_out_once() {
        static MEMORY: Workspace<100> = Workspace::new();
        assert_eq!(MEMORY.take().map(|bytes| bytes.len()), Ok(100));
        assert_eq!([MEMORY.take().err(), MEMORY.take().err()], [Some(Error::WorkspaceTaken); 2]);
    }
}
