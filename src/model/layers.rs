//! What differs from layer to layer.

use super::rope::Rope;
use crate::built;
use crate::gguf::Array;

/// What one layer is like: [`Spec::layer`](super::Spec::layer).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Layer {
    /// Its number, from 0.
    pub index: usize,
    /// Whether it is one of the [local layers](super::Spec::local_layers).
    pub is_local: bool,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// What its heads are like.
    pub head: HeadSpec,
    /// Width of the feed-forward layer, or of each expert.
    pub ffn: usize,
    /// Whether its feed-forward is experts.
    pub has_experts: bool,
    /// What mixes its tokens.
    pub mixer: Mixer,
    /// Whether it computes keys and values; else it reads those of
    /// [`Spec::owner`](super::Spec::owner).
    pub owns_kv: bool,
}

/// What the heads of a layer are like.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeadSpec {
    /// Elements of a head.
    pub dim: usize,
    /// Rotary positions; `None`: no rotation (NoPE).
    pub rope: Option<Rope>,
    /// How many positions a token sees, itself included; `None`: all before it.
    pub window: Option<usize>,
}

/// What mixes the tokens of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mixer {
    /// Attention, over keys and values.
    Attention,
    /// The spec's [`Recurrent`](super::Recurrent), over a state of fixed size.
    Recurrent,
    /// Both side by side: their outputs are added.
    Both,
    /// Nothing: the layer is a feed-forward alone.
    None,
}

impl Layer {
    /// Whether it has attention.
    pub const fn has_attention(&self) -> bool {
        matches!(self.mixer, Mixer::Attention | Mixer::Both)
    }

    /// Whether it has a state of fixed size.
    pub const fn has_state(&self) -> bool {
        built::STATES && matches!(self.mixer, Mixer::Recurrent | Mixer::Both)
    }

    /// A number that layers with the same tensors have in common, less than 32.
    pub(crate) const fn parts(&self) -> u32 {
        self.has_attention() as u32
            | (self.has_state() as u32) << 1
            | (self.has_experts as u32) << 2
            | ((self.ffn > 0) as u32) << 3
            | (self.owns_kv as u32) << 4
    }

    /// The number of the pool that its pages are of: local layers have one of their own.
    pub(crate) const fn pool(&self) -> usize {
        (built::LOCAL_LAYERS && self.is_local) as usize
    }

    /// Query heads that share a key and value head.
    pub const fn group(&self) -> usize {
        // A division by 0 would be a panic, and the compiler does not know that there is none.
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

    /// Elements of what a token's queries, keys and values are, as far as the layer computes them.
    pub const fn qkv_dim(&self) -> usize {
        if self.owns_kv { self.q_dim() + 2 * self.kv_dim() } else { self.q_dim() }
    }
}

/// A size of each layer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PerLayer<'a> {
    /// The same for all.
    All(usize),
    /// One for each, in an array of the metadata; no element is negative.
    Each(Array<'a>),
}

impl PerLayer<'_> {
    /// That of layer `index`.
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

/// Which layers are of some kind.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Pattern<'a> {
    /// None.
    Never,
    /// All.
    Always,
    /// Every n-th: `n - 1`, `2 n - 1` and so on, counted from 0.
    Every(usize),
    /// All but every n-th.
    AllBut(usize),
    /// All but the first of each n.
    AllButFirst(usize),
    /// Those for which an array of the metadata is true.
    Where(Array<'a>),
    /// Those for which an array of the metadata is 0.
    Zero(Array<'a>),
}

impl Pattern<'_> {
    /// Whether layer `index` is.
    pub const fn has(&self, index: usize) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Every(n) => (index + 1).is_multiple_of(*n),
            Self::AllBut(n) => !(index + 1).is_multiple_of(*n),
            Self::AllButFirst(n) => !index.is_multiple_of(*n),
            Self::Where(array) => matches!(array.get_i32(index), Some(1)),
            Self::Zero(array) => matches!(array.get_i32(index), Some(0)),
        }
    }
}
