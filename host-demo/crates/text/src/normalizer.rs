//! Normalizers: conversions of a text before it is tokenized. Normalizers are in this crate and not in the core because
//! they need Unicode tables.
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
use unicode_segmentation::UnicodeSegmentation;

/// The key in a GGUF file whose value is the list of steps: names, separated by commas.
pub const KEY: &str = "tokenizer.ggml.normalizer.steps";

/// A conversion of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Unicode's canonical composition.
    Nfc,
    /// Unicode's canonical decomposition.
    Nfd,
    /// Unicode's compatibility composition.
    Nfkc,
    /// Unicode's compatibility decomposition.
    Nfkd,
    /// Converts each character to lower case.
    Lowercase,
    /// Drops combining marks.
    StripAccents,
    /// Drops control characters, and replaces all other white space by spaces.
    Nmt,
    /// Applies the file's character map in the same way as Hugging Face: to graphemes, with the shortest matching
    /// entry.
    Precompiled,
    /// Replaces white space by spaces.
    WhitespaceSplit,
    /// Applies the file's character map in the same way as SentencePiece: with the longest matching entry.
    Charsmap,
    /// Merges spaces, and drops them at both ends.
    SingleSpaces,
    /// Adds a space before a text that is not empty.
    SpacePrefix,
}

impl Step {
    const ALL: [Self; 12] = [
        Self::Nfc,
        Self::Nfd,
        Self::Nfkc,
        Self::Nfkd,
        Self::Lowercase,
        Self::StripAccents,
        Self::Nmt,
        Self::Precompiled,
        Self::WhitespaceSplit,
        Self::Charsmap,
        Self::SingleSpaces,
        Self::SpacePrefix,
    ];

    /// The step's name in a GGUF file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nfc => "NFC",
            Self::Nfd => "NFD",
            Self::Nfkc => "NFKC",
            Self::Nfkd => "NFKD",
            Self::Lowercase => "Lowercase",
            Self::StripAccents => "StripAccents",
            Self::Nmt => "Nmt",
            Self::Precompiled => "Precompiled",
            Self::WhitespaceSplit => "WhitespaceSplit",
            Self::Charsmap => "Charsmap",
            Self::SingleSpaces => "SingleSpaces",
            Self::SpacePrefix => "SpacePrefix",
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    /// Returns the step that gives the same result as the normalizer `kind` in Hugging Face's files.
    pub fn of_normalizer(kind: &str) -> Option<Self> {
        Self::by_name(kind).filter(|step| !step.is_sentencepieces() && *step != Self::WhitespaceSplit)
    }

    fn is_sentencepieces(self) -> bool {
        matches!(self, Self::Charsmap | Self::SingleSpaces | Self::SpacePrefix)
    }

    /// Returns true if the step leaves spaces as they are. Such a step may also run after spaces were replaced by `▁`.
    pub fn keeps_spaces(self) -> bool {
        matches!(self, Self::Nfc | Self::Nfd | Self::Lowercase | Self::StripAccents)
    }

    fn is_map(self) -> bool {
        matches!(self, Self::Precompiled | Self::Charsmap)
    }

    fn apply(self, text: &str) -> String {
        match self {
            Self::Nfc => text.nfc().collect(),
            Self::Nfd => text.nfd().collect(),
            Self::Nfkc => text.nfkc().collect(),
            Self::Nfkd => text.nfkd().collect(),
            // Convert each character separately, because `str::to_lowercase` treats a sigma at the end of a word
            // differently.
            Self::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Self::StripAccents => text.chars().filter(|char| !is_combining_mark(*char)).collect(),
            Self::Nmt => text.chars().filter_map(nmt).collect(),
            // This is a pre-tokenizer in Hugging Face's files. Replacing white space by spaces suffices, because the
            // core splits at spaces.
            Self::WhitespaceSplit => text.replace(char::is_whitespace, " "),
            // `normalized` applies the map, which is in the tokenizer.
            Self::Precompiled | Self::Charsmap => text.to_owned(),
            Self::SingleSpaces => {
                let words = text.trim_end_matches([' ', '▁']).split(' ').filter(|word| !word.is_empty());
                words.collect::<Vec<_>>().join(" ")
            }
            Self::SpacePrefix if text.is_empty() => String::new(),
            Self::SpacePrefix => format!(" {text}"),
        }
    }
}

/// Converts a character by SentencePiece's rules for machine translation: drops control characters, and converts white
/// space and `▁` to a space.
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

