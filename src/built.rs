//! What is in this build: abilities, by the features of the models that have them.
//!
//! Code asks these constants, and the optimizer leaves out what none of the features needs. A file that asks
//! for it all the same is an [`Error::Unsupported`](crate::Error::Unsupported) when it is opened. Types of
//! weights and of the KV cache say it themselves: `TensorType::is_built`, `KvType::is_built`.

macro_rules! built {
    ($($(#[$doc:meta])* $name:ident: $($feature:literal)+;)*) => {
        $($(#[$doc])* pub(crate) const $name: bool = cfg!(any($(feature = $feature),+));)*
    };
}

built! {
    /// Encoders, by themselves or in front of a decoder.
    ENCODER: "bert" "t5" "seq2seq";
    /// Decoders that attend to an encoder's states.
    CROSS_ATTENTION: "t5" "seq2seq";
    /// A router and many feed-forwards.
    EXPERTS: "experts";
    LEARNED_POSITIONS: "gpt2" "bert";
    SINUSOIDAL_POSITIONS: "seq2seq";
    RELATIVE_POSITIONS: "t5";
    /// Kinds of text, and a norm behind the embedding.
    TOKEN_TYPES: "bert";
    LAYER_NORM: "gpt2" "stablelm" "bert" "seq2seq";
    UNBIASED_NORM: "seq2seq";
    /// Norms on what a part of a block makes.
    NORM_BEHIND: "gemma" "olmo2" "exaone4";
    /// Norms on the hidden state after a part of a block.
    NORM_AFTER: "bert" "seq2seq";
    HEAD_NORM: "qwen" "gemma" "exaone4" "hunyuan";
    /// Norms of q and k after rope.
    HUNYUAN: "hunyuan";
    /// A form of SwiGLU, and biases of experts.
    GPT_OSS: "gpt-oss";
    /// Scores without values in attention.
    SINKS: "gpt-oss";
    /// Names of tensors that mean others.
    RENAMED: "gpt-oss";
    /// Convolutions over positions.
    CONVOLUTION: "lfm2" "qwen35" "mamba2";
    /// States that every token updates.
    RECURRENCE: "qwen35" "mamba2";
    /// Queries that grow with the position.
    MISTRAL3: "mistral3";
    EACH_HEAD_NORM: "stablelm";
    WHOLE_NORM: "olmo2";
    FUSED_QKV: "gpt2" "phi3";
    FUSED_GATE: "phi3";
    /// Feed-forwards without a gate.
    NO_GATE: "gpt2" "bert" "t5" "seq2seq";
    GELU_TANH: "gpt2" "gemma" "t5" "seq2seq";
    GELU_ERF: "bert" "seq2seq";
    RELU: "t5" "seq2seq";
    /// Heads of two kinds.
    TWO_KINDS: "gemma" "smollm3" "exaone4" "gpt-oss";
    /// Soft caps on scores and logits.
    CAPS: "gemma";
    /// What only Gemma 4 has: inputs and a factor for each layer, shared keys and values, and norms of values.
    GEMMA4: "gemma";

    /// Tokenizers by merges: byte-level, over characters, and Gemma 4's.
    BPE: "bpe";
    UNIGRAM: "unigram";
    WORDPIECE: "wordpiece";
}
