//! Scanners: each scanner implements one regular expression of llama.cpp's pre-tokenizers, as a list of alternatives
//! that are tried in order.
//!
//! The scanners are written by hand because the expressions look ahead (`\s+(?!\S)`), and because the tables of a
//! general engine would be larger than this crate. A scanner finds the end of the piece that starts at `pos`. It sees
//! neither text before `pos` nor text after `end`, which is the end of the previous scanner's piece. Text without a
//! match, up to the next match, is also a piece. Time is linear in the text.

use super::unicode::{Group, first_char, group, is_space, is_word};

/// Kinds of code points that the expressions distinguish. Each code point has exactly one kind, so every class is a set
/// of kinds.
pub(super) mod kind {
    pub const SPACE: u32 = 1 << 0;
    pub const LINE_END: u32 = 1 << 1;
    pub const OTHER_WHITE: u32 = 1 << 2;
    pub const ASCII_UPPER: u32 = 1 << 3;
    pub const ASCII_LOWER: u32 = 1 << 4;
    /// General categories Lu and Lt outside ASCII.
    pub const OTHER_UPPER: u32 = 1 << 15;
    /// General category Ll outside ASCII.
    pub const OTHER_LOWER: u32 = 1 << 16;
    /// General categories Lm and Lo.
    pub const OTHER_LETTER: u32 = 1 << 5;
    pub const MARK: u32 = 1 << 6;
    pub const DIGIT: u32 = 1 << 7;
    pub const OTHER_NUMBER: u32 = 1 << 8;
    pub const ASCII_PUNCTUATION: u32 = 1 << 9;
    pub const OTHER_PUNCTUATION: u32 = 1 << 10;
    pub const BACKTICK: u32 = 1 << 11;
    pub const ASCII_SYMBOL: u32 = 1 << 12;
    pub const OTHER_SYMBOL: u32 = 1 << 13;
    /// Control characters and unassigned code points.
    pub const REST: u32 = 1 << 14;
}

/// A class of code points.
#[derive(Clone, Copy, Debug)]
pub(super) enum Class {
    /// A set of kinds.
    Kinds(u32),
    /// A function of the code point.
    Set(fn(u32) -> bool),
}

use Class::Kinds;

/// ` `
pub(super) const SPACE: Class = Kinds(kind::SPACE);
/// `[\r\n]`
pub(super) const LINE_END: Class = Kinds(kind::LINE_END);
/// `\s`
pub(super) const WHITE: Class = Kinds(kind::SPACE | kind::LINE_END | kind::OTHER_WHITE);
/// `\p{L}`
pub(super) const LETTER: Class = ASCII_LETTER.or(Kinds(kind::OTHER_UPPER | kind::OTHER_LOWER | kind::OTHER_LETTER));
/// `[A-Za-z]`
pub(super) const ASCII_LETTER: Class = Kinds(kind::ASCII_UPPER | kind::ASCII_LOWER);
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
pub(super) const UPPER: Class = Kinds(kind::ASCII_UPPER | kind::OTHER_UPPER | kind::OTHER_LETTER | kind::MARK);
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
pub(super) const LOWER: Class = Kinds(kind::ASCII_LOWER | kind::OTHER_LOWER | kind::OTHER_LETTER | kind::MARK);
/// `[\p{L}\p{M}]`
pub(super) const LETTER_MARK: Class = LETTER.or(Kinds(kind::MARK));
/// `\p{N}`
pub(super) const NUMBER: Class = Kinds(kind::DIGIT | kind::OTHER_NUMBER);
/// A backtick.
pub(super) const BACKTICK: Class = Kinds(kind::BACKTICK);
/// `[0-9]`
pub(super) const DIGIT: Class = Kinds(kind::DIGIT);
/// `\p{P}`
pub(super) const PUNCTUATION: Class = Kinds(kind::ASCII_PUNCTUATION | kind::OTHER_PUNCTUATION);
/// ``[!-/:-@\[-`{-~]``
pub(super) const ASCII_PUNCTUATION: Class = Kinds(kind::ASCII_PUNCTUATION | kind::BACKTICK | kind::ASCII_SYMBOL);
/// `\p{S}`
pub(super) const SYMBOL: Class = Kinds(kind::BACKTICK | kind::ASCII_SYMBOL | kind::OTHER_SYMBOL);
/// `[\p{P}\$\+<=>\^~\|]`
pub(super) const PUNCTUATION_MATHS: Class = PUNCTUATION.or(Kinds(kind::ASCII_SYMBOL));

