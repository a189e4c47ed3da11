//! Malformed vocabularies of kinds that have crashed other programs: each must quickly give a typed error or a
//! defined result, and never a panic.

use crate::common::gguf::{Builder, Meta};
use crate::common::tiny::tiny_llama;
use crate::common::vectors::Owned;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Error, Gguf, Name};

/// The result of building a tokenizer for a vocabulary with one change.
fn built(mut file: Builder, change: impl FnOnce(&mut Builder) -> &mut Builder) -> Result<(), Error> {
    change(&mut file);
    let file = file.build();
    let gguf = Gguf::parse(&file).unwrap();
    let mut index = vec![0; Tokenizer::index_bytes(&gguf)?];
    Tokenizer::new(&gguf, &mut index).map(|tokenizer| {
        // A tokenizer that can be built must work.
        let mut scratch = vec![0; Tokenizer::scratch_bytes(20)];
        let mut ids = [0; 64];
        let count = tokenizer.encode("the \u{e9}\0</s>x".as_bytes(), Encode::PROMPT, &mut scratch, &mut ids).unwrap();
        tokenizer.detokenize(&ids[..count], true, &mut [0; 4096]).unwrap();
    })
}

fn key(name: &str) -> Name {
    Name::key("tokenizer.ggml", name)
}

/// A vocabulary of byte-level BPE: two letters, their pair, and one merge.
fn tiny_bpe() -> Builder {
    let mut file = Builder::new();
    file.set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "gpt-2")
        .set("tokenizer.ggml.tokens", Meta::strings(["a", "b", "ab"]))
        .set("tokenizer.ggml.token_type", Meta::array([1i32, 1, 1]))
        .set("tokenizer.ggml.merges", Meta::strings(["a b"]));
    assert_eq!(built(file.clone(), |file| file), Ok(()));
    file
}

// --- arrays of another length or type -----------------------------------------------------------

#[test]
fn wrong_scores() {
    let scores = |value: Meta| built(tiny_llama(), |file| file.set("tokenizer.ggml.scores", value));
    let short = Error::KeyValue { key: key("scores"), why: "is shorter than the list of tokens" };
    assert_eq!(scores(Meta::array([0f32; 287])), Err(short));
    assert_eq!(scores(Meta::array([0f32; 0])), Err(short));
    let other = Error::KeyType { key: key("scores"), expected: "an array of numbers" };
    assert_eq!(scores(Meta::strings([""; 288])), Err(other));
    assert_eq!(scores(Meta::array([true; 288])), Err(other));
    assert_eq!(scores(1f32.into()), Err(Error::KeyType { key: key("scores"), expected: "an array" }));
    // Longer arrays, other widths, infinities and NaN are accepted.
    assert_eq!(scores(Meta::array([0f32; 289])), Ok(()));
    assert_eq!(scores(Meta::array([0f64; 288])), Ok(()));
    assert_eq!(scores(Meta::array([-7i32; 288])), Ok(()));
    assert_eq!(scores(Meta::array([f32::NAN; 288])), Ok(()));
    assert_eq!(scores(Meta::array([f32::NEG_INFINITY; 288])), Ok(()));
}

#[test]
fn wrong_token_types() {
    let types = |value: Meta| built(tiny_llama(), |file| file.set("tokenizer.ggml.token_type", value));
    let short = Error::KeyValue { key: key("token_type"), why: "is shorter than the list of tokens" };
    assert_eq!(types(Meta::array([1i32; 1])), Err(short));
    let other = Error::KeyType { key: key("token_type"), expected: "an array of integers" };
    assert_eq!(types(Meta::array([1f32; 288])), Err(other));
    assert_eq!(types(Meta::strings(["1"; 288])), Err(other));
    assert_eq!(types(Meta::array([1u8; 288])), Ok(()));
    assert_eq!(types(Meta::array([1u64; 300])), Ok(()));
    // Unknown numbers mean a type without special treatment.
    assert_eq!(types(Meta::array([-1i32; 288])), Ok(()));
    assert_eq!(types(Meta::array([u64::MAX; 288])), Ok(()));
    // All tokens are special.
    assert_eq!(types(Meta::array([4i32; 288])), Ok(()));
}

