//! Text put together by the compiler, for a `panic!` in a `const`: there is no `format!` there.

use core::fmt;

use crate::{Error, Name};

/// The decimal digits of a number. (That a number can be formatted without a panic, the compiler sees at its
/// highest level only.)
pub(crate) struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    pub const fn of(mut number: u64) -> Self {
        let mut bytes = [0; 20];
        let mut start = bytes.len();
        let mut free = bytes.as_mut_slice();
        while let Some((last, before)) = free.split_last_mut() {
            *last = b'0' + (number % 10) as u8;
            number /= 10;
            start -= 1;
            if number == 0 {
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

/// A line of text, cut at its capacity.
pub(crate) struct Message {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl Message {
    const CAPACITY: usize = 192;

    pub const fn new(text: &str) -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }.text(text)
    }

    pub const fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub const fn number(self, number: u64) -> Self {
        self.bytes(Digits::of(number).bytes())
    }

    const fn name(self, name: &Name) -> Self {
        self.bytes(name.bytes())
    }

    const fn bytes(mut self, mut bytes: &[u8]) -> Self {
        while let Some((byte, rest)) = bytes.split_first()
            && self.len < Self::CAPACITY
        {
            self.bytes[self.len] = *byte;
            self.len += 1;
            bytes = rest;
        }
        self
    }

    /// The text; names from a damaged file may spoil it.
    pub const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "a name in the file is not UTF-8",
        }
    }

    /// What is wrong with a model file, as far as reading its structure and its metadata tells.
    pub const fn of(error: &Error) -> Self {
        use Error::*;
        match error {
            NotGguf => Self::new("the file is not a GGUF file"),
            Truncated { what, at } => Self::new("the file ends inside ").text(what).text(" at byte ").number(*at),
            TooMany { what, .. } => Self::new("the file is cut short or damaged: it counts too many ").text(what),
            TensorData { tensor, .. } => Self::new("the file is cut short: it ends before the end of ").name(tensor),
            BigEndian => Self::new("the file is big-endian"),
            Version { version } => Self::new("the file has GGUF version ").number(*version as u64),
            MissingKey { key } => Self::new("the metadata key ").name(key).text(" is missing"),
            KeyType { key, expected } => Self::new("the metadata key ").name(key).text(" must hold ").text(expected),
            KeyValue { key, why } => Self::new("the metadata key ").name(key).text(" ").text(why),
            Unsupported { what, name } => Self::new("the ").text(what).text(" ").name(name).text(" is not supported"),
            MissingTensor { tensor } => Self::new("the tensor ").name(tensor).text(" is missing"),
            PlanTooLarge => {
                Self::new("the plan needs more memory than can be addressed: take a smaller context or batch")
            }
            _ => Self::new("the model file is damaged: `arenite inspect` says where"),
        }
    }
}
