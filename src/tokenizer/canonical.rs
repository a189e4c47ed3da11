//! The canonical bytes of tokens, which the index uses for look-ups.
//!
//! A vocabulary spells a space as `▁` (SentencePiece) or every byte as a printable character (byte-level BPE). The
//! index uses the text that a spelling represents, as bytes. A look-up can therefore compare them with a text directly.

use core::cmp::Ordering;

use super::byte_level;
use crate::built;

/// U+E000. The spelling of a group of DNA letters ends with this character, so that it differs from ordinary text.
pub(super) const DNA_MARK: [u8; 3] = *b"\xee\x80\x80";

/// The byte that represents [`DNA_MARK`] in the canonical bytes of tokens. No text in UTF-8 has this byte.
pub(super) const DNA_BYTE: u8 = 0xff;

/// U+2581, SentencePiece's space.
pub(super) const SPACE: [u8; 3] = *b"\xe2\x96\x81";

/// Spelling of text in a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Spaces as `▁`, other characters unchanged.
    Escaped,
    /// Like `Escaped`. In addition, a text itself may contain `▁` in place of spaces.
    Raw,
    /// Bytes as characters of [`byte_level`].
    ByteLevel,
    /// Like `ByteLevel`, with [`DNA_MARK`].
    Dna,
    /// The text itself, spaces included.
    #[cfg_attr(not(feature = "plamo2"), allow(dead_code))]
    Plain,
    /// The text between the quotes of a `bytes` literal in Python: `\xe2`, `\n`, `\\`.
    #[cfg_attr(not(feature = "rwkv-world"), allow(dead_code))]
    Python,
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

    /// True if the vocabulary's own spelling is used for this token, so that ordinary text can contain it. Tokens with
    /// another spelling (such as a control token in raw UTF-8) are only found as special tokens.
    pub fn is_reachable(self, spelled: &[u8]) -> bool {
        match self {
            Spelling::ByteLevel | Spelling::Dna if built::BPE => {
                let mut bytes = self.bytes(spelled);
                bytes.by_ref().for_each(drop);
                bytes.rest.is_empty()
            }
            Spelling::Plain if built::PLAMO2 => true,
            Spelling::Python if built::RWKV_WORLD => true,
            _ => !spelled.contains(&b' '),
        }
    }

    /// Returns the byte at position `at` of the text that a token's spelling stands for. It is only used for tokens
    /// that are looked up by prefix. A spelling with escapes is decoded from its start.
    #[inline]
    pub fn byte_at(self, spelled: &[u8], at: usize) -> Option<u8> {
        match self {
            Spelling::Python if built::RWKV_WORLD => {
                // Up to the first escape, the spelling is the text.
                let plain = spelled.iter().take(at + 1).position(|byte| *byte == b'\\').unwrap_or(at);
                self.bytes(spelled.get(plain..)?).nth(at - plain)
            }
            _ => spelled.get(at).copied(),
        }
    }
}

/// Decodes the first character of a Python string literal, whose quotes have been removed. Returns the character, and
/// the number of bytes of the literal that spell it.
pub(super) const fn unescaped(spelled: &[u8]) -> Option<(u8, usize)> {
    match *spelled {
        [b'\\', b'x', high, low, ..] => match ((high as char).to_digit(16), (low as char).to_digit(16)) {
            (Some(high), Some(low)) => Some(((high * 16 + low) as u8, 4)),
            _ => Some((b'x', 2)),
        },
        [b'\\', b'n', ..] => Some((b'\n', 2)),
        [b'\\', b'r', ..] => Some((b'\r', 2)),
        [b'\\', b't', ..] => Some((b'\t', 2)),
        [b'\\', other, ..] => Some((other, 2)),
        [byte, ..] => Some((byte, 1)),
        [] => None,
    }
}

impl Iterator for Bytes<'_> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let (byte, len) = match self.spelling {
            Spelling::Dna if built::HYBRID_DNA && self.rest == DNA_MARK => (DNA_BYTE, DNA_MARK.len()),
            Spelling::ByteLevel | Spelling::Dna if built::BPE => byte_level::first_byte(self.rest)?,
            Spelling::Python if built::RWKV_WORLD => unescaped(self.rest)?,
            Spelling::Escaped if self.rest.starts_with(&SPACE) => (b' ', SPACE.len()),
            _ => (*self.rest.first()?, 1),
        };
        self.rest = self.rest.get(len..)?;
        Some(byte)
    }
}

/// Hash that distributes tokens evenly: FNV-1a with murmur3's finalizer, because the index uses the high bits of the
/// hash as bucket number.
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

/// Converts the first four bytes to a big-endian number, because such numbers sort like the bytes. Missing bytes count
/// as 0.
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
        assert_eq!(text(Spelling::Python, r"a\x00\xe2\t\n\r\\\'\z\xg\"), b"a\0\xe2\t\n\r\\'zxg\\");
        assert!(Spelling::Python.is_reachable(b" ") && Spelling::Plain.is_reachable(b" a"));
        assert_eq!(Spelling::Python.byte_at(br"a\x00b", 2), Some(b'b'));
        assert_eq!(Spelling::Python.byte_at(br"a\x00b", 3), None);
        assert_eq!(text(Spelling::Dna, "ACGTAC\u{e000}"), b"ACGTAC\xff");
        assert!(Spelling::Dna.is_reachable("ACGTAC\u{e000}".as_bytes()));
        assert!(!Spelling::Dna.is_reachable("AC\u{e000}A".as_bytes()));
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
        // If all words of two letters are distributed over 64 buckets by their hashes, each bucket gets about the same
        // number of words.
        let mut buckets = [0; 64];
        for a in b'a'..=b'z' {
            for b in b'a'..=b'z' {
                buckets[(hash([a, b].into_iter()) >> 26) as usize] += 1;
            }
        }
        assert!(buckets.iter().all(|count| (1..30).contains(count)), "{buckets:?}");
    }
}
