//! Rare properties of vocabularies: BPE over characters, special tokens that absorb white space, and texts longer
//! than unigram's memory.

use crate::common::gguf::{Builder, Meta};
use crate::common::tiny::tiny_llama;
use crate::common::vectors::{Owned, fixture, tiny};
use arenite::tokenizer::{Encode, TokenType};
use arenite::{Error, TokenId};
use serde_json::Value;

const PARSE: Encode = Encode { add_special: false, parse_special: true };

/// Ids from Hugging Face's `tokenizers` with `english_hindi/tokenizer.json`: BPE over characters, in which `##` marks
/// tokens inside of a word.
#[test]
fn characters_are_merged_within_words() {
    let json = |name: &str| -> Value { serde_json::from_slice(&fixture(name).unwrap()).unwrap() };
    let (tokenizer, cases) = (json("english_hindi/tokenizer.json"), json("english_hindi/ref.json"));
    // In a GGUF file, `▁` marks tokens at the start of a word instead.
    let spelled = |token: &str| match token.strip_prefix("##") {
        Some(rest) => rest.to_string(),
        None => format!("▁{token}"),
    };
    let words = tokenizer["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); words.len()];
    for (token, id) in words {
        let id = id.as_u64().unwrap() as usize;
        tokens[id] = if id < 4 { token.clone() } else { spelled(token) };
    }
    let mut types = vec![1i32; tokens.len()];
    types[..4].copy_from_slice(&[2, 3, 3, 3]);
    let merges = tokenizer["model"]["merges"].as_array().unwrap().iter();
    let merges = merges.map(|pair| [0, 1].map(|side| spelled(pair[side].as_str().unwrap())).join(" "));
    let mut file = Builder::new();
    file.set("tokenizer.ggml.model", "bpe")
        .set("tokenizer.ggml.pre", "whitespace")
        .set("tokenizer.ggml.tokens", Meta::strings(tokens))
        .set("tokenizer.ggml.token_type", Meta::array(types))
        .set("tokenizer.ggml.merges", Meta::strings(merges))
        .set("tokenizer.ggml.add_space_prefix", true)
        .set("tokenizer.ggml.unknown_token_id", 0u32)
        .set("tokenizer.ggml.bos_token_id", 2u32)
        .set("tokenizer.ggml.eos_token_id", 3u32)
        .set("tokenizer.ggml.add_bos_token", true)
        .set("tokenizer.ggml.add_eos_token", true);
    let file = file.build();
    for tokenizer in [Owned::new(&file), Owned::packed(&file)] {
        let mut count = 0;
        for case in cases["prompts"].as_array().unwrap() {
            let (text, ids) = (case["text"].as_str().unwrap(), case["ids"].as_array().unwrap());
            let ids: Vec<TokenId> = ids.iter().map(|id| id.as_u64().unwrap() as TokenId).collect();
            assert_eq!(tokenizer.encode(text.as_bytes(), Encode::PROMPT), ids, "{text:?}");
            count += 1;
        }
        assert_eq!(count, 6);
    }
}

/// If a vocabulary does not mark the starts of words, each token is printed as a separate word, as by `tokenizers`
/// without a decoder.
#[test]
fn tokens_that_do_not_tell_words_are_printed_apart() {
    let mut file = Builder::new();
    file.set("tokenizer.ggml.model", "bpe")
        .set("tokenizer.ggml.pre", "whitespace")
        .set("tokenizer.ggml.tokens", Meta::strings(["a", "b", "ab"]))
        .set("tokenizer.ggml.merges", Meta::strings(["a b"]));
    let file = file.build();
    let tokenizer = Owned::new(&file);
    let ids = tokenizer.encode(" abb\na? aba".as_bytes(), Encode::TEXT);
    assert_eq!(ids, [2, 1, 0, 2, 0]); // the `?` is not in the vocabulary
    let mut text = [0; 16];
    let len = tokenizer.tokenizer.detokenize(&ids, false, &mut text).unwrap();
    assert_eq!(&text[..len], b"ab b a ab a");
}

/// `tiny_llama`, where `▁a` is 264, `▁` 266, `a` 269 and byte `b` is 3 + `b`, with one more token, 288.
fn with_special(token: &str, name: &str, pre: &str) -> Vec<u8> {
    let mut file = tiny_llama();
    let Some(key) = file.keys.iter_mut().find(|key| key.name == b"tokenizer.ggml.tokens") else { panic!() };
    let Meta::Array(_, count, tokens) = &mut key.value else { panic!() };
    *count += 1;
    tokens.extend([&(token.len() as u64).to_le_bytes()[..], token.as_bytes()].concat());
    let mut types = vec![2i32, 3, 3];
    types.extend([6; 256]);
    types.extend([1; 29]);
    types.push(3);
    file.set("general.name", name)
        .set("tokenizer.ggml.pre", pre)
        .set("tokenizer.ggml.token_type", Meta::array(types))
        .set("tokenizer.ggml.scores", Meta::array((0..289).map(|id| -(id as f32))));
    file.build()
}

/// llama.cpp's `LLAMA_TOKEN_ATTR_RSTRIP` and `LSTRIP`: the tokens that have them, and their effect on white space.
#[test]
fn special_tokens_take_white_space_with_them() {
    const A: TokenId = 264; // with the space that is added before a text
    const SPACE: TokenId = 266;
    const SPECIAL: TokenId = 288;
    let line = 3 + TokenId::from(b'\n');
    let check = |file: &[u8], cases: &[(&str, &[TokenId])]| {
        let tokenizer = Owned::new(file);
        for (text, ids) in cases {
            assert_eq!(tokenizer.encode(text.as_bytes(), PARSE), *ids, "{text:?}");
        }
    };
    // Phi-3: all special tokens but three absorb the white space after them, and no token absorbs white space before
    // it.
    let phi = with_special("<|user|>", "Phi-3 mini", "default");
    check(
        &phi,
        &[
            ("a<|user|>a", &[A, SPECIAL, A]),
            ("a <|user|> \t\r\n\u{b}\u{c}a", &[A, SPACE, SPECIAL, A]),
            ("<|user|> \n<|user|>  ", &[SPECIAL, SPECIAL]),
            ("</s> a", &[2, A]),
            ("<s> a", &[1, SPACE, A]),
            ("<unk> a", &[0, SPACE, A]),
            // U+00A0 is white space in Unicode and in Hugging Face's tokenizers, but not in C and so not in llama.cpp.
            ("<|user|>\u{a0}a", &[SPECIAL, A]),
        ],
    );
    let other = with_special("<|user|>", "Phi-2", "default");
    check(&other, &[("a <|user|> \na", &[A, SPACE, SPECIAL, SPACE, SPACE, line, 269]), ("</s> a", &[2, SPACE, A])]);
    // Mask tokens absorb the white space before them, depending on the pre-tokenizer or the model's name.
    for (mask, name, pre) in [("<mask>", "x", "jina-v2-de"), ("[MASK]", "Modern-BERT", "default")] {
        let file = with_special(mask, name, pre);
        let text = |text: &str| text.replace('M', mask);
        check(
            &file,
            &[
                (&text("a \n M a"), &[A, SPECIAL, SPACE, A]),
                (&text(" M M"), &[SPECIAL, SPECIAL]),
                (&text("a </s>M"), &[A, SPACE, 2, SPECIAL]),
            ],
        );
    }
    let other = with_special("<mask>", "Modern-BERT", "default");
    check(&other, &[("a <mask>", &[A, SPACE, SPECIAL])]);
}

/// llama.cpp's keys for fill-in-the-middle take precedence over spellings. Padding, repository and separator tokens
/// end an answer.
#[test]
fn parts_of_fill_in_the_middle() {
    use TokenType::{Control, Normal};
    let file = |spelled: &str, key: &str| {
        let mut file = tiny_llama();
        let Some(Meta::Array(_, _, tokens)) =
            file.keys.iter_mut().find(|key| key.name == b"tokenizer.ggml.tokens").map(|key| &mut key.value)
        else {
            panic!()
        };
        // Replaces the last token, which is `.`.
        tokens.truncate(tokens.len() - 9);
        tokens.extend([&(spelled.len() as u64).to_le_bytes()[..], spelled.as_bytes()].concat());
        if !key.is_empty() {
            file.set(key, 260u32);
        }
        file.build()
    };
    let pad = "tokenizer.ggml.fim_pad_token_id";
    for (spelled, key, kind, ends) in [
        ("<fim_pad>", "", Control, false), // no key names the padding token
        ("<fim_pad>", pad, Normal, true),
        ("<PRE>", "", Control, false),
        ("<PRE>", "tokenizer.ggml.prefix_token_id", Normal, false),
        ("<PRE>", "tokenizer.ggml.fim_pre_token_id", Normal, false),
        ("<PRE>", pad, Control, true),
    ] {
        let file = file(spelled, key);
        let tokenizer = Owned::new(&file).tokenizer;
        assert_eq!(tokenizer.token_type(287), kind, "{spelled} {key}");
        assert_eq!((tokenizer.is_end(287), tokenizer.is_end(260)), (false, ends), "{spelled} {key}");
    }
}

/// Unigram settles positions that all segmentations share, so a text may be longer than its memory. With any memory,
/// the ids are the same or the error says that it is too small.
#[test]
fn a_text_longer_than_the_memory() {
    let mut file = tiny_llama();
    file.set("tokenizer.ggml.model", "t5");
    let file = file.build();
    let tokenizer = Owned::new(&file).tokenizer;
    // Scores are the negative rank. " the": `▁t` and `he` (0 - 1) beat `▁the` (-2). " a": `▁a`. " on": `▁` and `on`
    // (-7 - 6) beat `▁`, `o`, `n`. As in SentencePiece, characters without a token become byte tokens (3 and the byte).
    let text = " the a on é語".repeat(200);
    let ids = [259, 260, 264, 266, 265, 266, 198, 172, 235, 173, 161].repeat(200);
    let mut found = vec![0; ids.len()];
    let needed = tokenizer.scratch_bytes_for(text.as_bytes());
    let mut least = needed;
    for given in (0..600).chain((600..needed + 100).step_by(997)).rev() {
        let mut scratch = vec![0xaa; given];
        match tokenizer.encode(text.as_bytes(), Encode::TEXT, &mut scratch, &mut found) {
            Ok(count) => {
                assert!(found[..count] == ids, "{given}");
                least = given;
            }
            Err(error) => {
                let what = "bytes of scratch memory";
                assert_eq!(error, Error::BufferTooSmall { what, needed, given });
            }
        }
    }
    assert!(needed > 13 * text.len() && least < 400, "{least} of {needed}");
    // Texts for SentencePiece's vocabulary, with llama.cpp's ids.
    let Some((file, vectors)) = tiny("t5_relu") else { return };
    let tokenizer = Owned::new(&file).tokenizer;
    let mut less = 0;
    for (text, ids) in &vectors.cases {
        let needed = tokenizer.scratch_bytes_for(text);
        for given in [needed / 2, needed * 3 / 4, needed - 4, needed] {
            let mut found = vec![0; ids.len()];
            match tokenizer.encode(text, Encode::TEXT, &mut vec![0; given], &mut found) {
                Ok(count) => assert_eq!(found[..count], ids[..], "{:?}", String::from_utf8_lossy(text)),
                Err(_) => assert!(given < needed),
            }
            less += usize::from(given < needed && found == *ids && !ids.is_empty());
        }
    }
    assert!(less > 0);
}

/// A token that is longer than the decoder's buffer is passed on in parts.
#[test]
fn a_long_token_comes_in_parts() {
    let name = "word ".repeat(40);
    let file = with_special(&name, "x", "default");
    let tokenizer = Owned::new(&file).tokenizer;
    let (mut text, mut decoder) = (String::new(), tokenizer.decoder().show_special(true));
    decoder.push(288, &tokenizer, |part| text.push_str(part)).unwrap();
    assert_eq!(text, name);
    let piece = tokenizer.piece(288).unwrap();
    assert_eq!(piece.size_hint(), (0, Some(200)));
    assert_eq!(piece.count(), 200);
}
