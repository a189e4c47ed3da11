//! Arbitrary bytes and nearly correct files: either the GGUF parser refuses them, or every accessor works.
#![no_main]

use arbitrary::Arbitrary;
use arenite::{Gguf, Model, Options, Plan};
use fuzz::change::File;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Case {
    File(File),
    Bytes(Vec<u8>),
    /// A correct header (version, number of tensors, number of keys), followed by arbitrary bytes.
    Rest(u32, u8, u8, Vec<u8>),
}

fuzz_target!(|case: Case| {
    let bytes = match case {
        Case::File(file) => file.build(),
        Case::Bytes(bytes) => bytes,
        Case::Rest(version, tensors, keys, rest) => {
            let counts = [u64::from(tensors), u64::from(keys)].map(u64::to_le_bytes).concat();
            [&b"GGUF"[..], &(2 + version % 2).to_le_bytes(), &counts, &rest].concat()
        }
    };
    let gguf = match Gguf::parse(&bytes) {
        Ok(gguf) => gguf,
        Err(error) => return one_line(&error.to_string()),
    };
    assert_eq!(gguf.keys().count() as u64, gguf.key_count());
    assert_eq!(gguf.tensors().count() as u64, gguf.tensor_count());
    for (key, value) in gguf.keys().take(200) {
        assert_eq!(gguf.get(key).expect("it is there").value_type(), value.value_type());
        let _ = (gguf.u32("", key), gguf.f32("", key), gguf.bool("", key), gguf.str("", key));
        if let Ok(Some(array)) = gguf.array("", key) {
            let numbers = (0..array.len()).filter(|&i| array.get(i).is_some()).count();
            assert_eq!(numbers + array.strings().count(), array.len());
        }
    }
    for tensor in gguf.tensors().take(200) {
        let found = gguf.tensor(tensor.name).map(|found| (found.offset, found.data.len()));
        assert_eq!(found, (!tensor.data.is_empty()).then_some((tensor.offset, tensor.data.len())));
    }
    let _ = (gguf.fingerprint(), gguf.architecture());
    if let Err(error) = Model::new(&gguf) {
        one_line(&error.to_string());
    }
    let _ = Plan::new(&gguf, Options::DEFAULT);
    if let Ok(Some(mut verify)) = gguf.verify() {
        while verify.step(7) != Ok(false) {}
    }
    // A file cannot be both pieces of a model.
    assert!(Gguf::parse_split(&[&bytes, &bytes]).is_err());
});

/// No text from a file may control the terminal.
fn one_line(text: &str) {
    assert!(text.len() > 10 && !text.chars().any(char::is_control), "{text:?}");
}
