//! The bytes of a file: one slice, or with the feature `split` several.
//!
//! llama.cpp's `llama-gguf-split` cuts a model into files `NAME-00001-of-00003.gguf` and so on. Each is a GGUF file with
//! some of the tensors; the first also has the metadata. Offsets count from the first byte of the first piece, as if the
//! pieces followed each other without a gap. No tensor crosses from one piece to the next.

/// The bytes of a file in one or several slices.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'a> {
    pub(super) first: &'a [u8],
    #[cfg(feature = "split")]
    pub(super) later: &'a [&'a [u8]],
}

impl<'a> Pieces<'a> {
    pub(super) const fn one(first: &'a [u8]) -> Self {
        Self {
            first,
            #[cfg(feature = "split")]
            later: &[],
        }
    }

    /// The piece with the byte at `offset`, and the offset within it.
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

    /// Offset of `bytes` in the file; `None` if `bytes` does not start within a piece.
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
