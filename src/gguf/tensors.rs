//! The tensor directory: name, shape, type and position of each tensor.
//!
//! An entry is a name (string), the number of dimensions (`u32`), the dimensions (`u64` each,
//! fastest first), the type (`u32`) and an offset (`u64`) from the start of the tensor data. The
//! data starts after the last entry, at the next multiple of the alignment.

use core::fmt;

use super::pieces::Pieces;
use super::reader::{Reader, u32_at};
#[cfg(feature = "split")]
use super::{DEFAULT_ALIGNMENT, header::Header, metadata};
use crate::quant::TensorType;
use crate::{Error, Name, tri};

const NAME: &str = "a tensor's name";

/// Longest name in bytes; ggml stores names in 64 bytes with a terminating zero.
const LONGEST_NAME: usize = 63;

/// A tensor of the file: a description and the tensor's bytes.
///
/// # Examples
///
/// ```
/// use arenite::{Gguf, quant::decode_row};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let tensor = gguf.tensor("token_embd.weight").unwrap();
/// let [columns, rows, ..] = tensor.dims.map(|dim| dim as usize);
///
/// // The third row as f32.
/// let row = tensor.data.chunks_exact(tensor.data.len() / rows).nth(2).unwrap();
/// let mut numbers = vec![0.0; columns];
/// assert!(decode_row(tensor.kind, row, &mut numbers));
/// # assert!(numbers.iter().any(|&x| x != 0.0));
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    /// Name, for example `blk.0.attn_q.weight`.
    pub name: &'a str,
    /// Elements along each dimension, fastest (contiguous) first; 1 for dimensions that the tensor does not have. A tensor
    /// with a dimension of 0 has no elements.
    pub dims: [u64; 4],
    /// Number of dimensions in the file, 0 (a scalar) to 4.
    pub dim_count: u32,
    /// Type of the elements.
    pub kind: TensorType,
    /// Byte offset of the tensor's data from the start of the file; in a split model, from the start of the first
    /// piece, as if all pieces followed each other without gaps.
    pub offset: u64,
    /// The tensor's bytes, row after row, at any alignment in memory. Empty if the tensor is in a `Storage`.
    pub data: &'a [u8],
}

impl Tensor<'_> {
    /// Size in bytes. (Reading the directory has checked that the size does not overflow.)
    pub const fn bytes(&self) -> u64 {
        let [a, b, c, d] = self.dims;
        let (block, bytes) = self.kind.block();
        (a.wrapping_mul(b).wrapping_mul(c).wrapping_mul(d) >> block.trailing_zeros()).wrapping_mul(bytes as u64)
    }

    /// True if the tensor has no elements.
    pub(crate) const fn is_empty(&self) -> bool {
        self.data.is_empty() && !self.in_storage()
    }

    /// True if the tensor is in a storage.
    pub(crate) const fn in_storage(&self) -> bool {
        cfg!(feature = "storage") && self.data.is_empty() && self.bytes() > 0
    }
}

impl fmt::Debug for Tensor<'_> {
    /// Prints the description without the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("name", &self.name)
            .field("dims", &self.dims)
            .field("dim_count", &self.dim_count)
            .field("kind", &self.kind)
            .field("offset", &self.offset)
            .field("bytes", &self.data.len())
            .finish()
    }
}

/// A checked directory entry.
struct Entry {
    dims: [u64; 4],
    dim_count: u32,
    kind: TensorType,
    /// Byte offset from the start of the tensor data.
    offset: u64,
    /// Size of the tensor's data in bytes.
    size: u64,
}

