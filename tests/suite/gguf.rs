//! Reads correct files: hand-made ones, and real ones compared with llama.cpp's reader.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::fixtures;
use crate::common::gguf::{Builder, Meta, with_key};
use crate::common::tiny::{VOCAB, tiny_llama};
use arenite::gguf::{Tensor, Value, ValueType};
use arenite::quant::TensorType;
use arenite::{Error, Gguf, Name};

// --- const ---------------------------------------------------------------------------------------

static LLAMA: &[u8] = include_bytes!("../fixtures/llama_mha/F16.gguf");

/// The fixture, parsed at compile time as in firmware.
const CONST: Gguf<'static> = match Gguf::parse(LLAMA) {
    Ok(gguf) => gguf,
    Err(_) => panic!("the fixture is not a GGUF file"),
};
const BLOCKS: Result<Option<u32>, Error> = CONST.u32("llama", "block_count");
const NORM: Option<Tensor<'static>> = CONST.tensor("output_norm.weight");

#[test]
fn the_compiler_reads_a_file() {
    assert_eq!(BLOCKS, Ok(Some(3)));
    let norm = NORM.unwrap();
    assert_eq!((norm.kind, norm.dims, norm.dim_count, norm.data.len()), (TensorType::F32, [64, 1, 1, 1], 1, 256));
    assert_eq!(CONST.architecture(), Ok("llama"));
    assert_eq!((CONST.key_count(), CONST.tensor_count()), (27, 30));
}

/// Number of tensors in a file that is built at compile time: as many as in a model of 32 layers.
const MANY: usize = 300;
const ENTRY: usize = 8 + 20 + 4 + 16 + 4 + 8;
const MANY_DATA: usize = (24 + MANY * ENTRY).next_multiple_of(32);
static MANY_TENSORS: [u8; MANY_DATA + MANY * 32] = many_tensors();

const fn many_tensors<const N: usize>() -> [u8; N] {
    const fn put(file: &mut [u8], at: &mut usize, bytes: &[u8]) {
        let mut i = 0;
        while i < bytes.len() {
            file[*at] = bytes[i];
            *at += 1;
            i += 1;
        }
    }
    let (mut file, mut at) = ([0; N], 0);
    put(&mut file, &mut at, b"GGUF\x03\0\0\0");
    put(&mut file, &mut at, &(MANY as u64).to_le_bytes());
    put(&mut file, &mut at, &0u64.to_le_bytes());
    let mut i = 0;
    while i < MANY {
        put(&mut file, &mut at, &20u64.to_le_bytes());
        put(&mut file, &mut at, b"blk.");
        put(&mut file, &mut at, &[b'0' + (i / 100) as u8, b'0' + (i / 10 % 10) as u8, b'0' + (i % 10) as u8]);
        put(&mut file, &mut at, b".ffn_up.weight".first_chunk::<13>().unwrap());
        put(&mut file, &mut at, &2u32.to_le_bytes());
        put(&mut file, &mut at, &4u64.to_le_bytes());
        put(&mut file, &mut at, &2u64.to_le_bytes());
        put(&mut file, &mut at, &0u32.to_le_bytes());
        put(&mut file, &mut at, &(i as u64 * 32).to_le_bytes());
        i += 1;
    }
    file
}

/// Total size of the tensors of [`MANY_TENSORS`], computed in one pass.
const MANY_BYTES: usize = match Gguf::parse(&MANY_TENSORS) {
    Ok(gguf) => {
        let (mut tensors, mut bytes) = (gguf.tensors(), 0);
        while let Some(tensor) = tensors.next_tensor() {
            bytes += tensor.data.len();
        }
        bytes
    }
    Err(_) => panic!("the file is not a GGUF file"),
};

/// The same total, computed with one look-up by name for each tensor, as a model does.
const MANY_FOUND: usize = match Gguf::parse(&MANY_TENSORS) {
    Ok(gguf) => {
        let (mut tensors, mut found) = (gguf.tensors(), 0);
        while let Some(tensor) = tensors.next_tensor() {
            match gguf.tensor(tensor.name) {
                Some(same) if same.offset == tensor.offset => found += 1,
                _ => panic!("the tensor is found by its name"),
            }
        }
        found
    }
    Err(_) => panic!("the file is not a GGUF file"),
};

