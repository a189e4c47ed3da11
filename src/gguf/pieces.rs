//! The bytes of a file: one slice or, with the feature `split`, several slices.
//!
//! llama.cpp's `llama-gguf-split` cuts a model into files `NAME-00001-of-00003.gguf` and so on. Each is a GGUF file
//! with some of the tensors; the first file also has the metadata. Offsets count from the first byte of the first
//! piece, as if the pieces followed each other without a gap. No tensor crosses from one piece to the next.

/// The bytes of a file in one or several slices.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'a> {
    pub(crate) first: &'a [u8],
    #[cfg(feature = "split")]
    pub(super) later: &'a [&'a [u8]],
    /// True if only the first piece of the file is in memory, and the rest is in a [`Storage`](crate::Storage).
    #[cfg(feature = "storage")]
    pub(super) is_head: bool,
}

impl<'a> Pieces<'a> {
    pub(super) const fn one(first: &'a [u8]) -> Self {
        Self {
            first,
            #[cfg(feature = "split")]
            later: &[],
            #[cfg(feature = "storage")]
            is_head: false,
        }
    }

    /// Creates the first `len` bytes of a file whose other bytes are in a storage.
    #[cfg(feature = "storage")]
    pub(super) const fn head(file: &'a [u8], len: usize) -> Self {
        match file.split_at_checked(len) {
            Some((head, _)) => Self { is_head: true, ..Self::one(head) },
            None => Self::one(file),
        }
    }

    /// True if the file goes on in a storage.
    pub(crate) const fn is_head(&self) -> bool {
        #[cfg(feature = "storage")]
        return self.is_head;
        #[cfg(not(feature = "storage"))]
        false
    }

    /// Returns the position in the storage of the file's byte at `offset`. `None` if this byte is in memory.
    #[cfg(feature = "storage")]
    #[inline]
    pub(crate) fn in_storage(&self, offset: u64) -> Option<u64> {
        offset.checked_sub(self.first.len() as u64).filter(|_| self.is_head)
    }

    /// Finds the slice that has the byte at `offset` of the model's file, if the model is split into several slices.
    /// Returns the slice, and the byte's offset in it.
    #[inline]
    pub(crate) fn find(&self, offset: usize) -> (&'a [u8], usize) {
        #[cfg(feature = "split")]
        {
            let (mut piece, mut offset) = (self.first, offset);
            for &next in self.later {
                if offset < piece.len() {
                    break;
                }
                (piece, offset) = (next, offset - piece.len());
            }
            (piece, offset)
        }
        #[cfg(not(feature = "split"))]
        (self.first, offset)
    }

    /// Offset of `bytes` in the file of the model; `None` if `bytes` does not start in one of the file's slices.
    #[cfg(feature = "lora")]
    pub(crate) fn offset(&self, bytes: &[u8]) -> Option<u64> {
        let within = |piece: &[u8]| {
            let at = bytes.as_ptr().addr().checked_sub(piece.as_ptr().addr());
            at.filter(|at| *at < piece.len()).map(|at| at as u64)
        };
        #[cfg(feature = "split")]
        {
            let mut before = 0;
            for piece in core::iter::once(&self.first).chain(self.later) {
                if let Some(at) = within(piece) {
                    return Some(before + at);
                }
                before += piece.len() as u64;
            }
            None
        }
        #[cfg(not(feature = "split"))]
        within(self.first)
    }
}
