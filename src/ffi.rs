//! The C interface (feature `capi`); `arenite.h` is made from it.
//!
//! Nothing is allocated and nothing panics. Whatever lives on (a model, a session, ...) is placed in memory
//! that the caller hands over, and borrows what it is made from. Functions that can fail return a status
//! and, if the caller wants to know more, fill an `arenite_error`.
//!
//! # Safety
//!
//! For all functions: a pointer with a length is to as many elements, or null where the length is 0; a
//! pointer to an object is one that this interface gave, whose memory and whatever it borrows are
//! still there, unmoved and unchanged; nothing is used from two threads at once.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // said once, above

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

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum arenite_status {
    /// It did what it should.
    Ok = 0,
    /// An argument is null, or a constant that does not exist.
    Argument = 1,
    /// A buffer or a piece of memory is too small, or not aligned.
    Memory = 2,
    /// The file is damaged, or of a kind that is not run.
    File = 3,
    /// A token, a prompt or a position that cannot be.
    Input = 4,
    /// The context is full.
    ContextFull = 5,
    /// Not a snapshot, a damaged one, or one of another session.
    Snapshot = 6,
}

/// What went wrong, for `arenite_error_message`. Filled by every call that fails and is handed one.
#[repr(C)]
#[derive(Debug)]
pub struct arenite_error {
    /// Whether it was filled: initialize with zeros to be able to tell.
    filled: u32,
    opaque: [u64; 16],
}

/// Marks an error that was filled.
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
    }
}

/// The status of a result; its error goes to `out`.
fn report(result: Result<(), Error>, out: *mut arenite_error) -> arenite_status {
    let Err(error) = result else { return arenite_status::Ok };
    if !out.is_null() {
        // SAFETY: `out` is null or to an `arenite_error`, whose `opaque` an `Error` fits in (asserted above).
        unsafe {
            (&raw mut (*out).filled).write(FILLED);
            (&raw mut (*out).opaque).cast::<Error>().write(error);
        }
    }
    status(&error)
}

/// Writes what went wrong to `out`, as one sentence that ends with a zero byte, cut to `capacity` bytes. Returns
/// the length of the whole sentence, without the zero.
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
        // SAFETY: it was filled by `report`.
        let error = unsafe { (&raw const (*error).opaque).cast::<Error>().read() };
        write!(text, "{error}")
    } else {
        text.write_str("no error")
    };
    text.end();
    text.len
}

/// Text on its way to the caller; what does not fit is counted.
struct Text<'t> {
    out: &'t mut [u8],
    len: usize,
}

impl Text<'_> {
    /// Writes the zero byte, in place of the last that has room if need be.
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
/// `data` is to `len` elements that live as long as `'a`, or null.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> Option<&'a [T]> {
    if len == 0 {
        return Some(&[]);
    }
    if data.is_null() || !data.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return None;
    }
    // SAFETY: as for this function; what can be checked was.
    Some(unsafe { core::slice::from_raw_parts(data, len) })
}

/// # Safety
///
/// As for [`slice`], and nobody else uses them.
unsafe fn slice_mut<'a, T>(data: *mut T, len: usize) -> Option<&'a mut [T]> {
    if len == 0 {
        return Some(&mut []);
    }
    if data.is_null() || !data.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return None;
    }
    // SAFETY: as for this function; what can be checked was.
    Some(unsafe { core::slice::from_raw_parts_mut(data, len) })
}

/// Writes what `make` gives to the caller's memory, and where that is to `out`.
///
/// # Safety
///
/// `memory` is to `capacity` bytes that nobody else uses, `out` to a pointer; or they are null.
unsafe fn place<T>(
    memory: *mut c_void,
    capacity: usize,
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, Error>,
) -> Result<(), Error> {
    if out.is_null() {
        return Err(argument("that the result goes to"));
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
        return Err(Error::BufferTooSmall { what: "memory for the object", needed, given: capacity });
    }
    let value = make()?;
    // SAFETY: as for this function; size and alignment were checked.
    unsafe {
        memory.write(value);
        out.write(memory);
    }
    Ok(())
}

/// # Safety
///
/// `out` is to a `T`, or null: then nothing is written.
unsafe fn give<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as for this function.
        unsafe { out.write(value) };
    }
}

/// The boundary in bytes that fits every object, workspace and KV cache.
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
        align_of::<arenite_constraint>(),
        #[cfg(feature = "std")]
        align_of::<arenite_pool>(),
    ];
    objects.into_iter().fold(ALIGN, usize::max)
}
