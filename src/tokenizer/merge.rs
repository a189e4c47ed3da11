//! The merge loop shared by SentencePiece's BPE and byte-level BPE: repeatedly merges the best pair of adjacent
//! symbols.
//!
//! Merging n symbols takes O(n log n), because the best pair is the minimum in a tree with a fan-out of 16. llama.cpp
//! keeps a queue of all pairs ever seen and skips stale pairs. The queue also yields the best of the present pairs,
//! leftmost first, so the result is the same.
//!
//! Symbols are stored in the slots of the bytes that they cover: three words per slot, and the tree.

/// Key of a slot without a pair.
pub(super) const NO_PAIR: u32 = u32::MAX;

/// Children per node.
const FAN: usize = 16;

/// Maximum number of levels of the tree above its leaves. More are never needed, because 16^8 exceeds the number of
/// slots that a `u32` can count.
const MOST_LEVELS: usize = 8;

/// A little-endian word of the caller's memory, of any alignment.
pub(super) type Word = [u8; 4];

/// Two adjacent symbols, in slots `start..middle` and `middle..end`, and their ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub start: u32,
    pub middle: u32,
    pub end: u32,
    pub left: u32,
    pub right: u32,
}

/// Merge rules of a tokenizer.
pub(super) trait Rules {
    /// Priority of a pair: the pair with the smallest key merges first. [`NO_PAIR`] if the pair does not merge.
    fn key(&self, pair: Pair) -> u32;
    /// Id of the token that a pair merges to. Only called for pairs that merge.
    fn merged(&self, pair: Pair) -> u32;
}

pub(super) const fn words_for(slots: usize) -> usize {
    let mut words = slots.saturating_mul(3);
    let mut level = slots;
    while level > FAN {
        level = level.div_ceil(FAN);
        words = words.saturating_add(level);
    }
    words
}

/// A sequence of symbols.
pub(super) struct Row<'s> {
    /// In the first slot of a symbol, the symbol's end; in the last of several slots, the symbol's start. The two can
    /// be distinguished, because only a start is less than the slot's own index.
    links: &'s mut [Word],
    ids: &'s mut [Word],
    /// For each slot at which a symbol begins: the key of the pair that this symbol and the next symbol form.
    keys: &'s mut [Word],
    /// All levels of the tree, from the leaves up.
    tree: &'s mut [Word],
    /// Range of each level in `tree`.
    levels: [(u32, u32); MOST_LEVELS],
    level_count: usize,
}

fn get(words: &[Word], at: u32) -> u32 {
    words.get(at as usize).copied().map_or(0, u32::from_le_bytes)
}

fn set(words: &mut [Word], at: u32, value: u32) {
    if let Some(word) = words.get_mut(at as usize) {
        *word = value.to_le_bytes();
    }
}

/// The children of node `at` in `words`.
fn children(words: &[Word], at: u32) -> &[Word] {
    let start = (at as usize) * FAN;
    let end = (start + FAN).min(words.len());
    words.get(start..end).unwrap_or(&[])
}

fn min(words: &[Word]) -> u32 {
    words.iter().fold(NO_PAIR, |min, word| min.min(u32::from_le_bytes(*word)))
}

/// Index of the first word equal to `value`.
fn find(words: &[Word], value: u32) -> Option<u32> {
    words.iter().position(|word| u32::from_le_bytes(*word) == value).map(|at| at as u32)
}

impl<'s> Row<'s> {
    /// Creates an empty row of `slots` symbols to be merged, in `memory`; `None` if `memory` has fewer than
    /// [`words_for`] words.
    pub fn new(memory: &'s mut [Word], slots: usize) -> Option<Self> {
        u32::try_from(slots).ok()?;
        let (links, memory) = memory.split_at_mut_checked(slots)?;
        let (ids, memory) = memory.split_at_mut_checked(slots)?;
        let (keys, tree) = memory.split_at_mut_checked(slots)?;
        let mut levels = [(0, 0); MOST_LEVELS];
        let mut level_count = 0;
        let mut used = 0;
        let mut level = slots;
        while level > FAN {
            level = level.div_ceil(FAN);
            *levels.get_mut(level_count)? = (used as u32, (used + level) as u32);
            used += level;
            level_count += 1;
        }
        let tree = tree.get_mut(..used)?;
        Some(Self { links, ids, keys, tree, levels, level_count })
    }

