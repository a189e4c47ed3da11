//! Matrices in a storage: rows are read into a window, which is part of the workspace.

use crate::Error;
use crate::kernel::{Matrix, PANEL_ROWS};
use crate::memory::{ALIGN, Storage};

/// The storage of a model's matrices, and the memory into which rows are read.
pub(crate) struct Window<'m, 'w> {
    pub storage: Option<&'m mut (dyn Storage + 'static)>,
    /// The window's two halves. The rows in one half are multiplied while the storage reads into the other. Each half
    /// has room for a row of any matrix.
    bytes: &'w mut [u8],
    /// The first error of the storage in this run. Once there is an error, nothing more is read, and all results are
    /// invalid until the error is taken.
    fault: Option<Error>,
}

/// Size of a window in bytes: `bytes`, but at least enough for two rows of `row` bytes.
pub(crate) const fn window_bytes(bytes: usize, row: usize) -> Option<usize> {
    let half = if bytes / 2 > row { bytes / 2 } else { row };
    match half.checked_next_multiple_of(ALIGN) {
        Some(half) => half.checked_mul(2),
        None => None,
    }
}

impl<'m, 'w> Window<'m, 'w> {
    pub fn new(bytes: &'w mut [u8]) -> Self {
        Self { storage: None, bytes, fault: None }
    }

    /// True if the storage has failed in this run.
    pub fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Takes the error of the storage.
    pub fn take_fault(&mut self) -> Option<Error> {
        self.fault.take()
    }

    /// Reads row `r` of a matrix in the storage. Returns no bytes on error.
    pub fn row(&mut self, w: &Matrix<'_>, r: usize) -> &[u8] {
        let Some((at, row)) = w.part(r, 1).and_then(|row| Some((row.stored()?, row.row_bytes()))) else { return &[] };
        let Self { storage, bytes, fault } = self;
        let Some(bytes) = bytes.get_mut(..row).filter(|_| fault.is_none()) else { return &[] };
        *fault = read(storage, at, bytes, &mut || ());
        if fault.is_some() { &[] } else { bytes }
    }

    /// Reads a matrix from the storage in bands of rows. Calls `multiply` with each band and with the index of the
    /// band's first row. After an error, no more bands are read.
    pub fn bands(&mut self, w: &Matrix<'_>, multiply: &mut dyn FnMut(usize, Matrix<'_>)) {
        let Self { storage, bytes, fault } = self;
        let (half, row, Some(start)) = (bytes.len() / 2, w.row_bytes(), w.stored()) else { return };
        let (mut now, mut next) = bytes.split_at_mut_checked(half).unwrap_or_default();
        let most = band_rows(half, row);
        debug_assert!(most > 0, "the window is smaller than a row");
        // Each step of this loop reads the next band of rows, and meanwhile multiplies the band that was read before.
        // The band that was read before has `count` rows, from row `first` on.
        let (mut first, mut count) = (0, 0);
        while most > 0 && fault.is_none() {
            let after = first + count;
            let more = most.min(w.rows() - after.min(w.rows()));
            let mut step = || {
                if count > 0 {
                    multiply(first, w.band(count, now.get(..count * row).unwrap_or(&[])));
                }
            };
            if more == 0 {
                return step();
            }
            let Some(to) = next.get_mut(..more * row) else { return };
            *fault = read(storage, start + (after * row) as u64, to, &mut step);
            core::mem::swap(&mut now, &mut next);
            (first, count) = (after, more);
        }
    }
}

/// Returns the number of rows that are read at a time. If `bytes` suffices, these are whole panels or whole pairs of
/// rows, because kernels multiply such rows together.
fn band_rows(bytes: usize, row: usize) -> usize {
    let fit = bytes.checked_div(row).unwrap_or(0);
    let unit = if fit >= PANEL_ROWS { PANEL_ROWS } else { 2 };
    if fit > 1 { fit - fit % unit } else { fit }
}

/// Fills `bytes` from the storage and calls `work` meanwhile. Returns the error, if one occurred.
fn read(
    storage: &mut Option<&mut (dyn Storage + 'static)>,
    at: u64,
    bytes: &mut [u8],
    work: &mut dyn FnMut(),
) -> Option<Error> {
    let len = bytes.len();
    let Some(storage) = storage else { return Some(Error::NoStorage) };
    let mut work = Some(work);
    let read = storage.read_while(at, bytes, &mut || {
        if let Some(work) = work.take() {
            work();
        }
    });
    // Calls `work` here if the storage did not call it, because such a mistake of the storage must not change results.
    if let Some(work) = work {
        work();
    }
    read.err().map(|code| Error::Storage { at, bytes: len, code: i64::from(code) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_whole_panels_or_pairs() {
        for (bytes, row, rows) in [(100, 0, 0), (100, 101, 0), (100, 100, 1), (100, 40, 2), (100, 33, 2), (100, 20, 4)]
        {
            assert_eq!(band_rows(bytes, row), rows, "{bytes} of {row}");
        }
        assert_eq!([15, 16, 17, 31, 32].map(|fit| band_rows(fit * 10 + 9, 10)), [14, 16, 16, 16, 32]);
    }

    #[test]
    fn a_window_has_two_rows() {
        assert_eq!(
            [(8192, 100), (8193, 4096), (0, 65), (64, 1), (129, 1)].map(|(bytes, row)| window_bytes(bytes, row)),
            [8192, 8192, 256, 128, 128].map(Some)
        );
        assert_eq!(window_bytes(0, usize::MAX), None);
    }
}
