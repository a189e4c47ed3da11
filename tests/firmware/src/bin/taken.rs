//! Tests `Workspace` on a processor without compare-and-swap: a critical section ensures that its memory can be taken
//! only once.
#![no_std]
#![no_main]

use arenite::{Error, Workspace};
use cortex_m as _; // provides the critical section
use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};

static MEMORY: Workspace<100> = Workspace::new();

#[entry]
fn main() -> ! {
    let (first, second) = (MEMORY.take(), MEMORY.take());
    let taken = matches!(first, Ok(ref bytes) if bytes.len() == 100) && matches!(second, Err(Error::WorkspaceTaken));
    hprintln!("{}", if taken { "once" } else { "not once" });
    debug::exit(if taken { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
