//! Builds an index: a pass over the tokens, a sort, and a pass over the merges.

use super::canonical::compare;
use super::index::{Index, Layout, MAGIC, NONE, Special, header, merge_bytes, rule};
use super::merge::Word;
use super::names::{Consequences, Found, MOST_ENDS, TYPES_ARE_FINAL};
use super::special::ByteSet;
use super::unigram;
use super::vocab::{HAS_TABLES, LONGEST_LOOKED_FOR, MERGES, PREFIX, TokenType, Vocab};
use crate::gguf::{Array, Gguf, Value, ValueType};
use crate::sort::heapsort;
use crate::{Error, Name, TokenId, built};

/// Builds the index of a vocabulary at the front of `memory`.
pub(super) fn build<'i>(gguf: &Gguf<'_>, vocab: &Vocab<'_>, memory: &'i mut [u8]) -> Result<Index<'i>, Error> {
    let layout = Layout::of(vocab);
    let needed = layout.words().saturating_mul(4);
    let given = memory.len();
    let Some(memory) = memory.get_mut(..needed) else {
        return Err(Error::BufferTooSmall { what: "bytes of the tokenizer index", needed, given });
    };
    let words = memory.as_chunks_mut::<4>().0;
    words.fill(NONE.to_le_bytes());

    words.get_mut(layout.gaps()..layout.order()).unwrap_or(&mut []).fill([0; 4]);

    let mut builder = Builder { words, layout, vocab };
    builder.set(header::MAGIC, MAGIC);
    builder.set(header::TOKENS, layout.tokens as u32);
    builder.set(header::MERGES, layout.merges as u32);
    builder.set(header::TOKEN_BYTES, vocab.tokens.bytes().len() as u32);
    builder.set(header::MERGE_BYTES, merge_bytes(vocab));
    builder.set(header::WORST_SCORE, unigram::worst_score(vocab).to_bits());
    let [after_bos, before_eos] = second_ends(gguf);
    builder.set(header::AFTER_BOS, after_bos);
    builder.set(header::BEFORE_EOS, before_eos);
    let found = builder.tokens()?;
    builder.sort_tokens();
    builder.names(gguf, &found);
    if built::LENIENT {
        builder.listed_ends(gguf);
    }
    builder.specials(rules(gguf)?);
    builder.bytes();
    builder.merges()?;
    Index::new(vocab, memory).ok_or(Error::ForeignIndex)
}

struct Builder<'b, 'a> {
    words: &'b mut [Word],
    layout: Layout,
    vocab: &'b Vocab<'a>,
}

fn entry(key: &str, entry: usize, why: &'static str) -> Error {
    Error::VocabularyEntry { key: Name::key(PREFIX, key), entry: entry as u32, why }
}

