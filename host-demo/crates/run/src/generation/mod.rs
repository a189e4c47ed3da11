//! Generation: turns the logits of a model into the tokens, the text and the end of an answer.
//!
//! A *driver* owns the engine: it is the command line, a batch, the server, or another program. A driver runs the
//! passes, gives the logits of the next token to [`Generation::step`], and shows or sends the [`Step`]. The drivers
//! choose no tokens themselves, so the same request has the same answer in each of them. A driver that proposes tokens
//! reads [`Generation::ids`], verifies its proposals in one pass, and calls `step` once for each verified position.
//!
//! ```text
//! settings  the settings of an answer             session  a driver: one session, drafts, a watcher
//! logprob   log-probabilities of tokens           indent   the end at a line with too little indentation
//! breakers  sequences that end DRY's repetitions
//! ```

mod breakers;
mod indent;
mod logprob;
mod session;
mod settings;
mod wanted;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use arenite::grammar::{Constraint, Grammar, Masks, State};
use arenite::sampler::{More, Params, Sampler, State as Learned, argmax};
use arenite::tokenizer::{Decoder, Tokenizer};
use arenite::{Error, TokenId};

use crate::eyes::{Shown, is_row};
use crate::rng::AnyRng;
use crate::runtime;
use crate::stop::StopFilter;
use arenite_chat::dialect::{Gate, Marks, ThoughtBudget, plain};
use arenite_text as text;

pub use breakers::BreakerList;
use indent::IndentFilter;
pub use logprob::{Logprob, bytes, logprob};
pub use session::{Outcome, Watch, run};
pub use settings::{Settings, Shift};
pub use wanted::{StrictCalls, ThoughtLimit, Wanted};

/// Resources that the answers of a model share. Each answer uses them for one step at a time.
pub struct Workbench<'b, 't, 'm> {
    /// The vocabulary. `None` disables text, stop strings, grammars and the vocabulary's end tokens.
    pub tokenizer: Option<&'b Tokenizer<'t, 't>>,
    /// A cache of the sets of tokens that grammars allow. `None` is only possible if no answer has a grammar.
    pub masks: Option<&'b mut Masks<'m>>,
    /// Memory for [`Sampler::new`]. It grows if an answer needs more.
    pub scratch: &'b mut Vec<u8>,
    /// Maximum number of positions of the context.
    pub context: usize,
}

/// The reason why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An end token.
    Token,
    /// The grammar allows no more tokens.
    Grammar,
    /// A stop string.
    Stop,
    /// The answer reached the maximum number of tokens, the time limit or the limit on indentation.
    Length,
    /// The context is full.
    Context,
    /// The driver stopped the answer.
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

    /// True if a limit ended the answer before the model did.
    pub fn is_cut(self) -> bool {
        matches!(self, Self::Length | Self::Context)
    }

    /// True if the answer was ended from outside, by a limit or a stop string, and not by the model itself.
    pub fn is_unfinished(self) -> bool {
        self.is_cut() || self == Self::Stop
    }
}

/// The result of one step: a token, the end of the answer, or both.
#[derive(Debug, Default)]
pub struct Step {
    /// The token that this step has added. `None` if the answer ended without one. A token that ends the answer is not
    /// part of it.
    pub token: Option<NewToken>,
    /// The reason for the end, if the answer has ended. [`Generation::rest`] then returns the text that was held back.
    pub end: Option<End>,
}

impl Step {
    fn ended(end: End) -> Self {
        Self { token: None, end: Some(end) }
    }
}

/// A token of an answer.
#[derive(Debug)]
pub struct NewToken {
    pub id: TokenId,
    /// The text that this token adds to what may be shown. It is empty if the token's text is held back, and longer
    /// than this text if earlier text was held back until now. Delimiters are enclosed in noncharacters (see
    /// `dialect/marks.rs`).
    pub text: String,
    pub logprob: Option<Logprob>,
}

/// An answer in progress.
pub struct Generation {
    settings: Arc<Settings>,
    /// The tokens of the prompt and of the answer so far, without the tokens that were dropped because the context was
    /// full.
    ids: Vec<TokenId>,
    /// Number of tokens of the prompt in `ids`.
    prompt: usize,
    /// Where pictures stand in the prompt.
    shown: Shown,
    answer: Vec<TokenId>,
    /// If tokens were dropped, the position from which the driver must read `ids` again. Otherwise `None`.
    rewound: Option<usize>,
    has_shifted: bool,
    rng: AnyRng,
    /// The state of Mirostat and adaptive-p after the last token.
    learned: Option<Learned>,
    /// The state of the grammar.
    state: Option<State>,
    /// The number of the grammar: the key of its cached masks.
    grammar: u32,
    decoder: Option<Decoder>,
    /// Number of complete characters of the prompt and the answer so far.
    chars: usize,
    indents: IndentFilter,
    stops: StopFilter,
    /// Waits for the delimiter after which the grammar applies; `None` after the delimiter was generated.
    gate: Option<Gate>,
    /// The limit on the tokens of thoughts; `None` once no thought can follow.
    thoughts: Option<ThoughtBudget>,
    /// Time of the first token.
    first_token: Option<Instant>,
    end: Option<End>,
}

