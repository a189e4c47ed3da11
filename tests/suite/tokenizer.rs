//! Compares token ids with llama.cpp's, and decodes them again.
//!
//! Tiny vocabularies are in `tests/fixtures/tokenizers`; published ones are in the directory that `ARENITE_FIXTURES` names.

use crate::common::fixture::{Case, DECODERS};
use crate::common::gguf::{Builder, Meta, with_key};
use crate::common::tiny::tiny_llama;
use crate::common::vectors::{Owned, Vectors, fixture, tiny, tiny_texts, vocabulary};
use arenite::tokenizer::{Encode, INDEX_HASH_KEY, INDEX_KEY, TokenType, Tokenizer};
use arenite::{Error, Gguf, Name, Options, Plan, TokenId};

/// Replaces `▁` by a space: SentencePiece cannot tell them apart.
fn escaped(text: &[u8]) -> Vec<u8> {
    match core::str::from_utf8(text) {
        Ok(text) => text.replace('▁', " ").into_bytes(),
        Err(_) => text.to_vec(),
    }
}

/// Checks every string of a vector file: its ids, and the text decoded from them, with the index in RAM and in the
/// file.
fn check(file: &[u8], vectors: &Vectors) {
    check_with(&Owned::new(file), vectors);
    check_with(&Owned::packed(file), vectors);
}

fn check_with(tokenizer: &Owned<'_>, vectors: &Vectors) {
    let mut wrong = 0;
    for (bytes, ids) in &vectors.cases {
        let found = tokenizer.encode(bytes, Encode::TEXT);
        if found != *ids {
            wrong += 1;
            eprintln!("{:?}\n  expected {ids:?}\n  found    {found:?}", String::from_utf8_lossy(bytes));
        }
        if tokenizer.tokenizer.score(0) == 0.0 && core::str::from_utf8(bytes).is_err() {
            continue; // byte-level BPE cannot restore it
        }
        let text = tokenizer.decode(&found);
        if text != *bytes && text != escaped(bytes) {
            wrong += 1;
            eprintln!("{:?} came back as {:?}", String::from_utf8_lossy(bytes), String::from_utf8_lossy(&text));
        }
    }
    assert_eq!(wrong, 0, "of {} cases", vectors.cases.len());
    assert!(vectors.cases.len() > 100);
    if let Some(ids) = &vectors.hello_special {
        assert_eq!(tokenizer.encode(b"Hello", Encode { add_special: true, parse_special: false }), *ids);
    }
}

/// Checks llama.cpp's own pairs of texts and ids.
fn check_shipped(name: &str, file: &[u8]) {
    let path = format!("tokenizers/ggml-vocab-{name}.gguf");
    let [texts, ids] = ["inp", "out"].map(|end| String::from_utf8(fixture(&format!("{path}.{end}")).unwrap()).unwrap());
    let tokenizer = Owned::packed(file);
    let mut count = 0;
    for (text, ids) in texts.split("\n__ggml_vocab_test__\n").zip(ids.lines()) {
        let ids: Vec<TokenId> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(tokenizer.encode(text.as_bytes(), Encode::TEXT), ids, "{text:?}");
        count += 1;
    }
    assert!(count >= 46);
}

macro_rules! vocabularies {
    ($($test:ident $name:literal)*) => {$(
        #[test]
        fn $test() {
            let Some(file) = vocabulary($name) else { return };
            check(&file, &Vectors::published($name).unwrap());
            check_shipped($name, &file);
        }
    )*};
}

vocabularies! {
    llama_spm "llama-spm"
    gpt_2 "gpt-2"
    qwen2 "qwen2"
    llama_bpe "llama-bpe"
    phi_3 "phi-3"
}

macro_rules! tiny {
    ($($test:ident $name:literal)*) => {$(
        #[test]
        fn $test() {
            let Some((file, vectors)) = tiny($name) else { return };
            check(&file, &vectors);
        }
    )*};
}

tiny! {
    tiny_llama_mha "llama_mha"
    tiny_llama_gqa "llama_gqa"
    tiny_gpt2 "gpt2"
    tiny_qwen2 "qwen2"
    tiny_granite "granite"
    tiny_gemma2 "gemma2"
    tiny_gemma4_e2b "gemma4_e2b"
}

