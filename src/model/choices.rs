//! Choices in which architectures differ: positions, norms, residuals, gates, experts, and the stacks of layers.

use super::front::Front;
use crate::TokenId;
use crate::kernel::Activation;

/// Kind of position encoding of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Positions {
    /// Rotation of queries and keys by position. Not every layer rotates: see [`is_rotated`](super::Layer::is_rotated).
    Rotary,
    /// A learned embedding per position, added to the token's embedding.
    Learned,
    /// Sines and cosines of the position times `10000^(-2 i / dim)` for each pair `i`, added to the token's embedding.
    Sinusoidal {
        /// True if the vector of a position has all sines first and then all cosines. False if sines and cosines
        /// alternate.
        halves: bool,
    },
    /// A bias on attention scores by the distance of the two positions ([T5](https://arxiv.org/abs/1910.10683)):
    /// learned for each head and each of `buckets` ranges of distances.
    Relative {
        /// Number of ranges.
        buckets: usize,
        /// True if the model also has a learned embedding per position, which is added to the token's embedding
        /// ([MPNet](https://arxiv.org/abs/2004.09297)).
        embedded: bool,
    },
    /// [ALiBi](https://arxiv.org/abs/2108.12409): attention scores are reduced in proportion to the distance of the two
    /// positions. Each head has its own slope.
    Alibi {
        /// Determines the steepest slope. Head `i` of `n` heads subtracts `2^(-bias * (i + 1) / n)` from a score for
        /// each position of distance.
        bias: f32,
    },
}

impl Positions {
    /// True if each position has a learned embedding.
    pub const fn are_learned(self) -> bool {
        matches!(self, Self::Learned | Self::Relative { embedded: true, .. })
    }
}

/// What a stack of layers is: a decoder, an encoder, or one half of an encoder-decoder. This also determines the prefix
/// of the tensors' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stack {
    /// A decoder without an encoder: every token attends to itself and to earlier tokens.
    Alone,
    /// An encoder without a decoder: every token attends to all tokens, and the hidden states are the result.
    Encoder,
    /// The encoder of an encoder-decoder; prefix `enc.`
    Source {
        /// True if the encoder has its own token embeddings.
        own_words: bool,
        /// The layers that turn a sound into the encoder's input; `None` if the encoder reads tokens.
        #[cfg(feature = "sound")]
        front: Option<Front>,
    },
    /// The decoder of an encoder-decoder; prefix `dec.` Its layers also attend to the encoder's states.
    Target {
        /// Sizes of the encoder.
        encoder: EncoderSizes,
        /// First token of the decoder's input.
        start: TokenId,
        /// Size of the encoder's vocabulary, if the encoder does not share the decoder's embeddings.
        source_words: Option<usize>,
    },
}

/// Sizes of an encoder, which may differ from the sizes of its decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncoderSizes {
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// If the encoder reads sounds instead of tokens: the sizes of the layers that turn a sound into its input, and the
    /// longest input.
    #[cfg(feature = "sound")]
    pub sound: Option<SoundSizes>,
}

/// Sizes of an encoder that reads sounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SoundSizes {
    /// Front end.
    pub front: Front,
    /// Maximum number of positions: the number of learned embeddings, or the length that the model was designed for.
    pub positions: usize,
    /// Gate and activation of the feed-forward.
    pub(crate) feed_forward: (Gate, Activation),
}

/// Pooling of a text's hidden states into one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooling {
    /// Mean of all states.
    Mean,
    /// State of the first token.
    First,
    /// State of the last token.
    Last,
    /// Maximum of all states, for each element (key value 101).
    Max,
    /// Sum of all states, divided by the square root of the number of states (type 102).
    MeanSqrtLength,
    /// Mean of all states. The weight of a state is the position of its token, counted from 1 (type 103).
    WeightedMean,
}

/// Activation after a linear layer that follows the pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PooledActivation {
    /// No activation.
    None,
    /// Hyperbolic tangent (BERT).
    Tanh,
    /// GELU (ModernBERT).
    Gelu,
    /// ReLU (DistilBERT).
    Relu,
    /// SiLU.
    Silu,
}

/// Two linear layers after pooling, `g(second(norm(f(first))))`. Their tensors are `dense_2` and `dense_3` in embedding
/// models, and `cls` and `cls.output` in rerankers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PooledHead {
    /// Number of elements between the two linear layers; 0 if the model has only the second of them.
    pub inner: usize,
    /// Width of the result.
    pub out: usize,
    /// Activation between the two layers.
    pub activation: PooledActivation,
    /// Activation after the second layer.
    pub last: PooledActivation,
    /// True if the result is a score for each class.
    pub scores: bool,
}