/// Reads and checks every entry; returns the start of the tensor data.
///
/// Each tensor must start where the previous tensor ends, rounded up to the alignment, as in llama.cpp
/// (`gguf_init_from_reader`). One walk therefore proves that no two tensors overlap.
///
/// If `data` is only a head (`is_head`), the tensors after its end are in a storage.
pub(super) const fn check(data: &[u8], is_head: bool, at: usize, count: u64, alignment: u32) -> Result<usize, Error> {
    let file = data.len() as u64;
    let most = if is_head { LARGEST_FILE } else { file };
    let mut reader = Reader::new(data, at);
    let mut size = 0; // bytes of tensor data so far, including padding between tensors
    let mut i = 0;
    while i < count {
        let at = reader.at() as u64;
        let name = tri!(reader.string(NAME));
        if let Some(why) = name_fault(name) {
            return Err(Error::BadName { what: "tensor", at, why });
        }
        let entry = tri!(read_entry(&mut reader, name));
        let expected = padded(size, alignment);
        if entry.offset != expected {
            return Err(Error::TensorOffset { tensor: Name::new(name), found: entry.offset, expected });
        }
        size = expected.saturating_add(entry.size);
        if size > most {
            return Err(cut(name, &entry, most));
        }
        i += 1;
    }

    let directory_end = reader.at() as u64;
    if count == 0 {
        return Ok(directory_end as usize);
    }
    // If the data does not fit, a second walk finds the first truncated tensor, because the start of the data is known
    // only after the first walk.
    let start = padded(directory_end, alignment);
    if start > file || size > file - start {
        let mut reader = Reader::new(data, at);
        let mut i = 0;
        while i < count {
            let name = tri!(reader.string(NAME));
            let entry = tri!(read_entry(&mut reader, name));
            let left = file.saturating_sub(start);
            let is_stored = is_head && start <= file && entry.offset >= left;
            if entry.offset.saturating_add(entry.size) > left && !is_stored {
                return Err(cut(name, &entry, file));
            }
            i += 1;
        }
    }
    Ok(start as usize) // at most `file`
}

/// Size limit for a model file whose tensors are not all in memory. With this limit, every offset in the file fits into
/// 48 bits and, like offsets in memory, into an address.
const LARGEST_FILE: u64 = if usize::BITS < 64 { isize::MAX as u64 } else { 1 << 47 };

const fn cut(name: &[u8], entry: &Entry, file: u64) -> Error {
    Error::TensorData { tensor: Name::new(name), offset: entry.offset, size: entry.size, file }
}

/// Rounds `size` up to a multiple of `alignment`, a power of two. The sum does not saturate, because `size` was checked
/// against a slice and is far below `u64::MAX`.
const fn padded(size: u64, alignment: u32) -> u64 {
    let mask = (alignment as u64).wrapping_sub(1);
    size.saturating_add(mask) & !mask
}

const fn name_fault(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty")
    } else if name.len() > LONGEST_NAME {
        Some("is longer than 63 bytes")
    } else if core::str::from_utf8(name).is_err() {
        Some("is not UTF-8")
    } else {
        None
    }
}

/// Reads and checks the part of an entry after its name.
const fn read_entry(reader: &mut Reader<'_>, name: &[u8]) -> Result<Entry, Error> {
    let dim_count = tri!(reader.u32("a tensor's number of dimensions"));
    if dim_count > 4 {
        return Err(Error::TensorRank { tensor: Name::new(name), count: dim_count });
    }
    let mut dims = [1; 4];
    let mut elements = Some(1u64);
    let mut i = 0;
    while i < 4 && i < dim_count as usize {
        let dim = tri!(reader.u64("a tensor's dimensions"));
        if dim > i64::MAX as u64 {
            return Err(Error::TensorDim { tensor: Name::new(name), dim: i as u32, len: dim as i64 });
        }
        dims[i] = dim;
        elements = match elements {
            Some(elements) => elements.checked_mul(dim),
            None => None,
        };
        i += 1;
    }
    let id = tri!(reader.u32("a tensor's type"));
    let Some(kind) = TensorType::from_id(id) else {
        return Err(Error::UnknownTensorType { tensor: Name::new(name), id });
    };
    let (block, block_bytes) = kind.block();
    let [row, ..] = dims;
    // Tests with a mask instead of dividing, because a 64-bit division would be 512 bytes of code on 32-bit processors.
    // Block lengths are powers of two (`quant/types.rs` checks this).
    if row & (block as u64).wrapping_sub(1) != 0 {
        return Err(Error::TensorBlock { tensor: Name::new(name), row, block: block as u32 });
    }
    let size = match elements {
        Some(elements) => (elements >> block.trailing_zeros()).checked_mul(block_bytes as u64),
        None => None,
    };
    let size = match size {
        Some(size) if size <= i64::MAX as u64 => size,
        _ => return Err(Error::TensorTooLarge { tensor: Name::new(name), dims }),
    };
    let offset = tri!(reader.u64("a tensor's offset"));
    Ok(Entry { dims, dim_count, kind, offset, size })
}

