//! Finds duplicate names in linear time and constant memory.

use super::metadata::Keys;
use super::reader::u32_at;
use super::tensors::Tensors;
use crate::hash::Hash;

/// Hashes held on the stack at once, 8 bytes each.
const HELD: usize = 128;
/// Limit on the number of times that all names are read. Without the limit, a file with a million tensors would take
/// quadratic time.
const PASSES: usize = 32;

/// The names of all keys or of all tensors, in file order.
#[derive(Clone, Copy)]
pub(super) enum Names<'a> {
    Keys(Keys<'a>),
    Tensors(Tensors<'a>),
}

impl<'a> Names<'a> {
    const fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Names::Keys(keys) => keys.next_name(),
            Names::Tensors(tensors) => tensors.next_name(),
        }
    }
}

/// Finds a name that occurs twice.
///
/// Each pass holds the sorted hashes of the next 128 names and looks up all later names: one pass for up to 128 names,
/// three for a model of 300 tensors. The search stops after 32 passes, so a duplicate is found if its first occurrence
/// is among the first 4096 names. Among later names a duplicate does no harm: a look-up always finds the first of two
/// equal keys, and `model` reports a duplicate of a tensor that it reads.
///
/// Names with the same 64-bit hash, which covers the length of a name, count as equal. Their bytes are not compared,
/// because unequal names do not collide by chance, and a file crafted to cause a collision is only refused.
pub(super) const fn repeated(names: Names<'_>) -> Option<&[u8]> {
    search(names).0
}

/// Looks for a name that occurs twice. Also returns the number of steps of the search: words hashed, hashes compared
/// and hashes written.
const fn search(mut names: Names<'_>) -> (Option<&[u8]>, u64) {
    let mut steps = 0;
    let mut pass = 0;
    while pass < PASSES {
        let mut held = Held { hashes: [0; HELD], count: 0 };
        let mut later = names;
        while let Some(name) = later.next() {
            let hash = hash(name);
            let (found, place, looked) = held.find(hash);
            steps += name.len() as u64 / 4 + 1 + looked;
            if found {
                return (Some(name), steps);
            }
            if held.count < HELD {
                steps += held.insert(place, hash);
                names = later;
            }
        }
        if held.count < HELD {
            return (None, steps);
        }
        pass += 1;
    }
    (None, steps)
}

/// Hashes in ascending order.
struct Held {
    hashes: [u64; HELD],
    count: usize,
}