impl<'a> Builder<'_, 'a> {
    fn set(&mut self, at: usize, value: u32) {
        set(self.words, at, value);
    }

    fn spelled(&self, id: TokenId) -> &'a [u8] {
        let offset = get(self.words, self.layout.offsets() + id as usize);
        self.vocab.tokens.string_at(offset as usize)
    }

    /// Reads all tokens: fills the list of their offsets, counts the tokens of each bucket, and finds the longest token
    /// and the tokens with known spellings.
    fn tokens(&mut self) -> Result<Found, Error> {
        let spelling = self.vocab.spelling();
        let mut found = Found::new();
        let mut longest = 0;
        let mut gaps = ByteSet::EMPTY;
        let mut strings = self.vocab.tokens.strings();
        for id in 0..self.layout.tokens {
            let offset = strings.offset();
            let token = strings.next_string().unwrap_or(&[]);
            self.set(self.layout.offsets() + id, offset as u32);
            longest = longest.max(token.len());
            let kind = self.vocab.file_type(id as TokenId);
            found.look(id as TokenId, token, kind);
            if kind == TokenType::Byte && byte_token(token).is_none() {
                return Err(entry("tokens", id, "is marked as a byte but is not <0x00> to <0xFF>"));
            }
            if token.len() > LONGEST_LOOKED_FOR && (kind.is_special() || self.vocab.finds_prefixes()) {
                return Err(entry("tokens", id, "has more than 512 bytes"));
            }
            if spelling.is_reachable(token) {
                let key = self.vocab.key(self.vocab.found_by().bytes(token));
                let bucket = self.layout.buckets() + self.layout.bucket(key);
                self.set(bucket, get(self.words, bucket) + 1);
                note_gaps(&mut gaps, spelling.bytes(token));
            }
        }
        self.set(header::LONGEST, longest as u32);
        for (i, word) in gaps.0.into_iter().enumerate() {
            self.set(self.layout.gaps() + i, word);
        }
        Ok(found)
    }

    /// Converts counts to start positions: replaces each of the `count + 1` counts from word `at` on by the sum of the
    /// counts before it. The sum is the position at which the entries that were counted begin.
    fn counts_to_places(&mut self, at: usize, count: usize) {
        let mut place = 0;
        for at in at..=at + count {
            let here = get(self.words, at);
            self.set(at, place);
            place += here;
        }
    }

    /// Returns the place for the next entry of a list. The word `at` contains this place, and is then incremented.
    fn next_place(&mut self, at: usize) -> usize {
        let place = get(self.words, at);
        self.set(at, place + 1);
        place as usize
    }

    /// After all entries were placed, each of the words holds the start of the next list. Moves the words up by one, so
    /// that each holds the start of its own list.
    fn places_to_starts(&mut self, at: usize, count: usize) {
        for at in (at + 1..=at + count).rev() {
            let start = get(self.words, at - 1);
            self.set(at, start);
        }
        self.set(at, 0);
    }

    /// Distributes the tokens to buckets and sorts each bucket.
    fn sort_tokens(&mut self) {
        let vocab = self.vocab;
        let spelling = vocab.found_by();
        let (buckets, count) = (self.layout.buckets(), 1 << self.layout.bucket_bits());
        self.counts_to_places(buckets, count);
        for (id, token) in vocab.tokens.strings().enumerate() {
            if spelling.is_reachable(token) {
                let key = vocab.key(spelling.bytes(token));
                let place = self.layout.order() + 2 * self.next_place(buckets + self.layout.bucket(key));
                self.set(place, key);
                self.set(place + 1, id as u32);
            }
        }
        self.places_to_starts(buckets, count);

        let Some((before, rest)) = self.words.split_at_mut_checked(self.layout.order()) else { return };
        let offsets = before.get(self.layout.offsets()..).unwrap_or(&[]);
        let spelled = |id: u32| spelling.bytes(vocab.tokens.string_at(get(offsets, id as usize) as usize));
        let order = rest.as_chunks_mut::<2>().0;
        for bucket in buckets..buckets + count {
            let (start, end) = (get(before, bucket) as usize, get(before, bucket + 1) as usize);
            heapsort(order.get_mut(start..end).unwrap_or(&mut []), |[a_key, a], [b_key, b]| {
                let (a, b) = (u32::from_le_bytes(*a), u32::from_le_bytes(*b));
                let keys = u32::from_le_bytes(*a_key).cmp(&u32::from_le_bytes(*b_key));
                keys.then_with(|| compare(spelled(a), spelled(b)).then(a.cmp(&b))).is_lt()
            });
        }
    }

    /// Stores the properties of tokens that follow from known spellings in the index: end of turn, changed types, and
    /// tokens that end an answer.
    fn names(&mut self, gguf: &Gguf<'_>, found: &Found) {
        let consequences = consequences(gguf, self.vocab, found);
        self.set(header::EOT, consequences.eot.unwrap_or(NONE));
        self.set(header::EOM, consequences.eom.unwrap_or(NONE));

        let mut count = 0;
        for (id, kind) in consequences.types.into_iter().flatten() {
            self.set(self.layout.types() + 2 * count, id);
            self.set(self.layout.types() + 2 * count + 1, kind.number());
            count += 1;
        }
        self.set(header::TYPES, count as u32);

        let mut count = 0;
        for id in consequences.ends.into_iter().flatten() {
            self.set(self.layout.ends() + count, id);
            count += 1;
        }
        self.set(header::ENDS, count as u32);
    }

    /// Adds the tokens that end an answer, from the list that ollama and `arenite convert` write to a file. Stops if
    /// there is no more room for such tokens.
    #[inline(never)] // keeps its temporaries off the caller's stack
    fn listed_ends(&mut self, gguf: &Gguf<'_>) {
        let start = self.layout.ends();
        for id in listed_ends(gguf, self.vocab) {
            let count = get(self.words, header::ENDS) as usize;
            if count < MOST_ENDS && (0..count).all(|other| get(self.words, start + other) != id) {
                self.set(start + count, id);
                self.set(header::ENDS, count as u32 + 1);
            }
        }
    }

    /// Fills the list of special tokens.
    fn specials(&mut self, rules: Rules<'_>) {
        let start = self.layout.specials();
        let room = (self.layout.types() - start) / 3;
        let changed = get(self.words, header::TYPES) as usize;
        let mut count = 0;
        for id in 0..self.layout.tokens as u32 {
            let mut kind = self.vocab.file_type(id);
            for change in 0..changed {
                let at = self.layout.types() + 2 * change;
                if get(self.words, at) == id {
                    kind = TokenType::from_file(get(self.words, at + 1) as i32);
                }
            }
            let Some(special) = special(id, self.spelled(id), kind, rules).filter(|_| count < room) else { continue };
            for (i, word) in special.to_words().into_iter().enumerate() {
                self.set(start + 3 * count + i, word);
            }
            count += 1;
        }
        self.set(header::SPECIALS, count as u32);

        let vocab = self.vocab;
        let Some((before, rest)) = self.words.split_at_mut_checked(start) else { return };
        let Some(specials) = rest.get_mut(..3 * count) else { return };
        let offsets = before.get(self.layout.offsets()..).unwrap_or(&[]);
        let spelled = |id: TokenId| vocab.tokens.string_at(get(offsets, id as usize) as usize);
        heapsort(specials.as_chunks_mut::<3>().0, |a, b| {
            let (a, b) = (Special::from_words(a), Special::from_words(b));
            spelled(a.id).cmp(spelled(b.id)).then(a.rank().cmp(&b.rank())).is_lt()
        });
    }

    /// Fills the tokens of single bytes.
    fn bytes(&mut self) {
        for byte in 0..=255 {
            let id = self.index().find_byte(self.vocab, byte);
            self.set(self.layout.bytes() + usize::from(byte), id.unwrap_or(NONE));
        }
    }

    /// The unfinished index: token look-ups work once the tokens are sorted.
    fn index(&self) -> Index<'_> {
        Index::unfinished(self.words, self.layout)
    }

    fn merges(&mut self) -> Result<(), Error> {
        let Some(merges) = self.vocab.merges() else { return Ok(()) };
        let starts = self.layout.starts();
        let count = self.layout.tokens;
        self.words.get_mut(starts..starts + count + 1).unwrap_or(&mut []).fill([0; 4]);

        // Counts the merges of each left id, then computes where the merges of each left id start.
        for (rank, merge) in merges.strings().enumerate() {
            let (left, _) = halves(merge).ok_or(entry(MERGES, rank, "has no space between two pieces"))?;
            let left =
                self.index().exact(self.vocab, left).ok_or(entry(MERGES, rank, "names a piece that is not a token"))?;
            let at = starts + left as usize;
            self.set(at, get(self.words, at) + 1);
        }
        self.counts_to_places(starts, count);

        let mut made = 0;
        for (rank, merge) in merges.strings().enumerate() {
            let (left_text, right_text) = halves(merge).unwrap_or((&[], &[]));
            let unknown = entry(MERGES, rank, "names a piece that is not a token");
            let (Some(left), Some(right)) =
                (self.index().exact(self.vocab, left_text), self.index().exact(self.vocab, right_text))
            else {
                return Err(unknown);
            };
            let result = self.index().joined(self.vocab, left_text, right_text, made);
            made = result.ok_or(entry(MERGES, rank, "produces text that is not a token"))?;
            let at = self.layout.merges_at() + 3 * self.next_place(starts + left as usize);
            self.set(at, right);
            self.set(at + 1, rank as u32);
            self.set(at + 2, made);
        }
        self.places_to_starts(starts, count);

        // Sort the merges of each left id by right id.
        for left in starts..starts + count {
            let (start, end) = (get(self.words, left) as usize, get(self.words, left + 1) as usize);
            if end > start + 1 {
                let merges = self.words.get_mut(self.layout.merges_at()..).unwrap_or(&mut []);
                let Some(merges) = merges.as_chunks_mut::<3>().0.get_mut(start..end) else { continue };
                heapsort(merges, |[a, a_rank, _], [b, b_rank, _]| {
                    let ranks = || u32::from_le_bytes(*a_rank).cmp(&u32::from_le_bytes(*b_rank));
                    u32::from_le_bytes(*a).cmp(&u32::from_le_bytes(*b)).then_with(ranks).is_lt()
                });
            }
        }
        Ok(())
    }
}