impl Class {
    /// The union of two sets of kinds.
    pub const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Kinds(a), Kinds(b)) => Kinds(a | b),
            _ => self,
        }
    }

    /// The complement.
    pub const fn not(self) -> Self {
        match self {
            Kinds(kinds) => Kinds(!kinds),
            Class::Set(_) => self,
        }
    }

    fn has(self, seen: Seen) -> bool {
        match self {
            Kinds(kinds) => kinds & seen.kind != 0,
            // llama.cpp treats white space outside ASCII as a vertical tab.
            Class::Set(has) if seen.kind == kind::OTHER_WHITE && seen.code > 0x7f => has(0x0b),
            Class::Set(has) => has(seen.code),
        }
    }
}

/// A run of characters, as the regular expression `before? of{least,most} after{0,after_most}` describes it. If
/// `needs_before` is true, `before` is required.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    before: Option<Class>,
    needs_before: bool,
    of: Class,
    least: u8,
    /// [`ALL`] means no limit, also in `after_most`.
    most: u8,
    after: Option<Class>,
    after_most: u8,
}

/// Stands for no limit in [`Run`].
pub(super) const ALL: u8 = u8::MAX;

/// One alternative of an expression.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// `'s|'t|'re|'ve|'m|'ll|'d`
    Contraction {
        /// `(?i: )`
        any_case: bool,
    },
    Run(Run),
    /// `before?upper*lower+|before?upper+lower*` with [`BEFORE_WORD`] as `before`, optionally followed by a
    /// contraction.
    Cased {
        upper: Class,
        lower: Class,
        contraction: bool,
    },
    /// `before?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+` with [`BEFORE_WORD`] as `before`: several words with spaces between
    /// them.
    Phrase,
    /// `\s*[\r\n]+`, which matches the same as `\s*[\r\n]`.
    LineEnds,
    /// `\s+(?!\S)|\s+`
    Spaces,
    /// Runs of white space, split by powers of two: `\s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`
    SpacesByPowers,
    /// `\s+$`
    SpacesAtEnd,
    /// Digits, split into groups of three that are counted from the end. The piece of text with the first group begins
    /// with the text before the digits. This is llama.cpp's `\p{AFMoE_digits}`.
    Threes,
    /// Splits before each group of three ASCII digits, counted from the end of a number, `(?=(\d{3})+(?!\d))`: like
    /// [`Threes`](Self::Threes), but also before the first group.
    ThreesApart,
    /// `<sentinel:[0-9]+>`
    Sentinel,
    /// `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`
    Image,
    /// `([\t\n]|    |  )`
    Indent,
}

/// `of+`
pub(super) const fn some(of: Class) -> Run {
    some_of(of, 1, ALL)
}

/// `of{least,most}`
pub(super) const fn some_of(of: Class, least: u8, most: u8) -> Run {
    Run { before: None, needs_before: false, of, least, most, after: None, after_most: 0 }
}

impl Run {
    /// Adds `before?` in front.
    pub const fn after_any(self, before: Class) -> Self {
        Self { before: Some(before), ..self }
    }

    /// Adds `before` in front.
    pub const fn after(self, before: Class) -> Self {
        Self { before: Some(before), needs_before: true, ..self }
    }

