//! Architectures as data: the parts and sizes of a model.

use super::altup::AltUp;
use super::families;
use super::front::Front;
use super::keys::Keys;
use super::latent::Latent;
use super::layers::{HeadSpec, Layer, Limits, Mixer, Pattern, PerLayer, Xielu};
use super::recurrent::{Recurrent, RecurrentKind};
use super::roles::Role;
use super::rope::{Rope, Scaling};
use crate::kernel::Activation;
use crate::{Error, Gguf, TokenId, built, tri};

/// The most layers a model may have, as in llama.cpp (`LLAMA_MAX_LAYERS`).
pub const MAX_LAYERS: usize = 512;

/// A stack of blocks: token embedding, `layers` blocks of attention and feed-forward, final norm, head.
///
/// An encoder-decoder has two stacks: this one is the decoder, and [`encoder`](Spec::encoder) returns the other.
///
/// Sizes count elements. Sizes that differ between layers stay in the file's arrays; [`Spec::layer`] reads them for one
/// layer.
///
/// # Examples
///
/// Read a file's architecture without checking its tensors:
///
/// ```
/// use arenite::Gguf;
/// use arenite::model::{Norm, Placement, Positions, Spec, Stack};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let spec = Spec::read(&gguf)?;
/// assert_eq!(spec.stack(), Stack::Alone); // a decoder; an encoder-decoder is `Stack::Target`
/// assert_eq!((spec.positions(), spec.norm()), (Positions::Rotary, Norm::Rms));
/// assert!(matches!(spec.placement(), Placement { pre_norm: true, post_norm: false, .. }));
/// assert!(spec.experts().is_none());
/// println!("{} query heads in the first of {} layers", spec.heads.get(0), spec.layers);
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Spec<'a> {
    // Sizes.
    /// Tokens in the vocabulary: the rows of `token_embd.weight`.
    pub vocab: usize,
    /// Width of the hidden state.
    pub dim: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Number of query heads.
    pub heads: PerLayer<'a>,
    /// Number of key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: PerLayer<'a>,
    /// Heads of global layers. Most models have only these.
    pub global: HeadSpec,
    /// Heads of local layers: those with a sliding window in Gemma, those without rope in SmolLM 3.
    pub local: HeadSpec,
    /// Width of the feed-forward layer, or of each expert.
    pub ffn: PerLayer<'a>,
    /// Context length that the model was trained with.
    pub context: usize,
    // Scalars and small differences.
    /// Epsilon of norms on outputs, if it differs.
    pub post_norm_eps: Option<f32>,
    /// True if the last block is followed by a norm.
    pub final_norm: bool,
    /// Epsilon of every norm, added under the root.
    pub norm_eps: f32,
    /// Requirement for biases of q, k and v.
    pub qkv_bias: Need,
    /// Requirement for biases of the attention output and the feed-forward.
    pub linear_bias: Need,
    /// Factor on attention scores; `None`: `1 / sqrt(head.dim)`.
    pub attention_scale: Option<f32>,
    /// Factor on token embeddings.
    pub embedding_scale: f32,
    /// Factor on the outputs of attention and feed-forward before they are added to the hidden state.
    pub residual_scale: f32,
    /// Factor on logits.
    pub logit_scale: f32,
    /// True if layers with attention also have the recurrent mixer.
    pub side_by_side: bool,
    /// True if layer norms have a bias.
    pub norm_bias: bool,
    /// Last layers of the file, for multi-token prediction; they are not read.
    pub unused_layers: usize,
    /// Requirement for a bias of the head.
    pub output_bias: Need,
    /// Pooling of a text's states into one vector.
    pub pooling: Pooling,
    // Parts that a build may leave out. Functions with the same names read them (`parts.rs`).
    pub(super) stack: Stack,
    pub(super) local_layers: Pattern<'a>,
    pub(super) positions: Positions,
    pub(super) token_types: usize,
    pub(super) embedding_norm: Need,
    pub(super) norm: Norm,
    pub(super) placement: Placement,
    pub(super) fused_qkv: bool,
    pub(super) separate_experts: bool,
    pub(super) fused_experts: bool,
    pub(super) own_biases: bool,
    /// True if products of matrices have factors.
    pub(super) scaled: bool,
    /// Upper bound on the elements of vectors in F16 or BF16.
    pub(crate) half_vectors: usize,
    pub(super) qk_norm: QkNorm,
    pub(super) qk_norm_after_rope: bool,
    pub(super) temperature: Option<Temperature>,
    pub(super) attention_sinks: Need,
    /// Pairs of roles: files of this family store the second under the name of the first.
    pub(super) renamed: &'static [(Role, Role)],
    pub(super) recurrent: Option<Recurrent>,
    pub(super) recurrent_layers: Pattern<'a>,
    pub(super) special: Special<'a>,
    pub(super) gated_query: bool,
    pub(super) v_norm: bool,
    pub(super) v_from_k: bool,
    pub(super) kv_shared: usize,
    pub(super) attention_cap: Option<f32>,
    pub(super) logit_cap: Option<f32>,
    pub(super) activation: Activation,
    pub(super) gate: Gate,
    pub(super) experts: Option<Experts>,
    pub(super) router: Router,
    pub(super) shared_experts: Option<SharedExperts>,
    pub(super) expert_layers: Pattern<'a>,
    pub(super) one_part: bool,
    pub(super) residual: Residual,
    pub(super) qkv_clamp: Option<f32>,
    pub(super) bare_norm: bool,
    pub(super) sub_norms: bool,
    pub(super) heads_gated: Option<HeadGate>,
    pub(super) values: Option<Values>,
    pub(super) rotated_first: usize,
    pub(super) loops: Option<Loops>,
    pub(super) experts_beside: bool,
    pub(super) early_router: bool,
    pub(super) weighted_inputs: bool,
    pub(super) chunk: Option<usize>,
    pub(super) per_layer_input: usize,
    pub(super) layer_scale: Need,
    pub(super) pooled_head: Option<PooledHead>,
}

