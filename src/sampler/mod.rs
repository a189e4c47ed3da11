//! Sampling: selects the next token from logits.
//!
//! The chain is llama.cpp's default, in this order: logit bias; repetition, frequency and presence penalties; top-k;
//! typical; top-p; min-p; temperature; the draw. The filters after the penalties can be [reordered](Params::order). At
//! temperature 0 the best token after the penalties is selected, without a random number. Ties always go to the lower
//! id.
//!
//! The vocabulary is never sorted: top-k is one pass with a heap of k, and top-p without top-k pops the best from a
//! heap until it has enough. The caller provides memory, whose size is known in advance. Arithmetic is the same on
//! every target, so a seed gives the same tokens everywhere.
//!
//! A logit that is NaN counts as minus infinity.
//!
//! # Examples
//!
//! ```
//! # fn main() -> Result<(), arenite::Error> {
//! use arenite::sampler::{Params, Pcg32, Sampler};
//!
//! const PARAMS: Params = Params { top_k: 2, ..Params::DEFAULT };
//! let mut scratch = [0; Sampler::scratch_bytes(&PARAMS, 4)];
//! let mut sampler = Sampler::new(PARAMS, &[], 4, &mut scratch)?;
//! let mut rng = Pcg32::new(1);
//!
//! let token = sampler.sample(&mut [0.0, 3.0, 1.0, 3.5], &mut rng)?;
//! assert!(token == 1 || token == 3);
//! # Ok(())
//! # }
//! ```

mod candidates;
mod pcg;
mod penalties;
mod scratch;
mod xorshift;

pub use pcg::Pcg32;
pub use xorshift::Xorshift;

use rand_core::Rng;

use crate::{Error, TokenId};
use candidates::{Candidates, Least, best, best_where, draw_of_all};
use penalties::History;

/// A step of the chain, after bias and penalties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Keeps the `top_k` best tokens.
    TopK,
    /// Keeps the tokens whose surprise (negative log-probability) is nearest to the expected surprise, until together
    /// they have probability `typical_p`.
    Typical,
    /// Keeps the best tokens that together have probability `top_p`.
    TopP,
    /// Keeps tokens at least `min_p` times as probable as the best.
    MinP,
    /// Divides the logits by the temperature.
    Temperature,
}

impl Link {
    /// All steps, in llama.cpp's order.
    pub const ALL: [Self; 5] = [Self::TopK, Self::Typical, Self::TopP, Self::MinP, Self::Temperature];

    /// The steps as a value for [`Params::order`]. Only the first five steps count; without repetitions there are no
    /// more.
    ///
    /// ```
    /// use arenite::sampler::{Link, Params};
    ///
    /// let order = Link::order(&[Link::Temperature, Link::TopP]);
    /// let params = Params { temperature: 1.5, top_p: 0.9, order, ..Params::DEFAULT };
    /// # assert_eq!(params.order.into_iter().flatten().count(), 2);
    /// ```
    pub const fn order(mut links: &[Self]) -> [Option<Self>; Self::ALL.len()] {
        let mut order = [None; Self::ALL.len()];
        let mut places = order.as_mut_slice();
        while let (Some((link, rest)), Some((place, others))) = (links.split_first(), places.split_first_mut()) {
            *place = Some(*link);
            (links, places) = (rest, others);
        }
        order
    }
}

/// Sampling parameters.
///
/// ```
/// use arenite::sampler::Params;
///
/// let careful = Params { temperature: 0.4, top_p: 0.9, repeat_penalty: 1.1, ..Params::DEFAULT };
/// # assert_eq!(careful.top_k, 40);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Divisor of the logits. Below 1, probable tokens become more probable; 0 (or less, or NaN) selects the best
    /// token.
    pub temperature: f32,
    /// Top-k: number of best tokens kept; 0 keeps all.
    pub top_k: u32,
    /// Top-p: keeps the best tokens that together have this probability; 1 keeps all.
    pub top_p: f32,
    /// Min-p: keeps tokens at least this many times as probable as the best; 0 keeps all.
    pub min_p: f32,
    /// Typical sampling: keeps the tokens whose surprise (negative log-probability) is nearest to the expected
    /// surprise, until together they have this probability; 1 keeps all.
    pub typical_p: f32,
    /// Steps after the penalties, in order. Steps not listed are skipped; without [`Link::Temperature`] the temperature
    /// is 1.
    pub order: [Option<Link>; Link::ALL.len()],
    /// Divides positive logits of recent tokens, and multiplies negative ones; 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted from a recent token's logit for each occurrence; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once from a recent token's logit; 0 is off.
    pub presence_penalty: f32,
    /// Number of recent tokens to penalize; 0 turns penalties off.
    pub repeat_last_n: u32,
}

