//! Sampling: selects the next token from logits.
//!
//! The steps are llama.cpp's default chain, in this order: logit bias; repetition, frequency and presence penalties;
//! DRY; top-n-sigma; top-k; typical; top-p; min-p; XTC; temperature; the draw. The steps after the penalties can be
//! [reordered](Params::order). At temperature 0 the best token after the penalties is selected, without a random
//! number. If logits are equal, the lower id always wins.
//!
//! DRY, top-n-sigma, XTC, dynamic temperature, Mirostat, adaptive-p and a minimum number of tokens to keep are
//! parameters in [`More`]. They need the feature `samplers`, so that firmware does not pay for them.
//!
//! The vocabulary is never sorted: top-k is one pass with a heap of k, and top-p without top-k pops the best tokens
//! from a heap until their probability suffices. The caller provides the memory, whose size is known in advance.
//! Arithmetic is the same on every target, so that a seed gives the same tokens everywhere.
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

#[cfg(feature = "samplers")]
mod adaptive;
mod candidates;
#[cfg(feature = "samplers")]
mod dry;
#[cfg(feature = "samplers")]
mod memory;
#[cfg(feature = "samplers")]
mod mirostat;
#[cfg_attr(not(feature = "samplers"), path = "none.rs")]
mod more;
mod pcg;
mod penalties;
mod ring;
mod scratch;
mod xorshift;

#[cfg(feature = "samplers")]
pub use dry::{Breaker, Breakers};
pub use more::More;
#[cfg(feature = "samplers")]
pub use more::{Mirostat, State};
pub use pcg::Pcg32;
pub use xorshift::Xorshift;

use rand_core::Rng;

use crate::{Error, TokenId};
use candidates::{Candidates, Least, best, best_where, draw_of_all};
#[cfg(feature = "samplers")]
use memory::Memory;
#[cfg(not(feature = "samplers"))]
use more::Memory;
use penalties::History;

/// A step of the chain, after bias and penalties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// DRY: lowers the logits of tokens that continue a repetition ([`More`]).
    Dry,
    /// Makes tokens impossible whose logit is more than `top_n_sigma` standard deviations below the highest logit
    /// ([`More`]).
    TopNSigma,
    /// Keeps the `top_k` best tokens.
    TopK,
    /// Keeps the tokens whose surprise (negative log-probability) is nearest to the expected surprise, until the kept
    /// tokens together have probability `typical_p`.
    Typical,
    /// Keeps the best tokens that together have probability `top_p`.
    TopP,
    /// Keeps tokens that are at least `min_p` times as probable as the best token.
    MinP,
    /// XTC, "exclude top choices": in some draws, at random, removes all tokens above a probability except the least
    /// probable of them (see [`More`]).
    Xtc,
    /// Divides the logits by the temperature.
    Temperature,
    /// Adaptive-p: the draw prefers tokens near a probability ([`More`]). This is the last step, wherever it is listed.
    AdaptiveP,
}

impl Link {
    /// All steps, in llama.cpp's order.
    pub const ALL: [Self; 9] = [
        Self::Dry,
        Self::TopNSigma,
        Self::TopK,
        Self::Typical,
        Self::TopP,
        Self::MinP,
        Self::Xtc,
        Self::Temperature,
        Self::AdaptiveP,
    ];

