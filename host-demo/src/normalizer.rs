//! Normalizers: conversions of a text before it is tokenized. This program applies them, because the core has no
//! Unicode tables.
//!
//! Source: the normalizers of Hugging Face's `tokenizers`. GGUF files use the same names.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};
use anyhow::{Context, Result};
use arenite::TokenId;
use arenite::gguf::{Gguf, Value};
use arenite::tokenizer::{Encode, TokenType, Tokenizer};
use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// The key in a GGUF file whose value is the list of steps: names, separated by commas.
pub const KEY: &str = "tokenizer.ggml.normalizer.steps";

/// A conversion of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    StripAccents,
    Nmt,
    WhitespaceSplit,
}

impl Step {
    const ALL: [Self; 8] = [
        Self::Nfc,
        Self::Nfd,
        Self::Nfkc,
        Self::Nfkd,
        Self::Lowercase,
        Self::StripAccents,
        Self::Nmt,
        Self::WhitespaceSplit,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nfc => "NFC",
            Self::Nfd => "NFD",
            Self::Nfkc => "NFKC",
            Self::Nfkd => "NFKD",
            Self::Lowercase => "Lowercase",
            Self::StripAccents => "StripAccents",
            Self::Nmt => "Nmt",
            Self::WhitespaceSplit => "WhitespaceSplit",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    /// Returns true if the step neither adds nor removes spaces, so that it may also run after spaces were replaced.
    pub fn keeps_spaces(self) -> bool {
        !matches!(self, Self::Nfkc | Self::Nfkd | Self::Nmt | Self::WhitespaceSplit)
    }

    fn apply(self, text: &str) -> String {
        match self {
            Self::Nfc => text.nfc().collect(),
            Self::Nfd => text.nfd().collect(),
            Self::Nfkc => text.nfkc().collect(),
            Self::Nfkd => text.nfkd().collect(),
            // Converts each character separately: `str::to_lowercase` treats a sigma at the end of a word differently.
            Self::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Self::StripAccents => text.chars().filter(|char| !is_combining_mark(*char)).collect(),
            Self::Nmt => text.chars().filter_map(nmt).collect(),
            // A pre-tokenizer in Hugging Face's files. The core splits at spaces.
            Self::WhitespaceSplit => text.replace(char::is_whitespace, " "),
        }
    }
}

/// The rules of machine translation: drops control characters, and converts white space and `▁` to a space.
fn nmt(char: char) -> Option<char> {
    match char {
        '\u{1}'..='\u{8}' | '\u{b}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{8f}' | '\u{9f}' => None,
        '\t' | '\n' | '\u{c}' | '\r' | '\u{1680}' | '\u{200b}'..='\u{200f}' => Some(' '),
        '\u{2028}' | '\u{2029}' | '▁' | '\u{feff}' | '\u{fffd}' => Some(' '),
        char => Some(char),
    }
}

/// Applies the steps in order.
pub fn apply(steps: &[Step], text: &str) -> String {
    steps.iter().fold(text.to_owned(), |text, step| step.apply(&text))
}

/// Applies the vocabulary's steps to a text. As in Hugging Face's tokenizers, control tokens stay as they are, and the
/// texts between them are converted separately. Bytes that are not UTF-8 stay as they are.
pub fn normalized<'t>(tokenizer: &Tokenizer<'_, '_>, text: &'t [u8], how: Encode) -> Result<Cow<'t, [u8]>> {
    let steps = steps(tokenizer.normalizer())?;
    let is_nfc = || text.utf8_chunks().all(|chunk| is_nfc_quick(chunk.valid().chars()) == IsNormalized::Yes);
    if steps.is_empty() || steps == [Step::Nfc] && is_nfc() {
        return Ok(Cow::Borrowed(text));
    }
    let is_control = |id: &TokenId| matches!(tokenizer.token_type(*id), TokenType::Control | TokenType::Unknown);
    let ids = (0..tokenizer.vocab_len() as TokenId).filter(|_| how.parse_special).filter(is_control);
    let spelled = ids.map(|id| tokenizer.spelling(id)).filter(|token| !token.is_empty());
    let control = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(spelled)?;
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        let (text, mut start) = (chunk.valid(), 0);
        for found in control.find_iter(text) {
            out.extend(apply(&steps, &text[start..found.start()]).into_bytes());
            out.extend(text[found.range()].bytes());
            start = found.end();
        }
        out.extend(apply(&steps, &text[start..]).into_bytes());
        out.extend(chunk.invalid());
    }
    Ok(Cow::Owned(out))
}

/// Parses the list of steps in a file.
fn steps(names: &[u8]) -> Result<Vec<Step>> {
    let names = String::from_utf8_lossy(names);
    let step = |name: &str| {
        Step::by_name(name.trim()).with_context(|| {
            let known: Vec<_> = Step::ALL.into_iter().map(Step::name).collect();
            format!("the file's {KEY} has the step {name:?}; known steps are {}", known.join(", "))
        })
    };
    names.split(',').filter(|name| !name.trim().is_empty()).map(step).collect()
}

/// Returns a note for the user if texts must be normalized before they are tokenized.
pub fn note(gguf: &Gguf<'_>) -> Option<String> {
    let Some(Value::Str(steps)) = gguf.get(KEY) else { return None };
    let steps = String::from_utf8_lossy(steps);
    (!steps.is_empty()).then(|| {
        format!(
            "tokenizer: texts are first converted by {steps}. This program converts them; a program on a device must do so \
             itself, or texts that the conversion changes get other tokens."
        )
    })
}
