//! Prefetches of a panel's rows.

use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

/// The rows of the next panel, called into the second cache while this one is packed and multiplied: some with each step, as only a
/// few can be under way at once.
pub(super) struct Ahead {
    line: *const u8,
    until: *const u8,
    step: usize,
}

impl Ahead {
    #[inline(always)]
    pub fn new(rows: &[u8], steps: usize) -> Self {
        let line = rows.as_ptr();
        Self { line, until: line, step: rows.len().div_ceil(steps.max(1)) }
    }

    #[inline(always)]
    pub fn step(&mut self) {
        self.until = self.until.wrapping_add(self.step);
        while self.line < self.until {
            // SAFETY: a prefetch reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.line.cast()) };
            self.line = self.line.wrapping_add(64);
        }
    }
}
