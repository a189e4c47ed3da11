//! An architecture as data: what a block is made of, with which sizes.

use super::keys::Keys;
use super::{gpt2, llama, qwen};
use crate::kernel::Activation;
use crate::{Error, Gguf, Name, tri};

/// The most layers a model may have, as in llama.cpp (`LLAMA_MAX_LAYERS`).
pub const MAX_LAYERS: usize = 512;

/// A decoder: token embedding, `layers` blocks of attention and feed-forward, final norm, head.
///
/// Sizes are numbers of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Words in the vocabulary: the rows of `token_embd.weight`.
    pub vocab: usize,
    /// Width of the hidden state.
    pub dim: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// The norm before attention, before the feed-forward and before the head.
    pub norm: Norm,
    /// Added under the root in every norm.
    pub norm_eps: f32,
    /// How positions enter: rotary, or (`None`) a learned embedding for each.
    pub rope: Option<Rope>,
    /// Whether q, k and v are one matrix, `attn_qkv`.
    pub fused_qkv: bool,
    /// Biases of q, k and v.
    pub qkv_bias: Need,
    /// Biases of the attention output and the feed-forward.
    pub linear_bias: Need,
    /// RMS norms of each head of q and k, before rope.
    pub qk_norm: Need,
    /// Factor on attention scores; `None`: one by the root of `head_dim`.
    pub attention_scale: Option<f32>,
    /// How many positions a token sees, itself included; `None`: all before it.
    pub window: Option<usize>,
    /// The feed-forward's activation function.
    pub activation: Activation,
    /// Whether the feed-forward is `down(f(gate) * up)` rather than `down(f(up))`.
    pub gated: bool,
}

/// Kind of norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// `x / sqrt(mean(x^2) + eps) * weight`.
    Rms,
    /// `(x - mean) / sqrt(variance + eps) * weight + bias`.
    Layer,
}

/// Whether an architecture has some tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It must be in the file.
    Required,
    /// It is used if it is in the file.
    Optional,
    /// It must not be in the file.
    Absent,
}

/// Rotary position embedding ([RoFormer](https://arxiv.org/abs/2104.09864)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Which elements form a pair.
    pub style: RopeStyle,
    /// Elements of a head that are rotated; even.
    pub dim: usize,
    /// Base of the frequencies: pair `i` turns by `base^(-2 i / dim)` a position.
    pub base: f32,
    /// How the frequencies are stretched to a longer context.
    pub scaling: Scaling,
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// `2 i` and `2 i + 1`.
    Adjacent,
    /// `i` and `i + dim / 2`.
    Halves,
}

/// Stretching of rotary frequencies. Divisors in `rope_freqs.weight` apply besides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    /// As trained.
    None,
    /// All frequencies divided by `factor`.
    Linear {
        /// Context length by trained context length.
        factor: f32,
    },
    /// [YaRN](https://arxiv.org/abs/2309.00071): low frequencies divided by `factor`, high ones
    /// kept, a ramp between; cos and sin multiplied by
    /// `attn_factor * (0.1 ln(factor) + 1)`.
    Yarn {
        /// Context length by trained context length.
        factor: f32,
        /// Context that the model was trained for before stretching.
        original: f32,
        /// Rotations over `original` above which a frequency is kept.
        beta_fast: f32,
        /// Rotations over `original` below which a frequency is divided.
        beta_slow: f32,
        /// Factor on cos and sin besides the one that follows from `factor`.
        attn_factor: f32,
    },
}

impl Spec {
    /// Reads the architecture from a file's metadata.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for an unknown architecture; [`Error::MissingKey`],
    /// [`Error::KeyType`] and [`Error::KeyValue`] for metadata that cannot be.
    pub const fn read(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let keys = tri!(Keys::new(gguf));
        let spec = match keys.architecture.as_bytes() {
            b"llama" if cfg!(feature = "llama") => tri!(llama::spec(&keys)),
            b"qwen2" if cfg!(feature = "qwen") => tri!(qwen::qwen2(&keys)),
            b"qwen3" if cfg!(feature = "qwen") => tri!(qwen::qwen3(&keys)),
            b"gpt2" if cfg!(feature = "gpt2") => tri!(gpt2::spec(&keys)),
            name => return Err(Error::Unsupported { what: "architecture", name: Name::new(name) }),
        };
        Ok(spec)
    }

    /// Query heads that share a key and value head.
    pub const fn group(&self) -> usize {
        // A division by 0 would be a panic, and the compiler does not know that there is none.
        self.heads / if self.kv_heads > 0 { self.kv_heads } else { 1 }
    }

    /// Elements of all query heads.
    pub const fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of all key heads, or of all value heads.
    pub const fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Elements of a token's queries, keys and values.
    pub(crate) const fn qkv_dim(&self) -> usize {
        self.q_dim() + 2 * self.kv_dim()
    }

    /// Elements of a token inside the feed-forward: gate and up, or up alone.
    pub(crate) const fn ffn_inner(&self) -> usize {
        if self.gated { 2 * self.ffn } else { self.ffn }
    }

    /// The most inputs that any linear layer has.
    pub(crate) const fn widest_input(&self) -> usize {
        let mut widest = self.dim;
        if self.q_dim() > widest {
            widest = self.q_dim();
        }
        if self.ffn > widest {
            widest = self.ffn;
        }
        widest
    }
}