/// Special parts; a model has at most one of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Special<'a> {
    None,
    Latent(Latent),
    AltUp(AltUp<'a>),
    Xielu(Xielu<'a>),
    Limits(Limits<'a>),
    LimitedLatent(Latent, Limits<'a>),
    GroupExperts(GroupExperts),
    ExpertsOfInput,
    EmbeddingSkip,
}

/// Kind of position encoding of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Positions {
    /// Rotation of queries and keys, in layers where [`HeadSpec::rope`] is set.
    Rotary,
    /// A learned embedding per position, added to the token's.
    Learned,
    /// Sines and cosines of the position times `10000^(-2 i / dim)`, added to the token's embedding. Interleaved, or
    /// with `halves` the sines first.
    Sinusoidal {
        /// The layout.
        halves: bool,
    },
    /// A bias on attention scores by the distance of the two positions ([T5](https://arxiv.org/abs/1910.10683)):
    /// learned for each head and each of `buckets` ranges of distances.
    Relative {
        /// Number of ranges.
        buckets: usize,
    },
    /// A penalty on attention scores, proportional to the distance of the two positions with a slope per head
    /// ([ALiBi](https://arxiv.org/abs/2108.12409)).
    Alibi {
        /// Exponent of the steepest head: head `i` of `n` subtracts `2^(-bias * (i + 1) / n)` for each position.
        bias: f32,
    },
}

/// Kind of a stack of blocks; it determines the prefix of its tensors' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stack {
    /// A decoder without an encoder: every token attends to itself and to earlier tokens.
    Alone,
    /// An encoder without a decoder: every token attends to all tokens, and the hidden states are the result.
    Encoder,
    /// The encoder of an encoder-decoder; prefix `enc.`
    Source {
        /// True if it has its own token embeddings.
        own_words: bool,
        /// Front end, if it reads sounds instead of tokens.
        #[cfg(feature = "sound")]
        front: Option<Front>,
    },
    /// The decoder of an encoder-decoder; prefix `dec.` Its blocks also attend to the encoder's states.
    Target {
        /// Sizes of the encoder.
        encoder: EncoderSizes,
        /// First token of its input.
        start: TokenId,
        /// Size of the encoder's vocabulary, if the encoder has its own embeddings.
        source_words: Option<usize>,
    },
}

/// Sizes of an encoder, which may differ from its decoder's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncoderSizes {
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Front end and longest input, if it reads sounds instead of tokens.
    #[cfg(feature = "sound")]
    pub sound: Option<SoundSizes>,
}

