//! Reads one text, or one text per line, from the command line, a file or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use arenite::TokenId;
use arenite::tokenizer::{Encode, Tokenizer};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Ids;
use crate::interrupt;
use crate::output::{self, Out, note};
use arenite_text::{self as text, JsonBytes};

/// Options that name the input text.
#[derive(Clone, Debug, Args)]
pub struct TextArgs {
    /// Text, or - for standard input; the model's metadata decides which special tokens are added [default: standard
    /// input if piped]
    #[arg(short, long, value_name = "TEXT", conflicts_with_all = ["file", "ids"])]
    pub prompt: Option<String>,

    /// Read the text from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "ids")]
    pub file: Option<PathBuf>,

    /// Token ids instead of a text, used exactly as given, such as 1,2,3
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    pub ids: Option<Ids>,

    /// Process the escapes \n, \t, \\, \", \' and \x41 in -p
    #[arg(short, long)]
    pub escape: bool,

    /// Read many texts: each line of standard input, or of -f FILE, is a JSON string, a list of ids, or an object
    /// with `prompt` and optionally `id`. Each gets one line of output, in order
    #[arg(long, conflicts_with_all = ["prompt", "ids"])]
    pub jsonl: bool,
}

/// A text, or token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    Bytes(Vec<u8>),
    Ids(Vec<TokenId>),
}

/// A tokenizer, or the reason why the file has none.
type Tokenizing<'t, 'f, 'i> = Result<&'t Tokenizer<'f, 'i>, &'t anyhow::Error>;

impl TextArgs {
    /// Reads the non-empty lines of a file or of standard input.
    pub fn lines(file: Option<&Path>) -> Result<Vec<String>> {
        let bytes = match file.filter(|path| *path != Path::new("-")) {
            Some(path) => read_input(path)?,
            None => {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
                text::without_mark(bytes).context("cannot read standard input")?
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.lines().filter(|line| !line.trim().is_empty()).map(String::from).collect())
    }

    /// Reads the text; `None` if none was given.
    pub fn read(&self) -> Result<Option<Text>> {
        if let Some(Ids(ids)) = &self.ids {
            return Ok(Some(Text::Ids(ids.clone())));
        }
        let bytes = match (&self.prompt, &self.file) {
            (Some(text), _) if text != "-" => {
                return Ok(Some(Text::Bytes(if self.escape { unescaped(text) } else { text.clone().into_bytes() })));
            }
            (_, Some(path)) if path != Path::new("-") => without_newline(read_input(path)?),
            (None, None) if !is_piped() => return Ok(None),
            (given, file) => {
                let bytes = without_newline(text::without_mark(stdin()?).context("cannot read standard input")?);
                if bytes.is_empty() && given.is_none() && file.is_none() {
                    return Ok(None);
                }
                bytes
            }
        };
        Ok(Some(Text::Bytes(bytes)))
    }

    /// Like [`read`](Self::read), but fails if no text was given.
    pub fn need(&self) -> Result<Text> {
        self.read()?.context("no text was given: give one with -p, -f FILE or a pipe, or tokens with --ids")
    }

    /// Returns the tokens of the only text. Returns `None` for `--jsonl`, which reads many texts.
    pub fn only(&self, tokenizer: Tokenizing<'_, '_, '_>, how: Encode) -> Result<Option<Vec<TokenId>>> {
        if self.jsonl { Ok(None) } else { self.need()?.tokens(tokenizer, how).map(Some) }
    }
}

impl Text {
    /// The tokens of the text.
    pub fn tokens(&self, tokenizer: Tokenizing<'_, '_, '_>, how: Encode) -> Result<Vec<TokenId>> {
        match self {
            Self::Ids(ids) => Ok(ids.clone()),
            Self::Bytes(text) => {
                let tokenizer = tokenizer.map_err(|error| anyhow::anyhow!("{error:#}"))?;
                text::encode(tokenizer, text, how)
            }
        }
    }
}

/// Returns true if standard input is a pipe, a socket or a file. Any other standard input, such as a closed one or a
/// device, is not read.
pub fn is_piped() -> bool {
    if io::stdin().is_terminal() {
        return false;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = std::fs::metadata("/dev/stdin").map(|input| input.file_type());
        kind.is_ok_and(|kind| kind.is_fifo() || kind.is_file() || kind.is_socket())
    }
    #[cfg(not(unix))]
    true
}

fn stdin() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    Ok(bytes)
}

