//! Writing GGUF files: metadata and the tensor directory first, then the tensors' bytes as they come, then the hashes
//! of the tensors into the metadata.
//!
//! ```
//! use std::io::{Cursor, Write};
//!
//! use arenite::Gguf;
//! use arenite::quant::TensorType;
//! use host_demo::gguf_writer::{Header, Meta};
//!
//! let mut header = Header::new();
//! header.set("general.architecture", "llama");
//! header.set("tokenizer.ggml.tokens", Meta::strings(["<unk>", "a", "b"]));
//! header.tensor("token_embd.weight", &[4, 3], TensorType::F32)?;
//! header.tensor("output_norm.weight", &[4], TensorType::F32)?;
//!
//! let mut tensors = header.write(Cursor::new(Vec::new()))?; // or a file
//! // The bytes of all tensors in order, in pieces of any size; padding is put between them.
//! for weight in 0..16u8 {
//!     tensors.write_all(&f32::from(weight).to_le_bytes())?;
//! }
//! let file = tensors.finish()?.into_inner();
//!
//! let gguf = Gguf::parse(&file)?;
//! assert_eq!(gguf.architecture()?, "llama");
//! assert_eq!(gguf.tensors().map(|tensor| tensor.data.len()).collect::<Vec<_>>(), [48, 16]);
//! assert!(gguf.verify()?.is_some()); // it has a hash of each tensor
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{HashMap, HashSet};
use std::io::{self, Seek, SeekFrom, Write};

use anyhow::{Context, Result, bail, ensure};
use arenite::gguf::{Array, HASHES_KEY, Value, ValueType, Xxh64};
use arenite::quant::TensorType;

/// An encoded metadata value: the type's number, then the value's bytes. `From` converts a Rust value of the same
/// type (`5u32`, `"text"`) and a [`Value`] or an [`Array`] read from another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta(Vec<u8>);

impl Meta {
    fn new(kind: ValueType) -> Self {
        Self((kind as u32).to_le_bytes().to_vec())
    }

    /// Encodes an array of numbers or booleans.
    pub fn array<T: Scalar>(values: impl IntoIterator<Item = T>) -> Self {
        let mut bytes = Vec::new();
        let mut len = 0;
        for value in values {
            value.put(&mut bytes);
            len += 1;
        }
        Self::elements(T::KIND, len, &bytes)
    }

    /// Encodes an array of strings, which may hold any bytes.
    pub fn strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Self {
        let mut bytes = Vec::new();
        let mut len = 0;
        for string in strings {
            put_string(&mut bytes, string.as_ref());
            len += 1;
        }
        Self::elements(ValueType::Str, len, &bytes)
    }

    fn elements(kind: ValueType, len: u64, bytes: &[u8]) -> Self {
        let mut meta = Self::new(ValueType::Array);
        meta.0.extend((kind as u32).to_le_bytes());
        meta.0.extend(len.to_le_bytes());
        meta.0.extend(bytes);
        meta
    }
}

/// A Rust type that GGUF can store.
pub trait Scalar {
    /// The GGUF type.
    const KIND: ValueType;
    /// Appends the value's bytes to `out`.
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! scalars {
    ($($type:ty = $kind:ident),*) => {$(
        impl Scalar for $type {
            const KIND: ValueType = ValueType::$kind;
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
        impl From<$type> for Meta {
            fn from(value: $type) -> Self {
                let mut meta = Meta::new(<$type>::KIND);
                value.put(&mut meta.0);
                meta
            }
        }
    )*};
}
scalars!(u8 = U8, i8 = I8, u16 = U16, i16 = I16, u32 = U32, i32 = I32, u64 = U64, i64 = I64, f32 = F32, f64 = F64);

impl Scalar for bool {
    const KIND: ValueType = ValueType::Bool;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl From<bool> for Meta {
    fn from(value: bool) -> Self {
        let mut meta = Meta::new(ValueType::Bool);
        value.put(&mut meta.0);
        meta
    }
}

impl From<&[u8]> for Meta {
    fn from(string: &[u8]) -> Self {
        let mut meta = Meta::new(ValueType::Str);
        put_string(&mut meta.0, string);
        meta
    }
}

impl From<&str> for Meta {
    fn from(string: &str) -> Self {
        string.as_bytes().into()
    }
}

impl From<Array<'_>> for Meta {
    fn from(array: Array<'_>) -> Self {
        Self::elements(array.element(), array.len() as u64, array.bytes())
    }
}

impl From<Value<'_>> for Meta {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            Value::F32(v) => v.into(),
            Value::F64(v) => v.into(),
            Value::Bool(v) => v.into(),
            Value::Str(v) => v.into(),
            Value::Array(v) => v.into(),
        }
    }
}

fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend(string);
}

const ALIGNMENT: &str = "general.alignment";

/// The header of a GGUF file: metadata and tensor directory.
#[derive(Clone, Debug)]
pub struct Header {
    keys: Vec<(String, Meta)>,
    tensors: Vec<Entry>,
    /// Index of each key in `keys`.
    key_at: HashMap<String, usize>,
    tensor_names: HashSet<String>,
    /// Alignment of each tensor in bytes.
    alignment: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    dims: Vec<u64>,
    kind: TensorType,
    bytes: u64,
}

impl Default for Header {
    fn default() -> Self {
        Self::new()
    }
}

impl Header {
    /// A header without keys and tensors, with GGUF's default alignment of 32 bytes.
    pub fn new() -> Self {
        Self { keys: vec![], tensors: vec![], key_at: HashMap::new(), tensor_names: HashSet::new(), alignment: 32 }
    }

    /// Sets a key. A key that exists keeps its position. [`HASHES_KEY`] is ignored: [`write`](Self::write) sets it, so
    /// that a copy of another file's keys leaves no hash of other data.
    pub fn set(&mut self, key: &str, value: impl Into<Meta>) {
        if key == HASHES_KEY {
            return;
        }
        let value = value.into();
        match self.key_at.get(key).and_then(|at| self.keys.get_mut(*at)) {
            Some((_, old)) => *old = value,
            None => {
                self.key_at.insert(key.to_owned(), self.keys.len());
                self.keys.push((key.to_owned(), value));
            }
        }
    }

    /// Returns whether a key is set.
    pub fn has(&self, key: &str) -> bool {
        self.key_at.contains_key(key)
    }

    /// Aligns every tensor to a multiple of `alignment` bytes.
    ///
    /// # Errors
    ///
    /// If `alignment` is not a power of two from 8 to 1048576.
    pub fn align(&mut self, alignment: u32) -> Result<()> {
        ensure!(
            alignment.is_power_of_two() && (8..=1 << 20).contains(&alignment),
            "tensors cannot be aligned to {alignment} bytes: give a power of two from 8 to 1048576"
        );
        self.alignment = alignment.into();
        self.set(ALIGNMENT, alignment);
        Ok(())
    }

    /// Adds a tensor with dimensions `dims`, the contiguous one first. Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// If readers would refuse the tensor: the name exists already or is longer than 63 bytes, there are not 1 to 4
    /// dimensions, or the rows are not whole blocks of `kind`.
    pub fn tensor(&mut self, name: &str, dims: &[u64], kind: TensorType) -> Result<u64> {
        ensure!((1..=4).contains(&dims.len()), "the tensor {name} has {} dimensions; GGUF allows 1 to 4", dims.len());
        ensure!((1..64).contains(&name.len()), "the tensor name {name:?} must have 1 to 63 bytes");
        if self.tensor_names.contains(name) {
            bail!("the tensor {name} was already added");
        }
        let row = dims.first().and_then(|&row| kind.row_bytes(usize::try_from(row).ok()?));
        let row = row.with_context(|| format!("the rows of the tensor {name} are not whole blocks of {kind:?}"))?;
        let bytes = dims.iter().skip(1).try_fold(row as u64, |bytes, &n| bytes.checked_mul(n));
        let bytes = bytes.with_context(|| format!("the tensor {name} is larger than any file"))?;
        self.tensor_names.insert(name.to_owned());
        self.tensors.push(Entry { name: name.to_owned(), dims: dims.to_vec(), kind, bytes });
        Ok(bytes)
    }