#[test]
fn the_compiler_reads_three_hundred_tensors() {
    assert_eq!((MANY_BYTES, MANY_FOUND), (MANY * 32, MANY));
}

// --- hand-made files -----------------------------------------------------------------------------

#[test]
fn every_type_of_value() {
    let mut file = Builder::new();
    file.set("u8", u8::MAX)
        .set("i8", i8::MIN)
        .set("u16", u16::MAX)
        .set("i16", i16::MIN)
        .set("u32", u32::MAX)
        .set("i32", i32::MIN)
        .set("u64", u64::MAX)
        .set("i64", i64::MIN)
        .set("f32", -1.5f32)
        .set("f64", 1e300)
        .set("no", false)
        .set("yes", true)
        .set("also yes", Meta::Raw(7, vec![2]))
        .set("text", "a ‘string’")
        .set("bytes", Meta::Str(vec![0xff, 0]))
        .set("numbers", Meta::array([-1i16, 2, 3]))
        .set("words", Meta::strings(["a", "", "bc"]))
        .set("none", Meta::strings([""; 0]));
    let file = file.build();
    let gguf = Gguf::parse(&file).unwrap();
    let seen: Vec<String> = gguf.keys().map(|(key, value)| format!("{key}: {value:?}")).collect();
    let expected = [
        "u8: U8(255)",
        "i8: I8(-128)",
        "u16: U16(65535)",
        "i16: I16(-32768)",
        "u32: U32(4294967295)",
        "i32: I32(-2147483648)",
        "u64: U64(18446744073709551615)",
        "i64: I64(-9223372036854775808)",
        "f32: F32(-1.5)",
        "f64: F64(1e300)",
        "no: Bool(false)",
        "yes: Bool(true)",
        "also yes: Bool(true)",
        &format!("text: Str({:?})", "a ‘string’".as_bytes()),
        "bytes: Str([255, 0])",
        "numbers: Array([I16; 3])",
        "words: Array([Str; 3])",
        "none: Array([Str; 0])",
    ];
    assert_eq!(seen, expected);
    assert!(matches!(gguf.get("i8"), Some(Value::I8(-128))));
    assert!(gguf.get("u").is_none() && gguf.get("").is_none() && gguf.get("u88").is_none());
    let words = gguf.array("", "words").unwrap().unwrap();
    assert_eq!(words.strings().collect::<Vec<_>>(), [&b"a"[..], b"", b"bc"]);
    assert_eq!((words.len(), words.element()), (3, ValueType::Str));
}

#[test]
fn typed_look_ups() {
    let mut file = Builder::new();
    file.set("a.b", 1u32)
        .set("a.b.c", 2u8)
        .set("ab", 3u64)
        .set("a.large", u64::MAX)
        .set("a.negative", -1i8)
        .set("a.half", 0.5f32)
        .set("a.third", 1.0f64 / 3.0)
        .set("a.yes", true)
        .set("a.text", "text")
        .set("a.list", Meta::array([1u8]));
    let file = file.build();
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!(gguf.u32("a", "b"), Ok(Some(1)));
    assert_eq!(gguf.u32("a", "b.c"), Ok(Some(2)));
    assert_eq!(gguf.u32("a.b", "c"), Ok(Some(2)));
    assert_eq!(gguf.u32("", "a.b.c"), Ok(Some(2)));
    assert_eq!(gguf.u32("", "ab"), Ok(Some(3)));
    assert_eq!(gguf.u32("a", "c"), Ok(None));
    assert_eq!(gguf.u32("b", "a"), Ok(None));
    let key = |name| Name::key("a", name);
    assert_eq!(key("large"), Name::new(b"a.large"));
    for name in ["large", "negative"] {
        let why = "must be from 0 to 4294967295";
        assert_eq!(gguf.u32("a", name), Err(Error::KeyValue { key: key(name), why }));
    }
    for name in ["half", "yes", "text", "list"] {
        assert_eq!(gguf.u32("a", name), Err(Error::KeyType { key: key(name), expected: "an integer" }));
    }
    assert_eq!(gguf.f32("a", "half"), Ok(Some(0.5)));
    assert_eq!(gguf.f32("a", "third"), Ok(Some(1.0 / 3.0)));
    assert_eq!(gguf.f32("a", "b"), Err(Error::KeyType { key: key("b"), expected: "a float" }));
    assert_eq!(gguf.bool("a", "yes"), Ok(Some(true)));
    assert_eq!(gguf.bool("a", "b"), Err(Error::KeyType { key: key("b"), expected: "a boolean" }));
    assert_eq!(gguf.str("a", "text"), Ok(Some(&b"text"[..])));
    assert_eq!(gguf.str("a", "b"), Err(Error::KeyType { key: key("b"), expected: "a string" }));
    assert_eq!(gguf.array("a", "list").unwrap().unwrap().bytes(), [1]);
    assert!(matches!(gguf.array("a", "b"), Err(Error::KeyType { .. })));
    assert!(matches!(gguf.array("a", "nothing"), Ok(None)));
}

