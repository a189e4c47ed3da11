//! Proof that tensor data is whole: hashes in the metadata, checked in steps of bounded size.
//!
//! The key [`HASHES_KEY`] holds an array of `u64`. Element 0 is the hash of the tensor directory: for each tensor in
//! file order, its name, four dimensions (`u64`, 1 for missing dimensions) and the number of its type (`u32`). The
//! other elements are the hashes of the tensors' data in the same order, without padding. A program that does not know
//! the key copies it into a rewritten file; element 0 then distinguishes a file with other tensors from a damaged one.
//!
//! The hash is [`Xxh64`]. llama.cpp's `llama-gguf-hash --xxh64` prints the same hash of each tensor, so files can be
//! compared without this crate. XXH64 needs no table, takes about two instructions per byte on a Cortex-M, and has 64
//! bits: one damaged tensor in 2^64 passes. This crate implements it in 60 lines, because existing crates have `unsafe`
//! code and can panic.

use super::{Array, Gguf, Tensors, Value, ValueType, Xxh64};
#[cfg(feature = "storage")]
use crate::Storage;
use crate::{Error, Name};

/// Metadata key of the hashes, written by `arenite pack`.
pub const HASHES_KEY: &str = "arenite.tensor_hashes";

impl Xxh64 {
    /// Appends a tensor's description, for element 0 of [`HASHES_KEY`]; `kind` is the number of the tensor's type.
    pub fn describe(&mut self, name: &str, dims: [u64; 4], kind: u32) {
        self.update(name.as_bytes());
        dims.iter().for_each(|dim| self.update(&dim.to_le_bytes()));
        self.update(&kind.to_le_bytes());
    }
}

impl<'a> Gguf<'a> {
    /// Starts to compare the tensor data with the hashes in the file; `None` if the file has no hashes.
    ///
    /// Parsing checks that all bytes are present, but does not read tensor data. If a write to flash was interrupted or
    /// a bit has flipped, a model generates wrong text without an error. A device should therefore verify a model once,
    /// before it trusts a new partition.
    ///
    /// # Errors
    ///
    /// [`Error::KeyType`] if the hashes are not an array of `u64`. [`Error::KeyValue`] if the hashes belong to other
    /// tensors: another program has rewritten the file, or the file's directory is damaged.
    ///
    /// # Examples
    ///
    /// ```
    /// # let file = std::fs::read("tests/fixtures/hashes.gguf").unwrap();
    /// let gguf = arenite::Gguf::parse(&file)?;
    /// let mut verify = gguf.verify()?.expect("packed files have hashes");
    /// while verify.step(4096)? {
    ///     // feed the watchdog
    /// }
    /// # Ok::<(), arenite::Error>(())
    /// ```
    pub fn verify(&self) -> Result<Option<Verify<'a>>, Error> {
        let Some(hashes) = self.array("", HASHES_KEY)? else { return Ok(None) };
        let key = Name::new(HASHES_KEY.as_bytes());
        if hashes.element() != ValueType::U64 {
            return Err(Error::KeyType { key, expected: "an array of 64-bit unsigned integers" });
        }
        let mut directory = Xxh64::new();
        for tensor in self.tensors() {
            directory.describe(tensor.name, tensor.dims, tensor.kind as u32);
        }
        let is_own = matches!(hashes.get(0), Some(Value::U64(hash)) if hash == directory.finish());
        if !is_own || hashes.len() as u64 != self.tensor_count().saturating_add(1) {
            return Err(Error::KeyValue { key, why: "has the hashes of other tensors: pack the file again" });
        }
        let mut verify = Verify {
            tensors: self.tensors(),
            hashes,
            index: 0,
            name: "",
            rest: &[],
            #[cfg(feature = "storage")]
            head: self.data().len() as u64,
            #[cfg(feature = "storage")]
            stored: 0..0,
            hash: Xxh64::new(),
        };
        verify.advance();
        Ok(Some(verify))
    }
}

/// Compares tensor data with the hashes in the file, step by step. Created by [`Gguf::verify`].
#[derive(Clone, Debug)]
pub struct Verify<'a> {
    tensors: Tensors<'a>,
    hashes: Array<'a>,
    /// Index in `hashes` of the current tensor's hash. After the last tensor, it is the number of hashes.
    index: usize,
    name: &'a str,
    /// Bytes of the current tensor that are still to be hashed.
    rest: &'a [u8],
    /// Size of the head of a model in a storage.
    #[cfg(feature = "storage")]
    head: u64,
    /// Bytes of the current tensor that are in a storage and still have to be hashed, as a range of the storage's
    /// bytes.
    #[cfg(feature = "storage")]
    stored: core::ops::Range<u64>,
    hash: Xxh64,
}

impl Verify<'_> {
    /// Hashes the next `bytes` bytes (at least one), or fewer bytes at the end of a tensor. Returns true if bytes are
    /// left to hash.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedTensor`] after the last byte of a tensor that does not have the file's hash. The next step
    /// continues with the next tensor.
    pub fn step(&mut self, bytes: usize) -> Result<bool, Error> {
        if self.index >= self.hashes.len() {
            return Ok(false);
        }
        #[cfg(feature = "storage")]
        if !self.stored.is_empty() {
            return Err(Error::NoStorage);
        }
        let (now, rest) = self.rest.split_at_checked(bytes.max(1)).unwrap_or((self.rest, &[]));
        self.hash.update(now);
        self.rest = rest;
        if rest.is_empty() { self.end() } else { Ok(true) }
    }

    /// Like [`step`](Self::step), for a model whose matrices are in `storage`: hashes the next bytes of the head, or reads
    /// and hashes the next bytes of the storage, as many as fit into `buffer`.
    ///
    /// # Errors
    ///
    /// Same as [`step`](Self::step); [`Error::BufferTooSmall`] for an empty buffer; [`Error::Storage`], after which the
    /// next step reads the same bytes.
    #[cfg(feature = "storage")]
    pub fn step_with(&mut self, storage: &mut dyn Storage, buffer: &mut [u8]) -> Result<bool, Error> {
        if self.stored.is_empty() {
            return self.step(buffer.len());
        }
        let (at, left) = (self.stored.start, self.stored.end - self.stored.start);
        let len = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let Some(bytes) = buffer.get_mut(..len).filter(|bytes| !bytes.is_empty()) else {
            return Err(Error::BufferTooSmall { what: "bytes of tensor data", needed: 1, given: 0 });
        };
        storage.read(at, bytes).map_err(|code| Error::Storage { at, bytes: len, code: code.into() })?;
        self.hash.update(bytes);
        self.stored.start += len as u64;
        if self.stored.is_empty() { self.end() } else { Ok(true) }
    }

    /// Ends a tensor: compares its hash with the hash in the file, and continues with the next tensor.
    fn end(&mut self) -> Result<bool, Error> {
        let is_whole = matches!(self.hashes.get(self.index), Some(Value::U64(hash)) if hash == self.hash.finish());
        let tensor = Name::new(self.name.as_bytes());
        self.advance();
        if is_whole { Ok(self.index < self.hashes.len()) } else { Err(Error::DamagedTensor { tensor }) }
    }

    /// Goes on to the next tensor.
    fn advance(&mut self) {
        self.index += 1;
        if let Some(tensor) = self.tensors.next() {
            (self.name, self.rest, self.hash) = (tensor.name, tensor.data, Xxh64::new());
            #[cfg(feature = "storage")]
            if tensor.in_storage() {
                let at = tensor.offset.saturating_sub(self.head);
                self.stored = at..at.saturating_add(tensor.bytes());
            }
        }
    }
}