    /// Adds `after*` at the end.
    pub const fn then_all(self, after: Class) -> Self {
        Self { after: Some(after), after_most: ALL, ..self }
    }

    /// Adds `after?` at the end.
    pub const fn then_one(self, after: Class) -> Self {
        Self { after: Some(after), after_most: 1, ..self }
    }

    pub const fn part(self) -> Part {
        Part::Run(self)
    }
}

/// `[^\r\n\p{L}\p{N}]`, which may precede a word.
pub(super) const BEFORE_WORD: Class = LINE_END.or(LETTER).or(NUMBER).not();

/// The text up to the end that the scanner may see.
#[derive(Clone, Copy)]
struct View<'t> {
    text: &'t [u8],
}

/// A code point with its kind.
#[derive(Clone, Copy)]
struct Seen {
    code: u32,
    len: usize,
    kind: u32,
}

fn kind_of(code: u32) -> u32 {
    match code {
        0x61..=0x7a => kind::ASCII_LOWER,
        0x20 => kind::SPACE,
        0x41..=0x5a => kind::ASCII_UPPER,
        0x30..=0x39 => kind::DIGIT,
        0x0a | 0x0d => kind::LINE_END,
        0x60 => kind::BACKTICK,
        _ if is_space(code) => kind::OTHER_WHITE,
        _ => match group(code) {
            Group::Upper => kind::OTHER_UPPER,
            Group::Lower => kind::OTHER_LOWER,
            Group::OtherLetter => kind::OTHER_LETTER,
            Group::Nonspacing | Group::Mark => kind::MARK,
            Group::Number | Group::OtherNumber => kind::OTHER_NUMBER,
            Group::Punctuation if code < 0x80 => kind::ASCII_PUNCTUATION,
            Group::Punctuation => kind::OTHER_PUNCTUATION,
            Group::Symbol if code < 0x80 => kind::ASCII_SYMBOL,
            Group::Symbol => kind::OTHER_SYMBOL,
            Group::Unassigned | Group::Separator | Group::Control => kind::REST,
        },
    }
}

