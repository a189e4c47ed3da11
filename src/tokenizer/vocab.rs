//! The vocabulary in a file's metadata: arrays, ids and switches, with llama.cpp's defaults.
//!
//! Reading is `const`, so that the compiler can compute the size of a firmware's index.

use super::canonical::{SPACE, Spelling, first_four, hash};
use super::charsmap::{Charsmap, Spaces};
use super::pretokenizer::PreTokenizer;
use crate::gguf::{Array, Gguf, ValueType};
use crate::{Error, Name, TokenId, built, tri};

pub(super) const PREFIX: &str = "tokenizer.ggml";
const TOKENS: &str = "tokens";
const SCORES: &str = "scores";
const TYPES: &str = "token_type";
pub(super) const MERGES: &str = "merges";
const CHARSMAP: &str = "precompiled_charsmap";

/// True if this build has the tables of Unicode. The smallest build, which has only SentencePiece's BPE, does not read
/// keys that only other tokenizers have.
pub(super) const HAS_TABLES: bool = built::BPE || built::UNIGRAM || built::WORDPIECE;

/// True if SentencePiece's BPE is the only tokenizer of this build.
pub(super) const ONLY_SPM: bool = !(HAS_TABLES || built::RWKV_WORLD || built::PLAMO2);

/// Flag of the rule that no space is added before a text that begins with a space or with `▁`.
const IF_ABSENT: u32 = 1;
/// Rule that no space is added after a special token.
const AT_START: u32 = 2;
/// Flag of the rule that a space at the end of a text is kept, in vocabularies where runs of spaces count as one.
const KEEPS_LAST: u32 = 4;
/// Flag of the rule that a word that begins with `▁` gets no other space before it, in vocabularies where runs of
/// spaces count as one.
const MARKED_WORDS: u32 = 8;

/// Maximum length of tokens that are looked up at every position of a text: special tokens, and all tokens of
/// tokenizers without merges. In real models these tokens have less than 100 bytes; the limit bounds the time that a
/// hostile file can cost.
pub(super) const LONGEST_LOOKED_FOR: usize = 512;

/// Type of a token: `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Ordinary text.
    Normal,
    /// Represents text that the vocabulary cannot spell.
    Unknown,
    /// Marks the start or end of a text or of a turn. Such a token is found in a text only on request
    /// (`parse_special`).
    Control,
    /// A token that the model's authors added. It is always found in a text, before all other tokens.
    UserDefined,
    /// An id without meaning.
    Unused,
    /// One byte, spelled `<0x41>`.
    Byte,
    /// Any other type.
    Undefined,
}

impl TokenType {
    pub(super) const fn from_file(number: i32) -> Self {
        match number {
            1 => TokenType::Normal,
            2 => TokenType::Unknown,
            3 => TokenType::Control,
            4 => TokenType::UserDefined,
            5 => TokenType::Unused,
            6 => TokenType::Byte,
            _ => TokenType::Undefined,
        }
    }

    pub(super) const fn number(self) -> u32 {
        match self {
            TokenType::Undefined => 0,
            TokenType::Normal => 1,
            TokenType::Unknown => 2,
            TokenType::Control => 3,
            TokenType::UserDefined => 4,
            TokenType::Unused => 5,
            TokenType::Byte => 6,
        }
    }

    /// True if the token can be cut out of a text before the rest is tokenized: types 2 to 4 in the file.
    pub(super) const fn is_special(self) -> bool {
        matches!(self, TokenType::Control | TokenType::UserDefined | TokenType::Unknown)
    }
}

/// Changes to the characters of a text before WordPiece.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordPieceRules {
    /// Converts letters to lowercase.
    pub lowercase: bool,
    /// Decomposes characters and leaves out nonspacing marks.
    pub strips_accents: bool,
    /// Leaves out control characters.
    pub cleans: bool,
    /// Makes each ideograph a word.
    pub parts_ideographs: bool,
}

