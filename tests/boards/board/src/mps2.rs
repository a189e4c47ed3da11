//! Arm's boards MPS2 with a Cortex-M4F (AN386) and a Cortex-M33 (AN505), and MPS3 with a Cortex-M55 (AN547).

use core::fmt;

use cortex_m_rt as _; // starts the program
use cortex_m_semihosting::debug;

/// Addresses of the UART, and of the FPGA's inputs and outputs.
const BASE: [usize; 2] = if cfg!(board = "an547") {
    [0x5930_3000, 0x5930_2000]
} else if cfg!(board = "an505") {
    [0x5020_0000, 0x5030_2000]
} else {
    [0x4000_4000, 0x4002_8000]
};
/// Address of the watchdog. The AN547 has another watchdog, which is not used here.
const WATCHDOG: Option<usize> = if cfg!(board = "an547") {
    None
} else if cfg!(board = "an505") {
    Some(0x5008_1000)
} else {
    Some(0x4000_8000)
};
const UART: usize = BASE[0];
const IO: usize = BASE[1];

const UART_DATA: usize = UART;
const UART_STATE: usize = UART + 4;
const UART_CONTROL: usize = UART + 8;
const UART_DIVIDER: usize = UART + 16;
/// Offsets of the watchdog's registers.
const WATCHDOG_LOAD: usize = 0;
const WATCHDOG_CONTROL: usize = 8;
const WATCHDOG_CLEAR: usize = 12;
const LEDS: usize = IO;
/// Register that counts cycles.
const COUNTER: usize = IO + 0x18;
const MEGAHERTZ: u32 = 25;
/// Time after which a watchdog that was not fed interrupts the program. After the same time again it resets the board.
const SECONDS: u32 = 4;

pub struct Board;

fn read(address: usize) -> u32 {
    // SAFETY: the address is a register of the board.
    unsafe { (address as *const u32).read_volatile() }
}

fn write(address: usize, value: u32) {
    // SAFETY: as above.
    unsafe { (address as *mut u32).write_volatile(value) }
}

impl Board {
    /// Starts the UART.
    #[allow(clippy::new_without_default, reason = "it writes to registers")]
    pub fn new() -> Self {
        write(UART_DIVIDER, MEGAHERTZ * 1_000_000 / 115_200);
        write(UART_CONTROL, 3); // transmit and receive
        Self
    }

    /// Starts the watchdog. Waiting for a byte feeds it.
    pub fn start_watchdog(&mut self) {
        if let Some(watchdog) = WATCHDOG {
            write(watchdog + WATCHDOG_LOAD, SECONDS * MEGAHERTZ * 1_000_000);
            write(watchdog + WATCHDOG_CONTROL, 3); // interrupt and reset
        }
    }

    /// Waits for a byte.
    pub fn read(&mut self) -> Option<u8> {
        while read(UART_STATE) & 2 == 0 {
            self.feed_watchdog();
        }
        Some(read(UART_DATA) as u8)
    }

    /// Waits for a byte for at most this number of seconds.
    pub fn read_within(&mut self, seconds: u32) -> Option<u8> {
        let start = read(COUNTER);
        while read(UART_STATE) & 2 == 0 {
            if read(COUNTER).wrapping_sub(start) > seconds * MEGAHERTZ * 1_000_000 {
                return None;
            }
            self.feed_watchdog();
        }
        Some(read(UART_DATA) as u8)
    }

    pub fn led(&mut self, is_on: bool) {
        write(LEDS, is_on.into());
    }

    pub fn micros(&self) -> u32 {
        read(COUNTER) / MEGAHERTZ
    }

    pub fn feed_watchdog(&mut self) {
        if let Some(watchdog) = WATCHDOG {
            write(watchdog + WATCHDOG_CLEAR, 1);
        }
    }
}

impl fmt::Write for Board {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while read(UART_STATE) & 1 != 0 {
                core::hint::spin_loop();
            }
            write(UART_DATA, byte.into());
        }
        Ok(())
    }
}

/// Resets the processor: AIRCR.SYSRESETREQ.
pub fn restart() -> ! {
    write(0xE000_ED0C, 0x05FA_0004);
    loop {
        core::hint::spin_loop();
    }
}

/// Ends the emulator.
pub fn exit(is_well: bool) -> ! {
    debug::exit(if is_well { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
    loop {
        core::hint::spin_loop();
    }
}