/// Sizes of the layers at the end of an encoder that score the options of a decision (architecture laya). These layers
/// have layer norms, linear layers with biases and ReLU without a gate; they have no rotary positions and no window.
/// The encoder's final norm comes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scoring {
    /// Number of these layers.
    pub layers: usize,
    /// Number of types of questions. Each type has an embedding, which is added to the states before the scoring
    /// layers.
    pub types: usize,
}

/// Input of a layer's feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Residual {
    /// The hidden state with attention's output added.
    Serial,
    /// Attention and feed-forward both read the hidden state before the layer. Their outputs are then added to this
    /// state.
    Parallel {
        /// True if attention and feed-forward share one norm.
        one_norm: bool,
    },
}

/// Kind of norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Norm {
    /// `x / sqrt(mean(x^2) + eps) * weight`.
    Rms,
    /// `(x - mean) / sqrt(variance + eps) * weight + bias`.
    Layer,
    /// `(x - mean) / (deviation + eps) * weight + bias`. The deviation is that of a sample, in which the sum of squares
    /// is divided by n - 1.
    Unbiased,
}

/// Where a layer has norms. Several of the places may be used. They are the same for attention and for feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// Norm of the input (Llama and most others).
    pub pre_norm: bool,
    /// Norm of the output, before the output is added to the hidden state (`post_attention_norm`, `post_ffw_norm`:
    /// Gemma 2 and later, OLMo 2).
    pub post_norm: bool,
    /// Norm of the hidden state after the addition (the original transformer, BERT, Marian).
    pub residual_norm: bool,
}

impl Placement {
    /// Norms of inputs only.
    pub(crate) const INPUTS: Self = Self { pre_norm: true, post_norm: false, residual_norm: false };
    /// Norms of outputs only.
    pub(crate) const OUTPUTS: Self = Self { pre_norm: false, post_norm: true, residual_norm: false };
    /// Norms of inputs and outputs.
    pub(crate) const BOTH: Self = Self { pre_norm: true, post_norm: true, residual_norm: false };
    /// Norms of the hidden state after the addition only.
    pub(crate) const RESIDUALS: Self = Self { pre_norm: false, post_norm: false, residual_norm: true };
}

/// Norms of q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QkNorm {
    /// No norm.
    None,
    /// Norm of each head, with one weight shared by all heads.
    Head,
    /// Norm of each head with a weight of its own for each head. A file without these weights has no such norm.
    EachHead,
    /// One norm over all heads of q together, and one norm over all heads of k together.
    Whole,
    /// Norm of each head without a weight, in layers with rotary positions.
    Unweighted,
    /// Norm of each head without a weight. After the norm, each head of q is multiplied by a factor.
    Gain,
}

/// Attention temperature of Llama 4 and Mistral 3: queries at position `p` are multiplied by `1 + scale * ln(1 +
/// floor(p / length))`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Temperature {
    /// Factor on the logarithm.
    pub scale: f32,
    /// Number of consecutive positions with the same factor.
    pub length: usize,
    /// Added to the position before the division.
    pub offset: usize,
    /// True if only the queries of layers without rotary positions are multiplied by the temperature.
    pub only_unrotated: bool,
}

/// Gates of the heads' output: the sigmoid or softplus of the output of a linear layer (`attn_gate`) that reads
/// attention's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeadGate {
    /// True if all elements of a head have the same gate.
    pub per_head: bool,
    /// True if the gate is the softplus of its input. False if it is the sigmoid.
    pub softplus: bool,
}

/// Layers that run several times. Each run has its own keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loops {
    /// Number of layers in the file.
    pub layers: usize,
    /// True if the final norm is also applied between two runs.
    pub(crate) normed: bool,
    /// 0 if all layers run one after the other. Otherwise the layers are two stacks of equal size: the first stack runs
    /// this many times, then the second stack runs once, and so on ([HRM](https://arxiv.org/abs/2506.21734)).
    pub low_runs: usize,
}

impl Loops {
    /// Number of layers in a run.
    pub const fn run(&self) -> usize {
        if self.low_runs > 0 { self.layers / 2 } else { self.layers }
    }

    /// True if run `run` is the second stack's.
    pub const fn is_high(&self, run: usize) -> bool {
        self.low_runs > 0 && matches!(run.checked_rem(self.low_runs + 1), Some(rest) if rest == self.low_runs)
    }