/// Kind of tokenizer: `tokenizer.ggml.model`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Model {
    /// "llama": SentencePiece's BPE with scores.
    Spm,
    /// "gpt2": byte-level BPE with merges. With "hybriddna" (`dna`), groups of DNA letters are also tokens.
    Bpe { pre: PreTokenizer, dna: bool },
    /// BPE over characters with merges: the file calls the tokenizer "whitespace", "bpe" or "gpt2", and the
    /// pre-tokenizer "whitespace".
    Characters {
        /// True if letters are converted to lowercase.
        lowercase: bool,
    },
    /// "gemma4": BPE over characters with merges, line by line. Characters that the vocabulary lacks become byte
    /// tokens.
    Lines {
        /// True if consecutive newlines become a single token, provided that the vocabulary has such a token.
        newlines: bool,
        /// True if a line that does not begin with a space gets one, and each line is split into words before its
        /// spaces.
        words: bool,
    },
    /// "t5": unigram, with SentencePiece's normalization.
    Unigram,
    /// "bert": WordPiece.
    WordPiece(WordPieceRules),
    /// "rwkv": the longest token at each place, over bytes.
    #[cfg(feature = "rwkv-world")]
    World,
    /// "plamo2": unigram with whole costs.
    #[cfg(feature = "plamo2")]
    Plamo2,
}

impl Model {
    #[inline(never)] // makes the binary smaller
    const fn read(gguf: &Gguf<'_>, name: &[u8]) -> Result<Self, Error> {
        Ok(match name {
            b"llama" => Model::Spm,
            b"gpt2" if built::BPE => match tri!(gguf.str(PREFIX, "pre")) {
                Some(b"gemma4" | b"granite-embed-multi-311m") => Model::Lines { newlines: true, words: false },
                Some(b"sarvam-moe") => Model::Lines { newlines: false, words: false },
                Some(b"mmbert") => Model::Lines { newlines: true, words: true },
                Some(b"whitespace") => tri!(Model::characters(gguf)),
                _ => Model::Bpe { pre: tri!(Model::pre_tokenizer(gguf)), dna: false },
            },
            b"hybriddna" if built::HYBRID_DNA => Model::Bpe { pre: tri!(Model::pre_tokenizer(gguf)), dna: true },
            b"gemma4" if built::BPE => Model::Lines { newlines: true, words: false },
            #[cfg(feature = "rwkv-world")]
            b"rwkv" => Model::World,
            #[cfg(feature = "plamo2")]
            b"plamo2" => Model::Plamo2,
            b"t5" if built::UNIGRAM => Model::Unigram,
            b"bert" if built::WORDPIECE => {
                let lowercase = tri!(switch(gguf, "normalizer.lowercase", true));
                let [strips_accents, cleans, parts_ideographs] = tri!(switches(
                    gguf,
                    [
                        ("normalizer.strip_accents", lowercase),
                        ("normalizer.clean_text", true),
                        ("normalizer.handle_chinese_chars", true)
                    ]
                ));
                Model::WordPiece(WordPieceRules { lowercase, strips_accents, cleans, parts_ideographs })
            }
            b"bpe" | b"whitespace" if built::BPE => match tri!(gguf.str(PREFIX, "pre")) {
                Some(b"whitespace") => tri!(Model::characters(gguf)),
                Some(pre) => return Err(Error::Unsupported { what: "pre-tokenizer", name: Name::new(pre) }),
                None => return Err(Error::MissingKey { key: Name::key(PREFIX, "pre") }),
            },
            // These files have no vocabulary.
            b"none" | b"no_vocab" if HAS_TABLES => return Err(Error::MissingKey { key: Name::key(PREFIX, TOKENS) }),
            _ => return Err(Error::Unsupported { what: "tokenizer model", name: Name::new(name) }),
        })
    }

    const fn pre_tokenizer(gguf: &Gguf<'_>) -> Result<PreTokenizer, Error> {
        let name = match tri!(gguf.str(PREFIX, "pre")) {
            Some(name) => name,
            None => b"",
        };
        let Some(mut pre) = PreTokenizer::by_name(name) else {
            return Err(Error::Unsupported { what: "pre-tokenizer", name: Name::new(name) });
        };
        pre.ignore_merges = tri!(switch(gguf, "ignore_merges", pre.ignore_merges));
        Ok(pre)
    }

