//! The metadata: consecutive key-value pairs.
//!
//! A pair is a key (string), a value type (`u32`) and a value. The file has no table of positions, so every look-up
//! walks from the first pair. Only arrays of strings are slow to skip, because their end is known only after the last
//! string; [`Skips`] stores the lengths of the four longest such arrays.

use super::reader::{Reader, equal};
use super::value::{Array, Value, ValueType, split_strings};
use crate::hash::Hash;
use crate::{Error, Name, tri};

const KEY: &str = "a metadata key";
const VALUE: &str = "a metadata value";

/// Longest key in bytes, by the specification.
const LONGEST_KEY: usize = 65535;

/// Lengths of the longest arrays of strings (in practice a vocabulary and its merges).
#[derive(Clone, Copy)]
pub(super) struct Skips {
    /// For each of the longest arrays of strings: the offset of its strings in the file, and their length in bytes. The
    /// length is 0 in an unused entry.
    longest: [(usize, usize); 4],
}

impl Skips {
    pub(super) const NONE: Self = Self { longest: [(0, 0); 4] };

    /// Records an array of strings, which begins at `start` and has `len` bytes. It replaces the shortest array that
    /// was recorded so far, if it is longer.
    const fn note(&mut self, start: usize, len: usize) {
        let [a, b, c, d] = &mut self.longest;
        let ab = if a.1 <= b.1 { a } else { b };
        let cd = if c.1 <= d.1 { c } else { d };
        let shortest = if ab.1 <= cd.1 { ab } else { cd };
        if len > shortest.1 {
            *shortest = (start, len);
        }
    }

    const fn find(&self, start: usize) -> Option<usize> {
        let [a, b, c, d] = self.longest;
        let (_, len) = if a.0 == start {
            a
        } else if b.0 == start {
            b
        } else if c.0 == start {
            c
        } else if d.0 == start {
            d
        } else {
            return None;
        };
        if len == 0 { None } else { Some(len) }
    }
}

/// Reads and checks every pair; returns `general.alignment`, if the file has it, and the [`Skips`].
pub(super) const fn check(reader: &mut Reader<'_>, count: u64) -> Result<(Option<u32>, Skips), Error> {
    let mut skips = Skips::NONE;
    let mut alignment = None;
    let mut i = 0;
    while i < count {
        let at = reader.at() as u64;
        let key = tri!(reader.string(KEY));
        if let Some(why) = key_fault(key) {
            return Err(Error::BadName { what: "metadata key", at, why });
        }
        let value = tri!(read_value(reader, key, &skips));
        if let Value::Array(array) = value
            && matches!(array.element(), ValueType::Str)
        {
            let len = array.bytes().len();
            skips.note(reader.at().saturating_sub(len), len);
        }
        if equal(key, ALIGNMENT_KEY) {
            alignment = Some(tri!(alignment_of(value)));
        }
        i += 1;
    }
    Ok((alignment, skips))
}

const ALIGNMENT_KEY: &[u8] = b"general.alignment";
/// Largest alignment accepted, because larger values could overflow sums. It is larger than any page or flash sector.
const LARGEST_ALIGNMENT: u32 = 1 << 20;

const fn alignment_of(value: Value<'_>) -> Result<u32, Error> {
    let key = Name::new(ALIGNMENT_KEY);
    match value {
        Value::U32(value) if value.is_power_of_two() && value <= LARGEST_ALIGNMENT => Ok(value),
        Value::U32(_) => Err(Error::KeyValue { key, why: "must be a power of two, at most 1048576" }),
        _ => Err(Error::KeyType { key, expected: "a 32-bit unsigned integer" }),
    }
}

const fn key_fault(key: &[u8]) -> Option<&'static str> {
    if key.is_empty() {
        Some("is empty")
    } else if key.len() > LONGEST_KEY {
        Some("is longer than 65535 bytes")
    } else if core::str::from_utf8(key).is_err() {
        Some("is not UTF-8")
    } else {
        None
    }
}

/// Reads the type and value that follow `key`.
const fn read_value<'a>(reader: &mut Reader<'a>, key: &[u8], skips: &Skips) -> Result<Value<'a>, Error> {
    let kind = tri!(read_type(reader, key));
    match kind {
        ValueType::Str => Ok(Value::Str(tri!(reader.string(VALUE)))),
        ValueType::Array => Ok(Value::Array(tri!(read_array(reader, key, skips)))),
        _ => {
            let size = match kind.size() {
                Some(size) => size as u64,
                None => 0,
            };
            let bytes = tri!(reader.bytes(size, VALUE));
            match Value::scalar(kind, bytes) {
                Some(value) => Ok(value),
                // Unreachable: `bytes` has the size of `kind`.
                None => Err(Error::Truncated { what: VALUE, at: reader.at() as u64 }),
            }
        }
    }
}

/// Skips the type and value that follow `key`.
const fn skip_value(reader: &mut Reader<'_>, key: &[u8], skips: &Skips) -> Result<(), Error> {
    let kind = tri!(read_type(reader, key));
    let size = match kind {
        ValueType::Str => tri!(reader.string_len(VALUE)) as u64,
        ValueType::Array => tri!(read_extent(reader, key, skips)).size,
        _ => match kind.size() {
            Some(size) => size as u64,
            None => 0,
        },
    };
    reader.skip(size, VALUE)
}

const fn read_array<'a>(reader: &mut Reader<'a>, key: &[u8], skips: &Skips) -> Result<Array<'a>, Error> {
    let Extent { element, count, size } = tri!(read_extent(reader, key, skips));
    let bytes = tri!(reader.bytes(size, "an array"));
    Ok(Array::new(element, count as usize, bytes)) // count <= bytes.len()
}

