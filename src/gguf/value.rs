//! Metadata values: a number, a string, or an array of numbers or strings.

use core::fmt;

use super::reader::{equal, split_string, u32_at};
use crate::{Error, Name};

/// Type of a metadata value, numbered as in the file (`gguf_metadata_value_type` in the
/// [specification](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueType {
    /// An 8-bit unsigned integer.
    U8 = 0,
    /// An 8-bit signed integer.
    I8 = 1,
    /// A 16-bit unsigned integer.
    U16 = 2,
    /// A 16-bit signed integer.
    I16 = 3,
    /// A 32-bit unsigned integer.
    U32 = 4,
    /// A 32-bit signed integer.
    I32 = 5,
    /// A 32-bit float.
    F32 = 6,
    /// A boolean in one byte; as in llama.cpp, any value but 0 is true.
    Bool = 7,
    /// A string: its length in bytes (`u64`), then the bytes.
    Str = 8,
    /// An array: the type of its elements, their number (`u64`), then the elements.
    Array = 9,
    /// A 64-bit unsigned integer.
    U64 = 10,
    /// A 64-bit signed integer.
    I64 = 11,
    /// A 64-bit float.
    F64 = 12,
}

impl ValueType {
    /// Returns the type with this number.
    pub const fn from_id(id: u32) -> Option<Self> {
        use ValueType::*;
        Some(match id {
            0 => U8,
            1 => I8,
            2 => U16,
            3 => I16,
            4 => U32,
            5 => I32,
            6 => F32,
            7 => Bool,
            8 => Str,
            9 => Array,
            10 => U64,
            11 => I64,
            12 => F64,
            _ => return None,
        })
    }

    /// Size in bytes of one value; `None` for strings and arrays, which have no fixed size.
    pub const fn size(self) -> Option<usize> {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => Some(1),
            U16 | I16 => Some(2),
            U32 | I32 | F32 => Some(4),
            U64 | I64 | F64 => Some(8),
            Str | Array => None,
        }
    }
}

/// The error for a key `prefix.name` whose value is not of the expected type.
#[cold]
#[inline(never)] // once instead of in every getter
const fn wrong_type(prefix: &str, name: &str, expected: &'static str) -> Error {
    Error::KeyType { key: Name::key(prefix, name), expected }
}