impl Generation {
    /// Begins the answer to `prompt`. The number `grammar` identifies the grammar in the cache of masks, so each
    /// grammar needs a number of its own.
    ///
    /// # Errors
    ///
    /// The settings have a grammar whose table is damaged, or a grammar and no tokenizer.
    pub fn new(
        settings: Arc<Settings>,
        prompt: &[TokenId],
        rng: AnyRng,
        grammar: u32,
        tokenizer: Option<&Tokenizer<'_, '_>>,
    ) -> Result<Self> {
        let state = settings.table.as_deref().map(|table| Ok::<_, Error>(State::new(&Grammar::new(table)?)));
        let state = state.transpose()?;
        anyhow::ensure!(state.is_none() || tokenizer.is_some(), "a grammar needs a vocabulary, and the model has none");
        let mut decoder = tokenizer.map(Tokenizer::decoder);
        let chars = match (&mut decoder, tokenizer) {
            (Some(decoder), Some(tokenizer)) => offsets(prompt, decoder, tokenizer)?.1,
            _ => 0,
        };
        Ok(Self {
            ids: prompt.to_vec(),
            prompt: prompt.len(),
            answer: Vec::new(),
            rewound: None,
            has_shifted: false,
            rng,
            learned: None,
            state,
            grammar,
            decoder,
            chars,
            indents: IndentFilter::new(settings.indent),
            stops: StopFilter::new(&settings.stops),
            gate: settings.gate.clone().map(Gate::new),
            thoughts: settings.thoughts.clone(),
            shown: settings.shown.clone(),
            first_token: None,
            end: None,
            settings,
        })
    }

    /// Returns the tokens of the prompt and of the answer so far, without the tokens that were dropped because the
    /// context was full.
    pub fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    /// The tokens of the answer so far, without an end token.
    pub fn answer(&self) -> &[TokenId] {
        &self.answer
    }

    /// Returns the position from which [`ids`](Self::ids) must be read again, if a shift dropped tokens after this
    /// position.
    pub fn take_rewound(&mut self) -> Option<usize> {
        self.rewound.take()
    }

    /// Returns true if tokens may be proposed. This is not possible if a full context drops tokens, because proposed
    /// tokens would move. It is also not possible after pictures, because the sources of drafts do not read rows of
    /// pictures.
    pub fn may_draft(&self) -> bool {
        self.settings.shift.is_none() && self.shown.is_empty()
    }

    /// Where pictures stand in the prompt.
    pub fn shown(&self) -> &Shown {
        &self.shown
    }

    /// True if tokens were dropped because the context was full.
    pub fn has_shifted(&self) -> bool {
        self.has_shifted
    }

    /// The reason, once the answer has ended.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// The stop string that ended the answer.
    pub fn stop(&self) -> Option<&str> {
        self.stops.found()
    }

    /// True if no grammar requires more text.
    pub fn is_whole(&self) -> bool {
        self.state.as_ref().is_none_or(State::is_complete)
    }

    /// Returns the random number generator in its current state, with which the next answer of the same conversation
    /// continues.
    pub fn into_rng(self) -> AnyRng {
        self.rng
    }

    /// Tokens per second after the first token.
    pub fn token_rate(&self) -> Option<f64> {
        let seconds = self.first_token?.elapsed().as_secs_f64();
        let count = self.answer().len();
        (count > 1 && seconds > 0.0).then(|| (count - 1) as f64 / seconds)
    }

    /// Chooses the next token from `logits`. Penalties and temperature change the logits in place.
    ///
    /// # Errors
    ///
    /// A logit is NaN, or no token is possible under the grammar.
    pub fn step(&mut self, logits: &mut [f32], bench: &mut Workbench<'_, '_, '_>) -> Result<Step> {
        let step = self.next(logits, bench)?;
        self.end = step.end;
        Ok(step)
    }