/// Sizes of an encoder that reads sounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SoundSizes {
    /// Front end.
    pub front: Front,
    /// Maximum number of positions: learned embeddings, or the length that the model was designed for.
    pub positions: usize,
    /// Gate and activation of the feed-forward.
    pub feed_forward: (Gate, Activation),
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
}

/// Activation between the two linear layers after pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PooledActivation {
    /// None.
    None,
    /// Hyperbolic tangent (BERT).
    Tanh,
    /// GELU (ModernBERT).
    Gelu,
}

/// Two linear layers after pooling, `second(norm(f(first)))`: for embeddings `dense_2` and `dense_3`, for reranking
/// `cls` and `cls.output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PooledHead {
    /// Width between the two layers; 0 if there is only the second.
    pub inner: usize,
    /// Width of the result.
    pub out: usize,
    /// Activation between the two layers.
    pub activation: PooledActivation,
}

/// Input of a block's feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Residual {
    /// The hidden state with attention's output added.
    Serial,
    /// The hidden state that attention reads; both outputs are then added to it.
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
    /// `(x - mean) / (deviation + eps) * weight + bias`, with the deviation computed over n - 1.
    Unbiased,
}

/// Positions of the norms in a block; several may apply, to attention and feed-forward alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// On the input (Llama and most others).
    pub pre_norm: bool,
    /// On the output, before it is added to the hidden state (`post_attention_norm`, `post_ffw_norm`: Gemma 2 and
    /// later, OLMo 2).
    pub post_norm: bool,
    /// On the hidden state after the addition (the original transformer, BERT, Marian).
    pub residual_norm: bool,
}

/// Norms of q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QkNorm {
    /// No norm.
    None,
    /// Each head, with one weight shared by all heads.
    Head,
    /// Each head with its own weight, if the file has it.
    EachHead,
    /// All heads of q together, and all heads of k together.
    Whole,
    /// Each head without a weight, in layers with rotary positions.
    Unweighted,
    /// Each head without a weight; each head of q is then multiplied by a factor.
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
    /// True if layers with rotary positions do without it.
    pub only_unrotated: bool,
}

/// Gates of the heads' output: a function of a linear layer of attention's input (`attn_gate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeadGate {
    /// True if all elements of a head have the same gate.
    pub per_head: bool,
    /// True if the function is softplus, else it is the sigmoid.
    pub softplus: bool,
}

/// Layers that run several times. Each run has its own keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loops {
    /// Number of layers in the file.
    pub layers: usize,
    /// True if the final norm is also applied between two runs.
    pub normed: bool,
    /// 0 if all layers run one after the other. Otherwise the layers are two stacks of equal size: the first one runs this
    /// many times, then the second one runs once, and so on ([HRM](https://arxiv.org/abs/2506.21734)).
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

/// Experts that groups of neighbouring experts share: those of the groups of chosen experts also process a token
/// ([Grove MoE](https://arxiv.org/abs/2508.07785)).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupExperts {
    /// Number of experts in a group.
    pub size: usize,
    /// Width of a shared expert.
    pub width: usize,
    /// Factor on their output.
    pub scale: f32,
}

/// Values of heads whose keys are longer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Values {
    /// Elements of a value, fewer than of a key.
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
    /// Like `Separate`, with `gate` and `up` as the two halves of the rows of one matrix, `ffn_up`.
    Fused,
}

/// Function from router scores to weights of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Router {
    /// Softmax over all experts.
    Softmax,
    /// [`Scores`] of the experts. A learned bias (`exp_probs_b`) affects the choice but not the weights.
    Scored {
        /// The function that is applied to the router's scores.
        scores: Scores,
        /// Factor on the weights.
        scale: f32,
        /// Number of groups of neighbouring experts.
        groups: usize,
        /// Number of groups that a token may choose from: those with the best expert for [`Scores::Softmax`] (DeepSeek
        /// 2), else those with the largest sum of their two best scores.
        used_groups: usize,
    },
}

