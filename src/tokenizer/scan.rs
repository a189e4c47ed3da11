//! Scanners: each stands for one regular expression of llama.cpp's pre-tokenizers.
//!
//! A scanner is asked where the piece that begins at `pos` ends. It sees nothing before `pos` and
//! nothing from `end` on, where the piece of the scanner before it ends, and it always moves
//! forward. Written by hand because the expressions look ahead (`\s+(?!\S)`), and because the
//! tables of a general engine would be larger than this crate.

use super::unicode::{Group, first_char, group, is_space, is_word};

/// One regular expression; its matches and the text between them become pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scanner {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Cl100k {
        /// How many digits make one piece at most.
        digits: u32,
        /// Whether the first alternative, the English contractions, is there.
        contractions: bool,
        /// Whether combining marks count as letters: `[\p{L}\p{M}]`.
        marks: bool,
    },
    /// `\p{N}{1,n}`
    Numbers(u32),
    /// `[0-9][0-9][0-9]`
    ThreeDigits,
    /// `[\p{P}\$\+<=>\^~\|]+`, with the backtick too if `true`
    Punctuation(bool),
    /// `\w+|[^\w\s]+`; the white space between them becomes pieces too.
    Whitespace,
}

/// The text from a position to the end that the scanner may see.
#[derive(Clone, Copy)]
struct View<'t> {
    text: &'t [u8],
}

/// A code point with what the scanners ask about it.
#[derive(Clone, Copy)]
struct Seen {
    code: u32,
    len: usize,
    group: Group,
}

impl Seen {
    fn is_letter(self, marks: bool) -> bool {
        self.group == Group::Letter || (marks && self.group == Group::Mark)
    }

    fn is_number(self) -> bool {
        self.group == Group::Number
    }

    fn is_line_end(self) -> bool {
        matches!(self.code, 0x0a | 0x0d)
    }

    /// `[^\s\p{L}\p{N}]`, or with `\p{M}` excluded as well.
    fn is_other(self, marks: bool) -> bool {
        !self.is_letter(marks) && !self.is_number() && !is_space(self.code)
    }
}

impl View<'_> {
    fn at(self, pos: usize) -> Option<Seen> {
        let char = first_char(self.text.get(pos..)?)?;
        Some(Seen { code: char.code, len: char.len, group: group(char.code) })
    }

    /// The first position from `pos` on where `test` fails.
    fn run(self, mut pos: usize, test: impl Fn(Seen) -> bool) -> usize {
        while let Some(seen) = self.at(pos) {
            if !test(seen) {
                break;
            }
            pos += seen.len;
        }
        pos
    }

    /// The end of an English contraction (`'s`, `'ll`, ...) that begins at `pos`.
    fn contraction(self, pos: usize, any_case: bool) -> Option<usize> {
        let quote = self.at(pos).filter(|c| c.code == 0x27)?;
        let second = self.at(pos + quote.len)?;
        let end = pos + quote.len + second.len;
        let lower = |c: Seen| match u8::try_from(c.code) {
            Ok(code) if any_case => code.to_ascii_lowercase(),
            Ok(code) => code,
            Err(_) => 0,
        };
        match (lower(second), self.at(end).map(|c| (lower(c), c.len))) {
            (b's' | b't' | b'm' | b'd', _) => Some(end),
            (b'r' | b'v', Some((b'e', len))) | (b'l', Some((b'l', len))) => Some(end + len),
            _ => None,
        }
    }

    /// `\s+(?!\S)|\s+` for the white space in `pos..end`, whose last character begins at `last`:
    /// before other text that last one is left for the next piece, unless it is the only one.
    fn spaces(self, pos: usize, last: usize, end: usize) -> usize {
        if last > pos && end < self.text.len() { last } else { end }
    }

    fn gpt2(self, pos: usize, first: Seen) -> usize {
        if let Some(end) = self.contraction(pos, false) {
            return end;
        }
        // An optional space, then a run of one kind.
        let (start, second) = match first.code {
            0x20 => (pos + first.len, self.at(pos + first.len)),
            _ => (pos, Some(first)),
        };
        match second {
            Some(c) if c.is_letter(false) => return self.run(start, |c| c.is_letter(false)),
            Some(c) if c.is_number() => return self.run(start, Seen::is_number),
            Some(c) if c.is_other(false) => return self.run(start, |c| c.is_other(false)),
            _ => {}
        }
        let mut last = pos;
        let mut end = pos;
        while let Some(c) = self.at(end).filter(|c| is_space(c.code)) {
            last = end;
            end += c.len;
        }
        self.spaces(pos, last, end)
    }

    fn cl100k(self, pos: usize, first: Seen, digits: u32, contractions: bool, marks: bool) -> usize {
        if contractions && let Some(end) = self.contraction(pos, true) {
            return end;
        }
        let after = pos + first.len;
        if first.is_number() {
            let mut end = after;
            let mut count = 1;
            while let Some(c) = self.at(end).filter(|c| count < digits && c.is_number()) {
                end += c.len;
                count += 1;
            }
            return end;
        }
        if !first.is_line_end() {
            let is_word = first.is_letter(marks) || self.at(after).is_some_and(|c| c.is_letter(marks));
            if is_word {
                return self.run(after, |c| c.is_letter(marks));
            }
        }
        let start = if first.code == 0x20 { after } else { pos };
        if self.at(start).is_some_and(|c| c.is_other(marks)) {
            let end = self.run(start, |c| c.is_other(marks));
            return self.run(end, Seen::is_line_end);
        }
        let mut last = pos;
        let mut end = pos;
        let mut line_end = None;
        while let Some(c) = self.at(end).filter(|c| is_space(c.code)) {
            last = end;
            end += c.len;
            if c.is_line_end() {
                line_end = Some(end);
            }
        }
        line_end.unwrap_or_else(|| self.spaces(pos, last, end))
    }

    /// The end of a run that passes `test`, or of one that does not.
    fn run_or_gap(self, pos: usize, first: Seen, test: impl Fn(Seen) -> bool) -> usize {
        let inside = test(first);
        self.run(pos + first.len, |c| test(c) == inside)
    }

    /// The end of three ASCII digits that begin at `pos`.
    fn match_three_digits(self, mut pos: usize) -> Option<usize> {
        for _ in 0..3 {
            pos += self.at(pos).filter(|c| matches!(c.code, 0x30..=0x39))?.len;
        }
        Some(pos)
    }

    fn three_digits(self, mut pos: usize) -> usize {
        if let Some(end) = self.match_three_digits(pos) {
            return end;
        }
        while let Some(c) = self.at(pos) {
            pos += c.len;
            if self.match_three_digits(pos).is_some() {
                break;
            }
        }
        pos
    }
}

