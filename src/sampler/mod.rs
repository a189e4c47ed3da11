//! Choosing the next token from the logits.
//!
//! The chain is llama.cpp's default one, in this order: logit bias; penalties for repetition,
//! frequency and presence; top-k; typical; top-p; min-p; temperature; the draw. What follows the
//! penalties may stand in another [order](Params::order). At temperature 0 the best token is taken
//! after the penalties, exactly and without a random number; everywhere ties go to the lower id.
//!
//! No vocabulary is ever sorted: top-k is one pass with a heap of k, top-p over everything takes the
//! best from a heap until it has enough. Memory comes from the caller, its size is known first. The
//! arithmetic is the same on every target, so a seed gives the same tokens everywhere.
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

/// A link of the chain, after bias and penalties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The `top_k` best tokens.
    TopK,
    /// Tokens of about the surprise that is to be expected, `typical_p` of the probability together.
    Typical,
    /// The best tokens that together have the probability `top_p`.
    TopP,
    /// Tokens at least `min_p` times as likely as the best.
    MinP,
    /// Divides the logits by the temperature.
    Temperature,
}

/// How to choose.
///
/// ```
/// use arenite::sampler::Params;
///
/// let careful = Params { temperature: 0.4, top_p: 0.9, repeat_penalty: 1.1, ..Params::DEFAULT };
/// # assert_eq!(careful.top_k, 40);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Logits are divided by this. Below 1 likely tokens become likelier; 0 (or less, or NaN) takes
    /// the best token.
    pub temperature: f32,
    /// How many of the best tokens are considered; 0 is all.
    pub top_k: u32,
    /// Of these, as many of the best as together have this probability; 1 is all.
    pub top_p: f32,
    /// Of these, the ones that are at least this many times as likely as the best; 0 is all.
    pub min_p: f32,
    /// Those whose surprise is nearest to the expected one, as many as together have this
    /// probability; 1 is all.
    pub typical_p: f32,
    /// The links after the penalties, one after the other. One that is not named is left out: without
    /// [`Link::Temperature`] the temperature is 1.
    pub order: [Option<Link>; 5],
    /// Divides the logits of recent tokens if they are positive, multiplies them if not; 1 is off.
    pub repeat_penalty: f32,
    /// Taken from the logit of a recent token for every time that it came up; 0 is off.
    pub frequency_penalty: f32,
    /// Taken from the logit of a recent token once; 0 is off.
    pub presence_penalty: f32,
    /// How many tokens are recent; 0 turns the penalties off.
    pub repeat_last_n: u32,
}

impl Params {
    /// llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties, in
    /// llama.cpp's order.
    pub const DEFAULT: Self = Self {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.05,
        typical_p: 1.0,
        order: [Some(Link::TopK), Some(Link::Typical), Some(Link::TopP), Some(Link::MinP), Some(Link::Temperature)],
        repeat_penalty: 1.0,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
        repeat_last_n: 64,
    };

    /// Always the best token.
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

    /// Tokens to remember.
    const fn history(&self) -> usize {
        let is_off = self.repeat_penalty == 1.0 && self.frequency_penalty == 0.0 && self.presence_penalty == 0.0;
        if is_off { 0 } else { self.repeat_last_n as usize }
    }

    /// How many tokens are weighed against each other in memory; all others only pass by.
    const fn candidates(&self, vocab: usize) -> usize {
        if self.is_greedy() {
            return 0;
        }
        let mut links: &[Option<Link>] = &self.order;
        while let [link, rest @ ..] = links {
            match link {
                Some(Link::TopK) if self.top_k > 0 && (self.top_k as usize) < vocab => return self.top_k as usize,
                Some(Link::TopP) if self.top_p < 1.0 => return vocab,
                Some(Link::Typical) if self.typical_p < 1.0 => return vocab,
                // min-p keeps the best, as top-k does: which comes first is the same.
                _ => {}
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

/// The chain, with its memory of recent tokens. See the [module](self) for an example.
pub struct Sampler<'s> {
    params: Params,
    bias: &'s [(TokenId, f32)],
    vocab: usize,
    history: History<'s>,
    slots: &'s mut [candidates::Slot],
}

impl<'s> Sampler<'s> {
    /// Bytes of memory that [`new`](Self::new) needs: the same on every target.
    ///
    /// 8 bytes for each of the k best, or for each token of the vocabulary if `top_p` or `typical_p`
    /// is below 1 and no top-k comes before it; 8 bytes for each recent token if there are penalties.
    pub const fn scratch_bytes(params: &Params, vocab: usize) -> usize {
        let slots = params.candidates(vocab).saturating_add(params.history());
        slots.saturating_mul(8)
    }

    /// A sampler for a vocabulary of `vocab` tokens. `bias` is added to the logits of its tokens:
    /// minus infinity forbids one. `scratch` may have any alignment.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] if `scratch` has fewer than [`scratch_bytes`](Self::scratch_bytes),
    /// [`Error::TokenOutOfRange`] for a bias of a token that does not exist.
    pub fn new(params: Params, bias: &'s [(TokenId, f32)], vocab: usize, scratch: &'s mut [u8]) -> Result<Self, Error> {
        if let Some((token, _)) = bias.iter().find(|(token, _)| *token as usize >= vocab) {
            let vocab = u32::try_from(vocab).unwrap_or(u32::MAX);
            return Err(Error::TokenOutOfRange { token: *token, vocab });
        }
        let too_small = Error::BufferTooSmall {
            what: "sampler's scratch memory",
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

    /// Remembers a token of the prompt for the penalties, as llama.cpp does. What is sampled is remembered without.
    pub fn accept(&mut self, token: TokenId) {
        self.history.push(token);
    }

    /// Forgets all tokens.
    pub fn reset(&mut self) {
        self.history.clear();
    }

    /// Chooses a token and remembers it for the penalties. Bias and penalties are worked into `logits`.
    ///
    /// Takes exactly one number from `rng`, none at temperature 0. If no token is possible (all are
    /// minus infinity or NaN), it is the first one.
    ///
    /// # Errors
    ///
    /// [`Error::LogitsLength`] if there are not as many logits as tokens, or none.
    pub fn sample(&mut self, logits: &mut [f32], rng: &mut impl Rng) -> Result<TokenId, Error> {
        let token = match self.choose(logits, rng, |_| true) {
            Err(Error::NoTokenAllowed) => 0,
            chosen => chosen?,
        };
        self.history.push(token);
        Ok(token)
    }

    /// As [`sample`](Self::sample), among the tokens that are `allowed` only, as if the logits of all others were minus
    /// infinity. It asks about no more tokens than it has to: for the k best, a few hundred of a hundred thousand.
    ///
    /// # Errors
    ///
    /// As for [`sample`](Self::sample); [`Error::NoTokenAllowed`] if no token is both possible and allowed.
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

        // 53 bits, from 0 to 1 without 1.
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
            let is_on = match link {
                Link::Temperature => {
                    temperature = params.temperature;
                    false
                }
                Link::TopK => params.top_k > 0 && (params.top_k as usize) < self.vocab,
                Link::Typical => params.typical_p < 1.0,
                Link::TopP => params.top_p < 1.0,
                Link::MinP => params.min_p > 0.0,
            };
            if !is_on {
                continue;
            }
            let kept = match (candidates.take(), fresh.take(), link) {
                // Out of all, only what is kept is sorted.
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

/// The token with the highest logit, of equal ones the one with the lowest id; NaN counts as minus
/// infinity. `None` only if there are no logits.
pub fn argmax(logits: &[f32]) -> Option<TokenId> {
    if logits.is_empty() { None } else { Some(best(logits)) }
}
