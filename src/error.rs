//! The crate's only error type: plain data, without allocation. Every variant names a problem and its location.

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

/// All errors of the crate. `Display` writes one sentence: what is wrong, where, and what to do.
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
        /// The item being read.
        what: &'static str,
        /// Byte offset in the file.
        at: u64,
    },
    /// The file was written for big-endian machines.
    BigEndian,
    /// The file has an unsupported GGUF version (2 and 3 are supported).
    Version {
        /// The version in the file.
        version: u32,
    },
    /// The file states a count of items that the file's remaining bytes cannot hold.
    TooMany {
        /// The counted item.
        what: &'static str,
        /// The count in the file.
        count: u64,
        /// Byte offset of the count.
        at: u64,
    },
    /// A metadata key or a tensor has an invalid name.
    BadName {
        /// "metadata key" or "tensor".
        what: &'static str,
        /// Byte offset of the name's length.
        at: u64,
        /// The problem with the name.
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
    /// A metadata value or an array's elements have an unknown type.
    UnknownValueType {
        /// The key.
        key: Name,
        /// The type's number in the file.
        id: u32,
    },
    /// A metadata array holds arrays.
    NestedArray {
        /// The key.
        key: Name,
    },
    /// A tensor has more than 4 dimensions.
    TensorRank {
        /// The tensor.
        tensor: Name,
        /// Number of dimensions.
        count: u32,
    },
    /// A tensor dimension is negative.
    TensorDim {
        /// The tensor.
        tensor: Name,
        /// Index of the dimension, 0 for the fastest.
        dim: u32,
        /// Its length in elements.
        len: i64,
    },
    /// A tensor's number of elements or bytes exceeds 63 bits.
    TensorTooLarge {
        /// The tensor.
        tensor: Name,
        /// Its dimensions, fastest first.
        dims: [u64; 4],
    },
    /// A tensor has a type that is unknown or was withdrawn from GGUF.
    UnknownTensorType {
        /// The tensor.
        tensor: Name,
        /// The type's number in the file.
        id: u32,
    },
    /// The length of a tensor's rows is not a multiple of its type's block length.
    TensorBlock {
        /// The tensor.
        tensor: Name,
        /// Elements in a row.
        row: u64,
        /// Elements in a block.
        block: u32,
    },
    /// A tensor does not start at the end of the previous tensor, rounded up to the alignment: the tensors overlap,
    /// there is a gap between them, or the second is not aligned.
    TensorOffset {
        /// The tensor.
        tensor: Name,
        /// Start of the tensor in the file, in bytes from the start of the tensor data.
        found: u64,
        /// Required offset.
        expected: u64,
    },
    /// A tensor's bytes run past the end of the file.
    TensorData {
        /// The tensor.
        tensor: Name,
        /// Offset of the tensor's first byte from the start of the tensor data.
        offset: u64,
        /// Size of the tensor in bytes.
        size: u64,
        /// Size of the file in bytes.
        file: u64,
    },
    /// A tensor's bytes do not have the hash that the file gives for them.
    #[cfg(feature = "verify")]
    DamagedTensor {
        /// The tensor.
        tensor: Name,
    },
    /// The given slices are not the pieces of one split model, complete and in order.
    #[cfg(feature = "split")]
    Piece {
        /// Number of the piece, from 1.
        number: u32,
        /// Number of pieces of the model.
        count: u32,
        /// The problem with the piece.
        why: &'static str,
    },
    // --- the model ----------------------------------------------------------------------------
    /// A required metadata key is missing.
    MissingKey {
        /// The key.
        key: Name,
    },
    /// A metadata value has the wrong type.
    KeyType {
        /// The key.
        key: Name,
        /// The expected type.
        expected: &'static str,
    },
    /// A metadata value is outside its range.
    KeyValue {
        /// The key.
        key: Name,
        /// The problem with the value.
        why: &'static str,
    },
    /// A key under the architecture's prefix that the architecture does not use.
    UnexpectedKey {
        /// The key.
        key: Name,
    },
    /// A metadata key requires a feature that is not supported for this architecture.
    UnsupportedKey {
        /// The key.
        key: Name,
        /// The feature.
        what: &'static str,
    },
    /// The file requires something that this build does not support.
    Unsupported {
        /// Kind of the unsupported item: "architecture", "tensor type", "tokenizer model", ...
        what: &'static str,
        /// Its name in the file.
        name: Name,
    },
    /// A required tensor is missing.
    MissingTensor {
        /// The tensor.
        tensor: Name,
    },
    /// The file has a tensor that the architecture does not use.
    UnexpectedTensor {
        /// The tensor.
        tensor: Name,
    },
    /// A tensor's shape differs from the shape that the metadata implies. Dimensions are in file order, fastest first.
    TensorShape {
        /// The tensor.
        tensor: Name,
        /// Shape in the file.
        found: [u64; 4],
        /// Shape implied by the metadata.
        expected: [u64; 4],
    },
    /// This build cannot run a tensor of this type in this role: the build has no kernel for the type, or does not
    /// support the type for vectors.
    TensorType {
        /// The tensor.
        tensor: Name,
        /// Type in the file.
        kind: TensorType,
    },
    // --- memory -------------------------------------------------------------------------------
    /// The plan's sizes exceed the address space.
    PlanTooLarge,
    /// The plan was made for another model.
    PlanMismatch,
    /// The workspace is smaller than the plan.
    WorkspaceTooSmall {
        /// Size required by the plan, in bytes.
        needed: usize,
        /// Size provided, in bytes.
        given: usize,
    },
    /// The KV slice is smaller than the plan.
    KvTooSmall {
        /// Size required by the plan, in bytes.
        needed: usize,
        /// Size provided, in bytes.
        given: usize,
    },
    /// Memory does not have the alignment that the plan assumes.
    Misaligned {
        /// Required alignment in bytes.
        align: usize,
    },
    /// A static workspace is already in use.
    WorkspaceTaken,
    /// A buffer provided by the caller is too small.
    BufferTooSmall {
        /// What `needed` and `given` count: "token ids", "bytes of the snapshot", ...
        what: &'static str,
        /// Number of items needed.
        needed: usize,
        /// Number of items for which there is room.
        given: usize,
    },
    // --- running ------------------------------------------------------------------------------
    /// A token id is outside the vocabulary.
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// `prefill` was given no tokens.
    EmptyPrompt,
    /// The call needs an encoder or a decoder that the model does not have. (Most models have no encoder. A model that
    /// is only an encoder computes no logits.)
    NoPart {
        /// "encoder" or "decoder".
        part: &'static str,
    },
    /// The decoder was run before the encoder had run on a text or sound.
    NoSource,
    /// All planned contexts are open.
    TooManyContexts {
        /// Number of planned contexts.
        planned: usize,
    },
    /// A context is closed or belongs to another engine.
    ForeignContext,
    /// A picture, or its place among tokens, cannot be used.
    #[cfg(feature = "vision")]
    Picture {
        /// The problem with the picture.
        why: &'static str,
    },
    /// A run needs more pages of the KV cache than are free.
    OutOfPages {
        /// Pages needed.
        needed: usize,
        /// Pages free.
        free: usize,
    },
    /// A run requested more rows of logits than planned.
    TooManyLogits {
        /// Rows planned.
        planned: usize,
        /// Rows requested.
        needed: usize,
    },
    /// Beam search was requested with more beams than planned.
    TooManyBeams {
        /// Beams planned.
        planned: usize,
        /// Beams requested.
        given: usize,
    },
    /// The context cannot rewind to the position. Either the context has not reached the position yet, or the keys or
    /// recurrent states that the next token needs are no longer stored.
    CannotRewind {
        /// Requested position.
        position: usize,
        /// Earliest possible position.
        earliest: usize,
        /// Current position.
        latest: usize,
    },
    /// The bytes are not a complete snapshot of a session.
    DamagedSnapshot {
        /// The problem with the snapshot.
        why: &'static str,
    },
    /// The snapshot was made with a different model or plan.
    ForeignSnapshot {
        /// The difference.
        what: &'static str,
    },
    /// The context is too short for the tokens.
    ContextFull {
        /// Positions in the context.
        context: usize,
        /// Positions needed.
        needed: usize,
    },
    /// A sample of a sound is invalid.
    #[cfg(feature = "sound")]
    Sound {
        /// Index of the sample since the start of the sound.
        at: usize,
        /// The problem with the sample.
        why: &'static str,
    },
    /// An argument from C is invalid: a null pointer, an unknown constant or name, a text that is not UTF-8, or a
    /// context given twice.
    #[cfg(feature = "capi")]
    Argument {
        /// Name of the argument.
        what: &'static str,
    },
    // --- tokenizer and sampler ----------------------------------------------------------------
    /// An entry of one of the vocabulary's arrays is invalid.
    VocabularyEntry {
        /// The array.
        key: Name,
        /// Index of the entry, from 0.
        entry: u32,
        /// The problem with the entry.
        why: &'static str,
    },
    /// The tokenizer index was built for a different vocabulary, or is invalid.
    ForeignIndex,
    /// The destination of a text returned an error: for example, a `heapless::String` is full.
    TextRefused,
    /// A text is longer than the tokenizer supports.
    TextTooLong {
        /// Length of the text in bytes.
        bytes: usize,
        /// Maximum length in bytes.
        limit: usize,
    },
    /// The number of logits differs from the sampler's vocabulary size.
    LogitsLength {
        /// Vocabulary size.
        vocab: usize,
        /// Number of logits.
        given: usize,
    },
    /// The bytes are not a complete grammar table.
    DamagedGrammar {
        /// Index of the 4-byte word of the table where the problem was found.
        at: usize,
        /// The problem with the table.
        why: &'static str,
    },
    /// The grammar does not allow this token here.
    TokenNotAllowed {
        /// The token.
        token: u32,
    },
    /// No token can follow: the vocabulary cannot spell what the grammar requires, or all logits are NaN.
    NoTokenAllowed,
    /// The logits are not numbers (NaN).
    NotNumbers,
    /// The storage of the model's matrices could not be read. The contexts of the run return to their state after its
    /// last complete pass, but have no logits.
    #[cfg(feature = "storage")]
    Storage {
        /// Position of the first byte that was to be read, counted from the first byte that `arenite pack` wrote for
        /// the storage.
        at: u64,
        /// Number of bytes.
        bytes: usize,
        /// The number that the storage returned.
        code: i64,
    },
    /// The model's matrices are in a storage, but no storage was given.
    #[cfg(feature = "storage")]
    NoStorage,
}

