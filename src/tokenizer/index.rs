//! The index, which makes a vocabulary fast to search. The caller provides its memory.
//!
//! The index is an array of little-endian 32-bit words without pointers. It is the same on every target and may have
//! any alignment. It can be built in RAM or stored in flash. For V tokens and M merges:
//!
//! ```text
//! header     16
//! gaps        8     set of the bytes that precede a space within a token
//! offsets     V     start of each token in `tokenizer.ggml.tokens`
//! buckets   B+1     start in `order` of the keys with these high bits
//! order      2V     (key, id), sorted by key, bytes and id; the key is a hash of the token's canonical bytes, or
//!                   with tokenizers that look up prefixes the first four of these bytes
//! bytes     256     token of every single byte
//! specials   3S     (id, length, type and flags), sorted by spelling: the special tokens
//! types      2T     (id, type) of tokens whose type differs from the file's
//! ends        E     ids that end an answer
//! starts    V+1     first merge of each left id                          (only with merges)
//! merges     3M     (right id, rank, result), sorted by left id, right id, rank
//! ```
//!
//! An index from outside is verified word by word ([`super::verify`]). Look-ups do not rely on the verification: a
//! damaged index gives wrong ids or errors, but no panic or endless loop.

use super::canonical::{Spelling, compare};
use super::merge::Word;
use super::names;
use super::vocab::{HAS_TABLES, TokenType, Vocab};
use crate::TokenId;

/// Word that means "no id".
pub(super) const NONE: u32 = u32::MAX;

/// The first word of an index. Its bytes are the letters "art" and the version of the index's layout.
pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"art\x03");

/// Word offsets in the header.
pub(super) mod header {
    pub const MAGIC: usize = 0;
    /// Number of tokens.
    pub const TOKENS: usize = 1;
    /// Number of merges.
    pub const MERGES: usize = 2;
    /// Number of bytes of the file's array of tokens. If it differs from the number in the index, the index belongs to
    /// another file.
    pub const TOKEN_BYTES: usize = 3;
    /// Bytes of the file's merge array.
    pub const MERGE_BYTES: usize = 4;
    /// Number of special tokens.
    pub const SPECIALS: usize = 5;
    /// Number of entries in `types`.
    pub const TYPES: usize = 6;
    /// Number of entries in `ends`.
    pub const ENDS: usize = 7;
    /// Id of the end of turn.
    pub const EOT: usize = 8;
    /// Id of the end of message.
    pub const EOM: usize = 9;
    /// Length of the longest spelling in bytes.
    pub const LONGEST: usize = 10;
    /// Lowest score of an ordinary token, an f32.
    pub const WORST_SCORE: usize = 11;
    /// Id that follows BOS at the start of a text.
    pub const AFTER_BOS: usize = 12;
    /// Id that precedes EOS at the end of a text.
    pub const BEFORE_EOS: usize = 13;
    pub const WORDS: usize = 16;
}

/// The sizes from which the layout of an index follows. The methods return the offsets of the index's sections, in
/// words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub tokens: usize,
    pub merges: usize,
    specials: usize,
    has_merges: bool,
}

impl Layout {
    pub const fn of(vocab: &Vocab<'_>) -> Self {
        let (merges, has_merges) = match vocab.merges() {
            Some(merges) => (merges.len(), true),
            None => (0, false),
        };
        // There is room for all known spellings, because a token with a known spelling can become special.
        Self { tokens: vocab.len(), merges, specials: vocab.count_special() + names::COUNT, has_merges }
    }

    pub const fn gaps(&self) -> usize {
        header::WORDS
    }

    pub const fn offsets(&self) -> usize {
        self.gaps() + 8
    }

    pub const fn buckets(&self) -> usize {
        self.offsets() + self.tokens
    }

    /// Number of high bits of a key that select its bucket: a bucket has 2 to 4 tokens on average.
    pub const fn bucket_bits(&self) -> u32 {
        (self.tokens as u32 | 1).ilog2().saturating_sub(1)
    }

    /// Bucket of a hash.
    pub const fn bucket(&self, hash: u32) -> usize {
        (hash as u64 >> (32 - self.bucket_bits())) as usize
    }

    pub const fn order(&self) -> usize {
        self.buckets() + (1 << self.bucket_bits()) + 1
    }

    pub const fn bytes(&self) -> usize {
        self.order() + 2 * self.tokens
    }

    pub const fn specials(&self) -> usize {
        self.bytes() + 256
    }

