//! qemu's RISC-V board `virt`. It has no LED and no watchdog.

use core::fmt;

use semihosting::process;

/// A 16550 UART: its data, and its state.
const DATA: *mut u8 = 0x1000_0000 as _;
const STATE: *mut u8 = 0x1000_0005 as _;
/// Register that counts tenths of a microsecond.
const TIME: *const u32 = 0x0200_bff8 as _;
/// Register that ends or resets the emulated machine.
const FINISHER: *mut u32 = 0x0010_0000 as _;

pub struct Board;

fn state() -> u8 {
    // SAFETY: the address is a register of the board.
    unsafe { STATE.read_volatile() }
}

impl Board {
    #[allow(clippy::new_without_default, reason = "the other boards write to registers")]
    pub fn new() -> Self {
        Self
    }

    /// There is no watchdog.
    pub fn start_watchdog(&mut self) {}

    /// Waits for a byte.
    pub fn read(&mut self) -> Option<u8> {
        loop {
            if let Some(byte) = self.read_within(1) {
                return Some(byte);
            }
        }
    }

    /// Waits for a byte for at most this number of seconds.
    pub fn read_within(&mut self, seconds: u32) -> Option<u8> {
        // SAFETY: as above.
        let time = || unsafe { TIME.read_volatile() };
        let start = time();
        while state() & 1 == 0 {
            if time().wrapping_sub(start) > seconds * 10_000_000 {
                return None;
            }
        }
        // SAFETY: as above.
        Some(unsafe { DATA.read_volatile() })
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

pub fn restart() -> ! {
    // SAFETY: as above.
    unsafe { FINISHER.write_volatile(0x7777) };
    loop {
        core::hint::spin_loop();
    }
}

pub fn exit(is_well: bool) -> ! {
    process::exit(if is_well { 0 } else { 1 })
}

// Write-protects the flash, which is RAM here, so that a stack that overflows into it causes a fault. Entry 1 of the physical
// memory protection covers the range from the address in entry 0 to the address in entry 1; the range is locked,
// readable and executable. Then clears .bss.
core::arch::global_asm!(
    ".section .start, \"ax\"",
    ".globl _start",
    "_start:",
    "la t0, _fault",
    "csrw mtvec, t0",
    "la t0, _flash_start",
    "srli t0, t0, 2",
    "csrw pmpaddr0, t0",
    "la t0, _flash_end",
    "srli t0, t0, 2",
    "csrw pmpaddr1, t0",
    "li t0, 0x8d00",
    "csrw pmpcfg0, t0",
    "la sp, _stack_start",
    "la t0, _bss_start",
    "la t1, _bss_end",
    "1: bgeu t0, t1, 2f",
    "sw zero, 0(t0)",
    "addi t0, t0, 4",
    "j 1b",
    "2: call main",
    ".balign 4",
    "_fault: la sp, _stack_start",
    "call fault"
);

#[unsafe(no_mangle)]
extern "C" fn fault() -> ! {
    exit(false)
}