/// Vocabularies that do not restore the text, because of normalization or unknown tokens.
#[test]
fn one_way_vocabularies() {
    for name in ["bert", "t5_relu"] {
        let Some((file, vectors)) = tiny(name) else { continue };
        let tokenizer = Owned::new(&file);
        let mut wrong = 0;
        for (bytes, ids) in &vectors.cases {
            let found = tokenizer.encode(bytes, Encode::TEXT);
            if found != *ids {
                wrong += 1;
                eprintln!("{:?}\n  expected {ids:?}\n  found    {found:?}", String::from_utf8_lossy(bytes));
            }
        }
        assert_eq!(wrong, 0, "{name}: of {} cases", vectors.cases.len());
        assert!(vectors.cases.len() > 100);
        for prompt in tokenized(name).iter().flat_map(Case::prompts) {
            assert_eq!(tokenizer.encode(prompt.text.as_bytes(), Encode::PROMPT), prompt.ids, "{name}");
        }
    }
}

/// Vocabularies of RWKV World, PLaMo 2, DNA, mmBERT and BPE over the characters of words, with the index in RAM and in the
/// file. The ids are llama.cpp's, or Hugging Face's where the two differ.
#[test]
fn vocabularies_of_other_kinds() {
    for name in ["rwkv", "plamo2", "hybriddna", "mmbert", "whitespace", "whitespace_lower"] {
        let Some((file, texts)) = tiny_texts(name) else { continue };
        // Hugging Face's tokenizers find special tokens in every text.
        let parse_special = name == "mmbert" || name.starts_with("whitespace");
        let how = Encode { add_special: name.starts_with("whitespace"), parse_special };
        for tokenizer in [Owned::new(&file), Owned::packed(&file)] {
            for text in &texts {
                let shown = String::from_utf8_lossy(&text.bytes);
                assert_eq!(tokenizer.encode(&text.bytes, how), text.ids, "{name}: {shown:?}");
                if let Some(again) = &text.again {
                    assert_eq!(tokenizer.decode(&text.ids), *again, "{name}: {shown:?}");
                }
            }
        }
        assert!(texts.len() > 150);
    }
}

/// The longest match of RWKV World takes control tokens as well.
#[test]
fn control_tokens_are_part_of_the_longest_match() {
    let Some((file, _)) = tiny_texts("rwkv") else { return };
    let tokenizer = Owned::new(&file);
    for how in [Encode::TEXT, Encode::PROMPT] {
        assert_eq!(tokenizer.encode(b"<s>hello", how), [0, 408, 435, 112]);
        assert_eq!(tokenizer.encode(b"a<s>b", how), [98, 0, 99]);
        assert_eq!(tokenizer.encode(b"", how), [0; 0]);
    }
    let mut text = [0; 8];
    assert_eq!(tokenizer.tokenizer.detokenize(&[98, 0, 99], false, &mut text), Ok(5));
    assert_eq!(text[..5], *b"a<s>b");
    let ends: Vec<u32> = (0..2000).filter(|id| tokenizer.tokenizer.is_end(*id)).collect();
    assert_eq!(ends, [0, 261]);
}

/// A text of PLaMo 2 loses one byte order mark; bytes outside of characters are U+FFFD.
#[test]
fn bytes_outside_of_characters_are_spelled_out() {
    let Some((file, _)) = tiny_texts("plamo2") else { return };
    let tokenizer = Owned::new(&file);
    let ids = |text: &[u8]| tokenizer.encode(text, Encode::TEXT);
    assert_eq!(ids(b"hello"), [298, 875, 274]);
    assert_eq!(ids(b"\xef\xbb\xbfhello"), [298, 875, 274]);
    let byte = |byte: u32| 6 + byte;
    let replaced = [0xef, 0xbf, 0xbd].map(byte);
    assert_eq!(ids(b"\xff"), replaced);
    assert_eq!(ids(b"\xe8\xaa"), [replaced, replaced].concat());
    assert_eq!(ids(b"\xffhello\xc3"), [&replaced[..], &[298, 875, 274], &replaced].concat());
    assert_eq!(ids(b"[PAD1]"), [1397]);
    assert_eq!(ids(b"<|plamo:bos|>x<|plamo:op|>"), [1, 126, 4]);
    assert_eq!(ids(b"<0x41>"), [370, 819, 126, 58, 621, 371]);
}

