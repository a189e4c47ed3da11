//! Beam search: finds the most probable outputs of a decoder with cross-attention by following several hypotheses at
//! once.
//!
//! Each hypothesis is a fork of the text's context. The forks share the keys and values of the text and of common
//! prefixes, and one pass runs all hypotheses.
//!
//! # Examples
//!
//! ```
//! use arenite::beam::{Beams, Search};
//! use arenite::tokenizer::{Encode, Tokenizer};
//! use arenite::{Engine, Gguf, Line, Model, Options, Plan};
//!
//! # // Too large for the published package.
//! # let Ok(file) = std::fs::read("host-demo/models/translator.gguf") else { return Ok(println!("SKIP: no translator")) };
//! let gguf = Gguf::parse(&file)?;
//! let model = Model::new(&gguf)?;
//! let plan = Plan::new(&gguf, Options::new().context(32).contexts(5))?; // the text, and four beams
//! let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
//! let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
//! let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
//!
//! let mut index = vec![0; Tokenizer::index_bytes(&gguf)?];
//! let tokenizer = Tokenizer::new(&gguf, &mut index)?;
//! let text = b"I love my mother.";
//! let mut scratch = vec![0; Tokenizer::scratch_bytes(text.len())];
//! let ids = tokenizer.encode_list::<32>(text, Encode { add_special: true, parse_special: false }, &mut scratch)?;
//!
//! let mut context = engine.open()?;
//! engine.encode(&mut context, &ids)?;
//! let start = gguf.u32("seq2seq", "decoder_start_token_id")?.unwrap_or_default();
//! let search = Search { beams: 4, length: 32, length_penalty: 1.0, start, end: tokenizer.eos(), banned: None };
//! let mut memory = vec![Line::ZERO; Beams::bytes(&plan).div_ceil(64)];
//! let mut found = Beams::search(&mut engine, &context, &search, Line::bytes_mut(&mut memory))?;
//! let best = found.hypothesis(0).unwrap();
//!
//! let (mut decoder, mut translation) = (tokenizer.decoder(), String::new());
//! for id in best.tokens {
//!     decoder.push(*id, &tokenizer, |text| translation.push_str(text))?;
//! }
//! decoder.finish(|text| translation.push_str(text));
//! assert_eq!(translation.trim(), "मैं अपनी माँ से प्यार करता हूँ ।");
//! # Ok::<(), arenite::Error>(())
//! ```

use bytemuck::{Pod, Zeroable};
use heapless::Vec;

use crate::engine::{Context, Engine, Plan, Work};
use crate::memory::Arena;
use crate::{Error, TokenId};

/// Maximum number of beams.
pub const MAX_BEAMS: usize = 64;

/// Parameters of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// Number of hypotheses to follow, at least 1. With 1 the search is greedy.
    pub beams: usize,
    /// Maximum number of tokens in a hypothesis; at most the context length.
    pub length: usize,
    /// Exponent of the length penalty: the score of a hypothesis of `n` tokens is its log-probability divided by
    /// `n.powf(length_penalty)`. With 0 the length has no influence, with 1 the score is the mean per token.
    pub length_penalty: f32,
    /// First token of the decoder's input.
    pub start: TokenId,
    /// Token that ends a hypothesis, if any. The token counts towards the length.
    pub end: Option<TokenId>,
    /// A token that is never chosen, such as padding.
    pub banned: Option<TokenId>,
}

/// A result of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hypothesis<'h> {
    /// Tokens without the start and end token.
    pub tokens: &'h [TokenId],
    /// Score by which hypotheses are ranked: see [`Search::length_penalty`].
    pub score: f32,
}

/// Results of a search, best first.
pub struct Beams<'w> {
    /// The tree of all hypotheses, `[length][beams]`. A node has a token and the index of the parent node in the
    /// previous step.
    nodes: &'w mut [Node],
    found: &'w mut [Found],
    /// Buffer for the tokens of one hypothesis.
    tokens: &'w mut [TokenId],
    beams: usize,
    count: usize,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Node {
    token: TokenId,
    parent: u32,
}