/// A metadata value. Strings are bytes, because vocabularies have tokens that are not UTF-8.
///
/// # Examples
///
/// ```
/// use arenite::{Gguf, gguf::Value};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let Some(Value::U32(layers)) = gguf.get("llama.block_count") else { panic!("not a llama") };
/// let Some(Value::Array(tokens)) = gguf.get("tokenizer.ggml.tokens") else { panic!("no vocabulary") };
/// println!("{layers} layers, {} tokens", tokens.len());
/// assert_eq!(tokens.strings().next_string(), Some(&b"<unk>"[..]));
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // see `ValueType`
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(&'a [u8]),
    Array(Array<'a>),
}

impl<'a> Value<'a> {
    /// The value's type.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F32(_) => ValueType::F32,
            Value::F64(_) => ValueType::F64,
            Value::Bool(_) => ValueType::Bool,
            Value::Str(_) => ValueType::Str,
            Value::Array(_) => ValueType::Array,
        }
    }

    /// Reads a value of fixed size from the front of `bytes`; `None` if `bytes` is too short or `kind` is a string or
    /// array.
    pub(super) const fn scalar(kind: ValueType, bytes: &[u8]) -> Option<Value<'a>> {
        macro_rules! read {
            ($variant:ident, $type:ty) => {
                match bytes.first_chunk() {
                    Some(bytes) => Value::$variant(<$type>::from_le_bytes(*bytes)),
                    None => return None,
                }
            };
        }
        Some(match kind {
            ValueType::U8 => read!(U8, u8),
            ValueType::I8 => read!(I8, i8),
            ValueType::U16 => read!(U16, u16),
            ValueType::I16 => read!(I16, i16),
            ValueType::U32 => read!(U32, u32),
            ValueType::I32 => read!(I32, i32),
            ValueType::U64 => read!(U64, u64),
            ValueType::I64 => read!(I64, i64),
            ValueType::F32 => read!(F32, f32),
            ValueType::F64 => read!(F64, f64),
            ValueType::Bool => match bytes.first() {
                Some(byte) => Value::Bool(*byte != 0),
                None => return None,
            },
            ValueType::Str | ValueType::Array => return None,
        })
    }

    /// The value as an integer, if it is an integer of any width and sign that fits in an `i64`.
    pub(crate) const fn integer(&self) -> Option<i64> {
        Some(match *self {
            Value::U8(v) => v as i64,
            Value::I8(v) => v as i64,
            Value::U16(v) => v as i64,
            Value::I16(v) => v as i64,
            Value::U32(v) => v as i64,
            Value::I32(v) => v as i64,
            Value::U64(v) if v <= i64::MAX as u64 => v as i64,
            Value::I64(v) => v,
            _ => return None,
        })
    }

    /// The value as a `u32`, if it is an integer of any type that fits. Errors name the key `prefix.name`.
    pub(crate) const fn u32(&self, prefix: &str, name: &str) -> Result<u32, Error> {
        if !self.is_integer() {
            return Err(wrong_type(prefix, name, "an integer"));
        }
        match self.integer() {
            Some(value) if value >= 0 && value <= u32::MAX as i64 => Ok(value as u32),
            _ => Err(Error::KeyValue { key: Name::key(prefix, name), why: "must be from 0 to 4294967295" }),
        }
    }

    /// The value of a float.
    pub(crate) const fn f32(&self, prefix: &str, name: &str) -> Result<f32, Error> {
        match *self {
            Value::F32(value) => Ok(value),
            Value::F64(value) => Ok(value as f32),
            _ => Err(wrong_type(prefix, name, "a float")),
        }
    }

    /// The value of a boolean.
    pub(crate) const fn bool(&self, prefix: &str, name: &str) -> Result<bool, Error> {
        match *self {
            Value::Bool(value) => Ok(value),
            _ => Err(wrong_type(prefix, name, "a boolean")),
        }
    }

    /// The bytes of a string.
    pub(crate) const fn str(&self, prefix: &str, name: &str) -> Result<&'a [u8], Error> {
        match *self {
            Value::Str(value) => Ok(value),
            _ => Err(wrong_type(prefix, name, "a string")),
        }
    }

    /// The elements of an array.
    pub(crate) const fn array(&self, prefix: &str, name: &str) -> Result<Array<'a>, Error> {
        match *self {
            Value::Array(value) => Ok(value),
            _ => Err(wrong_type(prefix, name, "an array")),
        }
    }

    /// True if the value has one of the eight integer types.
    pub(super) const fn is_integer(&self) -> bool {
        use Value::*;
        matches!(self, U8(_) | I8(_) | U16(_) | I16(_) | U32(_) | I32(_) | U64(_) | I64(_))
    }
}

/// An array in the metadata. Its elements stay in the file.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    element: ValueType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// An array of `len` elements; the caller has checked that the elements fill `bytes` exactly.
    pub(super) const fn new(element: ValueType, len: usize, bytes: &'a [u8]) -> Self {
        Self { element, len, bytes }
    }

    /// The type of the elements, never [`ValueType::Array`].
    pub const fn element(&self) -> ValueType {
        self.element
    }

    /// Number of elements.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the array has no elements.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as stored in the file: little-endian, of any alignment; strings include their lengths.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Element `i` of an array of numbers or booleans; `None` past the end and for strings.
    pub const fn get(&self, i: usize) -> Option<Value<'a>> {
        let Some(size) = self.element.size() else { return None };
        let Some(start) = i.checked_mul(size) else { return None };
        match self.bytes.split_at_checked(start) {
            Some((_, bytes)) => Value::scalar(self.element, bytes),
            None => None,
        }
    }

    /// Returns the value of all elements if their bytes are equal. `None` if they differ, if the array is empty, or if
    /// the elements are strings.
    pub(crate) const fn same(&self) -> Option<Value<'a>> {
        let Some(size) = self.element.size() else { return None };
        let Some((first, mut rest)) = self.bytes.split_at_checked(size) else { return None };
        while let Some((next, after)) = rest.split_at_checked(size) {
            if !equal(first, next) {
                return None;
            }
            rest = after;
        }
        self.get(0)
    }

    /// Element `i` of an array of any number type, as a float.
    ///
    /// Integers and 64-bit floats are rounded to the nearest `f32`; booleans give 0 and 1. `None` past the end and for
    /// strings.
    pub const fn get_f32(&self, i: usize) -> Option<f32> {
        Some(match self.get(i) {
            Some(Value::F32(v)) => v,
            Some(Value::F64(v)) => v as f32,
            Some(Value::U64(v)) => v as f32,
            Some(Value::Bool(v)) => v as u8 as f32,
            Some(value) => match value.integer() {
                Some(v) => v as f32,
                None => return None,
            },
            None => return None,
        })
    }

    /// Element `i` of an array of any number type, as an integer.
    ///
    /// Booleans give 0 and 1. `None` past the end, for strings, and for numbers that an `i32` cannot hold exactly
    /// (3 000 000 000, 0.5).
    pub const fn get_i32(&self, i: usize) -> Option<i32> {
        match self.get(i) {
            Some(Value::Bool(v)) => Some(v as i32),
            Some(Value::F32(v)) => whole(v as f64),
            Some(Value::F64(v)) => whole(v),
            Some(value) => match value.integer() {
                Some(v) if v as i32 as i64 == v => Some(v as i32),
                _ => None,
            },
            None => None,
        }
    }

    /// Iterates over the strings; empty if the elements are not strings.
    pub const fn strings(&self) -> Strings<'a> {
        let left = if matches!(self.element, ValueType::Str) { self.len } else { 0 };
        Strings { rest: self.bytes, left, total: self.bytes.len() }
    }

    /// The string that starts at `byte_offset` within [`bytes`](Self::bytes). Offsets from [`Strings::offset`] thus
    /// give random access.
    ///
    /// Any other offset returns an empty string or unrelated bytes of the array, without a panic.
    pub const fn string_at(&self, byte_offset: usize) -> &'a [u8] {
        let rest = match self.bytes.split_at_checked(byte_offset) {
            Some((_, rest)) if matches!(self.element, ValueType::Str) => rest,
            _ => return &[],
        };
        match split_string(rest) {
            Some((string, _)) => string,
            None => &[],
        }
    }
}

