//! The gate waits for a delimiter in an answer (the end of a thought or the start of a call). A grammar applies after
//! this delimiter.

/// Which delimiter a gate waits for, and whether the text before it is a thought.
#[derive(Clone, Debug)]
pub struct GateSettings {
    pub until: String,
    /// True if the text before the delimiter is a thought, and the answer begins after the delimiter.
    pub is_thought: bool,
    /// The delimiter to wait for after this one.
    pub then: Option<Box<GateSettings>>,
}

/// The state of an answer before the delimiter.
#[derive(Clone, Debug)]
pub struct Gate {
    settings: GateSettings,
    /// The last part of the text so far, long enough to contain the delimiter.
    tail: String,
}

impl Gate {
    pub fn new(settings: GateSettings) -> Self {
        Self { settings, tail: String::new() }
    }

    /// Returns true if the text up to the gate's delimiter is a thought.
    pub fn is_thought(&self) -> bool {
        self.settings.is_thought
    }

    /// Returns the text after the delimiter, if the next token, whose text is `piece`, completes the delimiter.
    pub fn rest_after(&self, piece: &str) -> Option<String> {
        let mut last = self.settings.then.as_deref().unwrap_or(&self.settings);
        while let Some(then) = &last.then {
            last = then;
        }
        let may_end = last.until.chars().next_back().is_none_or(|end| piece.contains(end));
        if may_end { self.clone().push(piece) } else { None }
    }

    /// Adds the text of a token. Once the gate's delimiter is complete, returns the text after it.
    pub fn push(&mut self, piece: &str) -> Option<String> {
        let until = &self.settings.until;
        self.tail += piece;
        if let Some(at) = self.tail.find(until) {
            let rest = self.tail.split_off(at + until.len());
            let Some(next) = self.settings.then.take() else { return Some(rest) };
            *self = Self::new(*next);
            return self.push(&rest);
        }
        let keep = self.tail.len().saturating_sub(2 * until.len());
        let keep = (0..=keep).rev().find(|at| self.tail.is_char_boundary(*at)).unwrap_or(0);
        self.tail.drain(..keep);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_opens_the_gate() {
        let settings = GateSettings { until: "</think>".into(), is_thought: true, then: None };
        let mut gate = Gate::new(settings.clone());
        assert_eq!(["a", "</th", "in"].map(|piece| gate.push(piece)), [None, None, None]);
        assert_eq!(gate.push("k>\n\n").as_deref(), Some("\n\n"));
        let then = GateSettings { until: "<call>".into(), is_thought: false, then: None };
        let mut both = Gate::new(GateSettings { then: Some(Box::new(then)), ..settings });
        assert_eq!(["<call>", "</think><ca", "ll"].map(|piece| both.push(piece)), [None, None, None]);
        assert!(!both.is_thought());
        assert_eq!(both.push(">{").as_deref(), Some("{"));
    }
}