impl View<'_> {
    fn at(self, pos: usize) -> Option<Seen> {
        let char = first_char(self.text.get(pos..)?)?;
        Some(Seen { code: char.code, len: char.len, kind: kind_of(char.code) })
    }

    /// End of one code point of `class` at `pos`.
    fn one(self, pos: usize, class: Class) -> Option<usize> {
        let seen = self.at(pos).filter(|seen| class.has(*seen))?;
        Some(pos + seen.len)
    }

    /// Finds the longest run of code points of `class` from `pos` on, but at most `most` of them. Returns the end of
    /// the run and the number of its code points.
    fn run(self, mut pos: usize, class: Class, most: u32) -> (usize, u32) {
        let mut count = 0;
        while count < most
            && let Some(end) = self.one(pos, class)
        {
            pos = end;
            count += 1;
        }
        (pos, count)
    }

    /// [`run`](Self::run) with a limit as in [`Run`].
    fn some(self, pos: usize, class: Class, most: u8) -> (usize, u32) {
        self.run(pos, class, if most == ALL { u32::MAX } else { most.into() })
    }

    /// End of the ASCII string `text`, if it is at `pos`.
    fn literal(self, mut pos: usize, text: &[u8]) -> Option<usize> {
        for byte in text {
            pos += self.at(pos).filter(|seen| seen.code == u32::from(*byte))?.len;
        }
        Some(pos)
    }

    /// End of an English contraction (`'s`, `'ll`, ...) at `pos`.
    fn contraction(self, pos: usize, any_case: bool) -> Option<usize> {
        let quote = self.at(pos).filter(|c| c.code == 0x27)?;
        let second = self.at(pos + quote.len)?;
        let end = pos + quote.len + second.len;
        let lower = |c: Seen| match u8::try_from(c.code) {
            Ok(code) if any_case => code.to_ascii_lowercase(),
            Ok(code) => code,
            // `(?i:s)` also matches the long s.
            Err(_) if any_case && c.code == 0x17f => b's',
            Err(_) => 0,
        };
        match (lower(second), self.at(end).map(|c| (lower(c), c.len))) {
            (b's' | b't' | b'm' | b'd', _) => Some(end),
            (b'r' | b'v', Some((b'e', len))) | (b'l', Some((b'l', len))) => Some(end + len),
            _ => None,
        }
    }

    fn match_run(self, pos: usize, run: &Run) -> Option<usize> {
        let of_from = |pos: usize| {
            let (end, count) = self.some(pos, run.of, run.most);
            (count >= run.least.into()).then_some(end)
        };
        let after_before = run.before.and_then(|before| self.one(pos, before)).and_then(of_from);
        let end = match after_before {
            None if run.needs_before => return None,
            None => of_from(pos)?,
            Some(end) => end,
        };
        Some(match run.after {
            Some(after) => self.some(end, after, run.after_most).0,
            None => end,
        })
    }

    fn cased(self, pos: usize, upper: Class, lower: Class) -> Option<usize> {
        let starts = [self.one(pos, BEFORE_WORD), Some(pos)];
        // `upper*lower+`: if no `lower` follows the run of `upper`, the match ends after the last code point of the run
        // that is also `lower`.
        for start in starts.into_iter().flatten() {
            let (mut at, mut found) = (start, None);
            while let Some(seen) = self.at(at).filter(|seen| upper.has(*seen)) {
                at += seen.len;
                if lower.has(seen) {
                    found = Some(at);
                }
            }
            match self.run(at, lower, u32::MAX) {
                (end, 1..) => return Some(end),
                _ if found.is_some() => return found,
                _ => {}
            }
        }
        // Matches `upper+lower*` without any `lower`, because if a `lower` followed the run of `upper`, the loop above
        // would have matched.
        starts.into_iter().flatten().find_map(|start| match self.run(start, upper, u32::MAX) {
            (_, 0) => None,
            (end, _) => Some(end),
        })
    }

    fn phrase(self, pos: usize) -> Option<usize> {
        let word = |pos: usize| Some(self.run(self.one(pos, LETTER)?, Kinds(kind::MARK), u32::MAX).0);
        let first = self.one(pos, BEFORE_WORD).and_then(word).or_else(|| word(pos));
        let mut end = first?;
        while let Some(next) = word(end).or_else(|| word(self.one(end, SPACE)?)) {
            end = next;
        }
        Some(end)
    }

    /// Matches `\s*[\r\n]+` at `pos`; returns the end of the match. A run of white space without a line end is searched
    /// only once, because `known` then keeps the end of the run.
    fn line_ends(self, pos: usize, known: &mut usize) -> Option<usize> {
        let (mut end, mut found) = (pos.max(*known), None);
        while let Some(seen) = self.at(end).filter(|seen| WHITE.has(*seen)) {
            end += seen.len;
            if LINE_END.has(seen) {
                found = Some(end);
            }
        }
        if found.is_none() && end > pos {
            *known = end;
        }
        found
    }

    /// `\s+(?!\S)|\s+`: before other text, the last white space character is left for the next piece, unless it is the
    /// only one.
    fn spaces(self, pos: usize) -> Option<usize> {
        let (mut last, mut end) = (pos, pos);
        while let Some(next) = self.one(end, WHITE) {
            (last, end) = (end, next);
        }
        match end {
            end if end == pos => None,
            end if end < self.text.len() && last > pos => Some(last),
            end => Some(end),
        }
    }

    fn spaces_by_powers(self, pos: usize) -> Option<usize> {
        for count in [512, 256, 128, 64, 32, 16, 8, 4, 2, 1] {
            let (end, found) = self.run(pos, WHITE, count);
            if found == count && (end >= self.text.len() || self.one(end, WHITE).is_some()) {
                return Some(end);
            }
        }
        self.one(pos, WHITE)
    }

    fn spaces_at_end(self, pos: usize, known: &mut usize) -> Option<usize> {
        if pos < *known {
            return None; // white space followed by other text
        }
        let (end, count) = self.run(pos, WHITE, u32::MAX);
        *known = end;
        (count > 0 && end >= self.text.len()).then_some(end)
    }

    /// End of the next piece for [`Part::Threes`]. `known` is the end of the number that is being split, if that end is
    /// after `pos`.
    fn threes(self, pos: usize, known: &mut usize) -> usize {
        let mut start = pos;
        let mut first = 3;
        if pos >= *known {
            start = self.run(pos, NUMBER.not(), u32::MAX).0;
            let (end, count) = self.run(start, NUMBER, u32::MAX);
            *known = end;
            first = if count % 3 == 0 { 3 } else { count % 3 };
        }
        self.run(start, NUMBER, first).0
    }

    fn threes_apart(self, mut pos: usize, known: &mut usize) -> usize {
        if pos < *known {
            let (end, _) = self.run(pos, DIGIT, 3);
            if end < *known {
                return end;
            }
            pos = end;
        }
        loop {
            let start = self.run(pos, DIGIT.not(), u32::MAX).0;
            let (end, count) = self.run(start, DIGIT, u32::MAX);
            *known = end;
            let cut = self.run(start, DIGIT, count % 3).0;
            if end >= self.text.len() && cut >= end {
                return end;
            }
            if cut > pos && cut < end {
                return cut;
            }
            let (next, _) = self.run(cut, DIGIT, 3);
            if next < end {
                return next;
            }
            if end >= self.text.len() {
                return end;
            }
            pos = end;
        }
    }

    fn sentinel(self, pos: usize) -> Option<usize> {
        match self.run(self.literal(pos, b"<sentinel:")?, DIGIT, u32::MAX) {
            (_, 0) => None,
            (end, _) => self.literal(end, b">"),
        }
    }

    fn image(self, pos: usize) -> Option<usize> {
        let a_to_i = Class::Set(|code| matches!(code, 0x41..=0x49));
        match self.run(self.literal(pos, b"IMGIMG")?, a_to_i, 4) {
            (_, 0) => None,
            (end, _) => self.literal(end, b"Z"),
        }
    }

    fn indent(self, pos: usize) -> Option<usize> {
        let line = self.one(pos, Class::Set(|code| matches!(code, 0x09 | 0x0a)));
        line.or_else(|| self.literal(pos, b"    ")).or_else(|| self.literal(pos, b"  "))
    }

    fn matches(self, part: &Part, pos: usize, known: &mut usize) -> Option<usize> {
        match part {
            Part::Contraction { any_case } => self.contraction(pos, *any_case),
            Part::Run(run) => self.match_run(pos, run),
            Part::Cased { upper, lower, contraction } => {
                let end = self.cased(pos, *upper, *lower)?;
                Some(if *contraction { self.contraction(end, true).unwrap_or(end) } else { end })
            }
            Part::Phrase => self.phrase(pos),
            Part::LineEnds => self.line_ends(pos, known),
            Part::Spaces => self.spaces(pos),
            Part::SpacesByPowers => self.spaces_by_powers(pos),
            Part::SpacesAtEnd => self.spaces_at_end(pos, known),
            Part::Threes => Some(self.threes(pos, known)),
            Part::ThreesApart => Some(self.threes_apart(pos, known)),
            Part::Sentinel => self.sentinel(pos),
            Part::Image => self.image(pos),
            Part::Indent => self.indent(pos),
        }
        .filter(|end| *end > pos)
    }
}