/// Converts a float to an integer. `None` if the float is not a whole number or does not fit in an `i32`.
const fn whole(value: f64) -> Option<i32> {
    let whole = value as i32; // saturates; NaN gives 0
    if whole as f64 == value { Some(whole) } else { None }
}

impl fmt::Debug for Array<'_> {
    /// Prints only the type and the length, because the strings of a vocabulary would fill the screen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:?}; {}]", self.element, self.len)
    }
}

/// Iterator over the strings of an [`Array`].
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a> {
    rest: &'a [u8],
    left: usize,
    total: usize,
}

impl<'a> Strings<'a> {
    /// Returns the next string; like [`Iterator::next`], but also works in `const fn`.
    pub const fn next_string(&mut self) -> Option<&'a [u8]> {
        let Some(left) = self.left.checked_sub(1) else { return None };
        let Some((string, rest)) = split_string(self.rest) else { return None };
        self.left = left;
        self.rest = rest;
        Some(string)
    }

    /// Byte offset, within [`Array::bytes`], of the next string.
    pub const fn offset(&self) -> usize {
        self.total.saturating_sub(self.rest.len())
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.next_string()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Strings<'_> {}

/// The bytes of `count` strings at the front of `bytes`; `Err` has the offset of the first truncated string.
///
/// This loop runs once per vocabulary entry. The loop makes no calls, because the compiler counts calls while it
/// evaluates a constant, and complains after two million.
pub(super) const fn split_strings(bytes: &[u8], count: u64) -> Result<&[u8], usize> {
    let len = bytes.len();
    let (mut at, mut i) = (0, 0);
    while i < count {
        if len < 8 || at > len - 8 {
            return Err(at);
        }
        let low = u32_at!(bytes, at);
        let high = u32_at!(bytes, at + 4);
        // A nonzero `high` is refused, because such a string has at least 4 GiB: a 32-bit slice cannot hold it, and no
        // token or merge is that long. `low` fits in a `usize` on every target.
        if high != 0 || low as usize > len - 8 - at {
            return Err(at);
        }
        at += 8 + low as usize;
        i += 1;
    }
    match bytes.split_at_checked(at) {
        Some((strings, _)) => Ok(strings),
        None => Err(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_other_types_are_widened() {
        let array = Array::new(ValueType::I16, 2, &[0xff, 0xff, 7, 0]);
        assert_eq!(array.get_i32(0), Some(-1));
        assert_eq!(array.get_f32(1), Some(7.0));
        assert_eq!(array.get_i32(2), None);
        assert_eq!(array.get_i32(usize::MAX), None);
        assert_eq!([array.get_f32(2), array.get_f32(3), array.get_f32(usize::MAX)], [None; 3]);

        let bools = Array::new(ValueType::Bool, 3, &[0, 1, 2]);
        assert_eq!([bools.get_i32(0), bools.get_i32(1), bools.get_i32(2)], [Some(0), Some(1), Some(1)]);
        assert_eq!(bools.get_f32(1), Some(1.0));

        let large = u32::MAX.to_le_bytes();
        assert_eq!(Array::new(ValueType::U32, 1, &large).get_i32(0), None);
        assert_eq!(Array::new(ValueType::U32, 1, &large).get_f32(0), Some(4294967296.0));
        assert_eq!(Array::new(ValueType::I32, 1, &large).get_i32(0), Some(-1));
        let largest = u64::MAX.to_le_bytes();
        assert_eq!(Array::new(ValueType::U64, 1, &largest).get_f32(0), Some(18446744073709551616.0));
        assert_eq!(Array::new(ValueType::U64, 1, &largest).get_i32(0), None);

        for (value, expected) in [(3.0f32, Some(3)), (-2.0, Some(-2)), (0.5, None), (3e9, None), (f32::NAN, None)] {
            let bytes = value.to_le_bytes();
            assert_eq!(Array::new(ValueType::F32, 1, &bytes).get_i32(0), expected);
        }
        let bytes = (-2147483648.0f64).to_le_bytes();
        assert_eq!(Array::new(ValueType::F64, 1, &bytes).get_i32(0), Some(i32::MIN));
    }

    #[test]
    fn strings_in_order_and_by_offset() {
        let bytes = b"\x02\0\0\0\0\0\0\0ab\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0c";
        let array = Array::new(ValueType::Str, 3, bytes);
        let mut strings = array.strings();
        let mut seen = 0;
        loop {
            let offset = strings.offset();
            let Some(string) = strings.next_string() else { break };
            assert_eq!(array.string_at(offset), string);
            assert_eq!(string, [&b"ab"[..], b"", b"c"][seen]);
            seen += 1;
        }
        assert_eq!((seen, strings.offset()), (3, bytes.len()));
        assert_eq!(array.strings().len(), 3);
        for offset in [1, 9, bytes.len(), bytes.len() + 1, usize::MAX] {
            let _ = array.string_at(offset);
        }
        assert_eq!((array.get_i32(0), array.get_f32(0)), (None, None));
        assert_eq!(Array::new(ValueType::U8, 9, b"\x01\0\0\0\0\0\0\0a").string_at(0), b"");
        assert!(Array::new(ValueType::U8, 9, b"\x01\0\0\0\0\0\0\0a").strings().next().is_none());
    }

    #[test]
    fn arrays_of_strings_that_are_cut() {
        // Strings "ab", "" and "c" end at 10, 18 and 27.
        let bytes = b"\x02\0\0\0\0\0\0\0ab\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0c";
        let ends = [0, 10, 18, 27];
        for cut in 0..=bytes.len() {
            for count in 0..=4 {
                let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
                let expected = if whole >= count { Ok(&bytes[..ends[count]]) } else { Err(ends[whole]) };
                assert_eq!(split_strings(&bytes[..cut], count as u64), expected, "{count} of {cut} bytes");
                let strings = Array::new(ValueType::Str, count, &bytes[..cut]).strings();
                assert_eq!((strings.size_hint().0, strings.count()), (count, whole.min(count)));
            }
        }
        assert_eq!(split_strings(&[0; 8], 1), Ok(&[0; 8][..]));
        let [none, one] = [0, 1].map(|len| Array::new(ValueType::Str, len, &[0; 8]).is_empty());
        assert!(none && !one);
        for (at, byte) in [(4, 1), (7, 1), (3, 1), (1, 1)] {
            let mut long = *bytes;
            long[at] = byte;
            assert_eq!(split_strings(&long, 3), Err(0), "byte {at} of a length");
        }
    }

    #[test]
    fn types_and_their_sizes() {
        let sizes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
        for id in 0..sizes.len() as u32 + 3 {
            let Some(kind) = ValueType::from_id(id) else {
                assert!(id as usize >= sizes.len());
                continue;
            };
            let size = sizes[id as usize];
            assert_eq!((kind as u32, kind.size()), (id, (size > 0).then_some(size)));
            for given in 0..=8 {
                let value = Value::scalar(kind, &[1; 8][..given]);
                assert_eq!(value.map(|value| value.value_type()), (size > 0 && given >= size).then_some(kind));
                if let Some(value) = value {
                    let is_integer = !matches!(kind, ValueType::F32 | ValueType::F64 | ValueType::Bool);
                    let ones = 0x0101_0101_0101_0101u64 & (u64::MAX >> (64 - 8 * size));
                    assert_eq!((value.is_integer(), value.integer()), (is_integer, is_integer.then_some(ones as i64)));
                }
            }
        }
        for (value, expected) in [(i64::MAX as u64, Some(i64::MAX)), (1 << 63, None), (u64::MAX, None)] {
            assert_eq!(Value::U64(value).integer(), expected);
        }
    }
}
