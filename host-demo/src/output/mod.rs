//! Writes to standard output and standard error. A failed write is an error instead of a panic, and a terminal is
//! protected from control characters.
//!
//! Text from models and names in files may contain anything. On a terminal, control characters other than newline and
//! tab, and characters that change the writing direction, are shown escaped. Pipes get the bytes unchanged; with
//! `--raw`, terminals do, too. Lines on standard error are always escaped.

pub mod announce;
pub mod npy;
pub mod plot;
pub mod progress;
pub mod wrap;

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::foreign;
pub use arenite_files::Bytes;
use arenite_text::json_line;
use arenite_text::shown::{escaped, one_line};

/// Exit code after Ctrl-C: 128 plus the number of SIGINT, as in shells.
pub const INTERRUPTED: u8 = 130;

/// Standard output, locked. A write to a closed pipe returns an error, for which [`report`] prints nothing.
pub struct Out {
    to: StdoutLock<'static>,
    is_terminal: bool,
    has_colours: bool,
}

/// True if terminals get the bytes unchanged.
static RAW: AtomicBool = AtomicBool::new(false);

/// Disables escaping.
pub fn raw() {
    RAW.store(true, Ordering::Relaxed);
}

impl Out {
    pub fn lock() -> Self {
        let to = io::stdout().lock();
        let is_terminal = to.is_terminal();
        Self { to, is_terminal, has_colours: is_terminal && wants_colours() }
    }

    /// Writes `sequence` without escaping if the output is a terminal with colors.
    pub fn style(&mut self, sequence: &'static str) -> io::Result<()> {
        if self.has_colours { self.to.write_all(sequence.as_bytes()).map_err(where_it_was) } else { Ok(()) }
    }

    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes `bytes` and flushes.
    pub fn now(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.flush()
    }

    /// Writes `value` as one line of JSON.
    pub fn json(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        writeln!(self, "{}", json_line(value)?)
    }

    /// Writes `value` as indented JSON, one line per field.
    pub fn json_pretty(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *self, value).map_err(io::Error::from)?;
        writeln!(self)
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let safe = if self.is_terminal { for_terminal(bytes) } else { Cow::Borrowed(bytes) };
        self.to.write_all(&safe).map_err(where_it_was)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(where_it_was)
    }
}

/// Returns false if the user does not want colors (<https://no-color.org>) or the terminal has none.
fn wants_colours() -> bool {
    let is_unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    is_unset("NO_COLOR") && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// Returns the number of columns of standard output; `None` if it is not a terminal, or if bytes are written unchanged.
pub fn terminal_width() -> Option<usize> {
    let size = terminal_size::terminal_size_of(io::stdout()).filter(|_| !RAW.load(Ordering::Relaxed));
    size.map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
}

fn where_it_was(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Prints a line to standard error. Failures are ignored. Characters that control a terminal are escaped even if
/// standard error is not a terminal, because a journal or a log file may later be shown on a terminal.
pub fn note(line: impl fmt::Display) {
    let mut line = line.to_string() + "\n";
    if let Some((width, _)) = terminal_size::terminal_size_of(io::stderr()) {
        line = wrap::wrapped(&line, width.0.into());
    }
    let _ = io::stderr().lock().write_all(&for_terminal(line.as_bytes()));
}

/// Writes a part of a text to standard error. Failures are ignored, and characters are escaped as in [`note`].
pub fn aside(text: &str) {
    let _ = io::stderr().lock().write_all(&for_terminal(text.as_bytes()));
}

/// Prints what the libraries of this program report.
struct LogNotes;

impl log::Log for LogNotes {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn && metadata.target().starts_with("arenite")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            note(record.args());
        }
    }

    fn flush(&self) {}
}

/// Prints warnings of the libraries as notes from now on.
pub fn show_log() {
    if log::set_logger(&LogNotes).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}

/// Escapes characters that control a terminal, unless the user wants the bytes unchanged.
fn for_terminal(bytes: &[u8]) -> Cow<'_, [u8]> {
    if RAW.load(Ordering::Relaxed) { Cow::Borrowed(bytes) } else { escaped(bytes) }
}

/// Returns true if standard error is a terminal, so that progress can be shown on it.
pub fn watched() -> bool {
    io::stderr().is_terminal()
}

