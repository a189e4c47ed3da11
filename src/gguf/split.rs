//! Parses a model that lies in several files, its pieces.

use super::Gguf;
use super::names::{self, Names};
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
    /// Errors of [`parse`](Self::parse) for each piece. [`Error::Piece`] if a piece is missing, is out of order, or has
    /// the keys of another model. [`Error::KeyValue`] for `split.tensors.count` if this is not the number of tensors in
    /// the pieces; [`Error::DuplicateTensor`] if two pieces have the same tensor.
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
            if piece.pieces.is_head() || gguf.pieces.is_head() {
                return Err(Error::Piece { number: number + 1, count, why: "goes on in a storage" });
            }
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

    /// Number of files into which the model is split, as this file states it; 1 if the file has no such key.
    const fn count(&self) -> Result<u32, Error> {
        Ok(match tri!(self.u32("", COUNT)) {
            Some(count) if count > 0 => count,
            _ => 1,
        })
    }

    /// Checks the keys of this file of a split model: it must be file `number`, counted from 0, of `count` files that
    /// have `all` tensors together.
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
