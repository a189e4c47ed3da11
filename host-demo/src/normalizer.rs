//! Normalizers: conversions of a text before it is tokenized. This program applies them, because the core has no
//! Unicode tables.
//!
//! Sources: the normalizers of Hugging Face's `tokenizers`, whose names GGUF files use, and SentencePiece's normalizer,
//! for the last three steps.

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
    /// Applies the file's character map.
    Precompiled,
    /// Merges spaces, and drops them at both ends.
    SingleSpaces,
    /// Adds a space before a text that is not empty.
    SpacePrefix,
}

impl Step {
    const ALL: [Self; 11] = [
        Self::Nfc,
        Self::Nfd,
        Self::Nfkc,
        Self::Nfkd,
        Self::Lowercase,
        Self::StripAccents,
        Self::Nmt,
        Self::WhitespaceSplit,
        Self::Precompiled,
        Self::SingleSpaces,
        Self::SpacePrefix,
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
            Self::Precompiled => "Precompiled",
            Self::SingleSpaces => "SingleSpaces",
            Self::SpacePrefix => "SpacePrefix",
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    /// Returns the step that has the result of a normalizer in Hugging Face's files.
    pub fn of_normalizer(kind: &str) -> Option<Self> {
        Self::by_name(kind).filter(|step| !step.is_sentencepieces() && *step != Self::WhitespaceSplit)
    }

    fn is_sentencepieces(self) -> bool {
        matches!(self, Self::Precompiled | Self::SingleSpaces | Self::SpacePrefix)
    }

    /// Returns true if the step neither adds nor removes spaces, so that it may also run after spaces were replaced.
    pub fn keeps_spaces(self) -> bool {
        !matches!(self, Self::Nfkc | Self::Nfkd | Self::Nmt | Self::WhitespaceSplit) && !self.is_sentencepieces()
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
            Self::Precompiled => text.to_owned(), // `normalized` applies the map, which is in the tokenizer
            Self::SingleSpaces => {
                let words = text.trim_end_matches([' ', '▁']).split(' ').filter(|word| !word.is_empty());
                words.collect::<Vec<_>>().join(" ")
            }
            Self::SpacePrefix if text.is_empty() => String::new(),
            Self::SpacePrefix => format!(" {text}"),
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
/// texts between them are converted separately. The character map leaves user-defined tokens as they are. Bytes that
/// are not UTF-8 stay as they are.
pub fn normalized<'t>(tokenizer: &Tokenizer<'_, '_>, text: &'t [u8], how: Encode) -> Result<Cow<'t, [u8]>> {
    let steps = steps(tokenizer.normalizer())?;
    let is_nfc = || text.utf8_chunks().all(|chunk| is_nfc_quick(chunk.valid().chars()) == IsNormalized::Yes);
    if steps.is_empty() || steps == [Step::Nfc] && is_nfc() {
        return Ok(Cow::Borrowed(text));
    }
    let control =
        tokens(tokenizer, |kind| how.parse_special && matches!(kind, TokenType::Control | TokenType::Unknown))?;
    let has_map = steps.contains(&Step::Precompiled);
    let shown = tokens(tokenizer, |kind| has_map && kind == TokenType::UserDefined)?;
    let mapped =
        |text: &str| String::from_utf8_lossy(&tokenizer.mapped(text.as_bytes()).collect::<Vec<_>>()).into_owned();
    let convert = |text: &str| {
        steps.iter().fold(text.to_owned(), |text, step| match step {
            Step::Precompiled => between(&shown, &text, mapped),
            step => step.apply(&text),
        })
    };
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        out.extend(between(&control, chunk.valid(), convert).into_bytes());
        out.extend(chunk.invalid());
    }
    Ok(Cow::Owned(out))
}

/// Returns a search for the tokens of some types.
fn tokens(tokenizer: &Tokenizer<'_, '_>, is_wanted: impl Fn(TokenType) -> bool) -> Result<AhoCorasick> {
    let ids = (0..tokenizer.vocab_len() as TokenId).filter(|id| is_wanted(tokenizer.token_type(*id)));
    let spelled = ids.map(|id| tokenizer.spelling(id)).filter(|token| !token.is_empty());
    Ok(AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(spelled)?)
}

/// Converts the texts between tokens.
fn between(tokens: &AhoCorasick, text: &str, convert: impl Fn(&str) -> String) -> String {
    let (mut out, mut start) = (String::new(), 0);
    for found in tokens.find_iter(text) {
        out.push_str(&convert(&text[start..found.start()]));
        out.push_str(&text[found.range()]);
        start = found.end();
    }
    out + &convert(&text[start..])
}

/// Returns the names of steps, as in a file.
pub fn names(steps: impl IntoIterator<Item = Step>) -> String {
    steps.into_iter().map(Step::name).collect::<Vec<_>>().join(",")
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
