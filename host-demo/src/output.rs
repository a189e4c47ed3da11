//! Standard output and error, without the panics of `println!`, and safe for a terminal.
//!
//! What a model says and what a file has for names may hold anything. On a terminal, characters that would steer
//! it are shown escaped: control characters other than newline and tab, and what changes the direction of writing.
//! A pipe gets the bytes, and so does a terminal after `--raw`.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::text::json_line;

/// Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// Standard output, locked. A reader that went away is an error like any other here;
/// [`report`] turns it into a quiet end.
pub struct Out {
    to: StdoutLock<'static>,
    is_terminal: bool,
}

/// Whether a terminal gets the bytes as they are.
static RAW: AtomicBool = AtomicBool::new(false);

/// From here on nothing is escaped.
pub fn raw() {
    RAW.store(true, Ordering::Relaxed);
}

impl Out {
    pub fn lock() -> Self {
        let to = io::stdout().lock();
        Self { is_terminal: to.is_terminal(), to }
    }

    /// Writes a control sequence of our own, if there is a terminal.
    pub fn style(&mut self, sequence: &'static str) -> io::Result<()> {
        if self.is_terminal { self.to.write_all(sequence.as_bytes()).map_err(where_it_was) } else { Ok(()) }
    }

    /// Writes `bytes` and sees to it that they arrive now.
    pub fn now(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.flush()
    }

    /// Writes `value` as one line of JSON.
    pub fn json(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        writeln!(self, "{}", json_line(value)?)
    }

    /// Writes `value` as JSON for people: one line per field.
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

fn where_it_was(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// A line on standard error. Nobody is left to tell when that fails.
pub fn note(line: impl fmt::Display) {
    let mut to = io::stderr().lock();
    let mut line = line.to_string().into_bytes();
    if to.is_terminal() {
        line = for_terminal(&line).into_owned();
    }
    line.push(b'\n');
    let _ = to.write_all(&line);
}

/// `bytes` without what steers a terminal.
fn for_terminal(bytes: &[u8]) -> Cow<'_, [u8]> {
    if RAW.load(Ordering::Relaxed) {
        return Cow::Borrowed(bytes);
    }
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' | '\t' => shown.push(c),
                '\0'..' ' | '\x7f' => _ = write!(shown, "\\x{:02x}", u32::from(c)),
                _ if steers(c) => _ = write!(shown, "\\u{{{:x}}}", u32::from(c)),
                _ => shown.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| _ = write!(shown, "\\x{byte:02x}"));
    }
    Cow::Owned(shown.into_bytes())
}

/// C1 controls, and marks of the direction of writing.
fn steers(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

/// Whether someone looks at standard error while it is written.
pub fn watched() -> bool {
    io::stderr().is_terminal()
}

/// Says on one line what went wrong and gives the exit code for it.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        // `arenite ... | head` has seen enough: nothing went wrong.
        return ExitCode::SUCCESS;
    }
    note(format_args!("error: {}", words(error)));
    ExitCode::FAILURE
}

/// An error and its causes, on one line.
pub fn words(error: &anyhow::Error) -> String {
    one_line(&error.chain().map(in_words).collect::<Vec<_>>().join(": "))
}

/// What a cause says, with what to do: where the system only names its error, and where the core, which knows of no
/// flags, speaks to programs.
fn in_words(cause: &(dyn std::error::Error + 'static)) -> String {
    use arenite::Error;
    use io::ErrorKind as Io;
    match (cause.downcast_ref::<io::Error>(), cause.downcast_ref::<Error>()) {
        (Some(error), _) if error.get_ref().is_none() => match error.kind() {
            Io::NotFound => "there is no such file or directory; check the path".into(),
            Io::NotADirectory => "a part of the path is a file and no directory; check the path".into(),
            Io::IsADirectory => "this is a directory; give a file in it".into(),
            Io::PermissionDenied => "permission denied; check who may do this".into(),
            Io::StorageFull => "no space is left on the device".into(),
            Io::FileTooLarge => "it would be larger than the limit on the size of files (`ulimit -f`)".into(),
            Io::InvalidData => "this is not text in UTF-8; check which file it is".into(),
            _ => error.to_string(),
        },
        (_, Some(Error::NotGguf)) => format!("{cause}; give a .gguf file, or make one with `arenite convert`"),
        (_, Some(Error::NoSource)) => "this is an encoder-decoder: take `arenite translate`".into(),
        (_, Some(Error::NoPart { part: "decoder" })) => {
            "the model has no decoder and makes no text: take `arenite embed`, or give another model".into()
        }
        (_, Some(Error::NoPart { part: "encoder" })) => "the model has no encoder: give one that has with -m".into(),
        (_, Some(Error::ContextFull { context, needed })) => {
            format!("the context has {context} positions and {needed} are needed: give a larger one with -c")
        }
        _ => cause.to_string(),
    }
}

/// Exit code of a command line that cannot be understood.
const USAGE: u8 = 2;

/// Says on one line what is wrong with the command line.
pub fn usage(wrong: &str) -> ExitCode {
    note(format_args!("error: {wrong}"));
    ExitCode::from(USAGE)
}

/// Shows help that was asked for, or says on one line what is wrong with the command line.
pub fn usage_error(told: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    // Asked for, it goes to stdout, and must get there; for want of a command, to stderr.
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
        && let Some(wrong) = std::env::args_os().find(|argument| argument.to_str().is_none())
    {
        return usage(&format!("the argument {wrong:?} is not UTF-8; give a text with -f FILE; see --help"));
    }
    let whole = told.render().to_string();
    let said = |part: &&str| !part.starts_with("Usage:") && !part.starts_with("For more information");
    let parts: Vec<String> = whole.split("\n\n").map(str::trim).filter(said).map(one_line).collect();
    note(format_args!("{}; see --help", parts.join("; ")));
    ExitCode::from(USAGE)
}

/// `text` with every run of line breaks as one space.
pub fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A number of bytes for people: a KiB is 1024 bytes.
pub struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let text = if self.0 < 1 << 10 {
            format!("{} B", self.0)
        } else if self.0 < 1 << 20 {
            format!("{:.1} KiB", bytes / 1024.0)
        } else if self.0 < 1 << 30 {
            format!("{:.1} MiB", bytes / 1048576.0)
        } else {
            format!("{:.2} GiB", bytes / 1073741824.0)
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        let shown = [0, 1023, 1024, 532480, 4 << 20, 3 << 30].map(|n| Bytes(n).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "520.0 KiB", "4.0 MiB", "3.00 GiB"]);
        assert_eq!(format!("{:>8}", Bytes(12)), "    12 B");
    }

    #[test]
    fn a_terminal_is_not_steered() {
        let shown = |bytes: &[u8]| String::from_utf8(for_terminal(bytes).into_owned()).unwrap();
        assert_eq!(shown("a\tb\n\u{e9} \u{928}\u{1f600}".as_bytes()), "a\tb\n\u{e9} \u{928}\u{1f600}");
        assert_eq!(shown(b"\x1b[2J\r\x7f\0"), "\\x1b[2J\\x0d\\x7f\\x00");
        assert_eq!(shown("\u{9b}2J\u{202e}abc\u{2066}".as_bytes()), "\\u{9b}2J\\u{202e}abc\\u{2066}");
        assert_eq!(shown(b"\x9b2J"), "\\x9b2J");
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(one_line("a\n  b\r\n\nc"), "a b c");
    }
}
