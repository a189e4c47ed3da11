//! An architecture as data: what a block is made of, with which sizes.

use super::keys::Keys;
use super::layers::{Heads, Layer, Pattern, PerLayer};
use super::roles::Role;
use super::rope::{Rope, Scaling};
use super::{
    bert, exaone4, gemma, gemma4, gpt_oss, gpt2, granite, hunyuan, llama, mistral3, olmo2, phi3, qwen, seq2seq,
    smollm3, stablelm, t5,
};
use crate::kernel::Activation;
use crate::{Error, Gguf, Name, TokenId, tri};

/// The most layers a model may have, as in llama.cpp (`LLAMA_MAX_LAYERS`).
pub const MAX_LAYERS: usize = 512;

/// A stack of blocks: token embedding, `layers` blocks of attention and feed-forward, final norm, head.
///
/// An encoder-decoder is two of them: the decoder, and its [`encoder`](Spec::encoder).
///
/// Sizes are numbers of elements. What differs from layer to layer stays in the file's arrays;
/// [`Spec::layer`] has the answers for one layer.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// What the stack is for.
    pub stack: Stack,
    /// Words in the vocabulary: the rows of `token_embd.weight`.
    pub vocab: usize,
    /// Width of the hidden state.
    pub dim: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: PerLayer<'a>,
    /// What heads are like. Most models have the first kind only; the second is the local layers
    /// of the Gemmas (the first their global ones) and the layers without rope of SmolLM 3.
    pub kinds: [Heads; 2],
    /// Which layers have heads of the second kind.
    pub second: Pattern<'a>,
    /// Width of the feed-forward layer, or of each expert.
    pub ffn: PerLayer<'a>,
    /// Positions that the model was trained for.
    pub context: usize,
    /// How positions enter.
    pub positions: Positions,
    /// Kinds of text that a token may belong to, each with an embedding of its own, of which the first is
    /// added to every token's; 0 for none.
    pub token_types: usize,
    /// Whether a norm stands behind the embedding.
    pub embedding_norm: bool,
    /// Whether a norm stands behind the last block.
    pub final_norm: bool,
    /// The norm around attention and feed-forward and before the head.
    pub norm: Norm,
    /// Added under the root in every norm.
    pub norm_eps: f32,
    /// Where in a block the norms stand.
    pub placement: Placement,
    /// Whether q, k and v are one matrix, `attn_qkv`.
    pub fused_qkv: bool,
    /// Biases of q, k and v.
    pub qkv_bias: Need,
    /// Biases of the attention output and the feed-forward.
    pub linear_bias: Need,
    /// Norms of q and k, before rope.
    pub qk_norm: QkNorm,
    /// Whether the norms of q and k come after rope.
    pub qk_norm_after_rope: bool,
    /// A factor on queries that grows with the position.
    pub temperature: Option<Temperature>,
    /// Whether every head has a learned score in the softmax that has no value, `attn_sinks`.
    pub attention_sinks: bool,
    /// Roles whose names the family's files use for other roles.
    pub(crate) renamed: &'static [(Role, Role)],
    /// Whether each head of v is normed, without a weight.
    pub v_norm: bool,
    /// Whether a layer may lack the matrix of v: its values are then what its k is before norm and rope.
    pub v_from_k: bool,
    /// So many of the last layers have no keys and values of their own: they read those of the last
    /// layer before them that has heads of the same kind.
    pub kv_shared: usize,
    /// Factor on attention scores; `None`: one by the root of the head's width.
    pub attention_scale: Option<f32>,
    /// Attention scores become `cap * tanh(score / cap)`.
    pub attention_cap: Option<f32>,
    /// Factor on token embeddings.
    pub embedding_scale: f32,
    /// Factor on what attention and feed-forward add.
    pub residual_scale: f32,
    /// Factor on logits.
    pub logit_scale: f32,
    /// Bias of the head.
    pub output_bias: Need,
    /// Logits become `cap * tanh(logit / cap)`.
    pub logit_cap: Option<f32>,
    /// The feed-forward's activation function.
    pub activation: Activation,
    /// What the feed-forward's gate is.
    pub gate: Gate,
    /// The feed-forward is several, and a router chooses among them.
    pub experts: Option<Experts>,
    /// Elements that every layer is given of each token besides the hidden state; 0 for none.
    pub per_layer_input: usize,
    /// Factor on the hidden state after a layer, `layer_output_scale`.
    pub layer_scale: Need,
}

/// How positions enter a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// By turning queries and keys, in the kinds of [`Heads`] that have a rope.
    Rotary,
    /// As a learned embedding for each, which is added to the token's.
    Learned,
    /// As sines and cosines of the position times `10000^(-2 i / dim)`, which are added to the token's
    /// embedding: in turns, or (`halves`) the sines first.
    Sinusoidal {
        /// The layout.
        halves: bool,
    },
    /// As numbers added to attention scores, by the distance of two positions
    /// ([T5](https://arxiv.org/abs/1910.10683)): learned for every head and each of so many ranges of
    /// distances.
    Relative {
        /// How many.
        buckets: usize,
    },
}

