//! The C interface (feature `capi`). `arenite.h` is generated from it.
//!
//! The interface does not allocate or panic. Objects (a model, a session, ...) are placed in memory provided by the
//! caller, and borrow the objects and buffers from which they are created. Functions that can fail return a status and
//! fill an `arenite_error`, unless it is null.
//!
//! # Safety
//!
//! Requirements of all functions: a pointer with a length points to that many elements, or is null if the length is 0.
//! A pointer to an object was returned by this interface, and the object's memory and everything it borrows are still
//! valid, unmoved and unchanged. No object is used by two threads at once.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // the requirements of all functions are above

mod contexts;
mod encoder;
mod prompt;
mod session;
mod text;
mod workers;

use core::ffi::{c_char, c_void};
use core::fmt::{self, Write};
use core::mem::{align_of, size_of};
use core::ptr::null_mut;

use crate::memory::ALIGN;
use crate::{Error, ErrorKind};
pub use contexts::*;
pub use encoder::*;
pub use prompt::*;
pub use session::*;
pub use text::*;
pub use workers::*;

/// Result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum arenite_status {
    /// Success.
    Ok = 0,
    /// An argument is null or not a known constant.
    Argument = 1,
    /// A buffer is too small, or memory is too small or not aligned.
    Memory = 2,
    /// The file is damaged or not supported.
    File = 3,
    /// A token, prompt or position is invalid.
    Input = 4,
    /// The context is full.
    ContextFull = 5,
    /// The snapshot is damaged or belongs to another session.
    Snapshot = 6,
}

/// Details of an error, for `arenite_error_message`. A failing call stores the details here, unless its argument
/// `error` is null.
#[repr(C)]
#[derive(Debug)]
pub struct arenite_error {
    /// Nonzero after an error; initialize the struct with zeros.
    filled: u32,
    opaque: [u64; 16],
}

/// Value of `filled` after an error.
const FILLED: u32 = u32::from_le_bytes(*b"aren");

const _: () = assert!(size_of::<Error>() <= size_of::<[u64; 16]>() && align_of::<Error>() <= align_of::<u64>());

// --- errors -----------------------------------------------------------------------------------------

fn status(error: &Error) -> arenite_status {
    use arenite_status as Status;
    match (error, error.kind()) {
        (Error::Argument { .. }, _) => Status::Argument,
        (_, ErrorKind::Memory) => Status::Memory,
        (_, ErrorKind::Input) => Status::Input,
        (_, ErrorKind::ContextFull) => Status::ContextFull,
        (_, ErrorKind::Snapshot) => Status::Snapshot,
        (_, ErrorKind::File | ErrorKind::Model | ErrorKind::Unsupported) => Status::File,
        #[cfg(feature = "storage")]
        (_, ErrorKind::Storage) => Status::File,
    }
}

/// Converts the result of a function to a status for C. If the result is an error, stores it in `out`, unless `out` is
/// null.
fn report(result: Result<(), Error>, out: *mut arenite_error) -> arenite_status {
    let Err(error) = result else { return arenite_status::Ok };
    if !out.is_null() {
        // SAFETY: `out` is null or points to an `arenite_error`; an `Error` fits in its `opaque` (asserted above).
        unsafe {
            (&raw mut (*out).filled).write(FILLED);
            (&raw mut (*out).opaque).cast::<Error>().write(error);
        }
    }
    status(&error)
}

/// Writes the error message to `out`: one sentence, terminated by a zero byte and cut to `capacity` bytes. Returns the
/// length of the whole sentence, without the zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_error_message(
    error: *const arenite_error,
    out: *mut c_char,
    capacity: usize,
) -> usize {
    // SAFETY: see the module. Any bit pattern is an `arenite_error`.
    let filled = !error.is_null() && unsafe { (*error).filled } == FILLED;
    // SAFETY: see the module.
    let mut text = Text { out: unsafe { slice_mut(out.cast(), capacity) }.unwrap_or_default(), len: 0 };
    let _ = if filled {
        // SAFETY: `report` has stored an `Error` there.
        let error = unsafe { (&raw const (*error).opaque).cast::<Error>().read() };
        write!(text, "{error}")
    } else {
        text.write_str("no error")
    };
    text.end();
    text.len
}

