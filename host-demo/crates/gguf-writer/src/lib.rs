//! Writes GGUF files: first the metadata and the tensor directory, then the tensors' bytes in order. At the end, the
//! tensors' hashes are written into the metadata.
//!
//! ```
//! use std::io::{Cursor, Write};
//!
//! use arenite::Gguf;
//! use arenite::quant::TensorType;
//! use arenite_gguf_writer::{Header, Meta};
//!
//! let mut header = Header::new();
//! header.set("general.architecture", "llama");
//! header.set("tokenizer.ggml.tokens", Meta::strings(["<unk>", "a", "b"]));
//! header.tensor("token_embd.weight", &[4, 3], TensorType::F32)?;
//! header.tensor("output_norm.weight", &[4], TensorType::F32)?;
//!
//! let mut tensors = header.write(Cursor::new(Vec::new()))?; // or a file
//! // The bytes of all tensors in order, in chunks of any size. The writer adds the padding between tensors.
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
use arenite::gguf::{HASHES_KEY, HEAD_KEY, Xxh64};
use arenite::quant::TensorType;
use memmap2::{MmapMut, MmapOptions};
use meta::put_string;
pub use meta::{Meta, Scalar};

mod meta;

const ALIGNMENT: &str = "general.alignment";
/// Keys in each file of a split model: index of the file, number of files, and number of tensors in all files.
pub const SPLIT: [&str; 3] = ["split.no", "split.count", "split.tensors.count"];

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

    /// Sets a key. A key that is already set keeps its position. [`HASHES_KEY`], [`HEAD_KEY`] and the keys of split models
    /// are ignored: [`write`](Self::write) sets them, so that the values of another file are never copied.
    pub fn set(&mut self, key: &str, value: impl Into<Meta>) {
        if ![HASHES_KEY, HEAD_KEY].contains(&key) && !SPLIT.contains(&key) {
            self.put(key, value.into());
        }
    }

    fn put(&mut self, key: &str, value: Meta) {
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

    /// Returns a key's value, if it is set to a u32.
    pub fn u32(&self, key: &str) -> Option<u32> {
        let (_, Meta(bytes)) = self.keys.get(*self.key_at.get(key)?)?;
        let value = u32::from_le_bytes(*bytes.last_chunk()?);
        (*bytes == Meta::from(value).0).then_some(value)
    }

    /// Returns whether a key is set to `true`.
    pub fn is_true(&self, key: &str) -> bool {
        let value = self.key_at.get(key).and_then(|at| self.keys.get(*at));
        value.is_some_and(|(_, value)| *value == Meta::from(true))
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
    /// If readers would refuse the tensor: the name already exists or is longer than 63 bytes, there are more than 4
    /// dimensions, or the rows are not whole blocks of `kind`.
    pub fn tensor(&mut self, name: &str, dims: &[u64], kind: TensorType) -> Result<u64> {
        ensure!(dims.len() <= 4, "the tensor {name} has {} dimensions; GGUF allows at most 4", dims.len());
        ensure!((1..64).contains(&name.len()), "the tensor name {name:?} must have 1 to 63 bytes");
        if self.tensor_names.contains(name) {
            bail!("the tensor {name} was already added");
        }
        let row = kind.row_bytes(usize::try_from(dims.first().copied().unwrap_or(1)).unwrap_or(usize::MAX));
        let row = row.with_context(|| format!("the rows of the tensor {name} are not whole blocks of {kind:?}"))?;
        let bytes = dims.iter().skip(1).try_fold(row as u64, |bytes, &n| bytes.checked_mul(n));
        let bytes = bytes.with_context(|| format!("the tensor {name} is larger than any file"))?;
        self.tensor_names.insert(name.to_owned());
        self.tensors.push(Entry { name: name.to_owned(), dims: dims.to_vec(), kind, bytes });
        Ok(bytes)
    }

    /// Writes the header to `out`. The returned writer takes the tensors' bytes, and [`finish`](Tensors::finish) stores
    /// their hashes in the header. If `out` cannot seek (a pipe), the file has no hashes.
    ///
    /// # Errors
    ///
    /// Errors of `out`, and an error if all tensors together are larger than any file.
    pub fn write<W: Write + Seek>(&self, out: W) -> Result<Tensors<W>> {
        self.write_split(vec![(out, self.tensors.len())])
    }

    /// Like [`write`](Self::write), but splits the model into several files as llama.cpp's `llama-gguf-split` does.
    /// Each element of `files` is a file and the number of its tensors. The first file has the keys, and the hashes of
    /// all tensors.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write), and an error if the counts do not add up to the number of tensors.
    pub fn write_split<W: Write + Seek>(&self, files: Vec<(W, usize)>) -> Result<Tensors<W>> {
        let pieces = files.len();
        let mut later = Vec::with_capacity(pieces);
        let (mut start, mut hashes) = (0, None);
        for (number, (mut out, count)) in files.into_iter().enumerate() {
            let own = self.tensors.get(start..start + count).context("a file has more tensors than are left")?;
            let base = if number == 0 && !self.tensors.is_empty() { out.stream_position().ok() } else { None };
            let (header, hashes_at) = self.header(number, pieces, own, base.is_some())?;
            if let Some(base) = base {
                hashes = Some((base + hashes_at as u64, vec![self.directory_hash()]));
            }
            later.push(PendingFile { out, header, sizes: own.iter().rev().map(|tensor| tensor.bytes).collect() });
            start += count;
        }
        ensure!(start == self.tensors.len() && pieces > 0, "the files have {start} of {} tensors", self.tensors.len());
        Tensors::begin(later, self.alignment, hashes)
    }

    /// Like [`write`](Self::write), but divides the model into two files: a head with the first `count` tensors, and a
    /// file for a storage with the bytes of all other tensors. The head followed by the storage file is the whole
    /// model.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write), and an error for a head of 4 GiB or more.
    pub fn write_head<W: Write + Seek>(&self, [mut head, storage]: [W; 2], count: usize) -> Result<Tensors<W>> {
        let (own, others) = self.tensors.split_at_checked(count).context("the head has more tensors than there are")?;
        let base = head.stream_position().context("the head cannot be a pipe")?;
        let data = own.iter().try_fold(0, |offset, tensor| self.after(offset, tensor))?;
        let with_size = |size: u32| -> Result<_> {
            let mut header = self.clone();
            header.put(HEAD_KEY, size.into());
            header.header(0, 1, &self.tensors, true)
        };
        let size = (with_size(0)?.0.len() as u64).next_multiple_of(self.alignment).saturating_add(data);
        let (header, hashes_at) = with_size(u32::try_from(size).context("the head is larger than 4 GiB")?)?;
        let sizes = |own: &[Entry]| own.iter().rev().map(|tensor| tensor.bytes).collect();
        let files = vec![
            PendingFile { out: head, header, sizes: sizes(own) },
            PendingFile { out: storage, header: vec![], sizes: sizes(others) },
        ];
        Tensors::begin(files, self.alignment, Some((base + hashes_at as u64, vec![self.directory_hash()])))
    }

    /// Returns a file in memory with this header whose tensors are zeros, or `None` if the system has no memory for the
    /// file. Only accessed pages take memory.
    ///
    /// # Errors
    ///
    /// If all tensors together are larger than any file.
    pub fn with_zeros(&self) -> Result<Option<MmapMut>> {
        let (bytes, _) = self.header(0, 1, &self.tensors, false)?;
        let data = self.tensors.iter().try_fold(0, |offset, tensor| self.after(offset, tensor))?;
        let length = (bytes.len() as u64).next_multiple_of(self.alignment).saturating_add(data);
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        let Ok(mut file) = MmapOptions::new().len(length).no_reserve_swap().map_anon() else { return Ok(None) };
        if let Some(start) = file.get_mut(..bytes.len()) {
            start.copy_from_slice(&bytes);
        }
        Ok(Some(file))
    }

    /// Encodes the header of one of several files: of file `number` of `files`, which has the tensors `own`. Also
    /// returns the offset of the hashes in this header.
    fn header(&self, number: usize, files: usize, own: &[Entry], hashed: bool) -> Result<(Vec<u8>, usize)> {
        let mut keys: Vec<(&str, Meta)> = vec![];
        if number == 0 {
            keys.extend(self.keys.iter().map(|(key, value)| (key.as_str(), value.clone())));
        } else if let Some((key, value)) = self.key_at.get(ALIGNMENT).and_then(|at| self.keys.get(*at)) {
            keys.push((key.as_str(), value.clone()));
        }
        if files > 1 {
            let [no, count, tensors] = SPLIT;
            let few = || format!("{files} pieces are more than a split model can have");
            keys.push((no, u16::try_from(number).with_context(few)?.into()));
            keys.push((count, u16::try_from(files).with_context(few)?.into()));
            keys.push((tensors, i32::try_from(self.tensors.len())?.into()));
        }
        let hashes = self.tensors.len() + 1;
        if hashed {
            keys.push((HASHES_KEY, Meta::array(std::iter::repeat_n(0u64, hashes))));
        }
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend((own.len() as u64).to_le_bytes());
        bytes.extend((keys.len() as u64).to_le_bytes());
        for (key, Meta(value)) in &keys {
            put_string(&mut bytes, key.as_bytes());
            bytes.extend(value);
        }
        let hashes_at = bytes.len() - if hashed { 8 * hashes } else { 0 };
        let mut offset = 0u64;
        for tensor in own {
            put_string(&mut bytes, tensor.name.as_bytes());
            bytes.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
            bytes.extend((tensor.kind as u32).to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            offset = self.after(offset, tensor)?;
        }
        Ok((bytes, hashes_at))
    }

    /// Returns the offset of the tensor after `tensor`. `offset` is the offset of `tensor` itself.
    fn after(&self, offset: u64, tensor: &Entry) -> Result<u64> {
        let end = offset.checked_add(tensor.bytes).and_then(|end| end.checked_next_multiple_of(self.alignment));
        end.context("the tensors together are larger than any file")
    }

    /// Divides the tensors among files of at most `most` bytes, in order. Returns the number of tensors in each file.
    ///
    /// # Errors
    ///
    /// An error if the metadata or a tensor does not fit in one file.
    pub fn pieces_of(&self, most: u64) -> Result<Vec<usize>> {
        let mut pieces: Vec<usize> = vec![];
        let mut rest = &self.tensors[..];
        while !rest.is_empty() || pieces.is_empty() {
            // Size of the header without tensors. It is computed for two files, because the header of a split model has
            // the same size for any number of files.
            let number = pieces.len().min(1);
            let empty = self.header(number, 2, &[], number == 0)?.0.len() as u64;
            let (mut count, mut entries, mut data) = (0, 0, 0);
            for tensor in rest {
                entries += 8 + tensor.name.len() as u64 + 4 + 8 * tensor.dims.len() as u64 + 4 + 8;
                let start = (empty + entries).next_multiple_of(self.alignment);
                let end = self.after(data, tensor)?;
                if start.saturating_add(end) > most {
                    break;
                }
                (data, count) = (end, count + 1);
            }
            if pieces.is_empty() {
                ensure!(
                    empty.next_multiple_of(self.alignment) <= most,
                    "the metadata takes {empty} bytes, more than a piece of {most}"
                );
            } else if let (0, Some(tensor)) = (count, rest.first()) {
                bail!(
                    "the tensor {} takes {} bytes and does not fit into a piece of {most}",
                    tensor.name,
                    tensor.bytes
                );
            }
            pieces.push(count);
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(pieces)
    }

    /// Computes the hash of the tensor directory. It is the first element of the array at [`HASHES_KEY`], before the
    /// tensors' hashes.
    fn directory_hash(&self) -> u64 {
        let mut hash = Xxh64::new();
        for tensor in &self.tensors {
            let dims = std::array::from_fn(|i| tensor.dims.get(i).copied().unwrap_or(1));
            hash.describe(&tensor.name, dims, tensor.kind as u32);
        }
        hash.finish()
    }
}

/// A file that has not been started.
#[derive(Debug)]
struct PendingFile<W> {
    out: W,
    header: Vec<u8>,
    /// Sizes of the file's tensors, in reverse order.
    sizes: Vec<u64>,
}

/// Writes the bytes of all tensors, in order and in chunks of any size, and the padding between them.
#[derive(Debug)]
pub struct Tensors<W> {
    out: W,
    /// The files before the current one.
    done: Vec<W>,
    /// The files after the current one, in reverse order.
    later: Vec<PendingFile<W>>,
    alignment: u64,
    /// Sizes of the tensors that follow the current tensor in the current file, in reverse order.
    sizes: Vec<u64>,
    /// Bytes still missing from the current tensor.
    left: u64,
    /// Position in the current file.
    at: u64,
    /// Number of bytes written to all files.
    written: u64,
    /// Hash of the current tensor's bytes so far.
    hash: Option<Xxh64>,
    /// Position of the hashes in the first file, and the hashes so far: the hash of the directory, then the hashes of
    /// the finished tensors.
    hashes: Option<(u64, Vec<u64>)>,
}

impl<W: Write + Seek> Tensors<W> {
    /// Writes the hashes. Returns the finished file; for a split model, the last file.
    ///
    /// # Errors
    ///
    /// An error if bytes of tensors are missing, and errors of the file.
    pub fn finish(mut self) -> Result<W> {
        let later = self.later.iter().flat_map(|file| &file.sizes);
        let missing = self.left + self.sizes.iter().chain(later).sum::<u64>();
        ensure!(missing == 0, "{missing} bytes of tensors were not written");
        if let Some((at, hashes)) = &self.hashes {
            let first = self.done.first_mut().unwrap_or(&mut self.out);
            first.seek(SeekFrom::Start(*at))?;
            first.write_all(&hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect::<Vec<_>>())?;
            first.seek(SeekFrom::End(0))?;
        }
        self.done.iter_mut().try_for_each(Write::flush)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Tensors<W> {
    /// Writes the header of the first file.
    fn begin(mut files: Vec<PendingFile<W>>, alignment: u64, hashes: Option<(u64, Vec<u64>)>) -> Result<Self> {
        files.reverse();
        let PendingFile { out, header, sizes } = files.pop().context("there is no file")?;
        let mut tensors =
            Self { out, done: vec![], later: files, alignment, sizes, left: 0, at: 0, written: 0, hash: None, hashes };
        tensors.put(&header)?;
        tensors.pad()?;
        tensors.next()?;
        Ok(tensors)
    }

    /// Number of bytes written so far, to all files.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self) -> io::Result<()> {
        let padding = self.at.next_multiple_of(self.alignment) - self.at;
        self.put(&vec![0; padding as usize])
    }

    /// Once the current tensor is complete, moves on to the next tensor that has bytes.
    fn next(&mut self) -> io::Result<()> {
        while self.left == 0 {
            if let (Some(hash), Some((_, hashes))) = (self.hash.take(), &mut self.hashes) {
                hashes.push(hash.finish());
            }
            self.pad()?;
            if let Some(size) = self.sizes.pop() {
                (self.left, self.hash) = (size, Some(Xxh64::new()));
            } else if let Some(PendingFile { out, header, sizes }) = self.later.pop() {
                self.done.push(std::mem::replace(&mut self.out, out));
                (self.sizes, self.at) = (sizes, 0);
                self.put(&header)?;
            } else {
                break;
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

    use arenite::gguf::Value;

    use super::*;
    use arenite::Gguf;
    use arenite::gguf::Tensor;

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
        assert!(header.tensor("c", &[1; 5], TensorType::F32).is_err());

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

        // The copy reads every value and writes it again, so each type is tested in both directions.
        let mut copy = Header::new();
        gguf.keys().for_each(|(key, value)| copy.set(key, value));
        assert_eq!(copy.keys, header.keys);
    }

    /// Tries every maximum size: no file is larger than the maximum, and the files together have all tensors.
    #[test]
    fn pieces_are_at_most_as_large_as_asked() {
        let mut header = Header::new();
        header.set("general.architecture", "none");
        header.set("split.count", 9u16);
        header.align(64).unwrap();
        for i in 0..7 {
            header.tensor(&format!("tensor {i}"), &[16, 1 + i % 3], TensorType::F32).unwrap();
        }
        let data: Vec<u8> = (0..13 * 64).map(|i| i as u8).collect();
        let mut seen = HashSet::new();
        for most in 0..3000u64 {
            let Ok(counts) = header.pieces_of(most) else {
                assert!(most < 600, "{most}");
                continue;
            };
            let mut files: Vec<_> = counts.iter().map(|_| Cursor::new(vec![])).collect();
            let mut tensors = header.write_split(files.iter_mut().zip(counts.iter().copied()).collect()).unwrap();
            tensors.write_all(&data).unwrap();
            let written = tensors.written();
            tensors.finish().unwrap();
            let files: Vec<&[u8]> = files.iter().map(|file| &file.get_ref()[..]).collect();
            assert_eq!(files.iter().map(|file| file.len() as u64).sum::<u64>(), written);
            assert!(files.iter().all(|file| file.len() as u64 <= most), "{most}: {counts:?}");
            let gguf = Gguf::parse_split(&files).unwrap();
            assert!(gguf.tensors().map(|tensor| tensor.data).collect::<Vec<_>>().concat() == data);
            let mut verify = gguf.verify().unwrap().unwrap();
            while verify.step(64).unwrap() {}
            seen.insert(counts.len());
        }
        assert!(seen.contains(&1) && seen.contains(&2) && seen.iter().any(|pieces| *pieces >= 7), "{seen:?}");
    }

    #[test]
    fn a_head_and_a_storage_are_the_whole() {
        let mut header = Header::new();
        header.set("general.architecture", "none");
        header.set(HEAD_KEY, 7u32);
        header.align(64).unwrap();
        for i in 0..5u64 {
            header.tensor(&format!("tensor {i}"), &[3 + i, 2], TensorType::F32).unwrap();
        }
        let data: Vec<u8> = (0..2 * 4 * 25).collect();
        for count in 0..=5 {
            let mut files = [(); 2].map(|()| Cursor::new(vec![]));
            let mut tensors = header.write_head(files.each_mut(), count).unwrap();
            tensors.write_all(&data).unwrap();
            tensors.finish().unwrap();
            let [head, storage] = files.map(Cursor::into_inner);
            let whole = [&head[..], &storage].concat();
            let gguf = Gguf::parse(&whole).unwrap();
            assert_eq!(gguf.u32("", HEAD_KEY).unwrap(), Some(head.len() as u32));
            let bytes = |tensor: Tensor<'_>| whole[tensor.offset as usize..][..tensor.bytes() as usize].to_vec();
            assert!(gguf.tensors().flat_map(bytes).eq(data.iter().copied()));
            assert_eq!(gguf.tensors().filter(|tensor| tensor.offset < head.len() as u64).count(), count);
            // With the crate's feature `storage`, the tensors behind the head have no bytes in memory.
            if gguf.tensors().all(|tensor| !tensor.data.is_empty()) {
                let mut verify = gguf.verify().unwrap().unwrap();
                while verify.step(64).unwrap() {}
            }
        }
        assert!(header.write_head([(); 2].map(|()| Cursor::new(vec![])), 6).is_err());
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