/// The bytes after the keys look like more keys: a name, and a number of dimensions that is also a valid type.
#[test]
fn no_key_is_found_behind_the_last() {
    let mut file = Builder::new();
    file.set("a", 1u8).push_tensor("ghost", &[1], 24, vec![1]);
    let file = file.build();
    let gguf = Gguf::parse(&file).unwrap();
    assert!(gguf.get("ghost").is_none() && gguf.get("a").is_some() && gguf.tensor("ghost").is_some());
}

#[test]
fn the_architecture() {
    let mut file = Builder::new();
    let key = Name::new(b"general.architecture");
    assert_eq!(Gguf::parse(&file.build()).unwrap().architecture(), Err(Error::MissingKey { key }));
    file.set("general.architecture", 1u8);
    let expected = "a string";
    assert_eq!(Gguf::parse(&file.build()).unwrap().architecture(), Err(Error::KeyType { key, expected }));
    file.set("general.architecture", Meta::Str(vec![0xff]));
    let why = "is not UTF-8";
    assert_eq!(Gguf::parse(&file.build()).unwrap().architecture(), Err(Error::KeyValue { key, why }));
    file.set("general.architecture", "qwen3");
    assert_eq!(Gguf::parse(&file.build()).unwrap().architecture(), Ok("qwen3"));
}

#[test]
fn tensors_and_where_they_lie() {
    for alignment in [8usize, 32, 4096] {
        let mut file = Builder::new();
        file.set("general.alignment", alignment as u32)
            .push_tensor("one", &[3], 0, vec![1; 12])
            .push_tensor("two", &[32, 3], 2, vec![2; 54])
            .push_tensor("three", &[1, 2, 3, 4], 24, vec![3; 24])
            .push_tensor("last", &[3], 0, vec![4; 12]);
        let file = file.build();
        let gguf = Gguf::parse(&file).unwrap();
        let tensors: Vec<Tensor> = gguf.tensors().collect();
        assert_eq!(tensors.len(), 4);
        for (i, (tensor, len)) in tensors.iter().zip([12, 54, 24, 12]).enumerate() {
            assert_eq!(tensor.data, vec![i as u8 + 1; len]);
            assert_eq!(tensor.offset as usize % alignment, 0);
            assert_eq!(tensor.data.as_ptr(), file[tensor.offset as usize..].as_ptr());
            assert_eq!(gguf.tensor(tensor.name).unwrap().offset, tensor.offset);
        }
        assert_eq!((tensors[1].kind, tensors[1].dims, tensors[1].dim_count), (TensorType::Q4_0, [32, 3, 1, 1], 2));
        assert_eq!((tensors[2].kind, tensors[2].dims, tensors[2].dim_count), (TensorType::I8, [1, 2, 3, 4], 4));
        assert!(gguf.tensor("four").is_none() && gguf.tensor("").is_none() && gguf.tensor("on").is_none());
    }
}