/// Skips the part of an entry after its name.
const fn skip_entry(reader: &mut Reader<'_>) -> Result<(), Error> {
    let dim_count = tri!(reader.u32("a tensor's number of dimensions"));
    reader.skip(dim_count as u64 * 8 + 4 + 8, "a tensor's dimensions")
}

/// First byte of the tensor data. To find it, skips the `count` entries that are left in the directory.
#[cfg(feature = "split")]
const fn data_at(mut reader: Reader<'_>, mut count: u64, alignment: u32) -> usize {
    while count > 0 && reader.string(NAME).is_ok() && skip_entry(&mut reader).is_ok() {
        count -= 1;
    }
    padded(reader.at() as u64, alignment) as usize
}

/// Entries of the tensor directory of one piece.
#[cfg(feature = "split")]
pub(super) struct Directory<'a> {
    /// Reader at the first entry.
    pub reader: Reader<'a>,
    /// Number of entries.
    pub count: u64,
    pub alignment: u32,
}

#[cfg(feature = "split")]
impl<'a> Directory<'a> {
    /// Reads the header and the metadata of one file of a split model, so that the reader then stands at the file's
    /// tensor directory.
    pub const fn of(piece: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(piece, 0);
        let header = tri!(Header::read(&mut reader));
        let alignment = match tri!(metadata::check(&mut reader, header.key_count)) {
            (Some(alignment), _) => alignment,
            (None, _) => DEFAULT_ALIGNMENT,
        };
        Ok(Self { reader, count: header.tensor_count, alignment })
    }

    /// Returns the position of the first byte of the tensor data. To find it, walks over the directory's entries.
    pub const fn data_at(&self) -> usize {
        data_at(self.reader, self.count, self.alignment)
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

/// Iterator over the tensors, in file order.
#[derive(Clone, Copy)]
pub struct Tensors<'a> {
    reader: Reader<'a>,
    /// Bytes of the current piece.
    data: &'a [u8],
    /// Offset of the tensor data in the current file (slice) of the model. In every file but the first, this is 0 until
    /// the file's tensor directory has been walked.
    data_at: usize,
    /// Entries left in the current piece's directory.
    left: u64,
    /// True if only the head of the model is in memory (as `data`). The other tensors are in a storage.
    #[cfg(feature = "storage")]
    is_head: bool,
    #[cfg(feature = "split")]
    later: Later<'a>,
}

#[cfg(feature = "split")]
#[derive(Clone, Copy)]
struct Later<'a> {
    /// The pieces after the current one.
    pieces: &'a [&'a [u8]],
    /// Bytes of the pieces before the current one.
    before: u64,
    /// Alignment of the current piece, if it is not the first.
    alignment: u32,
}

impl<'a> Tensors<'a> {
    /// Starts to walk over the tensors of a model. The first file has `left` entries in its tensor directory, from byte
    /// `at` on; its tensor data begins at byte `data_at`.
    pub(super) const fn new(pieces: Pieces<'a>, at: usize, data_at: usize, left: u64) -> Self {
        Self {
            reader: Reader::new(pieces.first, at),
            data: pieces.first,
            data_at,
            left,
            #[cfg(feature = "storage")]
            is_head: pieces.is_head,
            #[cfg(feature = "split")]
            later: Later { pieces: pieces.later, before: 0, alignment: 0 },
        }
    }

