//! Prompt in, tokens out: the loop around a session and a sampler.

use std::time::{Duration, Instant};

use anyhow::Result;
use arenite::grammar::{Constraint, Masks};
use arenite::sampler::Sampler;
use arenite::tokenizer::{Decoder, Tokenizer};
use arenite::{Error, Session, TokenId};
use indicatif::{ProgressBar, ProgressStyle};
use rand_core::Rng;

use crate::guess::Guesser;
use crate::stop::StopFilter;
use crate::{interrupt, output, text};

/// What to continue, and how far.
pub struct Request<'a, 'w> {
    pub prompt: &'a [TokenId],
    /// The vocabulary, and a decoder that has seen the prompt. Without it there is no text, no stop
    /// text and no end token.
    pub text: Option<(&'a Tokenizer<'a, 'a>, Decoder)>,
    /// Most tokens to make; `None`: until something else ends it.
    pub limit: Option<usize>,
    /// Texts that end it.
    pub stops: &'a [String],
    /// Tokens that end it as the vocabulary's own end tokens do.
    pub stop_ids: &'a [TokenId],
    /// Whether it goes on after the vocabulary's end tokens.
    pub ignore_end: bool,
    /// What the answer has to look like, and masks for this grammar alone; only with `text`.
    pub constraint: Option<(Constraint<'a>, &'a mut Masks<'w>)>,
    /// What guesses the next tokens.
    pub guesser: Option<Guesser<'a>>,
    /// Tokens of the prompt to take between two looks at Ctrl-C.
    pub step: usize,
}

impl Request<'_, '_> {
    fn is_end(&self, token: TokenId) -> bool {
        let is_own = || self.text.as_ref().is_some_and(|(tokenizer, _)| tokenizer.is_end(token));
        self.stop_ids.contains(&token) || !self.ignore_end && is_own()
    }
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Token,
    /// The grammar has come to its end.
    Grammar,
    Stop,
    Length,
    Context,
    Interrupted,
}

impl End {
    /// As in reports.
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

/// What came of it.
pub struct Outcome {
    /// The new tokens, without the end token.
    pub ids: Vec<TokenId>,
    pub end: End,
    /// Whether it is what the grammar asks for, if there is one; one that was cut off is not.
    pub is_whole: bool,
    pub prefill: Duration,
    /// Passes after the prompt's, and the time they took, sampling included.
    pub decodes: usize,
    pub decode: Duration,
}

/// Continues `request.prompt` and gives the text to `show`, in whole characters, as it comes.
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
    // What guesses go by.
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
        // What was held back: half a character, or the beginning of a stop text.
        let mut rest = String::new();
        decoder.finish(|text| rest += text);
        show(&stops.push(&rest).0)?;
        show(&stops.finish())?;
    }
    Ok(outcome)
}

/// The next token; `None` where the grammar has come to its end.
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
    let (Some((constraint, masks)), Some((tokenizer, _))) = (&mut request.constraint, &request.text) else {
        return Ok(Some(sampler.sample(logits, rng)?));
    };
    let mut mask = masks.at(constraint, tokenizer, 0);
    let allowed = |token| mask.allows(token) && !(request.ignore_end && tokenizer.is_end(token));
    match sampler.sample_where(logits, rng, allowed) {
        Err(Error::NoTokenAllowed) if constraint.is_complete() => Ok(None),
        token => Ok(Some(token?)),
    }
}

/// Shows the text of a token that was chosen, and says if it is the last one.
fn take(
    token: TokenId,
    request: &mut Request<'_, '_>,
    stops: &mut StopFilter,
    show: &mut impl FnMut(&str) -> Result<()>,
) -> Result<Option<End>> {
    let Some((tokenizer, decoder)) = &mut request.text else { return Ok(None) };
    let mut piece = String::new();
    text::push(decoder, token, tokenizer, &mut piece)?;
    let (text, stopped) = stops.push(&piece);
    show(&text)?;
    if stopped {
        return Ok(Some(End::Stop));
    }
    let Some((constraint, _)) = &mut request.constraint else { return Ok(None) };
    constraint.accept(tokenizer, token)?;
    Ok(constraint.is_over().then_some(End::Grammar))
}

/// Takes the prompt in, step by step, which changes nothing in the result. `false` after Ctrl-C.
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
        session.prefill(&[])?; // the core's own words for it
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