impl Held {
    /// Searches for `hash` in the sorted hashes. Returns whether it is there, the index at which it is or would be, and
    /// the number of hashes that were compared.
    const fn find(&self, hash: u64) -> (bool, usize, u64) {
        let (mut low, mut high, mut steps) = (0, self.count, 0);
        while low < high {
            let middle = low + (high - low) / 2;
            if middle >= HELD {
                break; // unreachable: the index is below `count`
            }
            let there = self.hashes[middle];
            steps += 1;
            if there == hash {
                return (true, middle, steps);
            }
            if there < hash {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (false, low, steps)
    }

    /// Inserts `hash` at index `place`, if there is room, and moves the larger hashes by one place. Returns the number
    /// of hashes that were written by this.
    const fn insert(&mut self, place: usize, hash: u64) -> u64 {
        let (mut carried, mut at) = (hash, place);
        while at < HELD && at <= self.count {
            let next = self.hashes[at];
            self.hashes[at] = carried;
            carried = next;
            at += 1;
        }
        self.count += 1;
        (at - place) as u64
    }
}

/// Hashes the length and the bytes, four at a time.
const fn hash(name: &[u8]) -> u64 {
    let mut hash = Hash::new();
    let (mut at, len) = (0, name.len());
    hash.word(len as u64);
    while at < len && len - at >= 4 {
        hash.word(u32_at!(name, at) as u64);
        at += 4;
    }
    let mut last = 0;
    while at < len {
        last = last << 8 | name[at] as u64;
        at += 1;
    }
    hash.word(last);
    hash.finish()
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashMap;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    use super::*;
    use crate::gguf::metadata::Skips;
    use crate::gguf::reader::Reader;

    /// Builds metadata with these keys and one-byte values.
    fn keys(names: impl Iterator<Item = Vec<u8>>) -> (Vec<u8>, u64) {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for name in names {
            bytes.extend((name.len() as u64).to_le_bytes());
            bytes.extend(name);
            bytes.extend([0, 0, 0, 0, 7]);
            count += 1;
        }
        (bytes, count)
    }

    fn steps(names: impl Iterator<Item = Vec<u8>>) -> (Option<Vec<u8>>, u64, u64) {
        let (bytes, count) = keys(names);
        let names = Names::Keys(Keys::new(Reader::new(&bytes, 0), Skips::NONE, count));
        let (found, steps) = search(names);
        (found.map(<[u8]>::to_vec), steps, bytes.len() as u64)
    }

    #[test]
    fn hashes_stay_sorted() {
        let mut held = Held { hashes: [0; HELD], count: 0 };
        for i in 0..HELD as u64 {
            let hash = i * 77 % 131;
            let (found, place, _) = held.find(hash);
            assert!(!found);
            held.insert(place, hash);
            assert!(held.hashes[..held.count].is_sorted());
            assert!(held.find(hash).0 && !held.find(hash + 1000).0);
        }
        assert_eq!(held.count, HELD);
    }

    /// Upper bound on the number of steps of a search: 32 passes, each with a quarter of a step per byte, 9 steps per
    /// name, and the steps for inserting hashes.
    fn bound(bytes: u64, count: u64) -> u64 {
        PASSES as u64 * (bytes / 4 + 9 * count + (HELD * HELD) as u64)
    }

    #[test]
    fn steps_are_linear_in_the_file() {
        let many = |count: usize| steps((0..count).map(|i| format!("{i}").into_bytes()));
        for count in [1, 128, 5000, 50_000] {
            let (found, steps, bytes) = many(count);
            assert_eq!(found, None);
            assert!(steps <= bound(bytes, count as u64), "{count} names: {steps} steps for {bytes} bytes");
        }
        let (few, many) = (many(20_000).1, many(200_000).1);
        assert!(many < few * 11, "{few} steps, {many} for ten times as many names");

        // Long names that differ only at the end are the worst case for pairwise comparison.
        let long =
            |count: usize| steps((0..count).map(move |i| [&[b'n'; 20_000][..], format!("{i}").as_bytes()].concat()));
        let (found, steps, bytes) = long(400);
        assert_eq!(found, None);
        assert!(steps <= 4 * bytes / 4 + bound(0, 400), "{steps} steps for {bytes} bytes");
    }

    /// Compares the number of steps that `steps` reports with a count by hand, for a few names. The bounds in the tests
    /// above are such numbers.
    #[test]
    fn steps_are_words_and_comparisons() {
        let count = |names: &[&str]| steps(names.iter().map(|name| name.as_bytes().to_vec()));
        assert_eq!(count(&[]).1, 0);
        // To hash this name takes three steps (two words and a remainder). To insert the hash takes one more.
        assert_eq!(count(&["four by 4"]).1, 3 + 1);
        // The second name's hash is compared with the first name's hash. It is inserted before that hash, which moves
        // and costs one more step, or after it.
        let two = count(&["four by 4", "four by 5"]).1;
        let first_moves = hash(b"four by 5") < hash(b"four by 4");
        assert_eq!(two, 4 + 3 + 1 + 1 + u64::from(first_moves));
        let (found, twice, _) = count(&["four by 4", "four by 4"]);
        assert_eq!((found.as_deref(), twice), (Some(&b"four by 4"[..]), 4 + 3 + 1));
        // The second pass only visits the last name.
        let names: Vec<_> = (0..=HELD).map(|i| format!("{i:04}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let more = count(&names).1 - count(&names[..HELD]).1;
        assert!((2 + 7 + 3..=2 + 8 + 3).contains(&more), "{more}");
    }

    #[test]
    fn names_that_collide_by_intent_are_refused_at_once() {
        // Two names are made such that their hash states agree in the upper half after two words. The third word is
        // then chosen so that the lower halves agree, too.
        let mix = |h: u64, w: u32| {
            let product = (h ^ u64::from(w)).wrapping_mul(0x0000_0100_0000_01b3);
            product ^ product >> 32
        };
        let mut start = Hash::new();
        start.word(20_000);
        let mut seen = HashMap::new();
        let words = (0..1_000_000u32).map(|i| [i.wrapping_mul(0x9e37_79b1), i.wrapping_mul(0x85eb_ca77)]);
        let mut pairs = words.filter_map(|words| {
            let state = words.into_iter().fold(start.finish(), mix);
            let (other, with) = seen.insert(state >> 32, (words, state))?;
            Some([(other, 0), (words, (state ^ with) as u32)])
        });
        let pair = pairs.next().unwrap().map(|([a, b], c)| {
            let mut name = [a, b, c].map(u32::to_le_bytes).concat();
            name.resize(20_000, b'n');
            name
        });
        assert_eq!(hash(&pair[0]), hash(&pair[1]));
        let (found, steps, bytes) = steps(pair.clone().into_iter());
        assert_eq!(found.as_deref(), Some(&pair[1][..]));
        assert!(steps <= bytes);
    }
}
