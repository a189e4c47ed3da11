//! `web.wasm`: arenite's C interface, called by `worker.js`.
#![no_std]

pub use arenite::ffi::*;

#[cfg(feature = "threads")]
pub mod threads;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
