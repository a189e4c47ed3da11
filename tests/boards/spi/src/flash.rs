//! The driver of the serial flash. The emulated boards have none: the cells are in a memory that nothing else reads, and this
//! driver reads them byte by byte, as from a controller's data register.

use arenite::Storage;

/// Bytes of the chip.
const SIZE: u64 = 16 << 20;
/// Address of the first matrix in the chip.
const START: u64 = 0;

pub struct Flash;

impl Flash {
    pub fn new() -> Self {
        Self
    }

    /// Reads a byte, as SPI's command 03h does.
    fn byte(address: u32) -> u8 {
        unsafe extern "C" {
            static _cells: u8;
        }
        // SAFETY: `read` has checked that the address is in the chip.
        unsafe { (&raw const _cells).add(address as usize).read_volatile() }
    }
}

impl Storage for Flash {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), i32> {
        let start = at.checked_add(START).filter(|start| start.saturating_add(bytes.len() as u64) <= SIZE).ok_or(-1)?;
        for (address, byte) in (start as u32..).zip(&mut *bytes) {
            *byte = Self::byte(address);
        }
        crate::count(bytes.len());
        Ok(())
    }
}
