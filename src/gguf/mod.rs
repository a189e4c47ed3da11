//! GGUF files: header, metadata and tensor directory, read from borrowed bytes of any alignment.
//!
//! [`Gguf::parse`] reads the whole structure once and checks every range in it. The accessors then cannot fail and
//! never use an unchecked number from the file. The parser copies and allocates nothing; a look-up walks the bytes. All
//! functions work in `const fn`, so that the compiler can plan a firmware's memory.
//!
//! This module does not interpret the contents: `model` decides which keys and shapes a model must have.
//!
//! Versions 2 and 3 in little-endian order are supported. Sources: the [GGUF
//! specification](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), and llama.cpp's `gguf.cpp` where it is
//! stricter: tensor names have at most 63 bytes, and tensors follow the order of the directory with no gaps other than
//! padding. This parser is stricter than both: arrays of arrays, zero dimensions, empty tensor names and alignments
//! above 1 MiB are errors. Like llama.cpp, this parser accepts any power of two up to 1 MiB as alignment (the
//! specification requires a multiple of 8).
//!
//! ```text
//! "GGUF" | version u32 | tensors u64 | keys u64
//! keys    x ( name | type u32 | value )
//! tensors x ( name | dimensions u32 | u64 each | type u32 | offset u64 )
//! padding | tensor data, each tensor on a multiple of general.alignment
//! ```

mod header;
mod metadata;
mod names;
mod pieces;
mod reader;
#[cfg(feature = "split")]
mod split;
mod tensors;
mod value;
#[cfg(feature = "verify")]
mod verify;
#[cfg(feature = "verify")]
mod xxh64;

pub use metadata::Keys;
pub(crate) use pieces::Pieces;
pub(crate) use reader::equal;
pub use tensors::{Tensor, Tensors};
pub use value::{Array, Strings, Value, ValueType};
#[cfg(feature = "verify")]
pub use verify::{HASHES_KEY, Verify};
#[cfg(feature = "verify")]
pub use xxh64::Xxh64;

use core::fmt;

use crate::hash::Hash;
use crate::{Error, Name, tri};
use header::Header;
use metadata::Skips;
use names::Names;
use reader::Reader;

/// Calls a method on the value in an `Option<Value>`. For `None`, the result is `Ok(None)`.
macro_rules! optional {
    ($value:expr, $convert:ident($($arguments:expr),*)) => {
        match $value {
            Some(value) => match value.$convert($($arguments),*) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(error),
            },
            None => Ok(None),
        }
    };
}
pub(crate) use optional;

/// Metadata key whose value is the size in bytes of a model's head; the tensors after the head are in a `Storage`.
/// `arenite pack --storage` writes this key.
pub const HEAD_KEY: &str = "arenite.head_bytes";

/// Default alignment of the tensor data in bytes (`GGUF_DEFAULT_ALIGNMENT`).
const DEFAULT_ALIGNMENT: u32 = 32;

/// A checked GGUF file in memory.
///
/// ```
/// # fn main() -> Result<(), arenite::Error> {
/// // Version 3, no tensors, one key: the smallest useful file.
/// let file = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\
///     \x14\0\0\0\0\0\0\0general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama";
/// let gguf = arenite::Gguf::parse(file)?;
/// assert_eq!(gguf.architecture()?, "llama");
/// assert_eq!(gguf.u32("llama", "block_count")?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Gguf<'a> {
    pieces: Pieces<'a>,
    /// Number of tensors in the pieces after the first.
    #[cfg(feature = "split")]
    later_tensors: u64,
    header: Header,
    alignment: u32,
    skips: Skips,
    /// First byte of the tensor directory.
    tensors_at: usize,
    /// First byte of the tensor data.
    data_at: usize,
    /// A second file, whose layers predict further tokens for this model. `None` if the model's own file has such
    /// layers, or if there are none.
    #[cfg(feature = "drafts")]
    drafter: Option<&'a Self>,
}

