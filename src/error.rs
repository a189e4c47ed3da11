//! The one error type of the crate: plain data, no allocation, every variant says what and where.

#[cfg(feature = "defmt")]
mod log;
mod message;
mod name;
#[cfg(test)]
mod page;
mod sentences;

use core::fmt;

pub(crate) use message::Sentence;
pub use name::Name;

use crate::quant::TensorType;

/// Everything that can go wrong, as data. `Display` gives one sentence: what, where, what to do.
///
/// # Examples
///
/// ```
/// use arenite::{Error, Gguf};
///
/// let error = Gguf::parse(b"# a text, and no model").unwrap_err();
/// assert_eq!(error, Error::NotGguf);
/// println!("{error}"); // this is not a GGUF file: ...
/// ```
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
        /// What it is: "architecture", "tensor type", "tokenizer model", ...
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
    /// As many contexts are open as were planned for.
    TooManyContexts {
        /// How many were planned for.
        planned: usize,
    },
    /// A context is not an open one of this engine.
    ForeignContext,
    /// A run needs more pages of the KV cache than are free.
    OutOfPages {
        /// Pages that are needed.
        needed: usize,
        /// Pages that are free.
        free: usize,
    },
    /// A run was asked for more rows of logits than were planned for.
    TooManyLogits {
        /// How many were planned for.
        planned: usize,
        /// How many were asked for.
        needed: usize,
    },
    /// Beam search was asked for more hypotheses than were planned for.
    TooManyBeams {
        /// How many were planned for.
        planned: usize,
        /// How many were asked for.
        given: usize,
    },
    /// A rewind to a position that was not reached, or that is no longer in a sliding window's cache.
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
    /// A pointer from C is null, a constant or a name is none of the known ones, a text is not UTF-8, or a context is given twice.
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
    /// What a text was to be written to did not take it: a `heapless::String` is full, say.
    TextRefused,
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
    /// No token may follow: the vocabulary cannot write what the grammar asks for, or no logit is a number.
    NoTokenAllowed,
}

/// What sort of thing went wrong, for a program that acts on it: [`Error::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are no whole GGUF file: fetch or convert it again.
    File,
    /// The file is whole, but what it says makes no model: convert it again.
    Model,
    /// The file asks for what this build, or this crate, does not run.
    Unsupported,
    /// Memory is too small, not aligned, or was planned for something else: plan again.
    Memory,
    /// The context is full: rewind, or plan a larger one.
    ContextFull,
    /// A token, a prompt, a text, a position or an argument that cannot be.
    Input,
    /// The bytes are no snapshot, a damaged one, or one of another session.
    Snapshot,
}

impl Error {
    /// What sort of error it is.
    ///
    /// ```
    /// use arenite::{ErrorKind, Gguf};
    /// assert_eq!(Gguf::parse(b"PK").unwrap_err().kind(), ErrorKind::File);
    /// ```
    pub const fn kind(&self) -> ErrorKind {
        use Error::*;
        match self {
            NotGguf
            | Truncated { .. }
            | BigEndian
            | Version { .. }
            | TooMany { .. }
            | BadName { .. }
            | DuplicateKey { .. }
            | DuplicateTensor { .. }
            | UnknownValueType { .. }
            | NestedArray { .. }
            | TensorRank { .. }
            | TensorDim { .. }
            | TensorTooLarge { .. }
            | UnknownTensorType { .. }
            | TensorBlock { .. }
            | TensorOffset { .. }
            | TensorData { .. } => ErrorKind::File,
            MissingKey { .. }
            | KeyType { .. }
            | KeyValue { .. }
            | MissingTensor { .. }
            | TensorShape { .. }
            | VocabularyEntry { .. } => ErrorKind::Model,
            UnexpectedKey { .. } | UnexpectedTensor { .. } | Unsupported { .. } | TensorType { .. } | NoPart { .. } => {
                ErrorKind::Unsupported
            }
            PlanTooLarge
            | PlanMismatch
            | WorkspaceTooSmall { .. }
            | KvTooSmall { .. }
            | Misaligned { .. }
            | WorkspaceTaken
            | BufferTooSmall { .. }
            | TooManyBeams { .. }
            | TextRefused
            | TooManyContexts { .. }
            | TooManyLogits { .. }
            | OutOfPages { .. }
            | ForeignIndex => ErrorKind::Memory,
            ContextFull { .. } => ErrorKind::ContextFull,
            TokenOutOfRange { .. }
            | EmptyPrompt
            | ForeignContext
            | NoSource
            | CannotRewind { .. }
            | TextTooLong { .. }
            | LogitsLength { .. }
            | DamagedGrammar { .. }
            | TokenNotAllowed { .. }
            | NoTokenAllowed => ErrorKind::Input,
            #[cfg(feature = "capi")]
            Argument { .. } => ErrorKind::Input,
            DamagedSnapshot { .. } | ForeignSnapshot { .. } => ErrorKind::Snapshot,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sentence().fmt(f)
    }
}

impl core::error::Error for Error {}
