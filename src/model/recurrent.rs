//! Parameters of mixers with a recurrent state of fixed size.

use crate::kernel::TILE;

/// Parameters of a recurrent mixer, used in place of attention or parallel to attention.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recurrent {
    /// Kind of mixer.
    pub kind: RecurrentKind,
    /// Positions covered by the mixer's convolution.
    pub taps: usize,
    /// Number of heads. The state of each head is a matrix of `keys` rows and `width` columns.
    pub heads: usize,
    /// Number of groups of heads. All heads of a group have the same keys and queries.
    pub groups: usize,
    /// Elements of a key, and of a query.
    pub keys: usize,
    /// Elements of a value.
    pub width: usize,
    /// Ranks of low-rank products: Mamba-1's step; RWKV-7's decay, learning rate, value mix and gate (0 for no gate);
    /// RWKV-6's decay and mix; Kimi delta attention's decay and gate (0 if one matrix replaces the product).
    pub ranks: [usize; 4],
    /// Norms of Mamba-1's step, and of its vectors `B` and `C`.
    pub step_norms: StepNorms,
    /// Epsilon of the `step_norms`, if it is not the epsilon of the model's other norms.
    pub step_eps: Option<f32>,
    /// Number of neighbouring channels of Mamba-1 that share a step, a factor on their input and one rate of decay.
    /// PLaMo 2 calls such channels a head. 1 if every channel has its own.
    pub shared: usize,
    /// RWKV-6 halves the hidden states after every `halved_every` layers; 0 if it never does.
    pub halved_every: usize,
    /// True if RWKV's feed-forward mixes the row of each token with the row of the token before it, as its attention
    /// does.
    pub channel_mixing: bool,
    /// True if RWKV norms the output of each head.
    pub head_norms: bool,
    /// Lower bound on the logarithm of Kimi delta attention's decay; 0 if there is no bound.
    pub floor: f32,
    /// True if head `i` belongs to group `i % groups`; false if the heads of a group are neighbours.
    pub in_turns: bool,
}

/// Norms of Mamba-1's step, and of its vectors `B` and `C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepNorms {
    /// No norms (Mamba).
    None,
    /// Norms without weights (Falcon Mamba).
    Bare,
    /// Norms with weights (Jamba).
    Weighted,
}

/// Kind of recurrent mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecurrentKind {
    /// Gated convolution over the last few positions (LFM2). The `width` of this mixer is the width of the hidden
    /// state.
    ShortConvolution,
    /// Gated delta net ([Qwen 3.5](https://arxiv.org/abs/2412.06464)).
    DeltaNet,
    /// [Mamba-2](https://arxiv.org/abs/2405.21060).
    Mamba2,
    /// [Mamba](https://arxiv.org/abs/2312.00752): one head, whose `width` is the number of channels, with `keys` states
    /// per channel.
    Mamba,
    /// [RWKV-7](https://arxiv.org/abs/2503.14456).
    Rwkv7,
    /// [RWKV-6](https://arxiv.org/abs/2404.05892).
    Rwkv6,
    /// [Gated linear attention](https://arxiv.org/abs/2312.06635) with the projections of RWKV-6 (QRWKV).
    Qrwkv6,
    /// [Kimi delta attention](https://arxiv.org/abs/2510.26692).
    KimiDelta,
}

impl Recurrent {
    /// All sizes 0.
    pub const NONE: Self = Self {
        kind: RecurrentKind::ShortConvolution,
        taps: 0,
        heads: 0,
        groups: 0,
        keys: 0,
        width: 0,
        ranks: [0; 4],
        step_norms: StepNorms::None,
        step_eps: None,
        shared: 1,
        halved_every: 0,
        channel_mixing: false,
        head_norms: false,
        floor: 0.0,
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

    /// Number of elements in the part of a state that keeps earlier inputs of a convolution, `[taps - 1][channels]`. In
    /// RWKV, this part is the last row of time mixing and, if the model has channel mixing, the last row of channel
    /// mixing.
    pub const fn window_len(&self) -> usize {
        match self.kind {
            RecurrentKind::Rwkv7 | RecurrentKind::Rwkv6 if self.channel_mixing => 2 * self.inner(),
            RecurrentKind::Rwkv7 | RecurrentKind::Rwkv6 | RecurrentKind::Qrwkv6 => self.inner(),
            _ => self.taps.saturating_sub(1) * self.channels(),
        }
    }

    /// The largest of the mixer's `ranks`.
    pub const fn widest_rank(&self) -> usize {
        let (mut widest, mut i) = (0, 0);
        while i < self.ranks.len() {
            if self.ranks[i] > widest {
                widest = self.ranks[i];
            }
            i += 1;
        }
        widest
    }

    /// Number of elements of a head's state, which is a matrix: `[tiles][keys][16]`, in tiles of 16 columns.
    pub const fn matrix_len(&self) -> usize {
        (self.width.div_ceil(TILE) * TILE).saturating_mul(self.keys)
    }

    /// Elements of the matrices of all heads.
    pub const fn matrices_len(&self) -> usize {
        self.heads.saturating_mul(self.matrix_len())
    }

    /// Elements (f32) of one layer's state per conversation.
    pub const fn state_len(&self) -> usize {
        self.window_len().saturating_add(self.matrices_len())
    }

    /// Number of elements that the projections produce per token: the gate, the channels, and two values per head; or,
    /// for a short convolution, two gates and the channels. For Mamba-1, RWKV and Kimi delta attention, number of
    /// elements of all intermediate values except the output.
    pub(crate) const fn row_len(&self) -> usize {
        match self.kind {
            RecurrentKind::Mamba => 2 * (self.width + self.keys + self.ranks[0]) + self.width.next_multiple_of(TILE),
            RecurrentKind::Rwkv7 => 7 * self.inner() + self.widest_rank(),
            RecurrentKind::KimiDelta => 7 * self.inner() + self.heads + self.widest_rank(),
            RecurrentKind::Rwkv6 | RecurrentKind::Qrwkv6 => 7 * self.inner() + self.widest_rank() + 5 * self.ranks[1],
            RecurrentKind::ShortConvolution => 3 * self.width,
            _ => self.inner() + self.channels() + 2 * self.heads,
        }
    }
}
