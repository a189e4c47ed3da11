//! SentencePiece's normalization: the precompiled character map, and white space.
//!
//! The map is an XOR-compressed double array (Kanda 2018), followed by the zero-terminated replacements. Source:
//! SentencePiece's `normalizer.cc`, llama.cpp's `llm_tokenizer_ugm_session`.

use super::canonical::SPACE;
use super::unicode::first_char;

/// Maximum length in bytes of a sequence and of a replacement: several times what SentencePiece produces. There is a
/// limit, because otherwise, with a damaged map, each character could take time proportional to the length of the map.
const LONGEST: usize = 256;

/// SentencePiece's character map, from the key `tokenizer.ggml.precompiled_charsmap`. It is empty if the file has no
/// map.
#[derive(Clone, Copy)]
pub(super) struct Charsmap<'a> {
    nodes: &'a [[u8; 4]],
    replacements: &'a [u8],
}

impl<'a> Charsmap<'a> {
    /// The empty map, which changes nothing.
    pub const NONE: Self = Self { nodes: &[], replacements: &[] };

    /// Reads the header of a character map. `None` if there are fewer bytes than the header says.
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::NONE);
        }
        let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return None };
        match rest.split_at_checked(u32::from_le_bytes(*size) as usize) {
            Some((nodes, replacements)) => Some(Self { nodes: nodes.as_chunks().0, replacements }),
            None => None,
        }
    }

    fn node(&self, at: u32) -> u32 {
        self.nodes.get(at as usize).copied().map_or(0, u32::from_le_bytes)
    }

    /// Yields the entries of the map that `text` starts with, the shortest first. Each entry is given as the offset of
    /// its replacement, and its length in bytes.
    fn entries<'t>(&self, text: &'t [u8]) -> impl Iterator<Item = (u32, usize)> + use<'a, 't> {
        // Bits of a node in the map, a double-array trie: 0 to 7 are the byte that leads to the node; 8 is set if a
        // sequence ends here; 9 is set if the base is shifted by 8; 10 and up are the base. If bit 31 is set, the node
        // holds the offset of a replacement instead.
        let base = |node: u32| (node >> 10) << ((node & 1 << 9) >> 6);
        let map = *self;
        let mut at = base(map.node(0));
        let ends = text.iter().take(LONGEST).enumerate().map_while(move |(i, byte)| {
            at ^= u32::from(*byte);
            let node = map.node(at);
            if *byte == 0 || node & (1 << 31 | 0xff) != u32::from(*byte) {
                return None;
            }
            at ^= base(node);
            Some((node >> 8 & 1 != 0).then(|| (map.node(at) & !(1 << 31), i + 1)))
        });
        ends.flatten()
    }

    /// Returns the zero-terminated replacement at `offset`.
    fn replacement(&self, offset: u32) -> Option<&'a [u8]> {
        let replacement = self.replacements.get(offset as usize..)?;
        let end = replacement.iter().take(LONGEST).take_while(|byte| **byte != 0).count();
        replacement.get(..end)
    }

    /// Returns the replacement and the length of the longest entry that `text` starts with.
    fn longest(&self, text: &[u8]) -> Option<(&'a [u8], usize)> {
        let (offset, len) = self.entries(text).last()?;
        Some((self.replacement(offset)?, len))
    }

    /// Returns the replacement of the shortest entry that `text` starts with.
    pub fn shortest(&self, text: &[u8]) -> Option<&'a [u8]> {
        let (offset, _) = self.entries(text).next()?;
        self.replacement(offset)
    }
}

/// Treatment of white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spaces {
    /// Adds a space before the text.
    pub prefix: bool,
    /// Merges each run of white space before a word into one space, and drops a run at the end of the text.
    pub merge: bool,
    /// True if a merged run at the end of the text is kept.
    pub keep_last: bool,
    /// True if, in merged white space, a word that begins with `▁` gets no space before it.
    pub marked_words: bool,
}

impl Spaces {
    /// White space stays as it is.
    pub const KEPT: Self = Self { prefix: false, merge: false, keep_last: false, marked_words: false };
}

/// Iterator over the bytes of a normalized text. A `▁` in the text is a space that is never merged.
pub(super) struct Normalized<'a, 't> {
    map: Charsmap<'a>,
    spaces: Spaces,
    rest: &'t [u8],
    /// Next bytes from the text.
    copied: &'t [u8],
    /// Next bytes from a replacement.
    replaced: &'a [u8],
    /// A byte to output after a space.
    waiting: Option<u8>,
    in_word: bool,
    /// True if runs of white space are merged into one space, and such a space must still be output before the next
    /// word.
    spaced: bool,
    /// True if the text ends with a space that is kept and that was not returned yet.
    last: bool,
}

impl<'a, 't> Normalized<'a, 't> {
    pub fn new(map: Charsmap<'a>, spaces: Spaces, text: &'t [u8]) -> Self {
        let (copied, replaced): (&[u8], &[u8]) = (&[], &[]);
        Self {
            map,
            spaces,
            rest: text,
            copied,
            replaced,
            waiting: None,
            in_word: false,
            spaced: spaces.prefix,
            last: false,
        }
    }

