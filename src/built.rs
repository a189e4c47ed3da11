//! The contents of this build: the list of all model families, and the abilities that the enabled families need. An
//! ability is an operation or property of models that only some families have.
//!
//! Code tests the ability constants, so that the optimizer removes all code that no enabled family needs. Opening a
//! file that needs a missing ability fails with [`Error::Unsupported`](crate::Error::Unsupported). Weight types and KV
//! cache types are not abilities: see `TensorType::is_built` and `KvType::is_built`.

use crate::gguf::equal;
use crate::{Error, KvType};

/// Calls `$then!` with the list of families. A row has the name of a file in `model/families/`, the crate feature of
/// the family, the abilities that the family may need (see below), and the names of the family's architectures
/// (`general.architecture` in a model file), each with the function that reads its `Spec`.
macro_rules! families {
    ($then:ident) => {
        $then! {
            llama "llama" [EXPERTS] { "llama" => spec, "ernie4_5" => spec }
            qwen "qwen" [HEAD_NORM EXPERTS DENSE_LAYERS RENAMED POOLED_HEAD] {
                "qwen2" => qwen2, "qwen3" => qwen3, "qwen3moe" => qwen3moe, "qwen2vl" => qwen2vl, "paddleocr" => qwen2vl,
                "qwen3vl" => qwen3vl, "qwen3vlmoe" => qwen3vlmoe
            }
            gpt2 "gpt2" [LEARNED_POSITIONS LAYER_NORM FUSED_QKV NO_GATE GELU_TANH] { "gpt2" => spec }
            gemma "gemma" [POST_NORM HEAD_NORM GELU_TANH LOCAL_LAYERS CAPS] {
                "gemma" => gemma, "gemma2" => gemma2, "gemma3" => gemma3
            }
            nomic_bert "nomic-bert" [
                ENCODER TOKEN_TYPES LAYER_NORM RESIDUAL_NORM FUSED_QKV FUSED_GATE NO_GATE GELU_ERF LOCAL_LAYERS
                LEARNED_POSITIONS RELATIVE_POSITIONS RENAMED POOLED_HEAD EXPERTS DENSE_LAYERS RELU SCORING
            ] {
                "nomic-bert" => nomic, "modern-bert" => modern, "jina-bert-v2" => jina, "jina-bert-v3" => jina_v3,
                "nomic-bert-moe" => nomic_moe, "eurobert" => euro, "neo-bert" => neo, "llama-embed" => llama,
                "mpnet" => mpnet
            }
            gemma_embedding "gemma-embedding" [
                ENCODER POST_NORM HEAD_NORM GELU_TANH LOCAL_LAYERS CAPS POOLED_HEAD
            ] { "gemma-embedding" => spec }
            gemma4 "gemma" [POST_NORM HEAD_NORM GELU_TANH LOCAL_LAYERS CAPS GEMMA4 EXPERTS EXPERTS_BESIDE] {
                "gemma4" => spec, "gemma4-assistant" => assistant
            }
            phi3 "phi3" [FUSED_QKV FUSED_GATE] { "phi3" => spec }
            stablelm "stablelm" [LAYER_NORM EACH_HEAD_NORM PARALLEL] { "stablelm" => spec }
            smollm3 "smollm3" [LOCAL_LAYERS] { "smollm3" => spec }
            olmo2 "olmo2" [POST_NORM WHOLE_NORM LOCAL_LAYERS] { "olmo2" => spec }
            granite "granite" [EXPERTS DENSE_LAYERS SHARED_EXPERTS] { "granite" => spec, "granitemoe" => spec }
            llama_like "llama-like" [
                RENAMED HEAD_NORM NORM_AFTER_ROPE POST_NORM FUSED_QKV FUSED_GATE NO_GATE RELU_SQUARED XIELU RELATIVE_POSITIONS PARALLEL
                LOOPS NO_MIXER BARE_NORM HEADS_GATED EACH_HEAD_NORM TOKEN_TYPES GEMMA4 EMBEDDING_SKIP
            ] {
                "talkie" => talkie, "hrm_text" => hrm_text, "refact" => refact, "cogvlm" => cogvlm, "deci" => deci, "nanbeige" => nanbeige, "plamo" => plamo, "openelm" => openelm, "internlm2" => adjacent, "xverse" => adjacent, "exaone" => halves, "pangu-embedded" => halves, "arcee" => arcee,
                "baichuan" => baichuan, "maincoder" => maincoder, "seed_oss" => seed_oss, "chatglm" => chatglm, "glm4" => glm4,
                "qwen" => qwen, "minicpm" => minicpm, "apertus" => apertus
            }
            gpt_like "gpt-like" [
                LAYER_NORM BARE_NORM EACH_HEAD_NORM TOKEN_TYPES FUSED_QKV CLAMP RENAMED NO_GATE GELU_TANH GELU_ERF RELU_SQUARED
                LEARNED_POSITIONS RELATIVE_POSITIONS LOCAL_LAYERS PARALLEL
            ] {
                "phi2" => phi2, "gptj" => gptj, "gptneox" => gptneox, "falcon" => falcon, "starcoder" => starcoder,
                "starcoder2" => starcoder2, "codeshell" => starcoder2, "nemotron" => nemotron, "jais2" => nemotron,
                "bloom" => bloom, "jais" => jais, "mpt" => mpt, "orion" => orion, "olmo" => olmo, "command-r" => command_r, "cohere2" => cohere2
            }
            mixtures "mixtures" [
                EXPERTS SCORED_ROUTER SHARED_EXPERTS DENSE_LAYERS RENAMED HEAD_NORM NORM_AFTER_ROPE WHOLE_NORM POST_NORM
                LOCAL_LAYERS HEADS_GATED LAYER_NORM RELU EARLY_ROUTER TEMPERATURE LLAMA4 FUSED_QKV CLAMP GROUP_EXPERTS
                EXPERTS_OF_INPUT
            ] {
                "olmoe" => olmoe, "qwen2moe" => qwen2moe, "ernie4_5-moe" => ernie, "deepseek" => deepseek, "deepseek2-ocr" => deepseek_ocr,
                "bailingmoe" => deepseek, "dots1" => dots1, "glm4moe" => glm4moe, "hunyuan-moe" => hunyuan,
                "minimax-m2" => minimax_m2, "afmoe" => afmoe, "phimoe" => phimoe, "smallthinker" => smallthinker,
                "llama4" => llama4, "bailingmoe2" => bailing2, "exaone-moe" => exaone, "mellum" => mellum, "dbrx" => dbrx, "hy_v3" => hy_v3,
                "grovemoe" => grovemoe, "arctic" => arctic
            }
            windowed "mixtures" [
                EXPERTS SCORED_ROUTER SHARED_EXPERTS DENSE_LAYERS HEAD_NORM POST_NORM LOCAL_LAYERS HEADS_GATED LAYER_NORM GPT_OSS
                PARALLEL FUSED_QKV FUSED_GATE NARROW_VALUES TOKEN_TYPES CAPS GELU_TANH RENAMED LIMITS
            ] {
                "granite_swa" => granite, "cohere2moe" => cohere2moe, "laguna" => laguna, "mimo2" => mimo2, "plamo3" => plamo3,
                "spark2_5" => spark, "maple" => maple, "step35" => step35, "muse-glimmer" => muse_glimmer
            }
            bitnet "bitnet" [SUB_NORMS] { "bitnet" => spec }
            exaone4 "exaone4" [POST_NORM HEAD_NORM LOCAL_LAYERS] { "exaone4" => spec }
            gpt_oss "gpt-oss" [EXPERTS LOCAL_LAYERS GPT_OSS RENAMED] { "gpt-oss" => spec }
            hunyuan "hunyuan" [HEAD_NORM NORM_AFTER_ROPE] { "hunyuan-dense" => spec, "hunyuan_vl" => spec }
            mistral3 "mistral3" [TEMPERATURE] { "mistral3" => spec }
            lfm2 "lfm2" [HEAD_NORM RENAMED STATES CONVOLUTION EXPERTS SCORED_ROUTER DENSE_LAYERS] {
                "lfm2" => spec, "lfm2moe" => experts
            }
            qwen35 "qwen35" [
                HEAD_NORM RENAMED STATES CONVOLUTION RECURRENCE GATED_QUERY EXPERTS DENSE_LAYERS SHARED_EXPERTS POOLED_HEAD JOINT_HEAD
            ] {
                "qwen35" => spec, "clef" => clef, "qwen35moe" => experts, "qwen3next" => next
            }
            mamba2 "mamba2" [RENAMED STATES CONVOLUTION RECURRENCE EXPERTS SHARED_EXPERTS] {
                "mamba2" => spec, "granitehybrid" => granite, "falcon-h1" => falcon
            }
            mamba "mamba2" [RENAMED STATES CONVOLUTION SELECTIVE FUSED_QKV FUSED_GATE POST_NORM EACH_HEAD_NORM EXPERTS DENSE_LAYERS] {
                "mamba" => spec, "jamba" => jamba, "plamo2" => plamo2
            }
            rwkv "rwkv" [RENAMED STATES RWKV LAYER_NORM TOKEN_TYPES NO_GATE RELU_SQUARED] {
                "rwkv6" => rwkv6, "rwkv7" => rwkv7, "arwkv7" => arwkv7, "rwkv6qwen2" => rwkv6qwen2
            }
            deepseek2 "mla" [LATENT EXPERTS SCORED_ROUTER SHARED_EXPERTS DENSE_LAYERS TEMPERATURE NO_GATE RELU_SQUARED] {
                "deepseek2" => spec, "mistral4" => spec, "minicpm3" => minicpm3, "plm" => plm
            }
            kimi "mla" [
                LATENT EXPERTS SCORED_ROUTER SHARED_EXPERTS DENSE_LAYERS HEADS_GATED STATES CONVOLUTION KIMI_DELTA
            ] { "kimi-linear" => linear, "bailingmoe3" => ling }
            gemma3n "gemma" [POST_NORM HEAD_NORM GELU_TANH LOCAL_LAYERS CAPS GEMMA4 ALTUP] { "gemma3n" => spec }
            nemotron_h "nemotron-h" [
                STATES CONVOLUTION RECURRENCE EXPERTS DENSE_LAYERS SCORED_ROUTER SHARED_EXPERTS ONE_PART RELU_SQUARED NO_GATE
            ] { "nemotron_h" => spec, "nemotron_h_moe" => spec }
            bert "bert" [ENCODER RENAMED POOLED_HEAD LEARNED_POSITIONS TOKEN_TYPES LAYER_NORM RESIDUAL_NORM NO_GATE GELU_ERF] {
                "bert" => spec
            }
            t5 "t5" [ENCODER CROSS_ATTENTION RELATIVE_POSITIONS NO_GATE GELU_TANH RELU] { "t5" => spec, "t5encoder" => encoder }
            seq2seq "seq2seq" [
                ENCODER CROSS_ATTENTION SINUSOIDAL_POSITIONS LAYER_NORM UNBIASED_NORM RESIDUAL_NORM NO_GATE GELU_TANH
                GELU_ERF RELU
            ] { "seq2seq" => spec }
            speech "sound" [SOUND ENCODER CROSS_ATTENTION LEARNED_POSITIONS LAYER_NORM NO_GATE GELU_ERF] {
                "whisper" => whisper, "moonshine" => moonshine
            }
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
    /// Encoders, alone or together with a decoder.
    ENCODER,
    /// Decoders with cross-attention to an encoder's states.
    CROSS_ATTENTION,
    /// Mixture of experts: a router and several feed-forward layers. This ability also needs the crate feature
    /// `experts`.
    EXPERTS,
    LEARNED_POSITIONS,
    SINUSOIDAL_POSITIONS,
    RELATIVE_POSITIONS,
    /// Token type embeddings, and a norm after the embedding.
    TOKEN_TYPES,
    LAYER_NORM,
    UNBIASED_NORM,
    /// Norms on the outputs of attention and feed-forward.
    POST_NORM,
    /// Norms on the hidden state after the residual is added.
    RESIDUAL_NORM,
    HEAD_NORM,
    EACH_HEAD_NORM,
    WHOLE_NORM,
    FUSED_QKV,
    FUSED_GATE,
    /// Feed-forward layers without a gate.
    NO_GATE,
    GELU_TANH,
    GELU_ERF,
    RELU,
    /// Local layers among global ones.
    LOCAL_LAYERS,
    /// Norms of queries and keys after RoPE.
    NORM_AFTER_ROPE,
    /// Queries that are scaled by position.
    TEMPERATURE,
    /// Features of gpt-oss: attention sinks, a variant of SwiGLU, and biases of experts.
    GPT_OSS,
    /// Tensors whose names in the file differ from the usual tensor names.
    RENAMED,
    /// Causal convolutions over positions.
    CONVOLUTION,
    /// Layers with a state of fixed size.
    STATES,
    /// Recurrent states that every token updates.
    RECURRENCE,
    /// Mamba-1.
    SELECTIVE,
    /// RWKV: each token's input mixed with the previous token's, and a state with a decay per row.
    RWKV,
    /// Attention over a latent vector.
    LATENT,
    /// Features of Gemma 3n: several streams of hidden states, and sparse feed-forward layers.
    ALTUP,
    /// Gates on the outputs of attention, which the matrix of the queries also computes.
    GATED_QUERY,
    /// Soft caps on scores and logits.
    CAPS,
    /// Features of Gemma 4: an embedding and a factor per layer, shared keys and values, and norms of values.
    GEMMA4,
    /// Linear layers after pooling.
    POOLED_HEAD,
    RELU_SQUARED,
    /// Routers that need more than a softmax: a bias on the choice of experts, a factor on the weights, groups of
    /// experts, or sigmoid scores.
    SCORED_ROUTER,
    /// Feed-forward layers for every token, in addition to the experts.
    SHARED_EXPERTS,
    /// Layers without experts among layers with experts.
    DENSE_LAYERS,
    /// Layers with either a mixer or a feed-forward.
    ONE_PART,
    /// Attention and feed-forward of a layer that read the same hidden state, instead of one after the other.
    PARALLEL,
    /// Queries, keys and values that are clamped to a limit.
    CLAMP,
    /// Norms without weights.
    BARE_NORM,
    XIELU,
    /// Norms inside attention and feed-forward.
    SUB_NORMS,
    /// Gates on the outputs of attention heads, computed by a separate matrix.
    HEADS_GATED,
    /// Values shorter than keys.
    NARROW_VALUES,
    /// Layers that run several times.
    LOOPS,
    /// Layers that have neither attention nor a recurrent mixer, in models whose other layers have one of these.
    NO_MIXER,
    /// A dense feed-forward beside experts (Gemma 4).
    EXPERTS_BESIDE,
    /// Routers that read the layer's input.
    EARLY_ROUTER,
    /// Llama 4's features: attention within chunks, norms of queries and keys without weights, weighted inputs of
    /// experts.
    LLAMA4,
    /// Feed-forward layers whose gates are clamped to a limit.
    LIMITS,
    /// Kimi delta attention: delta nets with a decay for each element of a key.
    KIMI_DELTA,
    /// Additional experts, one for each group of experts (Grove MoE).
    GROUP_EXPERTS,
    /// Experts that read the layer's input, in layers that also have a dense feed-forward (Arctic).
    EXPERTS_OF_INPUT,
    /// The token's embedding is added after every layer.
    EMBEDDING_SKIP,
    /// Encoders of sounds.
    SOUND,
    /// Layers at the end of an encoder that score the options of a decision.
    SCORING,
    /// Tensors of a head that decides about all options of several questions together (clef). The program, not the
    /// engine, reads these tensors.
    JOINT_HEAD,
}

/// A set of abilities.
#[derive(Clone, Copy)]
pub(crate) struct Abilities(u64);

impl Abilities {
    /// The union of `sets`.
    pub const fn union(mut sets: &[Self]) -> Self {
        let mut all = Self(0);
        while let Some((set, rest)) = sets.split_first() {
            all = Self(all.0 | set.0);
            sets = rest;
        }
        all
    }

    /// True if `self` contains all abilities in `other`.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if a `Spec` in this build may need the ability. A family only needs the abilities in its row of the list;
    /// builds with the feature `lenient` check each `Spec` for other abilities.
    pub const fn may_be_needed(self) -> bool {
        LENIENT || LISTED.has(self)
    }

    /// The abilities that are in both sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

macro_rules! all {
    ($($file:ident $feature:literal [$($ability:ident)*] $architectures:tt)*) => {
        /// All abilities in the list's rows of the enabled families, including abilities that need the feature
        /// `experts`.
        const LISTED: Abilities = Abilities::union(&[$(
            if cfg!(feature = $feature) { Abilities::union(&[$(Abilities::$ability),*]) } else { Abilities(0) }
        ),*]);

        /// The abilities in this build: [`LISTED`] and [`LAYOUTS`]. Without the feature `experts`, the abilities of
        /// experts are left out.
        pub(crate) const ALL: Abilities = {
            let all = LISTED;
            let experts = Abilities::union(&[
                Abilities::EXPERTS,
                Abilities::SCORED_ROUTER,
                Abilities::SHARED_EXPERTS,
                Abilities::DENSE_LAYERS,
                Abilities::EXPERTS_BESIDE,
                Abilities::EARLY_ROUTER,
                Abilities::GROUP_EXPERTS,
                Abilities::EXPERTS_OF_INPUT,
            ]);
            let all = Abilities::union(&[all, LAYOUTS, VISION]);
            if cfg!(feature = "experts") { all } else { Abilities(all.0 & !experts.0) }
        };
    };
}
families!(all);

/// The abilities that embedding models need in addition to those of their family. Files of all families can need them.
pub(crate) const MODULES: Abilities = if LENIENT {
    Abilities::union(&[Abilities::ENCODER, Abilities::POOLED_HEAD, Abilities::RENAMED])
} else {
    Abilities(0)
};

/// The operations of encoders of pictures.
const VISION: Abilities = if cfg!(feature = "vision") {
    Abilities::union(&[Abilities::LAYER_NORM, Abilities::GELU_TANH, Abilities::GELU_ERF])
} else {
    Abilities(0)
};
/// True if layers that predict further tokens can run.
pub(crate) const DRAFTS: bool = cfg!(feature = "drafts");
/// True if the activation function `Sigmoid` is needed.
pub(crate) const SIGMOID: bool = GATED_QUERY || HEADS_GATED || WKV;
/// True if states have a decay for each element of a key.
pub(crate) const WKV: bool = RWKV || KIMI_DELTA;
/// Layouts of a model's tensors (q, k and v in one tensor, gate and up in one tensor) that a lenient build accepts in
/// files of every family.
pub(crate) const LAYOUTS: Abilities =
    if LENIENT { Abilities::union(&[Abilities::FUSED_QKV, Abilities::FUSED_GATE]) } else { Abilities::union(&[]) };
/// Activation functions that a lenient build accepts in the key `hidden_activation` of every family. A build only has
/// the functions that its own families need.
pub(crate) const ACTIVATIONS: Abilities = if LENIENT {
    Abilities::union(&[Abilities::GELU_TANH, Abilities::GELU_ERF, Abilities::RELU, Abilities::RELU_SQUARED])
} else {
    Abilities::union(&[])
};
/// True if the crate accepts the files of all converters, even if they contain keys without effect, or the same tensors
/// in another layout.
pub(crate) const LENIENT: bool = cfg!(feature = "lenient");
/// True if a matrix may have a tensor `.scale`, a factor on the matrix's products, as in NVFP4 files and in Talkie.
pub(crate) const SCALES: bool = cfg!(any(feature = "nvfp4", feature = "llama-like"));
/// True if the vectors of a file, such as norms and biases, may be F16 or BF16. They are converted to f32 when a
/// session begins.
pub(crate) const HALF_VECTORS: bool = cfg!(feature = "half-floats");

/// True if some family of this build applies the hyperbolic tangent other than as a part of GELU.
pub(crate) const TANH: bool = CAPS || RWKV || ALTUP || SOUND;

macro_rules! features {
    ($($file:ident $feature:literal [$($ability:ident)*] { $($architecture:literal => $function:ident),+ })*) => {
        /// The architectures that this crate runs if all features of the crate are enabled (`general.architecture` in
        /// the file).
        pub const ARCHITECTURES: &[&str] = &[$($($architecture),+),*];

        /// The crate feature that enables an architecture (`general.architecture` in the file).
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
    /// The crate feature whose absence from this build is the cause of the error; `None` for other errors.
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

/// The crate feature of a tokenizer (`tokenizer.ggml.model` in the file); `None` for SentencePiece BPE, which is always
/// built, and for unsupported tokenizers.
pub const fn tokenizer_feature(model: &[u8]) -> Option<&'static str> {
    match model {
        b"gpt2" | b"gemma4" | b"bpe" | b"whitespace" => Some("bpe"),
        b"t5" => Some("unigram"),
        b"bert" => Some("wordpiece"),
        b"rwkv" => Some("rwkv-world"),
        b"plamo2" => Some("plamo2"),
        b"hybriddna" => Some("hybrid-dna"),
        _ => None,
    }
}

/// Returns `name` if it is the crate feature of a KV cache type.
const fn kv(name: &[u8]) -> Option<&'static str> {
    let (mut kinds, mut found) = (KvType::ALL.as_slice(), None);
    while let Some((kind, rest)) = kinds.split_first() {
        if equal(kind.feature().as_bytes(), name) {
            found = Some(kind.feature());
        }
        kinds = rest;
    }
    found
}

/// BPE tokenizers: byte-level, over characters, and Gemma 4's.
pub(crate) const BPE: bool = cfg!(feature = "bpe");
pub(crate) const UNIGRAM: bool = cfg!(feature = "unigram");
pub(crate) const WORDPIECE: bool = cfg!(feature = "wordpiece");
/// RWKV World's tokenizer: the longest match.
pub(crate) const RWKV_WORLD: bool = cfg!(feature = "rwkv-world");
/// PLaMo 2's tokenizer: unigram with whole costs, from the end of a text.
pub(crate) const PLAMO2: bool = cfg!(feature = "plamo2");
/// Byte-level BPE with groups of DNA letters.
pub(crate) const HYBRID_DNA: bool = cfg!(feature = "hybrid-dna");
