//! Code points: decoding bytes that may not be UTF-8, and general categories.
//!
//! Decoding follows llama.cpp (`unicode_cpts_from_utf8`), so that every input gets the same ids: a byte that does not
//! start a sequence becomes U+FFFD, and overlong forms and surrogates give the number that they encode. (llama.cpp
//! throws an exception above U+10FFFF; here such sequences give U+FFFD.)

use super::unicode_table::{BLOCKS, HIGH, LOW, MIDDLE, PLAIN, TAILS, TOP};

/// Classes of characters for the pre-tokenizers: each is a group of Unicode's general categories that are treated
/// alike. Their order is the order in `unicode_table.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Cn, and values beyond the last code point.
    Unassigned,
    /// Lu, Lt.
    Upper,
    /// Ll.
    Lower,
    /// Lm, Lo.
    OtherLetter,
    /// Nd, Nl.
    Number,
    /// No.
    OtherNumber,
    /// Mn.
    Nonspacing,
    /// Mc, Me.
    Mark,
    Punctuation,
    Symbol,
    Separator,
    /// Cc, Cf, Co, Cs.
    Control,
}

/// Group of a code point.
pub(super) fn group(code: u32) -> Group {
    let top = TOP.get((code >> (LOW + HIGH)) as usize).copied().unwrap_or(0);
    let middle = (u32::from(top) << HIGH) | ((code >> LOW) & ((1 << HIGH) - 1));
    let block = MIDDLE.get(middle as usize).copied().unwrap_or(0);
    let at = (u32::from(block) << LOW) | (code & ((1 << LOW) - 1));
    let pair = BLOCKS.get((at >> 1) as usize).copied().unwrap_or(0);
    match (pair >> ((at & 1) * 4)) & 15 {
        _ if code > 0x10_ffff => Group::Unassigned,
        1 => Group::Upper,
        2 => Group::Lower,
        3 => Group::OtherLetter,
        4 => Group::Number,
        5 => Group::OtherNumber,
        6 => Group::Nonspacing,
        7 => Group::Mark,
        8 => Group::Punctuation,
        9 => Group::Symbol,
        10 => Group::Separator,
        11 => Group::Control,
        _ => Group::Unassigned,
    }
}

/// True for white space of regular expressions: the Unicode property `White_Space`.
pub(super) const fn is_space(code: u32) -> bool {
    matches!(
        code,
        0x9..=0xd | 0x20 | 0x85 | 0xa0 | 0x1680 | 0x2000..=0x200a | 0x2028 | 0x2029 | 0x202f | 0x205f | 0x3000
    )
}

/// The canonical decomposition of a code point, in lowercase and padded with zeros. Nonspacing marks after the first
/// code point are left out.
pub(super) fn plain(code: u32) -> [u32; 3] {
    if let Some(hangul) = code.checked_sub(0xac00).filter(|i| *i < 11172) {
        let last = hangul % 28;
        return [0x1100 + hangul / 588, 0x1161 + hangul / 28 % 21, if last == 0 { 0 } else { 0x11a7 + last }];
    }
    let mut tails = TAILS.get(TAILS.partition_point(|(from, _)| *from < code)..).unwrap_or(&[]).iter();
    let mut tail = || tails.next().map_or(0, |(from, to)| if *from == code { *to } else { 0 });
    [plain_first(code), tail(), tail()]
}

fn plain_first(code: u32) -> u32 {
    let last = |run: &u64| (run & 0x3_ffff) as u32;
    let Some(run) = PLAIN.get(PLAIN.partition_point(|run| last(run) < code)) else { return code };
    let field = |shift: u32, bits: u32| (run >> shift) as u32 & ((1 << bits) - 1);
    let (to, step, len) = (field(18, 18), field(36, 2), field(38, 16));
    match code.checked_sub(last(run).wrapping_sub(len)) {
        Some(_) if step == 0 => to,
        Some(at) if at % step == 0 => to.wrapping_add(at),
        _ => code,
    }
}

