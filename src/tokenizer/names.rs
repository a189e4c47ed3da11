//! Tokens with spellings that llama.cpp knows.
//!
//! Many files name only one of several ids that end an answer, or mark such a token as ordinary text. llama.cpp
//! therefore has a list of spellings (`llama_vocab::impl::load`): tokens with these spellings count as control tokens,
//! which affects how texts are split, and most of these tokens end generation.
//!
//! To get the same ids, this crate changes types by the same list. The tokens that end an answer come from the metadata
//! first, and from a spelling only if the file marks the token as special. (llama.cpp stops at every `</s>`, which is
//! HTML in Qwen's vocabulary; this crate does not.)
//!
//! A file of `arenite convert` has the types of the model's own tokenizer. Its key [`TYPES_ARE_FINAL`] says that ordinary
//! tokens with these spellings are text.

use super::vocab::TokenType;
use crate::TokenId;

/// Meaning of a spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Ends an answer; serves as the end-of-turn token if the file does not name one.
    EndOfTurn,
    /// A token that ends a message. If the file names no end-of-message token, this token is used.
    EndOfMessage,
    /// Ends an answer.
    End,
    /// A token of fill-in-the-middle, with its role; for each role, only the first spelling that is found counts.
    Fill(Role),
    /// A token that is printed like text although its spelling looks like that of a control token.
    Shown,
}

/// Roles in fill-in-the-middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Prefix,
    Suffix,
    Middle,
    Pad,
    Repository,
    Separator,
}

use Meaning::*;
use Role::*;

const NAMES: [(&[u8], Meaning); COUNT] = [
    (b"<|eot_id|>", EndOfTurn),
    (b"<|im_end|>", EndOfTurn),
    (b"<|end|>", EndOfTurn),
    (b"<end_of_turn>", EndOfTurn),
    (b"<|endoftext|>", EndOfTurn),
    (b"<|end_of_text|>", EndOfTurn),
    (b"<EOT>", EndOfTurn),
    (b"_<EOT>", EndOfTurn),
    (b"[EOT]", EndOfTurn),
    ("<｜end▁of▁sentence｜>".as_bytes(), EndOfTurn),
    (b"<end_of_utterance>", EndOfTurn),
    (b"<|eom_id|>", EndOfMessage),
    (b"<|return|>", End),
    (b"<|call|>", End),
    (b"<|flush|>", End),
    (b"<|calls|>", End),
    (b"</s>", End),
    (b"[EOS]", End),
    (b"<eos>", End),
    (b"<turn|>", End),
    (b"<|tool_response>", End),
    (b"[e~[", End),
    (b"<|fim_prefix|>", Fill(Prefix)),
    (b"<fim-prefix>", Fill(Prefix)),
    (b"<fim_prefix>", Fill(Prefix)),
    ("<｜fim▁begin｜>".as_bytes(), Fill(Prefix)),
    (b"<PRE>", Fill(Prefix)),
    ("▁<PRE>".as_bytes(), Fill(Prefix)),
    (b"<|code_prefix|>", Fill(Prefix)),
    (b"<|prefix|>", Fill(Prefix)),
    (b"<|fim_suffix|>", Fill(Suffix)),
    (b"<fim-suffix>", Fill(Suffix)),
    (b"<fim_suffix>", Fill(Suffix)),
    ("<｜fim▁hole｜>".as_bytes(), Fill(Suffix)),
    (b"<SUF>", Fill(Suffix)),
    ("▁<SUF>".as_bytes(), Fill(Suffix)),
    (b"<|code_suffix|>", Fill(Suffix)),
    (b"<|suffix|>", Fill(Suffix)),
    (b"<|fim_middle|>", Fill(Middle)),
    (b"<fim-middle>", Fill(Middle)),
    (b"<fim_middle>", Fill(Middle)),
    ("<｜fim▁end｜>".as_bytes(), Fill(Middle)),
    (b"<MID>", Fill(Middle)),
    ("▁<MID>".as_bytes(), Fill(Middle)),
    (b"<|code_middle|>", Fill(Middle)),
    (b"<|middle|>", Fill(Middle)),
    (b"<|fim_pad|>", Fill(Pad)),
    (b"<fim-pad>", Fill(Pad)),
    (b"<fim_pad>", Fill(Pad)),
    (b"<PAD>", Fill(Pad)),
    (b"[PAD]", Fill(Pad)),
    (b"<|fim_repo|>", Fill(Repository)),
    (b"<|repo_name|>", Fill(Repository)),
    (b"<fim-repo>", Fill(Repository)),
    (b"<REPO>", Fill(Repository)),
    (b"<reponame>", Fill(Repository)),
    (b"<|file_sep|>", Fill(Separator)),
    (b"<|channel|>", Shown),
    (b"<|message|>", Shown),
    (b"<|start|>", Shown),
    (b"<|constrain|>", Shown),
];

