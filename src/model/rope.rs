//! Rotary positions as data.

/// Rotary position embedding ([RoFormer](https://arxiv.org/abs/2104.09864)).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rope {
    /// Which elements form a pair.
    pub style: RopeStyle,
    /// Elements of a head that are rotated, the first ones; even.
    pub dim: usize,
    /// Base of the frequencies: pair `i` turns by `base^(-2 i / dim)` a position.
    pub base: f32,
    /// How the frequencies are stretched to a longer context.
    pub scaling: Scaling,
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeStyle {
    /// `2 i` and `2 i + 1`.
    Adjacent,
    /// `i` and `i + dim / 2`.
    Halves,
}

/// Stretching of rotary frequencies. Divisors in `rope_freqs.weight` apply as well, to
/// global layers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
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
    /// `attn_factor * (0.1 ln(factor) + 1) / (0.1 log_multiplier ln(factor) + 1)`.
    Yarn {
        /// Context length by trained context length.
        factor: f32,
        /// Context that the model was trained for before stretching.
        original: f32,
        /// Rotations over `original` above which a frequency is kept.
        beta_fast: f32,
        /// Rotations over `original` below which a frequency is divided.
        beta_slow: f32,
        /// One more factor on cos and sin.
        attn_factor: f32,
        /// How much of the factor that follows from `factor` is divided out again; 0 for none.
        log_multiplier: f32,
    },
    /// [LongRoPE](https://arxiv.org/abs/2402.13753): the frequencies are divided by
    /// `rope_factors_short.weight` in contexts of up to `original` positions and by
    /// `rope_factors_long.weight` in longer ones, where the file has them.
    Long {
        /// Context that the model was trained for before stretching.
        original: usize,
        /// Factor on cos and sin.
        attn_factor: f32,
    },
}
