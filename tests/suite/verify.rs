//! Hashes of tensor data: an intact and a damaged file with hashes by the reference implementation.

use arenite::gguf::{HASHES_KEY, Verify};
use arenite::{Error, Gguf, Name};

/// A file with three tensors, made by `hashes.py` in its directory.
const FILE: &[u8] = include_bytes!("../fixtures/hashes.gguf");

/// The errors of all steps of `bytes` bytes each.
fn errors(mut verify: Verify<'_>, bytes: usize) -> Vec<Error> {
    let mut errors = vec![];
    for _ in 0..2 * FILE.len() {
        match verify.step(bytes) {
            Ok(true) => {}
            Ok(false) => return errors,
            Err(error) => errors.push(error),
        }
    }
    panic!("no end");
}

fn verify(file: &[u8], bytes: usize) -> Vec<Error> {
    errors(Gguf::parse(file).unwrap().verify().unwrap().unwrap(), bytes)
}

#[test]
fn a_whole_file_matches_in_steps_of_any_size() {
    for bytes in (0..100).chain([4096, usize::MAX]) {
        assert_eq!(verify(FILE, bytes), []);
    }
    let mut verify = Gguf::parse(FILE).unwrap().verify().unwrap().unwrap();
    let steps = core::iter::from_fn(|| verify.step(32).unwrap().then_some(())).count();
    assert_eq!(steps + 1, 3 + 1 + 2); // 68, 20 and 48 bytes
    assert_eq!(verify.step(32), Ok(false));
}

#[test]
fn each_flipped_bit_is_found_and_names_its_tensor() {
    let gguf = Gguf::parse(FILE).unwrap();
    let mut flipped = 0;
    for tensor in gguf.tensors() {
        for at in tensor.offset as usize..tensor.offset as usize + tensor.data.len() {
            for bit in 0..8 {
                let mut file = FILE.to_vec();
                file[at] ^= 1 << bit;
                let expected = Error::DamagedTensor { tensor: Name::new(tensor.name.as_bytes()) };
                assert_eq!(verify(&file, 16), [expected], "bit {bit} of byte {at}");
                flipped += 1;
            }
        }
    }
    assert_eq!(flipped, 8 * (68 + 20 + 48));
    // Erased flash at the end of the file damages two tensors.
    let mut file = FILE.to_vec();
    file[FILE.len() - 70..].fill(0xff);
    assert_eq!(verify(&file, 1000).len(), 2);
}

#[test]
fn a_damaged_hash_is_an_error() {
    let key = Name::new(HASHES_KEY.as_bytes());
    let at = FILE.windows(HASHES_KEY.len()).position(|bytes| bytes == HASHES_KEY.as_bytes()).unwrap();
    let hashes = at + HASHES_KEY.len() + 4 + 4 + 8;
    for byte in hashes..hashes + 4 * 8 {
        let mut file = FILE.to_vec();
        file[byte] ^= 4;
        let gguf = Gguf::parse(&file).unwrap();
        match (byte - hashes) / 8 {
            0 => assert!(matches!(gguf.verify(), Err(Error::KeyValue { key: found, .. }) if found == key)),
            _ => assert_eq!(verify(&file, 16).len(), 1),
        }
    }
}

#[test]
fn hashes_of_other_tensors_are_refused() {
    let key = Name::new(HASHES_KEY.as_bytes());
    let with = |from: &[u8], to: &[u8]| {
        let at = FILE.windows(from.len()).position(|bytes| bytes == from).unwrap();
        let mut file = FILE.to_vec();
        file[at..at + to.len()].copy_from_slice(to);
        file
    };
    // A name, a shape and a type that another program might have changed.
    let shape = |dims: [u64; 3]| dims.map(u64::to_le_bytes).concat();
    for file in [
        with(b"output_norm", b"output_nori"),
        with(&shape([2, 3, 2]), &shape([3, 2, 2])),
        with(
            b"output_norm.weight\x01\0\0\0\x05\0\0\0\0\0\0\0\0",
            b"output_norm.weight\x01\0\0\0\x05\0\0\0\0\0\0\0\x1a",
        ),
    ] {
        let gguf = Gguf::parse(&file).unwrap();
        assert!(matches!(gguf.verify(), Err(Error::KeyValue { key: found, .. }) if found == key));
    }
    // Hashes of another type, and a file without hashes.
    let integers = with(b"hashes\x09\0\0\0\x0a", b"hashes\x09\0\0\0\x0b");
    assert!(matches!(Gguf::parse(&integers).unwrap().verify(), Err(Error::KeyType { key: found, .. }) if found == key));
    let none = with(b"arenite.tensor", b"ARENITE.tensor");
    assert!(Gguf::parse(&none).unwrap().verify().unwrap().is_none());
}
