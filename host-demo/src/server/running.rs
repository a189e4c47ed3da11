//! An answer in progress: its state between two passes, and the choice of its next token.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use anyhow::Result;
use arenite::grammar::{Constraint, Grammar, Masks, State};
use arenite::sampler::{Pcg32, Sampler};
use arenite::tokenizer::{Decoder, Tokenizer};
use arenite::{Context, Engine, Error, TokenId};

use super::budget::Unread;
use super::engine::{Counters, Event, Finish, Job};
use super::indent::IndentFilter;
use super::logprobs::{Logprob, logprob};
use super::request::Settings;
use crate::chat::dialect::{Gate, ThoughtBudget, plain};
use crate::stop::StopFilter;
use crate::text;

/// Distance of a checkpoint from the end of a prompt, in tokens: the next turn's prompt often differs in the last
/// tokens.
const BEFORE_END: usize = 12;

/// An answer in progress, and its context.
pub struct Running {
    pub context: Context,
    pub progress: Box<Progress>,
}

/// The state of an answer in progress, without its context. While an answer is paused, its context is in the cache. If
/// the cache drops the context, the answer's tokens are prefilled again.
pub struct Progress {
    pub job: Job,
    /// The prompt and the answer so far.
    pub ids: Vec<TokenId>,
    /// Number of prompt tokens that the answer reports as taken from the cache.
    cached: usize,
    rng: Pcg32,
    state: Option<State>,
    /// The number of the answer's grammar: the key of the grammar's cached masks.
    grammar: u32,
    decoder: Decoder,
    /// Number of complete characters of the prompt and the answer so far.
    chars: usize,
    /// Number of complete characters before each token of a prompt that is scored.
    pub prompt_offsets: Vec<usize>,
    indents: IndentFilter,
    stops: StopFilter,
    pub end: Option<Finish>,
    /// Log-probabilities of the prompt's tokens so far.
    pub scored: Vec<Logprob>,
    /// True until all tokens of a prompt to be scored have their scores.
    pub scores: bool,
    /// Positions at which the states of recurrent layers are saved, in order.
    checkpoints: Vec<usize>,
    /// Waits for the mark after which the grammar applies; `None` once the mark was generated.
    gate: Option<Gate>,
    /// The limit on tokens of thoughts, while a thought may follow.
    thoughts: Option<ThoughtBudget>,
    /// Time of the first token.
    first_token: Option<Instant>,
}

impl Deref for Running {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }
}

impl Running {
    /// Returns the tokens that the next pass may read: none if the answer has ended or the prompt is being scored.
    pub fn unread(&self) -> Unread {
        let position = self.context.position();
        let is_open = self.end.is_none() && !self.scores;
        Unread { left: if is_open { self.ids.len() - position } else { 0 }, position }
    }

    /// Chooses the positions at which states are saved: where another conversation branched off, [`BEFORE_END`] tokens
    /// before the end of the prompt, and at its end.
    pub fn plan_checkpoints(&mut self, branch: usize) {
        let len = self.job.prompt.len();
        let points = [branch, len.saturating_sub(BEFORE_END), len];
        self.checkpoints = points.into_iter().filter(|point| *point > self.context.position()).collect();
        self.checkpoints.sort_unstable();
        self.checkpoints.dedup();
    }

    /// Limits `count` to the tokens before the next checkpoint.
    pub fn up_to_checkpoint(&self, count: usize) -> usize {
        let position = self.context.position();
        let next = self.checkpoints.iter().find(|point| **point > position);
        next.map_or(count, |point| count.min(point - position))
    }

    pub fn is_at_checkpoint(&self) -> bool {
        self.checkpoints.contains(&self.context.position())
    }
}

