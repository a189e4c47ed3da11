//! The text of a file.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use html5gum::{Token, Tokenizer};

/// Maximum size of a file in bytes. Larger files are data, not texts for readers.
const MOST_BYTES: u64 = 4 << 20;

/// Elements of HTML whose contents are not shown.
const HIDDEN: [&[u8]; 6] = [b"script", b"style", b"title", b"template", b"noscript", b"svg"];
/// Elements of HTML that do not separate words.
const INLINE: [&[u8]; 14] =
    [b"a", b"abbr", b"b", b"code", b"em", b"font", b"i", b"kbd", b"mark", b"q", b"small", b"span", b"strong", b"u"];

/// Returns the paths of a folder's files, relative to the folder and sorted. Hidden files, and files that git ignores,
/// are left out.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let walk = ignore::WalkBuilder::new(folder).require_git(false).sort_by_file_path(|a, b| a.cmp(b)).build();
    let mut files = Vec::new();
    for entry in walk {
        let entry = entry?;
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            files.push(entry.path().strip_prefix(folder).unwrap_or(entry.path()).to_path_buf());
        }
    }
    Ok(files)
}

/// The error for a text whose encoding is not UTF-8. Contains the name of the encoding.
#[derive(Clone, Copy, Debug)]
pub struct OtherEncoding(&'static str);

impl fmt::Display for OtherEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is text in {}: save it as UTF-8", self.0)
    }
}

impl std::error::Error for OtherEncoding {}

/// Reads the text of a file. If the file has no text, the error tells the reason.
pub fn text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    of_bytes(path, &bytes)
}

fn of_bytes(path: &Path, bytes: &[u8]) -> Result<String> {
    let kind = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase();
    if bytes.starts_with(b"%PDF-") {
        return Err(anyhow!("this is a PDF: convert it to text, for example with `pdftotext`"));
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err(anyhow!("it has more than {} MiB", MOST_BYTES >> 20));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(OtherEncoding("UTF-16").into());
    }
    let text = std::str::from_utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let is_printed = || bytes.iter().all(|byte| *byte >= b' ' || matches!(byte, b'\t'..=b'\r'));
    let text = text.map_err(|_| match is_printed() {
        true => OtherEncoding("another encoding").into(),
        false => anyhow!("it is not text"),
    });
    match text? {
        text if text.contains('\0') => Err(anyhow!("it is not text")),
        html if matches!(&*kind, "html" | "htm" | "xhtml") => Ok(shown(html)),
        text => Ok(text.into()),
    }
}

/// Returns the text that an HTML page shows. The text has the same line breaks as the page, so that line numbers stay
/// the same.
fn shown(html: &str) -> String {
    let mut text = String::new();
    let mut hidden: Option<Vec<u8>> = None;
    for token in Tokenizer::new(html).flatten() {
        match token {
            Token::StartTag(tag) if hidden.is_none() && !tag.self_closing && HIDDEN.contains(&&*tag.name.0) => {
                hidden = Some(tag.name.0);
            }
            Token::EndTag(tag) if hidden.as_ref() == Some(&tag.name.0) => hidden = None,
            Token::StartTag(tag) if hidden.is_none() && !INLINE.contains(&&*tag.name.0) => apart(&mut text),
            Token::EndTag(tag) if hidden.is_none() && !INLINE.contains(&&*tag.name.0) => apart(&mut text),
            Token::String(part) if hidden.is_none() => text += &String::from_utf8_lossy(&part.0),
            Token::String(part) => text.extend(part.0.iter().filter(|byte| **byte == b'\n').map(|_| '\n')),
            _ => {}
        }
    }
    text
}

/// Separates the text of two elements.
fn apart(text: &mut String) {
    if !text.is_empty() && !text.ends_with(char::is_whitespace) {
        text.push(' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_show_their_text_in_its_lines() {
        let html = "<html><head><title>x</title></head>\n<body><p>One <b>wo</b>rd &amp; more</p><script>\nvar a = '<p>';\n\
            </script>\n<ul><li>two</li><li>three</li></ul>";
        assert_eq!(shown(html).trim(), "One word & more \n\n\ntwo three");
        // The end of the head may be left out.
        assert_eq!(shown("<title>x</title>\n<p>One").trim(), "One");
    }

    #[test]
    fn what_is_no_text_says_why() {
        let why = |bytes: &[u8]| of_bytes(Path::new("a.txt"), bytes).unwrap_err().to_string();
        assert!(why(b"%PDF-1.7").contains("pdftotext"));
        assert_eq!(why(b"\xff\xfea\0"), "this is text in UTF-16: save it as UTF-8");
        assert_eq!(why(b"caf\xe9\n"), "this is text in another encoding: save it as UTF-8");
        assert_eq!(why(b"\x89PNG\r\n\x1a"), "it is not text");
        assert_eq!(why(b"a\0b"), "it is not text");
    }

    #[test]
    fn ignored_and_hidden_files_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(".gitignore", "build/\n");
        write("build/out.txt", "x");
        write(".hidden.txt", "x");
        write("b/two.txt", "x");
        write("a.txt", "x");
        assert_eq!(files(folder.path()).unwrap(), [PathBuf::from("a.txt"), PathBuf::from("b/two.txt")]);
    }
}