impl<'a> Gguf<'a> {
    /// Parses and checks a whole file. `data` may have any alignment and stays borrowed.
    ///
    /// Time is proportional to the size of metadata and tensor directory; the tensor data is not read. Duplicate names
    /// are detected by a 64-bit hash: each of the first 4096 keys is compared with all later keys, and each of the
    /// first 4096 tensors with all later tensors.
    ///
    /// # Errors
    ///
    /// Variants of [`Error`] for an invalid file, such as [`Error::Truncated`]; [`Error::KeyType`] or
    /// [`Error::KeyValue`] for `general.alignment`.
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub const fn parse(data: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(data, 0);
        let header = tri!(Header::read(&mut reader));
        let (alignment, skips) = tri!(metadata::check(&mut reader, header.key_count));
        let alignment = match alignment {
            Some(alignment) => alignment,
            None => DEFAULT_ALIGNMENT,
        };
        let tensors_at = reader.at();
        #[cfg(feature = "storage")]
        let pieces = tri!(head(data, &header, skips));
        #[cfg(not(feature = "storage"))]
        let pieces = Pieces::one(data);
        let data_at = tri!(tensors::check(pieces.first, pieces.is_head(), tensors_at, header.tensor_count, alignment));

        let gguf = Self {
            pieces,
            #[cfg(feature = "split")]
            later_tensors: 0,
            header,
            alignment,
            skips,
            tensors_at,
            data_at,
            #[cfg(feature = "drafts")]
            drafter: None,
        };
        if let Some(key) = names::repeated(Names::Keys(gguf.keys())) {
            return Err(Error::DuplicateKey { key: Name::new(key) });
        }
        if let Some(tensor) = names::repeated(Names::Tensors(gguf.tensors())) {
            return Err(Error::DuplicateTensor { tensor: Name::new(tensor) });
        }
        Ok(gguf)
    }

    /// Adds a file with layers that predict further tokens of this model, for [`Engine::draft`](crate::Engine::draft):
    /// either layers for multi-token prediction that were converted into a separate file, or an assistant such as Gemma
    /// 4's. [`Model::new`](crate::Model::new) and [`Plan::new`](crate::Plan::new) check that it belongs to the model.
    #[cfg(feature = "drafts")]
    #[must_use]
    pub const fn with_drafter(self, drafter: &'a Self) -> Self {
        Self { drafter: Some(drafter), ..self }
    }

