//! Writes GGUF files, including malformed ones.
//!
//! [`Builder::build`] writes a correct file. An override that is `Some`, and [`Meta::Raw`], are written unchanged and
//! make the file wrong in exactly that place.

use arenite::Gguf;
use arenite::gguf::Value;
use arenite::quant::{TensorType, decode_row};

/// A metadata value. `From` converts a Rust value of the same type: `set("key", 5u32)`.
#[derive(Clone, Debug)]
pub enum Meta {
    /// A value type and the bytes that follow it.
    Raw(u32, Vec<u8>),
    Str(Vec<u8>),
    /// An element type, the count, and the bytes of the elements.
    Array(u32, u64, Vec<u8>),
}

impl Meta {
    /// An array of strings.
    pub fn strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Self {
        let mut bytes = Vec::new();
        let mut count = 0;
        for string in strings {
            put_string(&mut bytes, string.as_ref());
            count += 1;
        }
        Meta::Array(8, count, bytes)
    }

    /// An array of numbers.
    pub fn array<T: Scalar>(values: impl IntoIterator<Item = T>) -> Self {
        let mut bytes = Vec::new();
        let mut count = 0;
        for value in values {
            value.put(&mut bytes);
            count += 1;
        }
        Meta::Array(T::ID, count, bytes)
    }

    fn put(&self, out: &mut Writer) {
        match self {
            Meta::Raw(id, bytes) => {
                out.put("the type of a metadata value", &id.to_le_bytes());
                out.put("a metadata value", bytes);
            }
            Meta::Str(bytes) => {
                out.put("the type of a metadata value", &8u32.to_le_bytes());
                out.put_string("a metadata value", None, bytes);
            }
            Meta::Array(id, count, bytes) => {
                out.put("the type of a metadata value", &9u32.to_le_bytes());
                out.put("the type of a metadata value", &id.to_le_bytes());
                out.put("the length of an array", &count.to_le_bytes());
                out.put("an array", bytes);
            }
        }
    }
}

/// A Rust type that GGUF can store.
pub trait Scalar {
    const ID: u32;
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! scalar {
    ($($type:ty = $id:literal),*) => {$(
        impl Scalar for $type {
            const ID: u32 = $id;
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
        impl From<$type> for Meta {
            fn from(value: $type) -> Self {
                let mut bytes = Vec::new();
                value.put(&mut bytes);
                Meta::Raw(<$type>::ID, bytes)
            }
        }
    )*};
}
scalar!(u8 = 0, i8 = 1, u16 = 2, i16 = 3, u32 = 4, i32 = 5, f32 = 6, u64 = 10, i64 = 11, f64 = 12);

impl Scalar for bool {
    const ID: u32 = 7;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

impl From<bool> for Meta {
    fn from(value: bool) -> Self {
        Meta::Raw(bool::ID, vec![value as u8])
    }
}

impl From<Value<'_>> for Meta {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::U8(x) => x.into(),
            Value::I8(x) => x.into(),
            Value::U16(x) => x.into(),
            Value::I16(x) => x.into(),
            Value::U32(x) => x.into(),
            Value::I32(x) => x.into(),
            Value::U64(x) => x.into(),
            Value::I64(x) => x.into(),
            Value::F32(x) => x.into(),
            Value::F64(x) => x.into(),
            Value::Bool(x) => x.into(),
            Value::Str(x) => Meta::Str(x.into()),
            Value::Array(x) => Meta::Array(x.element() as u32, x.len() as u64, x.bytes().into()),
        }
    }
}

impl From<&str> for Meta {
    fn from(value: &str) -> Self {
        Meta::Str(value.into())
    }
}

/// One metadata entry.
#[derive(Clone, Debug)]
pub struct Key {
    pub name: Vec<u8>,
    /// Length to write instead of the name's own.
    pub name_len: Option<u64>,
    pub value: Meta,
}

