//! The canonical bytes of tokens, which the index uses for look-ups.
//!
//! A vocabulary spells a space as `▁` (SentencePiece) or every byte as a printable character (byte-level BPE). The
//! index uses the bytes of text that a spelling represents, so a look-up compares with the text directly.

use core::cmp::Ordering;

use super::byte_level;
use crate::built;

/// U+2581, SentencePiece's space.
pub(super) const SPACE: [u8; 3] = *b"\xe2\x96\x81";

/// Spelling of text in a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Spaces as `▁`, other characters unchanged.
    Escaped,
    /// Like `Escaped`, for texts in which spaces are also written as `▁`.
    Raw,
    /// Bytes as characters of [`byte_level`].
    ByteLevel,
}

/// Iterator over the bytes of text that a spelling represents. Stops at a character outside of the spelling's alphabet.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'t> {
    spelling: Spelling,
    rest: &'t [u8],
}

impl Spelling {
    #[inline]
    pub fn bytes(self, spelled: &[u8]) -> Bytes<'_> {
        Bytes { spelling: self, rest: spelled }
    }

    /// True if a text can contain this token, because the token has the vocabulary's spelling. Other tokens (such as a
    /// control token in raw UTF-8) are only found as special tokens.
    pub fn is_reachable(self, spelled: &[u8]) -> bool {
        match self {
            Spelling::ByteLevel if built::BPE => {
                let mut bytes = self.bytes(spelled);
                bytes.by_ref().for_each(drop);
                bytes.rest.is_empty()
            }
            _ => !spelled.contains(&b' '),
        }
    }
}

impl Iterator for Bytes<'_> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let (byte, len) = match self.spelling {
            Spelling::ByteLevel if built::BPE => byte_level::first_byte(self.rest)?,
            Spelling::Escaped if self.rest.starts_with(&SPACE) => (b' ', SPACE.len()),
            _ => (*self.rest.first()?, 1),
        };
        self.rest = self.rest.get(len..)?;
        Some(byte)
    }
}

/// Hash that distributes tokens evenly: FNV-1a with murmur3's finalizer, because the index uses the high bits as bucket
/// number.
#[derive(Clone, Copy)]
pub(super) struct Hasher(u32);

impl Hasher {
    pub const fn new() -> Self {
        Self(0x811c_9dc5)
    }

    /// Appends a byte.
    #[inline]
    pub const fn push(&mut self, byte: u8) {
        self.0 = (self.0 ^ byte as u32).wrapping_mul(0x0100_0193);
    }

    /// Hash of the bytes so far.
    #[inline]
    pub const fn hash(self) -> u32 {
        let mut hash = self.0;
        hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
        hash ^ hash >> 16
    }
}

/// [`Hasher`]'s hash of all bytes.
#[inline]
pub(super) fn hash(bytes: impl Iterator<Item = u8>) -> u32 {
    let mut hasher = Hasher::new();
    bytes.for_each(|byte| hasher.push(byte));
    hasher.hash()
}

/// The first four bytes as a big-endian number; these numbers sort like the bytes.
#[inline]
pub(super) fn first_four(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.chain([0; 4]).take(4).fold(0, |key, byte| key << 8 | u32::from(byte))
}

/// Compares byte by byte; a prefix comes first.
#[inline]
pub(super) fn compare(mut a: impl Iterator<Item = u8>, mut b: impl Iterator<Item = u8>) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (Some(a), Some(b)) if a == b => {}
            (a, b) => return a.cmp(&b),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn spellings() {
        let text = |spelling: Spelling, token: &str| spelling.bytes(token.as_bytes()).collect::<Vec<_>>();
        assert_eq!(text(Spelling::Escaped, "▁a▁"), b" a ");
        assert_eq!(text(Spelling::ByteLevel, "Ġaé"), b" a\xe9");
        assert!(Spelling::Escaped.is_reachable("▁a".as_bytes()));
        assert!(!Spelling::Escaped.is_reachable(b" a"));
        assert!(Spelling::ByteLevel.is_reachable("Ġa".as_bytes()));
        assert!(!Spelling::ByteLevel.is_reachable("<｜end▁of▁sentence｜>".as_bytes()));
        assert!(!Spelling::ByteLevel.is_reachable(b" a"));
    }

    #[test]
    fn order_of_bytes() {
        let order = |a: &[u8], b: &[u8]| compare(a.iter().copied(), b.iter().copied());
        assert_eq!(order(b"ab", b"ab"), Ordering::Equal);
        assert_eq!(order(b"ab", b"ab\0"), Ordering::Less);
        assert_eq!(order(b"b", b"ab"), Ordering::Greater);
    }

    #[test]
    fn hashes_spread() {
        // Two-letter words over 64 buckets: each bucket gets about its share.
        let mut buckets = [0; 64];
        for a in b'a'..=b'z' {
            for b in b'a'..=b'z' {
                buckets[(hash([a, b].into_iter()) >> 26) as usize] += 1;
            }
        }
        assert!(buckets.iter().all(|count| (1..30).contains(count)), "{buckets:?}");
    }
}
