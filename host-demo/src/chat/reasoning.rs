//! What a model thinks aloud, between `<think>` and `</think>`.

/// Part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Said(&'a str),
    /// The tags belong to it.
    Thought(&'a str),
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Tells thoughts from what is said, in a text that comes piece by piece.
#[derive(Debug)]
pub struct Thoughts {
    thinking: bool,
    /// What could still become a tag.
    held: String,
}

impl Thoughts {
    /// An answer to `prompt`, which may have opened a thought already.
    pub fn after(prompt: &str) -> Self {
        Self { thinking: prompt.trim_end().ends_with(OPEN), held: String::new() }
    }

    /// Takes the next piece and gives what is certain by now.
    pub fn push<E>(&mut self, piece: &str, mut show: impl FnMut(Part<'_>) -> Result<(), E>) -> Result<(), E> {
        self.held += piece;
        loop {
            let tag = if self.thinking { CLOSE } else { OPEN };
            let Some(at) = self.held.find(tag) else { break };
            let rest = self.held.split_off(at);
            self.flush(self.held.len(), &mut show)?;
            self.held = rest;
            // The tag is part of the thought.
            self.thinking = true;
            self.flush(tag.len(), &mut show)?;
            self.thinking = tag == OPEN;
        }
        let tag = if self.thinking { CLOSE } else { OPEN };
        let begun = (1..tag.len()).rev().find(|len| self.held.ends_with(&tag[..*len])).unwrap_or(0);
        self.flush(self.held.len() - begun, &mut show)
    }

    /// Gives what turned out to be no tag.
    pub fn finish<E>(&mut self, mut show: impl FnMut(Part<'_>) -> Result<(), E>) -> Result<(), E> {
        self.flush(self.held.len(), &mut show)
    }

    fn flush<E>(&mut self, len: usize, show: &mut impl FnMut(Part<'_>) -> Result<(), E>) -> Result<(), E> {
        let text: String = self.held.drain(..len).collect();
        match (text.is_empty(), self.thinking) {
            (true, _) => Ok(()),
            (false, true) => show(Part::Thought(&text)),
            (false, false) => show(Part::Said(&text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text and the reasoning of an answer that comes in `pieces`.
    fn parts(prompt: &str, pieces: &[&str]) -> (String, String) {
        let (mut said, mut thought) = (String::new(), String::new());
        let mut show = |part: Part<'_>| -> Result<(), ()> {
            match part {
                Part::Said(text) => said += text,
                Part::Thought(text) => thought += text,
            }
            Ok(())
        };
        let mut thoughts = Thoughts::after(prompt);
        for piece in pieces {
            thoughts.push(piece, &mut show).unwrap();
        }
        thoughts.finish(&mut show).unwrap();
        (said, thought)
    }

    #[test]
    fn thoughts_are_told_from_what_is_said() {
        let whole = ["<think>\nhm < 5\n</think>\n\nFive."];
        assert_eq!(parts("", &whole), ("\n\nFive.".into(), "<think>\nhm < 5\n</think>".into()));
        let cut = ["a <th", "ink>b</", "thin", "k>c<", "thin"];
        assert_eq!(parts("", &cut), ("a c<thin".into(), "<think>b</think>".into()));
        assert_eq!(parts("<think>\n", &["b</think>c"]), ("c".into(), "b</think>".into()));
        assert_eq!(parts("", &["plain"]), ("plain".into(), String::new()));
    }
}
