//! Reads little-endian fields in `const fn` and without panics.
//!
//! The compiler counts calls and loop iterations while it evaluates a constant, and complains after two million
//! (`long_running_const_eval`). Splitting a slice costs a dozen calls in the library. Code that runs for every key or
//! tensor of every look-up therefore uses indices instead. A check precedes each index, which lets the optimizer drop
//! the bounds check.

use crate::{Error, tri};

/// Reads the little-endian `u32` at `$data[$at]` without a function call. The caller has checked that `$at <=
/// $data.len() - 4`.
macro_rules! u32_at {
    ($data:expr, $at:expr) => {
        $data[$at] as u32 | ($data[$at + 1] as u32) << 8 | ($data[$at + 2] as u32) << 16 | ($data[$at + 3] as u32) << 24
    };
}
pub(super) use u32_at;

/// A cursor over the file. A read returns exactly the requested bytes, or an error that names the truncated field.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    data: &'a [u8],
    /// At most `data.len()`.
    at: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader that starts at byte `at` of `data`. If `at` is past the end, the reader is empty.
    pub(super) const fn new(data: &'a [u8], at: usize) -> Self {
        Self { data, at: if at <= data.len() { at } else { data.len() } }
    }

    /// Byte offset of the next read.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Number of bytes left.
    pub(super) const fn left(&self) -> u64 {
        self.data.len() as u64 - self.at as u64
    }

    /// The bytes left.
    pub(super) const fn rest(&self) -> &'a [u8] {
        match self.data.split_at_checked(self.at) {
            Some((_, rest)) => rest,
            None => &[],
        }
    }

    /// Skips `count` bytes. `count` comes from the file and may be any number.
    pub(super) const fn skip(&mut self, count: u64, what: &'static str) -> Result<(), Error> {
        if count > self.left() {
            return Err(self.truncated(what));
        }
        self.at += count as usize;
        Ok(())
    }

    /// Returns the next `count` bytes.
    pub(super) const fn bytes(&mut self, count: u64, what: &'static str) -> Result<&'a [u8], Error> {
        let rest = self.rest();
        tri!(self.skip(count, what));
        match rest.split_at_checked(count as usize) {
            Some((bytes, _)) => Ok(bytes),
            None => Err(self.truncated(what)), // unreachable: `skip` has checked it
        }
    }

    pub(super) const fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        let (data, at, len) = (self.data, self.at, self.data.len());
        if len < 4 || at > len - 4 {
            return Err(self.truncated(what));
        }
        self.at = at + 4;
        Ok(u32_at!(data, at))
    }

    pub(super) const fn u64(&mut self, what: &'static str) -> Result<u64, Error> {
        if self.left() < 8 {
            return Err(self.truncated(what));
        }
        let low = tri!(self.u32(what));
        let high = tri!(self.u32(what));
        Ok(low as u64 | (high as u64) << 32)
    }

    /// Reads the length of a string and checks that the string's bytes are in the file.
    pub(super) const fn string_len(&mut self, what: &'static str) -> Result<usize, Error> {
        let start = *self;
        let len = tri!(self.u64(what));
        if len > self.left() {
            *self = start;
            return Err(self.truncated(what));
        }
        Ok(len as usize)
    }

    /// Reads a string: its length in bytes as a `u64`, then the bytes. The encoding is not checked.
    pub(super) const fn string(&mut self, what: &'static str) -> Result<&'a [u8], Error> {
        let len = tri!(self.string_len(what));
        self.bytes(len as u64, what)
    }

    /// True if the next bytes equal `expected`.
    pub(super) const fn starts_with(&self, expected: &[u8]) -> bool {
        let (data, len, expected_len) = (self.data, self.data.len(), expected.len());
        let (mut at, mut i) = (self.at, 0);
        while i < expected_len {
            if at >= len || data[at] != expected[i] {
                return false;
            }
            at += 1;
            i += 1;
        }
        true
    }

    /// Skips the next bytes if they equal `expected`.
    pub(super) const fn eat(&mut self, expected: &[u8]) -> bool {
        self.starts_with(expected) && self.skip(expected.len() as u64, "").is_ok()
    }

    const fn truncated(&self, what: &'static str) -> Error {
        Error::Truncated { what, at: self.at as u64 }
    }
}