/// Number of spellings in the list. At most as many tokens get a type other than the type in the file.
pub(super) const COUNT: usize = 61;

/// Maximum number of tokens that end an answer. They are found by their spellings and by the file's metadata.
pub(super) const MOST_ENDS: usize = 32;

/// The special roles that a token can have. Each role has its current metadata key, the deprecated key, and true if a
/// token of this role ends an answer.
const ROLES: [(Role, [&str; 2], bool); 6] = [
    (Prefix, ["fim_pre_token_id", "prefix_token_id"], false),
    (Suffix, ["fim_suf_token_id", "suffix_token_id"], false),
    (Middle, ["fim_mid_token_id", "middle_token_id"], false),
    (Pad, ["fim_pad_token_id", ""], true),
    (Repository, ["fim_rep_token_id", ""], true),
    (Separator, ["fim_sep_token_id", ""], true),
];

/// Key without its prefix, a bool: ordinary tokens and tokens of fill-in-the-middle keep the types that the file gives them.
pub(super) const TYPES_ARE_FINAL: &str = "token_type_final";

/// Returns true if a token with this spelling counts as a control token, unless the file has the key
/// `tokenizer.ggml.token_type_final`. `is_special` tells whether the file marks it as special (its types 2 to 4).
///
/// Source: `llama_vocab::impl::load` of llama.cpp.
pub fn is_taken_for_control(spelling: &[u8], is_special: bool) -> bool {
    NAMES.iter().any(|(name, meaning)| *name == spelling && meaning.gives_way(is_special))
}

impl Meaning {
    /// Returns true if the type in the file takes precedence over the type that the spelling implies. This is false for
    /// special tokens that end an answer, because such tokens must never be printed.
    fn gives_way(self, is_special: bool) -> bool {
        match self {
            EndOfTurn | EndOfMessage | End => !is_special,
            Fill(_) => true,
            Shown => false,
        }
    }
}

/// Known spellings found in a vocabulary.
pub(super) struct Found {
    ids: [Option<TokenId>; COUNT],
    /// True if the file marks the token as special.
    marked: [bool; COUNT],
}

/// Properties of tokens, derived from their known spellings and from the metadata.
pub(super) struct Consequences {
    pub eot: Option<TokenId>,
    pub eom: Option<TokenId>,
    /// Tokens whose type differs from the file's.
    pub types: [Option<(TokenId, TokenType)>; COUNT],
    /// Tokens that end an answer.
    pub ends: [Option<TokenId>; MOST_ENDS],
}

impl Found {
    pub const fn new() -> Self {
        Self { ids: [None; COUNT], marked: [false; COUNT] }
    }

    /// Records the token's id if its spelling is one of the known spellings. Must be called for all tokens of the
    /// vocabulary, in order of their ids.
    pub fn look(&mut self, id: TokenId, text: &[u8], kind: TokenType) {
        // Tests both ends first, because almost no token begins and ends like a known spelling.
        let looks_so = match *text {
            [b'<' | b'[' | b'_' | 0xe2, .., b'>' | b']' | b'['] => text.len() <= 32,
            _ => false,
        };
        if looks_so {
            for (((name, _), found), marked) in NAMES.iter().zip(&mut self.ids).zip(&mut self.marked) {
                if *name == text && found.is_none() {
                    *found = Some(id);
                    *marked = kind.is_special();
                }
            }
        }
    }

