//! Reads input from a terminal or a pipe.

use std::io::{self, BufRead, IsTerminal};

use anyhow::{Context, Result};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Editor, Helper};

/// The input of one turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    Text(String),
    /// Ctrl-C was pressed at the prompt.
    Interrupted,
    End,
}

/// The source of turns.
pub enum Lines {
    /// An interactive editor with history; a pasted text may have several lines.
    Terminal(Box<Editor<Continued, MemHistory>>),
    /// Every line is a turn.
    Pipe,
}

impl Lines {
    /// Opens the editor if stdin and stdout are terminals, otherwise the pipe.
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

/// Delimits a text of several lines.
const QUOTES: &str = "\"\"\"";

/// Returns the text of a complete line.
fn said(line: &str) -> String {
    match line.strip_prefix(QUOTES) {
        Some(quoted) => quoted.trim_end().trim_end_matches(QUOTES).trim_matches('\n').to_string(),
        None => line.replace("\\\n", "\n"),
    }
}

/// Continues a line that ends in a backslash, or that begins with [`QUOTES`] until they are closed.
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
