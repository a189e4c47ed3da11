//! Derives the settings of a chat's answer from its prompt, its functions and its format. The command line and every
//! interface of the server call this code, so that the same request has the same answer.

use std::sync::Arc;

use arenite_chat::Style;
use arenite_chat::dialect::{GateSettings, ThoughtBudget, Tools};
use arenite_grammar::Table;
use arenite_request::Thinking;

use super::Settings;

/// The number of tokens that thoughts may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThoughtLimit {
    /// The default: an answer with a grammar may use half of the available tokens for thoughts, other answers have no
    /// limit.
    #[default]
    Usual,
    Unlimited,
    UpTo(usize),
}

impl ThoughtLimit {
    /// Returns the limit that a request asks for. If thoughts are turned off but the model always thinks, its thought
    /// is closed at once.
    pub fn of(asked: &Thinking) -> Self {
        match asked.budget {
            _ if asked.is_off() => Self::UpTo(0),
            Some(budget) => usize::try_from(budget).map_or(Self::Unlimited, Self::UpTo),
            None => Self::Usual,
        }
    }
}

/// A grammar of calls that applies after the opening delimiter of a call.
pub struct StrictCalls {
    pub until: String,
    pub table: Arc<Table>,
}

/// Properties of a chat. [`complete`](Self::complete) derives the settings of the answer from them.
pub struct Wanted<'a> {
    /// The text of the prompt, which may have opened a thought.
    pub prompt: &'a str,
    pub tools: &'a Arc<Tools>,
    pub thoughts: ThoughtLimit,
    /// Number of tokens that the context has left for the answer.
    pub room: usize,
    pub strict: Option<StrictCalls>,
}

impl Wanted<'_> {
    /// Completes the settings of an answer by what follows from the chat and from the style of the model's template.
    /// The limit, the stop strings and the grammar must already be set.
    pub fn complete(self, style: &Style, settings: &mut Settings) {
        let Wanted { prompt, tools, thoughts, room, strict } = self;
        settings.marks = Some(style.marks.clone()).filter(|marks| !marks.is_empty());
        for stop in settings.stops.clone() {
            let resolved = style.marks.resolve(&stop);
            if resolved != stop {
                settings.stops.push(resolved);
            }
        }
        let is_constrained = strict.is_some() || settings.table.is_some();
        let budget = match thoughts {
            ThoughtLimit::UpTo(tokens) => Some(tokens),
            ThoughtLimit::Usual if settings.table.is_some() => Some(settings.limit.unwrap_or(room).min(room) / 2),
            // There is no limit on thoughts, but the budget is needed nevertheless, with a limit that is never reached:
            // it closes a thought in which the model ends its answer, and it shows where stop strings apply.
            ThoughtLimit::Usual | ThoughtLimit::Unlimited => {
                (settings.table.is_some() || !settings.stops.is_empty()).then_some(usize::MAX)
            }
        };
        settings.thoughts = budget.map(|budget| ThoughtBudget::new(style.reader(tools, prompt), budget));
        settings.gate = if is_constrained { style.thought_gate(prompt) } else { None };
        let Some(StrictCalls { until, table }) = strict else { return };
        settings.table = Some(table);
        let gate = GateSettings { until, is_thought: false, then: None };
        match &mut settings.gate {
            Some(thought) => thought.then = Some(Box::new(gate)),
            none => *none = Some(gate),
        }
    }
}