fn get(words: &[Word], at: usize) -> u32 {
    words.get(at).copied().map_or(NONE, u32::from_le_bytes)
}

fn set(words: &mut [Word], at: usize, value: u32) {
    if let Some(word) = words.get_mut(at) {
        *word = value.to_le_bytes();
    }
}

/// Splits a merge rule, such as `a b`, into the texts of the two merged tokens. They are separated by the first space
/// that is not the rule's first byte.
pub(super) fn halves(merge: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = merge.iter().skip(1).position(|byte| *byte == b' ')? + 1;
    Some((merge.get(..space)?, merge.get(space + 1..)?))
}

/// Derives properties of tokens from the known spellings in `found` and from the ids in the metadata.
pub(super) fn consequences(gguf: &Gguf<'_>, vocab: &Vocab<'_>, found: &Found) -> Consequences {
    // As in llama.cpp, the id is ignored if it is outside the vocabulary.
    let key = |name: &str| match gguf.u32(PREFIX, name) {
        Ok(Some(id)) if !name.is_empty() && (id as usize) < vocab.len() => Some(id),
        _ => None,
    };
    let keeps_types = built::LENIENT && gguf.bool(PREFIX, TYPES_ARE_FINAL) == Ok(Some(true));
    found.consequences([vocab.eos, vocab.eot, vocab.eom], keeps_types, key)
}