/// True for `\w` of regular expressions: letters, marks, digits, connectors, joiners.
pub(super) fn is_word(code: u32) -> bool {
    match group(code) {
        Group::Upper | Group::Lower | Group::OtherLetter | Group::Nonspacing | Group::Mark | Group::Number => true,
        // The code points of `\w` that are in no group above: connector punctuation, joiners, and letters in circles
        // and squares.
        _ => matches!(
            code,
            0x5f | 0x203f | 0x2040 | 0x2054 | 0xfe33 | 0xfe34 | 0xfe4d..=0xfe4f | 0xff3f
                | 0x200c | 0x200d
                | 0x24b6..=0x24e9 | 0x1f130..=0x1f149 | 0x1f150..=0x1f169 | 0x1f170..=0x1f189
        ),
    }
}

/// A decoded code point and its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Char {
    pub code: u32,
    pub len: usize,
}

/// Replaces a byte that is not part of a character.
const REPLACEMENT: Char = Char { code: 0xfffd, len: 1 };

/// Decodes the first code point of `bytes`; `None` only if `bytes` is empty.
pub(super) fn first_char(bytes: &[u8]) -> Option<Char> {
    let tail = |byte: u8| (byte & 0xc0 == 0x80).then_some(u32::from(byte & 0x3f));
    Some(match *bytes {
        [] => return None,
        [a @ 0..=0x7f, ..] => Char { code: u32::from(a), len: 1 },
        [a @ 0xc0..=0xdf, b, ..] => match tail(b) {
            Some(b) => Char { code: u32::from(a & 0x1f) << 6 | b, len: 2 },
            None => REPLACEMENT,
        },
        [a @ 0xe0..=0xef, b, c, ..] => match (tail(b), tail(c)) {
            (Some(b), Some(c)) => Char { code: u32::from(a & 0x0f) << 12 | b << 6 | c, len: 3 },
            _ => REPLACEMENT,
        },
        [a @ 0xf0..=0xf7, b, c, d, ..] => match (tail(b), tail(c), tail(d)) {
            (Some(b), Some(c), Some(d)) => {
                let code = u32::from(a & 0x07) << 18 | b << 12 | c << 6 | d;
                if code <= 0x10_ffff { Char { code, len: 4 } } else { REPLACEMENT }
            }
            _ => REPLACEMENT,
        },
        _ => REPLACEMENT,
    })
}

/// Encodes a code point in UTF-8 (including surrogates); returns four bytes and the number used.
pub(super) const fn encode(code: u32) -> ([u8; 4], usize) {
    const fn tail(bits: u32) -> u8 {
        0x80 | (bits & 0x3f) as u8
    }
    match code {
        0..=0x7f => ([code as u8, 0, 0, 0], 1),
        0x80..=0x7ff => ([0xc0 | (code >> 6) as u8, tail(code), 0, 0], 2),
        0x800..=0xffff => ([0xe0 | (code >> 12) as u8, tail(code >> 6), tail(code), 0], 3),
        _ => ([0xf0 | ((code >> 18) & 7) as u8, tail(code >> 12), tail(code >> 6), tail(code)], 4),
    }
}

/// Iterator over the bytes that byte-level BPE processes: a text after decoding to code points and encoding as UTF-8.
/// For valid UTF-8 these bytes equal the input.
#[derive(Clone)]
pub(super) struct Normalized<'t> {
    rest: &'t [u8],
    bytes: [u8; 4],
    at: usize,
    len: usize,
}

impl<'t> Normalized<'t> {
    pub fn new(text: &'t [u8]) -> Self {
        Self { rest: text, bytes: [0; 4], at: 0, len: 0 }
    }
}