    const fn characters(gguf: &Gguf<'_>) -> Result<Self, Error> {
        Ok(Model::Characters { lowercase: tri!(switch(gguf, "normalizer.lowercase", false)) })
    }

    /// The defaults for BOS, EOS and the unknown token, and for whether BOS, EOS and a leading space are added to
    /// texts.
    const fn defaults(self, name: &[u8]) -> Defaults {
        match self {
            _ if ONLY_SPM => (Some(1), Some(2), Some(0), true, false, true),
            Model::Spm => (Some(1), Some(2), Some(0), true, false, true),
            Model::Bpe { pre, .. } => (Some(11), Some(11), None, pre.add_bos, false, false),
            Model::Lines { .. } if matches!(name, b"gpt2") => (Some(11), Some(11), None, false, false, false),
            Model::Lines { .. } => (Some(2), Some(1), Some(3), true, false, false),
            Model::Unigram => (None, Some(1), Some(2), false, true, false),
            // EOS is the token that llama.cpp calls the separator.
            Model::WordPiece(_) => (Some(101), Some(102), Some(100), true, true, true),
            Model::Characters { .. } => (None, None, None, false, false, false),
            #[cfg(feature = "rwkv-world")]
            Model::World => (None, None, None, false, false, false),
            #[cfg(feature = "plamo2")]
            Model::Plamo2 => (Some(1), Some(2), Some(0), false, false, false),
        }
    }
}

type Defaults = (Option<TokenId>, Option<TokenId>, Option<TokenId>, bool, bool, bool);

/// The vocabulary as stored in the file.
#[derive(Clone, Copy)]
pub(super) struct Vocab<'a> {
    pub model: Model,
    pub tokens: Array<'a>,
    scores: Option<Array<'a>>,
    types: Option<Array<'a>>,
    merges: Option<Array<'a>>,
    pub bos: Option<TokenId>,
    pub eos: Option<TokenId>,
    pub eot: Option<TokenId>,
    pub eom: Option<TokenId>,
    pub unknown: Option<TokenId>,
    pub add_bos: bool,
    pub add_eos: bool,
    pub add_space_prefix: bool,
    /// Which rules decide where a space is added: the sum of the flags [`IF_ABSENT`], [`AT_START`] and [`KEEPS_LAST`].
    /// They are options of Hugging Face's `Metaspace`; llama.cpp has no such rules.
    space_prefix_rule: u32,
    /// True if consecutive characters that the vocabulary lacks become one unknown token, as in SentencePiece.
    /// llama.cpp does not do this.
    pub fuse_unknown: bool,
    /// True if runs of spaces count as one.
    pub merge_spaces: bool,
    pub charsmap: Charsmap<'a>,
    /// Steps by which the model's own tokenizer first converts a text: see `Tokenizer::normalizer`.
    pub normalizer: &'a [u8],
}

impl<'a> Vocab<'a> {
    /// Checks that this build has the file's kind of tokenizer, without reading the tokens.
    pub const fn check_kind(gguf: &Gguf<'_>) -> Result<(), Error> {
        let Some(name) = tri!(gguf.str(PREFIX, "model")) else {
            return Err(Error::MissingKey { key: Name::key(PREFIX, "model") });
        };
        tri!(Model::read(gguf, name));
        Ok(())
    }