    fn next(&mut self, logits: &mut [f32], bench: &mut Workbench<'_, '_, '_>) -> Result<Step> {
        if self.settings.limit == Some(0) {
            return Ok(Step::ended(End::Length));
        }
        // Copy the logits before penalties and temperature change them, because the reported log-probabilities are
        // computed from the model's unmodified logits.
        let own = self.settings.logprobs.map(|_| logits.to_vec());
        let Some(token) = self.sample(logits, bench)? else { return Ok(Step::ended(End::Grammar)) };
        if self.is_end(token, bench.tokenizer) {
            return Ok(Step::ended(End::Token));
        }
        self.ids.push(token);
        self.answer.push(token);
        self.first_token.get_or_insert_with(Instant::now);
        let Some(tokenizer) = bench.tokenizer else {
            let token = NewToken { id: token, text: String::new(), logprob: None };
            return Ok(Step { token: Some(token), end: self.limit(bench.context) });
        };
        let (settings, offset) = (&self.settings, self.chars);
        let logprob = own.zip(settings.logprobs).map(|(own, count)| logprob(tokenizer, &own, token, count, offset));
        let piece = self.text_of(token, tokenizer)?;
        let (shown, is_outdented) = self.indents.push(&piece);
        // Stop strings apply only to the text that the user reads. Within a thought, they do not end the answer.
        let is_thought = self.thoughts.as_ref().is_some_and(ThoughtBudget::is_thinking);
        let (text, stopped) = if is_thought { (self.stops.finish() + shown, false) } else { self.stops.push(shown) };
        let is_cut = is_outdented || text.contains('\n') && self.is_late();
        let is_over = self.advance(token, &piece, tokenizer)?;
        let end = match () {
            () if stopped => Some(End::Stop),
            () if is_over => Some(End::Grammar),
            () if is_cut => Some(End::Length),
            () => self.limit(bench.context),
        };
        Ok(Step { token: Some(NewToken { id: token, text, logprob }), end })
    }

    /// Returns the reason for the end if the answer has as many tokens as the settings or the context allow.
    fn limit(&mut self, context: usize) -> Option<End> {
        match (self.settings.limit, self.settings.shift) {
            (Some(limit), _) if self.answer.len() >= limit => Some(End::Length),
            (_, Some(shift)) if self.ids.len() >= context => {
                self.shift(shift, context);
                None
            }
            _ => (self.ids.len() > context).then_some(End::Context),
        }
    }

    /// Drops tokens from a full context, as many as llama.cpp drops. llama.cpp then moves the remaining tokens in its
    /// cache. Here, the remaining tokens after the first dropped one are read again.
    fn shift(&mut self, Shift { keep, discard }: Shift, context: usize) {
        let read = self.ids.len() - 1;
        let keep = keep.min(context.saturating_sub(4)).min(read);
        let left = read - keep;
        let discard = if discard == 0 { left / 2 } else { discard }.clamp(1, left.max(2) - 1).min(left);
        self.ids.drain(keep..keep + discard);
        self.prompt -= self.prompt.saturating_sub(keep).min(discard);
        (self.rewound, self.has_shifted) = (Some(keep), true);
    }

    /// Returns the maximum number of tokens of a draft. One more token is chosen after the draft, and all of them must
    /// fit in the context.
    pub fn room(&self, context: usize) -> usize {
        let left = self.settings.limit.map_or(usize::MAX, |limit| limit - self.answer().len().min(limit));
        left.saturating_sub(1).min(context.saturating_sub(self.ids.len()))
    }

    /// Returns how many tokens at the start of `draft` may follow the answer. All later tokens cannot be chosen,
    /// because they follow an end token or a token that the grammar forbids.
    pub fn allowed(&self, draft: &[TokenId], tokenizer: Option<&Tokenizer<'_, '_>>) -> usize {
        let is_end = |token: &TokenId| self.is_end(*token, tokenizer);
        let draft = &draft[..draft.iter().position(is_end).unwrap_or(draft.len())];
        let (Some(state), Some(table), Some(tokenizer), None) =
            (&self.state, self.settings.table.as_deref(), tokenizer, &self.gate)
        else {
            return draft.len();
        };
        let Ok(grammar) = Grammar::checked_before(table) else { return 0 };
        let mut constraint = Constraint::at(grammar, state.clone());
        let is_allowed =
            |token: &&TokenId| constraint.allows(tokenizer, **token) && constraint.accept(tokenizer, **token).is_ok();
        draft.iter().take_while(is_allowed).count()
    }

    /// Replaces the prompt of an answer that the model has not ended, for example because the context was full. The
    /// answer continues at the same point.
    pub fn replace_prompt(&mut self, prompt: &[TokenId], shown: Shown) {
        self.shown = shown;
        self.ids.splice(..self.prompt, prompt.iter().copied());
        self.prompt = prompt.len();
        self.end = None;
    }