impl Progress {
    pub fn new(job: Job, cached: usize, grammar: u32, tokenizer: &Tokenizer<'_, '_>) -> Self {
        let settings = &job.settings;
        let state = settings.table.as_deref().and_then(|table| Some(State::new(&Grammar::new(table).ok()?)));
        let mut decoder = tokenizer.decoder();
        let (mut chars, mut prompt_offsets) = (0, Vec::new());
        for id in job.prompt.iter() {
            if settings.scores_prompt {
                prompt_offsets.push(chars);
            }
            let mut piece = String::new();
            let _ = text::push(&mut decoder, *id, tokenizer, &mut piece);
            chars += piece.chars().count();
        }
        let (gate, thoughts) = (settings.gate.clone().map(Gate::new), settings.thoughts.clone());
        Self {
            ids: job.prompt.to_vec(),
            cached,
            rng: Pcg32::new(job.seed),
            state,
            grammar,
            decoder,
            chars,
            prompt_offsets,
            indents: IndentFilter::new(settings.indent),
            stops: StopFilter::new(&settings.stops),
            end: None,
            scored: Vec::new(),
            scores: settings.scores_prompt,
            checkpoints: Vec::new(),
            gate,
            thoughts,
            first_token: None,
            job,
        }
    }

    /// Tokens per second after the first token.
    pub fn token_rate(&self) -> Option<f64> {
        let seconds = self.first_token?.elapsed().as_secs_f64();
        (self.answer() > 1 && seconds > 0.0).then(|| (self.answer() - 1) as f64 / seconds)
    }

    fn answer(&self) -> usize {
        self.ids.len() - self.job.prompt.len()
    }

    /// Chooses the next token and sends it.
    pub fn choose(
        &mut self,
        context: &Context,
        engine: &mut Engine<'_, '_>,
        tokenizer: &Tokenizer<'_, '_>,
        masks: &mut Masks<'_>,
        scratch: &mut [u8],
        counters: &Counters,
    ) -> Result<()> {
        if self.job.settings.limit == Some(0) {
            self.finish(Finish::Length);
            return Ok(());
        }
        let logits = engine.logits_mut(context);
        // Copy the logits before penalties and temperature change them: log-probabilities are the model's own.
        let plain = self.job.settings.logprobs.map(|_| logits.to_vec());
        let Some(token) = self.sample(logits, tokenizer, masks, scratch)? else {
            self.finish(Finish::Stop);
            return Ok(());
        };
        let settings = &self.job.settings;
        // While the grammar is not complete, an end token ends only one of several messages in the answer.
        let is_own_end = !settings.ignore_end && self.may_end() && tokenizer.is_end(token);
        let is_end = is_own_end || settings.stop_ids.contains(&token);
        if is_end {
            self.finish(Finish::Stop);
            return Ok(());
        }
        self.ids.push(token);
        let offset = self.chars;
        let logprob =
            plain.zip(settings.logprobs).map(|(logits, count)| logprob(tokenizer, &logits, token, count, offset));
        let piece = self.text_of(token, tokenizer)?;
        let (shown, is_outdented) = self.indents.push(&piece);
        let (text, stopped) = self.stops.push(shown);
        let is_cut = is_outdented || text.contains('\n') && self.is_late();
        self.job.events.send(Event::Token { id: token, text, logprob });
        if self.first_token.is_none() {
            self.first_token = Some(Instant::now());
            self.job.record.first_token().inspect(|time| counters.first_token.add(time.as_secs_f64()));
        }
        let is_over = self.advance(token, &piece, tokenizer)?;
        let limit = self.job.settings.limit;
        if stopped || is_over {
            self.finish_after(Finish::Stop, stopped);
        } else if is_cut
            || limit.is_some_and(|limit| self.answer() >= limit)
            || self.ids.len() > engine.plan().options.context
        {
            self.finish(Finish::Length);
        }
        Ok(())
    }

    /// Returns true if the time for the answer has passed since its first token.
    fn is_late(&self) -> bool {
        self.first_token.zip(self.job.settings.time).is_some_and(|(first, time)| first.elapsed() > time)
    }