impl Params {
    /// llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties, in llama.cpp's order.
    pub const DEFAULT: Self = Self {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.05,
        typical_p: 1.0,
        order: Link::order(&Link::ALL),
        repeat_penalty: 1.0,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
        repeat_last_n: 64,
    };

    /// Always selects the best token.
    pub const GREEDY: Self = Self { temperature: 0.0, ..Self::DEFAULT };

    const fn is_greedy(&self) -> bool {
        self.has_temperature() && (self.temperature <= 0.0 || self.temperature.is_nan())
    }

    const fn has_temperature(&self) -> bool {
        let mut links: &[Option<Link>] = &self.order;
        while let [link, rest @ ..] = links {
            if matches!(link, Some(Link::Temperature)) {
                return true;
            }
            links = rest;
        }
        false
    }

    /// Number of recent tokens to store.
    const fn history(&self) -> usize {
        let is_off = self.repeat_penalty == 1.0 && self.frequency_penalty == 0.0 && self.presence_penalty == 0.0;
        if is_off { 0 } else { self.repeat_last_n as usize }
    }

    /// True if the step can remove tokens from a vocabulary of `vocab` tokens.
    const fn filters(&self, link: Link, vocab: usize) -> bool {
        match link {
            Link::TopK => self.top_k > 0 && (self.top_k as usize) < vocab,
            Link::Typical => self.typical_p < 1.0,
            Link::TopP => self.top_p < 1.0,
            Link::MinP => self.min_p > 0.0,
            Link::Temperature => false,
        }
    }

    /// Number of candidates to keep in memory; 0 if tokens can be drawn in one pass.
    const fn candidates(&self, vocab: usize) -> usize {
        if self.is_greedy() {
            return 0;
        }
        let mut links: &[Option<Link>] = &self.order;
        while let [link, rest @ ..] = links {
            match link {
                // Min-p and top-k both keep the best tokens, so the order of these two steps does not matter.
                None | Some(Link::MinP) => {}
                Some(link) if !self.filters(*link, vocab) => {}
                Some(Link::TopK) => return self.top_k as usize,
                Some(_) => return vocab,
            }
            links = rest;
        }
        0
    }
}

impl Default for Params {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A sampler with its history of recent tokens. See the [module](self) for an example.
pub struct Sampler<'s> {
    params: Params,
    bias: &'s [(TokenId, f32)],
    vocab: usize,
    history: History<'s>,
    slots: &'s mut [candidates::Slot],
}

impl<'s> Sampler<'s> {
    /// Bytes of scratch that [`new`](Self::new) needs; the same on every target.
    ///
    /// 8 bytes per top-k candidate, or per token of the vocabulary if `top_p` or `typical_p` is below 1 and no top-k
    /// comes first; 8 bytes per recent token if there are penalties.
    pub const fn scratch_bytes(params: &Params, vocab: usize) -> usize {
        let slots = params.candidates(vocab).saturating_add(params.history());
        slots.saturating_mul(8)
    }

    /// Creates a sampler for a vocabulary of `vocab` tokens. `bias` is added to the logits of its tokens; minus
    /// infinity forbids a token. `scratch` may have any alignment.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] if `scratch` is shorter than [`scratch_bytes`](Self::scratch_bytes),
    /// [`Error::TokenOutOfRange`] if `bias` has a token outside the vocabulary.
    pub fn new(params: Params, bias: &'s [(TokenId, f32)], vocab: usize, scratch: &'s mut [u8]) -> Result<Self, Error> {
        if let Some((token, _)) = bias.iter().find(|(token, _)| *token as usize >= vocab) {
            let vocab = u32::try_from(vocab).unwrap_or(u32::MAX);
            return Err(Error::TokenOutOfRange { token: *token, vocab });
        }
        let too_small = Error::BufferTooSmall {
            what: "bytes of scratch memory",
            needed: Self::scratch_bytes(&params, vocab),
            given: scratch.len(),
        };
        let words = scratch.as_chunks_mut::<4>().0;
        let history = params.history();
        let (ring, words) = words.split_at_mut_checked(history).ok_or(too_small)?;
        let (sorted, words) = words.split_at_mut_checked(history).ok_or(too_small)?;
        let slots = words.as_chunks_mut::<2>().0.get_mut(..params.candidates(vocab)).ok_or(too_small)?;
        Ok(Self { params, bias, vocab, history: History::new(ring, sorted), slots })
    }

    /// Adds a token of the prompt to the history, as llama.cpp does. Sampled tokens are added automatically.
    pub fn accept(&mut self, token: TokenId) {
        self.history.push(token);
    }

    /// Clears the history.
    pub fn reset(&mut self) {
        self.history.clear();
    }

