//! The one error type of the crate: plain data, no allocation, every variant says what and where.

use core::fmt;

use crate::message::Digits;
use crate::quant::TensorType;

/// A short copy of a name from the file, so that an error outlives the bytes it speaks of.
///
/// Names longer than [`Name::CAPACITY`] are cut and shown with an ellipsis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; Self::CAPACITY],
    len: u8,
    cut: bool,
}

impl Name {
    /// How many bytes of a name are kept.
    pub const CAPACITY: usize = 53;

    /// Keeps the first bytes of `name`.
    pub const fn new(name: &[u8]) -> Self {
        Self::joined(name, b"")
    }

    /// `prefix` and `suffix` in one name, as in `llama` and `.block_count`.
    #[inline(never)]
    pub const fn joined(prefix: &[u8], suffix: &[u8]) -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0, cut: false }.with(prefix).with(suffix)
    }

    /// The name of a metadata key: `prefix.name`, or `name` alone if the prefix is empty.
    #[inline(never)]
    pub const fn key(prefix: &str, name: &str) -> Self {
        if prefix.is_empty() {
            Self::new(name.as_bytes())
        } else {
            Self::joined(prefix.as_bytes(), b".").with(name.as_bytes())
        }
    }

    /// The name of a layer's tensor: `blk.N.name`, after a prefix (`enc`) if there is one.
    pub(crate) const fn layered(prefix: &str, layer: usize, name: &str) -> Self {
        let number = Digits::of(layer as u64);
        Self::key(prefix, "blk.").with(number.bytes()).with(b".").with(name.as_bytes())
    }

    /// The bytes that were kept.
    pub(crate) const fn bytes(&self) -> &[u8] {
        self.bytes.split_at(self.len as usize).0
    }

    /// Appends `more`, as far as there is room.
    #[inline(never)]
    const fn with(mut self, mut more: &[u8]) -> Self {
        while let Some((byte, rest)) = more.split_first() {
            if self.len as usize >= Self::CAPACITY {
                self.cut = true;
                break;
            }
            self.bytes[self.len as usize] = *byte;
            self.len += 1;
            more = rest;
        }
        self
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.get(..self.len as usize).unwrap_or(&[]);
        for chunk in bytes.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        if self.cut { f.write_str("…") } else { Ok(()) }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Everything that can go wrong, as data. `Display` gives one sentence: what, where, what to do.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    // --- the file -----------------------------------------------------------------------------
    /// The first four bytes are not `GGUF`.
    NotGguf,
    /// The file ends inside `what`, which starts at byte `at`.
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Byte offset in the file.
        at: u64,
    },
    /// The file was written for big-endian machines.
    BigEndian,
    /// The file has a version of the format that is not read (2 and 3 are).
    Version {
        /// The version in the file.
        version: u32,
    },
    /// The file counts more of something than the bytes that follow can hold.
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The count in the file.
        count: u64,
        /// Byte offset of the count.
        at: u64,
    },
    /// A metadata key or a tensor has a name that is not allowed.
    BadName {
        /// "metadata key" or "tensor".
        what: &'static str,
        /// Byte offset of the name's length.
        at: u64,
        /// What is wrong with the name.
        why: &'static str,
    },
    /// Two metadata keys have the same name.
    DuplicateKey {
        /// The key.
        key: Name,
    },
    /// Two tensors have the same name.
    DuplicateTensor {
        /// The tensor.
        tensor: Name,
    },
    /// A metadata value, or an array's elements, are of a type that does not exist.
    UnknownValueType {
        /// The key.
        key: Name,
        /// The number of the type in the file.
        id: u32,
    },
    /// A metadata array of arrays.
    NestedArray {
        /// The key.
        key: Name,
    },
    /// A tensor does not have 1 to 4 dimensions.
    TensorRank {
        /// The tensor.
        tensor: Name,
        /// Its number of dimensions.
        count: u32,
    },
    /// A tensor dimension is zero or negative.
    TensorDim {
        /// The tensor.
        tensor: Name,
        /// Which dimension, from 0 for the fastest.
        dim: u32,
        /// Its length in elements.
        len: i64,
    },
    /// A tensor's number of elements or bytes is beyond 63 bits.
    TensorTooLarge {
        /// The tensor.
        tensor: Name,
        /// Its dimensions, fastest first.
        dims: [u64; 4],
    },
    /// A tensor's elements are of a type that does not exist (any more).
    UnknownTensorType {
        /// The tensor.
        tensor: Name,
        /// The number of the type in the file.
        id: u32,
    },
    /// A tensor's rows are not a whole number of blocks of its type.
    TensorBlock {
        /// The tensor.
        tensor: Name,
        /// Elements in a row.
        row: u64,
        /// Elements in a block.
        block: u32,
    },
    /// A tensor does not start where the one before it ends, rounded up to the alignment: it
    /// overlaps, leaves a gap, or is not aligned.
    TensorOffset {
        /// The tensor.
        tensor: Name,
        /// Its offset in bytes from the start of the tensor data.
        found: u64,
        /// The offset at which it must start.
        expected: u64,
    },
    /// A tensor's bytes run past the end of the file.
    TensorData {
        /// The tensor.
        tensor: Name,
        /// Where it starts, in bytes from the start of the tensor data.
        offset: u64,
        /// Its bytes.
        size: u64,
        /// Bytes in the file.
        file: u64,
    },
    // --- the model ----------------------------------------------------------------------------
    /// A metadata key that the model needs is not there.
    MissingKey {
        /// The key.
        key: Name,
    },
    /// A metadata key holds another type than it must.
    KeyType {
        /// The key.
        key: Name,
        /// What it should hold.
        expected: &'static str,
    },
    /// A metadata value is outside its range.
    KeyValue {
        /// The key.
        key: Name,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A metadata key of the model's that its architecture does not know.
    UnexpectedKey {
        /// The key.
        key: Name,
    },
    /// The file asks for something this build does not run.
    Unsupported {
        /// What kind of thing: "architecture", "tensor type", "tokenizer model", ...
        what: &'static str,
        /// Its name in the file.
        name: Name,
    },
    /// A tensor that the architecture needs is not there.
    MissingTensor {
        /// The tensor.
        tensor: Name,
    },
    /// A tensor that the architecture does not know.
    UnexpectedTensor {
        /// The tensor.
        tensor: Name,
    },
    /// A tensor's shape disagrees with the metadata. Dimensions as in the file, fastest first.
    TensorShape {
        /// The tensor.
        tensor: Name,
        /// Shape in the file.
        found: [u64; 4],
        /// Shape that follows from the metadata.
        expected: [u64; 4],
    },
    /// A tensor's type cannot be run in its place: no kernel for it, or a vector that is not F32.
    TensorType {
        /// The tensor.
        tensor: Name,
        /// Its type in the file.
        kind: TensorType,
    },
    // --- memory -------------------------------------------------------------------------------
    /// The plan's numbers do not fit the address space.
    PlanTooLarge,
    /// The plan was made for another model.
    PlanMismatch,
    /// The workspace is smaller than the plan.
    WorkspaceTooSmall {
        /// Bytes that the plan asks for.
        needed: usize,
        /// Bytes that were handed over.
        given: usize,
    },
    /// The KV slice is smaller than the plan.
    KvTooSmall {
        /// Bytes that the plan asks for.
        needed: usize,
        /// Bytes that were handed over.
        given: usize,
    },
    /// Memory does not start on the boundary that the plan counts with.
    Misaligned {
        /// The boundary in bytes.
        align: usize,
    },
    /// A static workspace was handed out before.
    WorkspaceTaken,
    /// A buffer of the caller's is too small.
    BufferTooSmall {
        /// Which one.
        what: &'static str,
        /// Elements (or bytes, for byte buffers) needed.
        needed: usize,
        /// Elements given.
        given: usize,
    },
    // --- running ------------------------------------------------------------------------------
    /// A token id outside the vocabulary.
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// `prefill` was given no tokens.
    EmptyPrompt,
    /// The model has no such part: an encoder makes no logits, and most models have no encoder.
    NoPart {
        /// "encoder" or "decoder".
        part: &'static str,
    },
    /// A decoder was to run before it had a text to attend to.
    NoSource,
    /// Beam search was asked for more hypotheses than were planned for.
    TooManyBeams {
        /// How many were planned for.
        planned: usize,
        /// How many were asked for.
        given: usize,
    },
    /// A rewind to a position that was not reached, or that a sliding window has left behind.
    CannotRewind {
        /// Where the session should go back to.
        position: usize,
        /// The earliest position that it can go back to.
        earliest: usize,
        /// Where the session stands.
        latest: usize,
    },
    /// Bytes that are not a snapshot of a session, or not a whole one.
    DamagedSnapshot {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A snapshot of a session that differs from this one.
    ForeignSnapshot {
        /// In what it differs.
        what: &'static str,
    },
    /// The context has no room for the tokens.
    ContextFull {
        /// Positions in the context.
        context: usize,
        /// Positions that would be needed.
        needed: usize,
    },
    /// A pointer from C is null, or a constant is none of the known ones.
    #[cfg(feature = "capi")]
    Argument {
        /// Which argument.
        what: &'static str,
    },
    // --- tokenizer and sampler ----------------------------------------------------------------
    /// An entry of one of the vocabulary's arrays makes no sense.
    VocabularyEntry {
        /// The array.
        key: Name,
        /// Number of the entry, from 0.
        entry: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A tokenizer index was built for another vocabulary, or is not one at all.
    ForeignIndex,
    /// A text is longer than token positions can count.
    TextTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest possible.
        limit: usize,
    },
    /// The number of logits is not the vocabulary size that the sampler was made for.
    LogitsLength {
        /// The vocabulary size.
        vocab: usize,
        /// How many logits there are.
        given: usize,
    },
    /// Bytes that are not the table of a grammar, or not a whole one.
    DamagedGrammar {
        /// The word where it shows.
        at: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A token that the grammar does not allow here.
    TokenNotAllowed {
        /// The token.
        token: u32,
    },
    /// No token may follow: the vocabulary cannot write what the grammar asks for.
    NoTokenAllowed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = Digits::of;
        match *self {
            Error::NotGguf => write!(f, "this is not a GGUF file: it does not start with the bytes \"GGUF\""),
            Error::Truncated { what, at } => {
                write!(f, "the file ends inside {what} at byte {}: it is cut short or damaged; fetch it again", n(at))
            }
            Error::BigEndian => {
                write!(f, "the file is big-endian: convert it again for little-endian machines")
            }
            Error::Version { version } => {
                write!(f, "the file has GGUF version {version}, and versions 2 and 3 are read: convert the model again")
            }
            Error::TooMany { what, count, at } => {
                write!(
                    f,
                    "the file counts {} {what} at byte {}, more than the rest of it can hold: it is cut short or damaged; fetch it again",
                    n(count),
                    n(at)
                )
            }
            Error::BadName { what, at, why } => {
                write!(f, "the name of the {what} at byte {} {why}: the file is damaged; fetch it again", n(at))
            }
            Error::DuplicateKey { key } => {
                write!(
                    f,
                    "the metadata key {key} is there twice: only one of them can be meant; convert the model again"
                )
            }
            Error::DuplicateTensor { tensor } => {
                write!(f, "the tensor {tensor} is there twice: only one of them can be meant; convert the model again")
            }
            Error::UnknownValueType { key, id } => {
                write!(f, "the metadata key {key} has value type {id}, which GGUF does not have: the file is damaged")
            }
            Error::NestedArray { key } => {
                write!(f, "the metadata key {key} holds an array of arrays, which is not supported: remove the key")
            }
            Error::TensorRank { tensor, count } => {
                write!(f, "the tensor {tensor} has {count} dimensions, and 1 to 4 are possible: the file is damaged")
            }
            Error::TensorDim { tensor, dim, len } => {
                write!(
                    f,
                    "dimension {dim} of the tensor {tensor} is {}{}, and it must be positive: the file is damaged",
                    if len < 0 { "-" } else { "" },
                    n(len.unsigned_abs())
                )
            }
            Error::TensorTooLarge { tensor, dims } => {
                write!(
                    f,
                    "the tensor {tensor} with shape {} is larger than any memory: the file is damaged",
                    Dims(dims)
                )
            }
            Error::UnknownTensorType { tensor, id } => {
                write!(
                    f,
                    "the tensor {tensor} has type {id}, which is unknown or was withdrawn: quantize the model again"
                )
            }
            Error::TensorBlock { tensor, row, block } => {
                write!(
                    f,
                    "the rows of the tensor {tensor} have {} elements, which are not whole blocks of {block}: quantize the model again",
                    n(row)
                )
            }
            Error::TensorOffset { tensor, found, expected } => {
                write!(
                    f,
                    "the tensor {tensor} starts at byte {} of the tensor data and must start at {}, right after the one before it: the file is damaged",
                    n(found),
                    n(expected)
                )
            }
            Error::TensorData { tensor, offset, size, file } => {
                write!(
                    f,
                    "the tensor {tensor} takes {} bytes from byte {} of the tensor data, more than the file of {} bytes has: it is cut short; fetch it again",
                    n(size),
                    n(offset),
                    n(file)
                )
            }
            Error::MissingKey { key } => {
                write!(f, "the metadata key {key} is missing: the file cannot be run without it")
            }
            Error::KeyType { key, expected } => write!(f, "the metadata key {key} must hold {expected}"),
            Error::KeyValue { key, why } => write!(f, "the metadata key {key} {why}"),
            Error::UnexpectedKey { key } => {
                write!(
                    f,
                    "the metadata key {key} is unknown to this architecture: running without it could give wrong results"
                )
            }
            Error::Unsupported { what, name } => write!(f, "the {what} '{name}' is not supported"),
            Error::MissingTensor { tensor } => write!(f, "the tensor {tensor} is missing: the file is incomplete"),
            Error::UnexpectedTensor { tensor } => {
                write!(
                    f,
                    "the tensor {tensor} is unknown to this architecture: running without it would give wrong results"
                )
            }
            Error::TensorShape { tensor, found, expected } => {
                write!(f, "the tensor {tensor} has shape {}, but the metadata asks for {}", Dims(found), Dims(expected))
            }
            Error::TensorType { tensor, kind } => {
                write!(
                    f,
                    "the tensor {tensor} has type {kind:?}, which cannot be run here: quantize the model to another type"
                )
            }
            Error::PlanTooLarge => {
                write!(f, "the plan needs more memory than this machine can address: plan a smaller context or batch")
            }
            Error::PlanMismatch => write!(f, "the plan was made for another model: plan again with this one"),
            Error::WorkspaceTooSmall { needed, given } => {
                write!(
                    f,
                    "the workspace has {given} bytes and the plan needs {needed}: hand over more or plan a smaller context or batch"
                )
            }
            Error::KvTooSmall { needed, given } => {
                write!(
                    f,
                    "the KV memory has {given} bytes and the plan needs {needed}: hand over more or plan a smaller context"
                )
            }
            Error::Misaligned { align } => {
                write!(f, "the memory must start on a {align}-byte boundary: use `Workspace` or `Line`")
            }
            Error::WorkspaceTaken => write!(f, "this workspace was taken before: give each session memory of its own"),
            Error::BufferTooSmall { what, needed, given } => {
                write!(f, "the {what} has room for {given} and needs {needed}")
            }
            Error::TokenOutOfRange { token, vocab } => {
                write!(f, "token id {token} is outside the vocabulary: ids run from 0 to {}", vocab.saturating_sub(1))
            }
            Error::CannotRewind { position, earliest, latest } => write!(
                f,
                "cannot rewind to position {position}: the cache reaches from {earliest} to {latest}; start again from 0"
            ),
            #[cfg(feature = "capi")]
            Error::Argument { what } => write!(f, "the argument {what} is null or not a known constant"),
            Error::DamagedSnapshot { why } => write!(f, "the snapshot {why}: save it again"),
            Error::ForeignSnapshot { what } => {
                write!(f, "the snapshot was made with another {what}: save one with the same as this session's")
            }
            Error::NoPart { part } => write!(f, "the model has no {part}: give another model"),
            Error::NoSource => write!(f, "the decoder has no text to attend to: give the encoder one first"),
            Error::TooManyBeams { planned, given } => {
                write!(f, "{given} beams are more than the {planned} planned for: plan for more")
            }
            Error::EmptyPrompt => write!(f, "the prompt is empty: give at least one token"),
            Error::ContextFull { context, needed } => {
                write!(
                    f,
                    "the context has {context} positions and {needed} are needed: plan a larger context or rewind"
                )
            }
            Error::VocabularyEntry { key, entry, why } => {
                write!(f, "entry {entry} of the metadata array {key} {why}: the file is damaged or badly converted")
            }
            Error::ForeignIndex => {
                write!(f, "the tokenizer index was not made for this vocabulary: build it anew or pack the file again")
            }
            Error::TextTooLong { bytes, limit } => {
                write!(f, "the text has {bytes} bytes and the tokenizer takes {limit} at a time: cut it")
            }
            Error::LogitsLength { vocab, given } => {
                write!(f, "there are {given} logits, but the sampler was made for a vocabulary of {vocab}")
            }
            Error::DamagedGrammar { at, why } => {
                write!(f, "the grammar's table {why}, at word {at}: compile the grammar again")
            }
            Error::TokenNotAllowed { token } => {
                write!(f, "the grammar does not allow token {token} here: sample with the constraint")
            }
            Error::NoTokenAllowed => {
                write!(f, "no token may follow here: the vocabulary cannot write what the grammar asks for")
            }
        }
    }
}

impl core::error::Error for Error {}

/// A shape, as the file has it: `[64, 2, 1, 1]`.
struct Dims([u64; 4]);

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0.map(Digits::of);
        write!(f, "[{a}, {b}, {c}, {d}]")
    }
}
