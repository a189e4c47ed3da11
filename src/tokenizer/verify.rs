//! Verifies an index from outside, such as an index in flash: word by word and without memory.
//!
//! An index that passes is equal to the index that [`super::build`] would build. Verification takes about as long as
//! building without sorting: one pass over the tokens checks that the sorted order is strictly ascending and complete,
//! and one pass over the merges finds each merge at its position.

use super::build::{byte_token, consequences, halves, listed_ends, note_gaps, rules, second_ends, special};
use super::canonical::compare;
use super::index::{Index, NONE, Special, header};
use super::merge::Word;
use super::names::{Found, insert};
use super::special::ByteSet;
use super::unigram;
use super::vocab::{LONGEST_LOOKED_FOR, TokenType, Vocab};
use crate::gguf::Gguf;
use crate::{TokenId, built};

/// Returns the index if it is equal to the index that [`super::build`] would build.
pub(super) fn verified<'i>(gguf: &Gguf<'_>, vocab: &Vocab<'_>, index: Index<'i>) -> Option<Index<'i>> {
    let check = Check { vocab, index };
    let (found, reachable) = check.tokens()?;
    check.order(reachable)?;
    check.names(gguf, &found)?;
    check.specials(gguf)?;
    for byte in 0..=255 {
        let id = index.find_byte(vocab, byte).unwrap_or(NONE);
        check.is(index.layout.bytes() + usize::from(byte), id)?;
    }
    check.merges()?;
    Some(index)
}

struct Check<'c, 'a, 'i> {
    vocab: &'c Vocab<'a>,
    index: Index<'i>,
}

