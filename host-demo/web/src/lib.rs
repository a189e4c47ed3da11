//! `web.wasm`: arenite's C interface, called by `worker.js`.
#![no_std]

pub use arenite::ffi::*;

#[cfg(feature = "threads")]
pub mod threads;

use core::ffi::{c_char, c_void};
use core::ptr::null_mut;

#[link(wasm_import_module = "chat")]
unsafe extern "C" {
    /// Receives a piece of a prompt.
    fn piece(user: *mut c_void, text: *const c_char, len: usize, is_template: bool);
}

/// Like `arenite_chat`, but calls the imported function `piece`.
///
/// # Safety
///
/// The conditions of `arenite_chat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn web_chat(
    format: *const c_char,
    format_len: usize,
    messages: *const arenite_message,
    count: usize,
    error: *mut arenite_error,
) -> arenite_status {
    // SAFETY: the caller of this function fulfils the conditions of `arenite_chat`. `piece` needs no argument.
    unsafe { arenite_chat(format, format_len, messages, count, Some(piece), null_mut(), error) }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