/// The tokens next to BOS and to EOS, or [`NONE`].
pub(super) fn second_ends(gguf: &Gguf<'_>) -> [u32; 2] {
    let id = |name| if HAS_TABLES { gguf.u32(PREFIX, name).ok().flatten() } else { None };
    ["after_bos_token_id", "before_eos_token_id"].map(|name| id(name).unwrap_or(NONE))
}

/// The end tokens of the file's list.
pub(super) fn listed_ends(gguf: &Gguf<'_>, vocab: &Vocab<'_>) -> impl Iterator<Item = TokenId> {
    let list = match gguf.get("tokenizer.ggml.eos_token_ids") {
        Some(Value::Array(list)) if matches!(list.element(), ValueType::U32 | ValueType::I32) => Some(list),
        _ => None,
    };
    let len = vocab.len();
    let id = |list: Array<'_>, at| list.get_i32(at).and_then(|id| u32::try_from(id).ok());
    let ids = list.into_iter().flat_map(move |list| (0..list.len()).filter_map(move |at| id(list, at)));
    ids.filter(move |id| (*id as usize) < len)
}

/// Collects the bytes that precede a space within a token.
pub(super) fn note_gaps(gaps: &mut ByteSet, mut bytes: impl Iterator<Item = u8>) {
    let Some(mut before) = bytes.next() else { return };
    for byte in bytes {
        if byte == b' ' {
            gaps.insert(before);
            // Also inserts 0x81, because the first space of a text may be written as `▁`, whose last byte is 0x81.
            if before == b' ' {
                gaps.insert(0x81);
            }
        }
        before = byte;
    }
}