/// End of the piece that starts at `pos`. The result is at most `end`, and greater than `pos` if `pos < end`. `known`
/// holds a position that one of the alternatives caches for later calls; it is 0 before the first call.
pub(super) fn next(parts: &[Part], text: &[u8], pos: usize, end: usize, known: &mut usize) -> usize {
    let view = View { text: text.get(..end).unwrap_or(text) };
    let mut at = pos;
    while let Some(seen) = view.at(at) {
        if let Some(found) = parts.iter().find_map(|part| view.matches(part, at, known)) {
            // Text before the first match is a piece.
            return if at > pos { at } else { found };
        }
        at += seen.len;
    }
    end
}

/// `[一-龥぀-ゟ゠-ヿ]`: Chinese and Japanese.
pub(super) fn is_cjk_kana(code: u32) -> bool {
    matches!(code, 0x4e00..=0x9fa5 | 0x3040..=0x309f | 0x30a0..=0x30ff)
}

/// `[一-龥ࠀ-一가-퟿]`
pub(super) fn is_cjk_hangul(code: u32) -> bool {
    matches!(code, 0x0800..=0x9fa5 | 0xac00..=0xd7ff)
}

/// `[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]`
pub(super) fn is_asian(code: u32) -> bool {
    matches!(
        code,
        0x4e00..=0x9fff | 0x3400..=0x4dbf | 0xf900..=0xfaff | 0x3040..=0x30ff | 0xff65..=0xff9f | 0x2f00..=0x2fdf
            | 0x0e40..=0x0eff | 0x1780..=0x17ff | 0x1000..=0x109f | 0xaa60..=0xaa7f | 0xa9e0..=0xa9ff
            | 0xac00..=0xd7af | 0x1100..=0x11ff
    )
}