    /// Writes the header to `out`. The returned writer takes the tensors' bytes, and stores their hashes in the header
    /// when it is finished. If `out` cannot seek, as a pipe, the file has no hashes.
    ///
    /// # Errors
    ///
    /// Errors of `out`, and an error if all tensors together are larger than any file.
    pub fn write<W: Write + Seek>(&self, mut out: W) -> Result<Tensors<W>> {
        let start = if self.tensors.is_empty() { None } else { out.stream_position().ok() };
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64 + u64::from(start.is_some())).to_le_bytes());
        for (key, Meta(value)) in &self.keys {
            put_string(&mut bytes, key.as_bytes());
            bytes.extend(value);
        }
        let hashes = start.map(|start| {
            put_string(&mut bytes, HASHES_KEY.as_bytes());
            let mut hashes = vec![0u64; self.tensors.len() + 1];
            bytes.extend(Meta::array(hashes.iter().copied()).0);
            hashes.clear();
            hashes.push(self.directory_hash());
            (start + bytes.len() as u64 - 8 * (self.tensors.len() as u64 + 1), hashes)
        });
        let mut offset = 0u64;
        for tensor in &self.tensors {
            put_string(&mut bytes, tensor.name.as_bytes());
            bytes.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
            bytes.extend((tensor.kind as u32).to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            offset = offset
                .checked_add(tensor.bytes)
                .and_then(|end| end.checked_next_multiple_of(self.alignment))
                .context("the tensors together are larger than any file")?;
        }
        let mut tensors = Tensors {
            out,
            alignment: self.alignment,
            sizes: self.tensors.iter().rev().map(|tensor| tensor.bytes).collect(),
            left: 0,
            at: 0,
            hash: None,
            hashes,
        };
        tensors.put(&bytes)?;
        tensors.pad()?;
        tensors.next()?;
        Ok(tensors)
    }

    /// Element 0 of the hashes.
    fn directory_hash(&self) -> u64 {
        let mut hash = Xxh64::new();
        for tensor in &self.tensors {
            let dims = std::array::from_fn(|i| tensor.dims.get(i).copied().unwrap_or(1));
            hash.describe(&tensor.name, dims, tensor.kind as u32);
        }
        hash.finish()
    }
}

/// Writes the bytes of all tensors, in order and in chunks of any size, and the padding between them.
#[derive(Debug)]
pub struct Tensors<W> {
    out: W,
    alignment: u64,
    /// Sizes of the tensors after the current one, in reverse order.
    sizes: Vec<u64>,
    /// Bytes still missing from the current tensor.
    left: u64,
    /// Position in the file.
    at: u64,
    /// Hash of the current tensor's bytes so far.
    hash: Option<Xxh64>,
    /// Position of the hashes in `out`, and the finished ones.
    hashes: Option<(u64, Vec<u64>)>,
}