#[test]
fn wrong_tokens_and_merges() {
    let tokens = |value: Meta| built(tiny_llama(), |file| file.set("tokenizer.ggml.tokens", value));
    let other = Error::KeyType { key: key("tokens"), expected: "an array of strings" };
    assert_eq!(tokens(Meta::array([1u32; 288])), Err(other));
    assert_eq!(tokens(Meta::strings([""; 0])), Err(Error::KeyValue { key: key("tokens"), why: "is empty" }));
    let merges = |value: Meta| built(tiny_bpe(), |file| file.set("tokenizer.ggml.merges", value));
    let other = Error::KeyType { key: key("merges"), expected: "an array of strings" };
    assert_eq!(merges(Meta::array([1u32; 1])), Err(other));
    assert_eq!(merges(Meta::strings([""; 0])), Ok(()));
}

#[test]
fn keys_that_are_missing_or_unknown() {
    for name in ["model", "tokens"] {
        let missing = built(tiny_llama(), |file| file.remove(&format!("tokenizer.ggml.{name}")));
        assert_eq!(missing, Err(Error::MissingKey { key: key(name) }));
    }
    let missing = built(tiny_bpe(), |file| file.remove("tokenizer.ggml.merges"));
    assert_eq!(missing, Err(Error::MissingKey { key: key("merges") }));
    let unknown = built(tiny_llama(), |file| file.set("tokenizer.ggml.model", "no such"));
    assert_eq!(unknown, Err(Error::Unsupported { what: "tokenizer model", name: Name::new(b"no such") }));
    // Byte-level and character-level BPE.
    for model in ["gpt2", "bpe"] {
        let unknown =
            built(tiny_bpe(), |file| file.set("tokenizer.ggml.model", model).set("tokenizer.ggml.pre", "no such"));
        assert_eq!(unknown, Err(Error::Unsupported { what: "pre-tokenizer", name: Name::new(b"no such") }), "{model}");
    }
    assert_eq!(built(tiny_bpe(), |file| file.remove("tokenizer.ggml.pre")), Ok(())); // an old file
    let missing = built(tiny_bpe(), |file| file.set("tokenizer.ggml.model", "bpe").remove("tokenizer.ggml.pre"));
    assert_eq!(missing, Err(Error::MissingKey { key: key("pre") }));
}

#[test]
fn tables_of_normalisation() {
    let charsmap = |value: Meta| {
        built(tiny_llama(), |file| {
            file.set("tokenizer.ggml.model", "t5").set("tokenizer.ggml.precompiled_charsmap", value)
        })
    };
    let key = key("precompiled_charsmap");
    assert_eq!(charsmap(Meta::array([0u8; 0])), Ok(()));
    assert_eq!(charsmap(Meta::array([4u8, 0, 0, 0, 0, 0, 0, 0])), Ok(()));
    for short in [&[4u8][..], &[4, 0, 0, 0, 0, 0, 0], &[255; 100]] {
        let cut = Err(Error::KeyValue { key, why: "is cut short" });
        assert_eq!(charsmap(Meta::array(short.iter().copied())), cut, "{short:?}");
    }
    let other = Err(Error::KeyType { key, expected: "an array of bytes" });
    assert_eq!(charsmap(Meta::array([4u32])), other);
}

#[test]
fn tokens_that_are_too_long() {
    let wrong = |entry| {
        let why = "has more than 512 bytes";
        Err(Error::VocabularyEntry { key: key("tokens"), entry, why })
    };
    for (model, kind, refused) in [("t5", 1i32, true), ("bert", 1, true), ("llama", 4, true), ("llama", 1, false)] {
        for len in [512, 513] {
            let result = built(tiny_llama(), |file| {
                file.set("tokenizer.ggml.model", model)
                    .set("tokenizer.ggml.tokens", Meta::strings(["<unk>", "<s>", "</s>", &"a".repeat(len)]))
                    .set("tokenizer.ggml.token_type", Meta::array([2i32, 3, 3, kind]))
            });
            let expected = if refused && len > 512 { wrong(3) } else { Ok(()) };
            assert_eq!(result, expected, "{model} {kind} {len}");
        }
    }
}

// --- entries that make no sense -----------------------------------------------------------------

#[test]
fn wrong_byte_tokens() {
    for token in ["<0x-1>", "<0xZZ>", "<0x1>", "<0x+1>", "<0x 1>", "<0x041>", "", "a", "<0x41", "<0xé>"] {
        let wrong = built(tiny_llama(), |file| {
            file.set("tokenizer.ggml.tokens", Meta::strings(["<0x41>", token]))
                .set("tokenizer.ggml.token_type", Meta::array([6i32; 2]))
                .set("tokenizer.ggml.bos_token_id", 0u32)
                .set("tokenizer.ggml.eos_token_id", 0u32)
        });
        let why = "is marked as a byte but is not <0x00> to <0xFF>";
        assert_eq!(wrong, Err(Error::VocabularyEntry { key: key("tokens"), entry: 1, why }), "{token:?}");
    }
}

