//! `libcapi.a` and `libcapi.so`: arenite's C interface, to be linked to programs in C. `install` installs these files
//! as `libarenite.a` and `libarenite.so`.
#![cfg_attr(target_os = "none", no_std)]

pub use arenite::ffi::*;

#[cfg(target_os = "none")]
mod panic {
    unsafe extern "C" {
        /// Never defined, so that a program with a reachable panic fails to link.
        fn panic_is_possible() -> !;
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        // SAFETY: never reached, as there is no such function.
        unsafe { panic_is_possible() }
    }
}
