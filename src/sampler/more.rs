//! The steps of the feature `samplers`: their parameters, and their state.

use super::candidates::{Candidates, Slot};
use super::dry::{Breakers, Dry};
use super::scratch::Word;
use super::{Link, adaptive, mirostat};
use crate::TokenId;

/// Parameters of further steps, by llama.cpp's names. All are off in [`Params::DEFAULT`](super::Params::DEFAULT).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct More {
    /// Number of tokens that typical, top-p, min-p and XTC keep at least. All keep one.
    pub min_keep: u32,
    /// DRY ([`Link::Dry`]): the penalty of a token that continues a repetition of
    /// [`dry_allowed_length`](Self::dry_allowed_length) tokens; 0 is off.
    pub dry_multiplier: f32,
    /// The factor of the penalty for each further token of the repetition. Below 1, DRY is off.
    pub dry_base: f32,
    /// Length of the shortest repetition that is penalized.
    pub dry_allowed_length: u32,
    /// Number of recent tokens in which repetitions are searched; 0 turns DRY off.
    pub dry_last_n: u32,
    /// Top-n-sigma ([`Link::TopNSigma`]): number of standard deviations below the highest logit; 0 and less are off.
    pub top_n_sigma: f32,
    /// XTC ([`Link::Xtc`]): the probability that the step is applied to a token; 0 is off.
    pub xtc_probability: f32,
    /// The probability from which on a token counts as a top choice. Above 0.5, XTC is off.
    pub xtc_threshold: f32,
    /// Dynamic temperature: the temperature is at most this far from [`Params::temperature`](super::Params), in
    /// proportion to the entropy of the candidates; 0 is off.
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
    /// The share of the mean of earlier tokens' probabilities that remains with each token, from 0 to 0.99.
    pub adaptive_decay: f32,
}

/// The version of Mirostat (Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity",
/// 2020).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mirostat {
    /// Off.
    #[default]
    Off,
    /// Estimates the distribution's exponent, and keeps a number of tokens.
    V1,
    /// Keeps tokens up to a surprise.
    V2,
}

impl More {
    /// All off; the parameters of steps that are off have llama.cpp's defaults.
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

    /// True if [`Memory::cool`] applies the temperature.
    pub(super) const fn cools(&self, temperature: f32) -> bool {
        self.is_dynamic() || temperature <= 0.0 || temperature.is_nan()
    }

    const fn has_dry(&self) -> bool {
        self.dry_multiplier != 0.0 && self.dry_base >= 1.0 && self.dry_last_n > 0
    }

    /// True if the step, which is one of this feature, changes anything.
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

/// The state of Mirostat and adaptive-p, which changes with each token. Continues an answer in another sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Mirostat's limit of surprise in bits.
    pub mirostat_mu: f32,
    /// Weighted sum of the probabilities of earlier tokens.
    pub adaptive_sum: f32,
    /// Sum of their weights.
    pub adaptive_weight: f32,
}

impl State {
    /// The state before the first token.
    pub fn new(more: &More) -> Self {
        let mirostat_mu = 2.0 * more.mirostat_tau;
        let (adaptive_sum, adaptive_weight) = adaptive::start(more);
        Self { mirostat_mu, adaptive_sum, adaptive_weight }
    }
}

/// Recent tokens and state of the steps of this feature.
pub(super) struct Memory<'s> {
    dry: Dry<'s>,
    pub state: State,
}

impl<'s> Memory<'s> {
    /// `words` has [`More::words`] words.
    pub fn new(more: &More, words: &'s mut [Word]) -> Self {
        let (ring, repeats) = words.split_at_mut(words.len() / 3);
        Self { dry: Dry::new(ring, repeats.as_chunks_mut().0), state: State::new(more) }
    }

    pub fn set_breakers(&mut self, breakers: Breakers<'s>) {
        self.dry.breakers = breakers;
    }

    pub fn push(&mut self, token: TokenId) {
        self.dry.ring.push(token);
    }

    pub fn clear(&mut self, more: &More) {
        self.dry.ring.clear();
        self.state = State::new(more);
    }

    /// Applies a step of this feature to all tokens.
    pub fn apply_to_all(&mut self, more: &More, link: Link, logits: &mut [f32], temperature: f32) {
        match link {
            Link::Dry => {
                for (token, penalty) in self.dry.penalties(more) {
                    if let Some(logit) = logits.get_mut(token as usize) {
                        *logit -= penalty * temperature;
                    }
                }
            }
            Link::TopNSigma => {
                let least = super::candidates::sigmas(more.top_n_sigma, || logits.iter().copied());
                logits.iter_mut().filter(|logit| f64::from(**logit) < least).for_each(|l| *l = f32::NEG_INFINITY);
            }
            _ => {}
        }
    }

    /// Applies a step of this feature to candidates.
    pub fn apply<'c>(
        &mut self,
        more: &More,
        link: Link,
        kept: Candidates<'c>,
        temperature: f32,
        random: impl FnOnce() -> f64,
    ) -> Candidates<'c> {
        match link {
            Link::Dry => kept.lower(self.dry.penalties(more), temperature),
            Link::TopNSigma => kept.top_n_sigma(more.top_n_sigma),
            Link::Xtc if random() <= f64::from(more.xtc_probability) => {
                kept.xtc(more.xtc_threshold, more.min_keep(), temperature)
            }
            _ => kept,
        }
    }

    /// Applies a temperature that depends on the candidates, or that leaves the best one.
    pub fn cool<'c>(more: &More, temperature: f32, kept: Candidates<'c>) -> (Candidates<'c>, f32) {
        let range = ((temperature - more.dynatemp_range).max(0.0), temperature + more.dynatemp_range);
        let temperature = if more.is_dynamic() { kept.dynamic(range, more.dynatemp_exponent) } else { 0.0 };
        if temperature > 0.0 { (kept, temperature) } else { (kept.top_k(1), 1.0) }
    }

    /// Collects the tokens that Mirostat keeps.
    pub fn mirostat<'c>(&self, more: &More, slots: &'c mut [Slot], logits: &[f32], temperature: f32) -> Candidates<'c> {
        match more.mirostat {
            Mirostat::V1 => mirostat::v1(slots, logits, temperature, self.state.mirostat_mu),
            _ => mirostat::v2(slots, logits, temperature, self.state.mirostat_mu),
        }
    }

    /// Draws one of the candidates by the last step, and learns from it.
    pub fn draw(
        &mut self,
        more: &More,
        is_adaptive: bool,
        kept: &Candidates<'_>,
        temperature: f32,
        random: f64,
    ) -> Option<TokenId> {
        if more.is_mirostat() {
            let token = kept.draw(temperature, random)?;
            self.state.mirostat_mu = mirostat::learned(more, self.state.mirostat_mu, kept.share(token, temperature));
            return Some(token);
        }
        if !is_adaptive {
            return kept.draw(temperature, random);
        }
        let adapted = adaptive::adapted(more, &self.state);
        let token = kept.draw_by(|logit, share| adaptive::weight(logit, share, adapted), temperature, random)?;
        adaptive::learn(more, &mut self.state, kept.share(token, temperature));
        Some(token)
    }

    /// Returns the weight of each candidate in the draw.
    pub fn weight(&self, more: &More, is_adaptive: bool, logit: f32, share: f64) -> f64 {
        match is_adaptive {
            true => adaptive::weight(logit, share, adaptive::adapted(more, &self.state)),
            false => share,
        }
    }
}