/// Removes the newline at the end, which editors and `echo` add.
fn without_newline(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    bytes
}

/// Processes llama-cli's escapes. Unknown escapes stay unchanged.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let known = match (byte, after) {
            (b'\\', [b'n', ..]) => Some((b'\n', 1)),
            (b'\\', [b'r', ..]) => Some((b'\r', 1)),
            (b'\\', [b't', ..]) => Some((b'\t', 1)),
            (b'\\', [quoted @ (b'\\' | b'"' | b'\''), ..]) => Some((*quoted, 1)),
            (b'\\', [b'x', high, low, ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                digit(*high).zip(digit(*low)).map(|(high, low)| ((16 * high + low) as u8, 3))
            }
            _ => None,
        };
        let (byte, taken) = known.unwrap_or((byte, 0));
        out.push(byte);
        rest = rest.get(taken..).unwrap_or_default();
    }
    out
}

/// A line of `--jsonl`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Text(JsonBytes),
    Ids(Vec<TokenId>),
    Object(Object),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    #[serde(default)]
    id: Option<Value>,
    #[serde(alias = "text", alias = "ids")]
    prompt: TextOrIds,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrIds {
    Ids(Vec<TokenId>),
    Text(JsonBytes),
}

/// Parses a line of `--jsonl` into its `id` and its text.
fn text_of(line: &[u8]) -> Result<(Option<Value>, Text)> {
    let expected = "give a JSON string, a list of token ids, or an object with `prompt` and optionally `id`";
    Ok(match serde_json::from_slice(line) {
        Ok(Line::Text(JsonBytes(text))) => (None, Text::Bytes(text)),
        Ok(Line::Ids(ids)) => (None, Text::Ids(ids)),
        Ok(Line::Object(Object { id, prompt: TextOrIds::Text(JsonBytes(text)) })) => (id, Text::Bytes(text)),
        Ok(Line::Object(Object { id, prompt: TextOrIds::Ids(ids) })) => (id, Text::Ids(ids)),
        Err(error) if error.is_data() => bail!(expected),
        Err(error) => return Err(error.into()),
    })
}

/// Answers every line of standard input, or of `file`, with one line of JSON. Answers are printed in order, each as
/// soon as it is complete. For an invalid line, the answer is an error, and the exit code becomes 1; the following
/// lines are still answered.
pub fn each_line<T: Serialize>(file: Option<&Path>, mut answer: impl FnMut(Text) -> Result<T>) -> Result<ExitCode> {
    each(file, |line| {
        let (id, text) = text_of(line)?;
        Ok((id, answer(text)?))
    })
}

/// Like [`each_line`], for lines in any format. `answer` also returns the line's `id`.
pub fn each<T: Serialize>(
    file: Option<&Path>,
    mut answer: impl FnMut(&[u8]) -> Result<(Option<Value>, T)>,
) -> Result<ExitCode> {
    #[derive(Serialize)]
    struct Answer<T> {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<Value>,
        #[serde(flatten)]
        answer: T,
    }
    each_json(file, |line| answer(line).map(|(id, answer)| Answer { id, answer }))
}

/// Reads a text file, which no result may then replace.
pub fn read_input(path: &Path) -> Result<Vec<u8>> {
    arenite_files::keep(path);
    text::read(path)
}

