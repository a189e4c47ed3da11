//! Parameters that differ from layer to layer.

use super::rope::{Rope, Scaling};
use crate::built;
use crate::gguf::Array;

/// Parameters of one layer; returned by [`Spec::layer`](super::Spec::layer).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Layer {
    /// The layer's number, from 0.
    pub(crate) index: usize,
    /// True if the layer is one of the [local layers](super::Spec::local_layers).
    pub(crate) is_local: bool,
    pub(crate) heads: usize,
    /// Key and value heads.
    pub(crate) kv_heads: usize,
    /// Parameters of the layer's heads.
    pub(crate) head: HeadSpec,
    /// Width of the feed-forward layer, or of each expert.
    pub(crate) ffn: usize,
    /// Width of each expert; 0 without experts.
    pub(crate) expert_width: usize,
    /// True if the layer's feed-forward has experts.
    pub(crate) has_experts: bool,
    /// The layer's mixer of tokens.
    pub(crate) mixer: Mixer,
    /// True if the layer computes keys and values; otherwise it reads the keys and values of
    /// [`Spec::owner`](super::Spec::owner).
    pub(crate) owns_kv: bool,
}

/// Parameters of a layer's heads.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeadSpec {
    /// Elements of a head.
    pub dim: usize,
    /// Rotary positions; `None`: no rotation (NoPE).
    pub rope: Option<Rope>,
    /// Number of positions that a token attends to, including its own position. `None` means all positions up to its
    /// own.
    pub window: Option<usize>,
    /// If a value is the first part of the key at the same position, the number of elements of this part; 0 if values
    /// are stored separately.
    pub shared: usize,
}

impl HeadSpec {
    /// The same heads without rotary positions.
    pub(crate) const fn unrotated(self) -> Self {
        Self { rope: None, ..self }
    }

    /// The same heads without a scaling of rotary positions.
    pub(crate) const fn unscaled(self) -> Self {
        let Some(rope) = self.rope else { return self };
        Self { rope: Some(Rope { scaling: Scaling::None, ..rope }), ..self }
    }

    /// The same heads with another base of rotary positions.
    pub(crate) const fn with_base(self, base: f32) -> Self {
        let Some(rope) = self.rope else { return self };
        Self { rope: Some(Rope { base, ..rope }), ..self }
    }

    /// The same heads, but with a window to both sides of a token. In the file, the length of such a window is that of
    /// both sides together, without the token itself.
    pub(crate) const fn with_window_both_ways(self) -> Self {
        let Some(both) = self.window else { return self };
        Self { window: Some(both / 2 + 1), ..self }
    }
}

/// The operation by which a layer mixes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mixer {
    /// Attention, over keys and values.
    Attention,
    /// The spec's [`Recurrent`](super::Recurrent) mixer, with a state of fixed size.
    Recurrent,
    /// Both attention and the recurrent mixer. Their outputs are added.
    Both,
    /// No mixing: the layer only has a feed-forward.
    None,
}

impl Layer {
    /// True if the layer has attention.
    pub const fn has_attention(&self) -> bool {
        matches!(self.mixer, Mixer::Attention | Mixer::Both)
    }

    /// True if the layer has a recurrent state.
    pub(crate) const fn has_state(&self) -> bool {
        built::STATES && matches!(self.mixer, Mixer::Recurrent | Mixer::Both)
    }

    /// Number of positions that a token attends to, including its own position. `None` means all positions up to its
    /// own.
    pub const fn window(&self) -> Option<usize> {
        self.head.window
    }

    /// True if positions rotate the layer's queries and keys.
    pub const fn is_rotated(&self) -> bool {
        self.head.rope.is_some()
    }

    /// Returns a number below 32 that identifies which tensors the layer has. Layers with the same set of tensors have
    /// the same number.
    pub(crate) const fn parts(&self) -> u32 {
        self.has_attention() as u32
            | (self.has_state() as u32) << 1
            | (self.has_experts as u32) << 2
            | ((self.ffn > 0) as u32) << 3
            | (self.owns_kv as u32) << 4
    }

    /// Number of the page pool that holds the layer's KV cache: 1 for local layers, 0 for all other layers.
    pub(crate) const fn pool(&self) -> usize {
        (built::LOCAL_LAYERS && self.is_local) as usize
    }

    /// Query heads that share a key and value head.
    pub(crate) const fn group(&self) -> usize {
        // The comparison with 0 removes the panic that the compiler would otherwise emit for a division by 0.
        self.heads / if self.kv_heads > 0 { self.kv_heads } else { 1 }
    }

