//! Names from a file, and numbers, as errors show them.

use core::fmt::{self, Write};

/// A short copy of a name from the file, so that an error can outlive the file's bytes.
///
/// Names longer than [`Name::CAPACITY`] are cut and shown with an ellipsis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; Self::CAPACITY],
    len: u8,
    cut: bool,
}

impl Name {
    /// Maximum number of bytes stored.
    pub const CAPACITY: usize = 53;

    /// Copies `name`, cut at the capacity.
    pub const fn new(name: &[u8]) -> Self {
        Self::joined(name, b"")
    }

    /// Concatenates `prefix` and `suffix`, for example `llama` and `.block_count`.
    #[inline(never)]
    pub const fn joined(prefix: &[u8], suffix: &[u8]) -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0, cut: false }.with(prefix).with(suffix)
    }

    /// Name of a metadata key: `prefix.name`, or `name` if the prefix is empty.
    #[inline(never)]
    pub const fn key(prefix: &str, name: &str) -> Self {
        if prefix.is_empty() {
            Self::new(name.as_bytes())
        } else {
            Self::joined(prefix.as_bytes(), b".").with(name.as_bytes())
        }
    }

    /// The name of a tensor of a layer: `blk.N.name`. If `prefix` is not empty, the prefix and a dot precede it.
    pub(crate) const fn layered(prefix: &str, layer: usize, name: &str) -> Self {
        let number = Digits::of(layer as u64);
        Self::key(prefix, "blk.").with(number.bytes()).with(b".").with(name.as_bytes())
    }

    /// Appends a number.
    pub(crate) const fn with_number(self, number: usize) -> Self {
        self.with(Digits::of(number as u64).bytes())
    }

    pub(crate) const fn bytes(&self) -> &[u8] {
        match self.bytes.split_at_checked(self.len as usize) {
            Some((bytes, _)) => bytes,
            None => &self.bytes,
        }
    }

    /// Appends `more`, cut at the capacity.
    #[inline(never)]
    pub(crate) const fn with(mut self, mut more: &[u8]) -> Self {
        while let Some((byte, rest)) = more.split_first() {
            if self.len as usize >= Self::CAPACITY {
                self.cut = true;
                break;
            }
            self.bytes[self.len as usize] = *byte;
            self.len += 1;
            more = rest;
        }
        self
    }
}

impl fmt::Display for Name {
    /// Writes the name. Characters that could change how a terminal or log shows the rest of the line are escaped, for
    /// example as `\u{1b}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_deceptive(c) { write_escaped(f, c)? } else { f.write_char(c)? }
            }
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        if self.cut { f.write_str("…") } else { Ok(()) }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// True for control characters, line ends, invisible characters, and characters that change the direction of text
/// ([Trojan Source](https://trojansource.codes/)).
const fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Writes the code of `c` in Rust's notation, such as `\u{1b}`.
fn write_escaped(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    f.write_str("\\u{")?;
    let digits = (1..6).rev().skip_while(|digit| c as u32 >> (4 * digit) == 0).chain([0]);
    for digit in digits {
        f.write_char(char::from_digit(c as u32 >> (4 * digit) & 15, 16).unwrap_or('?'))?;
    }
    f.write_char('}')
}

/// Decimal digits of a number. `core::fmt` is not used, because then the compiler proves the absence of panics only at
/// its highest optimization level.
pub(crate) struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    pub const fn of(number: u64) -> Self {
        let mut bytes = [0; 20];
        let mut start = bytes.len();
        let mut free = bytes.as_mut_slice();
        let (mut high, mut low) = ((number >> 32) as u32, number as u32);
        while let Some((last, before)) = free.split_last_mut() {
            // Divides by ten in three steps (the upper 32 bits, then 16 bits twice), because 64-bit division is 512
            // bytes of code on 32-bit processors.
            let middle = ((high % 10) << 16) | (low >> 16);
            let lowest = ((middle % 10) << 16) | (low & 0xffff);
            (high, low) = (high / 10, ((middle / 10) << 16) | (lowest / 10));
            *last = b'0' + (lowest % 10) as u8;
            start -= 1;
            if high | low == 0 {
                break;
            }
            free = before;
        }
        Self { bytes, start }
    }

    pub const fn bytes(&self) -> &[u8] {
        match self.bytes.split_at_checked(self.start) {
            Some((_, digits)) => digits,
            None => &[],
        }
    }
}

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(self.bytes()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let shown = |name: &str| Name::new(name.as_bytes()).to_string();
        assert_eq!(shown("\x1b[2Jblk\r\n\0"), "\\u{1b}[2Jblk\\u{d}\\u{a}\\u{0}");
        assert_eq!(
            shown("a\u{202e}b\u{2066}c\u{200b}\u{9b}\u{e0041}"),
            "a\\u{202e}b\\u{2066}c\\u{200b}\\u{9b}\\u{e0041}"
        );
        assert_eq!(shown("blk.0.ночь.重み é"), "blk.0.ночь.重み é");
        assert_eq!(Name::new(b"a\xffb\xe2\x80").to_string(), "a\u{fffd}b\u{fffd}");
        // Tests names of a single character, for every character, and then a long name, which is cut at the end.
        for c in '\0'..=char::MAX {
            let text = shown(c.encode_utf8(&mut [0; 4]));
            assert!(!text.chars().any(|c| c.is_control()), "{text:?}");
            assert_eq!(text.starts_with('\\') && text.len() > 1, is_deceptive(c), "{text:?}");
        }
        let long = shown(&"\u{202e}".repeat(40));
        assert!(long.ends_with("…") && !long.contains('\u{202e}'), "{long}");
    }

    #[test]
    fn digits() {
        for number in
            [0, 9, 10, 65535, 65536, 655359, 655360, 1234567890, u32::MAX as u64 + 1, 0x9999_0000_ffff, u64::MAX]
        {
            assert_eq!(Digits::of(number).to_string(), number.to_string());
        }
    }
}