/// What a stack of blocks is for, and what its tensors' names begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// A model by itself, in which every token sees those before it.
    Alone,
    /// An encoder by itself: every token sees all, and its states are the result.
    Encoder {
        /// What becomes of the states of a text.
        pooling: Pooling,
    },
    /// The encoder of an encoder-decoder: `enc.`
    Source {
        /// Whether it has token embeddings of its own.
        own_words: bool,
    },
    /// The decoder of an encoder-decoder: `dec.` Its blocks attend to the encoder's states besides.
    Target {
        /// Layers of the encoder.
        encoder_layers: usize,
        /// The token that it begins with.
        start: TokenId,
        /// Words of the encoder's vocabulary, if it has embeddings of its own.
        source_words: Option<usize>,
    },
}

/// How the states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first one.
    First,
    /// The last one.
    Last,
}

/// Kind of norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// `x / sqrt(mean(x^2) + eps) * weight`.
    Rms,
    /// `(x - mean) / sqrt(variance + eps) * weight + bias`.
    Layer,
    /// `(x - mean) / (deviation + eps) * weight + bias`, the deviation being that of n - 1.
    Unbiased,
}

/// Where the norms of a block stand. Attention and feed-forward each have those that are true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// On what goes in.
    pub before: bool,
    /// On what comes out, before it is added to the hidden state.
    pub behind: bool,
    /// On the hidden state after that.
    pub after: bool,
}

/// Norms of q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// Every head by itself, with one weight for all heads.
    Head,
    /// Every head by itself and with a weight of its own, in files that have it.
    EachHead,
    /// All heads of q together, and all of k.
    Whole,
}

/// Queries at position `p` are multiplied by `1 + scale * ln(1 + floor(p / length))`
/// ([Llama 4](https://ai.meta.com/blog/llama-4-multimodal-intelligence/)'s attention temperature).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// Factor on the logarithm.
    pub scale: f32,
    /// Positions that share a factor.
    pub length: usize,
}

/// The gate of a feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// No gate: `down(f(up))`.
    None,
    /// `down(f(gate) * up)`.
    Separate,
    /// The same, with `gate` and `up` as the two halves of the rows of one matrix, `ffn_up`.
    Fused,
}

/// A feed-forward of experts: each token goes to those that a router scores highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// How many a token goes to.
    pub used: usize,
    /// Whether their weights, softmax over all experts, are divided by their sum.
    pub normed: bool,
    /// Whether the router and every matrix of the experts have biases.
    pub biases: bool,
}

/// Whether an architecture has some tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It must be in the file.
    Required,
    /// It is used if it is in the file.
    Optional,
    /// It may be in the file, and nothing needs it.
    Unused,
    /// It must not be in the file.
    Absent,
}

impl<'a> Spec<'a> {
    /// Reads the architecture from a file's metadata.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for an architecture, or a part of it, that is unknown or not in this build; [`Error::MissingKey`],
    /// [`Error::KeyType`] and [`Error::KeyValue`] for metadata that cannot be;
    /// [`Error::UnexpectedKey`] for a key of the model's that its family does not know.
    pub const fn read(gguf: &Gguf<'a>) -> Result<Self, Error> {
        let mut keys = tri!(Keys::new(gguf));
        let spec = tri!(match keys.architecture.as_bytes() {
            b"llama" if cfg!(feature = "llama") => llama::spec(&mut keys),
            b"ernie4_5" if cfg!(feature = "llama") => llama::ernie(&mut keys),
            b"mistral3" if cfg!(feature = "mistral3") => mistral3::spec(&mut keys),
            b"exaone4" if cfg!(feature = "exaone4") => exaone4::spec(&mut keys),
            b"gpt-oss" if cfg!(feature = "gpt-oss") => gpt_oss::spec(&mut keys),
            b"hunyuan-dense" if cfg!(feature = "hunyuan") => hunyuan::spec(&mut keys),
            b"qwen2" if cfg!(feature = "qwen") => qwen::qwen2(&mut keys),
            b"qwen3" if cfg!(feature = "qwen") => qwen::qwen3(&mut keys),
            b"qwen3moe" if cfg!(feature = "qwen") => qwen::qwen3moe(&mut keys),
            b"gpt2" if cfg!(feature = "gpt2") => gpt2::spec(&mut keys),
            b"gemma" if cfg!(feature = "gemma") => gemma::gemma(&mut keys),
            b"gemma2" if cfg!(feature = "gemma") => gemma::gemma2(&mut keys),
            b"gemma3" if cfg!(feature = "gemma") => gemma::gemma3(&mut keys),
            b"gemma4" if cfg!(feature = "gemma") => gemma4::spec(&mut keys),
            b"phi3" if cfg!(feature = "phi3") => phi3::spec(&mut keys),
            b"stablelm" if cfg!(feature = "stablelm") => stablelm::spec(&mut keys),
            b"smollm3" if cfg!(feature = "smollm3") => smollm3::spec(&mut keys),
            b"olmo2" if cfg!(feature = "olmo2") => olmo2::spec(&mut keys),
            b"granite" if cfg!(feature = "granite") => granite::spec(&mut keys),
            b"bert" if cfg!(feature = "bert") => bert::spec(&mut keys),
            b"t5" if cfg!(feature = "t5") => t5::spec(&mut keys),
            b"seq2seq" if cfg!(feature = "seq2seq") => seq2seq::spec(&mut keys),
            name => Err(Error::Unsupported { what: "architecture", name: Name::new(name) }),
        });
        tri!(keys.all_known());
        if let Some(part) = spec.unbuilt() {
            return Err(Error::Unsupported { what: "model part", name: Name::new(part.as_bytes()) });
        }
        tri!(spec.check(&keys));
        Ok(spec)
    }