/// Function that makes weights of the scores of all experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scores {
    /// Softmax.
    Softmax,
    /// Sigmoid of each.
    Sigmoid,
    /// For each choice the softmax over those that are near the best of the rest (SparseMixer-2,
    /// [Phi-3.5-MoE](https://arxiv.org/abs/2404.14219)).
    Sparse,
}

/// An expert that processes every token, besides the experts that the router chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedExperts {
    /// Width of its feed-forward.
    pub width: usize,
    /// True if its output is multiplied by the sigmoid of a learned dot product with the input.
    pub gated: bool,
    /// True if gate and up are the two halves of the rows of one matrix.
    pub fused: bool,
    /// True if the layer's output is the mean of this output and that of the chosen experts.
    pub averaged: bool,
}

/// Experts of a feed-forward: each token is processed by those with the highest router scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Experts {
    /// Number of experts.
    pub count: usize,
    /// Number of experts per token.
    pub used: usize,
    /// Width of each expert, if the file stores it separately from that of layers without experts.
    pub width: Option<usize>,
    /// True if the weights of the chosen experts are divided by their sum.
    pub normed: bool,
    /// True if the router and all matrices of the experts have biases.
    pub biases: bool,
}

/// Requirement of an architecture for a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// It must be in the file.
    Required,
    /// It is used if it is in the file.
    Optional,
    /// It may be in the file but is not used.
    Unused,
    /// It must not be in the file.
    Absent,
}

impl SharedExperts {
    /// Shared experts without a gate on the output, fused matrices or averaging.
    pub(super) const fn new(width: usize) -> Self {
        Self { width, gated: false, fused: false, averaged: false }
    }
}

impl Stack {
    /// The same stack with an encoder of sounds.
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

impl<'a> Spec<'a> {
    /// Reads the architecture from a file's metadata.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for an architecture, or a part of it, that is unknown or not in this build;
    /// [`Error::MissingKey`], [`Error::KeyType`] and [`Error::KeyValue`] for invalid metadata; [`Error::UnexpectedKey`]
    /// and [`Error::UnsupportedKey`] for a key under the architecture's prefix that its family does not use.
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub const fn read(gguf: &Gguf<'a>) -> Result<Self, Error> {
        let mut keys = tri!(Keys::new(gguf));
        // Changed in place: a copy would take half a kilobyte of stack.
        let mut result = families::read(&mut keys);
        if let Ok(spec) = &mut result {
            keys.settle(spec);
            let named = if built::LENIENT { keys.activation(spec) } else { Ok(()) };
            let checked = match named {
                Ok(()) => spec.check_all(&keys),
                error => error,
            };
            if let Err(error) = checked {
                result = Err(error);
            }
        }
        result
    }

    #[inline(never)] // keeps its temporaries off the stack while the family reads its keys
    const fn check_all(&self, keys: &Keys<'_, 'a>) -> Result<(), Error> {
        tri!(families::check(self, keys.architecture));
        tri!(keys.all_known());
        tri!(self.check(keys));
        self.check_encoder(keys)
    }

    #[inline(never)] // keeps another spec off the caller's stack
    const fn check_encoder(&self, keys: &Keys<'_, 'a>) -> Result<(), Error> {
        match self.encoder() {
            Some(encoder) => encoder.check(keys),
            None => Ok(()),
        }
    }

    /// The encoder of an encoder-decoder: the decoder's spec with the encoder's sizes, without the decoder's own parts.
    pub const fn encoder(&self) -> Option<Self> {
        let Stack::Target { encoder, source_words, .. } = self.stack() else { return None };
        let EncoderSizes { layers, heads, kv_heads, head_dim, ffn, .. } = encoder;
        let (vocab, own_words) = match source_words {
            Some(words) => (words, true),
            None => (self.vocab, false),
        };
        let stack = Stack::Source {
            own_words,
            #[cfg(feature = "sound")]
            front: None,
        };
        let spec = Self {
            stack,
            vocab,
            layers,
            heads: PerLayer::All(heads),
            kv_heads: PerLayer::All(kv_heads),
            global: HeadSpec { dim: head_dim, ..self.global },
            ffn: PerLayer::All(ffn),
            logit_scale: 1.0,
            output_bias: Need::Absent,
            ..*self
        };
        #[cfg(feature = "sound")]
        if let Some(SoundSizes { front, positions, feed_forward: (gate, activation) }) = encoder.sound {
            let stack = Stack::Source { own_words: true, front: Some(front) };
            return Some(Self { stack, context: positions, gate, activation, ..spec });
        }
        Some(spec)
    }