    /// Moves the iterator to the tensor directory of the next file of a split model. Returns false after the last file.
    const fn next_piece(&mut self) -> bool {
        #[cfg(feature = "split")]
        if let Some((piece, after)) = self.later.pieces.split_first()
            && let Ok(Directory { reader, count, alignment }) = Directory::of(piece)
        {
            let before = self.later.before + self.data.len() as u64;
            self.later = Later { pieces: after, before, alignment };
            (self.reader, self.data, self.data_at, self.left) = (reader, *piece, 0, count);
            return true;
        }
        false
    }

    /// Advances to the next entry of the tensor directory, in the next file if the current file has no more entries.
    /// Returns false after the last entry.
    const fn take(&mut self) -> bool {
        while self.left == 0 {
            if !self.next_piece() {
                return false;
            }
        }
        self.left -= 1;
        true
    }

    /// Returns the next tensor; like [`Iterator::next`], but also works in `const fn`.
    pub const fn next_tensor(&mut self) -> Option<Tensor<'a>> {
        if !self.take() {
            return None;
        }
        let Ok(name) = self.reader.string(NAME) else { return None };
        self.describe(name)
    }

    /// Returns the next name and skips the rest of its entry.
    pub(super) const fn next_name(&mut self) -> Option<&'a [u8]> {
        if !self.take() {
            return None;
        }
        let Ok(name) = self.reader.string(NAME) else { return None };
        match skip_entry(&mut self.reader) {
            Ok(()) => Some(name),
            Err(_) => None,
        }
    }

    /// Finds the tensor called `wanted` among the remaining tensors.
    ///
    /// A model looks up each of its tensors, so the total work is quadratic in the number of tensors. The walk
    /// therefore makes no calls for entries with other names, for the reason given in `reader.rs`.
    pub(super) const fn find(mut self, wanted: &[u8]) -> Option<Tensor<'a>> {
        loop {
            let found = self.find_here(wanted);
            if found.is_some() || !self.next_piece() {
                return found;
            }
        }
    }

    /// Finds the tensor in the current piece.
    const fn find_here(&mut self, wanted: &[u8]) -> Option<Tensor<'a>> {
        let (data, len, wanted_len) = (self.data, self.data.len(), wanted.len());
        let mut at = self.reader.at();
        while self.left > 0 {
            self.left -= 1;
            // Reads only the lower half of the name's length, because `check` has refused lengths with a nonzero upper
            // half.
            if len < 8 || at > len - 8 {
                return None;
            }
            let entry_at = at;
            let name_len = u32_at!(data, at) as usize;
            at += 8;
            if name_len == wanted_len {
                let (mut i, mut same) = (at, 0);
                while same < wanted_len && i < len && data[i] == wanted[same] {
                    i += 1;
                    same += 1;
                }
                if same == wanted_len {
                    self.reader = Reader::new(data, entry_at);
                    let Ok(name) = self.reader.string(NAME) else { return None };
                    return self.describe(name);
                }
            }
            if name_len > len - at {
                return None;
            }
            at += name_len;
            if at > len - 4 {
                return None;
            }
            let dim_count = u32_at!(data, at) as usize;
            if dim_count > 4 {
                return None;
            }
            at += 4 + dim_count * 8 + 4 + 8;
        }
        None
    }

    /// Reads the rest of an entry of the tensor directory, after its name. No read can fail, because all entries were
    /// checked before.
    const fn describe(&mut self, name: &'a [u8]) -> Option<Tensor<'a>> {
        let Ok(Entry { dims, dim_count, kind, offset, size }) = read_entry(&mut self.reader, name) else {
            return None;
        };
        let Ok(name) = core::str::from_utf8(name) else { return None };
        #[cfg(feature = "split")]
        if self.data_at == 0 {
            self.data_at = data_at(self.reader, self.left, self.later.alignment);
        }
        let mut data = Reader::new(self.data, self.data_at);
        #[cfg(feature = "storage")]
        if self.is_head && offset >= data.left() {
            let offset = offset + self.data_at as u64;
            return Some(Tensor { name, dims, dim_count, kind, offset, data: &[] });
        }
        let (Ok(()), Ok(data)) = (data.skip(offset, "tensor data"), data.bytes(size, "tensor data")) else {
            return None;
        };
        let offset = offset + self.data_at as u64; // in this piece, so the sum cannot overflow
        #[cfg(feature = "split")]
        let offset = offset + self.later.before;
        Some(Tensor { name, dims, dim_count, kind, offset, data })
    }
}

