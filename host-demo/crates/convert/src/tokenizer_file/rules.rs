//! Facts about the vocabulary of a model that its tokenizer files do not contain.

/// Special rules for a family's vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VocabularyRules {
    /// The size of the vocabulary is rounded up to a multiple of this number by adding unused tokens.
    pub multiple: usize,
    /// True if a space is added before a text; `None` if the tokenizer file decides.
    pub space_prefix: Option<bool>,
    /// Names and values of further `*_id` keys.
    pub ids: &'static [(&'static str, u32)],
    /// `add_*` flags that override the tokenizer's.
    pub adds: &'static [(&'static str, bool)],
    /// `add_*` flags for tokenizers that do not set them.
    pub defaults: &'static [(&'static str, bool)],
    /// Tokens that look like control tokens but are visible.
    pub shown: &'static [&'static str],
    /// True if the number of token types is written.
    pub token_types: bool,
    /// True if `eod_token_id` of the config ends a text.
    pub end_of_document: bool,
}

impl VocabularyRules {
    pub const PLAIN: Self = Self {
        multiple: 1,
        space_prefix: None,
        ids: &[],
        adds: &[],
        defaults: &[],
        shown: &[],
        token_types: false,
        end_of_document: false,
    };
}