#[test]
fn ids_outside_the_vocabulary() {
    for name in ["bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id"] {
        // As in llama.cpp, such an id counts as absent.
        let key = format!("tokenizer.ggml.{name}");
        for id in [288u32, u32::MAX] {
            assert_eq!(built(tiny_llama(), |file| file.set(&key, id)), Ok(()), "{name}");
        }
        assert_eq!(built(tiny_llama(), |file| file.set(&key, -1i32)), Ok(()), "{name}");
        assert!(matches!(built(tiny_llama(), |file| file.set(&key, "two")), Err(Error::KeyType { .. })));
    }
    // A BOS should be added, but none is named, and the default id is not in the vocabulary.
    let none = built(tiny_bpe(), |file| file.set("tokenizer.ggml.add_bos_token", true));
    assert_eq!(none, Err(Error::MissingKey { key: key("bos_token_id") }));
    let none = built(tiny_bpe(), |file| file.set("tokenizer.ggml.add_eos_token", true));
    assert_eq!(none, Err(Error::MissingKey { key: key("eos_token_id") }));
}

#[test]
fn wrong_merges() {
    let merges = |merge: &str| {
        let merges = ["a b", merge];
        built(tiny_bpe(), |file| file.set("tokenizer.ggml.merges", Meta::strings(merges)))
    };
    let wrong = |why| Err(Error::VocabularyEntry { key: key("merges"), entry: 1, why });
    for merge in ["", " ", "ab", " a", "ab\u{a0}b"] {
        assert_eq!(merges(merge), wrong("has no space between two pieces"), "{merge:?}");
    }
    for merge in ["a c", "c a", "a ", "a  b", "a b c", "c d", "\u{0}\u{0} b"] {
        assert_eq!(merges(merge), wrong("names a piece that is not a token"), "{merge:?}");
    }
    for merge in ["b a", "ab ab"] {
        assert_eq!(merges(merge), wrong("produces text that is not a token"), "{merge:?}");
    }
    // For repeated merges, the first one counts.
    assert_eq!(merges("a b"), Ok(()));
}

#[test]
fn tokens_that_are_strange_but_harmless() {
    let mut file = tiny_llama();
    let tokens =
        ["<unk>", "<s>", "</s>", "", "", "a", "a", "\u{2581}", " ", "<", "<|im_end|>", "\u{0}", "aaaaaaaaaaaaaaaa"];
    file.set("tokenizer.ggml.tokens", Meta::strings(tokens));
    for kinds in [1i32, 2, 3, 4, 5, 7] {
        assert_eq!(built(file.clone(), |f| f.set("tokenizer.ggml.token_type", Meta::array([kinds; 13]))), Ok(()));
    }
    // If two tokens have the same text, the first one is used.
    file.set("tokenizer.ggml.token_type", Meta::array([1i32; 13])).set("tokenizer.ggml.add_space_prefix", false);
    let file = file.build();
    assert_eq!(Owned::new(&file).encode(b"a", Encode::TEXT), [5]);
    // Without byte tokens, consecutive characters that the vocabulary lacks are one unknown token, as in SentencePiece.
    assert_eq!(Owned::new(&file).encode("éüaé".as_bytes(), Encode::TEXT), [0, 5, 0]);
}

// --- small buffers, huge texts ------------------------------------------------------------------

#[test]
fn small_buffers() {
    let file = tiny_llama().build();
    let tokenizer = Owned::new(&file).tokenizer;
    let what = "token ids";
    let mut scratch = vec![0; Tokenizer::scratch_bytes(1)];
    let result = tokenizer.encode(b"a", Encode::PROMPT, &mut scratch, &mut []);
    assert_eq!(result, Err(Error::BufferTooSmall { what, needed: 2, given: 0 }));
    let what = "bytes of scratch memory";
    let needed = tokenizer.scratch_bytes_for(b"a");
    assert!(needed <= Tokenizer::scratch_bytes(1));
    let result = tokenizer.encode(b"a", Encode::PROMPT, &mut [], &mut [0; 2]);
    assert_eq!(result, Err(Error::BufferTooSmall { what, needed, given: 0 }));
    assert_eq!(Tokenizer::scratch_bytes(usize::MAX), usize::MAX);
    // On 32-bit targets, a larger size saturates.
    assert!(Tokenizer::scratch_bytes(1 << 29) as u64 > (1 << 34).min(usize::MAX as u64 / 2));
}

