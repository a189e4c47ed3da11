//! The sampling steps that need the feature `samplers`: where each step is called, and the state that the steps keep
//! during an answer.

use super::candidates::{Candidates, Slot};
use super::dry::{Breakers, Dry};
use super::more::{Mirostat, More, State};
use super::scratch::Word;
use super::{Link, adaptive, mirostat};
use crate::TokenId;

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

    /// Applies the temperature step in the cases in which a plain division does not suffice: the temperature depends on
    /// the candidates, or the temperature is 0 and only the best candidate remains. Returns the temperature for the
    /// draw.
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

    /// Draws a candidate by Mirostat, by adaptive-p or by probability. Updates the state of Mirostat or adaptive-p.
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