/// Returns the lines that are not blank, with their numbers. A byte order mark before the first line is left out.
pub fn numbered_lines(input: impl BufRead) -> impl Iterator<Item = (usize, Result<Vec<u8>>)> {
    let lines = (1..).zip(input.split(b'\n')).map(|(number, line)| {
        let line = line.map_err(anyhow::Error::from);
        (number, if number == 1 { line.and_then(text::without_mark) } else { line })
    });
    lines.filter(|(_, line)| line.as_ref().map_or(true, |line| !line.trim_ascii().is_empty()))
}

/// Like [`each`], but an answer can be any JSON value, and has no `id`.
pub fn each_json<T: Serialize>(file: Option<&Path>, mut answer: impl FnMut(&[u8]) -> Result<T>) -> Result<ExitCode> {
    #[derive(Serialize)]
    struct Wrong {
        line: usize,
        error: String,
    }
    interrupt::listen();
    let (name, lines): (String, Box<dyn BufRead>) = match file.filter(|path| *path != Path::new("-")) {
        Some(path) => {
            let name = path.display().to_string();
            let opened = File::open(path).with_context(|| format!("cannot read {name}"))?;
            arenite_files::keep(path);
            (name, Box::new(BufReader::new(opened)))
        }
        None => ("standard input".to_string(), Box::new(io::stdin().lock())),
    };
    let mut out = Out::lock();
    let (mut total, mut wrong) = (0, 0);
    for (number, line) in numbered_lines(lines) {
        let line = line.with_context(|| format!("cannot read {name}"))?;
        if interrupt::asked() {
            note("stopped");
            return Ok(ExitCode::from(output::INTERRUPTED));
        }
        total += 1;
        match answer(&line) {
            Ok(answer) => out.json(&answer)?,
            Err(error) => {
                wrong += 1;
                let error = output::words(&error);
                note(format_args!("error: {name}, line {number}: {error}"));
                out.json(&Wrong { line: number, error })?;
            }
        }
        out.flush()?;
    }
    if wrong > 0 && total > 1 {
        note(format_args!("{wrong} of {total} lines could not be answered"));
    }
    Ok(if wrong > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_llama_cli() {
        assert_eq!(unescaped(r#"a\nb\t\\\"\'\x41\xff"#), b"a\nb\t\\\"'A\xff");
        assert_eq!(unescaped(r"\q\x4\xzz\"), br"\q\x4\xzz\");
        assert_eq!(unescaped("\u{e9}\\n"), "\u{e9}\n".as_bytes());
    }

    #[test]
    fn one_newline_goes() {
        for (text, want) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("\n", ""), ("", "")] {
            assert_eq!(without_newline(text.into()), want.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn lines_have_the_numbers_that_editors_show() {
        let lines =
            numbered_lines(&b"\xef\xbb\xbfa\n\n \r\n\xef\xbb\xbfb\n"[..]).map(|(number, line)| (number, line.unwrap()));
        let wanted = [(1, b"a".to_vec()), (4, b"\xef\xbb\xbfb".to_vec())];
        assert_eq!(lines.collect::<Vec<_>>(), wanted);
        assert_eq!(numbered_lines(&b"\xef\xbb\xbf\n"[..]).count(), 0);
    }

    #[test]
    fn lines_have_three_forms() {
        let text = |line: &str| text_of(line.as_bytes()).unwrap();
        assert_eq!(text("\"a\\u00e9\""), (None, Text::Bytes("a\u{e9}".into())));
        assert_eq!(text("[1,2]"), (None, Text::Ids(vec![1, 2])));
        assert_eq!(text(r#"{"id": 7, "prompt": "a"}"#), (Some(7.into()), Text::Bytes("a".into())));
        assert_eq!(text(r#"{"ids": [3]}"#), (None, Text::Ids(vec![3])));
        assert_eq!(text(r#"{"id": "x", "text": ""}"#), (Some("x".into()), Text::Bytes(vec![])));
        for line in ["7", "{}", r#"{"prompt": 1}"#, r#"{"prompt": "a", "n": 3}"#, "[1", "[-1]"] {
            assert!(text_of(line.as_bytes()).is_err(), "{line}");
        }
    }
}