    /// Samples the next token; `None` if the grammar has ended.
    fn sample(
        &mut self,
        logits: &mut [f32],
        tokenizer: &Tokenizer<'_, '_>,
        masks: &mut Masks<'_>,
        scratch: &mut [u8],
    ) -> Result<Option<TokenId>> {
        crate::runtime::numbers(logits)?;
        let Settings { params, bias, ignore_end, table, min_tokens, stop_ids, .. } = &*self.job.settings;
        let mut sampler = Sampler::new(*params, bias, logits.len(), scratch)?;
        let recent = self.ids.len().saturating_sub(params.repeat_last_n as usize);
        self.ids[recent..].iter().for_each(|id| sampler.accept(*id));
        let is_short = self.ids.len() - self.job.prompt.len() < *min_tokens;
        // Exclude end tokens within a thought, because the answer that the grammar constrains comes after the thought.
        let is_thought = table.is_some() && self.gate.as_ref().is_some_and(Gate::is_thought);
        let ends = |token| {
            tokenizer.is_end(token) && (*ignore_end || is_short || is_thought) || is_short && stop_ids.contains(&token)
        };
        let constraint = match (&self.state, table) {
            (Some(state), Some(table)) if self.gate.is_none() => {
                Some(Constraint::at(Grammar::checked_before(table)?, state.clone()))
            }
            _ => None,
        };
        if let Some(thoughts) = &mut self.thoughts
            && let Some(token) = thoughts.forced(tokenizer, constraint.as_ref())?
        {
            return Ok(Some(token));
        }
        let token = match &constraint {
            None if is_short || is_thought => sampler.sample_where(logits, &mut self.rng, |token| !ends(token)),
            None => sampler.sample(logits, &mut self.rng),
            Some(constraint) => {
                let mut mask = masks.at(constraint, tokenizer, self.grammar);
                sampler.sample_where(logits, &mut self.rng, |token| mask.allows(token) && !ends(token))
            }
        };
        match token {
            Err(Error::NoTokenAllowed) if constraint.as_ref().is_some_and(Constraint::is_complete) => Ok(None),
            token => Ok(Some(token?)),
        }
    }

    /// Returns true if an end token may end the answer: no active grammar requires more text.
    fn may_end(&self) -> bool {
        match (&self.state, &self.job.settings.table) {
            (Some(state), Some(_)) => self.gate.is_some() || state.is_complete(),
            _ => true,
        }
    }

    /// Returns the text of a token. A mark is enclosed in noncharacters (see `dialect/marks.rs`), which are replaced in
    /// the text of all other tokens.
    fn text_of(&mut self, token: TokenId, tokenizer: &Tokenizer<'_, '_>) -> Result<String, Error> {
        let mut piece = String::new();
        if (token as usize) < tokenizer.vocab_len() {
            self.decoder.push(token, tokenizer, |text| piece.push_str(text))?;
        }
        self.chars += piece.chars().count();
        let Some(marks) = &self.job.settings.marks else { return Ok(piece) };
        Ok(marks.text_of(token).map_or_else(|| plain(piece), str::to_string))
    }

    /// Advances the gate or the grammar. Returns whether the grammar has ended.
    fn advance(&mut self, token: TokenId, piece: &str, tokenizer: &Tokenizer<'_, '_>) -> Result<bool, Error> {
        self.thoughts.take_if(|thoughts| !thoughts.push(piece));
        let table = self.job.settings.table.as_deref();
        if let Some(gate) = &mut self.gate {
            let Some(rest) = gate.push(piece) else { return Ok(false) };
            self.gate = None;
            // A token may contain the mark and the start of the text after it.
            if let (Some(state), Some(table)) = (&mut self.state, table) {
                let (grammar, mut next) = (Grammar::checked_before(table)?, state.clone());
                if !rest.is_empty() && next.accept(&grammar, rest.bytes()) {
                    *state = next;
                }
            }
            return Ok(false);
        }
        let (Some(state), Some(table)) = (&self.state, table) else { return Ok(false) };
        let mut constraint = Constraint::at(Grammar::checked_before(table)?, state.clone());
        constraint.accept(tokenizer, token)?;
        let is_over = constraint.is_over();
        self.state = Some(constraint.into_state());
        Ok(is_over)
    }

    fn finish(&mut self, end: Finish) {
        self.finish_after(end, false);
    }

    /// Ends the answer. Sends the text that was held back, unless that is a stop string.
    fn finish_after(&mut self, end: Finish, stopped: bool) {
        let mut text = String::new();
        if !stopped {
            let mut rest = String::new();
            self.decoder.finish(|part| rest += part);
            text = self.stops.push(&rest).0 + &self.stops.finish();
        }
        let stop = self.stops.found().map(str::to_string);
        let (prompt, answer) = (self.job.prompt.len(), self.answer());
        let done = Event::Done { end, stop, text, prompt, cached: self.cached, answer };
        self.job.events.send(done);
        self.job.record.answered(prompt, answer);
        self.end = Some(end);
    }
}