/// Returns a token's entry in the list of special tokens. `None` if the token is not special.
pub(super) fn special(id: TokenId, token: &[u8], kind: TokenType, rules: Rules<'_>) -> Option<Special> {
    let first = *token.first().filter(|_| kind.is_special())?;
    let rule = match rules {
        Rules::Nothing => 0,
        Rules::Listed(list) => {
            let first = list.partition_point(|entry| u32::from_le_bytes(*entry) / 8 < id);
            let here = |at| list.get(at).map(|entry: &Word| u32::from_le_bytes(*entry)).filter(|entry| entry / 8 == id);
            match here(first) {
                Some(entry) if HAS_TABLES && entry % 8 == 0 => {
                    rule::NORMALIZED + here(first + 1).map_or(0, |entry| entry % 8)
                }
                entry => entry.map_or(0, |entry| entry % 8),
            }
        }
        Rules::Phi3 if matches!(token, b"<unk>" | b"<s>" | b"<|endoftext|>") => 0,
        Rules::Phi3 => rule::STRIPS_RIGHT,
        Rules::Mask(mask) if token == mask => rule::STRIPS_LEFT,
        Rules::Mask(_) => 0,
    };
    Some(Special { id, len: token.len(), kind, first, rule: rule as u8 })
}

/// The byte of a byte token such as `<0x41>`.
pub(super) fn byte_token(token: &[u8]) -> Option<u8> {
    let [b'<', b'0', b'x', high, low, b'>'] = token else { return None };
    let digit = |c: u8| (c as char).to_digit(16);
    Some((digit(*high)? * 16 + digit(*low)?) as u8)
}

/// Rules of a tokenizer for special tokens: which of them absorb adjacent white space, and which must be whole words.
#[derive(Clone, Copy)]
pub(super) enum Rules<'a> {
    Nothing,
    /// Entries `8 * id + rule` in ascending order, written by `arenite convert`. `rule` is a sum of the constants in
    /// [`rule`], or 0 for [`rule::NORMALIZED`]. A token can have two entries, one for `NORMALIZED` and one for the
    /// other rules.
    Listed(&'a [Word]),
    /// Most special tokens absorb white space after them.
    Phi3,
    /// Only the special token with this text absorbs white space, namely the white space before it.
    Mask(&'static [u8]),
}

pub(super) fn rules<'a>(gguf: &Gguf<'a>) -> Result<Rules<'a>, Error> {
    const LIST: &str = "added_tokens.rules";
    if let Some(list) = gguf.array(PREFIX, LIST)? {
        let words = list.bytes().as_chunks().0;
        if list.element() != ValueType::U32 || !words.is_sorted_by_key(|entry| u32::from_le_bytes(*entry)) {
            return Err(Error::KeyValue { key: Name::key(PREFIX, LIST), why: "must be ascending" });
        }
        if !HAS_TABLES && words.iter().any(|[low, ..]| low & 7 == 0 || low & 4 != 0) {
            return Err(Error::KeyValue { key: Name::key(PREFIX, LIST), why: "needs the feature bpe" });
        }
        return Ok(Rules::Listed(words));
    }
    // If the file has no list, the names of the pre-tokenizer and the model decide, as in llama.cpp.
    let is_in = |prefix: &str, name: &str, part: &[u8]| {
        let text = gguf.str(prefix, name).ok().flatten().unwrap_or(&[]);
        let starts = |at: usize| text.get(at..at + part.len()).is_some_and(|here| here.eq_ignore_ascii_case(part));
        (0..text.len()).any(starts)
    };
    let pre = |part: &&[u8]| built::BPE && is_in(PREFIX, "pre", part);
    Ok(if [&b"jina-v2-de"[..], b"jina-v2-es", b"jina-v2-code", b"mmbert"].iter().any(pre) {
        Rules::Mask(b"<mask>")
    } else if [&b"phi-3"[..], b"phi3"].iter().any(|part| is_in("general", "name", part)) {
        Rules::Phi3
    } else if built::BPE && is_in("general", "name", b"modern-bert") {
        Rules::Mask(b"[MASK]")
    } else {
        Rules::Nothing
    })
}
