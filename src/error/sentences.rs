//! What each error says: what is wrong, where, and what to do.

use super::{Error, Sentence};

impl Error {
    /// The sentence, for [`Display`](core::fmt::Display) and for the compiler.
    pub(crate) const fn sentence(&self) -> Sentence<'_> {
        use Error::*;
        let say = Sentence::new;
        match self {
            NotGguf => say("this is not a GGUF file: it does not start with the bytes \"GGUF\""),
            Truncated { what, at } => say("the file ends inside ")
                .text(what)
                .text(" at byte ")
                .number(*at)
                .text(": it is cut short or damaged; fetch it again"),
            BigEndian => say("the file is big-endian: convert it again for little-endian machines"),
            Version { version } => say("the file has GGUF version ")
                .number(*version as u64)
                .text(", and versions 2 and 3 are read: convert the model again"),
            TooMany { what, count, at } => say("the file counts ")
                .number(*count)
                .text(" ")
                .text(what)
                .text(" at byte ")
                .number(*at)
                .text(", more than the rest of it can hold: it is cut short or damaged; fetch it again"),
            BadName { what, at, why } => say("the name of the ")
                .text(what)
                .text(" at byte ")
                .number(*at)
                .text(" ")
                .text(why)
                .text(": the file is damaged; fetch it again"),
            DuplicateKey { key } => say("the metadata key ")
                .name(key)
                .text(" is there twice: only one of them can be meant; convert the model again"),
            DuplicateTensor { tensor } => say("the tensor ")
                .name(tensor)
                .text(" is there twice: only one of them can be meant; convert the model again"),
            UnknownValueType { key, id } => say("the metadata key ")
                .name(key)
                .text(" has value type ")
                .number(*id as u64)
                .text(", which GGUF does not have: the file is damaged"),
            NestedArray { key } => say("the metadata key ")
                .name(key)
                .text(" holds an array of arrays, which is not supported: remove the key"),
            TensorRank { tensor, count } => say("the tensor ")
                .name(tensor)
                .text(" has ")
                .number(*count as u64)
                .text(" dimensions, and 1 to 4 are possible: the file is damaged"),
            TensorDim { tensor, dim, len } => say("dimension ")
                .number(*dim as u64)
                .text(" of the tensor ")
                .name(tensor)
                .text(" is ")
                .text(if *len < 0 { "-" } else { "" })
                .number(len.unsigned_abs())
                .text(", and it must be positive: the file is damaged"),
            TensorTooLarge { tensor, dims } => say("the tensor ")
                .name(tensor)
                .text(" with shape ")
                .shape(dims)
                .text(" is larger than any memory: the file is damaged"),
            UnknownTensorType { tensor, id } => say("the tensor ")
                .name(tensor)
                .text(" has type ")
                .number(*id as u64)
                .text(", which is unknown or was withdrawn: quantize the model again"),
            TensorBlock { tensor, row, block } => say("the rows of the tensor ")
                .name(tensor)
                .text(" have ")
                .number(*row)
                .text(" elements, which are not whole blocks of ")
                .number(*block as u64)
                .text(": quantize the model again"),
            TensorOffset { tensor, found, expected } => say("the tensor ")
                .name(tensor)
                .text(" starts at byte ")
                .number(*found)
                .text(" of the tensor data and must start at ")
                .number(*expected)
                .text(", right after the one before it: the file is damaged"),
            TensorData { tensor, offset, size, file } => say("the tensor ")
                .name(tensor)
                .text(" takes ")
                .number(*size)
                .text(" bytes from byte ")
                .number(*offset)
                .text(" of the tensor data, more than the file of ")
                .number(*file)
                .text(" bytes has: it is cut short; fetch it again"),
            MissingKey { key } => {
                say("the metadata key ").name(key).text(" is missing: the file cannot be run without it")
            }
            KeyType { key, expected } => say("the metadata key ").name(key).text(" must hold ").text(expected),
            KeyValue { key, why } => say("the metadata key ").name(key).text(" ").text(why),
            UnexpectedKey { key } => say("the metadata key ")
                .name(key)
                .text(" is unknown to this architecture: running without it could give wrong results"),
            Unsupported { what, name } => say("the ").text(what).text(" '").name(name).text("' is not supported"),
            MissingTensor { tensor } => say("the tensor ").name(tensor).text(" is missing: the file is incomplete"),
            UnexpectedTensor { tensor } => say("the tensor ")
                .name(tensor)
                .text(" is unknown to this architecture: running without it would give wrong results"),
            TensorShape { tensor, found, expected } => say("the tensor ")
                .name(tensor)
                .text(" has shape ")
                .shape(found)
                .text(", but the metadata asks for ")
                .shape(expected),
            TensorType { tensor, kind } => say("the tensor ")
                .name(tensor)
                .text(" has type ")
                .tensor_type(*kind)
                .text(", which cannot be run here: quantize the model to another type"),
            PlanTooLarge => {
                say("the plan needs more memory than this machine can address: plan a smaller context or batch")
            }
            PlanMismatch => say("the plan was made for another model: plan again with this one"),
            WorkspaceTooSmall { needed, given } => say("the workspace has ")
                .size(*given)
                .text(" bytes and the plan needs ")
                .size(*needed)
                .text(": hand over more or plan a smaller context or batch"),
            KvTooSmall { needed, given } => say("the KV memory has ")
                .size(*given)
                .text(" bytes and the plan needs ")
                .size(*needed)
                .text(": hand over more or plan a smaller context"),
            Misaligned { align } => {
                say("the memory must start on a ").size(*align).text("-byte boundary: use `Workspace` or `Line`")
            }
            WorkspaceTaken => say("this workspace was taken before: give each session memory of its own"),
            BufferTooSmall { what, needed, given } => {
                say("the ").text(what).text(" has room for ").size(*given).text(" and needs ").size(*needed)
            }
            TokenOutOfRange { token, vocab } => say("token id ")
                .number(*token as u64)
                .text(" is outside the vocabulary: ids run from 0 to ")
                .number(vocab.saturating_sub(1) as u64),
            CannotRewind { position, earliest, latest } => say("cannot rewind to position ")
                .size(*position)
                .text(": the cache reaches from ")
                .size(*earliest)
                .text(" to ")
                .size(*latest)
                .text("; start again from 0"),
            #[cfg(feature = "capi")]
            Argument { what } => say("the argument ").text(what).text(" is null or not a known constant"),
            DamagedSnapshot { why } => say("the snapshot ").text(why).text(": save it again"),
            ForeignSnapshot { what } => {
                say("the snapshot was made with another ").text(what).text(": save one with the same as this session's")
            }
            NoPart { part } => say("the model has no ").text(part).text(": give another model"),
            NoSource => say("the decoder has no text to attend to: give the encoder one first"),
            TooManyContexts { planned } => say("")
                .size(*planned)
                .text(" contexts are open, as many as were planned for: close one or plan for more"),
            ForeignContext => say("the context is not an open one of this engine: open one here"),
            OutOfPages { needed, free } => say("")
                .size(*needed)
                .text(" pages of the KV cache are needed and ")
                .size(*free)
                .text(" are free: close a context or plan for more"),
            TooManyLogits { planned, needed } => say("")
                .size(*needed)
                .text(" rows of logits are asked for and ")
                .size(*planned)
                .text(" were planned for: plan for more"),
            TooManyBeams { planned, given } => say("")
                .size(*given)
                .text(" beams are more than the ")
                .size(*planned)
                .text(" planned for: plan for more"),
            EmptyPrompt => say("the prompt is empty: give at least one token"),
            ContextFull { context, needed } => say("the context has ")
                .size(*context)
                .text(" positions and ")
                .size(*needed)
                .text(" are needed: plan a larger context or rewind"),
            VocabularyEntry { key, entry, why } => say("entry ")
                .number(*entry as u64)
                .text(" of the metadata array ")
                .name(key)
                .text(" ")
                .text(why)
                .text(": the file is damaged or badly converted"),
            ForeignIndex => {
                say("the tokenizer index was not made for this vocabulary: build it anew or pack the file again")
            }
            TextTooLong { bytes, limit } => say("the text has ")
                .size(*bytes)
                .text(" bytes and the tokenizer takes ")
                .size(*limit)
                .text(" at a time: cut it"),
            LogitsLength { vocab, given } => say("there are ")
                .size(*given)
                .text(" logits, but the sampler was made for a vocabulary of ")
                .size(*vocab),
        }
    }
}