    /// The given steps as a value for [`Params::order`]. Only the first nine steps count, because there are only nine
    /// different steps.
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
    /// Top-p: keeps the best tokens that together have this probability; 1 keeps all tokens.
    pub top_p: f32,
    /// Min-p: keeps tokens that are at least this many times as probable as the best token; 0 keeps all tokens.
    pub min_p: f32,
    /// Typical sampling: keeps the tokens whose surprise (negative log-probability) is nearest to the expected
    /// surprise, until the kept tokens together have this probability; 1 keeps all tokens.
    pub typical_p: f32,
    /// The steps of the sampler that follow the penalties, in the order in which they run. A step that is not listed is
    /// skipped; without [`Link::Temperature`] the temperature is 1.
    pub order: [Option<Link>; Link::ALL.len()],
    /// Divides the positive logits of recent tokens, and multiplies their negative logits; 1 is off.
    pub repeat_penalty: f32,
    /// Value that is subtracted from a recent token's logit for each occurrence of the token; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once from a recent token's logit; 0 is off.
    pub presence_penalty: f32,
    /// Number of recent tokens to penalize; 0 turns penalties off.
    pub repeat_last_n: u32,
    /// Parameters of further steps.
    pub more: More,
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
        more: More::OFF,
    };

    /// Always selects the best token.
    pub const GREEDY: Self = Self { temperature: 0.0, ..Self::DEFAULT };

    /// True if the best token after the penalties is selected.
    const fn is_greedy(&self) -> bool {
        self.is_cold() && (self.more.is_mirostat() || self.keeps_best())
    }

    /// True if the temperature leaves one token.
    const fn is_cold(&self) -> bool {
        (self.temperature <= 0.0 || self.temperature.is_nan()) && !self.more.is_dynamic()
    }

    /// True if `order` has a temperature step, and if no step before it can change which token is the best. (DRY as the
    /// first step can be ignored: it lowers logits of all tokens, as the penalties do.)
    const fn keeps_best(&self) -> bool {
        let mut links: &[Option<Link>] = &self.order;
        let mut is_first = true;
        while let [link, rest @ ..] = links {
            match link {
                Some(Link::Temperature) => return true,
                Some(Link::Xtc) if self.more.filters(Link::Xtc) => return false,
                Some(Link::Dry) if !is_first && self.more.filters(Link::Dry) => return false,
                Some(Link::Dry) | None => {}
                Some(_) => is_first = false,
            }
            links = rest;
        }
        false
    }

    /// Number of recent tokens that a sampler needs. Earlier tokens have no effect.
    pub const fn history_len(&self) -> usize {
        let (penalties, more) = (self.history(), self.more.history());
        if penalties > more { penalties } else { more }
    }

    /// Number of recent tokens to store for the penalties.
    const fn history(&self) -> usize {
        let is_off = self.repeat_penalty == 1.0 && self.frequency_penalty == 0.0 && self.presence_penalty == 0.0;
        if is_off { 0 } else { self.repeat_last_n as usize }
    }

    /// True if a step can remove tokens, if the vocabulary has `vocab` tokens. With some parameters, a step has no
    /// effect.
    const fn filters(&self, link: Link, vocab: usize) -> bool {
        match link {
            Link::TopK => self.top_k > 0 && (self.top_k as usize) < vocab,
            Link::Typical => self.typical_p < 1.0,
            Link::TopP => self.top_p < 1.0,
            Link::MinP => self.min_p > 0.0,
            Link::Temperature => self.more.cools(self.temperature),
            Link::Dry | Link::TopNSigma | Link::Xtc | Link::AdaptiveP => self.more.filters(link),
        }
    }

    /// True if the step is listed and can remove tokens.
    const fn uses(&self, wanted: Link) -> bool {
        let mut links: &[Option<Link>] = &self.order;
        while let [link, rest @ ..] = links {
            if matches!(link, Some(link) if *link as u8 == wanted as u8) {
                return self.filters(wanted, usize::MAX);
            }
            links = rest;
        }
        false
    }

    /// Number of candidate tokens that the sampler must keep in memory. 0 if the token can be drawn in one pass over
    /// the logits.
    const fn candidates(&self, vocab: usize) -> usize {
        if self.is_greedy() {
            return 0;
        }
        if self.more.is_mirostat() {
            return vocab;
        }
        let mut links: &[Option<Link>] = &self.order;
        let mut has_all = true;
        while let [link, rest @ ..] = links {
            match link {
                None => {}
                Some(link) if !self.filters(*link, vocab) => {}
                // After min-p, top-k still limits the number of candidates: both steps keep the best tokens, so their
                // order does not matter.
                Some(Link::MinP) if self.more.min_keep() <= 1 => has_all = false,
                Some(Link::TopK) => return self.top_k as usize,
                // These change the logits.
                Some(Link::Dry | Link::TopNSigma) if has_all => {}
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

/// A sampler and its history of recent tokens. See the [module](self) for an example.
pub struct Sampler<'s> {
    params: Params,
    bias: &'s [(TokenId, f32)],
    vocab: usize,
    history: History<'s>,
    memory: Memory<'s>,
    slots: &'s mut [candidates::Slot],
}

impl<'s> Sampler<'s> {
    /// Number of bytes of scratch memory that [`new`](Self::new) needs. It is the same on every target.
    ///
    /// 8 bytes per top-k candidate, or per token of the vocabulary if `top_p` or `typical_p` is below 1 and no top-k
    /// comes first; 8 bytes per recent token if there are penalties. XTC, dynamic temperature, Mirostat and adaptive-p
    /// need 8 bytes per token of the vocabulary, like `typical_p`. DRY needs 12 bytes per recent token.
    pub const fn scratch_bytes(params: &Params, vocab: usize) -> usize {
        let slots = params.candidates(vocab).saturating_add(params.history());
        slots.saturating_mul(8).saturating_add(params.more.words().saturating_mul(4))
    }

    /// Creates a sampler for a vocabulary of `vocab` tokens. `bias` has pairs of a token and a number that is added to
    /// the token's logit; minus infinity forbids the token. `scratch` may have any alignment.
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
        let (further, words) = words.split_at_mut_checked(params.more.words()).ok_or(too_small)?;
        let slots = words.as_chunks_mut::<2>().0.get_mut(..params.candidates(vocab)).ok_or(too_small)?;
        let memory = Memory::new(&params.more, further);
        Ok(Self { params, bias, vocab, history: History::new(ring, sorted), memory, slots })
    }

    /// Adds a token of the prompt to the history, as llama.cpp does. Sampled tokens are added automatically.
    pub fn accept(&mut self, token: TokenId) {
        self.history.push(token);
        self.memory.push(token);
    }

    /// Clears the history and the state of Mirostat and adaptive-p.
    pub fn reset(&mut self) {
        self.history.clear();
        self.memory.clear(&self.params.more);
    }

    /// Selects a token and adds it to the history. Applies bias and penalties to `logits` in place.
    ///
    /// Takes exactly one number from `rng`, or none at temperature 0; XTC takes a second number.
    ///
    /// # Errors
    ///
    /// [`Error::LogitsLength`] if the number of logits differs from the vocabulary size, or is 0. If all logits are
    /// minus infinity or NaN: [`Error::NotNumbers`] if there is a NaN, otherwise [`Error::NoTokenAllowed`].
    pub fn sample(&mut self, logits: &mut [f32], rng: &mut impl Rng) -> Result<TokenId, Error> {
        let token = match self.choose(logits, rng, |_| true) {
            Err(Error::NoTokenAllowed) if logits.iter().any(|logit| logit.is_nan()) => return Err(Error::NotNumbers),
            chosen => chosen?,
        };
        self.accept(token);
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
        self.accept(token);
        Ok(token)
    }

    fn choose(
        &mut self,
        logits: &mut [f32],
        rng: &mut impl Rng,
        mut allowed: impl FnMut(TokenId) -> bool,
    ) -> Result<TokenId, Error> {
        self.penalize(logits)?;
        if self.params.is_greedy() {
            return best_where(logits, &mut allowed).ok_or(Error::NoTokenAllowed);
        }
        let random = uniform(rng);
        let Self { params, memory, slots, .. } = self;
        let left = filter((params, memory, slots), logits, rng, allowed);
        let chosen = match left.candidates {
            None => draw_of_all(logits, left.least, left.temperature, random),
            Some(kept) => memory.draw(&params.more, params.uses(Link::AdaptiveP), &kept, left.temperature, random),
        };
        chosen.ok_or(Error::NoTokenAllowed)
    }

    /// Applies bias and penalties.
    fn penalize(&mut self, logits: &mut [f32]) -> Result<(), Error> {
        if logits.len() != self.vocab || logits.is_empty() {
            return Err(Error::LogitsLength { vocab: self.vocab, given: logits.len() });
        }
        for (token, bias) in self.bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        self.history.apply(&self.params, logits);
        if self.params.is_greedy() && self.params.uses(Link::Dry) {
            self.memory.apply_to_all(&self.params.more, Link::Dry, logits, 1.0);
        }
        Ok(())
    }
}

#[cfg(feature = "samplers")]
impl<'s> Sampler<'s> {
    /// Sets the sequences that end a repetition for DRY.
    #[must_use]
    pub fn with_breakers(mut self, breakers: Breakers<'s>) -> Self {
        self.memory.set_breakers(breakers);
        self
    }

    /// The state of Mirostat and adaptive-p.
    pub fn state(&self) -> State {
        self.memory.state
    }

    /// Sets the state of Mirostat and adaptive-p, for example to the state of a different sampler.
    pub fn set_state(&mut self, state: State) {
        self.memory.state = state;
    }

    /// Calls `see` for each token that could be drawn next, with the token, its logit divided by the temperature, and
    /// its probability. Applies bias and penalties to `logits` in place. Does not choose a token.
    ///
    /// # Errors
    ///
    /// [`Error::LogitsLength`] as in [`sample`](Self::sample).
    pub fn candidates(
        &mut self,
        logits: &mut [f32],
        rng: &mut impl Rng,
        mut see: impl FnMut(TokenId, f32, f64),
    ) -> Result<(), Error> {
        self.penalize(logits)?;
        let Self { params, memory, slots, .. } = self;
        if params.is_greedy() {
            if let Some(token) = best_where(logits, &mut |_| true) {
                see(token, logits.get(token as usize).copied().unwrap_or_default(), 1.0);
            }
            return Ok(());
        }
        let left = filter((params, memory, slots), logits, rng, |_| true);
        let temperature = left.temperature;
        let Some(kept) = left.candidates else {
            let shares = candidates::shares_of_all(logits, left.least, temperature);
            shares
                .filter(|(_, logit, _)| *logit > f32::NEG_INFINITY)
                .for_each(|(token, logit, share)| see(token, logit / temperature, share));
            return Ok(());
        };
        let is_adaptive = params.uses(Link::AdaptiveP) && !params.more.is_mirostat();
        let weight = |logit, share| memory.weight(&params.more, is_adaptive, logit, share);
        let shares = || kept.shares(temperature).filter(|(_, logit, _)| *logit > f32::NEG_INFINITY);
        let total: f64 = shares().map(|(_, logit, share)| weight(logit, share)).sum();
        shares().for_each(|(token, logit, share)| see(token, logit / temperature, weight(logit, share) / total));
        Ok(())
    }
}

/// A number in [0, 1) with 53 random bits.
fn uniform(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The tokens from which one is drawn after all other steps of the sampler: a list of candidates or, if there is none,
/// all tokens above a limit.
struct Left<'l> {
    candidates: Option<Candidates<'l>>,
    least: Least,
    temperature: f32,
}

/// Applies the steps after the penalties.
fn filter<'l>(
    (params, memory, slots): (&Params, &mut Memory<'_>, &'l mut [candidates::Slot]),
    logits: &mut [f32],
    rng: &mut impl Rng,
    mut allowed: impl FnMut(TokenId) -> bool,
) -> Left<'l> {
    let vocab = logits.len();
    // If all tokens are weighed, forbidden tokens are removed first, because draws from all tokens, and the deviation
    // of top-n-sigma, must leave out forbidden tokens.
    let weighs_all = slots.is_empty() || slots.len() == vocab || params.uses(Link::TopNSigma);
    if weighs_all {
        let forbidden = logits.iter_mut().zip(0..).filter(|(logit, id)| **logit > f32::NEG_INFINITY && !allowed(*id));
        forbidden.for_each(|(logit, _)| *logit = f32::NEG_INFINITY);
    }
    let mut allowed = |token| weighs_all || allowed(token);
    let mut left = Left { candidates: None, least: Least::NONE, temperature: 1.0 };
    let (more, min_keep) = (&params.more, params.more.min_keep());
    if more.is_mirostat() {
        left.temperature = params.temperature;
        left.candidates = Some(memory.mirostat(more, slots, logits, left.temperature));
        return left;
    }
    let draws_of_all = slots.is_empty();
    let mut fresh = Some(slots);
    for link in params.order.into_iter().flatten() {
        if link == Link::Temperature {
            left.temperature = params.temperature;
        }
        if !params.filters(link, vocab) {
            continue;
        }
        if left.candidates.is_none() && matches!(link, Link::Dry | Link::TopNSigma) {
            memory.apply_to_all(more, link, logits, left.temperature);
            continue;
        }
        if draws_of_all {
            left.least = Least::of(params.min_p, left.temperature);
            continue;
        }
        let temperature = left.temperature;
        let kept = match (left.candidates.take(), fresh.take(), link) {
            // If the whole vocabulary is a candidate, top-p finds the tokens that it keeps without sorting the others.
            (None, Some(slots), Link::TopP) if slots.len() == vocab => {
                left.candidates = Some(Candidates::nucleus(slots, logits, params.top_p, min_keep, temperature));
                continue;
            }
            (Some(kept), ..) => kept,
            (None, slots, _) => Candidates::best(slots.unwrap_or_default(), logits, &mut allowed),
        };
        left.candidates = Some(match link {
            Link::TopK => kept.top_k(params.top_k as usize),
            #[cfg(feature = "samplers")]
            Link::Typical if params.uses(Link::TopNSigma) => {
                kept.typical_by_no_number(params.typical_p, min_keep, temperature)
            }
            Link::Typical => kept.typical(params.typical_p, min_keep, temperature),
            Link::TopP => kept.top_p(params.top_p, min_keep, temperature),
            Link::MinP => kept.min_p(Least::of(params.min_p, temperature), min_keep),
            Link::Temperature => {
                let (kept, temperature) = Memory::cool(more, params.temperature, kept);
                left.temperature = temperature;
                kept
            }
            Link::Dry | Link::TopNSigma | Link::Xtc | Link::AdaptiveP => {
                memory.apply(more, link, kept, temperature, || uniform(rng))
            }
        });
    }
    left
}

impl core::fmt::Debug for Sampler<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sampler").field("params", &self.params).field("vocab", &self.vocab).finish_non_exhaustive()
    }
}

/// The token with the highest logit. If logits are equal, the lowest id wins. NaN counts as minus infinity. `None` only
/// if there are no logits.
pub fn argmax(logits: &[f32]) -> Option<TokenId> {
    if logits.is_empty() { None } else { Some(best(logits)) }
}