    /// Selects a token and adds it to the history. Applies bias and penalties to `logits` in place.
    ///
    /// Takes exactly one number from `rng`, or none at temperature 0.
    ///
    /// # Errors
    ///
    /// [`Error::LogitsLength`] if the number of logits differs from the vocabulary size, or is 0. If all logits are
    /// minus infinity or NaN: [`Error::NotNumbers`] if there is a NaN, else [`Error::NoTokenAllowed`].
    pub fn sample(&mut self, logits: &mut [f32], rng: &mut impl Rng) -> Result<TokenId, Error> {
        let token = match self.choose(logits, rng, |_| true) {
            Err(Error::NoTokenAllowed) if logits.iter().any(|logit| logit.is_nan()) => return Err(Error::NotNumbers),
            chosen => chosen?,
        };
        self.history.push(token);
        Ok(token)
    }

    /// Like [`sample`](Self::sample), but only considers tokens that are `allowed`, as if all other logits were minus
    /// infinity. With top-k, calls `allowed` for only a few hundred tokens out of a hundred thousand.
    ///
    /// # Errors
    ///
    /// Same as [`sample`](Self::sample); [`Error::NoTokenAllowed`] if no token is both possible and allowed.
    pub fn sample_where(
        &mut self,
        logits: &mut [f32],
        rng: &mut impl Rng,
        allowed: impl FnMut(TokenId) -> bool,
    ) -> Result<TokenId, Error> {
        let token = self.choose(logits, rng, allowed)?;
        self.history.push(token);
        Ok(token)
    }

    fn choose(
        &mut self,
        logits: &mut [f32],
        rng: &mut impl Rng,
        mut allowed: impl FnMut(TokenId) -> bool,
    ) -> Result<TokenId, Error> {
        if logits.len() != self.vocab || logits.is_empty() {
            return Err(Error::LogitsLength { vocab: self.vocab, given: logits.len() });
        }
        let params = &self.params;
        for (token, bias) in self.bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        self.history.apply(params, logits);
        if params.is_greedy() {
            return best_where(logits, &mut allowed).ok_or(Error::NoTokenAllowed);
        }

        // A number in [0, 1) with 53 random bits.
        let random = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let weighs_all = self.slots.is_empty() || self.slots.len() == self.vocab;
        if weighs_all {
            let forbidden =
                logits.iter_mut().zip(0..).filter(|(logit, id)| **logit > f32::NEG_INFINITY && !allowed(*id));
            forbidden.for_each(|(logit, _)| *logit = f32::NEG_INFINITY);
        }
        let mut allowed = |token| weighs_all || allowed(token);
        let mut temperature = 1.0;
        if self.slots.is_empty() {
            let mut least = Least::NONE;
            for link in params.order.into_iter().flatten() {
                match link {
                    Link::Temperature => temperature = params.temperature,
                    Link::MinP => least = Least::of(params.min_p, temperature),
                    Link::TopK | Link::Typical | Link::TopP => {}
                }
            }
            return draw_of_all(logits, least, temperature, random).ok_or(Error::NoTokenAllowed);
        }
        let (mut fresh, mut candidates) = (Some(&mut *self.slots), None);
        for link in params.order.into_iter().flatten() {
            if link == Link::Temperature {
                temperature = params.temperature;
            }
            if !params.filters(link, self.vocab) {
                continue;
            }
            let kept = match (candidates.take(), fresh.take(), link) {
                // If all tokens are candidates, only the kept ones are sorted.
                (None, Some(slots), Link::TopP) if slots.len() == self.vocab => {
                    candidates = Some(Candidates::nucleus(slots, logits, params.top_p, temperature));
                    continue;
                }
                (Some(kept), ..) => kept,
                (None, slots, _) => Candidates::best(slots.unwrap_or_default(), logits, &mut allowed),
            };
            candidates = Some(match link {
                Link::TopK => kept.top_k(params.top_k as usize),
                Link::Typical => kept.typical(params.typical_p, temperature),
                Link::TopP => kept.top_p(params.top_p, temperature),
                Link::MinP => kept.min_p(Least::of(params.min_p, temperature)),
                Link::Temperature => kept,
            });
        }
        candidates.and_then(|kept| kept.draw(temperature, random)).ok_or(Error::NoTokenAllowed)
    }
}

impl core::fmt::Debug for Sampler<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sampler").field("params", &self.params).field("vocab", &self.vocab).finish_non_exhaustive()
    }
}

/// The token with the highest logit; ties go to the lowest id. NaN counts as minus infinity. `None` only if there are
/// no logits.
pub fn argmax(logits: &[f32]) -> Option<TokenId> {
    if logits.is_empty() { None } else { Some(best(logits)) }
}