/// Returns the cases of this name whose ids come from a tokenizer. Only the larger set has such cases.
fn tokenized(name: &str) -> Vec<Case> {
    Case::all(name, "model.gguf").into_iter().filter(|case| !case.json()["tokenizer"].is_null()).collect()
}

/// The prompts of the reference cases, with BOS where the tokenizer adds one.
#[test]
fn prompts_of_every_decoder() {
    for case in DECODERS.iter().flat_map(|name| tokenized(name)) {
        let file = case.file("model.gguf");
        let tokenizer = Owned::new(&file);
        for prompt in case.prompts() {
            let ids = tokenizer.encode(prompt.text.as_bytes(), Encode { add_special: true, parse_special: false });
            assert_eq!(ids, prompt.ids, "{}: {:?}", case.name, prompt.text);
        }
    }
}

// --- small vocabularies --------------------------------------------------------------------------

const PARSE: Encode = Encode { add_special: false, parse_special: true };

/// Byte-level BPE with a few merges: bytes first, in the order of GPT-2's alphabet.
fn tiny_bpe(pre: &str) -> Builder {
    let prints = |b: u32| (0x21..=0x7e).contains(&b) || (0xa1..=0xac).contains(&b) || (0xae..=0xff).contains(&b);
    let mut next = 0xff;
    let mut tokens: Vec<String> = Vec::new();
    for byte in 0..256 {
        let code = if prints(byte) {
            byte
        } else {
            next += 1;
            next
        };
        tokens.push(char::from_u32(code).unwrap().to_string());
    }
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "Ã ©", "1 2", "12 3"];
    tokens.extend(merges.map(|merge| merge.replace(' ', "")));
    tokens.push("<|end|>".into());
    let mut types = vec![1i32; tokens.len() - 1];
    types.push(3);
    let mut file = Builder::new();
    file.set("general.architecture", "gpt2")
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", pre)
        .set("tokenizer.ggml.tokens", Meta::strings(tokens))
        .set("tokenizer.ggml.token_type", Meta::array(types))
        .set("tokenizer.ggml.merges", Meta::strings(merges))
        .set("tokenizer.ggml.bos_token_id", 266u32)
        .set("tokenizer.ggml.eos_token_id", 266u32);
    file
}