/// `\p{Han}`: the script, which has more than letters.
pub(super) fn is_han(code: u32) -> bool {
    matches!(
        code,
        0x2e80..=0x2e99 | 0x2e9b..=0x2ef3 | 0x2f00..=0x2fd5 | 0x3005 | 0x3007 | 0x3021..=0x3029 | 0x3038..=0x303b
            | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfa6d | 0xfa70..=0xfad9 | 0x16fe2 | 0x16fe3
            | 0x16ff0 | 0x16ff1 | 0x20000..=0x2a6df | 0x2a700..=0x2b739 | 0x2b740..=0x2b81d | 0x2b820..=0x2cea1
            | 0x2ceb0..=0x2ebe0 | 0x2ebf0..=0x2ee5d | 0x2f800..=0x2fa1d | 0x30000..=0x3134a | 0x31350..=0x323af
    )
}

/// True for [`UPPER`] except Chinese characters ([`is_han`]).
pub(super) fn is_upper_not_han(code: u32) -> bool {
    UPPER.has(Seen { code, len: 0, kind: kind_of(code) }) && !is_han(code)
}

/// True for [`LOWER`] except Chinese characters ([`is_han`]).
pub(super) fn is_lower_not_han(code: u32) -> bool {
    LOWER.has(Seen { code, len: 0, kind: kind_of(code) }) && !is_han(code)
}

/// True for code points that are neither word characters nor white space.
pub(super) fn is_between_words(code: u32) -> bool {
    !is_word(code) && !is_space(code)
}

/// `[^(\s|.,!?…。，、।۔،)]`
pub(super) fn is_bloom_word(code: u32) -> bool {
    let mark = matches!(code, 0x28 | 0x29 | 0x7c | 0x2e | 0x2c | 0x21 | 0x3f)
        || matches!(code, 0x2026 | 0x3002 | 0xff0c | 0x3001 | 0x0964 | 0x06d4 | 0x060c);
    !mark && !is_space(code)
}