/// A text to which a vocabulary's steps were applied.
pub struct Converted<'t, 'a, 'i> {
    /// The text after the steps.
    pub text: Cow<'t, [u8]>,
    /// The tokenizer with which the text must be encoded. It has no character map if a step has already applied the map.
    pub tokenizer: Tokenizer<'a, 'i>,
    /// Positions in `text` of the control tokens. `None` if the vocabulary has no steps.
    pub places: Option<Vec<usize>>,
}

/// Applies the vocabulary's steps to a text.
///
/// As in Hugging Face's tokenizers, control tokens are not changed, and the texts between them are converted
/// separately. The character map does not change user-defined tokens. Bytes that are not UTF-8 are not changed.
pub fn converted<'t, 'a: 'i, 'i>(
    tokenizer: &Tokenizer<'a, 'i>,
    text: &'t [u8],
    how: Encode,
) -> Result<Converted<'t, 'a, 'i>> {
    let steps = steps(tokenizer.normalizer())?;
    let is_nfc = || text.utf8_chunks().all(|chunk| is_nfc_quick(chunk.valid().chars()) == IsNormalized::Yes);
    if steps.is_empty() || steps == [Step::Nfc] && is_nfc() {
        return Ok(Converted { text: Cow::Borrowed(text), tokenizer: *tokenizer, places: None });
    }
    let has_map = steps.iter().any(|step| step.is_map());
    let control: &[TokenType] = if how.parse_special { &[TokenType::Control, TokenType::Unknown] } else { &[] };
    let control = tokens(tokenizer, control)?;
    let shown = tokens(tokenizer, if has_map { &[TokenType::UserDefined] } else { &[] })?;
    let convert = |text: &str| {
        steps.iter().fold(text.to_owned(), |text, step| match step {
            Step::Precompiled => between(&shown, &text, |text| with_graphemes_mapped(tokenizer, text)).0,
            Step::Charsmap => {
                let mapped = |text: &str| tokenizer.mapped(text.as_bytes()).collect::<Vec<_>>();
                between(&shown, &text, |text| String::from_utf8_lossy(&mapped(text)).into_owned()).0
            }
            step => step.apply(&text),
        })
    };
    let (mut out, mut places) = (Vec::with_capacity(text.len()), Vec::new());
    for chunk in text.utf8_chunks() {
        let (text, found) = between(&control, chunk.valid(), convert);
        places.extend(found.into_iter().map(|place| out.len() + place));
        out.extend(text.into_bytes());
        out.extend(chunk.invalid());
    }
    let tokenizer = if has_map { tokenizer.without_map() } else { *tokenizer };
    Ok(Converted { text: Cow::Owned(out), tokenizer, places: Some(places) })
}

/// Applies the character map in the same way as Hugging Face's tokenizers. If a grapheme has fewer than six bytes, an
/// entry for its first bytes replaces the whole grapheme. In longer graphemes, entries replace single characters.
fn with_graphemes_mapped(tokenizer: &Tokenizer<'_, '_>, text: &str) -> String {
    let replacement = |text: &str| tokenizer.replacement(text.as_bytes()).map(String::from_utf8_lossy);
    let mut out = String::with_capacity(text.len());
    for grapheme in text.graphemes(true) {
        match replacement(grapheme).filter(|_| grapheme.len() < 6) {
            Some(text) => out.push_str(&text),
            None => grapheme.char_indices().for_each(|(at, char)| {
                let char = &grapheme[at..at + char.len_utf8()];
                out.push_str(&replacement(char).unwrap_or(char.into()));
            }),
        }
    }
    out
}

/// Returns a search for the tokens of `types`.
fn tokens(tokenizer: &Tokenizer<'_, '_>, types: &[TokenType]) -> Result<AhoCorasick> {
    let len = if types.is_empty() { 0 } else { tokenizer.vocab_len() };
    let ids = (0..len as TokenId).filter(|id| types.contains(&tokenizer.token_type(*id)));
    let spelled = ids.map(|id| tokenizer.spelling(id)).filter(|token| !token.is_empty());
    Ok(AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(spelled)?)
}