    /// The file added by [`with_drafter`](Self::with_drafter).
    #[cfg(feature = "drafts")]
    pub const fn drafter(&self) -> Option<&'a Self> {
        self.drafter
    }

    /// Version of the format: 2 or 3.
    pub const fn version(&self) -> u32 {
        self.header.version
    }

    /// Alignment of every tensor's start, in bytes from the start of the file: a power of two.
    pub const fn alignment(&self) -> u64 {
        self.alignment as u64
    }

    /// The whole file; the first piece of a split model.
    pub const fn data(&self) -> &'a [u8] {
        self.pieces.first
    }

    pub(crate) const fn pieces(&self) -> Pieces<'a> {
        self.pieces
    }

    /// Appends the bytes of the tensor directory to a hash.
    pub(crate) const fn hash_directory(&self, hash: &mut Hash) {
        let directory = Reader::new(self.data(), self.tensors_at).rest();
        hash.bytes(match directory.split_at_checked(self.data_at.saturating_sub(self.tensors_at)) {
            Some((directory, _)) => directory,
            None => directory,
        });
        #[cfg(feature = "split")]
        {
            let mut later = self.pieces.later;
            while let Some((piece, after)) = later.split_first() {
                if let Ok(directory) = tensors::Directory::of(piece) {
                    hash.bytes(directory.bytes());
                }
                later = after;
            }
        }
    }

    /// Adds to `hash` the bytes of those metadata pairs whose keys `is_wanted` accepts, in file order.
    pub(crate) fn hash_keys(&self, hash: &mut Hash, is_wanted: impl Fn(&[u8]) -> bool) {
        self.keys().hash(hash, is_wanted);
    }

    /// Hash of the file's size, metadata and tensor directory and of 64 bytes from the middle of each tensor, which
    /// identifies a file without reading all of a large mapping. Files that differ only in other bytes have the same
    /// fingerprint.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Hash::new();
        hash.bytes(&(self.data().len() as u64).to_le_bytes());
        hash.bytes(self.data().get(..self.data_at).unwrap_or(self.data()));
        for tensor in self.tensors() {
            let middle = tensor.data.get(tensor.data.len() / 2..).unwrap_or(&[]);
            hash.bytes(middle.get(..64).unwrap_or(middle));
        }
        hash.finish()
    }

    /// Number of metadata keys.
    pub const fn key_count(&self) -> u64 {
        self.header.key_count
    }

    /// Number of tensors; 0 in a file that only holds a vocabulary.
    pub const fn tensor_count(&self) -> u64 {
        let count = self.header.tensor_count;
        #[cfg(feature = "split")]
        let count = count.saturating_add(self.later_tensors);
        count
    }

    /// Iterates over the metadata, in file order.
    pub const fn keys(&self) -> Keys<'a> {
        Keys::new(Reader::new(self.data(), Header::LEN), self.skips, self.header.key_count)
    }

    /// Iterates over the tensors, in file order.
    pub const fn tensors(&self) -> Tensors<'a> {
        Tensors::new(self.pieces, self.tensors_at, self.data_at, self.header.tensor_count)
    }

    /// Finds the tensor called `name` by walking the directory. To visit all tensors, use [`tensors`](Self::tensors). A
    /// tensor without elements counts as missing.
    pub const fn tensor(&self, name: &str) -> Option<Tensor<'a>> {
        match self.tensors().find(name.as_bytes()) {
            Some(tensor) if !tensor.is_empty() => Some(tensor),
            _ => None,
        }
    }

    /// Finds the value of `key`.
    pub const fn get(&self, key: &str) -> Option<Value<'a>> {
        self.get2("", key)
    }

    /// Finds the value of the key `prefix.suffix` (or `suffix` if the prefix is empty), without concatenating the two
    /// parts.
    pub const fn get2(&self, prefix: &str, suffix: &str) -> Option<Value<'a>> {
        match self.find(prefix, suffix) {
            Some((_, value)) => Some(value),
            None => None,
        }
    }

    /// Like [`get2`](Self::get2), but also returns the key's index in the file, from 0.
    pub(crate) const fn find(&self, prefix: &str, suffix: &str) -> Option<(usize, Value<'a>)> {
        self.keys().find(prefix.as_bytes(), suffix.as_bytes())
    }

    /// Reads `general.architecture`, the prefix of the model's own keys.
    ///
    /// # Errors
    ///
    /// [`Error::MissingKey`] if the key is absent, [`Error::KeyType`] if the value is not a string, [`Error::KeyValue`]
    /// if the string is not UTF-8.
    pub const fn architecture(&self) -> Result<&'a str, Error> {
        const PREFIX: &str = "general";
        const NAME: &str = "architecture";
        match tri!(self.str(PREFIX, NAME)) {
            Some(bytes) => match core::str::from_utf8(bytes) {
                Ok(name) => Ok(name),
                Err(_) => Err(Error::KeyValue { key: Name::key(PREFIX, NAME), why: "is not UTF-8" }),
            },
            None => Err(Error::MissingKey { key: Name::key(PREFIX, NAME) }),
        }
    }

    /// Reads the integer under `prefix.name`, stored as any integer type.
    ///
    /// # Errors
    ///
    /// [`Error::KeyType`] if the value is not an integer, [`Error::KeyValue`] if the integer is negative or exceeds 32
    /// bits.
    pub const fn u32(&self, prefix: &str, name: &str) -> Result<Option<u32>, Error> {
        optional!(self.get2(prefix, name), u32(prefix, name))
    }

    /// Reads the float under `prefix.name`; a 64-bit float is rounded.
    ///
    /// # Errors
    ///
    /// [`Error::KeyType`] if the value is not a float.
    pub const fn f32(&self, prefix: &str, name: &str) -> Result<Option<f32>, Error> {
        optional!(self.get2(prefix, name), f32(prefix, name))
    }

    /// Reads the boolean under `prefix.name`.
    ///
    /// # Errors
    ///
    /// [`Error::KeyType`] if the value is not a boolean.
    pub const fn bool(&self, prefix: &str, name: &str) -> Result<Option<bool>, Error> {
        optional!(self.get2(prefix, name), bool(prefix, name))
    }

    /// Reads the string under `prefix.name`, as bytes.
    ///
    /// # Errors
    ///
    /// [`Error::KeyType`] if the value is not a string.
    pub const fn str(&self, prefix: &str, name: &str) -> Result<Option<&'a [u8]>, Error> {
        optional!(self.get2(prefix, name), str(prefix, name))
    }

    /// Reads the array under `prefix.name`, of any element type.
    ///
    /// # Errors
    ///
    /// [`Error::KeyType`] if the value is not an array.
    pub const fn array(&self, prefix: &str, name: &str) -> Result<Option<Array<'a>>, Error> {
        optional!(self.get2(prefix, name), array(prefix, name))
    }
}

/// The bytes of the model's file that are in memory. If the metadata gives the size of the file's head, these are the
/// bytes of the head; otherwise all bytes.
#[cfg(feature = "storage")]
const fn head<'a>(data: &'a [u8], header: &Header, skips: Skips) -> Result<Pieces<'a>, Error> {
    let keys = Keys::new(Reader::new(data, Header::LEN), skips, header.key_count);
    let Some((_, value)) = keys.find(b"", HEAD_KEY.as_bytes()) else { return Ok(Pieces::one(data)) };
    let len = tri!(value.u32("", HEAD_KEY)) as u64;
    if len > data.len() as u64 {
        return Err(Error::Truncated { what: "the head of a model", at: 0 });
    }
    Ok(Pieces::head(data, len as usize))
}

impl fmt::Debug for Gguf<'_> {
    /// Prints the counts instead of the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.version())
            .field("alignment", &self.alignment)
            .field("keys", &self.key_count())
            .field("tensors", &self.tensor_count())
            .field("bytes", &self.data().len())
            .finish()
    }
}