    pub const fn types(&self) -> usize {
        self.specials() + 3 * self.specials
    }

    pub const fn ends(&self) -> usize {
        self.types() + 2 * names::COUNT
    }

    pub const fn starts(&self) -> usize {
        self.ends() + names::MOST_ENDS
    }

    pub const fn merges_at(&self) -> usize {
        self.starts() + if self.has_merges { self.tokens + 1 } else { 0 }
    }

    /// Number of words of the index.
    pub const fn words(&self) -> usize {
        self.merges_at() + 3 * self.merges
    }
}

/// A special token, which is cut out of a text before the rest is tokenized.
#[derive(Clone, Copy, Debug)]
pub(super) struct Special {
    pub id: TokenId,
    /// Length of the spelling in bytes.
    pub len: usize,
    pub kind: TokenType,
    /// First byte of the spelling.
    pub first: u8,
    /// A sum of constants of [`rule`].
    pub rule: u8,
}

/// Rules by which a special token is found.
pub(super) mod rule {
    /// The token absorbs white space before it.
    pub const STRIPS_LEFT: u32 = 1;
    /// The token absorbs white space after it.
    pub const STRIPS_RIGHT: u32 = 2;
    /// The token is only found as a whole word: neither the character before it nor the character after it is a letter,
    /// mark, digit or underscore.
    pub const WHOLE_WORD: u32 = 4;
    /// The token is searched for after all others. WordPiece searches for it in the text that its own rules have
    /// already changed.
    pub const NORMALIZED: u32 = 8;
}

impl Special {
    /// Determines the order of special tokens with equal spelling: tokens that do not depend on `parse_special` come
    /// first.
    pub fn rank(&self) -> (bool, TokenId) {
        (self.kind != TokenType::UserDefined, self.id)
    }

    pub(super) fn to_words(self) -> [u32; 3] {
        [self.id, self.len as u32, self.kind.number() | u32::from(self.first) << 8 | u32::from(self.rule) << 16]
    }

    /// Returns true if the token has this rule.
    pub const fn follows(self, rule: u32) -> bool {
        self.rule as u32 & rule != 0
    }

    #[inline]
    pub(super) fn from_words(words: &[Word; 3]) -> Self {
        let [id, len, rest] = words.map(u32::from_le_bytes);
        Self {
            id,
            len: len as usize,
            kind: TokenType::from_file((rest & 0xff) as i32),
            first: (rest >> 8) as u8,
            rule: (rest >> 16) as u8,
        }
    }
}

/// An index in borrowed memory.
#[derive(Clone, Copy)]
pub(super) struct Index<'i> {
    pub words: &'i [Word],
    pub layout: Layout,
}

impl<'i> Index<'i> {
    /// Reads the index at the front of `bytes`, which may have any alignment; `None` if the index's header does not
    /// match this vocabulary.
    pub fn new(vocab: &Vocab<'_>, bytes: &'i [u8]) -> Option<Self> {
        let layout = Layout::of(vocab);
        let words = bytes.as_chunks::<4>().0.get(..layout.words())?;
        let index = Self { words, layout };
        let is_one = index.word(header::MAGIC) == MAGIC
            && index.word(header::TOKENS) as usize == layout.tokens
            && index.word(header::MERGES) as usize == layout.merges
            && index.word(header::TOKEN_BYTES) as usize == vocab.tokens.bytes().len()
            && index.word(header::MERGE_BYTES) == merge_bytes(vocab);
        is_one.then_some(index)
    }

    /// An index under construction: [`find`](Self::find) works once the tokens are sorted.
    pub fn unfinished(words: &'i [Word], layout: Layout) -> Self {
        Self { words, layout }
    }

    #[inline]
    pub fn word(&self, at: usize) -> u32 {
        self.words.get(at).copied().map_or(NONE, u32::from_le_bytes)
    }

    fn id(&self, at: usize) -> Option<TokenId> {
        Some(self.word(at)).filter(|id| (*id as usize) < self.layout.tokens)
    }