/// `[\p{P}\$\+<=>\^~\|]`
fn is_punctuation(seen: Seen, backtick: bool) -> bool {
    let symbol = matches!(seen.code, 0x24 | 0x2b | 0x3c..=0x3e | 0x5e | 0x7c | 0x7e);
    symbol || (backtick && seen.code == 0x60) || seen.group == Group::Punctuation
}

impl Scanner {
    /// Where the piece that begins at `pos` ends, at most at `end`; beyond `pos` if `pos < end`.
    pub fn next(self, text: &[u8], pos: usize, end: usize) -> usize {
        let view = View { text: text.get(..end).unwrap_or(text) };
        let Some(first) = view.at(pos) else { return end };
        let found = match self {
            Scanner::Gpt2 => view.gpt2(pos, first),
            Scanner::Cl100k { digits, contractions, marks } => view.cl100k(pos, first, digits, contractions, marks),
            Scanner::Numbers(limit) if first.is_number() => {
                let mut found = pos + first.len;
                let mut count = 1;
                while let Some(c) = view.at(found).filter(|c| count < limit && c.is_number()) {
                    found += c.len;
                    count += 1;
                }
                found
            }
            Scanner::Numbers(_) => view.run(pos, |c| !c.is_number()),
            Scanner::ThreeDigits => view.three_digits(pos),
            Scanner::Whitespace => {
                let class = |c: Seen| (is_word(c.code), is_space(c.code));
                view.run(pos, |c| class(c) == class(first))
            }
            Scanner::Punctuation(backtick) => view.run_or_gap(pos, first, |c| is_punctuation(c, backtick)),
        };
        // What no alternative matches is a piece of its own.
        if found > pos { found } else { pos + first.len }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn pieces(scanner: Scanner, text: &str) -> Vec<&str> {
        let mut pos = 0;
        let mut out = Vec::new();
        while pos < text.len() {
            let end = scanner.next(text.as_bytes(), pos, text.len());
            assert!(end > pos);
            out.push(&text[pos..end]);
            pos = end;
        }
        out
    }

    const LLAMA3: Scanner = Scanner::Cl100k { digits: 3, contractions: true, marks: false };

    #[test]
    fn gpt2() {
        assert_eq!(
            pieces(Scanner::Gpt2, "I'll  see\t\tyou'Re  12345 !?\n\n x  "),
            ["I", "'ll", " ", " see", "\t", "\t", "you", "'", "Re", " ", " 12345", " !?", "\n\n", " x", "  "]
        );
    }

    #[test]
    fn llama3() {
        assert_eq!(
            pieces(LLAMA3, "I'LL\tsee 12345,\n\n  \n  y  "),
            ["I", "'LL", "\tsee", " ", "123", "45", ",\n\n", "  \n", " ", " y", "  "]
        );
        assert_eq!(pieces(LLAMA3, " "), [" "]);
    }

    #[test]
    fn overlong_characters_are_what_they_spell() {
        let ends = |scanner: Scanner, text: &[u8]| scanner.next(text, 0, text.len());
        assert_eq!(ends(Scanner::Gpt2, b"\xc0\xa0Z"), 3);
        assert_eq!(ends(Scanner::Gpt2, b"\xc0\xa7sZ"), 3);
        assert_eq!(ends(LLAMA3, b"'\xc1\x93Z"), 3);
        assert_eq!(ends(Scanner::ThreeDigits, b"1\xc0\xb234"), 4);
    }

    #[test]
    fn words_and_what_is_between() {
        assert_eq!(
            pieces(Scanner::Whitespace, "don't  go_2 \u{939}\u{942}\u{901}..."),
            ["don", "'", "t", "  ", "go_2", " ", "\u{939}\u{942}\u{901}", "..."]
        );
    }

    #[test]
    fn numbers_and_punctuation() {
        assert_eq!(pieces(Scanner::Numbers(1), "a12b"), ["a", "1", "2", "b"]);
        assert_eq!(pieces(Scanner::Numbers(3), "1234 5"), ["123", "4", " ", "5"]);
        assert_eq!(pieces(Scanner::ThreeDigits, "ab12345c"), ["ab", "123", "45c"]);
        assert_eq!(pieces(Scanner::Punctuation(false), "a+=`b…$"), ["a", "+=", "`b", "…$"]);
    }
}
