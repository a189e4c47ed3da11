//! Compares decoded rows of every block format with gguf-py's, bit for bit. `fixtures/decoded.py` wrote the
//! checksums.

use std::path::Path;

use crate::common::fixtures::{committed, external, read};
use arenite::Gguf;
use arenite::quant::{TensorType, decode_row};

/// Number of blocks per case.
const BLOCKS: usize = 40;

/// The type of this name, if it exists.
fn kind(name: &str) -> Option<TensorType> {
    (0..256).filter_map(TensorType::from_id).find(|kind| format!("{kind:?}") == name)
}

/// Xorshift random bytes, one per step.
fn random_bytes(mut seed: u64, n: usize) -> Vec<u8> {
    let next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 32) as u8
    };
    std::iter::repeat_with(next).take(n).collect()
}

/// The bytes of a case.
fn blocks(name: &str, case: &str, n: usize) -> Vec<u8> {
    match case {
        "random" => random_bytes((name.len() + n) as u64, n),
        "ends" => random_bytes(n as u64, n).iter().map(|b| [0x80, 0x7f, 0x80, 0xff, 0][usize::from(b % 5)]).collect(),
        "zeros" => vec![0; n],
        _ => vec![0xff; n],
    }
}

/// FNV-1a over the bits of the decoded values, with one pattern for all NaN.
fn checksum(kind: TensorType, bytes: &[u8]) -> String {
    let (elements, size) = kind.block();
    let mut row = vec![0.0; bytes.len() / size * elements];
    assert!(decode_row(kind, bytes, &mut row), "{kind:?}");
    let bits = row.iter().map(|x| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() });
    let sum = bits.fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| (sum ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3));
    format!("{sum:016x}")
}

/// The last row of a tensor.
fn last_row(path: &Path, tensor: &&str) -> Vec<u8> {
    let file = read(path);
    let gguf = Gguf::parse(&file).unwrap();
    let tensor = gguf.tensors().find(|t| t.name == *tensor).unwrap();
    let bytes = tensor.kind.row_bytes(tensor.dims[0] as usize).unwrap();
    tensor.data[tensor.data.len() - bytes..].to_vec()
}

#[test]
fn decoded_rows_are_gguf_pys() {
    let list = String::from_utf8(read(&committed().join("decoded.txt"))).unwrap();
    let mut seen = vec![];
    for line in list.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let Some(kind) = kind(fields[0]).filter(|kind| kind.is_built()) else { continue };
        let bytes = match (&fields[1..], external()) {
            ([case, _], _) => blocks(fields[0], case, kind.block().1 * BLOCKS),
            ([path, tensor, _], Some(root)) => last_row(&root.join(path), tensor),
            _ => continue, // a row of the larger set
        };
        assert_eq!(checksum(kind, &bytes), *fields.last().unwrap(), "{line}");
        seen.push(kind);
    }
    // All block formats of this build.
    for kind in (0..256).filter_map(TensorType::from_id).filter(|kind| kind.is_built() && kind.block().0 > 1) {
        assert!(seen.contains(&kind), "{kind:?} has no vectors");
    }
}