impl<'a> Iterator for Tensors<'a> {
    type Item = Tensor<'a>;

    fn next(&mut self) -> Option<Tensor<'a>> {
        self.next_tensor()
    }
}

impl fmt::Debug for Tensors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensors").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// Builds a tensor directory for a test; each tensor has two floats. Returns the bytes, and the offset at which
    /// each entry ends.
    fn directory(names: &[&str]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for (name, i) in names.iter().zip(0u64..) {
            bytes.extend((name.len() as u64).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.extend([1u32, 2, 0, 0].into_iter().flat_map(u32::to_le_bytes));
            bytes.extend((i * 8).to_le_bytes());
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    /// [`check`] refuses a directory that is cut off. The test walks over such a directory without this check, which
    /// must not read out of bounds either.
    #[test]
    fn a_directory_that_is_cut() {
        let names = ["a", "long", "bc"];
        let (mut bytes, ends) = directory(&names);
        let data_at = bytes.len();
        bytes.resize(data_at + 24, 7);
        for cut in 0..=bytes.len() {
            let tensors = Tensors::new(Pieces::one(&bytes[..cut]), 0, data_at, 9);
            for (i, name) in names.iter().enumerate() {
                let found = tensors.find(name.as_bytes());
                assert_eq!(found.is_some(), cut >= data_at + 8 * (i + 1), "{name} of {cut} bytes");
                assert!(found.is_none_or(|found| found.name == *name && found.data == [7; 8]));
            }
            assert!(tensors.find(b"b").is_none() && tensors.find(b"none").is_none());
            let mut walk = tensors;
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(core::iter::from_fn(|| walk.next_name()).count(), whole, "{cut} bytes");
            assert_eq!(tensors.count(), cut.saturating_sub(data_at) / 8);
        }
        for left in 0..=3 {
            let tensors = Tensors::new(Pieces::one(&bytes), 0, data_at, left);
            assert_eq!(tensors.find(b"bc").is_some(), left == 3);
        }
    }

    #[test]
    fn entries_that_are_wrong() {
        let (bytes, ends) = directory(&["a", "bc"]);
        let data_at = bytes.len();
        let with = |at: usize, value: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            bytes.resize(data_at + 16, 0);
            bytes
        };
        let found = |bytes: &[u8]| Tensors::new(Pieces::one(bytes), 0, data_at, 2).find(b"bc").is_some();
        assert!(found(&with(0, &[])));
        // The length of the first tensor's name is replaced by wrong lengths: one that is too large by one, one that
        // reaches exactly to the end of the entries, and one far beyond the file.
        for len in [data_at as u32 + 9, data_at as u32 + 8, u32::MAX] {
            assert!(!found(&with(0, &len.to_le_bytes())), "{len}");
        }
        // Gives the first entry other numbers of dimensions: first valid ones, which are wrong for this entry, then
        // invalid ones.
        for dims in [0u32, 2, 4, 5, 1 << 16, u32::MAX] {
            assert!(!found(&with(9, &dims.to_le_bytes())), "{dims}");
        }
        // The name, the type or the offset of the second entry is damaged. Then the entry is looked up.
        let start = ends[0];
        assert!(!found(&with(start + 8, b"\xff")));
        assert!(!found(&with(start + 22, &99u32.to_le_bytes())));
        assert!(!found(&with(start + 26, &9u64.to_le_bytes())));
    }

    #[test]
    fn sizes_are_padded_to_the_alignment() {
        for (size, alignment, expected) in [(0, 32, 0), (1, 32, 32), (32, 32, 32), (33, 32, 64), (5, 1, 5), (5, 8, 8)] {
            assert_eq!(padded(size, alignment), expected);
        }
        assert_eq!(padded(u64::MAX, 32), u64::MAX - 31);
    }
}