/// Element type and extent of an array.
struct Extent {
    element: ValueType,
    count: u64,
    /// Bytes of all elements.
    size: u64,
}

/// Reads the start of an array: the type of its elements, and their number.
const fn read_extent(reader: &mut Reader<'_>, key: &[u8], skips: &Skips) -> Result<Extent, Error> {
    let element = tri!(read_type(reader, key));
    if matches!(element, ValueType::Array) {
        return Err(Error::NestedArray { key: Name::new(key) });
    }
    let at = reader.at();
    let count = tri!(reader.u64("the length of an array"));
    // Size in bytes of the smallest element: a string takes at least the 8 bytes of its length. The check below limits
    // `count` by the size of the file, so that products with `count` cannot overflow.
    let smallest = match element.size() {
        Some(size) => size as u64,
        None => 8,
    };
    // Shifts, because `smallest` is a power of two and a 64-bit division would be 512 bytes of code on 32-bit
    // processors.
    if smallest == 0 || count > reader.left() >> smallest.trailing_zeros() {
        return Err(Error::TooMany { what: "array elements", count, at: at as u64 });
    }
    let start = reader.at();
    let size = match element.size() {
        Some(_) => count * smallest, // at most the bytes left
        None => match skips.find(start) {
            Some(len) => len as u64,
            None => match split_strings(reader.rest(), count) {
                Ok(strings) => strings.len() as u64,
                Err(offset) => {
                    return Err(Error::Truncated { what: "a string in an array", at: (start + offset) as u64 });
                }
            },
        },
    };
    Ok(Extent { element, count, size })
}

const fn read_type(reader: &mut Reader<'_>, key: &[u8]) -> Result<ValueType, Error> {
    let id = tri!(reader.u32("the type of a metadata value"));
    match ValueType::from_id(id) {
        Some(kind) => Ok(kind),
        None => Err(Error::UnknownValueType { key: Name::new(key), id }),
    }
}

/// Iterator over the metadata, in file order.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    reader: Reader<'a>,
    skips: Skips,
    left: u64,
}

impl<'a> Keys<'a> {
    pub(super) const fn new(reader: Reader<'a>, skips: Skips, left: u64) -> Self {
        Self { reader, skips, left }
    }

    // Errors cannot occur below, because `Gguf::parse` has read all pairs without an error.

    /// Returns the next key and value; like [`Iterator::next`], but also works in `const fn`.
    pub const fn next_key(&mut self) -> Option<(&'a str, Value<'a>)> {
        let Some(left) = self.left.checked_sub(1) else { return None };
        self.left = left;
        let Ok(key) = self.reader.string(KEY) else { return None };
        let Ok(value) = read_value(&mut self.reader, key, &self.skips) else { return None };
        match core::str::from_utf8(key) {
            Ok(key) => Some((key, value)),
            Err(_) => None,
        }
    }

    /// Returns the next key and skips its value.
    pub(super) const fn next_name(&mut self) -> Option<&'a [u8]> {
        let Some(left) = self.left.checked_sub(1) else { return None };
        self.left = left;
        let Ok(key) = self.reader.string(KEY) else { return None };
        match skip_value(&mut self.reader, key, &self.skips) {
            Ok(()) => Some(key),
            Err(_) => None,
        }
    }

    /// Feeds the bytes of all metadata entries whose keys satisfy `is_wanted` to `hash`, in the order of the file.
    pub(super) fn hash(mut self, hash: &mut Hash, is_wanted: impl Fn(&[u8]) -> bool) {
        let mut before = self.reader.rest();
        while let Some(key) = self.next_name() {
            let after = self.reader.rest();
            if is_wanted(key) {
                hash.bytes(before.get(..before.len().saturating_sub(after.len())).unwrap_or(before));
            }
            before = after;
        }
    }

    /// Finds the key `prefix.suffix` (`suffix` if the prefix is empty) among the remaining pairs. Returns the pair's
    /// index among the remaining pairs, and the value.
    pub(super) const fn find(mut self, prefix: &[u8], suffix: &[u8]) -> Option<(usize, Value<'a>)> {
        let mut index = 0;
        let dot: &[u8] = if prefix.is_empty() { b"" } else { b"." };
        let wanted = prefix.len() + dot.len() + suffix.len();
        while self.left > 0 {
            self.left -= 1;
            let Ok(len) = self.reader.string_len(KEY) else { return None };
            if len == wanted {
                let mut found = self.reader;
                if found.eat(prefix) && found.eat(dot) && found.eat(suffix) {
                    return match read_value(&mut found, suffix, &self.skips) {
                        Ok(value) => Some((index, value)),
                        Err(_) => None,
                    };
                }
            }
            index += 1;
            if self.reader.skip(len as u64, KEY).is_err() || skip_value(&mut self.reader, b"", &self.skips).is_err() {
                return None;
            }
        }
        None
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_key()
    }
}

impl core::fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Keys").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_arrays_are_skipped() {
        let lens = [5, 9, 0, 3, 7, 1, 8];
        let mut orders = 0;
        for first in 0..lens.len() {
            for step in 1..lens.len() {
                let mut skips = Skips::NONE;
                (0..lens.len())
                    .map(|i| lens[(first + i * step) % lens.len()])
                    .for_each(|len| skips.note(100 + len, len));
                for len in lens {
                    assert_eq!(skips.find(100 + len), (len >= 5).then_some(len), "{first} {step}: {len}");
                }
                assert_eq!(skips.find(99), None);
                orders += 1;
            }
        }
        assert_eq!((orders, Skips::NONE.find(0)), (42, None));
    }
}
