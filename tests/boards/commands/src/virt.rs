//! qemu's RISC-V board `virt`. It has no LED and no watchdog.

use core::fmt;

use semihosting::process;

/// A 16550 UART: its data, and its state.
const DATA: *mut u8 = 0x1000_0000 as _;
const STATE: *mut u8 = 0x1000_0005 as _;
/// Counts microseconds tenfold.
const TIME: *const u32 = 0x0200_bff8 as _;

pub struct Board;

fn state() -> u8 {
    // SAFETY: a register of the board.
    unsafe { STATE.read_volatile() }
}

impl Board {
    pub fn new() -> Self {
        Self
    }

    /// Waits for a byte.
    pub fn read(&mut self) -> u8 {
        while state() & 1 == 0 {
            core::hint::spin_loop();
        }
        // SAFETY: as above.
        unsafe { DATA.read_volatile() }
    }

    pub fn led(&mut self, _: bool) {}

    pub fn micros(&self) -> u32 {
        // SAFETY: as above.
        unsafe { TIME.read_volatile() / 10 }
    }

    pub fn feed_watchdog(&mut self) {}
}

impl fmt::Write for Board {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while state() & 0x20 == 0 {
                core::hint::spin_loop();
            }
            // SAFETY: as above.
            unsafe { DATA.write_volatile(byte) };
        }
        Ok(())
    }
}

pub fn exit(is_well: bool) -> ! {
    process::exit(if is_well { 0 } else { 1 })
}

// (qemu's RAM is zero at the start; otherwise .bss would be cleared here.)
core::arch::global_asm!(".section .start, \"ax\"", ".globl _start", "_start:", "la sp, _stack_start", "call start");

#[unsafe(no_mangle)]
extern "C" fn start() -> ! {
    exit(crate::run())
}