    /// Stores a symbol that takes the slots `start..end`. Symbols must be added from left to right without gaps.
    pub fn put(&mut self, start: usize, end: usize, id: u32) {
        self.link(start as u32, end as u32);
        set(self.ids, start as u32, id);
        for slot in start..end {
            set(self.keys, slot as u32, NO_PAIR);
        }
    }

    fn link(&mut self, start: u32, end: u32) {
        set(self.links, start, end);
        if end > start + 1 {
            set(self.links, end - 1, start);
        }
    }

    fn len(&self) -> u32 {
        self.links.len() as u32
    }

    /// Iterates over the symbols from left to right. Yields the start, the end and the id of each symbol.
    pub fn symbols(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let start = at;
            let end = get(self.links, start);
            if start >= self.len() || end <= start {
                return None;
            }
            at = end;
            Some((start as usize, end as usize, get(self.ids, start)))
        })
    }

    /// The pair of the symbol at `start` and the next one.
    fn pair(&self, start: u32) -> Option<Pair> {
        let middle = get(self.links, start);
        if middle >= self.len() {
            return None;
        }
        let end = get(self.links, middle);
        Some(Pair { start, middle, end, left: get(self.ids, start), right: get(self.ids, middle) })
    }

    /// Start of the symbol before `start`.
    fn before(&self, start: u32) -> Option<u32> {
        let last = start.checked_sub(1)?;
        let link = get(self.links, last);
        // A symbol of one slot links to its end, which is `start`.
        Some(if link == start { last } else { link })
    }

    /// Merges until no pair can be merged.
    pub fn merge(&mut self, rules: &impl Rules) {
        let mut start = 0;
        while let Some(pair) = self.pair(start) {
            set(self.keys, start, rules.key(pair));
            start = pair.middle;
        }
        self.grow_tree();
        // Each iteration removes a symbol.
        for _ in 1..self.len() {
            let Some(pair) = self.best().and_then(|start| self.pair(start)) else { break };
            let id = rules.merged(pair);
            self.link(pair.start, pair.end);
            set(self.ids, pair.start, id);
            self.rekey(pair.middle, NO_PAIR);
            let key = self.pair(pair.start).map_or(NO_PAIR, |pair| rules.key(pair));
            self.rekey(pair.start, key);
            if let Some(before) = self.before(pair.start) {
                let key = self.pair(before).map_or(NO_PAIR, |pair| rules.key(pair));
                self.rekey(before, key);
            }
        }
    }

    /// Words of a level; level 0 is the one above the leaves.
    fn level(&self, level: usize) -> &[Word] {
        match self.levels.get(level) {
            Some(&(start, end)) => self.tree.get(start as usize..end as usize).unwrap_or(&[]),
            None => &[],
        }
    }

    /// Words of the level below `level`; for level 0, the keys.
    fn below(&self, level: usize) -> &[Word] {
        match level.checked_sub(1) {
            Some(level) => self.level(level),
            None => self.keys,
        }
    }

    fn grow_tree(&mut self) {
        for level in 0..self.level_count {
            let Some(&(start, end)) = self.levels.get(level) else { return };
            for node in 0..end.saturating_sub(start) {
                let value = min(children(self.below(level), node));
                set(self.tree, start + node, value);
            }
        }
    }

    /// Changes a key and updates the minima above it.
    fn rekey(&mut self, slot: u32, key: u32) {
        set(self.keys, slot, key);
        let mut node = slot;
        for level in 0..self.level_count {
            node /= FAN as u32;
            let Some(&(start, _)) = self.levels.get(level) else { return };
            let value = min(children(self.below(level), node));
            if get(self.tree, start + node) == value {
                return;
            }
            set(self.tree, start + node, value);
        }
    }

    /// Returns the slot of the pair to merge next: the first slot with the smallest key. `None` if no pair can be
    /// merged.
    fn best(&self) -> Option<u32> {
        let top = self.below(self.level_count);
        let value = min(top);
        if value == NO_PAIR {
            return None;
        }
        let mut at = find(top, value)?;
        for level in (0..self.level_count).rev() {
            at = at * FAN as u32 + find(children(self.below(level), at), value)?;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{vec, vec::Vec};

    use super::*;

    /// Merge rules for tests: two symbols merge if a weighted sum of their ids, modulo a constant, is small.
    struct Sums(u32);

    impl Rules for Sums {
        fn key(&self, pair: Pair) -> u32 {
            let sum = (pair.left * 7 + pair.right * 3) % self.0;
            if sum < self.0 * 2 / 3 { sum } else { NO_PAIR }
        }
        fn merged(&self, pair: Pair) -> u32 {
            (pair.left + pair.right * 5 + 1) % 1000
        }
    }

    /// Reference implementation: finds the best of all pairs, merges it, and repeats.
    fn naive(mut symbols: Vec<(usize, u32)>, rules: &Sums) -> Vec<(usize, u32)> {
        loop {
            let key = |i: usize| {
                let (left, right) = (symbols[i].1, symbols[i + 1].1);
                rules.key(Pair { start: 0, middle: 0, end: 0, left, right })
            };
            let Some(best) = (0..symbols.len().saturating_sub(1)).min_by_key(|&i| key(i)) else { break };
            if key(best) == NO_PAIR {
                break;
            }
            let (left, right) = (symbols[best].1, symbols[best + 1].1);
            symbols[best].1 = rules.merged(Pair { start: 0, middle: 0, end: 0, left, right });
            symbols.remove(best + 1);
        }
        symbols
    }

    #[test]
    fn agrees_with_the_definition() {
        let mut seed = 7u32;
        let mut random = move |below: u32| {
            seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
            (seed >> 10) % below
        };
        for round in 0..400 {
            let count = if round < 50 { round } else { random(1500) };
            let mut symbols = Vec::new();
            let mut slots = 0;
            for _ in 0..count {
                symbols.push((slots, random(10)));
                slots += 1 + random(4) as usize;
            }
            let rules = Sums(2 + random(60));
            let mut memory = vec![[0xaa; 4]; words_for(slots)];
            let mut row = Row::new(&mut memory, slots).unwrap();
            for (i, &(start, id)) in symbols.iter().enumerate() {
                row.put(start, symbols.get(i + 1).map_or(slots, |next| next.0), id);
            }
            row.merge(&rules);
            let found: Vec<_> = row.symbols().map(|(start, _, id)| (start, id)).collect();
            assert_eq!(found, naive(symbols, &rules));
            if slots > 0 {
                assert!(Row::new(&mut memory[1..], slots).is_none());
            }
        }
    }

    /// However long a word is, merging it looks up at most three keys per symbol. The rest of the work is bounded by
    /// the tree of candidates.
    #[test]
    fn key_requests_are_linear() {
        struct Counted(Sums, core::cell::Cell<usize>);
        impl Rules for Counted {
            fn key(&self, pair: Pair) -> u32 {
                self.1.set(self.1.get() + 1);
                self.0.key(pair)
            }
            fn merged(&self, pair: Pair) -> u32 {
                self.0.merged(pair)
            }
        }
        for slots in [10, 1000, 100_000] {
            let mut memory = vec![[0; 4]; words_for(slots)];
            let mut row = Row::new(&mut memory, slots).unwrap();
            (0..slots).for_each(|slot| row.put(slot, slot + 1, slot as u32 % 10));
            let rules = Counted(Sums(60), Default::default());
            row.merge(&rules);
            assert!(rules.1.get() <= 3 * slots, "{} keys for {slots}", rules.1.get());
        }
    }
}
