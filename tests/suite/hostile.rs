//! Malformed GGUF files: each must give exactly the right error, and never a panic.
//!
//! The cases follow the publicly known failures of GGUF readers (CVEs and issues of llama.cpp, ollama and others).

mod model;
mod running;

use crate::common::gguf::{Builder, Meta, put_string};
use crate::common::tiny::tiny_llama;
use arenite::{Error, Gguf, Name};

/// A small correct file with a key of every type and three tensors.
fn small() -> Builder {
    let mut file = Builder::new();
    file.set("general.architecture", "llama")
        .set("a.flag", true)
        .set("a.number", 7u32)
        .set("a.large", -7i64)
        .set("a.list", Meta::array([1u16, 2, 3]))
        .push_tensor("first", &[4], 0, vec![1; 16])
        .push_tensor("second", &[32, 2], 8, vec![2; 68])
        .push_tensor("third", &[2, 1, 2, 3], 1, vec![3; 24]);
    assert!(Gguf::parse(&file.build()).is_ok());
    file
}

/// [`small`] with one change.
fn broken(change: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut file = small();
    change(&mut file);
    file.build()
}

/// Returns the error for `file`. (`src/gguf/names.rs` tests how many steps the parser takes.)
#[track_caller]
fn refused(file: &[u8]) -> Error {
    let error = Gguf::parse(file).expect_err("the file is wrong");
    assert!(error.to_string().len() > 20, "{error}");
    error
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes())
}

// --- truncated files ----------------------------------------------------------------------------

#[test]
fn a_file_of_only_the_magic() {
    assert_eq!(refused(b"GGUF"), Error::Truncated { what: "the version", at: 4 });
    assert_eq!(refused(b"GGU"), Error::NotGguf);
    assert_eq!(refused(b""), Error::NotGguf);
    assert_eq!(refused(b"GGML\x03\0\0\0"), Error::NotGguf);
}

#[test]
fn truncated_at_every_byte() {
    let file = small();
    let (bytes, marks) = file.build_marked();
    let data_start = marks.iter().find(|(_, what)| *what == "tensor data").unwrap().0;
    let directory_end = marks.iter().find(|(_, what)| *what == "padding").unwrap().0;
    for cut in 0..bytes.len() {
        let (at, what) = *marks.iter().rev().find(|(at, _)| *at <= cut).unwrap();
        let (keys, tensors) = (file.keys.len(), file.tensors.len());
        let expected = if cut < 4 {
            Error::NotGguf
        } else if cut < 24 {
            Error::Truncated { what, at: at as u64 }
        } else if keys > (cut - 24) / 14 {
            Error::TooMany { what: "metadata keys", count: keys as u64, at: 16 }
        } else if tensors > (cut - 24 - keys * 14) / 33 {
            Error::TooMany { what: "tensors", count: tensors as u64, at: 8 }
        } else if what == "an array" {
            Error::TooMany { what: "array elements", count: 3, at: at as u64 - 8 }
        } else if cut < directory_end {
            Error::Truncated { what, at: at as u64 }
        } else {
            // The error names the first tensor that does not lie inside the file.
            let mut offset = 0;
            let tensor = file.tensors.iter().find(|tensor| {
                let end = data_start + offset + tensor.data.len();
                if end > cut {
                    return true;
                }
                offset = (offset + tensor.data.len()).next_multiple_of(32);
                false
            });
            let tensor = tensor.unwrap();
            let size = tensor.data.len() as u64;
            Error::TensorData { tensor: Name::new(&tensor.name), offset: offset as u64, size, file: cut as u64 }
        };
        assert_eq!(refused(&bytes[..cut]), expected, "cut at {cut} of {}", bytes.len());
    }
}