/// Converts those parts of a text that are between tokens, and leaves the tokens unchanged. Also returns the positions
/// of the tokens in the result.
fn between(tokens: &AhoCorasick, text: &str, convert: impl Fn(&str) -> String) -> (String, Vec<usize>) {
    let (mut out, mut places, mut start) = (String::new(), Vec::new(), 0);
    for found in tokens.find_iter(text) {
        out.push_str(&convert(&text[start..found.start()]));
        places.push(out.len());
        out.push_str(&text[found.range()]);
        start = found.end();
    }
    (out + &convert(&text[start..]), places)
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
    // `WhitespaceSplit` has almost no effect after `Precompiled`, because the character map leaves hardly any white
    // space but spaces.
    let as_sentencepiece = [names([Step::Precompiled]), names([Step::Precompiled, Step::WhitespaceSplit])];
    if as_sentencepiece.iter().any(|known| *known == steps) {
        return Some(format!(
            "tokenizer: texts are first converted by {steps}. This program converts them as Hugging Face's tokenizer does; a \
             program on a device converts them as SentencePiece does, which gives a few texts other tokens."
        ));
    }
    (!steps.is_empty()).then(|| {
        format!(
            "tokenizer: texts are first converted by {steps}. This program converts them; a program on a device must do so \
             itself, or texts that the conversion changes get other tokens."
        )
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate as text;
    use arenite_gguf_writer::{Header, Meta};

    /// The expected texts come from `Precompiled` in tokenizers 0.23. sentencepiece 0.2 built the map from the rules
    /// "\u{ff45}" to "e", "e\u{301}" to "é", "か\u{3099}" to "が", "ﬁ" to "fi", "1" to "2" and "1\u{301}" to "3".
    #[test]
    fn graphemes_are_replaced_as_by_hugging_face() {
        let mut nodes = [0u32; 256];
        for (at, node) in [
            (0, 0xc000),
            (1, 0xd31),
            (2, 1 << 31),
            (3, 0x1d81),
            (4, 1 << 31 | 2),
            (5, 0x208cc),
            (6, 0x581),
            (7, 1 << 31 | 9),
            (8, 0x22481),
            (9, 0x21ce3),
            (10, 0x3808b),
            (11, 0x1999),
            (12, 0x27882),
            (13, 1 << 31 | 12),
            (14, 0x27cac),
            (15, 1 << 31 | 6),
            (16, 0x7d81),
            (17, 0xd85),
            (18, 1 << 31 | 4),
            (31, 0x22cbd),
            (85, 0x27065),
            (206, 0x130cc),
            (211, 0x168e3),
            (223, 0x1f4ef),
        ] {
            nodes[at] = node;
        }
        let size = 4 * nodes.len() as u32;
        let map = [size].into_iter().chain(nodes).flat_map(u32::to_le_bytes);
        let map: Vec<u8> = map.chain(["2", "3", "e", "fi", "é", "が", ""].join("\0").bytes()).collect();
        let mut header = Header::new();
        header.set("tokenizer.ggml.model", "t5");
        header.set("tokenizer.ggml.tokens", Meta::strings(["<unk>", "a"]));
        header.set("tokenizer.ggml.scores", Meta::array([0f32, -1.0]));
        header.set("tokenizer.ggml.token_type", Meta::array([2i32, 1]));
        header.set("tokenizer.ggml.precompiled_charsmap", Meta::array(map));
        header.set(KEY, "Precompiled");
        let file = header.write(Cursor::new(Vec::new())).unwrap().finish().unwrap().into_inner();
        let (gguf, mut memory) = (Gguf::parse(&file).unwrap(), Vec::new());
        let tokenizer = text::tokenizer(&gguf, &mut memory).unwrap();
        for (text, wanted) in [
            ("1x", "2x"),
            ("1\u{301}x", "2x"),
            ("1\u{301}\u{302}\u{303}", "2\u{301}\u{302}\u{303}"),
            ("e\u{301}x", "éx"),
            ("e\u{301}\u{302}x", "éx"),
            ("\u{ff45}\u{301}x", "ex"),
            ("ﬁ\u{301}", "fi"),
            ("か\u{3099}x", "か\u{3099}x"),
            ("か\u{3099}\u{301}", "か\u{3099}\u{301}"),
        ] {
            let Converted { text: found, tokenizer, .. } =
                converted(&tokenizer, text.as_bytes(), Encode::TEXT).unwrap();
            assert_eq!(String::from_utf8_lossy(&found), wanted, "{text:?}");
            assert_eq!(tokenizer.mapped(&found).collect::<Vec<_>>(), *found, "the map is not applied again");
        }
    }
}
