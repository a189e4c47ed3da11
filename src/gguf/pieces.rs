//! The bytes of a file: one slice, or with the feature `split` several.
//!
//! llama.cpp's `llama-gguf-split` cuts a model into files `NAME-00001-of-00003.gguf` and so on. Each is a GGUF file with
//! some of the tensors; the first also has the metadata. Offsets count from the first byte of the first piece, as if the
//! pieces followed each other without a gap. No tensor crosses from one piece to the next.

#[cfg(feature = "split")]
pub(super) use split::Directory;

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

#[cfg(feature = "split")]
mod split {
    use super::super::header::Header;
    use super::super::names::{self, Names};
    use super::super::reader::Reader;
    use super::super::{DEFAULT_ALIGNMENT, Gguf, metadata, tensors};
    use crate::{Error, Name, tri};

    /// Key for the number of the piece, from 0.
    const NUMBER: &str = "split.no";
    /// Key for the number of pieces.
    const COUNT: &str = "split.count";
    /// Key for the number of tensors in all pieces.
    const TENSORS: &str = "split.tensors.count";

    impl<'a> Gguf<'a> {
        /// Parses and checks a model in several slices, one per file: all files of `llama-gguf-split` or `arenite pack
        /// --split-max-size`, in order. The slices may lie in different memories. A single slice must be a whole file.
        ///
        /// # Errors
        ///
        /// Errors of [`parse`](Self::parse) for each piece. [`Error::Piece`] if a piece is missing, out of order, or
        /// from another model according to its keys. [`Error::KeyValue`] for `split.tensors.count` if the pieces have
        /// another number of tensors; [`Error::DuplicateTensor`] if two pieces have the same tensor.
        ///
        /// # Examples
        ///
        /// ```
        /// use arenite::{Error, Gguf};
        ///
        /// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
        /// # let [first, second]: [&[u8]; 2] = [&file, &file];
        /// let pieces = [first, second]; // for example one in internal flash, one in external flash
        /// let result = Gguf::parse_split(&pieces);
        /// # assert!(matches!(result, Err(Error::Piece { number: 2, count: 1, .. })));
        /// ```
        #[inline(never)]
        pub const fn parse_split(pieces: &'a [&'a [u8]]) -> Result<Self, Error> {
            let Some((first, mut later)) = pieces.split_first() else { return Err(Error::NotGguf) };
            let mut gguf = tri!(Self::parse(first));
            gguf.pieces.later = later;
            let count = tri!(gguf.count());
            let all = tri!(gguf.u32("", TENSORS));
            tri!(gguf.is_piece(0, count, all));
            let mut number = 1;
            while let Some((piece, after)) = later.split_first() {
                if number >= count {
                    return Err(Error::Piece { number: number + 1, count, why: "is one too many" });
                }
                let piece = tri!(Self::parse(piece));
                tri!(piece.is_piece(number, count, all));
                gguf.later_tensors = gguf.later_tensors.saturating_add(piece.header.tensor_count);
                number += 1;
                later = after;
            }
            if number < count {
                return Err(Error::Piece { number: number + 1, count, why: "is missing" });
            }
            if let Some(all) = all
                && all as u64 != gguf.tensor_count()
            {
                return Err(Error::KeyValue {
                    key: Name::new(TENSORS.as_bytes()),
                    why: "is not the number of tensors in the pieces: they are from different models",
                });
            }
            if count > 1
                && let Some(tensor) = names::repeated(Names::Tensors(gguf.tensors()))
            {
                return Err(Error::DuplicateTensor { tensor: Name::new(tensor) });
            }
            Ok(gguf)
        }

        /// Number of pieces that the file states; 1 if it has no such key.
        const fn count(&self) -> Result<u32, Error> {
            Ok(match tri!(self.u32("", COUNT)) {
                Some(count) if count > 0 => count,
                _ => 1,
            })
        }

        /// Checks that this is piece `number`, from 0, of a model of `count` pieces with `all` tensors.
        const fn is_piece(&self, number: u32, count: u32, all: Option<u32>) -> Result<(), Error> {
            let own = match tri!(self.u32("", NUMBER)) {
                Some(own) => own,
                None => 0,
            };
            let is_same_model = match (all, tri!(self.u32("", TENSORS))) {
                (Some(all), Some(own)) => all == own,
                _ => true,
            };
            let why = if tri!(self.count()) != count || !is_same_model {
                "is from another model"
            } else if own != number {
                "is missing or out of order"
            } else {
                return Ok(());
            };
            Err(Error::Piece { number: number + 1, count, why })
        }
    }

    /// Entries of the tensor directory of one piece.
    pub(in super::super) struct Directory<'a> {
        /// Reader at the first entry.
        pub reader: Reader<'a>,
        /// Number of entries.
        pub count: u64,
        pub alignment: u32,
    }

    impl<'a> Directory<'a> {
        /// Reads the header and the metadata of a piece, up to its tensor directory.
        pub const fn of(piece: &'a [u8]) -> Result<Self, Error> {
            let mut reader = Reader::new(piece, 0);
            let header = tri!(Header::read(&mut reader));
            let alignment = match tri!(metadata::check(&mut reader, header.key_count)) {
                (Some(alignment), _) => alignment,
                (None, _) => DEFAULT_ALIGNMENT,
            };
            Ok(Self { reader, count: header.tensor_count, alignment })
        }

        /// First byte of the tensor data. Walks over the entries to find it.
        pub const fn data_at(&self) -> usize {
            tensors::data_at(self.reader, self.count, self.alignment)
        }

        /// The bytes of the entries.
        pub const fn bytes(&self) -> &'a [u8] {
            let rest = self.reader.rest();
            match rest.split_at_checked(self.data_at().saturating_sub(self.reader.at())) {
                Some((entries, _)) => entries,
                None => rest,
            }
        }
    }
}