/// A finished hypothesis.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Found {
    score: f32,
    /// Number of nodes of the hypothesis: one for each step.
    steps: u32,
    /// Index of the hypothesis's last node among the nodes of the last step.
    beam: u32,
}

/// A token by which the hypothesis with index `beam` can continue, and the score of the result.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Candidate {
    score: f32,
    token: TokenId,
    beam: u32,
}

/// Inserts `item` into the first `count` items of `list`, which are in descending order of score. A full list loses its
/// last item. Items with equal scores stay in the order of insertion.
fn insert<T: Copy>(list: &mut [T], count: &mut usize, item: T, score: impl Fn(&T) -> f32) {
    let Some(kept) = list.get(..*count) else { return };
    let at = kept.partition_point(|other| score(other) >= score(&item));
    if at >= list.len() {
        return;
    }
    *count = (*count + 1).min(list.len());
    if let Some(moved) = list.get_mut(at..*count).filter(|moved| !moved.is_empty()) {
        moved.rotate_right(1);
        if let Some(place) = moved.first_mut() {
            *place = item;
        }
    }
}

impl<'w> Beams<'w> {
    /// Number of beams that an engine with this plan supports: one less than the planned contexts, because one context
    /// holds the text.
    pub const fn planned(plan: &Plan) -> usize {
        let contexts = plan.options.contexts.saturating_sub(1);
        if contexts < MAX_BEAMS { contexts } else { MAX_BEAMS }
    }

    /// Number of bytes of memory for a search with the planned number of beams and the planned context length.
    pub const fn bytes(plan: &Plan) -> usize {
        let (beams, length) = (Self::planned(plan), plan.options.context);
        let nodes = Arena::padded(length.saturating_mul(beams * size_of::<Node>()));
        let lists = Arena::padded(beams * size_of::<Found>()) + Arena::padded(2 * beams * size_of::<Candidate>());
        let rest = lists + 3 * Arena::padded(beams * 4);
        nodes.saturating_add(rest).saturating_add(Arena::padded(length.saturating_mul(4)))
    }

    /// Searches for outputs for the text that `context` has [encoded](Engine::encode). `memory` has
    /// [`bytes`](Self::bytes) bytes and starts on an [`ALIGN`](crate::memory::ALIGN) boundary.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyBeams`]; [`Error::BufferTooSmall`] and [`Error::Misaligned`] for `memory`;
    /// [`Error::NoTokenAllowed`] if the logits of all hypotheses become NaN before one ends; and the errors of
    /// [`Engine::run`].
    pub fn search(
        engine: &mut Engine<'_, '_>,
        context: &Context,
        search: &Search,
        memory: &'w mut [u8],
    ) -> Result<Self, Error> {
        let plan = *engine.plan();
        let (planned, beams) = (Self::planned(&plan), search.beams.max(1));
        if beams > planned {
            return Err(Error::TooManyBeams { planned, given: beams });
        }
        let mut hypotheses = Hypotheses::default();
        let mut state = State::new(search, beams, &plan, memory)?;
        let result = hypotheses
            .add(engine.fork_at(context, 0))
            .and_then(|()| (0..state.length).try_for_each(|step| state.step(step, search, engine, &mut hypotheses)));
        // Contexts are closed on errors as well.
        hypotheses.close(engine);
        result?;
        let State { nodes, found, tokens, beams, count, .. } = state;
        if count == 0 {
            return Err(Error::NoTokenAllowed);
        }
        Ok(Self { nodes, found, tokens, beams, count })
    }

    /// Number of results: at least 1, at most the number of beams.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The result of this rank, 0 for the best.
    pub fn hypothesis(&mut self, rank: usize) -> Option<Hypothesis<'_>> {
        let Found { score, steps, mut beam } = *self.found.get(..self.count)?.get(rank)?;
        let tokens = self.tokens.get_mut(..steps as usize)?;
        for (step, place) in tokens.iter_mut().enumerate().rev() {
            let node = self.nodes.get(step * self.beams + beam as usize)?;
            *place = node.token;
            beam = node.parent;
        }
        Some(Hypothesis { tokens, score })
    }
}