/// Appends a token to `tiny_llama`, which has 288.
fn with_token(file: &mut Builder, text: &str, kind: i32) {
    for (key, bytes) in [
        ("tokens", [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()),
        ("scores", 0f32.to_le_bytes().to_vec()),
        ("token_type", kind.to_le_bytes().to_vec()),
    ] {
        let name = format!("tokenizer.ggml.{key}");
        let key = file.keys.iter_mut().find(|k| k.name == name.as_bytes()).unwrap();
        let Meta::Array(_, count, all) = &mut key.value else { panic!() };
        *count += 1;
        all.extend(bytes);
    }
}

#[test]
fn special_tokens_are_found_where_they_should_be() {
    let mut file = tiny_llama();
    with_token(&mut file, "<|user|>", 3); // 288
    with_token(&mut file, "<|user|><", 3); // 289
    with_token(&mut file, "  ", 4); // 290
    with_token(&mut file, "ab", 4); // 291
    with_token(&mut file, "bcd", 4); // 292
    with_token(&mut file, "cd|", 3); // 293
    let file = file.build();
    let tokenizer = Owned::new(&file);
    let (text, parsed) =
        (|t: &str| tokenizer.encode(t.as_bytes(), Encode::TEXT), |t: &str| tokenizer.encode(t.as_bytes(), PARSE));
    let a = tokenizer.encode(b"a", Encode::TEXT);

    // Control tokens are recognized only on request, user-defined ones always.
    assert_eq!(parsed("<|user|>"), [288]);
    assert!(text("<|user|>").len() > 3);
    assert_eq!(text("  "), [290]);
    // The longest token at a place is taken. A space is added before text that follows a special token.
    assert_eq!(parsed("<|user|><|user|>")[0], 289);
    // As in Hugging Face's tokenizers, the left one of overlapping tokens is found, and control tokens are found first.
    assert_eq!(text("abcd")[0], 291);
    assert_eq!(parsed("abcd|"), [291, 293]);
    assert_eq!(parsed("<|user|>a"), [&[288][..], &a].concat());
    assert_eq!(parsed("a<|user|>a"), [&a[..], &[288], &a].concat());
    assert_eq!(tokenizer.encode(b"a", Encode::PROMPT), [&[1][..], &a].concat());
    // Everything can be decoded again.
    for sample in ["<|user|>a<|user|> a  b", "  a", " a", "", "<|user|>", "a<|user|>  <|user|><é"] {
        assert_eq!(tokenizer.decode(&parsed(sample)), sample.as_bytes());
    }
    let mut shown = [0; 32];
    let ids = parsed("<|user|>a");
    assert_eq!(tokenizer.tokenizer.detokenize(&ids, false, &mut shown), Ok(1));
}

/// Files of ollama list all end tokens. Ids outside of the vocabulary are ignored.
#[test]
fn a_list_of_end_tokens() {
    let mut file = tiny_llama();
    file.set("tokenizer.ggml.eos_token_ids", Meta::array([5u32, 7, 900]));
    let file = file.build();
    for tokenizer in [Owned::new(&file), Owned::packed(&file)] {
        let ends: Vec<u32> = (0..288).filter(|id| tokenizer.tokenizer.is_end(*id)).collect();
        assert_eq!(ends, [2, 5, 7]);
    }
}

#[test]
fn a_line_is_characters_and_then_merges() {
    let mut tokens: Vec<String> = ["<pad>", "<eos>", "<bos>", "<unk>"].map(String::from).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let first = tokens.len() as u32;
    tokens.extend(["▁", "a", "▁a", "\n\n", "語"].map(String::from));
    let types = tokens.iter().enumerate().map(|(i, _)| {
        if i < 4 {
            3i32
        } else if i < 260 {
            6
        } else {
            1
        }
    });
    let types: Vec<i32> = types.collect();
    let mut file = Builder::new();
    file.set("tokenizer.ggml.model", "gemma4")
        .set("tokenizer.ggml.tokens", Meta::strings(tokens))
        .set("tokenizer.ggml.token_type", Meta::array(types))
        .set("tokenizer.ggml.merges", Meta::strings(["▁ a"]));
    let file = file.build();
    let tokenizer = Owned::new(&file);
    let [space, a, space_a, newlines, character] = [0, 1, 2, 3, 4].map(|i| first + i);
    let byte = |byte: u32| 4 + byte;
    for (text, ids) in [
        (&b"a a  a"[..], vec![a, space_a, space, space_a]),
        (b"a\n\na", vec![a, newlines, a]),
        (b"\n\n\n a", vec![byte(10), byte(10), byte(10), space_a]),
        ("語é".as_bytes(), vec![character, byte(0xc3), byte(0xa9)]),
        (b"\xff\xe8a", vec![byte(0xff), byte(0xe8), a]),
    ] {
        assert_eq!(tokenizer.encode(text, Encode::TEXT), ids, "{text:?}");
        assert_eq!(tokenizer.decode(&ids), text);
    }
    assert_eq!(tokenizer.encode(b"a", Encode::PROMPT), [2, a]);
}

#[test]
fn a_word_is_bytes_and_then_merges() {
    let file = tiny_bpe("gpt-2").build();
    let tokenizer = Owned::new(&file);
    let name = |id: TokenId| String::from_utf8_lossy(tokenizer.tokenizer.spelling(id)).into_owned();
    let pieces =
        |text: &str| -> Vec<String> { tokenizer.encode(text.as_bytes(), Encode::TEXT).into_iter().map(name).collect() };
    assert_eq!(pieces("hello world"), ["hello", "Ġwor", "l", "d"]);
    assert_eq!(pieces("héllo"), ["h", "Ã©", "ll", "o"]);
    assert_eq!(pieces("helhell"), ["he", "l", "hell"]);
    assert_eq!(pieces("123"), ["123"]);
    // Digits are split.
    let file = tiny_bpe("qwen2").build();
    let tokenizer = Owned::new(&file);
    assert_eq!(tokenizer.encode(b"123", Encode::TEXT), [b'1', b'2', b'3'].map(TokenId::from));
}

#[test]
fn what_a_vocabulary_says_of_itself() {
    let file = tiny_llama().build();
    let tokenizer = Owned::new(&file).tokenizer;
    assert_eq!(tokenizer.vocab_len(), 288);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
    assert_eq!((tokenizer.eot(), tokenizer.eom()), (None, None));
    assert_eq!((tokenizer.add_bos(), tokenizer.add_eos()), (true, false));
    assert!(tokenizer.is_end(2) && !tokenizer.is_end(1) && !tokenizer.is_end(9999));
    let kinds = [0, 1, 3, 259, 288].map(|id| tokenizer.token_type(id));
    use TokenType::*;
    assert_eq!(kinds, [Unknown, Control, Byte, Normal, Undefined]);
    assert_eq!(tokenizer.score(260), -1.0);
    assert!(tokenizer.piece(3 + 65).unwrap().eq(*b"A"));
    assert!(tokenizer.piece(261).unwrap().eq(*b" the"));
    assert_eq!(tokenizer.piece(288).err(), Some(Error::TokenOutOfRange { token: 288, vocab: 288 }));
}

#[test]
fn defaults_where_the_file_is_silent() {
    let mut file = tiny_llama();
    for key in ["bos_token_id", "eos_token_id", "unknown_token_id", "add_bos_token", "add_eos_token", "scores"] {
        file.remove(&format!("tokenizer.ggml.{key}"));
    }
    file.remove("tokenizer.ggml.token_type");
    let file = file.build();
    let tokenizer = Owned::new(&file).tokenizer;
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.add_bos()), (Some(1), Some(2), true));

    for (pre, adds) in [("gpt-2", false), ("llama-bpe", true)] {
        let file = tiny_bpe(pre).build();
        assert_eq!(Owned::new(&file).tokenizer.add_bos(), adds);
    }
    let mut file = tiny_llama();
    file.set("tokenizer.ggml.add_space_prefix", false).set("tokenizer.ggml.add_eos_token", true);
    let file = file.build();
    let tokenizer = Owned::new(&file);
    assert_eq!(tokenizer.encode(b"a", Encode::PROMPT), [1, 269, 2]);
    assert_eq!(tokenizer.decode(&tokenizer.encode(b" a", Encode::TEXT)), b" a");
}