    /// Front end and longest input of an encoder that reads sounds, of an encoder-decoder.
    pub const fn sound(&self) -> Option<SoundSizes> {
        match self.stack() {
            #[cfg(feature = "sound")]
            Stack::Target { encoder, .. } => encoder.sound,
            _ => None,
        }
    }

    /// Front end of an encoder that reads sounds.
    pub const fn front(&self) -> Option<Front> {
        match self.stack() {
            #[cfg(feature = "sound")]
            Stack::Source { front, .. } => front,
            _ => None,
        }
    }

    /// True if the stack computes logits.
    pub const fn has_head(&self) -> bool {
        matches!(self.stack(), Stack::Alone | Stack::Target { .. })
    }

    /// True if tokens attend only to themselves and to earlier tokens.
    pub const fn is_causal(&self) -> bool {
        self.has_head()
    }

    /// True if blocks also attend to an encoder's states.
    pub const fn has_cross_attention(&self) -> bool {
        matches!(self.stack(), Stack::Target { .. })
    }

    /// Parameters of layer `index`, counted from 0.
    pub const fn layer(&self, index: usize) -> Layer {
        let is_local = self.local_layers().has(index);
        let has_experts = self.experts().is_some() && self.expert_layers().has(index);
        let ffn = match (self.experts(), self.ffn.get(index)) {
            (_, 0) => 0,
            (Some(Experts { width: Some(width), .. }), _) if has_experts && !self.has_dense_beside() => width,
            (_, ffn) => ffn,
        };
        let expert_width = match self.experts() {
            Some(Experts { width: Some(width), .. }) if has_experts && ffn > 0 => width,
            Some(_) if has_experts => ffn,
            _ => 0,
        };
        let mixer = match self.recurrent() {
            _ if self.one_part() && ffn > 0 => Mixer::None,
            None if built::NO_MIXER && self.heads.get(index) == 0 => Mixer::None,
            Some(_) if self.recurrent_layers().has(index) => Mixer::Recurrent,
            Some(_) if self.side_by_side => Mixer::Both,
            _ => Mixer::Attention,
        };
        let mut head = if is_local { self.local } else { self.global };
        if index < self.rotated_first() {
            head.rope = self.local.rope;
        }
        Layer {
            index,
            is_local,
            heads: self.heads.get(index),
            kv_heads: self.kv_heads.get(index),
            head,
            ffn,
            expert_width,
            has_experts: has_experts && ffn > 0,
            mixer,
            owns_kv: matches!(mixer, Mixer::Attention | Mixer::Both)
                && index.saturating_add(self.kv_shared()) < self.layers,
        }
    }

    /// Longest context that counts as short. Models with LongRoPE use other rotary frequencies in longer contexts; for
    /// all others this is the trained context.
    pub const fn short_context(&self) -> usize {
        match self.rope(false) {
            Some(Rope { scaling: Scaling::Long { original, .. }, .. }) if original < self.context => original,
            _ => self.context,
        }
    }

    /// Rotary positions of local or of global layers; `None` if the model has no such layers or they have no rope.
    pub const fn rope(&self, is_local: bool) -> Option<Rope> {
        match (is_local, self.local_layers()) {
            (false, _) => self.global.rope,
            (true, Pattern::Never) => None,
            (true, _) => self.local.rope,
        }
    }

    /// Length of the vector that [`Engine::embed`](crate::Engine::embed) computes for a text.
    pub const fn embedding_len(&self) -> usize {
        match self.pooled_head() {
            Some(head) => head.out,
            None => self.dim,
        }
    }

    /// True if the model is a reranker: its result for a text is scores.
    pub const fn ranks(&self) -> bool {
        match self.pooled_head() {
            Some(head) => head.inner == 0 || !matches!(head.activation, PooledActivation::None),
            None => false,
        }
    }

