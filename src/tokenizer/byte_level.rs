//! The alphabet of byte-level BPE: every byte as a printable character, so that a vocabulary is text. Source: GPT-2's
//! `bytes_to_unicode`.
//!
//! Printable bytes map to the same code in Latin-1; the other 68 bytes map, in order, to U+0100 and the following code
//! points.

/// Decodes the first character of `bytes` to the byte that it represents; also returns the character's length in UTF-8.
/// `None` if `bytes` does not start with a character of the alphabet.
#[inline]
pub(super) const fn first_byte(bytes: &[u8]) -> Option<(u8, usize)> {
    match *bytes {
        [a @ b'!'..=b'~', ..] => Some((a, 1)),
        // U+00A1..U+00FF without the soft hyphen.
        [0xc2, b @ 0xa1..=0xbf, ..] if b != 0xad => Some((b, 2)),
        [0xc3, b @ 0x80..=0xbf, ..] => Some((b + 0x40, 2)),
        // U+0100..U+0143: bytes that are not printable.
        [0xc4, b @ 0x80..=0xa0, ..] => Some((b - 0x80, 2)),
        [0xc4, b @ 0xa1..=0xbf, ..] => Some((b - 0xa1 + 0x7f, 2)),
        [0xc5, b @ 0x80..=0x82, ..] => Some((b - 0x80 + 0x9e, 2)),
        [0xc5, 0x83, ..] => Some((0xad, 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{string::ToString, vec::Vec};

    use super::*;

    /// The table as computed by GPT-2's code.
    fn table() -> Vec<char> {
        let prints = |b: u32| (0x21..=0x7e).contains(&b) || (0xa1..=0xac).contains(&b) || (0xae..=0xff).contains(&b);
        let mut next = 256;
        (0..256)
            .map(|b| {
                let code = if prints(b) {
                    b
                } else {
                    next += 1;
                    next - 1
                };
                char::from_u32(code).unwrap()
            })
            .collect()
    }

    #[test]
    fn every_byte_and_nothing_else() {
        let table = table();
        for (byte, char) in table.iter().enumerate() {
            let utf8 = char.to_string();
            assert_eq!(first_byte(utf8.as_bytes()), Some((byte as u8, utf8.len())), "{char}");
        }
        for char in (0..0x3000).filter_map(char::from_u32).filter(|c| !table.contains(c)) {
            assert_eq!(first_byte(char.to_string().as_bytes()), None, "{char:?}");
        }
        assert_eq!(first_byte(b""), None);
        assert_eq!(first_byte(b"\xc4"), None);
        assert_eq!(first_byte(b"\xff"), None);
    }
}