impl Iterator for Normalized<'_> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        if self.at >= self.len {
            // Fast path for ASCII.
            if let [byte @ 0..=0x7f, rest @ ..] = self.rest {
                self.rest = rest;
                return Some(*byte);
            }
            let char = first_char(self.rest)?;
            self.rest = self.rest.get(char.len..).unwrap_or(&[]);
            (self.bytes, self.len) = encode(char.code);
            self.at = 0;
        }
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{string::ToString, vec::Vec};

    use super::*;

    #[test]
    fn groups_of_some_characters() {
        let expected = [
            ('a', Group::Lower),
            ('É', Group::Upper),
            ('ǅ', Group::Upper),
            ('ʰ', Group::OtherLetter),
            ('7', Group::Number),
            ('½', Group::OtherNumber),
            ('\u{93e}', Group::Mark),
            ('$', Group::Symbol),
            ('_', Group::Punctuation),
            (' ', Group::Separator),
            ('\u{301}', Group::Nonspacing),
            ('\u{0}', Group::Control),
            ('語', Group::OtherLetter),
            ('\u{10ffff}', Group::Unassigned),
            ('😀', Group::Symbol),
            ('\u{e000}', Group::Control),
        ];
        for (char, group) in expected {
            assert_eq!(super::group(char as u32), group, "{char:?}");
        }
        assert_eq!(group(0x110000), Group::Unassigned);
        assert_eq!(group(u32::MAX), Group::Unassigned);
    }

    #[test]
    fn spaces_agree_with_the_standard_library() {
        for code in 0..=0x10ffff {
            assert_eq!(is_space(code), char::from_u32(code).is_some_and(char::is_whitespace), "{code:x}");
        }
    }

    /// Decompositions of Unicode's `UnicodeData.txt`.
    #[test]
    fn plain_letters() {
        let expected = [
            ("a", "a"),
            ("Z", "z"),
            ("É", "e"),
            ("ṩ", "s"),
            ("Ⱥ", "ⱥ"),
            ("Ω", "ω"),
            ("İ", "i"),
            ("각", "\u{1100}\u{1161}\u{11a8}"),
            ("가", "\u{1100}\u{1161}"),
            ("힣", "\u{1112}\u{1175}\u{11c2}"),
            ("\u{9cb}", "\u{9c7}\u{9be}"),
            ("\u{958}", "\u{915}"),
            ("\u{ccb}", "\u{cc6}\u{cc2}\u{cd5}"),
            ("\u{1d160}", "\u{1d158}\u{1d165}\u{1d16e}"),
        ];
        for (text, expected) in expected {
            let plain = text.chars().flat_map(|c| super::plain(c as u32)).filter(|code| *code != 0);
            assert!(plain.eq(expected.chars().map(u32::from)), "{text}");
        }
        // Checks that the lowercase forms of single code points agree with the standard library.
        let is_letter = |c: &char| matches!(group(*c as u32), Group::Upper | Group::Lower | Group::OtherLetter);
        for char in (0..0x250).filter_map(char::from_u32).filter(is_letter) {
            let plain = char::from_u32(super::plain_first(char as u32)).unwrap();
            assert_eq!(plain.to_lowercase().next(), Some(plain), "{char}");
        }
        assert_eq!(super::plain(u32::MAX), [u32::MAX, 0, 0]);
    }

    #[test]
    fn words_of_regular_expressions() {
        assert!("aé७मँ्_\u{200d}ⅣⒶ".chars().all(|c| is_word(c as u32)));
        assert!("-।½② €\u{ad}\0".chars().all(|c| !is_word(c as u32)));
    }

    #[test]
    fn invalid_bytes() {
        assert_eq!(first_char("😀".as_bytes()), Some(Char { code: 0x1f600, len: 4 }));
        let wrong: [&[u8]; 9] = [
            b"\x80",
            b"\xc3a",
            b"\xe8\xaaa",
            b"\xe8a\x9e",
            b"\xf0a\x98\x80",
            b"\xf0\x9fa\x80",
            b"\xf0\x9f\x98a",
            b"\xf4\x90\x80\x80", // beyond 10ffff
            b"\xf8\x88\x80\x80\x80",
        ];
        for bytes in wrong {
            assert_eq!(first_char(bytes), Some(Char { code: 0xfffd, len: 1 }), "{bytes:x?}");
        }
        assert_eq!(first_char(b""), None);
    }

    #[test]
    fn valid_text_stays_as_it_is() {
        let text = "aé語😀\u{0}\u{7f}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}";
        assert!(Normalized::new(text.as_bytes()).eq(text.bytes()));
        for char in text.chars() {
            let bytes = char.to_string();
            assert_eq!(first_char(bytes.as_bytes()), Some(Char { code: char as u32, len: bytes.len() }));
        }
    }

    #[test]
    fn invalid_utf8_is_decoded_like_llama_cpp() {
        let normal = |bytes: &[u8]| Normalized::new(bytes).collect::<Vec<u8>>();
        assert_eq!(normal(b"\xff"), "\u{fffd}".as_bytes());
        assert_eq!(normal(b"\xe2\x82"), "\u{fffd}\u{fffd}".as_bytes());
        assert_eq!(normal(b"\xc0\x80"), b"\0");
        assert_eq!(normal(b"\xed\xa0\x80"), b"\xed\xa0\x80");
        assert_eq!(normal(b"\xf4\x90\x80\x80"), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}".as_bytes());
    }
}