    fn by_name(&self, name: &[u8]) -> Option<TokenId> {
        NAMES.iter().zip(&self.ids).find(|((n, _), _)| *n == name).and_then(|(_, id)| *id)
    }

    fn first(&self, meaning: Meaning) -> Option<TokenId> {
        NAMES.iter().zip(&self.ids).filter(|((_, m), _)| *m == meaning).find_map(|(_, id)| *id)
    }

    /// Returns the first token whose spelling has this meaning and that the file marks as special; `None` if there is
    /// none.
    fn first_marked(&self, meaning: Meaning) -> Option<TokenId> {
        let names = NAMES.iter().zip(&self.ids).zip(&self.marked);
        names.filter(|(((_, m), _), marked)| *m == meaning && **marked).find_map(|((_, id), _)| *id)
    }

    /// Derives properties of tokens. `known` has the ids from the metadata for the end of a sequence, the end of a turn
    /// and the end of a message. `key` returns the id under a metadata key, if the id is in the vocabulary.
    /// If `keeps_types` is true, the file's own types count more than the known spellings.
    pub fn consequences(
        &self,
        known: [Option<TokenId>; 3],
        keeps_types: bool,
        key: impl Fn(&str) -> Option<TokenId>,
    ) -> Consequences {
        let [eos, eot, eom] = known;
        let eot = eot.or_else(|| self.first_marked(EndOfTurn));
        let eom = eom.or_else(|| self.first_marked(EndOfMessage));
        let mut types = [None; COUNT];
        let mut ends = [None; MOST_ENDS];

        let names = NAMES.iter().zip(&self.ids).zip(&self.marked);
        for ((((_, meaning), id), marked), new) in names.zip(&mut types) {
            let Some(id) = *id else { continue };
            match meaning {
                EndOfTurn | EndOfMessage | End => {
                    *new = Some((id, TokenType::Control));
                    if *marked {
                        insert(&mut ends, Some(id));
                    }
                }
                Fill(role) => {
                    let named = ROLES.iter().any(|(r, keys, _)| r == role && keys.iter().any(|k| key(k).is_some()));
                    if !named && self.first(*meaning) == Some(id) {
                        *new = Some((id, TokenType::Control));
                    }
                }
                Shown => *new = Some((id, TokenType::UserDefined)),
            }
        }
        for (role, keys, ends_answer) in ROLES {
            if ends_answer {
                let id = keys.iter().find_map(|k| key(k)).or_else(|| self.first_marked(Fill(role)));
                insert(&mut ends, id);
            }
        }
        for id in [eos, eot, eom] {
            insert(&mut ends, id);
        }

        // Some vocabularies have a token that usually ends an answer, but does not do so in this family.
        let is_end =
            |ends: &[Option<TokenId>], name: &[u8]| self.by_name(name).is_some_and(|id| ends.contains(&Some(id)));
        let call = is_end(&ends, b"<|call|>") || is_end(&ends, b"<|calls|>");
        if call && (is_end(&ends, b"<|return|>") || is_end(&ends, b"<|flush|>")) {
            self.not_an_end(b"<|end|>", TokenType::UserDefined, &mut types, &mut ends);
        }
        if is_end(&ends, b"<|tool_response>") {
            self.not_an_end(b"</s>", TokenType::Normal, &mut types, &mut ends);
        }
        if keeps_types {
            self.keep_types(&mut types);
        }
        Consequences { eot, eom, types, ends }
    }

    /// Lets tokens keep the type that they have in the file, if the type that follows from the spelling [gives
    /// way](Meaning::gives_way) to it.
    #[inline(never)] // keeps its temporaries off the caller's stack
    fn keep_types(&self, types: &mut [Option<(TokenId, TokenType)>; COUNT]) {
        let names = NAMES.iter().zip(&self.marked).zip(types);
        for (_, new) in names.filter(|(((_, meaning), marked), _)| meaning.gives_way(**marked)) {
            *new = None;
        }
    }