    pub const fn read(gguf: &Gguf<'a>) -> Result<Self, Error> {
        let Some(name) = tri!(gguf.str(PREFIX, "model")) else {
            return Err(Error::MissingKey { key: Name::key(PREFIX, "model") });
        };
        let model = tri!(Model::read(gguf, name));
        let Some(tokens) = tri!(strings(gguf, TOKENS)) else {
            return Err(Error::MissingKey { key: Name::key(PREFIX, TOKENS) });
        };
        // Larger arrays are refused, because ids and offsets into the array have 32 bits, and some values are reserved.
        let fits = tokens.bytes().len() < u32::MAX as usize && tokens.len() < i32::MAX as usize;
        if tokens.is_empty() || !fits {
            let why = if tokens.is_empty() { "is empty" } else { "has more than 4 GiB" };
            return Err(Error::KeyValue { key: Name::key(PREFIX, TOKENS), why });
        }
        let len = tokens.len();
        let scores = tri!(numbers(gguf, SCORES, len, true));
        let types = tri!(numbers(gguf, TYPES, len, false));
        let merges = match model {
            Model::Bpe { .. } | Model::Characters { .. } | Model::Lines { .. } if built::BPE => {
                match tri!(strings(gguf, MERGES)) {
                    Some(merges) if merges.len() < i32::MAX as usize => Some(merges),
                    Some(_) => return Err(Error::KeyValue { key: Name::key(PREFIX, MERGES), why: "is too long" }),
                    None => return Err(Error::MissingKey { key: Name::key(PREFIX, MERGES) }),
                }
            }
            _ => None,
        };

        let (bos, eos, unknown, add_bos, add_eos, add_space_prefix) = model.defaults(name);
        let eos = match model {
            Model::WordPiece(_) if built::WORDPIECE => tri!(id(gguf, "seperator_token_id", eos, len)), // the misspelling is the format's
            _ => eos,
        };
        let [add_bos, add_eos, fuse_unknown, merge_spaces] = tri!(switches(
            gguf,
            [
                ("add_bos_token", add_bos),
                ("add_eos_token", add_eos),
                ("fuse_unk", true),
                ("remove_extra_whitespaces", false)
            ]
        ));
        let vocab = Self {
            model,
            tokens,
            scores,
            types,
            merges,
            bos: tri!(id(gguf, "bos_token_id", bos, len)),
            eos: tri!(id(gguf, "eos_token_id", eos, len)),
            eot: tri!(id(gguf, "eot_token_id", None, len)),
            eom: tri!(id(gguf, "eom_token_id", None, len)),
            unknown: tri!(id(gguf, "unknown_token_id", unknown, len)),
            add_bos,
            add_eos,
            // These tokenizers never add a space, whatever the file says. The exception is WordPiece, which always adds
            // one.
            add_space_prefix: match model {
                _ if ONLY_SPM => tri!(switch(gguf, "add_space_prefix", add_space_prefix)),
                Model::Bpe { .. } | Model::WordPiece(_) => add_space_prefix,
                #[cfg(feature = "rwkv-world")]
                Model::World => add_space_prefix,
                #[cfg(feature = "plamo2")]
                Model::Plamo2 => add_space_prefix,
                _ => tri!(switch(gguf, "add_space_prefix", add_space_prefix)),
            },
            space_prefix_rule: match tri!(gguf.u32(PREFIX, "add_space_prefix_rule")) {
                Some(rule) => rule,
                None => 0,
            },
            fuse_unknown,
            merge_spaces,
            charsmap: tri!(charsmap(gguf)),
            normalizer: match gguf.str(PREFIX, "normalizer.steps") {
                Ok(Some(steps)) if HAS_TABLES => steps,
                Err(error) if HAS_TABLES => return Err(error),
                _ => b"",
            },
        };
        if vocab.add_bos && vocab.bos.is_none() {
            return Err(Error::MissingKey { key: Name::key(PREFIX, "bos_token_id") });
        }
        if vocab.add_eos && vocab.eos.is_none() {
            return Err(Error::MissingKey { key: Name::key(PREFIX, "eos_token_id") });
        }
        Ok(vocab)
    }

    pub const fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns true if the tokenizer adds a space before `text`. `is_start` is true if `text` is the start of the whole
    /// text. Otherwise, `text` follows a special token.
    pub fn prefixes(&self, text: &[u8], is_start: bool) -> bool {
        let is = |rule| self.space_prefix_rule & rule != 0;
        self.add_space_prefix
            && !(is(IF_ABSENT) && (text.first() == Some(&b' ') || text.starts_with(&SPACE))
                || is(AT_START) && !is_start)
    }