/// Prints an error on one line. Returns the exit code for this error.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        // If the reader of a pipe has closed it, as in `arenite ... | head`, this is not an error, so the exit code is
        // that of success.
        return ExitCode::SUCCESS;
    }
    note(format_args!("error: {}", words(error)));
    ExitCode::FAILURE
}

/// Formats an error and its causes on one line.
pub fn words(error: &anyhow::Error) -> String {
    one_line(&error.chain().map(in_words).collect::<Vec<_>>().join(": "))
}

/// Returns the message of a cause. Adds advice to the system's error codes, and describes the core's errors in terms of
/// this program's options.
fn in_words(cause: &(dyn std::error::Error + 'static)) -> String {
    use arenite::Error;
    use io::ErrorKind as Io;
    match (cause.downcast_ref::<io::Error>(), cause.downcast_ref::<Error>()) {
        (Some(error), _) if error.get_ref().is_none() => match error.kind() {
            Io::NotFound => "no such file or directory; check the path".into(),
            Io::NotADirectory => "a part of the path is not a directory; check the path".into(),
            Io::IsADirectory => "this is a directory; give a file in it".into(),
            Io::PermissionDenied => "permission denied; check the permissions".into(),
            Io::StorageFull => "no space is left on the device".into(),
            Io::FileTooLarge => "the file would exceed the size limit (`ulimit -f`)".into(),
            Io::InvalidData => "this is not text in UTF-8; check that it is the right file".into(),
            _ => error.to_string(),
        },
        (_, Some(Error::NotGguf)) => format!("{cause}; give a .gguf file, or make one with `arenite convert hf`"),
        (_, Some(Error::Unsupported { what: "architecture", name })) => foreign::architecture(&name.to_string()),
        (_, Some(Error::UnknownTensorType { tensor, id })) => foreign::tensor_type(&tensor.to_string(), *id),
        (_, Some(Error::NoSource)) => "this is an encoder-decoder model: use `arenite translate`".into(),
        (_, Some(Error::NoPart { part: "decoder" })) => {
            "the model has no decoder and cannot generate text: use `arenite embed`, or give another model".into()
        }
        (_, Some(Error::NoPart { part: "encoder" })) => {
            "the model has no encoder: give one with an encoder (-m)".into()
        }
        (_, Some(Error::ContextFull { context, needed })) => {
            format!("the context has {context} positions but {needed} are needed: give -c {needed} or more")
        }
        _ => cause.to_string(),
    }
}

/// Exit code for invalid command lines.
const USAGE: u8 = 2;

/// Prints an error about the command line on one line.
pub fn usage(wrong: &str) -> ExitCode {
    note(format_args!("error: {}", one_line(wrong)));
    ExitCode::from(USAGE)
}

/// Prints the requested help, or an error about the command line `args` on one line.
pub fn usage_error(told: &clap::Error, args: &[OsString]) -> ExitCode {
    use clap::error::ErrorKind;
    // Requested help is printed to stdout, where a failed write is an error. Help because of a missing command is
    // printed to stderr.
    if !told.use_stderr() {
        let written = told.print().and_then(|()| io::stdout().flush());
        return match written {
            Err(error) => report(&anyhow::Error::new(error).context("cannot write the help")),
            Ok(()) => ExitCode::SUCCESS,
        };
    }
    if told.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = told.print();
        return ExitCode::from(USAGE);
    }
    if told.kind() == ErrorKind::InvalidUtf8
        && let Some(wrong) = args.iter().find(|argument| argument.to_str().is_none())
    {
        return usage(&format!("the argument {wrong:?} is not UTF-8; give a text with -f FILE; see --help"));
    }
    note(format_args!("error: {}; see --help", usage_words(told)));
    ExitCode::from(USAGE)
}

/// Formats an error about options on one line.
pub fn usage_words(told: &clap::Error) -> String {
    let whole = told.render().to_string();
    let said = |part: &&str| !part.starts_with("Usage:") && !part.starts_with("For more information");
    let whole = whole.strip_prefix("error: ").unwrap_or(&whole);
    whole.split("\n\n").map(str::trim).filter(said).map(one_line).collect::<Vec<_>>().join("; ")
}