    /// Elements of the buffer that [`Engine::embed`](crate::Engine::embed) needs.
    pub const fn embedding_buffer(&self) -> usize {
        max(self.dim, self.embedding_len())
    }

    /// Elements of a token's queries, keys and values, and of queries with their gates.
    pub(crate) const fn attention_row(&self, layer: &Layer) -> usize {
        let gates = match (self.gated_query(), self.heads_gated()) {
            (true, _) => 2 * layer.q_dim(),
            (_, Some(HeadGate { per_head: true, .. })) => layer.heads,
            (_, Some(_)) => layer.q_dim(),
            _ => 0,
        };
        layer.qkv_dim() + gates
    }

    /// Number of layers that have tensors in the file.
    pub(crate) const fn own_layers(&self) -> usize {
        match self.loops() {
            Some(loops) => loops.layers,
            None => self.layers,
        }
    }

    /// True if two stacks of layers run in turns.
    pub(crate) const fn takes_turns(&self) -> bool {
        matches!(self.loops(), Some(Loops { low_runs: 1.., .. }))
    }

    /// Index of the rotary positions of a layer: 0 for those of global layers.
    pub(crate) const fn rotation(&self, layer: &Layer) -> usize {
        if layer.index < self.rotated_first() { 1 } else { layer.pool() }
    }

    /// Elements of a head's value, before it is stored.
    pub(crate) const fn value_width(&self, layer: &Layer) -> usize {
        match self.values() {
            Some(values) => values.width,
            None => layer.head.dim,
        }
    }

    /// True if attention and feed-forward read the same hidden state.
    pub(crate) const fn is_parallel(&self) -> bool {
        matches!(self.residual(), Residual::Parallel { .. })
    }

    /// True if the layer's input is kept for the feed-forward.
    pub(crate) const fn keeps_input(&self) -> bool {
        self.is_parallel() || self.early_router() || self.experts_of_input()
    }

    /// True if layers with experts have a dense feed-forward as well.
    pub(crate) const fn has_dense_beside(&self) -> bool {
        self.experts_beside() || self.experts_of_input()
    }

    /// Elements of a token that are kept behind the feed-forward's intermediate values: the layer's input, or the output of
    /// the dense feed-forward beside experts.
    pub(crate) const fn held(&self, layer: &Layer) -> usize {
        if self.keeps_input() || self.experts_beside() && layer.has_experts { self.dim } else { 0 }
    }

    /// Elements of a token's intermediate values in a layer's feed-forward.
    const fn ffn_inner(&self, layer: &Layer) -> usize {
        let (width, expert) = match self.gate() {
            Gate::None => (layer.ffn, layer.expert_width),
            Gate::Separate | Gate::Fused => (2 * layer.ffn, 2 * layer.expert_width),
        };
        match self.experts() {
            Some(experts) if layer.has_experts => {
                let shared = match self.shared_experts() {
                    Some(shared) => 2 * shared.width,
                    None => 0,
                };
                let (groups, group) = match self.group_experts() {
                    Some(group) => (experts.count / max(group.size, 1), 2 * group.width),
                    None => (0, 0),
                };
                max(width, experts.count + groups + 2 * self.dim + max(max(expert, group), shared))
            }
            _ => width,
        }
    }

    /// Largest number of elements of a token's intermediate values in any block.
    pub(crate) const fn inner(&self) -> usize {
        let mut most = self.layers * self.per_layer_input();
        let mut index = 0;
        while index < self.layers {
            let layer = self.layer(index);
            // With two mixers side by side, the layer's input is kept here for the second.
            let held = if matches!(layer.mixer, Mixer::Both) || self.keeps_input() { self.dim } else { 0 };
            let attention = match self.latent() {
                Some(latent) => {
                    let [qkv, out, made, low, both] = latent.pieces(&layer);
                    qkv + out + made + low + both
                }
                None => self.attention_row(&layer) + layer.q_dim(),
            };
            most = max(most, attention + held);
            if let (true, Some(mixer)) = (layer.has_state(), self.recurrent()) {
                most = max(most, mixer.row_len() + mixer.inner() + held);
            }
            most = max(most, self.ffn_inner(&layer) + self.held(&layer));
            if let Some(Recurrent { kind: RecurrentKind::Rwkv6, .. }) = self.recurrent() {
                most = max(most, 2 * self.dim + layer.ffn); // channel mixing
            }
            index += 1;
        }
        if let Some(altup) = self.altup() {
            most = max(most, altup.streams * (altup.streams + 1) + altup.rank);
        }
        if let Some(head) = self.pooled_head() {
            most = max(most, head.inner + head.out);
        }
        most
    }

