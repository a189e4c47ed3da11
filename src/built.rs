//! What is in this build: the one list of families, and the abilities that follow from it.
//!
//! Code asks the constants, and the optimizer leaves out what none of the families in the build needs. A file that
//! asks for it is an [`Error::Unsupported`](crate::Error::Unsupported) when it is opened. Types of
//! weights and of the KV cache say it themselves: `TensorType::is_built`, `KvType::is_built`.

use crate::gguf::equal;
use crate::{Error, KvType};

/// Calls `$then!` with the list of families. A row is a file in `model/families/`, its feature, the abilities that
/// it needs (see below), and its architectures, as `general.architecture` has them, with the function of that file
/// that reads each.
macro_rules! families {
    ($then:ident) => {
        $then! {
            llama "llama" [EXPERTS] { "llama" => spec, "ernie4_5" => ernie }
            qwen "qwen" [HEAD_NORM EXPERTS RENAMED POOLED_HEAD] { "qwen2" => qwen2, "qwen3" => qwen3, "qwen3moe" => qwen3moe }
            gpt2 "gpt2" [LEARNED_POSITIONS LAYER_NORM FUSED_QKV NO_GATE GELU_TANH] { "gpt2" => spec }
            gemma "gemma" [POST_NORM HEAD_NORM GELU_TANH LOCAL_LAYERS CAPS] {
                "gemma" => gemma, "gemma2" => gemma2, "gemma3" => gemma3
            }
            nomic_bert "nomic-bert" [
                ENCODER TOKEN_TYPES LAYER_NORM RESIDUAL_NORM FUSED_QKV FUSED_GATE NO_GATE GELU_ERF LOCAL_LAYERS
                RELATIVE_POSITIONS RENAMED POOLED_HEAD
            ] { "nomic-bert" => nomic, "modern-bert" => modern, "jina-bert-v2" => jina }
            gemma_embedding "gemma-embedding" [
                ENCODER POST_NORM HEAD_NORM GELU_TANH LOCAL_LAYERS CAPS POOLED_HEAD
            ] { "gemma-embedding" => spec }
            gemma4 "gemma" [POST_NORM HEAD_NORM GELU_TANH LOCAL_LAYERS CAPS GEMMA4] { "gemma4" => spec }
            phi3 "phi3" [FUSED_QKV FUSED_GATE] { "phi3" => spec }
            stablelm "stablelm" [LAYER_NORM EACH_HEAD_NORM] { "stablelm" => spec }
            smollm3 "smollm3" [LOCAL_LAYERS] { "smollm3" => spec }
            olmo2 "olmo2" [POST_NORM WHOLE_NORM] { "olmo2" => spec }
            granite "granite" [] { "granite" => spec }
            exaone4 "exaone4" [POST_NORM HEAD_NORM LOCAL_LAYERS] { "exaone4" => spec }
            gpt_oss "gpt-oss" [EXPERTS LOCAL_LAYERS GPT_OSS RENAMED] { "gpt-oss" => spec }
            hunyuan "hunyuan" [HEAD_NORM NORM_AFTER_ROPE] { "hunyuan-dense" => spec }
            mistral3 "mistral3" [TEMPERATURE] { "mistral3" => spec }
            lfm2 "lfm2" [HEAD_NORM RENAMED CONVOLUTION EXPERTS SIGMOID_ROUTER DENSE_LAYERS] {
                "lfm2" => spec, "lfm2moe" => experts
            }
            qwen35 "qwen35" [HEAD_NORM RENAMED CONVOLUTION RECURRENCE GATED_QUERY EXPERTS SHARED_EXPERTS] {
                "qwen35" => spec, "qwen35moe" => experts, "qwen3next" => next
            }
            mamba2 "mamba2" [RENAMED CONVOLUTION RECURRENCE EXPERTS SHARED_EXPERTS] {
                "mamba2" => spec, "granitehybrid" => granite, "falcon-h1" => falcon
            }
            nemotron_h "nemotron-h" [
                CONVOLUTION RECURRENCE EXPERTS SIGMOID_ROUTER SHARED_EXPERTS ONE_PART RELU_SQUARED NO_GATE
            ] { "nemotron_h" => spec, "nemotron_h_moe" => spec }
            bert "bert" [ENCODER RENAMED POOLED_HEAD LEARNED_POSITIONS TOKEN_TYPES LAYER_NORM RESIDUAL_NORM NO_GATE GELU_ERF] {
                "bert" => spec
            }
            t5 "t5" [ENCODER CROSS_ATTENTION RELATIVE_POSITIONS NO_GATE GELU_TANH RELU] { "t5" => spec }
            seq2seq "seq2seq" [
                ENCODER CROSS_ATTENTION SINUSOIDAL_POSITIONS LAYER_NORM UNBIASED_NORM RESIDUAL_NORM NO_GATE GELU_TANH
                GELU_ERF RELU
            ] { "seq2seq" => spec }
        }
    };
}
pub(crate) use families;

