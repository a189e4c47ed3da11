//! Mixers that remember a state of fixed size, as data.

use crate::kernel::TILE;

/// What a layer without attention, or beside it, mixes tokens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recurrent {
    /// Which one.
    pub kind: RecurrentKind,
    /// Positions that its convolution sees.
    pub taps: usize,
    /// Heads, each with a matrix of `keys` rows and `width` columns.
    pub heads: usize,
    /// Groups of heads that share keys and queries.
    pub groups: usize,
    /// Elements of a key and of a query.
    pub keys: usize,
    /// Elements of a value.
    pub width: usize,
    /// Whether heads are dealt out to the groups in turns, instead of being neighbours.
    pub in_turns: bool,
}

/// Kinds of such mixers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecurrentKind {
    /// A gated convolution over the last few positions (LFM2); `width` is that of the hidden state.
    ShortConvolution,
    /// A gated delta net ([Qwen 3.5](https://arxiv.org/abs/2412.06464)).
    DeltaNet,
    /// [Mamba-2](https://arxiv.org/abs/2405.21060).
    Mamba2,
}

impl Recurrent {
    /// Of no size.
    pub(super) const NONE: Self = Self {
        kind: RecurrentKind::ShortConvolution,
        taps: 0,
        heads: 0,
        groups: 0,
        keys: 0,
        width: 0,
        in_turns: false,
    };

    /// Elements of all heads' values.
    pub const fn inner(&self) -> usize {
        self.heads * self.width
    }

    /// Channels of the convolution.
    pub const fn channels(&self) -> usize {
        self.inner() + 2 * self.groups * self.keys
    }

    /// Elements of what the convolution remembers, `[taps - 1][channels]`.
    pub const fn window_len(&self) -> usize {
        self.taps.saturating_sub(1) * self.channels()
    }

    /// Elements of the matrix of a head, in tiles of sixteen columns: `[tiles][keys][16]`.
    pub const fn matrix_len(&self) -> usize {
        (self.width.div_ceil(TILE) * TILE).saturating_mul(self.keys)
    }

    /// Elements of the matrices of all heads.
    pub const fn matrices_len(&self) -> usize {
        self.heads.saturating_mul(self.matrix_len())
    }

    /// Elements of a layer's state in a conversation, f32 each.
    pub const fn state_len(&self) -> usize {
        self.window_len().saturating_add(self.matrices_len())
    }

    /// Elements that the projections make of a token: the gate, the channels, and two numbers for each head; of a short
    /// convolution, its two gates and the channels.
    pub(crate) const fn row_len(&self) -> usize {
        match self.kind {
            RecurrentKind::ShortConvolution => 3 * self.width,
            _ => self.inner() + self.channels() + 2 * self.heads,
        }
    }
}
