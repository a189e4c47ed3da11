//! What somebody types, or what comes through a pipe.

use std::io::{self, BufRead, IsTerminal};

use anyhow::{Context, Result};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Editor, Helper};

/// One turn's worth.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    Text(String),
    /// Ctrl-C where a line was waited for.
    Interrupted,
    End,
}

/// Where turns come from.
pub enum Lines {
    /// Somebody types: lines can be edited, come back with the arrow keys, and a pasted text may have several.
    Terminal(Box<Editor<Continued, MemHistory>>),
    /// A line is a turn.
    Pipe,
}

impl Lines {
    /// The editor if there is a terminal on both sides.
    pub fn open() -> Result<Self> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(Self::Pipe);
        }
        let config = Config::builder().bracketed_paste(true).auto_add_history(true).build();
        let mut editor = Editor::with_history(config, MemHistory::new()).context("cannot read from the terminal")?;
        editor.set_helper(Some(Continued));
        Ok(Self::Terminal(Box::new(editor)))
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    pub fn next(&mut self) -> Result<Input> {
        match self {
            Self::Terminal(editor) => match editor.readline("> ") {
                Ok(line) => Ok(Input::Text(said(&line))),
                Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
                Err(ReadlineError::Eof) => Ok(Input::End),
                Err(error) => Err(error).context("cannot read from the terminal"),
            },
            Self::Pipe => {
                let mut line = Vec::new();
                let read = io::stdin().lock().read_until(b'\n', &mut line).context("cannot read standard input")?;
                let line = String::from_utf8_lossy(&line).into_owned();
                Ok(if read == 0 { Input::End } else { Input::Text(line.trim_end_matches(['\n', '\r']).to_string()) })
            }
        }
    }
}

/// What quotes a text of several lines.
const QUOTES: &str = "\"\"\"";

/// The text of a line that is whole.
fn said(line: &str) -> String {
    match line.strip_prefix(QUOTES) {
        Some(quoted) => quoted.trim_end().trim_end_matches(QUOTES).trim_matches('\n').to_string(),
        None => line.replace("\\\n", "\n"),
    }
}

/// A line that ends in a backslash goes on, and one that begins with [`QUOTES`] until there are others.
pub struct Continued;

fn goes_on(line: &str) -> bool {
    line.strip_prefix(QUOTES).map_or(line.ends_with('\\'), |quoted| !quoted.trim_end().ends_with(QUOTES))
}

impl Validator for Continued {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if goes_on(context.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Continued {
    type Candidate = String;
}

impl Hinter for Continued {
    type Hint = String;
}

impl Highlighter for Continued {}

impl Helper for Continued {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_lines_are_one_turn() {
        for (line, wanted) in [
            ("a", Some("a")),
            ("a\\", None),
            ("a\\\nb", Some("a\nb")),
            ("\"\"\"", None),
            ("\"\"\"a\\\nb", None),
            ("\"\"\"\na\nb\n\"\"\" ", Some("a\nb")),
            ("\"\"\"a\"\"\"", Some("a")),
        ] {
            assert_eq!((!goes_on(line)).then(|| said(line)).as_deref(), wanted, "{line}");
        }
    }
}
