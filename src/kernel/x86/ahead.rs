//! Prefetches into the first-level cache (`_MM_HINT_T0`) or into the second-level cache (`_MM_HINT_T1`).

use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

/// Prefetches the cache line at `at`. Any address is allowed.
#[inline(always)]
pub(super) fn prefetch<const HINT: i32>(at: *const u8) {
    // SAFETY: a prefetch never faults, and every processor of this architecture has the prefetch instruction.
    unsafe { _mm_prefetch::<HINT>(at.cast()) };
}

/// Prefetches the rows of the next panel into the second-level cache while this panel is packed and multiplied. Each
/// step prefetches a few lines, because the processor has few slots for outstanding prefetches.
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
            prefetch::<_MM_HINT_T1>(self.line);
            self.line = self.line.wrapping_add(64);
        }
    }
}