/// Contexts of the active hypotheses, in order.
#[derive(Default)]
struct Hypotheses(Vec<Option<Context>, MAX_BEAMS>);

impl Hypotheses {
    fn add(&mut self, context: Result<Context, Error>) -> Result<(), Error> {
        // Cannot fail: there are at most `MAX_BEAMS`.
        let _ = self.0.push(Some(context?));
        Ok(())
    }

    /// Replaces each hypothesis's context by the contexts of the hypothesis's children; `parents` has the index of each
    /// child's parent. The last child of a parent gets the parent's context, the other children get forks of it.
    fn follow(&mut self, parents: &[u32], engine: &mut Engine<'_, '_>) -> Result<(), Error> {
        for (beam, context) in (0..).zip(&mut self.0) {
            if !parents.contains(&beam)
                && let Some(context) = context.take()
            {
                engine.close(context);
            }
        }
        let mut children = Self::default();
        for (i, parent) in parents.iter().enumerate() {
            let Some(place) = self.0.get_mut(*parent as usize) else { continue };
            let is_last = parents.get(i + 1..).is_none_or(|later| !later.contains(parent));
            let child = match place.as_ref() {
                Some(context) if !is_last => engine.fork(context),
                _ => place.take().ok_or(Error::ForeignContext),
            };
            if let Err(error) = children.add(child) {
                children.close(engine);
                return Err(error);
            }
        }
        *self = children;
        Ok(())
    }

    fn close(&mut self, engine: &mut Engine<'_, '_>) {
        self.0.iter_mut().filter_map(Option::take).for_each(|context| engine.close(context));
        self.0.clear();
    }
}

/// State of a running search.
struct State<'w> {
    nodes: &'w mut [Node],
    found: &'w mut [Found],
    /// Number of results so far.
    count: usize,
    candidates: &'w mut [Candidate],
    /// The scores, parent nodes and last tokens of the active hypotheses. Only the first `live` entries are in use.
    scores: &'w mut [f32],
    parents: &'w mut [u32],
    inputs: &'w mut [TokenId],
    live: usize,
    tokens: &'w mut [TokenId],
    beams: usize,
    /// Maximum number of steps.
    length: usize,
}

impl<'w> State<'w> {
    /// Creates the state of a search: a single active hypothesis, which has no tokens yet.
    fn new(search: &Search, beams: usize, plan: &Plan, memory: &'w mut [u8]) -> Result<Self, Error> {
        let needed = Beams::bytes(plan);
        let short = Error::BufferTooSmall { what: "bytes for beam search", needed, given: memory.len() };
        let length = search.length.min(plan.options.context).max(1);
        let mut arena = Arena::new(memory)?;
        let mut state = Self {
            nodes: arena.take(length * beams).ok_or(short)?,
            found: arena.take(beams).ok_or(short)?,
            count: 0,
            candidates: arena.take(2 * beams).ok_or(short)?,
            scores: arena.take(beams).ok_or(short)?,
            parents: arena.take(beams).ok_or(short)?,
            inputs: arena.take(beams).ok_or(short)?,
            live: 0,
            tokens: arena.take(length).ok_or(short)?,
            beams,
            length,
        };
        state.follow(0, Candidate { score: 0.0, token: search.start, beam: 0 });
        Ok(state)
    }

    /// Makes a candidate an active hypothesis. `row` is the index of the first node in the tree for the candidate's
    /// step.
    fn follow(&mut self, row: usize, candidate: Candidate) {
        let Candidate { score, token, beam } = candidate;
        let Self { nodes, scores, parents, inputs, live, .. } = self;
        let places = (nodes.get_mut(row + *live), scores.get_mut(*live), parents.get_mut(*live), inputs.get_mut(*live));
        if let (Some(node), Some(to), Some(parent), Some(input)) = places {
            (*node, *to, *parent, *input) = (Node { token, parent: beam }, score, beam, token);
            *live += 1;
        }
    }