macro_rules! abilities {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Bit { $($name),* }

        $($(#[$doc])* pub(crate) const $name: bool = ALL.has(Abilities::$name);)*

        impl Abilities {
            $(pub const $name: Self = Self(1 << Bit::$name as u64);)*
        }
    };
}

abilities! {
    /// Encoders, by themselves or in front of a decoder.
    ENCODER,
    /// Decoders that attend to an encoder's states.
    CROSS_ATTENTION,
    /// A router and many feed-forwards; also a feature of its own.
    EXPERTS,
    LEARNED_POSITIONS,
    SINUSOIDAL_POSITIONS,
    RELATIVE_POSITIONS,
    /// Token types, and a norm after the embedding.
    TOKEN_TYPES,
    LAYER_NORM,
    UNBIASED_NORM,
    /// Norms on the output of attention and feed-forward.
    POST_NORM,
    /// Norms on the hidden state after the residual was added.
    RESIDUAL_NORM,
    HEAD_NORM,
    EACH_HEAD_NORM,
    WHOLE_NORM,
    FUSED_QKV,
    FUSED_GATE,
    /// Feed-forwards without a gate.
    NO_GATE,
    GELU_TANH,
    GELU_ERF,
    RELU,
    /// Local layers between global ones.
    LOCAL_LAYERS,
    /// Norms of q and k after rope.
    NORM_AFTER_ROPE,
    /// Queries that grow with the position.
    TEMPERATURE,
    /// What only gpt-oss has: sinks in attention, a form of SwiGLU, and biases of experts.
    GPT_OSS,
    /// Names of tensors that mean others.
    RENAMED,
    /// Causal convolutions over positions.
    CONVOLUTION,
    /// States that every token updates.
    RECURRENCE,
    /// Heads whose output is multiplied by a gate that their query brings.
    GATED_QUERY,
    /// Soft caps on scores and logits.
    CAPS,
    /// What only Gemma 4 has: inputs and a factor for each layer, shared keys and values, and norms of values.
    GEMMA4,
    /// Linear layers after pooling.
    POOLED_HEAD,
    RELU_SQUARED,
    /// Routers whose scores are sigmoids.
    SIGMOID_ROUTER,
    /// Feed-forwards that every token goes to, as well as to its experts.
    SHARED_EXPERTS,
    /// Layers without experts between those with them.
    DENSE_LAYERS,
    /// Layers that are a mixer or a feed-forward.
    ONE_PART,
}

/// A set of abilities.
#[derive(Clone, Copy)]
pub(crate) struct Abilities(u64);

impl Abilities {
    /// Those that are in any of `sets`.
    pub const fn union(mut sets: &[Self]) -> Self {
        let mut all = Self(0);
        while let Some((set, rest)) = sets.split_first() {
            all = Self(all.0 | set.0);
            sets = rest;
        }
        all
    }

    /// Whether all of `other` are in it.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those that are in both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

macro_rules! all {
    ($($file:ident $feature:literal [$($ability:ident)*] $architectures:tt)*) => {
        /// The abilities of the families in this build.
        pub(crate) const ALL: Abilities = {
            let all = Abilities::union(&[$(
                if cfg!(feature = $feature) { Abilities::union(&[$(Abilities::$ability),*]) } else { Abilities(0) }
            ),*]);
            let experts = Abilities::union(&[
                Abilities::EXPERTS,
                Abilities::SIGMOID_ROUTER,
                Abilities::SHARED_EXPERTS,
                Abilities::DENSE_LAYERS,
            ]);
            if cfg!(feature = "experts") { all } else { Abilities(all.0 & !experts.0) }
        };
    };
}
families!(all);

/// Layers that have a state of fixed size.
pub(crate) const STATES: bool = CONVOLUTION || RECURRENCE;

macro_rules! features {
    ($($file:ident $feature:literal [$($ability:ident)*] { $($architecture:literal => $function:ident),+ })*) => {
        /// The crate's feature with the family of an architecture (`general.architecture` in the file).
        ///
        /// # Examples
        ///
        /// ```
        /// assert_eq!(arenite::model::family_feature("qwen3"), Some("qwen"));
        /// ```
        pub const fn family_feature(architecture: &str) -> Option<&'static str> {
            match architecture.as_bytes() {
                $($(name if equal(name, $architecture.as_bytes()) => Some($feature),)+)*
                _ => None,
            }
        }
    };
}
families!(features);

impl Error {
    /// The crate's feature that would run what the file asks for, if it is only left out of this build.
    ///
    /// # Examples
    ///
    /// ```
    /// use arenite::{Gguf, Options, Plan};
    /// # let file = include_bytes!("../tests/fixtures/stories.gguf");
    /// if let Err(error) = Plan::new(&Gguf::parse(file)?, Options::new()) {
    ///     match error.missing_feature() {
    ///         Some(feature) => panic!("{error} (with arenite's feature `{feature}` it runs)"),
    ///         None => panic!("{error}"),
    ///     }
    /// }
    /// # Ok::<(), arenite::Error>(())
    /// ```
    pub const fn missing_feature(&self) -> Option<&'static str> {
        let (what, name) = match self {
            Self::TensorType { kind, .. } if !kind.is_built() => return kind.feature(),
            Self::Unsupported { what, name } => (what.as_bytes(), name.bytes()),
            _ => return None,
        };
        match what {
            b"architecture" => match core::str::from_utf8(name) {
                Ok(name) => family_feature(name),
                Err(_) => None,
            },
            b"model part" if equal(name, b"experts") => Some("experts"),
            b"KV cache" => kv(name),
            b"tokenizer model" => tokenizer_feature(name),
            _ => None,
        }
    }
}

/// The crate's feature with a tokenizer (`tokenizer.ggml.model` in the file); `None` for SentencePiece's BPE, which is
/// always there, and for those that are never run.
pub const fn tokenizer_feature(model: &[u8]) -> Option<&'static str> {
    match model {
        b"gpt2" | b"gemma4" | b"bpe" => Some("bpe"),
        b"t5" => Some("unigram"),
        b"bert" => Some("wordpiece"),
        _ => None,
    }
}

/// The feature of this name, for a type of the KV cache.
const fn kv(name: &[u8]) -> Option<&'static str> {
    let (mut kinds, mut found) = ([KvType::F32, KvType::F16, KvType::Q8_0].as_slice(), None);
    while let Some((kind, rest)) = kinds.split_first() {
        if equal(kind.feature().as_bytes(), name) {
            found = Some(kind.feature());
        }
        kinds = rest;
    }
    found
}

/// Tokenizers by merges: byte-level, over characters, and Gemma 4's.
pub(crate) const BPE: bool = cfg!(feature = "bpe");
pub(crate) const UNIGRAM: bool = cfg!(feature = "unigram");
pub(crate) const WORDPIECE: bool = cfg!(feature = "wordpiece");
