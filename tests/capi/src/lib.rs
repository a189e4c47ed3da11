//! `libcapi.a`: arenite's C interface, to be linked to programs in C.
#![cfg_attr(target_os = "none", no_std)]

pub use arenite::ffi::*;

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