#[test]
fn what_a_file_says_of_itself() {
    let mut file = Builder::new();
    file.version = 2;
    file.set("general.alignment", 64u32).set("a", true).push_tensor("one", &[3], 0, vec![1; 12]);
    let bytes = file.build();
    let gguf = Gguf::parse(&bytes).unwrap();
    assert_eq!((gguf.version(), gguf.alignment(), gguf.key_count(), gguf.tensor_count()), (2, 64, 2, 1));
    assert!(std::ptr::eq(gguf.data(), &bytes[..]));
    let len = bytes.len();
    assert_eq!(format!("{gguf:?}"), format!("Gguf {{ version: 2, alignment: 64, keys: 2, tensors: 1, bytes: {len} }}"));
    assert_eq!(format!("{:?}", gguf.keys()), "Keys { left: 2, .. }");
    assert_eq!(format!("{:?}", gguf.tensors()), "Tensors { left: 1, .. }");
    let tensor = format!("{:?}", gguf.tensor("one").unwrap());
    let rest = format!("dims: [3, 1, 1, 1], dim_count: 1, kind: F32, offset: {}, bytes: 12 }}", len - 12);
    assert_eq!(tensor, format!("Tensor {{ name: \"one\", {rest}"));
    let list = with_key(&bytes, "list", Meta::array([1u8, 2]));
    let list = Gguf::parse(&list).unwrap().array("", "list").unwrap().unwrap();
    assert_eq!((format!("{list:?}"), list.is_empty()), ("[U8; 2]".into(), false));
}

/// A fingerprint depends on the bytes before the tensors, the length of the file, and 64 bytes from the middle of each
/// tensor.
#[test]
fn fingerprints() {
    let mut file = Builder::new();
    file.set("a", 1u8).push_tensor("long", &[200], 24, vec![1; 200]).push_tensor("short", &[10], 24, vec![2; 10]);
    let (bytes, marks) = file.build_marked();
    let print = |bytes: &[u8]| Gguf::parse(bytes).ok().map(|gguf| gguf.fingerprint());
    let own = print(&bytes).unwrap();
    let data: Vec<usize> = marks.iter().filter(|(_, what)| *what == "tensor data").map(|(at, _)| *at).collect();
    let counts = |at: usize| {
        let in_tensor =
            |start: usize, len: usize| (start + len / 2..(start + len).min(start + len / 2 + 64)).contains(&at);
        at < data[0] || in_tensor(data[0], 200) || in_tensor(data[1], 10)
    };
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1;
        if let Some(found) = print(&other) {
            assert_eq!(found != own, counts(at), "byte {at}");
        }
    }
    assert_ne!(print(&[&bytes[..], &[0]].concat()), Some(own));
    assert_eq!(print(&bytes.clone()), Some(own));
}

#[test]
fn bytes_of_any_alignment_and_bytes_behind_the_file() {
    let file = tiny_llama().build();
    for shift in 0..9 {
        let mut moved = vec![0xaa; shift];
        moved.extend_from_slice(&file);
        moved.extend_from_slice(&[0; 7]); // some writers also pad the last tensor
        let gguf = Gguf::parse(&moved[shift..]).unwrap();
        assert_eq!(gguf.tensor_count() as usize, gguf.tensors().count());
        assert_eq!(gguf.array("tokenizer.ggml", "tokens").unwrap().unwrap().len() as u64, VOCAB);
    }
}

#[test]
fn keys_behind_many_arrays_of_strings() {
    // More long arrays than the parser remembers: the others are walked, with the same result.
    let mut file = Builder::new();
    let order = [300, 5, 1000, 0, 20, 700, 1, 40];
    for count in order {
        let strings = (0..count).map(|i| format!("{count}:{i}"));
        file.set(&format!("list.{count}"), Meta::strings(strings)).set(&format!("after.{count}"), count as u32);
    }
    let file = file.build();
    let gguf = Gguf::parse(&file).unwrap();
    for count in order {
        assert_eq!(gguf.u32("after", &count.to_string()), Ok(Some(count as u32)));
        let list = gguf.array("list", &count.to_string()).unwrap().unwrap();
        assert_eq!((list.len(), list.strings().count()), (count, count));
        let mut strings = list.strings();
        for i in 0..count {
            let offset = strings.offset();
            assert_eq!(strings.next_string(), Some(format!("{count}:{i}").as_bytes()));
            assert_eq!(list.string_at(offset), format!("{count}:{i}").as_bytes());
        }
        assert_eq!(strings.offset(), list.bytes().len());
    }
}

