//! The sampling steps that need the feature `samplers`: their parameters, and the state that they keep from token to
//! token.

use super::Link;

/// Parameters of further steps, with llama.cpp's names. All of these steps are off in
/// [`Params::DEFAULT`](super::Params::DEFAULT).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct More {
    /// Minimum number of tokens that typical, top-p, min-p and XTC keep. They keep at least one token even if this is
    /// 0.
    pub min_keep: u32,
    /// DRY ([`Link::Dry`]): the penalty of a token that continues a repetition of
    /// [`dry_allowed_length`](Self::dry_allowed_length) tokens; 0 is off.
    pub dry_multiplier: f32,
    /// The factor by which the penalty grows with each further token of the repetition. If the factor is below 1, DRY
    /// is off.
    pub dry_base: f32,
    /// Length of the shortest repetition that is penalized.
    pub dry_allowed_length: u32,
    /// Number of recent tokens in which repetitions are searched; 0 turns DRY off.
    pub dry_last_n: u32,
    /// Top-n-sigma ([`Link::TopNSigma`]): number of standard deviations below the highest logit; 0 and less are off.
    pub top_n_sigma: f32,
    /// XTC ([`Link::Xtc`]): the probability that the step is applied to a token; 0 is off.
    pub xtc_probability: f32,
    /// Minimum probability of a token that counts as a top choice. If this is above 0.5, XTC is off.
    pub xtc_threshold: f32,
    /// Dynamic temperature: the temperature differs by at most this number from [`Params::temperature`](super::Params),
    /// in proportion to the entropy of the candidates; 0 is off.
    pub dynatemp_range: f32,
    /// The exponent of the normalized entropy.
    pub dynatemp_exponent: f32,
    /// Mirostat replaces all steps but bias, penalties and a temperature that does not change.
    pub mirostat: Mirostat,
    /// Mirostat's target: the surprise of a token in bits.
    pub mirostat_tau: f32,
    /// Mirostat's learning rate.
    pub mirostat_eta: f32,
    /// Adaptive-p ([`Link::AdaptiveP`]): the probability near which tokens are selected; negative is off.
    pub adaptive_target: f32,
    /// Weight decay of the mean probability of earlier tokens: each new token multiplies the weights of all earlier
    /// tokens by this factor, from 0 to 0.99.
    pub adaptive_decay: f32,
}

/// The version of Mirostat (Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity",
/// 2020).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mirostat {
    /// Off.
    #[default]
    Off,
    /// Estimates the exponent of the distribution, and derives from it how many tokens to keep.
    V1,
    /// Keeps tokens up to a surprise.
    V2,
}

impl More {
    /// All steps are off. The parameters have llama.cpp's defaults.
    pub const OFF: Self = Self {
        min_keep: 0,
        dry_multiplier: 0.0,
        dry_base: 1.75,
        dry_allowed_length: 2,
        dry_last_n: 0,
        top_n_sigma: -1.0,
        xtc_probability: 0.0,
        xtc_threshold: 0.1,
        dynatemp_range: 0.0,
        dynatemp_exponent: 1.0,
        mirostat: Mirostat::Off,
        mirostat_tau: 5.0,
        mirostat_eta: 0.1,
        adaptive_target: -1.0,
        adaptive_decay: 0.9,
    };

    pub(super) const fn min_keep(&self) -> usize {
        self.min_keep as usize
    }

    /// True if Mirostat replaces the steps.
    pub(super) const fn is_mirostat(&self) -> bool {
        !matches!(self.mirostat, Mirostat::Off)
    }

    /// True if the temperature depends on the candidates.
    pub(super) const fn is_dynamic(&self) -> bool {
        self.dynatemp_range > 0.0
    }

    /// True if `Memory::cool` applies the temperature.
    pub(super) const fn cools(&self, temperature: f32) -> bool {
        self.is_dynamic() || temperature <= 0.0 || temperature.is_nan()
    }

    const fn has_dry(&self) -> bool {
        self.dry_multiplier != 0.0 && self.dry_base >= 1.0 && self.dry_last_n > 0
    }

    /// True if the step `link`, which needs the feature `samplers`, is on and changes the result.
    pub(super) const fn filters(&self, link: Link) -> bool {
        match link {
            Link::Dry => self.has_dry(),
            Link::TopNSigma => self.top_n_sigma > 0.0,
            Link::Xtc => self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5,
            Link::AdaptiveP => self.adaptive_target >= 0.0,
            _ => false,
        }
    }

    /// Number of recent tokens to store.
    pub(super) const fn history(&self) -> usize {
        if self.has_dry() { self.dry_last_n as usize } else { 0 }
    }

    /// Words of scratch memory.
    pub(super) const fn words(&self) -> usize {
        self.history().saturating_mul(3)
    }
}

/// The state of Mirostat and adaptive-p, which changes with each token. With this state, a different sampler can
/// continue an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Mirostat's limit of surprise in bits.
    pub mirostat_mu: f32,
    /// Weighted sum of the probabilities of earlier tokens.
    pub adaptive_sum: f32,
    /// Sum of their weights.
    pub adaptive_weight: f32,
}
