//! Arm's boards MPS2 with a Cortex-M4F (AN386) and a Cortex-M33 (AN505).

#[path = "stack.rs"]
mod stack;

use core::fmt;

use cortex_m_semihosting::{debug, heprintln};
use stack::Stack;

/// Address of the UART.
const UART: usize = if cfg!(armv8m) { 0x5020_0000 } else { 0x4000_4000 };
const DATA: usize = UART;
const STATE: usize = UART + 4;
const CONTROL: usize = UART + 8;
const DIVIDER: usize = UART + 16;

pub struct Board;

fn read(address: usize) -> u32 {
    // SAFETY: the address is a register of the UART.
    unsafe { (address as *const u32).read_volatile() }
}

fn write(address: usize, value: u32) {
    // SAFETY: as above.
    unsafe { (address as *mut u32).write_volatile(value) }
}

impl Board {
    pub fn new() -> Self {
        write(DIVIDER, 25_000_000 / 115_200);
        write(CONTROL, 3); // transmit and receive
        Self
    }

    /// Waits for a byte.
    pub fn read(&mut self) -> Option<u8> {
        while read(STATE) & 2 == 0 {
            core::hint::spin_loop();
        }
        Some(read(DATA) as u8)
    }
}

impl fmt::Write for Board {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while read(STATE) & 1 != 0 {
                core::hint::spin_loop();
            }
            write(DATA, byte.into());
        }
        Ok(())
    }
}

#[cortex_m_rt::entry]
fn start() -> ! {
    let stack = Stack::paint();
    let is_well = crate::run();
    heprintln!("stack {}", stack.used());
    debug::exit(if is_well { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
    loop {
        core::hint::spin_loop();
    }
}
