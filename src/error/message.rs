//! The sentences of errors as data. So they can be formatted at run time, and also at compile time for a `panic!` in a
//! `const`, where `format!` is not available.

use core::fmt;

use super::name::{Digits, Name};
use crate::quant::TensorType;

/// What is inserted for a `{}` in a sentence. It refers to a field of the error instead of copying it, to keep the code
/// small.
#[derive(Clone, Copy)]
pub(super) enum Piece<'e> {
    None,
    Text(&'e &'static str),
    Number(&'e u64),
    Size(&'e usize),
    Small(&'e u32),
    /// A number that may be negative.
    Signed(&'e i64),
    Name(&'e Name),
    /// A tensor's shape, fastest dimension first: `[64, 2, 1, 1]`.
    Shape(&'e [u64; 4]),
    Type(&'e TensorType),
}

/// The sentence of an error: a template, and the pieces of text that replace each `{}` in it.
#[derive(Clone, Copy)]
pub(crate) struct Sentence<'e> {
    pub(super) template: &'static str,
    pub(super) pieces: [Piece<'e>; 4],
}

impl<'e> Sentence<'e> {
    /// Builds a sentence with two numbers.
    pub const fn of(template: &'static str, first: &'e u64, second: &'e u64) -> Self {
        Self { template, pieces: [Piece::Number(first), Piece::Number(second), Piece::None, Piece::None] }
    }

    /// Formats the sentence at compile time.
    pub const fn message(&self) -> Message {
        let mut message = Message { bytes: [0; Message::CAPACITY], len: 0 };
        let (mut rest, mut pieces) = (self.template, self.pieces.as_slice());
        loop {
            let (text, after) = cut(rest);
            message = message.text(text.as_bytes());
            let (Some(after), Some((piece, left))) = (after, pieces.split_first()) else { return message };
            message = match piece {
                Piece::None => return message,
                Piece::Text(text) => message.text(text.as_bytes()),
                Piece::Number(number) => message.text(Digits::of(**number).bytes()),
                Piece::Size(number) => message.text(Digits::of(**number as u64).bytes()),
                Piece::Small(number) => message.text(Digits::of(**number as u64).bytes()),
                Piece::Signed(number) => {
                    message.text(sign(**number).as_bytes()).text(Digits::of(number.unsigned_abs()).bytes())
                }
                Piece::Name(name) => message.name(name),
                Piece::Shape(_) => message.text(b"[...]"),
                Piece::Type(kind) => message.text(b"number ").text(Digits::of(**kind as u64).bytes()),
            };
            (rest, pieces) = (after, left);
        }
    }
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut rest, mut pieces) = (self.template, self.pieces.iter().copied());
        loop {
            let (text, after) = cut(rest);
            f.write_str(text)?;
            let (Some(after), Some(piece)) = (after, pieces.next()) else { return Ok(()) };
            match piece {
                Piece::None => {}
                Piece::Text(text) => f.write_str(text)?,
                Piece::Number(number) => Digits::of(*number).fmt(f)?,
                Piece::Size(number) => Digits::of(*number as u64).fmt(f)?,
                Piece::Small(number) => Digits::of(u64::from(*number)).fmt(f)?,
                Piece::Signed(number) => {
                    f.write_str(sign(*number))?;
                    Digits::of(number.unsigned_abs()).fmt(f)?;
                }
                Piece::Name(name) => name.fmt(f)?,
                Piece::Shape(dims) => {
                    for (i, dim) in dims.iter().enumerate() {
                        f.write_str(if i == 0 { "[" } else { ", " })?;
                        Digits::of(*dim).fmt(f)?;
                    }
                    f.write_str("]")?;
                }
                Piece::Type(kind) => write!(f, "{kind:?}")?,
            }
            rest = after;
        }
    }
}

const fn sign(number: i64) -> &'static str {
    if number < 0 { "-" } else { "" }
}

/// Cuts the template of a sentence at its first `{}`. Returns the text before it, and the text after it if there is a
/// `{}`.
const fn cut(template: &str) -> (&str, Option<&str>) {
    let mut at = 0;
    while let (Some((before, _)), Some((pair, after))) = (template.split_at_checked(at), tail(template, at)) {
        if matches!(pair.as_bytes(), b"{}") {
            return (before, Some(after));
        }
        at += 1;
    }
    (template, None)
}

/// Splits an ASCII text at byte `at`. Returns the two bytes from there on, and the text after these two bytes. `None`
/// if the text is too short.
const fn tail(text: &str, at: usize) -> Option<(&str, &str)> {
    match text.split_at_checked(at) {
        Some((_, rest)) => rest.split_at_checked(2),
        None => None,
    }
}

/// A line of text, truncated at its capacity.
pub(crate) struct Message {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl Message {
    const CAPACITY: usize = 320;

    pub const fn text(mut self, mut bytes: &[u8]) -> Self {
        while let Some((byte, rest)) = bytes.split_first()
            && self.len < Self::CAPACITY
        {
            self.bytes[self.len] = *byte;
            self.len += 1;
            bytes = rest;
        }
        self
    }

    /// Appends a name. Bytes outside printable ASCII become question marks, so that the result is UTF-8 even if it is
    /// cut anywhere, and cannot affect a terminal.
    const fn name(mut self, name: &Name) -> Self {
        let mut bytes = name.bytes();
        while let Some((byte, rest)) = bytes.split_first() {
            self = self.text(&[if matches!(byte, b' '..=b'~') { *byte } else { b'?' }]);
            bytes = rest;
        }
        self
    }

    pub const fn as_str(&self) -> &str {
        let bytes = match self.bytes.split_at_checked(self.len) {
            Some((bytes, _)) => bytes,
            None => &self.bytes,
        };
        match core::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(_) => "", // unreachable: the bytes are ASCII
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn a_sentence_is_the_same_for_the_compiler() {
        let name = Name::new(b"a.key");
        let pieces = [Piece::Name(&name), Piece::Size(&17), Piece::Number(&u64::MAX), Piece::None];
        let sentence = Sentence { template: "the key {} has {} of {}", pieces };
        assert_eq!(sentence.to_string(), "the key a.key has 17 of 18446744073709551615");
        assert_eq!(sentence.message().as_str(), sentence.to_string());
        let name = Name::new("\u{1b}[31m\u{202e}é".as_bytes());
        let sentence = Sentence { template: "{}", pieces: [Piece::Name(&name), Piece::None, Piece::None, Piece::None] };
        assert_eq!(sentence.message().as_str(), "?[31m?????");
    }
}