impl Check<'_, '_, '_> {
    /// Checks that word `at` equals `value`.
    fn is(&self, at: usize, value: u32) -> Option<()> {
        (self.index.word(at) == value).then_some(())
    }

    /// Checks a list in the index: its words from `start` on must equal `values`, and all further words before `end`
    /// must be unused.
    fn list(&self, start: usize, end: usize, values: impl Iterator<Item = u32>) -> Option<()> {
        let mut at = start;
        for value in values {
            self.is(at, value)?;
            at += 1;
        }
        self.unused(at, end)
    }

    fn unused(&self, start: usize, end: usize) -> Option<()> {
        self.words(start, end)?.iter().all(|word| u32::from_le_bytes(*word) == NONE).then_some(())
    }

    fn words(&self, start: usize, end: usize) -> Option<&[Word]> {
        self.index.words.get(start..end)
    }

    /// The spelling of a token, if it exists.
    fn spelled(&self, id: TokenId) -> Option<&[u8]> {
        ((id as usize) < self.index.layout.tokens).then(|| self.index.spelled(self.vocab, id))
    }

    /// Checks the index's offsets, its gap list and its longest token against the vocabulary. Returns the tokens with
    /// known spellings, and the number of sorted tokens.
    fn tokens(&self) -> Option<(Found, usize)> {
        let (layout, spelling) = (self.index.layout, self.vocab.spelling());
        let (mut found, mut gaps) = (Found::new(), ByteSet::EMPTY);
        let (mut longest, mut reachable) = (0, 0);
        let mut strings = self.vocab.tokens.strings();
        for id in 0..layout.tokens {
            self.is(layout.offsets() + id, strings.offset() as u32)?;
            let token = strings.next_string()?;
            longest = longest.max(token.len());
            let kind = self.vocab.file_type(id as TokenId);
            found.look(id as TokenId, token, kind);
            if kind == TokenType::Byte {
                byte_token(token)?;
            }
            if token.len() > LONGEST_LOOKED_FOR && (kind.is_special() || self.vocab.finds_prefixes()) {
                return None;
            }
            if spelling.is_reachable(token) {
                note_gaps(&mut gaps, spelling.bytes(token));
                reachable += 1;
            }
        }
        self.list(layout.gaps(), layout.offsets(), gaps.0.into_iter())?;
        self.unused(header::BEFORE_EOS + 1, header::WORDS)?;
        self.is(header::LONGEST, longest as u32)?;
        self.is(header::WORST_SCORE, unigram::worst_score(self.vocab).to_bits())?;
        Some((found, reachable))
    }

    /// Checks the buckets and the order.
    fn order(&self, reachable: usize) -> Option<()> {
        let (layout, spelling) = (self.index.layout, self.vocab.found_by());
        let end = layout.order() + 2 * reachable;
        let mut bucket = layout.buckets();
        let mut last: Option<(u32, TokenId, &[u8])> = None;
        for (place, [key, id]) in self.words(layout.order(), end)?.as_chunks::<2>().0.iter().enumerate() {
            let (key, id) = (u32::from_le_bytes(*key), u32::from_le_bytes(*id));
            let token = self.spelled(id)?;
            let is_token = spelling.is_reachable(token) && self.vocab.key(spelling.bytes(token)) == key;
            let follows = last.is_none_or(|(last_key, last_id, last_token)| {
                let texts = || compare(spelling.bytes(last_token), spelling.bytes(token));
                last_key.cmp(&key).then_with(texts).then(last_id.cmp(&id)).is_lt()
            });
            (is_token && follows).then_some(())?;
            while bucket <= layout.buckets() + layout.bucket(key) {
                self.is(bucket, place as u32)?;
                bucket += 1;
            }
            last = Some((key, id, token));
        }
        for bucket in bucket..layout.order() {
            self.is(bucket, reachable as u32)?;
        }
        self.unused(end, layout.bytes())
    }

    /// Checks the part of the index that is derived from tokens with known spellings, and the tokens after BOS and
    /// before EOS.
    fn names(&self, gguf: &Gguf<'_>, found: &Found) -> Option<()> {
        let layout = self.index.layout;
        let [after_bos, before_eos] = second_ends(gguf);
        self.is(header::AFTER_BOS, after_bos)?;
        self.is(header::BEFORE_EOS, before_eos)?;
        let mut consequences = consequences(gguf, self.vocab, found);
        if built::LENIENT {
            listed_ends(gguf, self.vocab).for_each(|id| insert(&mut consequences.ends, Some(id)));
        }
        self.is(header::EOT, consequences.eot.unwrap_or(NONE))?;
        self.is(header::EOM, consequences.eom.unwrap_or(NONE))?;
        let types = consequences.types.iter().flatten();
        self.is(header::TYPES, types.clone().count() as u32)?;
        self.list(layout.types(), layout.ends(), types.flat_map(|(id, kind)| [*id, kind.number()]))?;
        let ends = consequences.ends.iter().flatten();
        self.is(header::ENDS, ends.clone().count() as u32)?;
        self.list(layout.ends(), layout.starts(), ends.copied())
    }

    fn specials(&self, gguf: &Gguf<'_>) -> Option<()> {
        let (layout, rules) = (self.index.layout, rules(gguf).ok()?);
        let entry = |id: TokenId| special(id, self.spelled(id)?, self.index.kind(self.vocab, id), rules);
        let count = (0..layout.tokens as TokenId).filter(|id| entry(*id).is_some()).count();
        self.is(header::SPECIALS, count as u32)?;
        let end = layout.specials() + 3 * count;
        let mut last: Option<(&[u8], Special)> = None;
        for words in self.words(layout.specials(), end)?.as_chunks::<3>().0 {
            let special = Special::from_words(words);
            let token = self.spelled(special.id)?;
            let is_entry = entry(special.id)?.to_words().map(u32::to_le_bytes) == *words;
            let follows = last
                .is_none_or(|(last_token, last)| last_token.cmp(token).then(last.rank().cmp(&special.rank())).is_lt());
            (is_entry && follows).then_some(())?;
            last = Some((token, special));
        }
        self.unused(end, layout.types())
    }

    /// Checks the index's list of merges: its length and its order, and that it contains each merge of the file.
    fn merges(&self) -> Option<()> {
        let (layout, index) = (self.index.layout, self.index);
        let Some(merges) = self.vocab.merges() else { return Some(()) };
        let all = self.words(layout.merges_at(), layout.words())?.as_chunks::<3>().0;
        let group = |left: usize| -> Option<&[[Word; 3]]> {
            let (start, end) = (index.word(layout.starts() + left), index.word(layout.starts() + left + 1));
            all.get(start as usize..end as usize)
        };
        let key = |[right, rank, _]: &[Word; 3]| (u32::from_le_bytes(*right), u32::from_le_bytes(*rank));

        self.is(layout.starts(), 0)?;
        self.is(layout.starts() + layout.tokens, layout.merges as u32)?;
        for left in 0..layout.tokens {
            group(left)?.is_sorted_by(|a, b| key(a) < key(b)).then_some(())?;
        }
        let mut made = 0;
        for (rank, merge) in merges.strings().enumerate() {
            let (left_text, right_text) = halves(merge)?;
            let left = index.exact(self.vocab, left_text)?;
            let right = index.exact(self.vocab, right_text)?;
            made = index.joined(self.vocab, left_text, right_text, made)?;
            let group = group(left as usize)?;
            let place = group.binary_search_by_key(&(right, rank as u32), key).ok()?;
            let [_, _, result] = group.get(place)?;
            (u32::from_le_bytes(*result) == made).then_some(())?;
        }
        Some(())
    }
}