/// True for letters of DeepSeek LLM with lowercase and uppercase forms: `[A-Za-zµÀ-ÖØ-öø-ƺ...]`.
pub(super) fn is_deepseek_letter(code: u32) -> bool {
    matches!(
        code,
            0x41..=0x5a | 0x61..=0x7a | 0xb5 | 0xc0..=0xd6 | 0xd8..=0xf6 | 0xf8..=0x1ba | 0x1bc..=0x1bf |
            0x1c4..=0x293 | 0x295..=0x2af | 0x370..=0x373 | 0x376 | 0x377 | 0x37b..=0x37d | 0x37f | 0x386 |
            0x388..=0x38a | 0x38c | 0x38e..=0x3a1 | 0x3a3..=0x3f5 | 0x3f7..=0x481 | 0x48a..=0x52f | 0x531..=0x556 |
            0x10a0..=0x10c5 | 0x13a0..=0x13f5 | 0x13f8..=0x13fd | 0x1c90..=0x1cba | 0x1cbd..=0x1cbf | 0x1d00..=0x1d2b
            | 0x1d6b..=0x1d77 | 0x1d79..=0x1d9a | 0x1e00..=0x1f15 | 0x1f18..=0x1f1d | 0x1f20..=0x1f45 |
            0x1f48..=0x1f4d | 0x1f50..=0x1f57 | 0x1f59 | 0x1f5b | 0x1f5d | 0x1f5f..=0x1f7d | 0x1f80..=0x1fb4 |
            0x1fb6..=0x1fbc | 0x1fbe | 0x1fc2..=0x1fc4 | 0x1fc6..=0x1fcc | 0x1fd0..=0x1fd3 | 0x1fd6..=0x1fdb |
            0x1fe0..=0x1fec | 0x1ff2..=0x1ff4 | 0x1ff6..=0x1ffc | 0x2102 | 0x2107 | 0x210a..=0x2113 | 0x2115 |
            0x2119..=0x211d | 0x2124 | 0x2126 | 0x2128 | 0x212a..=0x212d | 0x212f..=0x2134 | 0x2139 | 0x213c..=0x213f
            | 0x2145..=0x2149 | 0x214e | 0x2183 | 0x2184 | 0x2c00..=0x2c7b | 0x2c7e..=0x2ce4 | 0x2ceb..=0x2cee |
            0x2cf2 | 0x2cf3 | 0xa640..=0xa66d | 0xa680..=0xa69b | 0xa722..=0xa76f | 0xa771..=0xa787 | 0xa78b..=0xa78e
            | 0xab70..=0xabbf | 0xfb00..=0xfb06 | 0xfb13..=0xfb17 | 0xff21..=0xff3a | 0xff41..=0xff5a |
            0x10400..=0x1044f | 0x104b0..=0x104d3 | 0x104d8..=0x104fb | 0x10c80..=0x10cb2 | 0x10cc0..=0x10cf2 |
            0x118a0..=0x118df | 0x1e900..=0x1e943
    )
}

/// `[!-/:-~！-／：-～‘-‟　-。]`
pub(super) fn is_deepseek_punctuation(code: u32) -> bool {
    matches!(code, 0x21..=0x2f | 0x3a..=0x7e | 0xff01..=0xff0f | 0xff1a..=0xff5e | 0x2018..=0x201f | 0x3000..=0x3002)
}

/// `[가-힣ㄱ-ㆎ]`
pub(super) fn is_hangul(code: u32) -> bool {
    matches!(code, 0xac00..=0xd7a3 | 0x3131..=0x318e)
}

/// `[！…“”‘’—：；，、-〿︰-﹏]`
pub(super) fn is_wide_punctuation(code: u32) -> bool {
    matches!(code, 0xff01 | 0x2026 | 0x201c | 0x201d | 0x2018 | 0x2019 | 0x2014 | 0xff1a | 0xff1b | 0xff0c)
        || matches!(code, 0x3001..=0x303f | 0xfe30..=0xfe4f)
}

/// `[ㄅ-ㄯ]`
pub(super) fn is_bopomofo(code: u32) -> bool {
    matches!(code, 0x3105..=0x312f)
}

/// `[^\n]`
pub(super) fn is_not_newline(code: u32) -> bool {
    code != 0x0a
}

/// `[\n]`
pub(super) fn is_newline(code: u32) -> bool {
    code == 0x0a
}
