//! The settings of an answer: the sampler, limits, stop strings, the grammar and delimiters.

use std::sync::Arc;
use std::time::Duration;

use arenite::TokenId;
use arenite::sampler::Params;

use super::BreakerList;
use crate::eyes::Shown;
use arenite_chat::dialect::{GateSettings, Marks, ThoughtBudget};
use arenite_grammar::Table;

/// The tokens that are dropped when the context is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Number of tokens at the start that are kept.
    pub keep: usize,
    /// Number of tokens that are dropped after the kept tokens; 0 drops half of the tokens after the kept tokens.
    pub discard: usize,
}

/// The settings of one answer.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub params: Params,
    pub bias: Vec<(TokenId, f32)>,
    /// Sequences over which DRY's repetitions do not continue.
    pub breakers: BreakerList,
    pub seed: u64,
    pub limit: Option<usize>,
    /// Number of tokens before an end is allowed.
    pub min_tokens: usize,
    pub stops: Vec<String>,
    /// Tokens that end the answer, in addition to the vocabulary's end tokens.
    pub stop_ids: Vec<TokenId>,
    pub ignore_end: bool,
    /// Minimum indentation of the lines after the first one.
    pub indent: usize,
    /// Time after which the next line break ends the answer.
    pub time: Option<Duration>,
    /// A compiled grammar.
    pub table: Option<Arc<Table>>,
    /// True if the grammar was made from a JSON schema. The answer may then have white space between the elements of
    /// the JSON.
    pub is_json: bool,
    /// Number of alternatives reported with each token.
    pub logprobs: Option<usize>,
    /// True if the log-probabilities of the prompt's tokens are also reported.
    pub scores_prompt: bool,
    /// Delimiters that are tokens, for chat answers.
    pub marks: Option<Arc<Marks>>,
    /// The delimiter to wait for before the grammar applies.
    pub gate: Option<GateSettings>,
    /// The limit on tokens of thoughts, before any are counted.
    pub thoughts: Option<ThoughtBudget>,
    /// Continues an answer in a full context by dropping tokens; `None` ends the answer when the context is full.
    pub shift: Option<Shift>,
    /// Minimum length of a run of equal tokens that is reused from an earlier conversation although its positions
    /// differ; 0 reuses none.
    pub reuse: usize,
    /// True if the client is told how many tokens are reused.
    pub tells_reuse: bool,
    /// True if no cached context is used.
    pub reads_anew: bool,
    /// The number of the slot that keeps the conversation; `None` for any slot.
    pub slot: Option<usize>,
    /// The scale of each adapter.
    pub lora: Vec<(usize, f32)>,
    /// Where pictures stand in the prompt.
    pub shown: Shown,
}