    /// The spelling of a token; empty for ids outside the vocabulary.
    #[inline]
    pub fn spelled<'a>(&self, vocab: &Vocab<'a>, id: TokenId) -> &'a [u8] {
        #[cfg(test)]
        super::steps::step();
        if (id as usize) < self.layout.tokens {
            vocab.tokens.string_at(self.word(self.layout.offsets() + id as usize) as usize)
        } else {
            &[]
        }
    }

    /// Finds the token with these canonical bytes.
    #[inline]
    pub fn find(&self, vocab: &Vocab<'_>, bytes: impl Iterator<Item = u8> + Clone) -> Option<TokenId> {
        let wanted = vocab.key(bytes.clone());
        let bucket = self.layout.buckets() + self.layout.bucket(wanted);
        let (start, end) = (self.word(bucket) as usize, self.word(bucket + 1) as usize);
        let order = self.order().get(start..end)?;
        let spelled = |id: &Word| vocab.found_by().bytes(self.spelled(vocab, u32::from_le_bytes(*id)));
        let place = order.partition_point(|[key, id]| {
            let key = u32::from_le_bytes(*key);
            key < wanted || (key == wanted && compare(spelled(id), bytes.clone()).is_lt())
        });
        let [key, id] = order.get(place)?;
        let is_it = u32::from_le_bytes(*key) == wanted && compare(spelled(id), bytes).is_eq();
        is_it.then(|| u32::from_le_bytes(*id))
    }

    fn order(&self) -> &'i [[Word; 2]] {
        self.words.get(self.layout.order()..self.layout.bytes()).unwrap_or(&[]).as_chunks::<2>().0
    }

    /// Iterates over the tokens that `text` starts with, shortest first. Yields the length of each token in bytes, and
    /// its id. Requires [`Vocab::finds_prefixes`].
    ///
    /// Every byte narrows the range of tokens with this prefix, by two binary searches.
    pub fn prefixes(
        &self,
        vocab: &Vocab<'_>,
        text: impl Iterator<Item = u8>,
    ) -> impl Iterator<Item = (usize, TokenId)> {
        let spelling = vocab.found_by();
        let used = self.word(self.layout.buckets() + (1 << self.layout.bucket_bits())) as usize;
        let mut range = self.order().get(..used).unwrap_or(&[]);
        let mut text = text.take(self.longest()).enumerate();
        core::iter::from_fn(move || {
            loop {
                let (depth, byte) = text.next()?;
                let here = |[key, id]: &[Word; 2]| match key.get(3_usize.wrapping_sub(depth)) {
                    // A zero byte in the key may mean the end of the token.
                    Some(byte) if *byte != 0 => Some(*byte),
                    _ => spelling.byte_at(self.spelled(vocab, u32::from_le_bytes(*id)), depth),
                };
                range = narrow(range, here, byte)?;
                let [_, id] = range.first()?;
                let id = u32::from_le_bytes(*id);
                if spelling.byte_at(self.spelled(vocab, id), depth + 1).is_none() {
                    return Some((depth + 1, id));
                }
            }
        })
    }

    /// Finds the token with exactly this spelling.
    pub fn exact(&self, vocab: &Vocab<'_>, spelled: &[u8]) -> Option<TokenId> {
        let id = self.find(vocab, vocab.found_by().bytes(spelled))?;
        Some(id).filter(|id| self.spelled(vocab, *id) == spelled)
    }

    /// Returns the token whose text is the text of `left` followed by the text of `right`. First tries the id after
    /// `before`, which is the token of the previous merge, because tokens of successive merges usually have consecutive
    /// ids.
    pub fn joined(&self, vocab: &Vocab<'_>, left: &[u8], right: &[u8], before: TokenId) -> Option<TokenId> {
        let is_joined = |id: &TokenId| self.spelled(vocab, *id).strip_prefix(left) == Some(right);
        let guess = [before.wrapping_add(1), before].into_iter().find(is_joined);
        let spelling = vocab.spelling();
        guess.or_else(|| self.find(vocab, spelling.bytes(left).chain(spelling.bytes(right))).filter(is_joined))
    }

    /// Searches for the token of a single byte: `<0x41>` with SentencePiece, otherwise the spelling of the byte.
    pub fn find_byte(&self, vocab: &Vocab<'_>, byte: u8) -> Option<TokenId> {
        if matches!(vocab.spelling(), Spelling::Escaped | Spelling::Plain) {
            const HEX: [u8; 16] = *b"0123456789ABCDEF";
            let digit = |value: u8| HEX.get(usize::from(value & 15)).copied().unwrap_or(0);
            let name = [b'<', b'0', b'x', digit(byte >> 4), digit(byte), b'>'];
            if let Some(id) = self.find(vocab, name.iter().copied()) {
                return Some(id);
            }
        }
        self.find(vocab, core::slice::from_ref(&byte).iter().copied())
    }

    /// True if a token may contain a space after this byte. If no token may, the text before the space never merges
    /// with the text after it.
    pub fn may_span(&self, before_space: u8) -> bool {
        self.word(self.layout.gaps() + usize::from(before_space >> 5)) >> (before_space & 31) & 1 != 0
    }

    /// The token of a single byte: `<0x41>` or the byte itself, depending on the vocabulary.
    #[inline]
    pub fn byte(&self, byte: u8) -> Option<TokenId> {
        self.id(self.layout.bytes() + usize::from(byte))
    }

    /// Rank and result of a merge.
    #[inline]
    pub fn merge(&self, left: TokenId, right: TokenId) -> Option<(u32, TokenId)> {
        if left as usize >= self.layout.tokens {
            return None;
        }
        let starts = self.layout.starts() + left as usize;
        let (start, end) = (self.word(starts) as usize, self.word(starts + 1) as usize);
        let merges = self.words.get(self.layout.merges_at()..)?.as_chunks::<3>().0;
        let merges = merges.get(start..end)?;
        let place = merges.partition_point(|[r, _, _]| u32::from_le_bytes(*r) < right);
        let [r, rank, result] = merges.get(place)?;
        (u32::from_le_bytes(*r) == right).then(|| (u32::from_le_bytes(*rank), u32::from_le_bytes(*result)))
    }

    /// Returns the special tokens (see [`Special::from_words`]), sorted by spelling. Of tokens with equal spellings,
    /// the first are those that are parsed even if `parse_special` is false.
    pub fn specials(&self) -> &'i [[Word; 3]] {
        let count = (self.word(header::SPECIALS) as usize).min(self.layout.specials);
        let start = self.layout.specials();
        self.words.get(start..start + 3 * count).unwrap_or(&[]).as_chunks::<3>().0
    }

    /// A token's type: the type in the file, unless the token's spelling determines a different type.
    pub fn kind(&self, vocab: &Vocab<'_>, id: TokenId) -> TokenType {
        let count = (self.word(header::TYPES) as usize).min(names::COUNT);
        let types = self.words.get(self.layout.types()..).unwrap_or(&[]).as_chunks::<2>().0;
        for [token, kind] in types.iter().take(count) {
            if u32::from_le_bytes(*token) == id {
                return TokenType::from_file(u32::from_le_bytes(*kind) as i32);
            }
        }
        vocab.file_type(id)
    }

    /// Tokens that end an answer.
    pub fn ends(&self) -> impl Iterator<Item = TokenId> + use<'i> {
        let count = (self.word(header::ENDS) as usize).min(names::MOST_ENDS);
        let start = self.layout.ends();
        let words = self.words.get(start..start + count).unwrap_or(&[]);
        words.iter().map(|word| u32::from_le_bytes(*word))
    }

    pub fn eot(&self) -> Option<TokenId> {
        self.id(header::EOT)
    }

    pub fn eom(&self) -> Option<TokenId> {
        self.id(header::EOM)
    }

    /// The token between BOS and a text.
    pub fn after_bos(&self) -> Option<TokenId> {
        if HAS_TABLES { self.id(header::AFTER_BOS) } else { None }
    }

    /// The token between a text and EOS.
    pub fn before_eos(&self) -> Option<TokenId> {
        if HAS_TABLES { self.id(header::BEFORE_EOS) } else { None }
    }

    /// Lowest score of an ordinary token.
    pub fn worst_score(&self) -> f32 {
        f32::from_bits(self.word(header::WORST_SCORE))
    }

    /// Length of the longest spelling in bytes.
    pub fn longest(&self) -> usize {
        self.word(header::LONGEST) as usize
    }
}

/// Looks for the entries that have `byte` at one position; `None` if there are no such entries. `entries` are sorted
/// and agree in all bytes before the position. `here` returns an entry's byte at the position, or `None` if the entry
/// is shorter.
pub(super) fn narrow<T>(entries: &[T], here: impl Fn(&T) -> Option<u8>, byte: u8) -> Option<&[T]> {
    let start = entries.partition_point(|entry| here(entry) < Some(byte));
    let entries = entries.get(start..)?;
    let end = entries.partition_point(|entry| here(entry) <= Some(byte));
    entries.get(..end).filter(|entries| !entries.is_empty())
}

/// Size of the array of merges in bytes, modulo 2^32.
pub(super) fn merge_bytes(vocab: &Vocab<'_>) -> u32 {
    vocab.merges().map_or(0, |merges| merges.bytes().len() as u32)
}
