//! Names that occur twice, found without memory in proportion to the file.

use super::metadata::Keys;
use super::reader::equal;
use super::tensors::Tensors;

/// Names that are held on the stack at once: 12 to 20 bytes each.
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
/// Each pass holds the next 128 names and compares all names behind them: one pass for up to 128
/// names, three for a model of 300 tensors. After 32 passes it stops, so a repeated name is found
/// if its first occurrence is among the first 4096. Behind that, a repeated key is never read,
/// and a repeated tensor is one that the model has no use for, which is an error there.
pub(super) const fn repeated<'a>(mut names: Names<'a>) -> Option<&'a [u8]> {
    let mut pass = 0;
    while pass < PASSES {
        let mut held: [&[u8]; HELD] = [&[]; HELD];
        let mut hashes = [0u32; HELD];
        let mut count = 0;
        let mut later = names;
        while let Some(name) = later.next() {
            let hash = hash(name);
            let mut i = 0;
            while i < count && i < HELD {
                if hashes[i] == hash && equal(held[i], name) {
                    return Some(name);
                }
                i += 1;
            }
            if count < HELD {
                held[count] = name;
                hashes[count] = hash;
                count += 1;
                names = later;
            }
        }
        if count < HELD {
            return None;
        }
        pass += 1;
    }
    None
}

/// FNV-1a. Names that collide by chance or by intent only cost a comparison.
const fn hash(name: &[u8]) -> u32 {
    let mut hash = 0x811c_9dc5u32;
    let (mut i, len) = (0, name.len());
    while i < len {
        hash = (hash ^ name[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash
}
