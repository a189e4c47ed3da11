//! Recognizes delimiters that are tokens of a vocabulary by their ids, so that text with the same spelling stays text.

use std::collections::HashMap;

use arenite::TokenId;
use arenite::tokenizer::{TokenType, Tokenizer};

use super::table::{CALLS, CHANNELS, THOUGHTS, WRAPPERS};
use super::{Syntax, Tag};

/// Noncharacter before a delimiter that is a token, in the text of an answer. Noncharacters are used because they do
/// not occur in other text.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';
/// The noncharacter that ends a delimiter that is a control token. The end of a delimiter that is another token is
/// marked by [`CLOSE`].
const CLOSE_CONTROL: char = '\u{fdd2}';
const ALL: [char; 3] = [OPEN, CLOSE, CLOSE_CONTROL];

/// The tokens of a vocabulary that are delimiters of thoughts and calls. A *wrapped* spelling is a token's spelling
/// between two noncharacters, which tell the token from a text that looks the same.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Wrapped spellings by token id.
    by_id: HashMap<TokenId, String>,
    /// Spellings, longest first, with their wrapped spellings.
    spelled: Vec<(String, String)>,
}

impl Marks {
    pub fn of(tokenizer: &Tokenizer<'_, '_>) -> Self {
        let patterns = patterns();
        let (mut by_id, mut spelled) = (HashMap::new(), Vec::new());
        for id in 0..tokenizer.vocab_len() as TokenId {
            let close = match tokenizer.token_type(id) {
                TokenType::Control => CLOSE_CONTROL,
                TokenType::UserDefined => CLOSE,
                _ => continue,
            };
            let Ok(token) = std::str::from_utf8(tokenizer.spelling(id)) else { continue };
            let is_mark = token.len() >= 3 && token.contains(['<', '>', '[', ']']);
            if is_mark && patterns.iter().any(|pattern| pattern.contains(token)) {
                let wrapped = format!("{OPEN}{token}{close}");
                by_id.insert(id, wrapped.clone());
                spelled.push((token.to_string(), wrapped));
            }
        }
        spelled.sort_unstable_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.cmp(b)));
        Self { by_id, spelled }
    }

    /// Makes the delimiters for a test: each spelling is a user-defined token, whose id is its index.
    #[cfg(test)]
    pub fn from_spellings(tokens: &[&str]) -> Self {
        let wrapped = |token: &&str| (token.to_string(), format!("{OPEN}{token}{CLOSE}"));
        let spelled: Vec<_> = tokens.iter().map(wrapped).collect();
        let by_id = spelled.iter().enumerate().map(|(id, (_, wrapped))| (id as TokenId, wrapped.clone())).collect();
        Self { by_id, spelled }
    }

    /// Returns the spelling of a delimiter, wrapped in noncharacters; `None` if the token is not a delimiter.
    pub fn text_of(&self, id: TokenId) -> Option<&str> {
        self.by_id.get(&id).map(String::as_str)
    }

    /// Returns the id of a delimiter that is one token.
    pub fn id_of(&self, wrapped: &str) -> Option<TokenId> {
        self.by_id.iter().find(|(_, mark)| *mark == wrapped).map(|(id, _)| *id)
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Wraps every delimiter of `pattern` that is a token of the vocabulary in noncharacters.
    pub fn resolve(&self, pattern: &str) -> String {
        let mut out = String::new();
        let mut rest = pattern;
        while let Some(first) = rest.chars().next() {
            match self.spelled.iter().find(|(spelled, _)| rest.starts_with(spelled.as_str())) {
                Some((spelled, wrapped)) => {
                    out += wrapped;
                    rest = &rest[spelled.len()..];
                }
                None => {
                    out.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        out
    }
}

/// Replaces the noncharacters in ordinary text of an answer, so that the text cannot be taken for a delimiter.
pub fn plain(text: String) -> String {
    if text.contains(ALL) { text.replace(ALL, "\u{fffd}") } else { text }
}

/// Returns the text with the original spelling of its delimiters.
pub fn unwrapped(text: &str) -> String {
    text.replace(ALL, "")
}

/// Returns the visible text, i.e. the original spelling without control tokens.
pub fn shown(text: &str) -> String {
    let pieces = pieces(text).into_iter().filter(|(is_mark, piece)| !is_mark || !piece.ends_with(CLOSE_CONTROL));
    unwrapped(&pieces.map(|(_, piece)| piece).collect::<String>())
}

/// Returns true if a pattern contains a wrapped spelling, i.e. a delimiter that is one token of the vocabulary.
pub fn has_token(pattern: &str) -> bool {
    pattern.contains(OPEN)
}

/// Returns true if a piece of an answer ends with a wrapped spelling, i.e. a delimiter that is one token of the
/// vocabulary.
pub fn ends_token(piece: &str) -> bool {
    piece.ends_with([CLOSE, CLOSE_CONTROL])
}

/// Splits a pattern into pieces: delimiters that are tokens (`true`), and the text between them (`false`).
pub fn pieces(pattern: &str) -> Vec<(bool, &str)> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.find(OPEN) {
        let end = rest[at..].find([CLOSE, CLOSE_CONTROL]).map_or(rest.len(), |end| at + end + CLOSE.len_utf8());
        pieces.push((false, &rest[..at]));
        pieces.push((true, &rest[at..end]));
        rest = &rest[end..];
    }
    pieces.push((false, rest));
    pieces.retain(|(_, text)| !text.is_empty());
    pieces
}

/// Returns every delimiter of the table.
pub fn patterns() -> Vec<&'static str> {
    let mut all = Vec::new();
    let tag = |tag: &Tag<&'static str>| [tag.open, tag.head, tag.close];
    for form in CALLS {
        all.extend([form.open, form.close]);
        match &form.syntax {
            Syntax::Named { lead, before, id, between, after } => all.extend([lead, before, id, between, after]),
            Syntax::Tagged { call, parameter, .. } => {
                all.extend(tag(call));
                all.extend(tag(parameter));
            }
            Syntax::Keyed { call, key, value } => {
                all.extend(*call);
                all.extend([key.0, key.1, value.0, value.1]);
            }
            Syntax::Nested { lead, call } => {
                all.push(lead);
                all.extend(tag(call));
            }
            Syntax::Braces { quote } => all.push(quote),
            Syntax::Json { .. } | Syntax::Python => {}
        }
    }
    all.extend(THOUGHTS.iter().flat_map(|form| [form.open, form.close, form.end]));
    all.extend(WRAPPERS.iter().flat_map(|(open, close)| [*open, *close]));
    all.extend([CHANNELS.start, CHANNELS.channel, CHANNELS.message, "<|constrain|>"]);
    all.extend(CHANNELS.ends);
    all
}