    /// The layer of the file that runs as layer `index`.
    #[cfg(feature = "llama-like")]
    pub(crate) const fn own(&self, index: usize) -> Option<usize> {
        let (Some(run), Some(rest)) = (index.checked_div(self.run()), index.checked_rem(self.run())) else {
            return None;
        };
        Some(if self.is_high(run) { self.run() + rest } else { rest })
    }
}

/// Shared experts, one for each group of neighbouring experts. When an expert is chosen, the shared expert of its group
/// also processes the token ([Grove MoE](https://arxiv.org/abs/2508.07785)).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupExperts {
    /// Number of experts in a group.
    pub size: usize,
    /// Width of a shared expert.
    pub width: usize,
    /// Factor on the output of the shared experts.
    pub scale: f32,
}

/// For models whose values are shorter than their keys, or whose values have a factor: the length of values, and the
/// factor.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Values {
    /// Elements of a value: at most as many as of a key.
    pub width: usize,
    /// Factor on values.
    pub scale: f32,
}

/// The gate of a feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gate {
    /// No gate: `down(f(up))`.
    None,
    /// `down(f(gate) * up)`.
    Separate,
    /// Like `Separate`, but `gate` and `up` are one matrix called `ffn_up`, which has the rows of `gate` in its first
    /// half and the rows of `up` in its second half.
    Fused,
}

/// Function from router scores to weights of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Router {
    /// Softmax over all experts.
    Softmax,
    /// The function in `scores`. A learned bias (`exp_probs_b`) affects the choice but not the weights.
    Scored {
        /// The function that is applied to the router's scores.
        scores: Scores,
        /// Factor on the weights.
        scale: f32,
        /// Number of groups of neighbouring experts.
        groups: usize,
        /// Number of groups that a token may choose from. With [`Scores::Softmax`] (DeepSeek 2), a group is ranked by
        /// its best score, otherwise by the sum of its two best scores.
        used_groups: usize,
    },
}

/// The function that computes the weights of experts from the scores that the router gives to all experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scores {
    /// Softmax.
    Softmax,
    /// Sigmoid of each score.
    Sigmoid,
    /// Experts are chosen one after the other. For each choice, the score is a softmax over those remaining scores that
    /// are near the best of them (SparseMixer-2, [Phi-3.5-MoE](https://arxiv.org/abs/2404.14219)).
    Sparse,
}

/// An expert that processes every token, besides the experts that the router chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedExperts {
    /// Width of the expert's feed-forward.
    pub width: usize,
    /// True if the expert has a gate: its output is multiplied by the sigmoid of the dot product of the input and a
    /// learned vector.
    pub gated: bool,
    /// True if the shared expert's gate and up are one matrix, with the rows of gate in the first half and the rows of
    /// up in the second.
    pub fused: bool,
    /// True if the outputs of the shared expert and of the chosen experts are averaged. Otherwise they are added.
    pub averaged: bool,
}

/// Experts of a feed-forward. Each token is processed by the experts with the highest router scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Experts {
    /// Number of experts.
    pub count: usize,
    /// Number of experts per token.
    pub used: usize,
    /// Width of each expert, if the file has a key for it; otherwise experts have the layer's width.
    pub(crate) width: Option<usize>,
    /// True if the weights of the experts that the router chooses for a token are divided by their sum.
    pub(crate) normed: bool,
    /// True if the router and all matrices of the experts have biases.
    pub(crate) biases: bool,
}

/// Requirement of an architecture for a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// The tensor must be in the file.
    Required,
    /// The tensor is used if it is in the file.
    Optional,
    /// The tensor may be in the file but is not used.
    Unused,
    /// The tensor must not be in the file.
    Absent,
}

impl SharedExperts {
    /// Creates shared experts that have no gate on the output, no fused matrices and no averaging.
    pub(super) const fn new(width: usize) -> Self {
        Self { width, gated: false, fused: false, averaged: false }
    }
}

impl Stack {
    /// In an encoder-decoder (`Target`), makes the encoder read sounds of the given sizes. Other stacks do not change.
    pub(super) const fn hears(self, sizes: SoundSizes) -> Self {
        match self {
            #[cfg(feature = "sound")]
            Self::Target { encoder, start, source_words } => {
                Self::Target { encoder: EncoderSizes { sound: Some(sizes), ..encoder }, start, source_words }
            }
            other => {
                let _ = sizes;
                other
            }
        }
    }
}
