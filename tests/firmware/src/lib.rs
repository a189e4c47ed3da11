//! Code that the programs for emulated boards share. A program that uses this crate links only if it cannot panic.
#![no_std]

use arenite::Error;
use cortex_m_semihosting::{debug, heprintln};

/// Prints an error, and ends the emulator.
pub fn finish(result: Result<(), Error>) -> ! {
    if let Err(error) = &result {
        heprintln!("error: {}", error);
    }
    exit(result.is_ok())
}

/// Ends the emulator.
#[allow(clippy::empty_loop)] // qemu has exited by now
pub fn exit(is_well: bool) -> ! {
    debug::exit(if is_well { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
    loop {
        core::hint::spin_loop();
    }
}

/// The plugin `benches/instructions.c` counts instructions between calls of this function.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn token_mark() {
    // SAFETY: an empty instruction sequence that the compiler cannot see through.
    unsafe { core::arch::asm!("") };
}

/// The linker proves that the program cannot panic: this handler calls a function that does not exist.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe extern "C" {
        fn panic_is_possible() -> !;
    }
    // SAFETY: never reached, or the program would not have been linked.
    unsafe { panic_is_possible() }
}
