//! What each error says: what is wrong, where, and what to do.

use super::{Error, Sentence};

impl Error {
    /// The sentence, for [`Display`](core::fmt::Display) and for the compiler.
    pub(crate) const fn sentence(&self) -> Sentence<'_> {
        use Error::*;
        let say = Sentence::new;
        match self {
            NotGguf => say("this is not a GGUF file: it does not start with the bytes \"GGUF\""),
            Truncated { what, at } => say("the file ends inside {} at byte {}: it is cut short or damaged; fetch it again").text(what).number(*at),
            BigEndian => say("the file is big-endian: convert it again for little-endian machines"),
            Version { version } => say("the file has GGUF version {}, and versions 2 and 3 are read: convert the model again").number(*version as u64),
            TooMany { what, count, at } => say("the file counts {} {} at byte {}, more than the rest of it can hold: it is cut short or damaged; fetch it again").number(*count).text(what).number(*at),
            BadName { what, at, why } => say("the name of the {} at byte {} {}: the file is damaged; fetch it again").text(what).number(*at).text(why),
            DuplicateKey { key } => say("the metadata key {} is there twice: only one of them can be meant; convert the model again").name(key),
            DuplicateTensor { tensor } => say("the tensor {} is there twice: only one of them can be meant; convert the model again").name(tensor),
            UnknownValueType { key, id } => say("the metadata key {} has value type {}, which GGUF does not have: the file is damaged").name(key).number(*id as u64),
            NestedArray { key } => say("the metadata key {} holds an array of arrays, which is not supported: remove the key").name(key),
            TensorRank { tensor, count } => say("the tensor {} has {} dimensions, and 1 to 4 are possible: the file is damaged").name(tensor).number(*count as u64),
            TensorDim { tensor, dim, len } => say("dimension {} of the tensor {} is {}{}, and it must be positive: the file is damaged").number(*dim as u64).name(tensor).text(if *len < 0 { "-" } else { "" }).number(len.unsigned_abs()),
            TensorTooLarge { tensor, dims } => say("the tensor {} with shape {} is larger than any memory: the file is damaged").name(tensor).shape(dims),
            UnknownTensorType { tensor, id } => say("the tensor {} has type {}, which is unknown or was withdrawn: quantize the model again").name(tensor).number(*id as u64),
            TensorBlock { tensor, row, block } => say("the rows of the tensor {} have {} elements, which are not whole blocks of {}: quantize the model again").name(tensor).number(*row).number(*block as u64),
            TensorOffset { tensor, found, expected } => say("the tensor {} starts at byte {} of the tensor data and must start at {}, right after the one before it: the file is damaged").name(tensor).number(*found).number(*expected),
            TensorData { tensor, offset, size, file } => say("the tensor {} takes {} bytes from byte {} of the tensor data, more than the file of {} bytes has: it is cut short; fetch it again").name(tensor).number(*size).number(*offset).number(*file),
            MissingKey { key } => {
                say("the metadata key {} is missing: the file cannot be run without it").name(key)
            }
            KeyType { key, expected } => say("the metadata key {} must hold {}").name(key).text(expected),
            KeyValue { key, why } => say("the metadata key {} {}").name(key).text(why),
            UnexpectedKey { key } => say("the metadata key {} is unknown to this architecture: running without it could give wrong results").name(key),
            Unsupported { what, name } => say("the {} '{}' is not supported").text(what).name(name),
            MissingTensor { tensor } => say("the tensor {} is missing: the file is incomplete").name(tensor),
            UnexpectedTensor { tensor } => say("the tensor {} is unknown to this architecture: running without it would give wrong results").name(tensor),
            TensorShape { tensor, found, expected } => say("the tensor {} has shape {}, but the metadata asks for {}").name(tensor).shape(found).shape(expected),
            TensorType { tensor, kind } => say("the tensor {} has type {}, which cannot be run here: enable its feature or quantize the model to another type").name(tensor).tensor_type(*kind),
            PlanTooLarge => {
                say("the plan needs more memory than this machine can address: plan a smaller context or batch")
            }
            PlanMismatch => say("the plan was made for another model: plan again with this one"),
            WorkspaceTooSmall { needed, given } => say("the workspace has {} bytes and the plan needs {}: hand over more or plan a smaller context or batch").size(*given).size(*needed),
            KvTooSmall { needed, given } => say("the KV memory has {} bytes and the plan needs {}: hand over more or plan a smaller context").size(*given).size(*needed),
            Misaligned { align } => {
                say("the memory must start on a {}-byte boundary: use `Workspace` or `Line`").size(*align)
            }
            WorkspaceTaken => say("this workspace was taken before: give each session memory of its own"),
            BufferTooSmall { what, needed, given } => {
                say("the {} has room for {} and needs {}").text(what).size(*given).size(*needed)
            }
            TokenOutOfRange { token, vocab } => say("token id {} is outside the vocabulary: ids run from 0 to {}").number(*token as u64).number(vocab.saturating_sub(1) as u64),
            CannotRewind { position, earliest, latest } => say("cannot rewind to position {}: the cache reaches from {} to {}; start again from 0").size(*position).size(*earliest).size(*latest),
            #[cfg(feature = "capi")]
            Argument { what } => say("the argument {} is null, given twice or not a known constant").text(what),
            DamagedSnapshot { why } => say("the snapshot {}: save it again").text(why),
            ForeignSnapshot { what } => {
                say("the snapshot was made with another {}: save one with the same as this session's").text(what)
            }
            NoPart { part } => say("the model has no {}: give another model").text(part),
            NoSource => say("the decoder has no text to attend to: give the encoder one first"),
            TooManyContexts { planned } => say("{} contexts are open, as many as were planned for: close one or plan for more").size(*planned),
            ForeignContext => say("the context is not an open one of this engine: open one here"),
            OutOfPages { needed, free } => say("{} pages of the KV cache are needed and {} are free: close a context or plan for more").size(*needed).size(*free),
            TooManyLogits { planned, needed } => say("{} rows of logits are asked for and {} were planned for: plan for more").size(*needed).size(*planned),
            TooManyBeams { planned, given } => say("{} beams are more than the {} planned for: plan for more").size(*given).size(*planned),
            EmptyPrompt => say("the prompt is empty: give at least one token"),
            ContextFull { context, needed } => say("the context has {} positions and {} are needed: plan a larger context or rewind").size(*context).size(*needed),
            VocabularyEntry { key, entry, why } => say("entry {} of the metadata array {} {}: the file is damaged or badly converted").number(*entry as u64).name(key).text(why),
            ForeignIndex => {
                say("the tokenizer index was not made for this vocabulary: build it anew or pack the file again")
            }
            TextRefused => say("what the text was to be written to did not take it: give it more room"),
            TextTooLong { bytes, limit } => say("the text has {} bytes and the tokenizer takes {} at a time: cut it").size(*bytes).size(*limit),
            LogitsLength { vocab, given } => say("there are {} logits, but the sampler was made for a vocabulary of {}").size(*given).size(*vocab),
            DamagedGrammar { at, why } => {
                say("the grammar's table {}, at word {}: compile the grammar again").text(why).size(*at)
            }
            TokenNotAllowed { token } => {
                say("the grammar does not allow token {} here: sample with the constraint").number(*token as u64)
            }
            NoTokenAllowed => say("no token may follow here: the vocabulary cannot write what the grammar asks for"),
        }
    }
}