#[test]
fn characters_are_never_cut() {
    let file = tiny_llama().build();
    let tokenizer = Owned::new(&file);
    let text = "the naïve 語 😀\u{301}!";
    let ids = tokenizer.encode(text.as_bytes(), Encode::TEXT);
    let mut decoder = tokenizer.tokenizer.decoder();
    let mut whole = String::new();
    for id in &ids {
        // Every part is valid UTF-8 by its type, and no character is replaced.
        decoder.push(*id, &tokenizer.tokenizer, |part| whole.push_str(part)).unwrap();
    }
    decoder.finish(|part| whole.push_str(part));
    assert_eq!(whole, text);

    // Bytes that are not UTF-8, and an incomplete character at the end.
    let bytes = b"\xffa\xe8\xaa\xe8\xaa\x9e\xf0\x9f";
    let ids: Vec<TokenId> = bytes.iter().map(|byte| 3 + TokenId::from(*byte)).collect();
    let (mut text, mut raw) = (String::new(), Vec::new());
    let (mut decoder, mut raw_decoder) = (tokenizer.tokenizer.decoder(), tokenizer.tokenizer.decoder());
    for id in &ids {
        decoder.push(*id, &tokenizer.tokenizer, |part| text.push_str(part)).unwrap();
        raw_decoder.push_bytes(*id, &tokenizer.tokenizer, |part| raw.extend_from_slice(part)).unwrap();
    }
    assert_eq!(text, "\u{fffd}a\u{fffd}語");
    decoder.finish(|part| text.push_str(part));
    raw_decoder.finish_bytes(|part| raw.extend_from_slice(part));
    assert_eq!(text, "\u{fffd}a\u{fffd}語\u{fffd}");
    assert_eq!(raw, bytes);

    // The space that encoding added is removed; others stay.
    let the = tokenizer.encode(b"the", Encode::TEXT);
    let print = |mut decoder: arenite::tokenizer::Decoder| {
        let mut text = String::new();
        for id in [&[1][..], &the, &the].concat() {
            decoder.push(id, &tokenizer.tokenizer, |part| text.push_str(part)).unwrap();
        }
        text
    };
    assert_eq!(print(tokenizer.tokenizer.decoder()), "the the");
    assert_eq!(print(tokenizer.tokenizer.decoder().show_special(true)), "<s>the the");
    let mut text = String::new();
    let mut decoder = tokenizer.tokenizer.decoder_after_prompt();
    decoder.push(the[0], &tokenizer.tokenizer, |part| text.push_str(part)).unwrap();
    assert_eq!(text, " the");
    assert!(decoder.push(288, &tokenizer.tokenizer, |_| panic!()).is_err());
}

