//! Parameters of rotary positions.

/// Rotary position embedding ([RoFormer](https://arxiv.org/abs/2104.09864)).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rope {
    /// Layout of the pairs.
    pub(crate) style: RopeStyle,
    /// Number of elements of a head that are rotated. It is even, and these elements are the first ones of the head.
    pub dim: usize,
    /// Base of the frequencies: pair `i` rotates by `base^(-2 i / dim)` per position.
    pub base: f32,
    /// Scaling of the frequencies for a longer context.
    pub scaling: Scaling,
}

/// The two elements of a head that form pair `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeStyle {
    /// `2 i` and `2 i + 1`.
    Adjacent,
    /// `i` and `i + dim / 2`.
    Halves,
}

/// How rotary frequencies are scaled for contexts that are longer than in training. In global layers, the frequencies
/// are also divided by the values of `rope_freqs.weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scaling {
    /// No scaling.
    None,
    /// All frequencies are divided by `factor`.
    Linear {
        /// Context length divided by the trained context length.
        factor: f32,
    },
    /// [YaRN](https://arxiv.org/abs/2309.00071): low frequencies are divided by `factor` and high frequencies are kept,
    /// with a linear ramp between them. Cosines and sines are multiplied by `attn_factor * (0.1 ln(factor) + 1) / (0.1
    /// log_multiplier ln(factor) + 1)`.
    Yarn {
        /// Context length divided by the trained context length.
        factor: f32,
        /// Trained context length before scaling.
        original: f32,
        /// YaRN keeps a frequency if it makes more than this many rotations within `original` positions.
        beta_fast: f32,
        /// A frequency is divided if it makes fewer than this many rotations over `original` positions.
        beta_slow: f32,
        /// Additional factor on cos and sin.
        attn_factor: f32,
        /// Coefficient in the formula above, by which the factor on cosines and sines is reduced. 0 does not reduce the
        /// factor.
        log_multiplier: f32,
        /// A factor for cosines and sines that the file gives instead of the factor of the formula above.
        magnitude: Option<f32>,
        /// True if the ramp begins and ends at whole pairs.
        whole_pairs: bool,
    },
    /// [LongRoPE](https://arxiv.org/abs/2402.13753): frequencies are divided by `rope_factors_short.weight` in contexts
    /// of up to `original` positions and by `rope_factors_long.weight` in longer contexts, if the file has these
    /// tensors.
    Long {
        /// Trained context length before scaling.
        original: usize,
        /// Factor on cos and sin.
        attn_factor: f32,
    },
}

/// Axes of rotary positions: each pair of a head rotates by the time, the line or the column of its token. All three
/// are equal for the tokens of a text ([Qwen2-VL](https://arxiv.org/abs/2409.12191), M-RoPE).
#[cfg(feature = "vision")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections {
    /// Number of pairs of each axis.
    pub pairs: [usize; 3],
    /// True if consecutive rotary pairs belong to different axes in turn. False if all pairs of an axis are
    /// consecutive.
    pub in_turns: bool,
}

#[cfg(feature = "vision")]
impl Sections {
    /// The axis by whose position pair `i` of a head rotates: 0 for time, 1 for lines, 2 for columns.
    pub const fn axis(&self, i: usize) -> usize {
        let [time, lines, columns] = self.pairs;
        match (self.in_turns, i % 3) {
            (true, 1) if i < 3 * lines => 1,
            (true, 2) if i < 3 * columns => 2,
            (true, _) => 0,
            (false, _) if i < time => 0,
            (false, _) if i < time + lines => 1,
            (false, _) => 2,
        }
    }
}

impl Scaling {
    /// Replaces the `log_multiplier` of YaRN; does not change any other scaling.
    pub(super) const fn with_log_multiplier(mut self, multiplier: f32) -> Self {
        if let Self::Yarn { log_multiplier, .. } = &mut self {
            *log_multiplier = multiplier;
        }
        self
    }
}