    /// Ends the answer between two steps.
    pub fn interrupt(&mut self) {
        self.end.get_or_insert(End::Interrupted);
    }

    /// Returns the text that was held back, after the answer has ended: an incomplete character, or the possible start
    /// of a stop string. The text is empty if a stop string ended the answer.
    pub fn rest(&mut self) -> String {
        if self.end == Some(End::Stop) {
            return String::new();
        }
        let mut rest = String::new();
        if let Some(decoder) = &mut self.decoder {
            decoder.finish(|part| rest += part);
        }
        self.stops.push(&rest).0 + &self.stops.finish()
    }

    /// Returns true if the time limit has passed since the first token of the answer.
    fn is_late(&self) -> bool {
        self.first_token.zip(self.settings.time).is_some_and(|(first, time)| first.elapsed() > time)
    }

    /// Samples the next token; `None` if the grammar has ended.
    fn sample(&mut self, logits: &mut [f32], bench: &mut Workbench<'_, '_, '_>) -> Result<Option<TokenId>> {
        runtime::numbers(logits)?;
        let settings = &*self.settings;
        let Settings { params, bias, breakers, ignore_end, table, min_tokens, stop_ids, .. } = settings;
        let params = within(params, bench.context);
        let needed = Sampler::scratch_bytes(&params, logits.len());
        if bench.scratch.len() < needed {
            bench.scratch.resize(needed, 0);
        }
        let mut sampler = Sampler::new(params, bias, logits.len(), bench.scratch)?.with_breakers(breakers.list());
        self.learned.into_iter().for_each(|learned| sampler.set_state(learned));
        let recent = self.ids.len().saturating_sub(params.history_len());
        self.ids[recent..].iter().filter(|id| !is_row(**id)).for_each(|id| sampler.accept(*id));
        let is_short = self.answer.len() < *min_tokens;
        let Some(tokenizer) = bench.tokenizer else {
            let ends = |token| is_short && stop_ids.contains(&token);
            return Ok(Some(sampler.sample_where(logits, &mut self.rng, |token| !ends(token))?));
        };
        // An end token within a thought closes the thought, because the answer that the grammar constrains comes after
        // the thought.
        let is_thought = table.is_some() && self.gate.as_ref().is_some_and(Gate::is_thought);
        let may_close = is_thought && self.thoughts.as_ref().is_some_and(ThoughtBudget::is_thinking);
        let ends = |token| {
            let is_barred = *ignore_end || is_short || is_thought && !may_close;
            tokenizer.is_end(token) && is_barred || is_short && stop_ids.contains(&token)
        };
        // A line break between the elements of JSON is accepted only if it is the model's first choice. Otherwise some
        // models generate line breaks without end when a schema does not let them end the answer.
        let first_choice = if settings.is_json { argmax(logits) } else { None };
        let is_padding =
            |token: TokenId| settings.is_json && Some(token) != first_choice && is_line_break(&bytes(tokenizer, token));
        let constraint = match (&self.state, table) {
            (Some(state), Some(table)) if self.gate.is_none() => {
                Some(Constraint::at(Grammar::checked_before(table)?, state.clone()))
            }
            _ => None,
        };
        // Check the text after the delimiter, because one token may contain both the delimiter and text, and the text
        // must follow the grammar.
        let spoils = |token| match (&self.gate, &self.state, table) {
            (Some(gate), Some(state), Some(table)) => {
                let rest = gate.rest_after(&spelled(token, settings.marks.as_deref(), tokenizer));
                rest.is_some_and(|rest| {
                    Grammar::checked_before(table).is_ok_and(|grammar| begun(state, &grammar, &rest).is_none())
                })
            }
            _ => false,
        };
        if let Some(thoughts) = &mut self.thoughts
            && let Some(token) = thoughts.forced(tokenizer, constraint.as_ref())?
        {
            return Ok(Some(token));
        }
        let token = match (&constraint, &mut bench.masks) {
            (None, _) if is_short || self.gate.is_some() => {
                sampler.sample_where(logits, &mut self.rng, |token| !ends(token) && !spoils(token))
            }
            (None, _) => sampler.sample(logits, &mut self.rng),
            (Some(constraint), Some(masks)) => {
                let mut mask = masks.at(constraint, tokenizer, self.grammar);
                let allows = |token| mask.allows(token) && !ends(token) && !is_padding(token);
                sampler.sample_where(logits, &mut self.rng, allows)
            }
            (Some(constraint), None) => {
                let allows = |token| constraint.allows(tokenizer, token) && !ends(token) && !is_padding(token);
                sampler.sample_where(logits, &mut self.rng, allows)
            }
        };
        self.learned = Some(sampler.state());
        match token {
            Err(Error::NoTokenAllowed) if constraint.as_ref().is_some_and(Constraint::is_complete) => Ok(None),
            Ok(token) if may_close && tokenizer.is_end(token) => match &mut self.thoughts {
                Some(thoughts) => {
                    thoughts.close();
                    Ok(thoughts.forced(tokenizer, None)?.or(Some(token)))
                }
                None => Ok(Some(token)),
            },
            token => Ok(Some(token?)),
        }
    }

