//! Reads input from a terminal or a pipe.

use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Editor, Helper};

use crate::output::note;
use arenite_text::shown::escaped;

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
    /// An interactive editor, and the file of its history. A pasted text may have several lines.
    Terminal(Box<Editor<LineHelper, FileHistory>>, Option<PathBuf>),
    /// Every line is a turn.
    Pipe,
}

impl Lines {
    /// Opens the editor if stdin and stdout are terminals, otherwise a reader for the pipe. `commands` has one line for
    /// each command.
    pub fn open(commands: &'static str) -> Result<Self> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(Self::Pipe);
        }
        let failed = "cannot read from the terminal";
        let config =
            Config::builder().bracketed_paste(true).auto_add_history(true).completion_type(CompletionType::List);
        let config = config.max_history_size(MOST_LINES).context(failed)?.build();
        let mut editor = Editor::with_config(config).context(failed)?;
        editor.set_helper(Some(LineHelper { commands }));
        let file = restore(&mut editor);
        Ok(Self::Terminal(Box::new(editor), file))
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(..))
    }

    pub fn next(&mut self) -> Result<Input> {
        match self {
            Self::Terminal(editor, history) => match editor.readline("> ") {
                Ok(line) => {
                    if let Some(file) = history
                        && editor.append_history(file).is_err()
                    {
                        // The conversation goes on without a history.
                        *history = None;
                    }
                    Ok(Input::Text(said(&line)))
                }
                Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
                Err(ReadlineError::Eof) => Ok(Input::End),
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    note("this is not text in UTF-8: set the terminal to UTF-8, or type it again");
                    Ok(Input::Text(String::new()))
                }
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

/// Returns the text of a complete input, without the [`QUOTES`] around it or, if it has none, without the backslashes
/// before its line breaks.
fn said(line: &str) -> String {
    match line.strip_prefix(QUOTES) {
        Some(quoted) => quoted.trim_end().trim_end_matches(QUOTES).trim_matches('\n').to_string(),
        None => line.replace("\\\n", "\n"),
    }
}

fn goes_on(line: &str) -> bool {
    line.strip_prefix(QUOTES).map_or(line.ends_with('\\'), |quoted| !quoted.trim_end().ends_with(QUOTES))
}

/// Continues a line that ends in a backslash, or that begins with [`QUOTES`] and does not end with them. Completes
/// commands.
pub struct LineHelper {
    /// The commands of the chat, one on each line, with a command's name, its argument, and a description.
    commands: &'static str,
}

impl LineHelper {
    /// Returns the column from which Tab replaces the line, and the possible replacements.
    fn completions(&self, before: &str) -> (usize, Vec<String>) {
        let commands = self.commands.lines().filter(|line| line.starts_with('/')).map(|line| {
            let mut words = line.split_whitespace();
            (words.next().unwrap_or_default(), words.next().unwrap_or_default())
        });
        let Some((name, start)) = before.split_once(' ') else {
            let names = commands.filter(|(name, _)| !before.is_empty() && name.starts_with(before));
            return (0, names.map(|(name, _)| name.to_string()).collect());
        };
        let values = commands.filter(|(command, _)| *command == name).flat_map(|(_, argument)| argument.split('|'));
        let values = values.filter(|value| is_value(value) && value.starts_with(start));
        (name.len() + 1, values.map(str::to_string).collect())
    }

    /// Returns true if the argument of the command is a file.
    fn takes_file(&self, before: &str) -> bool {
        let name = before.split_once(' ').map(|(name, _)| name);
        name.is_some_and(|name| self.commands.lines().any(|line| line.starts_with(&format!("{name} FILE"))))
    }
}

/// Returns true if Tab can complete the argument. Arguments in capitals stand for a text of the user.
fn is_value(argument: &str) -> bool {
    argument.chars().all(|c| c.is_ascii_lowercase())
}

impl Validator for LineHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if goes_on(context.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for LineHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Self::Candidate>)> {
        let before = &line[..position];
        if self.takes_file(before) {
            return FilenameCompleter::new().complete_path(line, position);
        }
        let (start, texts) = self.completions(before);
        Ok((start, texts.into_iter().map(|text| Pair { display: text.clone(), replacement: text }).collect()))
    }
}

impl Hinter for LineHelper {
    type Hint = String;
}

impl Highlighter for LineHelper {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _is_default: bool) -> Cow<'b, str> {
        Cow::Owned(format!("\x1b[1;32m{prompt}\x1b[0m"))
    }
}

impl Helper for LineHelper {}

/// Returns the path of the history file; `None` if no history is kept.
fn history_file() -> Option<PathBuf> {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if std::env::var_os(HISTORY).is_some() {
        return given(HISTORY);
    }
    let state = || given("HOME").map(|home| home.join(".local/state")).or_else(|| given("LOCALAPPDATA"));
    Some(given("XDG_STATE_HOME").or_else(state)?.join("arenite/history"))
}

/// The environment variable with the path of the history file. If the variable is empty, no history is kept.
const HISTORY: &str = "ARENITE_HISTORY";
/// Maximum number of lines in the history.
const MOST_LINES: usize = 1000;

/// Reads the history. Returns the path of the history file; `None` if no history is kept.
fn restore(editor: &mut Editor<LineHelper, FileHistory>) -> Option<PathBuf> {
    let file = history_file()?;
    let read = file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::Io);
    match read.and_then(|()| if is_history(&file)? { editor.load_history(&file) } else { Ok(()) }) {
        Ok(()) => Some(file),
        Err(error) => {
            note(format_args!(
                "warning: no history is kept: {}: {error}; set {HISTORY} to another file",
                file.display()
            ));
            None
        }
    }
}

/// Returns true if the file exists and is a history, and false if it does not exist yet. Refuses a file whose lines
/// would control the terminal, and an endless file.
fn is_history(file: &Path) -> io::Result<bool> {
    if !file.exists() {
        return Ok(false);
    }
    if !file.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let text = std::fs::read(file)?;
    if *escaped(&text) == *text { Ok(true) } else { Err(io::Error::other("it has control characters")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_steer_no_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history");
        assert!(!is_history(&file).unwrap() && is_history(folder.path()).is_err());
        for (text, is_good) in [("#V2\none\ntwo \u{e9}\n", true), ("a\u{1b}[2J\n", false), ("\u{9b}2J", false)] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(is_history(&file).is_ok(), is_good, "{text:?}");
        }
    }

    #[test]
    fn tab_completes_commands_and_their_values() {
        let commands = "/save FILE     save\n/stats         show\n/think on|off  switch\nmore words";
        let helper = LineHelper { commands };
        for (before, start, wanted) in [
            ("/s", 0, &["/save", "/stats"][..]),
            ("/th", 0, &["/think"]),
            ("/think ", 7, &["on", "off"]),
            ("/think of", 7, &["off"]),
            ("/save ", 6, &[]),
            ("mo", 0, &[]),
            ("", 0, &[]),
            ("a word", 2, &[]),
        ] {
            assert_eq!(
                helper.completions(before),
                (start, wanted.iter().map(ToString::to_string).collect()),
                "{before}"
            );
        }
        assert!(helper.takes_file("/save a") && !helper.takes_file("/save") && !helper.takes_file("/stats a"));
    }

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