    /// Treatment of white space in a vocabulary of unigrams, whose text gets a space before it if `prefix` is true.
    pub const fn spaces(&self, prefix: bool) -> Spaces {
        Spaces {
            prefix,
            merge: self.merge_spaces,
            keep_last: self.space_prefix_rule & KEEPS_LAST != 0,
            marked_words: self.space_prefix_rule & MARKED_WORDS != 0,
        }
    }

    pub const fn merges(&self) -> Option<Array<'a>> {
        if built::BPE { self.merges } else { None }
    }

    pub const fn spelling(&self) -> Spelling {
        match self.model {
            Model::Bpe { dna: true, .. } if built::HYBRID_DNA => Spelling::Dna,
            Model::Bpe { .. } if built::BPE => Spelling::ByteLevel,
            #[cfg(feature = "rwkv-world")]
            Model::World => Spelling::Python,
            #[cfg(feature = "plamo2")]
            Model::Plamo2 => Spelling::Plain,
            _ => Spelling::Escaped,
        }
    }

    /// True if tokens are looked up by prefix, byte by byte. The index then sorts tokens by their bytes.
    pub const fn finds_prefixes(&self) -> bool {
        built::UNIGRAM && matches!(self.model, Model::Unigram)
            || built::WORDPIECE && matches!(self.model, Model::WordPiece(_))
            || matches!(self.spelling(), Spelling::Python | Spelling::Plain)
    }

    /// The spelling whose bytes the index uses to find a token.
    pub const fn found_by(&self) -> Spelling {
        match self.spelling() {
            Spelling::Escaped if self.finds_prefixes() => Spelling::Raw,
            spelling => spelling,
        }
    }

    /// The primary sort key of tokens in the index.
    #[inline]
    pub fn key(&self, bytes: impl Iterator<Item = u8>) -> u32 {
        if self.finds_prefixes() { first_four(bytes) } else { hash(bytes) }
    }

    /// True if decoding drops the space before the first word.
    pub const fn strips_first_space(&self) -> bool {
        self.add_space_prefix || self.merge_spaces || self.spaces_apart()
    }

    /// True if a space is added before every text that follows a special token.
    pub const fn spaces_after_special(&self) -> bool {
        self.add_space_prefix && self.space_prefix_rule & AT_START == 0
    }

    /// True if decoding puts a space before every token, because the vocabulary does not mark tokens that begin a word.
    /// Hugging Face does the same for a BPE without a decoder.
    pub const fn spaces_apart(&self) -> bool {
        built::BPE && matches!(self.model, Model::Characters { .. }) && !self.add_space_prefix
    }

    /// True if control tokens are ordinary text in this vocabulary: they are found in every text, and decoding writes
    /// them.
    pub const fn is_all_text(&self) -> bool {
        built::RWKV_WORLD && matches!(self.spelling(), Spelling::Python)
    }

    /// Type of a token in the file.
    pub const fn file_type(&self, id: TokenId) -> TokenType {
        match self.types {
            None => TokenType::Normal,
            Some(types) => match types.get_i32(id as usize) {
                Some(number) => TokenType::from_file(number),
                None => TokenType::Undefined,
            },
        }
    }

    /// Number of special tokens by the file's types.
    pub const fn count_special(&self) -> usize {
        let Some(types) = self.types else { return 0 };
        let tokens = self.len();
        let mut count = 0;
        let mut id = 0;
        // Types usually have 32 bits. This case is handled without function calls, because calls are slow in constant
        // evaluation.
        if matches!(types.element(), ValueType::I32 | ValueType::U32) {
            let bytes = types.bytes();
            let (len, mut at) = (bytes.len(), 0);
            while id < tokens && len >= 4 && at <= len - 4 {
                let low = bytes[at];
                let is_low = bytes[at + 1] == 0 && bytes[at + 2] == 0 && bytes[at + 3] == 0;
                count += (is_low && 2 <= low && low <= 4) as usize;
                id += 1;
                at += 4;
            }
            return count;
        }
        while id < tokens {
            count += self.file_type(id as TokenId).is_special() as usize;
            id += 1;
        }
        count
    }

    /// Score of a token, by which SentencePiece's BPE ranks merges; 0 if the token has no score.
    pub fn score(&self, id: TokenId) -> f32 {
        self.scores.and_then(|scores| scores.get_f32(id as usize)).unwrap_or(0.0)
    }
}

