//! The gate waits for the mark in an answer after which a grammar applies: the end of a thought, or the start of a
//! call.

use std::collections::VecDeque;

use arenite::TokenId;

/// The mark, and the maximum length of the text before it.
#[derive(Clone, Debug)]
pub struct GateSettings {
    pub until: String,
    /// Maximum number of tokens before the mark.
    pub budget: Option<usize>,
    /// Tokens that are written when the budget is used up.
    pub closing: Vec<TokenId>,
    /// The mark to wait for after this one.
    pub then: Option<Box<GateSettings>>,
}

/// The state of an answer before the mark.
#[derive(Clone, Debug)]
pub struct Gate {
    settings: GateSettings,
    /// The end of the text, long enough to contain the mark.
    tail: String,
    tokens: usize,
    /// Tokens that are generated next, regardless of the logits.
    forced: VecDeque<TokenId>,
}

impl Gate {
    pub fn new(settings: GateSettings) -> Self {
        let forced =
            if settings.budget == Some(0) { settings.closing.iter().copied().collect() } else { VecDeque::new() };
        Self { settings, tail: String::new(), tokens: 0, forced }
    }

    /// Returns true if the text before the mark is a thought, which can be closed.
    pub fn is_thought(&self) -> bool {
        !self.settings.closing.is_empty()
    }

    /// Returns the next forced token, if there is one.
    pub fn forced(&mut self) -> Option<TokenId> {
        self.forced.pop_front()
    }

    /// Adds the text of a token. Returns the text after the mark once the mark is complete.
    pub fn push(&mut self, piece: &str) -> Option<String> {
        let GateSettings { until, budget, closing, .. } = &self.settings;
        self.tail += piece;
        self.tokens += 1;
        if let Some(at) = self.tail.find(until) {
            let rest = self.tail.split_off(at + until.len());
            let Some(next) = self.settings.then.take() else { return Some(rest) };
            *self = Self::new(*next);
            return self.push(&rest);
        }
        let keep = self.tail.len().saturating_sub(2 * until.len());
        let keep = (0..=keep).rev().find(|at| self.tail.is_char_boundary(*at)).unwrap_or(0);
        self.tail.drain(..keep);
        if budget.is_some_and(|budget| self.tokens >= budget) && self.forced.is_empty() {
            self.forced.extend(closing);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_opens_the_gate() {
        let settings = GateSettings { until: "</think>".into(), budget: Some(3), closing: vec![7, 8], then: None };
        let mut gate = Gate::new(settings.clone());
        assert_eq!(["a", "</th", "in"].map(|piece| gate.push(piece)), [None, None, None]);
        assert_eq!((gate.forced(), gate.forced(), gate.forced()), (Some(7), Some(8), None));
        assert_eq!(gate.push("k>\n\n").as_deref(), Some("\n\n"));
        let then = GateSettings { until: "<call>".into(), budget: None, closing: Vec::new(), then: None };
        let mut both = Gate::new(GateSettings { then: Some(Box::new(then)), ..settings.clone() });
        assert_eq!(["<call>", "</think><ca", "ll"].map(|piece| both.push(piece)), [None, None, None]);
        assert!(!both.is_thought());
        assert_eq!(both.push(">{").as_deref(), Some("{"));
        assert_eq!(Gate::new(GateSettings { budget: Some(0), ..settings }).forced(), Some(7));
    }
}