/// Category of an error, for programs that react to it; returned by [`Error::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are not a complete GGUF file: fetch or convert the file again.
    File,
    /// The file is complete but does not describe a valid model: convert the model again.
    Model,
    /// The file requires something that this build or this crate does not support.
    Unsupported,
    /// Memory is too small, not aligned, or planned for a different model: plan again.
    Memory,
    /// The context is full: rewind, or plan a larger one.
    ContextFull,
    /// A token, prompt, text, position or argument is invalid.
    Input,
    /// The snapshot is damaged or belongs to another session.
    Snapshot,
    /// The storage of the model's matrices failed: run the same tokens again.
    #[cfg(feature = "storage")]
    Storage,
}

impl Error {
    /// Category of the error.
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
            #[cfg(feature = "verify")]
            DamagedTensor { .. } => ErrorKind::File,
            #[cfg(feature = "split")]
            Piece { .. } => ErrorKind::File,
            MissingKey { .. }
            | KeyType { .. }
            | KeyValue { .. }
            | MissingTensor { .. }
            | TensorShape { .. }
            | VocabularyEntry { .. }
            | NotNumbers => ErrorKind::Model,
            UnexpectedKey { .. }
            | UnsupportedKey { .. }
            | UnexpectedTensor { .. }
            | Unsupported { .. }
            | TensorType { .. }
            | NoPart { .. } => ErrorKind::Unsupported,
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
            #[cfg(feature = "sound")]
            Sound { .. } => ErrorKind::Input,
            #[cfg(feature = "vision")]
            Picture { .. } => ErrorKind::Input,
            #[cfg(feature = "capi")]
            Argument { .. } => ErrorKind::Input,
            DamagedSnapshot { .. } | ForeignSnapshot { .. } => ErrorKind::Snapshot,
            #[cfg(feature = "storage")]
            Storage { .. } => ErrorKind::Storage,
            #[cfg(feature = "storage")]
            NoStorage => ErrorKind::Input,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sentence().fmt(f)
    }
}

impl core::error::Error for Error {}
