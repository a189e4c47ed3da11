//! The settings of a chat's answer that follow from its prompt, its functions and its format: one place for the command
//! line and for every interface of the server, so that the same request has the same answer.

use std::sync::Arc;

use serde_json::Value;

use super::Style;
use super::dialect::{Constraint, GateSettings, Own, Reader, ThoughtBudget, ThoughtForm, Tools, unwrapped};
use crate::generation::Settings;
use crate::grammar::Piece;

/// The number of tokens that thoughts may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThoughtLimit {
    /// Half of the available tokens if the answer is constrained; otherwise no limit.
    #[default]
    Usual,
    Unlimited,
    UpTo(usize),
}

/// A grammar of calls that applies after their opening mark.
pub struct StrictCalls {
    pub until: String,
    pub table: Arc<[u8]>,
}

/// What a request determines about its answer besides [`Settings`].
pub struct Wanted<'a> {
    /// The text of the prompt, which may have opened a thought.
    pub prompt: &'a str,
    pub tools: &'a Arc<Tools>,
    pub thoughts: ThoughtLimit,
    /// Number of tokens that the context has left for the answer.
    pub room: usize,
    pub strict: Option<StrictCalls>,
}

impl Style {
    /// Completes the settings of an answer, which already have their limit, stop strings and grammar.
    pub fn complete(&self, settings: &mut Settings, wanted: Wanted<'_>) {
        let Wanted { prompt, tools, thoughts, room, strict } = wanted;
        settings.marks = Some(self.marks.clone()).filter(|marks| !marks.is_empty());
        for stop in settings.stops.clone() {
            let resolved = self.marks.resolve(&stop);
            if resolved != stop {
                settings.stops.push(resolved);
            }
        }
        let budget = match thoughts {
            ThoughtLimit::UpTo(tokens) => Some(tokens),
            ThoughtLimit::Unlimited => None,
            ThoughtLimit::Usual => settings.table.is_some().then(|| settings.limit.unwrap_or(room).min(room) / 2),
        };
        settings.thoughts = budget.map(|budget| ThoughtBudget::new(self.reader(tools, prompt), budget));
        let is_constrained = strict.is_some() || settings.table.is_some();
        settings.gate = if is_constrained { self.thought_gate(prompt) } else { None };
        let Some(StrictCalls { until, table }) = strict else { return };
        settings.table = Some(table);
        let gate = GateSettings { until, is_thought: false, then: None };
        match &mut settings.gate {
            Some(thought) => thought.then = Some(Box::new(gate)),
            none => *none = Some(gate),
        }
    }

    /// Returns true if the text `stop` at the end of a turn ends an answer: it may also be the mark after a thought.
    pub fn ends_answer(&self, stop: &str) -> bool {
        let ends_thought = |form: &ThoughtForm<String>| unwrapped(&form.close) == stop;
        !stop.is_empty() && !self.dialect.thoughts.iter().any(ends_thought)
    }

    /// Returns the grammar of an answer that follows a schema, if the schema describes only the last of several
    /// messages: in dialects with channels or recipients.
    pub fn schema_in_messages(&self, schema: &Value) -> Option<Piece> {
        let in_messages = self.dialect.has_recipients || self.dialect.own == Own::Channels;
        in_messages.then(|| self.constraint().content(schema))
    }

    /// Returns the mark before calls and their grammar, if an answer without another constraint may call functions
    /// with strict parameters.
    pub fn strict_calls(&self, tools: &Tools, is_parallel: bool) -> Option<(String, Piece)> {
        if !tools.0.iter().any(|tool| tool.strict) {
            return None;
        }
        self.constraint().after_mark(&tools.0.iter().collect::<Vec<_>>(), is_parallel)
    }

    /// Returns the reader that divides an answer to `prompt` into content, thoughts and calls. An answer that follows a
    /// schema is content after its thought.
    pub fn answer_reader(&self, tools: &Arc<Tools>, prompt: &str, is_schema: bool, is_parallel: bool) -> Reader {
        let mut reader = self.reader(tools, prompt);
        if is_schema {
            reader = reader.without_thought().only_marked();
        }
        if is_parallel { reader } else { reader.only_one_call() }
    }

    pub fn constraint(&self) -> Constraint<'_> {
        Constraint { dialect: &self.dialect, marks: &self.marks }
    }
}