#[test]
fn a_text_of_millions_of_bytes() {
    let file = tiny_llama().build();
    let tokenizer = Owned::new(&file);
    for text in [vec![b'a'; 2_000_000], vec![0xff; 1_000_000], b"</s>".repeat(500_000), b" ".repeat(2_000_000)] {
        let ids = tokenizer.encode(&text, Encode::PROMPT);
        assert_eq!(tokenizer.decode(&ids[1..]), text);
    }
}

// --- other damage -------------------------------------------------------------------------------

/// After a change of any byte, a vocabulary gives an error or a tokenizer that works.
#[test]
fn every_byte_changed() {
    for small in [tiny_bpe(), {
        let mut file = tiny_bpe();
        file.set("tokenizer.ggml.model", "llama").set("tokenizer.ggml.scores", Meta::array([0f32, -1.0, -2.0]));
        file
    }] {
        let file = small.build();
        for at in 0..file.len() {
            for value in [0, 1, 0x20, 0x7f, 0x80, 0xff, file[at] ^ 1, file[at] ^ 0x10] {
                let mut file = file.clone();
                file[at] = value;
                let Ok(gguf) = Gguf::parse(&file) else { continue };
                let Ok(bytes) = Tokenizer::index_bytes(&gguf) else { continue };
                assert!(bytes < 1 << 20);
                let mut index = vec![0; bytes];
                let Ok(tokenizer) = Tokenizer::new(&gguf, &mut index) else { continue };
                let mut scratch = vec![0; Tokenizer::scratch_bytes(8)];
                let mut ids = [0; 64];
                let count = tokenizer.encode(b"abba \xff\xc3 ", Encode::PROMPT, &mut scratch, &mut ids).unwrap();
                tokenizer.detokenize(&ids[..count], true, &mut [0; 4096]).unwrap();
            }
        }
    }
}

/// A damaged or forged index is refused, whichever word of it changed.
#[test]
fn every_word_of_an_index_changed() {
    let mut strange = tiny_bpe();
    // A repeated token, a repeated merge, a token that no text can contain, and a special one.
    strange
        .set("tokenizer.ggml.tokens", Meta::strings(["a", "b", "ab", "a", "abab", "a b", "<|im_end|>"]))
        .set("tokenizer.ggml.token_type", Meta::array([1i32, 1, 1, 1, 1, 4, 1]))
        .set("tokenizer.ggml.merges", Meta::strings(["a b", "ab ab", "a b"]));
    for small in [tiny_bpe(), tiny_llama(), strange] {
        let file = small.build();
        let gguf = Gguf::parse(&file).unwrap();
        let mut index = vec![0; Tokenizer::index_bytes(&gguf).unwrap()];
        Tokenizer::new(&gguf, &mut index).unwrap();
        assert!(Tokenizer::with_index(&gguf, &index).is_ok());
        for at in 0..index.len() / 4 {
            let word = u32::from_le_bytes(index[4 * at..4 * at + 4].try_into().unwrap());
            for value in [0, 1, 2, 100, 0x7fff_ffff, 0x8000_0000, u32::MAX, word ^ 1, word.wrapping_add(1)] {
                let mut changed = index.clone();
                changed[4 * at..4 * at + 4].copy_from_slice(&u32::to_le_bytes(value));
                let result = Tokenizer::with_index(&gguf, &changed).map(|_| ());
                let expected = if value == word { Ok(()) } else { Err(Error::ForeignIndex) };
                assert_eq!(result, expected, "word {at} from {word} to {value}");
            }
        }
    }
}

/// An index is refused for a vocabulary with the same sizes and other contents.
#[test]
fn an_index_of_another_vocabulary() {
    let index_of = |file: &Builder| {
        let file = file.build();
        let gguf = Gguf::parse(&file).unwrap();
        let mut index = vec![0; Tokenizer::index_bytes(&gguf).unwrap()];
        Tokenizer::new(&gguf, &mut index).unwrap();
        index
    };
    let index = index_of(&tiny_bpe());
    for (key, value) in [
        ("tokens", Meta::strings(["b", "a", "ab"])),
        ("tokens", Meta::strings(["a", "b", "cd"])),
        ("merges", Meta::strings(["b a"])),
        ("token_type", Meta::array([1i32, 1, 3])),
        ("eot_token_id", Meta::from(2u32)),
    ] {
        let mut other = tiny_bpe();
        let file = other.set(&format!("tokenizer.ggml.{key}"), value).build();
        let gguf = Gguf::parse(&file).unwrap();
        let mut fits = index.clone();
        fits.resize(Tokenizer::index_bytes(&gguf).unwrap(), 0);
        assert_eq!(Tokenizer::with_index(&gguf, &fits).map(|_| ()), Err(Error::ForeignIndex), "{key}");
    }
}