#[test]
fn memory_of_any_alignment_and_exactly_enough() {
    for file in [tiny_llama().build(), tiny_bpe("llama-bpe").build()] {
        let gguf = Gguf::parse(&file).unwrap();
        let bytes = Tokenizer::index_bytes(&gguf).unwrap();
        let mut memory = vec![0xaa; bytes + 9];
        let expected = Owned::new(&file).encode("hello wörld 12".as_bytes(), Encode::PROMPT);
        for shift in 0..8 {
            let tokenizer = Tokenizer::new(&gguf, &mut memory[shift..shift + bytes]).unwrap();
            let text = "hello wörld 12".as_bytes();
            let mut scratch = vec![0; 8 + Tokenizer::scratch_bytes(text.len())];
            let mut ids = [0; 64];
            let count = tokenizer.encode(text, Encode::PROMPT, &mut scratch[shift..], &mut ids).unwrap();
            assert_eq!(ids[..count], expected);
            assert_eq!(memory[shift + bytes], 0xaa);
            // The same index can be borrowed; if it is shifted or cut short, it is refused.
            assert!(Tokenizer::with_index(&gguf, &memory[shift..]).is_ok());
            assert_eq!(Tokenizer::with_index(&gguf, &memory[shift + 1..]).err(), Some(Error::ForeignIndex));
            assert_eq!(
                Tokenizer::with_index(&gguf, &memory[shift..shift + bytes - 1]).err(),
                Some(Error::ForeignIndex)
            );
            memory[..shift + bytes].fill(0xaa);
        }
        let error = Tokenizer::new(&gguf, &mut memory[..bytes - 1]).err();
        let what = "bytes of the tokenizer index";
        assert_eq!(error, Some(Error::BufferTooSmall { what, needed: bytes, given: bytes - 1 }));
    }
}