    /// Returns the next byte of the text after the character map, before white space is merged. The flag is true if the
    /// byte belongs to white space.
    fn next_raw(&mut self) -> Option<(u8, bool)> {
        // Every iteration consumes part of the text.
        while self.copied.is_empty() && self.replaced.is_empty() {
            let len = match self.map.longest(self.rest) {
                Some((replacement, len)) => {
                    self.replaced = replacement;
                    len
                }
                None => {
                    let char = first_char(self.rest)?;
                    if char.len == 1 && char.code > 0x7f {
                        self.replaced = "\u{fffd}".as_bytes();
                    } else if self.rest.starts_with(&SPACE) {
                        self.rest = self.rest.get(SPACE.len()..)?;
                        return Some((b' ', false));
                    } else {
                        self.copied = self.rest.get(..char.len)?;
                    }
                    char.len
                }
            };
            self.rest = self.rest.get(len..)?;
        }
        let byte = match (self.copied, self.replaced) {
            ([byte, rest @ ..], _) => {
                self.copied = rest;
                *byte
            }
            (_, [byte, rest @ ..]) => {
                self.replaced = rest;
                *byte
            }
            _ => return None,
        };
        Some((byte, byte == b' '))
    }
}

impl Iterator for Normalized<'_, '_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if let Some(byte) = self.waiting.take() {
            return Some(byte);
        }
        if !self.spaces.merge && core::mem::take(&mut self.spaces.prefix) && !self.rest.is_empty() {
            return Some(b' ');
        }
        loop {
            let Some((byte, is_space)) = self.next_raw() else {
                return core::mem::take(&mut self.last).then_some(b' ');
            };
            self.last = is_space && self.spaces.keep_last;
            if is_space {
                self.in_word = false;
                if !self.spaces.merge {
                    return Some(b' ');
                }
                self.spaced = true;
                continue;
            }
            let is_first = !core::mem::replace(&mut self.in_word, true);
            let is_marked = self.spaces.marked_words && byte == b' ';
            if is_first && self.spaces.merge && core::mem::replace(&mut self.spaced, true) && !is_marked {
                self.waiting = Some(byte);
                return Some(b' ');
            }
            return Some(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn normal(prefix: bool, merge: bool, text: &[u8]) -> Vec<u8> {
        Normalized::new(Charsmap::NONE, Spaces { prefix, merge, ..Spaces::KEPT }, text).collect()
    }

    #[test]
    fn white_space() {
        assert_eq!(normal(true, true, b"  a  b "), b" a b");
        // Where a space is kept at the end of a text, SentencePiece 0.2.3 gives "▁▁" for a text of one space. Without a
        // space prefix, it puts no space before the first word of a text.
        assert_eq!(normal(false, true, b"a  b"), b"a b");
        assert_eq!(normal(false, true, b"  a  b"), b" a b");
        assert_eq!(normal(true, false, b"  a  b "), b"   a  b ");
        assert_eq!(normal(true, false, b" "), b"  ");
        assert_eq!(normal(true, false, b""), b"");
        assert_eq!(normal(false, false, b" a"), b" a");
        assert_eq!(normal(true, true, b"   "), b"");
        let merged = Spaces { prefix: true, merge: true, ..Spaces::KEPT };
        let kept = |text| Normalized::new(Charsmap::NONE, Spaces { keep_last: true, ..merged }, text);
        assert!(kept(b"  a  b  ").eq(*b" a b ") && kept(b"   ").eq(*b" ") && kept(b"a").eq(*b" a") && kept(b"").eq([]));
        let marked = Spaces { marked_words: true, ..merged };
        let marked = |text: &'static str| Normalized::new(Charsmap::NONE, marked, text.as_bytes());
        assert!(marked("▁▁ a ▁b▁c").eq(*b"   a b c") && marked("▁").eq(*b" "));
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(normal(false, false, b"a\xffb\xe2\x96"), "a\u{fffd}b\u{fffd}\u{fffd}".as_bytes());
        assert_eq!(normal(false, true, "a▁▁b".as_bytes()), b"a  b");
    }

    #[test]
    fn damaged_maps_end() {
        assert!(Charsmap::new(&[1, 0, 0]).is_none());
        assert!(Charsmap::new(&[9, 0, 0, 0, 1]).is_none());
        let mut seed = 1u32;
        for size in (0..400).step_by(4) {
            let mut bytes: Vec<u8> = (size as u32).to_le_bytes().into();
            bytes.extend((0..size + 40).map(|_| {
                seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                if seed >> 28 == 0 { b'a' } else { (seed >> 9) as u8 & 1 }
            }));
            let map = Charsmap::new(&bytes).unwrap();
            let text = [b'a'; 50];
            let out = Normalized::new(map, Spaces { prefix: true, merge: true, ..Spaces::KEPT }, &text);
            assert!(out.count() <= text.len() * LONGEST * 2);
        }
    }
}