    fn not_an_end(
        &self,
        name: &[u8],
        becomes: TokenType,
        types: &mut [Option<(TokenId, TokenType)>],
        ends: &mut [Option<TokenId>],
    ) {
        let Some(id) = self.by_name(name) else { return };
        for end in ends.iter_mut().filter(|end| **end == Some(id)) {
            *end = None;
        }
        for (token, kind) in types.iter_mut().flatten().filter(|(token, _)| *token == id) {
            *kind = becomes;
            let _ = token;
        }
    }
}

/// Adds an id unless it is present.
pub(super) fn insert(ends: &mut [Option<TokenId>], id: Option<TokenId>) {
    if id.is_some()
        && !ends.contains(&id)
        && let Some(free) = ends.iter_mut().find(|end| end.is_none())
    {
        *free = id;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str]) -> Found {
        let mut found = Found::new();
        for (id, name) in names.iter().enumerate() {
            found.look(id as TokenId, name.as_bytes(), TokenType::Control);
        }
        found
    }

    #[test]
    fn there_is_room_for_all_ends() {
        let may_end = NAMES.iter().filter(|(_, m)| matches!(m, EndOfTurn | EndOfMessage | End)).count();
        assert!(may_end + 3 + 3 <= MOST_ENDS);
        // The fast path accepts every name.
        for (name, _) in NAMES {
            let mut found = Found::new();
            found.look(3, name, TokenType::Normal);
            assert_eq!(found.by_name(name), Some(3));
        }
    }

    #[test]
    fn metadata_come_first() {
        let found = found(&["a", "<|im_end|>", "<|eot_id|>"]);
        let by_name = found.consequences([Some(0), None, None], false, |_| None);
        assert_eq!((by_name.eot, by_name.eom), (Some(2), None));
        let by_key = found.consequences([Some(0), Some(1), None], false, |_| None);
        assert_eq!(by_key.eot, Some(1));
        for id in 0..3 {
            assert!(by_key.ends.contains(&Some(id)));
        }
    }

    #[test]
    fn ordinary_text_ends_nothing() {
        let mut found = Found::new();
        found.look(5, b"</s>", TokenType::Normal);
        let consequences = found.consequences([None; 3], false, |_| None);
        assert_eq!(consequences.ends, [None; MOST_ENDS]);
        assert!(consequences.types.contains(&Some((5, TokenType::Control))));
    }

    #[test]
    fn final_types() {
        let mut found = Found::new();
        for (id, (name, kind)) in
            [("</s>", TokenType::Normal), ("<eos>", TokenType::UserDefined), ("<PRE>", TokenType::UserDefined)]
                .into_iter()
                .enumerate()
        {
            found.look(id as TokenId, name.as_bytes(), kind);
        }
        let types = |keeps_types| found.consequences([None; 3], keeps_types, |_| None).types;
        assert_eq!(types(false).iter().flatten().count(), 3);
        assert!(types(true).into_iter().flatten().eq([(1, TokenType::Control)]));
        let taken = |name: &str, is_special| is_taken_for_control(name.as_bytes(), is_special);
        assert!(taken("</s>", false) && !taken("</s>", true) && taken("<PRE>", true));
        assert!(!taken("<|channel|>", false) && !taken("</p>", false));
    }

    #[test]
    fn exceptions() {
        let harmony = found(&["<|end|>", "<|return|>", "<|call|>"]).consequences([None; 3], false, |_| None);
        assert!(!harmony.ends.contains(&Some(0)));
        assert!(harmony.types.contains(&Some((0, TokenType::UserDefined))));
        // `</s>` is ordinary text in Gemma 4's vocabulary, which has `<|tool_response>`. gpt-oss's `<|channel|>` is
        // printed, like the other tokens that separate the parts of a message.
        let gemma = found(&["</s>", "<|tool_response>", "<|channel|>"]).consequences([None; 3], false, |_| None);
        assert!(!gemma.ends.contains(&Some(0)) && gemma.ends.contains(&Some(1)) && !gemma.ends.contains(&Some(2)));
        assert!(gemma.types.contains(&Some((0, TokenType::Normal))));
        assert!(gemma.types.contains(&Some((2, TokenType::UserDefined))));
        let phi = found(&["<|end|>", "</s>"]).consequences([None; 3], false, |_| None);
        assert!(phi.ends.contains(&Some(0)) && phi.ends.contains(&Some(1)));
    }
}