/// A packed file that opens by its hash gives the ids of a checked index. A changed byte of the vocabulary or the index
/// is an error.
#[test]
fn an_index_by_its_hash() {
    for file in [tiny_llama().build(), tiny_bpe("gpt-2").build()] {
        let gguf = Gguf::parse(&file).unwrap();
        let mut index = vec![0; Tokenizer::built_index_bytes(&gguf).unwrap()];
        Tokenizer::build_index(&gguf, &mut index).unwrap();
        let words: Vec<u32> = index.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let unhashed = with_key(&file, INDEX_KEY, Meta::array(words.iter().copied()));
        let opens = |file: &[u8]| Tokenizer::packed(&Gguf::parse(file).unwrap()).map(|_| ());
        assert_eq!(opens(&file), Err(Error::ForeignIndex));
        assert_eq!(opens(&unhashed), Err(Error::ForeignIndex));

        let packed = with_key(&unhashed, INDEX_HASH_KEY, Tokenizer::index_hash(&gguf, &index).into());
        let gguf = Gguf::parse(&packed).unwrap();
        let (by_hash, checked) = (Tokenizer::packed(&gguf).unwrap(), Tokenizer::new(&gguf, &mut []).unwrap());
        let mut scratch = vec![0; Tokenizer::scratch_bytes(64)];
        for text in ["hello wörld", "<s> a  b</s>", "\u{1f600}"] {
            let [one, other] = [by_hash, checked]
                .map(|tokenizer| tokenizer.encode_list::<96>(text.as_bytes(), Encode::PROMPT, &mut scratch).unwrap());
            assert_eq!(one, other, "{text}");
        }
        let place = |bytes: &[u8]| packed.windows(bytes.len()).position(|window| window == bytes).unwrap();
        let (key, vocabulary) = (place(&index), place(b"tokenizer.ggml.tokens"));
        for at in (key..key + index.len()).step_by(61).chain(vocabulary + 40..vocabulary + 80) {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x10;
            // A changed length of a token is an error of the file.
            if let Ok(gguf) = Gguf::parse(&damaged) {
                assert!(Tokenizer::packed(&gguf).is_err(), "byte {at}");
            }
        }
    }
}

/// With an index in the file, the plan needs no memory for it.
#[test]
fn an_index_in_the_file() {
    let file = tiny_llama().build();
    let gguf = Gguf::parse(&file).unwrap();
    let mut index = vec![0; Tokenizer::built_index_bytes(&gguf).unwrap()];
    Tokenizer::build_index(&gguf, &mut index).unwrap();
    let words: Vec<u32> = index.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    let packed = with_key(&file, INDEX_KEY, Meta::array(words.iter().copied()));
    let plan = |file: &[u8]| Plan::new(&Gguf::parse(file).unwrap(), Options::DEFAULT).unwrap();
    assert_eq!(plan(&file).tokenizer, index.len());
    assert_eq!(plan(&packed).tokenizer, 0);
    assert_eq!(plan(&packed).workspace, plan(&file).workspace);

    let error = |value: Meta| {
        let file = with_key(&file, INDEX_KEY, value);
        let gguf = Gguf::parse(&file).unwrap();
        Tokenizer::new(&gguf, &mut vec![0; 1 << 20]).map(|_| ()).err()
    };
    assert_eq!(error(Meta::array(words.iter().copied())), None);
    assert_eq!(error(Meta::array(words[1..].iter().copied())), Some(Error::ForeignIndex));
    assert_eq!(error(Meta::array([0u32; 0])), Some(Error::ForeignIndex));
    let key = Name::new(INDEX_KEY.as_bytes());
    for value in [Meta::array(index.iter().copied()), Meta::strings(["a"])] {
        let expected = "an array of 32-bit unsigned integers";
        assert_eq!(error(value), Some(Error::KeyType { key, expected }));
    }
    assert_eq!(error("index".into()), Some(Error::KeyType { key, expected: "an array" }));
}

#[test]
fn too_little_room_is_said_exactly() {
    for file in [tiny_llama().build(), tiny_bpe("gpt-2").build()] {
        let tokenizer = Owned::new(&file);
        let text = "hello wörld \u{1f600}<|end|></s>\u{fffd}".repeat(3);
        for text in [text.as_bytes(), b"\xff\xfe\xe2\x82\xff", b"a", b""] {
            let expected = tokenizer.encode(text, Encode::PROMPT);
            let mut scratch = vec![0; Tokenizer::scratch_bytes(text.len())];
            for given in 0..expected.len() {
                let mut ids = vec![77; given + 1];
                let result = tokenizer.tokenizer.encode(text, Encode::PROMPT, &mut scratch, &mut ids[..given]);
                let what = "token ids";
                assert_eq!(result, Err(Error::BufferTooSmall { what, needed: expected.len(), given }));
                assert_eq!(ids[given], 77);
            }
            let mut ids = vec![0; expected.len()];
            for given in 0..scratch.len() {
                match tokenizer.tokenizer.encode(text, Encode::PROMPT, &mut scratch[..given], &mut ids) {
                    Ok(count) => assert_eq!(ids[..count], expected),
                    Err(error) => {
                        let what = "bytes of scratch memory";
                        let needed = tokenizer.tokenizer.scratch_bytes_for(text);
                        assert!(needed <= scratch.len());
                        assert_eq!(error, Error::BufferTooSmall { what, needed, given });
                    }
                }
            }
            if core::str::from_utf8(text).is_ok() {
                let mut scratch = vec![0; Tokenizer::scratch_bytes_utf8(text.len())];
                assert_eq!(
                    tokenizer.tokenizer.encode(text, Encode::PROMPT, &mut scratch, &mut ids),
                    Ok(expected.len())
                );
            }
        }
    }
}

