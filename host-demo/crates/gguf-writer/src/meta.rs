//! Encoded metadata values.

use arenite::gguf::{Array, Value, ValueType};

/// An encoded metadata value: the type's number, then the value's bytes. `From` converts a Rust value of the same
/// type (`5u32`, `"text"`) and a [`Value`] or an [`Array`] read from another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta(pub(crate) Vec<u8>);

impl Meta {
    fn new(kind: ValueType) -> Self {
        Self((kind as u32).to_le_bytes().to_vec())
    }

    /// Encodes an array of numbers or booleans.
    pub fn array<T: Scalar>(values: impl IntoIterator<Item = T>) -> Self {
        let mut bytes = Vec::new();
        let mut len = 0;
        for value in values {
            value.put(&mut bytes);
            len += 1;
        }
        Self::elements(T::KIND, len, &bytes)
    }

    /// Encodes an array of strings, which may hold any bytes.
    pub fn strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Self {
        let mut bytes = Vec::new();
        let mut len = 0;
        for string in strings {
            put_string(&mut bytes, string.as_ref());
            len += 1;
        }
        Self::elements(ValueType::Str, len, &bytes)
    }

    /// An array of `len` elements of type `kind` whose encoding is `bytes`.
    pub fn raw_array(kind: ValueType, len: usize, bytes: &[u8]) -> Self {
        Self::elements(kind, len as u64, bytes)
    }

    fn elements(kind: ValueType, len: u64, bytes: &[u8]) -> Self {
        let mut meta = Self::new(ValueType::Array);
        meta.0.extend((kind as u32).to_le_bytes());
        meta.0.extend(len.to_le_bytes());
        meta.0.extend(bytes);
        meta
    }
}

/// A Rust type that GGUF can store.
pub trait Scalar {
    /// The GGUF type.
    const KIND: ValueType;
    /// Appends the value's bytes to `out`.
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! scalars {
    ($($type:ty = $kind:ident),*) => {$(
        impl Scalar for $type {
            const KIND: ValueType = ValueType::$kind;
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
        impl From<$type> for Meta {
            fn from(value: $type) -> Self {
                let mut meta = Meta::new(<$type>::KIND);
                value.put(&mut meta.0);
                meta
            }
        }
    )*};
}
scalars!(u8 = U8, i8 = I8, u16 = U16, i16 = I16, u32 = U32, i32 = I32, u64 = U64, i64 = I64, f32 = F32, f64 = F64);

impl Scalar for bool {
    const KIND: ValueType = ValueType::Bool;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl From<bool> for Meta {
    fn from(value: bool) -> Self {
        let mut meta = Meta::new(ValueType::Bool);
        value.put(&mut meta.0);
        meta
    }
}

impl From<&[u8]> for Meta {
    fn from(string: &[u8]) -> Self {
        let mut meta = Meta::new(ValueType::Str);
        put_string(&mut meta.0, string);
        meta
    }
}

impl From<&str> for Meta {
    fn from(string: &str) -> Self {
        string.as_bytes().into()
    }
}

impl From<Array<'_>> for Meta {
    fn from(array: Array<'_>) -> Self {
        Self::elements(array.element(), array.len() as u64, array.bytes())
    }
}

impl From<Value<'_>> for Meta {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            Value::F32(v) => v.into(),
            Value::F64(v) => v.into(),
            Value::Bool(v) => v.into(),
            Value::Str(v) => v.into(),
            Value::Array(v) => v.into(),
        }
    }
}

pub(crate) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend(string);
}
