//! Names that occur twice, found in linear time and without memory in proportion to the file.

use super::metadata::Keys;
use super::reader::u32_at;
use super::tensors::Tensors;
use crate::hash::Hash;

/// Hashes that are held on the stack at once: 8 bytes each.
const HELD: usize = 128;
/// Passes over the names, so that a file of a million tensors costs no more than this many walks.
const PASSES: usize = 32;

/// The names of a directory, in order.
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

/// A name that occurs twice.
///
/// Each pass holds the hashes of the next 128 names, sorted, and looks up all names after them: one pass for up
/// to 128 names, three for a model of 300 tensors. After 32 passes it stops, so a repeated name is found if its
/// first occurrence is among the first 4096. After those, a repeated key is never read, and a repeated tensor is
/// one that the model has no use for, which is an error there.
///
/// Names of one length with the same 64 bits of hash count as the same, without a look at their bytes: by chance
/// this does not happen, and a file that was made to do it is refused instead of taking its time.
pub(super) const fn repeated(names: Names<'_>) -> Option<&[u8]> {
    search(names).0
}

/// The name, and how many steps were taken: words of names hashed, and hashes looked at.
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
    /// Whether `hash` is there, else the place where it belongs; and how many hashes were looked at.
    const fn find(&self, hash: u64) -> (bool, usize, u64) {
        let (mut low, mut high, mut steps) = (0, self.count, 0);
        while low < high {
            let middle = low + (high - low) / 2;
            if middle >= HELD {
                break; // never: it is below `count`
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

    /// Puts `hash` at `place`, if there is room. Gives how many hashes moved.
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

/// Of the length and the bytes, four at a time.
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

    /// Keys of one byte each, with these names.
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

    /// Whatever the names are: 32 passes, in each a fourth of a step a byte, 8 for each name, and the insertions.
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

        // Long names that differ at the end only: what once was compared pair by pair.
        let long =
            |count: usize| steps((0..count).map(move |i| [&[b'n'; 20_000][..], format!("{i}").as_bytes()].concat()));
        let (found, steps, bytes) = long(400);
        assert_eq!(found, None);
        assert!(steps <= 4 * bytes / 4 + bound(0, 400), "{steps} steps for {bytes} bytes");
    }

    /// Words and hashes of a few names, by hand: what the bounds are about.
    #[test]
    fn what_a_step_is() {
        let count = |names: &[&str]| steps(names.iter().map(|name| name.as_bytes().to_vec()));
        assert_eq!(count(&[]).1, 0);
        // Two words and what is left of it; the hash is put in the first place.
        assert_eq!(count(&["four by 4"]).1, 3 + 1);
        // The second one is looked for among one, and moves one or none.
        let two = count(&["four by 4", "four by 5"]).1;
        let first_moves = hash(b"four by 5") < hash(b"four by 4");
        assert_eq!(two, 4 + 3 + 1 + 1 + u64::from(first_moves));
        let (found, twice, _) = count(&["four by 4", "four by 4"]);
        assert_eq!((found.as_deref(), twice), (Some(&b"four by 4"[..]), 4 + 3 + 1));
        // The second pass walks the last name alone.
        let names: Vec<_> = (0..=HELD).map(|i| format!("{i:04}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let more = count(&names).1 - count(&names[..HELD]).1;
        assert!((2 + 7 + 3..=2 + 8 + 3).contains(&more), "{more}");
    }

    #[test]
    fn names_that_collide_by_intent_are_refused_at_once() {
        // Two words each after which the states agree in their high half: a third word makes up for the rest.
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
