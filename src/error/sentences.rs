//! The sentence of each error: what is wrong, where, and what to do.

use super::Error;
use super::message::{Piece, Sentence};

/// Defines the sentence of each variant and the fields that replace the `{}` in it. The compiler makes a table of the
/// texts, without code.
macro_rules! sentences {
    ($($(#[$cfg:meta])? $name:ident $({ $($field:ident),* })? => $template:literal $(, $piece:ident($value:ident))*;)*) => {
        /// The list's variants by number. The list also has the variants of disabled features, so that the numbers are
        /// the same in all builds.
        #[repr(u8)]
        #[allow(dead_code)]
        enum Position {
            $($name,)*
        }

        impl Error {
            /// The error's sentence, used by [`Display`](core::fmt::Display) and by compile-time panics.
            pub(crate) const fn sentence(&self) -> Sentence<'_> {
                Sentence { template: self.template(), pieces: self.pieces() }
            }

            /// Returns the number of the error in the guide's [list](crate::guide::what_can_go_wrong). The number is
            /// the same for all combinations of features. The number serves programs that have no room for the
            /// sentences of [`Display`](core::fmt::Display): the linker removes the sentences from a program that does
            /// not format errors.
            ///
            /// ```
            /// use arenite::Gguf;
            /// assert_eq!(Gguf::parse(b"PK").unwrap_err().number(), 1);
            /// ```
            pub const fn number(&self) -> u8 {
                match self {
                    $($(#[$cfg])? Self::$name { .. } => 1 + Position::$name as u8,)*
                }
            }

            const fn template(&self) -> &'static str {
                match self {
                    $($(#[$cfg])? Self::$name { .. } => $template,)*
                }
            }

            const fn pieces(&self) -> [Piece<'_>; 4] {
                match self {
                    $($(#[$cfg])? Self::$name $({ $($field),* })? => four!($($piece($value))*),)*
                }
            }
        }
    };
}

macro_rules! four {
    () => {
        [Piece::None; 4]
    };
    ($a:ident($x:ident)) => {
        [Piece::$a($x), Piece::None, Piece::None, Piece::None]
    };
    ($a:ident($x:ident) $b:ident($y:ident)) => {
        [Piece::$a($x), Piece::$b($y), Piece::None, Piece::None]
    };
    ($a:ident($x:ident) $b:ident($y:ident) $c:ident($z:ident)) => {
        [Piece::$a($x), Piece::$b($y), Piece::$c($z), Piece::None]
    };
    ($a:ident($x:ident) $b:ident($y:ident) $c:ident($z:ident) $d:ident($w:ident)) => {
        [Piece::$a($x), Piece::$b($y), Piece::$c($z), Piece::$d($w)]
    };
}

sentences! {
    NotGguf => "this is not a GGUF file: it does not start with the bytes \"GGUF\"";
    Truncated { what, at } => "the file ends inside {} at byte {}: it is cut short or damaged; fetch it again", Text(what), Number(at);
    BigEndian => "the file is big-endian: convert it again for little-endian machines";
    Version { version } => "the file has GGUF version {}, but only versions 2 and 3 are supported: convert the model again", Small(version);
    TooMany { what, count, at } => "the file counts {} {} at byte {}, more than the rest of it can hold: it is cut short or damaged; fetch it again", Number(count), Text(what), Number(at);
    BadName { what, at, why } => "the name of the {} at byte {} {}: the file is damaged; fetch it again", Text(what), Number(at), Text(why);
    DuplicateKey { key } => "the metadata key {} occurs twice: convert the model again", Name(key);
    DuplicateTensor { tensor } => "the tensor {} occurs twice: convert the model again", Name(tensor);
    UnknownValueType { key, id } => "the metadata key {} has value type {}, which GGUF does not have: the file is damaged", Name(key), Small(id);
    NestedArray { key } => "the metadata key {} holds an array of arrays, which is not supported: remove the key", Name(key);
    TensorRank { tensor, count } => "the tensor {} has {} dimensions, but GGUF allows at most 4: the file is damaged", Name(tensor), Small(count);
    TensorDim { tensor, dim, len } => "dimension {} of the tensor {} is {}, but must not be negative: the file is damaged", Small(dim), Name(tensor), Signed(len);
    TensorTooLarge { tensor, dims } => "the tensor {} with shape {} is larger than any memory: the file is damaged", Name(tensor), Shape(dims);
    UnknownTensorType { tensor, id } => "the tensor {} has type {}, which is unknown or was withdrawn: quantize the model again", Name(tensor), Small(id);
    TensorBlock { tensor, row, block } => "the rows of the tensor {} have {} elements, not a multiple of the block length {}: quantize the model again", Name(tensor), Number(row), Small(block);
    TensorOffset { tensor, found, expected } => "the tensor {} starts at byte {} of the tensor data but must start at {}, right after the previous tensor: the file is damaged", Name(tensor), Number(found), Number(expected);
    TensorData { tensor, offset, size, file } => "the tensor {} takes {} bytes from byte {} of the tensor data, beyond the end of the file of {} bytes: it is cut short; fetch it again", Name(tensor), Number(size), Number(offset), Number(file);
    #[cfg(feature = "verify")]
    DamagedTensor { tensor } => "the data of the tensor {} is damaged, as its hash shows: fetch the file or write the flash again", Name(tensor);
    #[cfg(feature = "split")]
    Piece { number, count, why } => "piece {} of {} {}: give all pieces of one model, in order", Small(number), Small(count), Text(why);
    MissingKey { key } => "the metadata key {} is missing: convert the file again", Name(key);
    KeyType { key, expected } => "the metadata key {} must hold {}: convert the file again", Name(key), Text(expected);
    KeyValue { key, why } => "the metadata key {} {}", Name(key), Text(why);
    UnexpectedKey { key } => "the metadata key {} is unknown to this architecture: running without it could give wrong results", Name(key);
    UnsupportedKey { key, what } => "the metadata key {} requires {}, which is not supported for this architecture: running without it would give wrong results", Name(key), Text(what);
    Unsupported { what, name } => "the {} '{}' is not supported", Text(what), Name(name);
    MissingTensor { tensor } => "the tensor {} is missing: convert the file again", Name(tensor);
    UnexpectedTensor { tensor } => "the tensor {} is unknown to this architecture: running without it would give wrong results", Name(tensor);
    TensorShape { tensor, found, expected } => "the tensor {} has shape {}, but the metadata requires {}: convert the file again", Name(tensor), Shape(found), Shape(expected);
    TensorType { tensor, kind } => "the tensor {} has type {}, which this build cannot run: enable its feature or quantize the model to another type", Name(tensor), Type(kind);
    PlanTooLarge => "the plan needs more memory than this machine can address: plan a smaller context or batch";
    PlanMismatch => "the plan was made for another model: plan again with this one";
    WorkspaceTooSmall { needed, given } => "the workspace has {} bytes, but the plan needs {}: provide more memory or plan a smaller context or batch", Size(given), Size(needed);
    KvTooSmall { needed, given } => "the KV memory has {} bytes, but the plan needs {}: provide more memory or plan a smaller context", Size(given), Size(needed);
    Misaligned { align } => "the memory must start on a {}-byte boundary: use `Workspace` or `Line`", Size(align);
    WorkspaceTaken => "this static workspace is already in use: give each session its own memory";
    BufferTooSmall { what, needed, given } => "there is room for {} {}, but {} are needed: provide more room or less input", Size(given), Text(what), Size(needed);
    TokenOutOfRange { token, vocab } => "token id {} is outside the vocabulary of {}: ids begin at 0", Small(token), Small(vocab);
    EmptyPrompt => "the prompt is empty: give at least one token";
    NoPart { part } => "the model has no {}: use a model that has one", Text(part);
    NoSource => "the decoder has no text to attend to: run the encoder first";
    TooManyContexts { planned } => "{} contexts are open, the maximum that was planned: close one or plan for more", Size(planned);
    ForeignContext => "the context is closed or belongs to another engine: open a context in this one";
    OutOfPages { needed, free } => "{} pages of the KV cache are needed, but only {} are free: close a context or plan for more", Size(needed), Size(free);
    TooManyLogits { planned, needed } => "{} rows of logits were requested, but {} were planned: plan for more", Size(needed), Size(planned);
    TooManyBeams { planned, given } => "{} beams were requested, but {} were planned: plan for more", Size(given), Size(planned);
    CannotRewind { position, earliest, latest } => "cannot rewind to position {}: the cache reaches from {} to {}; start again from 0", Size(position), Size(earliest), Size(latest);
    DamagedSnapshot { why } => "the snapshot {}: save it again", Text(why);
    ForeignSnapshot { what } => "the snapshot was made with a different {}: load it in a matching session or save a new one", Text(what);
    ContextFull { context, needed } => "the context has {} positions, but {} are needed: plan a larger context or rewind", Size(context), Size(needed);
    #[cfg(feature = "sound")]
    Sound { at, why } => "sample {} of the sound {}", Size(at), Text(why);
    #[cfg(feature = "capi")]
    Argument { what } => "the argument {} is null, unknown, not UTF-8 or given twice", Text(what);
    VocabularyEntry { key, entry, why } => "entry {} of the metadata array {} {}: the file is damaged or badly converted", Small(entry), Name(key), Text(why);
    ForeignIndex => "the tokenizer index was not built for this vocabulary: build it again or pack the file again";
    TextRefused => "the text does not fit into its destination: use a larger one";
    TextTooLong { bytes, limit } => "the text has {} bytes, but the tokenizer takes at most {} at a time: split it", Size(bytes), Size(limit);
    LogitsLength { vocab, given } => "there are {} logits, but the sampler was made for a vocabulary of {}: create it for this model", Size(given), Size(vocab);
    DamagedGrammar { at, why } => "the grammar's table {}, at word {}: compile the grammar again", Text(why), Size(at);
    TokenNotAllowed { token } => "the grammar does not allow token {} here: sample with the constraint", Small(token);
    NoTokenAllowed => "no token may follow here: the grammar allows none of the vocabulary, or all logits are NaN; change the grammar";
    NotNumbers => "the model's results are not numbers (NaN): keys beyond 65504 do not fit an f16 KV cache, so use f32 for it (--kv f32); if that does not help, a weight in the file is damaged (--check-tensors finds it)";
    #[cfg(feature = "vision")]
    Picture { why } => "the picture {}", Text(why);
    #[cfg(feature = "storage")]
    Storage { at, bytes, code } => "the storage of the model could not read {} bytes from byte {} on (its error {}): run the same tokens again, and check the wiring if that does not help", Size(bytes), Number(at), Signed(code);
    #[cfg(feature = "storage")]
    NoStorage => "the model's matrices are not in memory: give the storage that has them (`with_storage`)";
}