/// Reads an array of strings.
const fn strings<'a>(gguf: &Gguf<'a>, name: &str) -> Result<Option<Array<'a>>, Error> {
    match tri!(gguf.array(PREFIX, name)) {
        None => Ok(None),
        Some(array) if matches!(array.element(), ValueType::Str) => Ok(Some(array)),
        Some(_) => Err(Error::KeyType { key: Name::key(PREFIX, name), expected: "an array of strings" }),
    }
}

/// Reads an array with a number for every token, of any width. As in llama.cpp, the array may be longer; further
/// numbers are ignored.
const fn numbers<'a>(gguf: &Gguf<'a>, name: &str, len: usize, floats: bool) -> Result<Option<Array<'a>>, Error> {
    use ValueType::*;
    let Some(array) = tri!(gguf.array(PREFIX, name)) else { return Ok(None) };
    let is_right = match array.element() {
        U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64 => true,
        F32 | F64 => floats,
        Bool | Str | Array => false,
    };
    if !is_right {
        let expected = if floats { "an array of numbers" } else { "an array of integers" };
        return Err(Error::KeyType { key: Name::key(PREFIX, name), expected });
    }
    if array.len() < len {
        return Err(Error::KeyValue { key: Name::key(PREFIX, name), why: "is shorter than the list of tokens" });
    }
    Ok(Some(array))
}

/// Reads the id under a key. If the key is missing, returns the default if it is in the vocabulary. As in llama.cpp, an
/// id outside of the vocabulary counts as missing; some programs write -1 if there is no such token.
const fn id(gguf: &Gguf<'_>, name: &str, default: Option<TokenId>, len: usize) -> Result<Option<TokenId>, Error> {
    match gguf.u32(PREFIX, name) {
        Ok(Some(id)) if (id as usize) < len => Ok(Some(id)),
        Err(error @ Error::KeyType { .. }) => Err(error),
        _ => match default {
            Some(id) if (id as usize) < len => Ok(Some(id)),
            _ => Ok(None),
        },
    }
}

const fn switch(gguf: &Gguf<'_>, name: &str, default: bool) -> Result<bool, Error> {
    match tri!(gguf.bool(PREFIX, name)) {
        Some(value) => Ok(value),
        None => Ok(default),
    }
}

/// Reads several switches, each with its default. (This is a loop, because one call of [`switch`] needs less stack than
/// several calls.)
const fn switches<const N: usize>(gguf: &Gguf<'_>, keys: [(&str, bool); N]) -> Result<[bool; N], Error> {
    let mut values = [false; N];
    let mut i = 0;
    while i < N {
        let (name, default) = keys[i];
        values[i] = tri!(switch(gguf, name, default));
        i += 1;
    }
    Ok(values)
}

/// Reads the normalization table, if there is one.
const fn charsmap<'a>(gguf: &Gguf<'a>) -> Result<Charsmap<'a>, Error> {
    Ok(match tri!(gguf.array(PREFIX, CHARSMAP)) {
        _ if !built::UNIGRAM => Charsmap::NONE,
        Some(map) if matches!(map.element(), ValueType::U8 | ValueType::I8) => match Charsmap::new(map.bytes()) {
            Some(charsmap) => charsmap,
            None => return Err(Error::KeyValue { key: Name::key(PREFIX, CHARSMAP), why: "is cut short" }),
        },
        Some(_) => return Err(Error::KeyType { key: Name::key(PREFIX, CHARSMAP), expected: "an array of bytes" }),
        None => Charsmap::NONE,
    })
}