    /// Runs a step of the search: adds a token to every active hypothesis. Does nothing if no hypothesis is active.
    fn step(
        &mut self,
        step: usize,
        search: &Search,
        engine: &mut Engine<'_, '_>,
        hypotheses: &mut Hypotheses,
    ) -> Result<(), Error> {
        if self.live == 0 {
            return Ok(());
        }
        if step > 0 {
            hypotheses.follow(self.parents.get(..self.live).unwrap_or(&[]), engine)?;
        }
        let mut works: Vec<Work<'_>, MAX_BEAMS> = Vec::new();
        for (context, token) in hypotheses.0.iter_mut().flatten().zip(&*self.inputs) {
            let _ = works.push(Work::decode(context, *token));
        }
        engine.run(&mut works)?;
        drop(works);

        let chosen = self.choose(search, engine, hypotheses);
        let normed = |score: f32| score / libm::powf((step + 1) as f32, search.length_penalty);
        // Hypotheses that end with this token become results. The best of the other hypotheses continue.
        self.live = 0;
        for rank in 0..chosen {
            let Some(&candidate) = self.candidates.get(rank) else { break };
            if Some(candidate.token) == search.end {
                // There are twice as many candidates as beams, so that enough hypotheses continue even if one candidate
                // of each beam ends. A candidate that ends is dropped unless it is among the best `beams`.
                if rank < self.beams {
                    let ended = Found { score: normed(candidate.score), steps: step as u32, beam: candidate.beam };
                    insert(self.found, &mut self.count, ended, |found| found.score);
                }
            } else if self.live < self.beams {
                self.follow(step * self.beams, candidate);
            }
        }
        let best = match self.scores.first() {
            Some(score) if self.live > 0 => normed(*score),
            _ => f32::NEG_INFINITY,
        };
        let settled = match self.beams {
            1 => self.count > 0,
            beams => self.count == beams && self.found.last().is_some_and(|worst| worst.score >= best),
        };
        if settled {
            self.live = 0;
        } else if step + 1 == self.length {
            for (beam, score) in (0..).zip(self.scores.iter().take(self.live)) {
                let cut = Found { score: normed(*score), steps: step as u32 + 1, beam };
                insert(self.found, &mut self.count, cut, |found| found.score);
            }
        }
        Ok(())
    }

    /// Stores the best continuations of all active hypotheses in `candidates`, best first, and returns their number.
    fn choose(&mut self, search: &Search, engine: &Engine<'_, '_>, hypotheses: &Hypotheses) -> usize {
        let mut chosen = 0;
        for ((beam, context), score) in (0..).zip(&hypotheses.0).zip(&*self.scores) {
            let Some(context) = context else { continue };
            let logits = engine.logits(context);
            let total = log_sum(logits);
            for (token, logit) in (0..).zip(logits).filter(|(token, _)| Some(*token) != search.banned) {
                let candidate = Candidate { score: score + (logit - total), token, beam };
                if !candidate.score.is_nan() {
                    insert(self.candidates, &mut chosen, candidate, |candidate| candidate.score);
                }
            }
        }
        chosen
    }
}

impl core::fmt::Debug for Beams<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Beams").field("count", &self.count).finish_non_exhaustive()
    }
}

/// `ln(sum(exp(logits)))`.
fn log_sum(logits: &[f32]) -> f32 {
    let top = logits.iter().fold(f32::NEG_INFINITY, |top, logit| if *logit > top { *logit } else { top });
    let sum: f64 = logits.iter().map(|logit| f64::from(libm::expf(logit - top))).sum();
    top + libm::log(sum) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_the_best() {
        let mut list = [0.0f32; 3];
        let mut count = 0;
        for (i, x) in [2.0, 5.0, 1.0, 3.0, 0.0, 5.0].into_iter().enumerate() {
            insert(&mut list, &mut count, x, |x| *x);
            assert_eq!(count, (i + 1).min(3));
        }
        assert_eq!(list, [5.0, 5.0, 3.0]);
        insert(&mut [0.0f32; 0], &mut 0, 1.0, |x| *x);
    }

    #[test]
    fn sums_of_exponentials() {
        assert!((log_sum(&[0.0, 0.0]) - core::f32::consts::LN_2).abs() < 1e-7);
        assert!((log_sum(&[1000.0, 0.0, f32::NEG_INFINITY]) - 1000.0).abs() < 1e-4);
    }
}