// --- real files ----------------------------------------------------------------------------------

#[derive(serde::Deserialize, PartialEq, Debug)]
struct Listing {
    keys: u64,
    tensors: u64,
    crc32: u32,
}

/// Lists a file like `fixtures/listing.py`, with this crate.
fn listing(file: &[u8]) -> Listing {
    let gguf = Gguf::parse(file).unwrap();
    let mut crc = Crc::new();
    for (key, value) in gguf.keys() {
        crc.add(key.as_bytes());
        crc.add(&[0]);
        crc.add(&(value.value_type() as u32).to_le_bytes());
        match value {
            Value::U8(v) => crc.add(&v.to_le_bytes()),
            Value::I8(v) => crc.add(&v.to_le_bytes()),
            Value::U16(v) => crc.add(&v.to_le_bytes()),
            Value::I16(v) => crc.add(&v.to_le_bytes()),
            Value::U32(v) => crc.add(&v.to_le_bytes()),
            Value::I32(v) => crc.add(&v.to_le_bytes()),
            Value::U64(v) => crc.add(&v.to_le_bytes()),
            Value::I64(v) => crc.add(&v.to_le_bytes()),
            Value::F32(v) => crc.add(&v.to_le_bytes()),
            Value::F64(v) => crc.add(&v.to_le_bytes()),
            Value::Bool(v) => crc.add(&[v as u8]),
            Value::Str(string) => crc.add_string(string),
            Value::Array(array) => {
                crc.add(&(array.element() as u32).to_le_bytes());
                if array.element() == ValueType::Str {
                    array.strings().for_each(|string| crc.add_string(string));
                } else {
                    crc.add(array.bytes());
                }
            }
        }
    }
    for tensor in gguf.tensors() {
        crc.add(tensor.name.as_bytes());
        crc.add(&[0]);
        for dim in &tensor.dims[..tensor.dim_count as usize] {
            crc.add(&dim.to_le_bytes());
        }
        crc.add(&(tensor.kind as u32).to_le_bytes());
        crc.add(&tensor.offset.to_le_bytes());
        crc.add(tensor.data);
    }
    Listing { keys: gguf.keys().count() as u64, tensors: gguf.tensors().count() as u64, crc32: crc.finish() }
}

fn expected() -> BTreeMap<String, Listing> {
    serde_json::from_slice(&fixtures::read(&fixtures::committed().join("listing.json"))).unwrap()
}

/// Compares every file below `root` that is in the listing. Returns the number of files.
fn compare(root: &Path) -> usize {
    let mut compared = 0;
    for (name, expected) in expected() {
        let path = root.join(&name);
        if path.exists() {
            assert_eq!(listing(&fixtures::read(&path)), expected, "{name}");
            compared += 1;
        }
    }
    compared
}

#[test]
fn the_fixtures_read_as_llama_cpp_reads_them() {
    assert_eq!(compare(&fixtures::committed()), 3);
}

#[test]
fn all_fixtures_read_as_llama_cpp_reads_them() {
    let Some(root) = fixtures::needed("*.gguf") else { return };
    let compared = compare(&root);
    assert!(compared > 0, "no known file in {}", root.display());
    // Other files must at least parse.
    for directory in std::fs::read_dir(&root).unwrap().filter_map(|entry| std::fs::read_dir(entry.ok()?.path()).ok()) {
        for path in directory.map(|entry| entry.unwrap().path()) {
            if path.to_string_lossy().ends_with(".gguf") {
                Gguf::parse(&fixtures::read(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            }
        }
    }
}

/// CRC-32 as in zlib.
struct Crc {
    table: [u32; 256],
    state: u32,
}

impl Crc {
    fn new() -> Self {
        let table = std::array::from_fn(|i| {
            (0..8).fold(i as u32, |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
        });
        Self { table, state: !0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.state = self.table[(self.state as u8 ^ byte) as usize] ^ (self.state >> 8);
        }
    }

    fn add_string(&mut self, string: &[u8]) {
        self.add(&(string.len() as u64).to_le_bytes());
        self.add(string);
    }

    fn finish(self) -> u32 {
        !self.state
    }
}