    /// Elements per token that layers hand on beside the residual stream: RWKV-7's values of the first layer; the other
    /// streams of alternating updates, and what a layer keeps while it updates one; the token's embedding; the state of
    /// the other stack of layers.
    pub(crate) const fn beside(&self) -> usize {
        match (self.altup(), self.recurrent()) {
            (Some(altup), _) => (altup.streams + 1) * self.dim,
            _ if self.embedding_skip() || self.takes_turns() => self.dim,
            (_, Some(Recurrent { kind: RecurrentKind::Rwkv7, .. })) => self.dim,
            _ => 0,
        }
    }

    /// Largest number of inputs of any linear layer.
    pub(crate) const fn widest_input(&self) -> usize {
        let mut widest = max(self.dim, self.per_layer_input());
        let mut index = 0;
        while index < self.layers {
            let layer = self.layer(index);
            widest = max(widest, max(layer.q_dim(), max(layer.ffn, layer.expert_width)));
            if let Some(mixer) = self.recurrent() {
                widest = max(widest, max(mixer.inner(), mixer.widest_rank()));
            }
            if let Some(latent) = self.latent() {
                widest = max(widest, max(latent.rank, max(latent.q_rank, latent.nope)));
                widest = max(widest, layer.heads * latent.value);
            }
            if let Some(altup) = self.altup() {
                widest = max(widest, max(altup.rank, altup.streams));
            }
            index += 1;
        }
        if let Some(head) = self.pooled_head() {
            widest = max(widest, head.inner);
        }
        if let Some(shared) = self.shared_experts() {
            widest = max(widest, shared.width);
        }
        if let Some(group) = self.group_experts() {
            widest = max(widest, group.width);
        }
        if let Some(front) = self.front() {
            widest = max(widest, front.widest_input(self.dim));
        }
        widest
    }

    /// Checks that the sizes of each layer agree.
    const fn check(&self, keys: &Keys<'_, '_>) -> Result<(), Error> {
        if let Some(Recurrent { kind: RecurrentKind::ShortConvolution, width, .. }) = self.recurrent()
            && width != self.dim
        {
            return Err(keys.wrong("embedding_length", "is not the width of the convolution"));
        }
        let mut index = 0;
        while index < self.layers {
            let layer = self.layer(index);
            if !layer.has_attention() {
                index += 1;
                continue;
            }
            if layer.heads == 0 {
                return Err(keys.wrong("attention.head_count", "is 0, which no model can have"));
            }
            if layer.kv_heads == 0 {
                return Err(keys.wrong("attention.head_count_kv", "is 0 in a layer with attention"));
            }
            if !layer.heads.is_multiple_of(layer.kv_heads) {
                return Err(keys.wrong("attention.head_count_kv", "does not divide attention.head_count"));
            }
            if layer.heads as u64 * layer.head.dim as u64 > Keys::MAX_WIDTH as u64 {
                return Err(keys.wrong("attention.head_count", "is too large"));
            }
            if !layer.owns_kv {
                match self.owner(layer.is_local) {
                    None => {
                        return Err(keys.wrong("attention.shared_kv_layers", "leaves a layer without keys to share"));
                    }
                    Some(owner) if self.layer(owner).kv_heads != layer.kv_heads => {
                        return Err(
                            keys.wrong("attention.head_count_kv", "differs between layers that share their keys")
                        );
                    }
                    Some(_) => {}
                }
            }
            index += 1;
        }
        Ok(())
    }

    /// The layer whose keys and values are read by those local (or global) layers that compute none.
    pub const fn owner(&self, is_local: bool) -> Option<usize> {
        let mut index = self.layers.saturating_sub(self.kv_shared());
        while index > 0 {
            index -= 1;
            if self.layer(index).is_local == is_local {
                return Some(index);
            }
        }
        None
    }
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}