/// Ids and texts in lists of fixed capacity.
#[test]
fn lists_and_texts_without_a_heap() {
    let file = tiny_llama().build();
    let tokenizer = Owned::new(&file).tokenizer;
    let mut scratch = vec![0; Tokenizer::scratch_bytes(20)];
    let ids = tokenizer.encode_list::<16>("the 語".as_bytes(), Encode::PROMPT, &mut scratch).unwrap();
    assert_eq!(tokenizer.decode_text::<7>(&ids, false).unwrap(), "the 語");
    assert_eq!(tokenizer.decode_text::<6>(&ids, false), Err(Error::TextRefused));
    let error = tokenizer.encode_list::<2>(b"the the the", Encode::PROMPT, &mut scratch).err();
    assert!(matches!(error, Some(Error::BufferTooSmall { given: 2, .. })), "{error:?}");
    // `write_rest` writes the bytes of an incomplete character as U+FFFD.
    let mut decoder = tokenizer.decoder();
    let mut text = String::new();
    decoder.write(3 + 0xe8, &tokenizer, &mut text).unwrap();
    assert_eq!(text, "");
    decoder.write_rest(&mut text).unwrap();
    assert_eq!(text, "\u{fffd}");
}

/// A charsmap that makes each `a` 200 times as long, more than any Unicode normalization: the error gives the size
/// that this text needs.
#[test]
fn a_text_that_grows_when_it_is_normalised() {
    // The double array: the root's base is 1, and 1 ^ 'a' holds the leaf 'a', whose value is at base 2.
    let mut nodes = vec![0u32; 256];
    nodes[0] = 1 << 10;
    nodes[1 ^ 0x61] = 0x61 | 1 << 8 | (2 ^ 1 ^ 0x61 ^ 1 ^ 0x61) << 10;
    let value = (1 ^ 0x61) ^ 2;
    nodes[value] = 1 << 31;
    let mut map = (4 * nodes.len() as u32).to_le_bytes().to_vec();
    map.extend(nodes.iter().flat_map(|node| node.to_le_bytes()));
    map.extend([b'b'; 200]);
    map.push(0);
    let mut file = tiny_llama();
    file.set("tokenizer.ggml.model", "t5").set("tokenizer.ggml.precompiled_charsmap", Meta::array(map));
    let file = file.build();
    let tokenizer = Owned::new(&file).tokenizer;
    let text = [b'a'; 50];
    let mut ids = vec![0; 50 * 200 + 2];
    let needed = tokenizer.scratch_bytes_for(&text);
    assert!(needed > Tokenizer::scratch_bytes(text.len()));
    let count = tokenizer.encode(&text, Encode::TEXT, &mut vec![0; needed], &mut ids).unwrap();
    assert!(count >= 50 * 200, "{count}");
}

/// Sizes are the same on all targets.
#[test]
fn sizes_are_constants() {
    const SCRATCH: usize = Tokenizer::scratch_bytes(100);
    let (merged, normalised) = (3 * 301 + 19 + 2, 13 * (11 * 100 + 3) / 4 + 1 + 4);
    assert_eq!(SCRATCH, 100 + 4 * if cfg!(feature = "unigram") { normalised } else { merged });
    let file = tiny_llama().build();
    let gguf = Gguf::parse(&file).unwrap();
    let words = 16 + 8 + 288 + (128 + 1) + 2 * 288 + 256 + 3 * (3 + 61) + 2 * 61 + 32;
    assert_eq!(Tokenizer::index_bytes(&gguf), Ok(4 * words));
}