/// Splits a length-prefixed string off the front of an array of strings.
pub(super) const fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader::new(bytes, 0);
    match reader.string("") {
        Ok(string) => Some((string, reader.rest())),
        Err(_) => None,
    }
}

/// `==` for bytes, as a `const fn`.
pub(crate) const fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && Reader::new(a, 0).starts_with(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_of_bytes() {
        let text = b"the quick brown fox jumps";
        for i in 0..=text.len() {
            for j in 0..=text.len() {
                assert_eq!(equal(&text[..i], &text[..j]), i == j);
            }
            let mut other = *text;
            if i < text.len() {
                other[i] ^= 1;
                assert!(!equal(text, &other));
            }
        }
    }

    #[test]
    fn a_string_longer_than_the_rest_is_truncated() {
        let mut bytes = [0xff; 12];
        assert!(split_string(&bytes).is_none());
        bytes[..8].copy_from_slice(&5u64.to_le_bytes());
        assert!(split_string(&bytes).is_none());
        bytes[..8].copy_from_slice(&4u64.to_le_bytes());
        assert_eq!(split_string(&bytes), Some((&[0xff; 4][..], &[][..])));
        let mut reader = Reader::new(&bytes, 5);
        assert_eq!(reader.string("a thing"), Err(Error::Truncated { what: "a thing", at: 5 }));
        assert_eq!((reader.at(), reader.left()), (5, 7));
        assert_eq!(Reader::new(&bytes, 13).u32("a number"), Err(Error::Truncated { what: "a number", at: 12 }));
    }

    /// Tests every read at every offset of files of every length.
    #[test]
    fn reads_stay_within_the_file() {
        let bytes: [u8; 12] = core::array::from_fn(|i| i as u8 + 0xe9);
        for (len, at) in (0..=12).flat_map(|len| (0..=13).map(move |at| (len, at))) {
            let (data, start) = (&bytes[..len], at.min(len));
            let reader = Reader::new(data, at);
            let rest = &data[start..];
            assert_eq!((reader.at(), reader.left(), reader.rest()), (start, rest.len() as u64, rest));
            let cut = Error::Truncated { what: "it", at: start as u64 };

            let mut read = reader;
            assert_eq!(read.u32("it"), rest.first_chunk().map(|four| u32::from_le_bytes(*four)).ok_or(cut));
            assert_eq!(read.at(), start + if rest.len() < 4 { 0 } else { 4 });
            let mut read = reader;
            assert_eq!(read.u64("it"), rest.first_chunk().map(|eight| u64::from_le_bytes(*eight)).ok_or(cut));
            assert_eq!(read.at(), start + if rest.len() < 8 { 0 } else { 8 });
            for count in 0..=13 {
                let (mut read, mut skipped, mut eaten) = (reader, reader, reader);
                let expected = rest.get(..count);
                assert_eq!(read.bytes(count as u64, "it"), expected.ok_or(cut));
                assert_eq!(skipped.skip(count as u64, "it").is_ok(), expected.is_some());
                let after = start + if expected.is_some() { count } else { 0 };
                assert_eq!((read.at(), skipped.at()), (after, after));
                let next = bytes.get(start..start + count).unwrap_or(&[0; 14]);
                assert_eq!((reader.starts_with(next), eaten.eat(next)), (expected.is_some(), expected.is_some()));
                assert_eq!(eaten.at(), after);
            }
        }
        assert!(Reader::new(&bytes, 3).skip(u64::MAX, "it").is_err());
    }
}