#[test]
fn a_whole_model_truncated_at_every_byte() {
    let bytes = tiny_llama().build();
    assert!(Gguf::parse(&bytes).is_ok());
    for cut in 0..bytes.len() {
        match Gguf::parse(&bytes[..cut]) {
            Err(Error::NotGguf) => assert!(cut < 4),
            Err(Error::Truncated { at, .. } | Error::TooMany { at, .. }) => assert!(at <= cut as u64),
            Err(Error::TensorData { file, .. }) => assert_eq!(file, cut as u64),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
}

// --- counts -------------------------------------------------------------------------------------

#[test]
fn more_keys_than_the_file_can_hold() {
    for count in [u64::MAX, 1 << 63, 1 << 61, 1 << 32, 1000] {
        let file = broken(|file| file.key_count = Some(count));
        assert_eq!(refused(&file), Error::TooMany { what: "metadata keys", count, at: 16 });
    }
}

#[test]
fn more_tensors_than_the_file_can_hold() {
    for count in [u64::MAX, 1 << 63, 1 << 61, 1 << 32, 1000] {
        let file = broken(|file| file.tensor_count = Some(count));
        assert_eq!(refused(&file), Error::TooMany { what: "tensors", count, at: 8 });
    }
}

#[test]
fn counts_that_only_fit_one_at_a_time() {
    let mut file = Builder::new();
    file.set("key", 1u8);
    (file.key_count, file.tensor_count) = (Some(1), Some(1));
    assert_eq!(refused(&file.build()), Error::TooMany { what: "tensors", count: 1, at: 8 });
}

#[test]
fn one_key_too_many_reads_into_the_tensors() {
    // The name and the number of dimensions of the first tensor look like a key and its type.
    let file = broken(|file| file.key_count = Some(6));
    let error = refused(&file);
    assert!(matches!(error, Error::Truncated { .. } | Error::TooMany { .. } | Error::BadName { .. }), "{error:?}");
}

// --- string lengths -----------------------------------------------------------------------------

/// Lengths that wrap when something is added to them, or are just too large.
const LENGTHS: [u64; 6] = [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 62, 1 << 32, 5000];

#[test]
fn the_length_of_a_key() {
    for len in LENGTHS {
        let file = broken(|file| file.keys[0].name_len = Some(len));
        assert_eq!(refused(&file), Error::Truncated { what: "a metadata key", at: 24 });
    }
}

#[test]
fn the_length_of_a_string_value() {
    for len in LENGTHS {
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"llama");
        let file = broken(|file| {
            file.set("general.architecture", Meta::Raw(8, bytes));
        });
        assert_eq!(refused(&file), Error::Truncated { what: "a metadata value", at: 24 + 8 + 20 + 4 });
    }
}

#[test]
fn the_length_of_a_string_in_an_array() {
    for len in LENGTHS {
        let mut bytes = Vec::new();
        put_string(&mut bytes, b"fine");
        bytes.extend_from_slice(&len.to_le_bytes());
        let mut file = Builder::new();
        file.set("words", Meta::Array(8, 2, bytes));
        let at = 24 + 8 + 5 + 4 + 4 + 8 + 12;
        assert_eq!(refused(&file.build()), Error::Truncated { what: "a string in an array", at });
    }
}

#[test]
fn the_length_of_a_tensor_name() {
    for len in LENGTHS {
        let mut file = small();
        let at = file.build_marked().1.iter().find(|(_, what)| *what == "a tensor's name").unwrap().0 as u64;
        file.tensors[0].name_len = Some(len);
        assert_eq!(refused(&file.build()), Error::Truncated { what: "a tensor's name", at });
    }
}

// --- arrays -------------------------------------------------------------------------------------

#[test]
fn an_array_longer_than_the_file() {
    let types = [(0, 1), (2, 2), (4, 4), (6, 4), (7, 1), (8, 8), (10, 8), (12, 8)];
    for (element, size) in types {
        // Multiplied by `size`, the first count wraps to 0 and the second one to `size`.
        let wraps = (1u128 << 64) / size;
        for count in [wraps, wraps + 1, 1 << 63, 1 << 40, 9].map(|count| count.min(u64::MAX as u128) as u64) {
            let mut file = Builder::new();
            file.set("list", Meta::Array(element, count, vec![0; 8]));
            let at = 24 + 8 + 4 + 4 + 4;
            assert_eq!(refused(&file.build()), Error::TooMany { what: "array elements", count, at });
        }
    }
}

#[test]
fn arrays_in_arrays() {
    // Ten thousand levels, refused at the first one.
    let level = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
    let file = broken(|file| {
        file.set("deep", Meta::Raw(9, level.repeat(10_000)));
    });
    assert_eq!(refused(&file), Error::NestedArray { key: name("deep") });
    let file = broken(|file| {
        file.set("deep", Meta::Array(9, 0, vec![]));
    });
    assert_eq!(refused(&file), Error::NestedArray { key: name("deep") });
}

#[test]
fn unknown_types() {
    for id in [13, 14, 255, 1 << 31, u32::MAX] {
        let file = broken(|file| {
            file.set("a.list", Meta::Array(id, 1, vec![0; 8]));
        });
        assert_eq!(refused(&file), Error::UnknownValueType { key: name("a.list"), id });
        let file = broken(|file| {
            file.set("a.number", Meta::Raw(id, vec![0; 8]));
        });
        assert_eq!(refused(&file), Error::UnknownValueType { key: name("a.number"), id });
    }
}

// --- versions -----------------------------------------------------------------------------------

#[test]
fn unknown_versions() {
    for version in [0, 1, 4, 5, 0x10000, u32::MAX] {
        assert_eq!(refused(&broken(|file| file.version = version)), Error::Version { version });
    }
    for version in [1u32, 2, 3] {
        assert_eq!(refused(&broken(|file| file.version = version.swap_bytes())), Error::BigEndian);
    }
    assert!(Gguf::parse(&broken(|file| file.version = 2)).is_ok());
}

// --- names --------------------------------------------------------------------------------------

#[test]
fn malformed_keys() {
    let fault = |key: &[u8], why| {
        let mut file = Builder::new();
        file.push_key("first", 1u8).push_key(key, 1u8);
        assert_eq!(refused(&file.build()), Error::BadName { what: "metadata key", at: 24 + 8 + 5 + 4 + 1, why });
    };
    fault(b"", "is empty");
    fault(b"a\xff", "is not UTF-8");
    fault("€".as_bytes().split_last().unwrap().1, "is not UTF-8");
    fault(&[b'k'; 65536], "is longer than 65535 bytes");
    let mut file = Builder::new();
    file.push_key([b'k'; 65535], 1u8).push_key("ключ", 1u8);
    assert!(Gguf::parse(&file.build()).is_ok());
}

#[test]
fn malformed_tensor_names() {
    let fault = |bad: &[u8], why| {
        let mut file = small();
        let at = file.build_marked().1.iter().find(|(_, what)| *what == "a tensor's name").unwrap().0 as u64;
        file.tensors[0].name = bad.into();
        assert_eq!(refused(&file.build()), Error::BadName { what: "tensor", at, why });
    };
    fault(b"", "is empty");
    fault(b"\xc0\x80", "is not UTF-8");
    fault(&[b't'; 64], "is longer than 63 bytes");
    fault(&[b't'; 1000], "is longer than 63 bytes");
    assert!(Gguf::parse(&broken(|file| file.tensors[0].name = vec![b't'; 63])).is_ok());
}

#[test]
fn names_that_occur_twice() {
    let file = broken(|file| {
        file.push_key("a.flag", 3u8);
    });
    assert_eq!(refused(&file), Error::DuplicateKey { key: name("a.flag") });
    let file = broken(|file| file.tensors[2].name = b"first".into());
    assert_eq!(refused(&file), Error::DuplicateTensor { tensor: name("first") });
}

#[test]
fn names_that_occur_twice_far_apart() {
    // Pairs of positions in one group of names that are compared at once, and in different groups.
    for (first, second) in [(0, 1), (0, 299), (127, 128), (128, 129), (130, 256), (298, 299), (255, 299)] {
        let mut file = Builder::new();
        for i in 0..300 {
            let name = format!("blk.{}.weight", if i == second { first } else { i });
            file.push_key(&name, 0u8).push_tensor(format!("t{i}"), &[1], 24, vec![0]);
        }
        let key = name(&format!("blk.{first}.weight"));
        assert_eq!(refused(&file.build()), Error::DuplicateKey { key });
        for i in 0..300 {
            file.keys[i].name = format!("k{i}").into();
            file.tensors[i].name = format!("blk.{}.weight", if i == second { first } else { i }).into();
        }
        assert_eq!(refused(&file.build()), Error::DuplicateTensor { tensor: key });
    }
}

#[test]
fn how_far_repeated_names_are_looked_for() {
    let file = |first: usize| {
        let mut file = Builder::new();
        file.set("general.alignment", 1u32);
        for i in 0..5000 {
            file.push_tensor(format!("t{}", if i == 4999 { first } else { i }), &[1], 24, vec![0]);
        }
        file.build()
    };
    let tensor = name("t4095");
    assert_eq!(Gguf::parse(&file(4095)).unwrap_err(), Error::DuplicateTensor { tensor });
    assert!(Gguf::parse(&file(4096)).is_ok());
}

// --- alignment ----------------------------------------------------------------------------------

#[test]
fn wrong_alignments() {
    let key = name("general.alignment");
    for alignment in [0u32, 3, 24, 33, 1 << 21, 1 << 31, u32::MAX] {
        let file = broken(|file| {
            file.set("general.alignment", alignment);
        });
        assert_eq!(refused(&file), Error::KeyValue { key, why: "must be a power of two, at most 1048576" });
    }
    let others: [Meta; 5] = [32i32.into(), 32u64.into(), "32".into(), 32.0f32.into(), Meta::array([32u32])];
    for value in others {
        let file = broken(|file| {
            file.set("general.alignment", value);
        });
        assert_eq!(refused(&file), Error::KeyType { key, expected: "a 32-bit unsigned integer" });
    }
    for alignment in [1u32, 2, 4, 8, 16, 64, 4096] {
        let file = broken(|file| {
            file.set("general.alignment", alignment);
        });
        assert_eq!(Gguf::parse(&file).unwrap().alignment(), alignment as u64);
    }
}

// --- shapes -------------------------------------------------------------------------------------

#[test]
fn number_of_dimensions() {
    for count in [5, 6, 1 << 31, u32::MAX] {
        let file = broken(|file| file.tensors[1].dim_count = Some(count));
        assert_eq!(refused(&file), Error::TensorRank { tensor: name("second"), count });
    }
}

#[test]
fn dimensions_that_are_negative() {
    for (dim, len) in [(0, -1), (1, i64::MIN), (1, -32)] {
        let file = broken(|file| file.tensors[1].dims[dim] = len as u64);
        assert_eq!(refused(&file), Error::TensorDim { tensor: name("second"), dim: dim as u32, len });
    }
}

#[test]
fn dimensions_whose_product_overflows() {
    let huge = i64::MAX as u64;
    for dims in [
        [(1 << 42) + 1, 1 << 42, 1, 1],
        [huge, 2, 1, 1],
        [1 << 40, 1 << 40, 1, 1],
        [1 << 32, 1 << 32, 1 << 32, 1 << 32], // 0 when it wraps
        [1 << 16, 1 << 16, 1 << 16, 1 << 16], // 0 when it wraps
        [3, huge, 3, 3],
        [huge, 1, 1, 1], // the number of elements fits, the number of bytes does not
        [1 << 61, 1, 1, 1],
    ] {
        let file = broken(|file| file.tensors[0].dims = dims.into());
        assert_eq!(refused(&file), Error::TensorTooLarge { tensor: name("first"), dims });
    }
}

// --- types --------------------------------------------------------------------------------------

#[test]
fn unknown_tensor_types() {
    for id in [4, 5, 31, 32, 33, 36, 37, 38, 100, 1 << 31, u32::MAX] {
        let file = broken(|file| file.tensors[1].kind = id);
        assert_eq!(refused(&file), Error::UnknownTensorType { tensor: name("second"), id });
    }
}

#[test]
fn rows_that_are_not_whole_blocks() {
    for (kind, row, block) in [(2, 31, 32), (8, 33, 32), (8, 1, 32), (12, 32, 256), (14, 257, 256), (39, 16, 32)] {
        let file = broken(|file| {
            file.tensors[1].kind = kind;
            file.tensors[1].dims = vec![row, 256];
        });
        assert_eq!(refused(&file), Error::TensorBlock { tensor: name("second"), row, block });
    }
}

// --- positions of tensor data -------------------------------------------------------------------

#[test]
fn sizes_whose_sum_wraps() {
    // Two tensors of 2^63 - 32 bytes: even the first one does not fit.
    let size = (1 << 63) - 32;
    let mut file = small();
    for i in 0..2 {
        file.tensors[i].dims = vec![size];
        file.tensors[i].kind = 24;
    }
    let bytes = file.build();
    let expected = |size| Error::TensorData { tensor: name("first"), offset: 0, size, file: bytes.len() as u64 };
    assert_eq!(refused(&bytes), expected(size));
    // Rounded up to the alignment, this size would be negative.
    file.tensors[0].dims = vec![i64::MAX as u64];
    assert_eq!(refused(&file.build()), expected(i64::MAX as u64));
}

#[test]
fn a_sum_beyond_the_file() {
    let bytes = broken(|file| {
        file.tensors[1].kind = 24;
        file.tensors[1].dims = vec![1 << 62];
    });
    let file = bytes.len() as u64;
    assert_eq!(refused(&bytes), Error::TensorData { tensor: name("second"), offset: 32, size: 1 << 62, file });
}

#[test]
fn a_sum_as_long_as_the_file() {
    // None of the data is there: the error names the first tensor instead of the one that makes the sum too large.
    let mut file = Builder::new();
    file.push_tensor("first", &[32], 24, vec![]).push_tensor("second", &[1], 24, vec![]);
    let len = file.build().len() as u64;
    file.tensors[1].dims = vec![len - 32];
    file.tensors[1].offset = Some(32);
    let error = Error::TensorData { tensor: name("first"), offset: 0, size: 32, file: len };
    assert_eq!(refused(&file.build()), error);
}

#[test]
fn data_beyond_the_file() {
    // One row more than the file has.
    let bytes = broken(|file| file.tensors[2].dims = vec![2, 1, 2, 4]);
    let file = bytes.len() as u64;
    assert_eq!(refused(&bytes), Error::TensorData { tensor: name("third"), offset: 128, size: 32, file });
}

#[test]
fn wrong_offsets() {
    for (tensor, expected) in [(0, 0u64), (1, 32), (2, 128)] {
        for found in [
            expected + 1,  // not aligned
            expected + 32, // leaves a gap, or overlaps the next one
            expected ^ 32, // overlaps the previous or next one
            u64::MAX,      // wraps when the size is added
            u64::MAX - 31, // aligned, but wraps
            1 << 63,       // negative
            1 << 40,       // after the end of the file
        ] {
            let mut file = small();
            file.tensors[tensor].offset = Some(found);
            let tensor = Name::new(&file.tensors[tensor].name);
            assert_eq!(refused(&file.build()), Error::TensorOffset { tensor, found, expected });
        }
    }
}

#[test]
fn two_tensors_in_one_place() {
    let file = broken(|file| file.tensors[2].offset = Some(32));
    assert_eq!(refused(&file), Error::TensorOffset { tensor: name("third"), found: 32, expected: 128 });
}

// --- arbitrary bytes ----------------------------------------------------------------------------

/// Calls every accessor of a parsed file.
fn use_it(gguf: &Gguf) {
    assert_eq!(gguf.keys().count() as u64, gguf.key_count());
    assert_eq!(gguf.tensors().count() as u64, gguf.tensor_count());
    for (key, value) in gguf.keys() {
        assert_eq!(gguf.get(key).unwrap().value_type(), value.value_type());
        let _ = (gguf.u32("", key), gguf.f32("", key), gguf.bool("", key), gguf.str("", key));
        if let Ok(Some(array)) = gguf.array("", key) {
            let numbers = (0..array.len()).filter(|&i| array.get(i).is_some()).count();
            assert_eq!(numbers + array.strings().count(), array.len());
        }
    }
    for tensor in gguf.tensors() {
        let found = gguf.tensor(tensor.name).map(|found| (found.offset, found.data.len()));
        let is_empty = tensor.dims.contains(&0);
        assert_eq!(found, (!is_empty).then_some((tensor.offset, tensor.data.len())));
        let (elements, bytes) = tensor.kind.block();
        let blocks = tensor.dims.iter().product::<u64>() / elements as u64;
        assert_eq!(tensor.data.len() as u64, blocks * bytes as u64);
    }
    let _ = gguf.architecture();
}

#[test]
fn any_byte_changed_to_any_value() {
    let mut file = small();
    file.set("words", Meta::strings(["ab", "", "c"]));
    let (mut bytes, marks) = file.build_marked();
    let data_start = marks.iter().find(|(_, what)| *what == "tensor data").unwrap().0;
    let mut read = 0;
    for i in 0..data_start {
        let right = bytes[i];
        for value in 0..=255 {
            bytes[i] = value;
            if let Ok(gguf) = Gguf::parse(&bytes) {
                use_it(&gguf);
                read += 1;
            }
        }
        bytes[i] = right;
    }
    // Many of the files parse, because letters in names and values may change.
    assert!(read > data_start, "{read}");
}