    fn is_end(&self, token: TokenId, tokenizer: Option<&Tokenizer<'_, '_>>) -> bool {
        // While the grammar is incomplete, an end token does not end the answer: an answer may consist of several
        // messages, and the token ends only one of them.
        let may_end = || self.gate.is_some() || self.is_whole();
        let is_own =
            tokenizer.is_some_and(|tokenizer| !self.settings.ignore_end && may_end() && tokenizer.is_end(token));
        is_own || self.settings.stop_ids.contains(&token)
    }

    /// Returns the text of a token. A delimiter is enclosed in noncharacters (see `dialect/marks.rs`), which are
    /// replaced in the text of all other tokens.
    fn text_of(&mut self, token: TokenId, tokenizer: &Tokenizer<'_, '_>) -> Result<String> {
        let mut piece = String::new();
        if let Some(decoder) = &mut self.decoder {
            text::push(decoder, token, tokenizer, &mut piece)?;
        }
        self.chars += piece.chars().count();
        let Some(marks) = &self.settings.marks else { return Ok(piece) };
        Ok(marks.text_of(token).map_or_else(|| plain(piece), str::to_string))
    }

    /// Passes a token to the gate, or to the grammar if there is no gate. Returns true if the grammar has ended.
    fn advance(&mut self, token: TokenId, piece: &str, tokenizer: &Tokenizer<'_, '_>) -> Result<bool, Error> {
        self.thoughts.take_if(|thoughts| !thoughts.push(piece));
        let table = self.settings.table.as_deref();
        if let Some(gate) = &mut self.gate {
            let Some(rest) = gate.push(piece) else { return Ok(false) };
            self.gate = None;
            if let (Some(state), Some(table)) = (&mut self.state, table)
                && let Some(next) = begun(state, &Grammar::checked_before(table)?, &rest)
            {
                *state = next;
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
}

/// Returns the parameters. The number of recent tokens is limited to the number of positions of a context.
pub fn within(params: &Params, context: usize) -> Params {
    let most = u32::try_from(context).unwrap_or(u32::MAX);
    let more = More { dry_last_n: params.more.dry_last_n.min(most), ..params.more };
    Params { repeat_last_n: params.repeat_last_n.min(most), more, ..*params }
}

/// Returns the part of a token's text that does not depend on the tokens before it. Delimiters are enclosed in
/// noncharacters.
fn spelled(token: TokenId, marks: Option<&Marks>, tokenizer: &Tokenizer<'_, '_>) -> String {
    match marks.and_then(|marks| marks.text_of(token)) {
        Some(mark) => mark.to_string(),
        None => plain(String::from_utf8_lossy(&bytes(tokenizer, token)).into_owned()),
    }
}

/// True for white space with a line break or a tab, which no JSON string contains.
fn is_line_break(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace) && bytes.iter().any(|byte| *byte != b' ')
}

/// Returns the state of a grammar after `rest`, the text after a delimiter. White space at the start of `rest` is
/// skipped unless the grammar describes it. Returns `None` if the text does not follow the grammar.
fn begun(state: &State, grammar: &Grammar<'_>, rest: &str) -> Option<State> {
    [rest, rest.trim_start()].into_iter().find_map(|text| {
        let mut next = state.clone();
        (text.is_empty() || next.accept(grammar, text.bytes())).then_some(next)
    })
}

/// Returns the number of complete characters before each token of a text, and the number of complete characters of the
/// whole text. `decoder` can then continue after the text.
///
/// # Errors
///
/// A token is not in the vocabulary.
pub fn offsets(ids: &[TokenId], decoder: &mut Decoder, tokenizer: &Tokenizer<'_, '_>) -> Result<(Vec<usize>, usize)> {
    let (mut offsets, mut chars, mut piece) = (Vec::with_capacity(ids.len()), 0, String::new());
    for id in ids {
        offsets.push(chars);
        piece.clear();
        if !is_row(*id) {
            text::push(decoder, *id, tokenizer, &mut piece)?;
        }
        chars += piece.chars().count();
    }
    Ok((offsets, chars))
}