/// One tensor.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    pub name: Vec<u8>,
    /// Length to write instead of the name's own.
    pub name_len: Option<u64>,
    /// Dimensions, the contiguous one first.
    pub dims: Vec<u64>,
    /// Number of dimensions to write instead of the actual one.
    pub dim_count: Option<u32>,
    pub kind: u32,
    /// Offset to write instead of the actual one.
    pub offset: Option<u64>,
    pub data: Vec<u8>,
}

/// A GGUF file under construction.
#[derive(Clone, Debug)]
pub struct Builder {
    pub magic: [u8; 4],
    pub version: u32,
    /// Counts to write instead of the actual ones.
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
    pub keys: Vec<Key>,
    pub tensors: Vec<TensorSpec>,
}

impl Default for Builder {
    fn default() -> Self {
        Self { magic: *b"GGUF", version: 3, tensor_count: None, key_count: None, keys: vec![], tensors: vec![] }
    }
}

impl Builder {
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the contents of a file, so that a test can change them.
    pub fn read(file: &[u8]) -> Self {
        let gguf = Gguf::parse(file).unwrap();
        let mut out = Self::new();
        for (name, value) in gguf.keys() {
            out.push_key(name, value);
        }
        for tensor in gguf.tensors() {
            let kind = tensor.kind as u32;
            out.push_tensor(tensor.name, &tensor.dims[..tensor.dim_count as usize], kind, tensor.data.to_vec());
        }
        out
    }

    /// Decodes all matrices to F32.
    pub fn widen(mut self) -> Self {
        for tensor in &mut self.tensors {
            let kind = TensorType::from_id(tensor.kind).unwrap();
            let mut values = vec![0.0; tensor.dims.iter().product::<u64>() as usize];
            assert!(decode_row(kind, &tensor.data, &mut values));
            tensor.data = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            tensor.kind = TensorType::F32 as u32;
        }
        self
    }

    /// Sets a key. A key that exists keeps its position.
    pub fn set(&mut self, key: &str, value: impl Into<Meta>) -> &mut Self {
        let value = value.into();
        match self.keys.iter_mut().find(|k| k.name == key.as_bytes()) {
            Some(found) => found.value = value,
            None => {
                self.push_key(key, value);
            }
        }
        self
    }

    /// Appends a key, even if it exists or is not UTF-8.
    pub fn push_key(&mut self, key: impl AsRef<[u8]>, value: impl Into<Meta>) -> &mut Self {
        self.keys.push(Key { name: key.as_ref().into(), name_len: None, value: value.into() });
        self
    }

    /// Removes a key, which must exist.
    pub fn remove(&mut self, key: &str) -> &mut Self {
        let at = self.keys.iter().position(|k| k.name == key.as_bytes()).expect("the key to remove is there");
        self.keys.remove(at);
        self
    }

    /// Sets a tensor. A tensor that exists keeps its position. `dims` has the contiguous dimension first; `kind` is
    /// the number in the file (0 for F32).
    pub fn set_tensor(&mut self, name: &str, dims: &[u64], kind: u32, data: Vec<u8>) -> &mut Self {
        let at = self.tensors.iter().position(|t| t.name == name.as_bytes());
        self.push_tensor(name, dims, kind, data);
        if let Some(at) = at {
            self.tensors.swap_remove(at);
        }
        self
    }

