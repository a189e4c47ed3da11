//! The generation loop: a session, a sampler and optional speculative decoding.

use std::time::{Duration, Instant};

use anyhow::Result;
use arenite::grammar::{Constraint, Masks};
use arenite::sampler::Sampler;
use arenite::tokenizer::{Decoder, Tokenizer};
use arenite::{Error, Session, TokenId};
use indicatif::{ProgressBar, ProgressStyle};
use rand_core::Rng;

use crate::chat::dialect::{Gate, Marks, ThoughtBudget, plain};
use crate::guess::Guesser;
use crate::stop::StopFilter;
use crate::{interrupt, output, runtime, text};

/// The prompt and the settings of a generation.
pub struct Request<'a, 'w> {
    pub prompt: &'a [TokenId],
    /// The vocabulary, and a decoder that has decoded the prompt. `None` disables text, stop strings and the
    /// vocabulary's end tokens.
    pub text: Option<(&'a Tokenizer<'a, 'a>, Decoder)>,
    /// Maximum number of tokens to generate; `None` means no limit.
    pub limit: Option<usize>,
    /// Stop strings.
    pub stops: &'a [String],
    /// Additional end tokens.
    pub stop_ids: &'a [TokenId],
    /// Continue after the vocabulary's end tokens.
    pub ignore_end: bool,
    /// A constraint on the output, with a mask cache for its grammar; needs `text`.
    pub constraint: Option<(Constraint<'a>, &'a mut Masks<'w>)>,
    /// Special tokens that are written to the text as marks, which separate thoughts, tool calls and content.
    pub marks: Option<&'a Marks>,
    /// Waits for the mark after which the constraint applies.
    pub gate: Option<Gate>,
    /// The limit on tokens of thoughts; needs `text`.
    pub thoughts: Option<ThoughtBudget>,
    /// Proposes tokens for speculative decoding.
    pub guesser: Option<Guesser<'a>>,
    /// Number of prompt tokens between checks for Ctrl-C.
    pub step: usize,
}

impl Request<'_, '_> {
    fn is_end(&self, token: TokenId) -> bool {
        let is_own = || self.text.as_ref().is_some_and(|(tokenizer, _)| tokenizer.is_end(token));
        // While the grammar is not complete, an end token ends only one of several messages in the answer.
        let may_end = self.gate.is_some() || self.constraint.as_ref().is_none_or(|(grammar, _)| grammar.is_complete());
        self.stop_ids.contains(&token) || !self.ignore_end && may_end && is_own()
    }
}

/// Reason for the end of generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Token,
    /// The grammar allows no more tokens.
    Grammar,
    Stop,
    Length,
    Context,
    Interrupted,
}

impl End {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "end-token",
            Self::Grammar => "grammar",
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Context => "context",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The result of a generation.
pub struct Outcome {
    /// The new tokens, without the end token.
    pub ids: Vec<TokenId>,
    pub end: End,
    /// True if there is no grammar, or if the text matches all of it.
    pub is_whole: bool,
    /// Number of prompt tokens that the session already had, and the time to prefill the others.
    pub kept: usize,
    pub prefill: Duration,
    /// Number of passes after the prefill, and the time of these passes, including sampling.
    pub decodes: usize,
    pub decode: Duration,
}

/// Continues `request.prompt`. Calls `show` with the text as it is generated, in whole characters.
pub fn run(
    session: &mut Session<'_, '_>,
    sampler: &mut Sampler<'_>,
    rng: &mut impl Rng,
    mut request: Request<'_, '_>,
    mut show: impl FnMut(&str) -> Result<()>,
) -> Result<Outcome> {
    let start = Instant::now();
    let finished = prefill(session, &request)?;
    let mut outcome = Outcome {
        ids: Vec::new(),
        end: End::Length,
        is_whole: true,
        kept: 0,
        prefill: start.elapsed(),
        decodes: 0,
        decode: Duration::ZERO,
    };
    if !finished {
        outcome.end = End::Interrupted;
        return Ok(outcome);
    }
    for &token in request.prompt {
        sampler.accept(token);
    }

    let mut stops = StopFilter::new(request.stops);
    // Prompt and generated tokens, for which the guesser proposes the next tokens.
    let mut known = if request.guesser.is_some() { request.prompt.to_vec() } else { Vec::new() };
    let is_long = |ids: &[TokenId], limit: Option<usize>| limit.is_some_and(|limit| ids.len() >= limit);
    let start = Instant::now();
    outcome.end = loop {
        if is_long(&outcome.ids, request.limit) {
            break End::Length;
        }
        if interrupt::asked() {
            break End::Interrupted;
        }
        let Some(token) = choose(session, sampler, rng, &mut request)? else { break End::Grammar };
        if request.is_end(token) {
            break End::Token;
        }
        outcome.ids.push(token);
        if let Some(end) = take(token, &mut request, &mut stops, &mut show)? {
            break end;
        }
        if is_long(&outcome.ids, request.limit) {
            break End::Length;
        }
        let position = request.guesser.as_ref().map_or(session.position(), |guesser| guesser.position(session));
        if position >= session.context() {
            break End::Context;
        }
        match &mut request.guesser {
            Some(guesser) => {
                known.push(token);
                guesser.decode(session, &known)?;
            }
            None => session.decode(token)?,
        }
        outcome.decodes += 1;
    };
    outcome.decode = start.elapsed();
    outcome.is_whole = request.constraint.as_ref().is_none_or(|(constraint, _)| constraint.is_complete());
    if outcome.end != End::Stop
        && let Some((_, decoder)) = &mut request.text
    {
        // Show the text that was held back: an incomplete character, or the possible start of a stop string.
        let mut rest = String::new();
        decoder.finish(|text| rest += text);
        show(&stops.push(&rest).0)?;
        show(&stops.finish())?;
    }
    Ok(outcome)
}

/// Samples the next token; `None` at the end of the grammar.
fn choose(
    session: &mut Session<'_, '_>,
    sampler: &mut Sampler<'_>,
    rng: &mut impl Rng,
    request: &mut Request<'_, '_>,
) -> Result<Option<TokenId>> {
    let logits = match &mut request.guesser {
        Some(guesser) => guesser.logits(session),
        None => session.logits_mut(),
    };
    runtime::numbers(logits)?;
    let constraint = if request.gate.is_none() { request.constraint.as_mut() } else { None };
    if let (Some(thoughts), Some((tokenizer, _))) = (&mut request.thoughts, &request.text)
        && let Some(token) = thoughts.forced(tokenizer, constraint.as_ref().map(|(constraint, _)| constraint))?
    {
        return Ok(Some(token));
    }
    let (Some((constraint, masks)), Some((tokenizer, _))) = (constraint, &request.text) else {
        return Ok(Some(sampler.sample(logits, rng)?));
    };
    let mut mask = masks.at(constraint, tokenizer, 0);
    let allowed = |token| mask.allows(token) && !(request.ignore_end && tokenizer.is_end(token));
    match sampler.sample_where(logits, rng, allowed) {
        Err(Error::NoTokenAllowed) if constraint.is_complete() => Ok(None),
        token => Ok(Some(token?)),
    }
}

/// Shows the text of a token. Returns the reason if generation ends with this token.
fn take(
    token: TokenId,
    request: &mut Request<'_, '_>,
    stops: &mut StopFilter,
    show: &mut impl FnMut(&str) -> Result<()>,
) -> Result<Option<End>> {
    let Some((tokenizer, decoder)) = &mut request.text else { return Ok(None) };
    let mut piece = String::new();
    text::push(decoder, token, tokenizer, &mut piece)?;
    if let Some(marks) = request.marks {
        piece = marks.text_of(token).map_or_else(|| plain(piece), str::to_string);
    }
    let (text, stopped) = stops.push(&piece);
    show(&text)?;
    if stopped {
        return Ok(Some(End::Stop));
    }
    request.thoughts.take_if(|thoughts| !thoughts.push(&piece));
    if let Some(gate) = &mut request.gate {
        if gate.push(&piece).is_some() {
            request.gate = None;
        }
        return Ok(None);
    }
    let Some((constraint, _)) = &mut request.constraint else { return Ok(None) };
    constraint.accept(tokenizer, token)?;
    Ok(constraint.is_over().then_some(End::Grammar))
}

/// Prefills the prompt step by step, with the same result as in one step. Returns `false` after Ctrl-C.
fn prefill(session: &mut Session<'_, '_>, request: &Request<'_, '_>) -> Result<bool> {
    let total = request.prompt.len();
    let step = request.step.max(1);
    let bar = if total > step && output::watched() {
        let style = ProgressStyle::with_template("prompt {bar:32} {pos}/{len} tokens {eta}");
        ProgressBar::new(total as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    } else {
        ProgressBar::hidden()
    };
    if total == 0 {
        session.prefill(&[])?; // fails with the core's error
    }
    for part in request.prompt.chunks(step) {
        if interrupt::asked() {
            bar.finish_and_clear();
            return Ok(false);
        }
        session.prefill(part)?;
        bar.inc(part.len() as u64);
    }
    bar.finish_and_clear();
    Ok(true)
}