/// Returns the number of the error, or 0 without an error. The number is the same in all builds; it is for logs that
/// have no room for a message. The guide lists the numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_error_number(error: *const arenite_error) -> u32 {
    // SAFETY: see the module. Any bit pattern is an `arenite_error`.
    let filled = !error.is_null() && unsafe { (*error).filled } == FILLED;
    // SAFETY: `report` has stored an `Error` there.
    if filled { unsafe { (&raw const (*error).opaque).cast::<Error>().read() }.number().into() } else { 0 }
}

/// Writes text to the caller's buffer; text that does not fit is only counted, so that the caller learns the length.
struct Text<'t> {
    out: &'t mut [u8],
    len: usize,
}

impl Text<'_> {
    /// Writes the terminating zero byte. If the buffer is full, the zero byte replaces the last byte.
    fn end(&mut self) {
        let end = self.len.min(self.out.len().saturating_sub(1));
        if let Some(zero) = self.out.get_mut(end) {
            *zero = 0;
        }
    }
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = self.out.get_mut(self.len..).unwrap_or_default();
        for (to, byte) in rest.iter_mut().zip(text.bytes()) {
            *to = byte;
        }
        self.len = self.len.saturating_add(text.len());
        Ok(())
    }
}

// --- the caller's memory -----------------------------------------------------------------------------

const fn argument(what: &'static str) -> Error {
    Error::Argument { what }
}

/// # Safety
///
/// `data` points to `len` elements that are valid for `'a`, or is null.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> Option<&'a [T]> {
    if len == 0 {
        return Some(&[]);
    }
    if data.is_null() || !data.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return None;
    }
    // SAFETY: the caller promises what this function requires; null and alignment were checked.
    Some(unsafe { core::slice::from_raw_parts(data, len) })
}

/// # Safety
///
/// Same as [`slice`](fn@slice), with exclusive access.
unsafe fn slice_mut<'a, T>(data: *mut T, len: usize) -> Option<&'a mut [T]> {
    if len == 0 {
        return Some(&mut []);
    }
    if data.is_null() || !data.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return None;
    }
    // SAFETY: the caller promises what this function requires; null and alignment were checked.
    Some(unsafe { core::slice::from_raw_parts_mut(data, len) })
}

/// Writes the result of `make` to the caller's memory, and a pointer to the result to `out`.
///
/// # Safety
///
/// `memory` points to `capacity` bytes with exclusive access, or is null. `out` points to a pointer, or is null.
unsafe fn place<T>(
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, Error>,
) -> Result<(), Error> {
    if out.is_null() {
        return Err(argument("for the result"));
    }
    // SAFETY: as for this function.
    unsafe { out.write(null_mut()) };
    let (memory, needed) = (memory.cast::<T>(), size_of::<T>());
    if memory.is_null() {
        return Err(argument("for the memory"));
    }
    if !memory.is_aligned() {
        return Err(Error::Misaligned { align: align_of::<T>() });
    }
    if capacity < needed {
        return Err(Error::BufferTooSmall { what: "bytes of the object", needed, given: capacity });
    }
    let value = make()?;
    // SAFETY: the caller promises what this function requires; size and alignment were checked.
    unsafe {
        memory.write(value);
        out.write(memory);
    }
    Ok(())
}

/// # Safety
///
/// `out` points to a `T`, or is null. (If it is null, nothing is written.)
unsafe fn give<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as for this function.
        unsafe { out.write(value) };
    }
}

/// Alignment in bytes that suffices for every object, workspace and KV cache.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_align() -> usize {
    let objects = [
        align_of::<arenite_model>(),
        align_of::<arenite_tokenizer>(),
        align_of::<arenite_decoder>(),
        align_of::<arenite_session>(),
        align_of::<arenite_sampler>(),
        align_of::<arenite_beams>(),
        align_of::<arenite_context>(),
        align_of::<arenite_pass>(),
        align_of::<arenite_encoding>(),
        align_of::<arenite_constraint>(),
        #[cfg(feature = "std")]
        align_of::<arenite_pool>(),
    ];
    objects.into_iter().fold(ALIGN, usize::max)
}
