//! Measures the stack in use: fills it with a pattern at the start, and counts the words without the pattern.

const PAINT: u32 = 0x5AD0_5AD0;

unsafe extern "C" {
    /// Lowest and highest address of the stack, from the memory map.
    static _stack_end: u32;
    static _stack_start: u32;
    #[cfg_attr(target_arch = "arm", link_name = "__sheap")]
    static _statics_end: u32;
    #[cfg_attr(target_arch = "arm", link_name = "_ram_start")]
    static _statics_start: u32;
}

/// Bytes of all statics in RAM.
pub fn statics() -> usize {
    (&raw const _statics_end).addr() - (&raw const _statics_start).addr()
}

/// The painted stack.
pub struct Stack;

impl Stack {
    /// Fills the stack below the caller's frame.
    #[inline(never)]
    pub fn paint() -> Self {
        let here = 0u32;
        let lowest = (&raw const _stack_end).cast_mut();
        // The loop itself needs some room.
        let words = ((&raw const here).addr() - lowest.addr()) / 4 - 32;
        for i in 0..words {
            // SAFETY: the word is between the end of the stack and this frame, where nothing is stored yet.
            unsafe { lowest.add(i).write_volatile(PAINT) };
        }
        Self
    }

    /// Bytes of the stack that have been used so far.
    pub fn used(&self) -> usize {
        let (lowest, highest) = (&raw const _stack_end, &raw const _stack_start);
        let words = (highest.addr() - lowest.addr()) / 4;
        // SAFETY: the address is a word of the stack.
        let is_painted = |&i: &usize| unsafe { lowest.add(i).read_volatile() } == PAINT;
        (words - (0..words).take_while(is_painted).count()) * 4
    }

    /// Prints the bytes in use to the standard error of the emulator.
    #[cfg(target_arch = "arm")]
    pub fn print(&self) {
        cortex_m_semihosting::heprintln!("stack {}", self.used());
    }
}