    /// The encoder of an encoder-decoder: like the decoder, but for what is the decoder's alone.
    pub const fn encoder(&self) -> Option<Self> {
        let Stack::Target { encoder_layers, source_words, .. } = self.stack() else { return None };
        let (vocab, own_words) = match source_words {
            Some(words) => (words, true),
            None => (self.vocab, false),
        };
        let stack = Stack::Source { own_words };
        Some(Self { stack, vocab, layers: encoder_layers, logit_scale: 1.0, output_bias: Need::Absent, ..*self })
    }

    /// Whether the stack makes logits.
    pub const fn has_head(&self) -> bool {
        matches!(self.stack(), Stack::Alone | Stack::Target { .. })
    }

    /// Whether a token sees no token after it.
    pub const fn is_causal(&self) -> bool {
        self.has_head()
    }

    /// Whether blocks attend to an encoder's states.
    pub const fn has_cross_attention(&self) -> bool {
        matches!(self.stack(), Stack::Target { .. })
    }

    /// What layer `index`, counted from 0, is like.
    pub const fn layer(&self, index: usize) -> Layer {
        let [first, second] = self.kinds;
        let kind = self.second().has(index) as usize;
        Layer {
            index,
            kind,
            heads: self.heads,
            kv_heads: self.kv_heads.get(index),
            head: if kind == 0 { first } else { second },
            ffn: self.ffn.get(index),
            owns_kv: index + self.kv_shared() < self.layers,
        }
    }

    /// Positions up to which a context is a short one: all that the model was trained for, but for
    /// models that turn heads in another way in longer contexts.
    pub const fn short_context(&self) -> usize {
        match self.rope(0) {
            Some(Rope { scaling: Scaling::Long { original, .. }, .. }) if original < self.context => original,
            _ => self.context,
        }
    }

    /// The rotary positions of a kind of heads, if any layer has them.
    pub const fn rope(&self, kind: usize) -> Option<Rope> {
        let [first, second] = self.kinds;
        match kind {
            0 => first.rope,
            _ if matches!(self.second(), Pattern::Never) => None,
            _ => second.rope,
        }
    }

    /// Elements of a token inside the feed-forward of some layer.
    const fn ffn_inner(&self, layer: &Layer) -> usize {
        let width = match self.gate() {
            Gate::None => layer.ffn,
            Gate::Separate | Gate::Fused => 2 * layer.ffn,
        };
        match self.experts() {
            Some(experts) => experts.count + 2 * self.dim + width,
            None => width,
        }
    }

    /// The most elements of a token that are inside a part of any block.
    pub(crate) const fn inner(&self) -> usize {
        let mut most = self.layers * self.per_layer_input();
        let mut index = 0;
        while index < self.layers {
            let layer = self.layer(index);
            most = max(most, layer.qkv_dim() + layer.q_dim());
            most = max(most, self.ffn_inner(&layer));
            index += 1;
        }
        most
    }

    /// The most inputs that any linear layer has.
    pub(crate) const fn widest_input(&self) -> usize {
        let mut widest = max(self.dim, self.per_layer_input());
        let mut index = 0;
        while index < self.layers {
            let layer = self.layer(index);
            widest = max(widest, max(layer.q_dim(), layer.ffn));
            index += 1;
        }
        widest
    }

    /// What holds between the numbers of one layer.
    const fn check(&self, keys: &Keys<'_, '_>) -> Result<(), Error> {
        let mut index = 0;
        while index < self.layers {
            let layer = self.layer(index);
            if !self.heads.is_multiple_of(layer.kv_heads) {
                return Err(keys.wrong("attention.head_count_kv", "does not divide attention.head_count"));
            }
            if layer.heads as u64 * layer.head.dim as u64 > Keys::MAX_WIDTH as u64 {
                return Err(keys.wrong("attention.head_count", "is too large"));
            }
            if !layer.owns_kv && self.owner(layer.kind).is_none() {
                return Err(keys.wrong("attention.shared_kv_layers", "leaves a layer without keys to share"));
            }
            index += 1;
        }
        Ok(())
    }

    /// The layer whose keys and values those that share them read, by their kind.
    pub const fn owner(&self, kind: usize) -> Option<usize> {
        let mut index = self.layers.saturating_sub(self.kv_shared());
        while index > 0 {
            index -= 1;
            if self.layer(index).kind == kind {
                return Some(index);
            }
        }
        None
    }
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}