impl<W: Write + Seek> Tensors<W> {
    /// Writes the hashes. Returns the finished file.
    ///
    /// # Errors
    ///
    /// If bytes of tensors are missing, and errors of the writer.
    pub fn finish(mut self) -> Result<W> {
        let missing = self.left + self.sizes.iter().sum::<u64>();
        ensure!(missing == 0, "{missing} bytes of tensors were not written");
        if let Some((at, hashes)) = &self.hashes {
            self.out.seek(SeekFrom::Start(*at))?;
            self.out.write_all(&hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect::<Vec<_>>())?;
            self.out.seek(SeekFrom::End(0))?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Tensors<W> {
    /// Number of bytes written to the file so far.
    pub fn written(&self) -> u64 {
        self.at
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self) -> io::Result<()> {
        let padding = self.at.next_multiple_of(self.alignment) - self.at;
        self.put(&vec![0; padding as usize])
    }

    /// Moves on to the next tensor that has bytes once the current one is complete.
    fn next(&mut self) -> io::Result<()> {
        while self.left == 0 {
            if let (Some(hash), Some((_, hashes))) = (self.hash.take(), &mut self.hashes) {
                hashes.push(hash.finish());
            }
            self.pad()?;
            match self.sizes.pop() {
                Some(size) => (self.left, self.hash) = (size, Some(Xxh64::new())),
                None => break,
            }
        }
        Ok(())
    }
}

impl<W: Write> Write for Tensors<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        if count == 0 && !bytes.is_empty() {
            return Err(io::Error::other("more bytes were written than the tensors have"));
        }
        let bytes = bytes.get(..count).unwrap_or_default();
        self.put(bytes)?;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        self.left -= count as u64;
        self.next()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use arenite::Gguf;

    #[test]
    fn what_is_written_is_read() {
        let mut header = Header::new();
        header.set("general.architecture", "none");
        header.set("u8", 1u8);
        header.set("i8", -1i8);
        header.set("u16", 2u16);
        header.set("i16", -2i16);
        header.set("u32", 3u32);
        header.set("i32", -3i32);
        header.set("u64", 4u64);
        header.set("i64", -4i64);
        header.set("f32", 0.5f32);
        header.set("f64", -0.25f64);
        header.set("bool", true);
        header.set("bytes", &b"\xff\0"[..]);
        header.set("numbers", Meta::array([1.5f32, -2.0]));
        header.set("flags", Meta::array([true, false]));
        header.set("strings", Meta::strings([&b"a"[..], b"", b"\xfe"]));
        header.set("u8", 7u8);
        header.align(64).unwrap();
        assert!(header.align(48).is_err());
        assert_eq!(header.tensor("a", &[32, 2], TensorType::Q8_0).unwrap(), 68);
        assert_eq!(header.tensor("b", &[3], TensorType::F32).unwrap(), 12);
        assert!(header.tensor("b", &[3], TensorType::F32).is_err());
        assert!(header.tensor("c", &[33], TensorType::Q8_0).is_err());
        assert!(header.tensor("c", &[], TensorType::F32).is_err());

        let data: Vec<u8> = (0..80).collect();
        let mut tensors = header.write(Cursor::new(Vec::new())).unwrap();
        data.chunks(7).for_each(|piece| tensors.write_all(piece).unwrap());
        assert!(tensors.write_all(&[0]).is_err());
        let file = tensors.finish().unwrap().into_inner();

        let gguf = Gguf::parse(&file).unwrap();
        assert_eq!(gguf.alignment(), 64);
        let tensors: Vec<_> = gguf.tensors().map(|t| (t.name, t.dims, t.offset % 64, t.data)).collect();
        assert_eq!(tensors, [("a", [32, 2, 1, 1], 0, &data[..68]), ("b", [3, 1, 1, 1], 0, &data[68..])]);
        assert!(matches!(gguf.get("u8"), Some(Value::U8(7))));
        assert!(matches!(gguf.get("bytes"), Some(Value::Str(b"\xff\0"))));

        // Copying a file reads every value back, so this tests each type both ways.
        let mut copy = Header::new();
        gguf.keys().for_each(|(key, value)| copy.set(key, value));
        assert_eq!(copy.keys, header.keys);
    }

    #[test]
    fn missing_bytes_are_noticed() {
        let mut header = Header::new();
        header.tensor("a", &[4], TensorType::F32).unwrap();
        let mut tensors = header.write(Cursor::new(Vec::new())).unwrap();
        tensors.write_all(&[0; 15]).unwrap();
        assert!(tensors.finish().is_err());
    }
}