    /// Sets an F32 tensor.
    pub fn set_f32(&mut self, name: &str, dims: &[u64], values: &[f32]) -> &mut Self {
        self.set_tensor(name, dims, 0, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// Appends a tensor, even if its name exists or is not UTF-8.
    pub fn push_tensor(&mut self, name: impl AsRef<[u8]>, dims: &[u64], kind: u32, data: Vec<u8>) -> &mut Self {
        self.tensors.push(TensorSpec {
            name: name.as_ref().into(),
            name_len: None,
            dims: dims.into(),
            dim_count: None,
            kind,
            offset: None,
            data,
        });
        self
    }

    /// A tensor, which must exist, to be changed.
    pub fn tensor_mut(&mut self, name: &str) -> &mut TensorSpec {
        self.tensors.iter_mut().find(|t| t.name == name.as_bytes()).expect("the tensor is there")
    }

    /// Removes a tensor, which must exist.
    pub fn remove_tensor(&mut self, name: &str) -> &mut Self {
        let at = self.tensors.iter().position(|t| t.name == name.as_bytes()).expect("the tensor to remove is there");
        self.tensors.remove(at);
        self
    }

    /// The file. There is no padding after the last tensor, so every byte matters.
    pub fn build(&self) -> Vec<u8> {
        self.build_marked().0
    }

    /// Returns the file, and for each field its start and the name that error messages use.
    pub fn build_marked(&self) -> (Vec<u8>, Vec<(usize, &'static str)>) {
        let mut out = Writer::default();
        out.put("the magic number", &self.magic);
        out.put("the version", &self.version.to_le_bytes());
        let tensor_count = self.tensor_count.unwrap_or(self.tensors.len() as u64);
        let key_count = self.key_count.unwrap_or(self.keys.len() as u64);
        out.put("the number of tensors", &tensor_count.to_le_bytes());
        out.put("the number of metadata keys", &key_count.to_le_bytes());
        for key in &self.keys {
            out.put_string("a metadata key", key.name_len, &key.name);
            key.value.put(&mut out);
        }
        let alignment = self.alignment();
        let mut end = 0usize;
        for tensor in &self.tensors {
            out.put_string("a tensor's name", tensor.name_len, &tensor.name);
            let dim_count = tensor.dim_count.unwrap_or(tensor.dims.len() as u32);
            out.put("a tensor's number of dimensions", &dim_count.to_le_bytes());
            for dim in &tensor.dims {
                out.put("a tensor's dimensions", &dim.to_le_bytes());
            }
            out.put("a tensor's type", &tensor.kind.to_le_bytes());
            let start = end.next_multiple_of(alignment);
            out.put("a tensor's offset", &tensor.offset.unwrap_or(start as u64).to_le_bytes());
            end = start + tensor.data.len();
        }
        for tensor in &self.tensors {
            let padding = out.bytes.len().next_multiple_of(alignment) - out.bytes.len();
            out.put("padding", &vec![0; padding]);
            out.put("tensor data", &tensor.data);
        }
        (out.bytes, out.marks)
    }

    fn alignment(&self) -> usize {
        let key = self.keys.iter().find(|key| key.name == b"general.alignment");
        match key.map(|key| &key.value) {
            Some(Meta::Raw(4, bytes)) if bytes.len() == 4 => {
                let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                if value.is_power_of_two() && value <= 1 << 20 { value as usize } else { 32 }
            }
            _ => 32,
        }
    }
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    marks: Vec<(usize, &'static str)>,
}

impl Writer {
    fn put(&mut self, what: &'static str, bytes: &[u8]) {
        self.marks.push((self.bytes.len(), what));
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes a string after its length or a wrong length.
    fn put_string(&mut self, what: &'static str, len: Option<u64>, bytes: &[u8]) {
        self.put(what, &len.unwrap_or(bytes.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }
}

/// Writes a string after its length, to build a [`Meta::Array`] by hand.
pub fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend_from_slice(&(string.len() as u64).to_le_bytes());
    out.extend_from_slice(string);
}

/// Adds a key before the others. Another key pads the header so that the tensors stay aligned.
pub fn with_key(file: &[u8], key: &str, value: Meta) -> Vec<u8> {
    let padding = &format!("test.padding.{key}");
    let mut keys = Builder::new();
    keys.push_key(key, value).push_key(padding, "");
    let alignment = arenite::Gguf::parse(file).unwrap().alignment() as usize;
    let len = keys.build().len() - 24;
    keys.set(padding, Meta::Str(vec![b' '; len.next_multiple_of(alignment) - len]));
    let mut out = file[..16].to_vec();
    let count = u64::from_le_bytes(file[16..24].try_into().unwrap()) + 2;
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&keys.build()[24..]);
    out.extend_from_slice(&file[24..]);
    out
}