    /// Elements of all query heads.
    pub const fn q_dim(&self) -> usize {
        self.heads * self.head.dim
    }

    /// Elements of all key heads, or of all value heads.
    pub const fn kv_dim(&self) -> usize {
        self.kv_heads * self.head.dim
    }

    /// Number of elements of the queries, keys and values that the layer computes for a token.
    pub(crate) const fn qkv_dim(&self) -> usize {
        if self.owns_kv { self.q_dim() + 2 * self.kv_dim() } else { self.q_dim() }
    }
}

/// A size that may differ between layers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PerLayer<'a> {
    /// The same for all layers.
    All(usize),
    /// One number per layer, in an array of the metadata. No number is negative.
    Each(Array<'a>),
}

impl PerLayer<'_> {
    /// The largest of `layers` sizes.
    pub const fn most(&self, layers: usize) -> usize {
        let (mut index, mut most) = (0, 0);
        while index < layers {
            let size = self.get(index);
            if size > most {
                most = size;
            }
            index += 1;
        }
        most
    }

    /// The size in layer `index`.
    pub const fn get(&self, index: usize) -> usize {
        match self {
            Self::All(size) => *size,
            Self::Each(sizes) => match sizes.get_i32(index) {
                Some(size) => size as usize,
                None => 1, // no such layer
            },
        }
    }
}

/// A set of layers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Pattern<'a> {
    /// No layer.
    Never,
    /// All layers.
    Always,
    /// Every n-th layer: `n - 1`, `2 n - 1` and so on, counted from 0.
    Every(usize),
    /// All layers but every n-th.
    AllBut(usize),
    /// All layers but the first of every n.
    AllButFirst(usize),
    /// Layer `first` and every `step`-th layer after it.
    Steps {
        /// The first layer of the set, counted from 0.
        first: usize,
        /// Distance between neighbours in the set, at least 1.
        step: usize,
    },
    /// A subset of the first 128 layers: bit `n % 32` of word `n / 32` is set for layer `n`.
    Set([u32; 4]),
    /// Layers whose element of a metadata array is true.
    Where(Array<'a>),
    /// Layers whose element of a metadata array is 0.
    Zero(Array<'a>),
}

impl Pattern<'_> {
    /// True if layer `index` is in the set.
    pub const fn has(&self, index: usize) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Every(n) => index.saturating_add(1).is_multiple_of(*n),
            Self::AllBut(n) => !index.saturating_add(1).is_multiple_of(*n),
            Self::AllButFirst(n) => !index.is_multiple_of(*n),
            Self::Steps { first, step } => index >= *first && (index - *first).is_multiple_of(*step),
            Self::Set(words) => index < 128 && words[index / 32] >> (index % 32) & 1 != 0,
            Self::Where(array) => matches!(array.get_i32(index), Some(1)),
            Self::Zero(array) => matches!(array.get_i32(index), Some(0)),
        }
    }
}

/// A number for each layer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Numbers<'a> {
    /// The same number for all layers.
    All(f32),
    /// One number per layer, in a metadata array.
    Each(Array<'a>),
}

impl Numbers<'_> {
    /// The number of layer `index`.
    pub const fn get(&self, index: usize) -> f32 {
        match self {
            Self::All(number) => *number,
            Self::Each(numbers) => match numbers.get_f32(index) {
                Some(number) => number,
                None => 0.0, // no such layer
            },
        }
    }
}

/// Parameters of [xIELU](https://arxiv.org/abs/2411.13010).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Xielu<'a> {
    /// For negative inputs, the curvature of the activation function is `beta + softplus(alpha_n)`.
    pub alpha_n: Numbers<'a>,
    /// For positive inputs, the curvature of the activation function is `softplus(alpha_p)`.
    pub alpha_p: Numbers<'a>,
    /// Slope at 0.
    pub beta: Numbers<'a>,
    /// Largest input of the exponential function.
    pub eps: Numbers<'a>,
}

/// Limits of a feed-forward's gate after the activation function, and of the absolute values of `up`. A limit of 1e-6
/// or less means no limit.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits<'a> {
    /// Limits of experts.
    pub experts: Numbers<'a>,
    /// Limits of shared experts, and of layers without experts.
    pub shared: Numbers<'a>,
    /// True if the gate is limited before its activation function, too, and not only after it.
    pub before: bool,
}
