//! Tests: converted folders give the same ids and texts as Hugging Face's tokenizers 0.23.3, and as transformers 5.24
//! where the settings matter.

use std::fs;
use std::io::Cursor;

use arenite::Gguf;
use arenite::tokenizer::Encode;
use serde_json::{Value, json};

use super::VocabularyRules;
use super::folder;
use super::wanted::Wanted;
use arenite_gguf_writer::Header;

/// Converts a folder with a `tokenizer.json` and a `tokenizer_config.json`, and returns the vocabulary as a file.
fn converted(tokenizer: &Value, settings: &Value) -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    fs::write(folder.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
    let wanted = Wanted {
        directory: folder.path(),
        architecture: "llama",
        config: &Value::Null,
        rows: 16,
        rules: &VocabularyRules::PLAIN,
    };
    let mut header = Header::new();
    folder::write(&wanted, &mut header)?;
    Ok(header.write(Cursor::new(Vec::new()))?.finish()?.into_inner())
}

/// Returns the ids of the tokens of a text, and the text to which these ids are decoded. Control tokens in the text
/// become control tokens, and no tokens are added around the text.
fn ids(file: &[u8], text: &str) -> (Vec<u32>, String) {
    let (gguf, mut index) = (Gguf::parse(file).unwrap(), Vec::new());
    let tokenizer = arenite_text::tokenizer(&gguf, &mut index).unwrap();
    let how = Encode { add_special: false, parse_special: true };
    let ids = arenite_text::encode(&tokenizer, text.as_bytes(), how).unwrap();
    let text = String::from_utf8(arenite_text::decode(&tokenizer, &ids).unwrap()).unwrap();
    (ids, text)
}

fn added(tokens: &[(u32, &str, bool)]) -> Value {
    let token = |(id, text, special): &(u32, &str, bool)| json!({"id": id, "content": text, "special": special, "normalized": false});
    tokens.iter().map(token).collect()
}

fn byte_level(vocab: Value, merges: Value, unknown: Option<&str>) -> Value {
    json!({
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "unk_token": unknown, "vocab": vocab, "merges": merges},
    })
}

/// In this file, `</s>` is an ordinary token and `<PRE>` is an added token that is not special, so neither of them is a
/// control token.
#[test]
fn well_known_spellings_are_text_if_the_file_says_so() {
    let vocab = json!({"<": 0, "/": 1, "s": 2, ">": 3, "x": 4, "P": 5, "R": 6, "E": 7, "</s>": 8});
    let mut tokenizer = byte_level(vocab, json!([]), None);
    tokenizer["added_tokens"] = added(&[(9, "<PRE>", false)]);
    let file = converted(&tokenizer, &Value::Null).unwrap();
    assert_eq!(ids(&file, "x</s>"), (vec![4, 0, 1, 2, 3], "x</s>".to_owned()));
    assert_eq!(ids(&file, "x<PRE>"), (vec![4, 9], "x<PRE>".to_owned()));
}

/// A byte without a token becomes an unknown token. If the vocabulary has no unknown token, the byte is dropped and its
/// neighbours merge.
#[test]
fn bytes_without_a_token() {
    let vocab = json!({"<unk>": 0, "a": 1, "b": 2, "ab": 3, "c": 4});
    for (unknown, results) in
        [(None, [&[3][..], &[], &[3, 4]]), (Some("<unk>"), [&[1, 0, 2], &[0], &[1, 0, 0, 2, 0, 4]])]
    {
        let tokenizer = byte_level(vocab.clone(), json!(["a b"]), unknown);
        // The settings alone name no unknown token.
        let file = converted(&tokenizer, &json!({"unk_token": "<unk>"})).unwrap();
        for (text, expected) in ["aXb", "X", "aéb c"].into_iter().zip(results) {
            assert_eq!(ids(&file, text).0, expected, "{text} {unknown:?}");
        }
    }
}

/// Pieces with merges, as Llama's.
fn pieces(normalizer: Value, pre_tokenizer: Value) -> Value {
    json!({
        "added_tokens": added(&[(0, "<unk>", true), (1, "<s>", true), (2, "</s>", true)]),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "merges": ["▁ a"],
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "▁a": 5, "b": 6},
        },
    })
}

/// The class builds the rule for spaces from the settings.
#[test]
fn settings_say_whether_a_space_is_added() {
    let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prepend = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]});
    let metaspace =
        |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
    let (prepended, first, never) = (
        pieces(prepend, Value::Null),
        pieces(Value::Null, metaspace("first")),
        pieces(Value::Null, metaspace("never")),
    );
    let (none, at_start, always) = ([[4, 3, 6], [4, 2, 4]], [[5, 3, 6], [5, 2, 4]], [[5, 3, 6], [5, 2, 5]]);
    for (tokenizer, class, adds, legacy, expected) in [
        (&prepended, "LlamaTokenizer", false, false, none),
        (&prepended, "PreTrainedTokenizerFast", false, false, always),
        (&first, "LlamaTokenizerFast", false, false, none),
        (&first, "LlamaTokenizer", true, false, at_start),
        (&never, "LlamaTokenizer", true, false, at_start),
        (&never, "LlamaTokenizer", true, true, always),
        (&never, "PreTrainedTokenizerFast", true, false, none),
    ] {
        let settings =
            json!({"tokenizer_class": class, "add_prefix_space": adds, "legacy": legacy, "unk_token": "<unk>"});
        let file = converted(tokenizer, &settings).unwrap();
        let found = ["a b", "a</s>a"].map(|text| ids(&file, text).0);
        assert_eq!(found, expected, "{settings}");
    }
    let mut bytes = byte_level(json!({"a": 0}), json!([]), None);
    bytes["pre_tokenizer"] = super::expressions::split(super::expressions::QWEN2);
    let settings = json!({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": true});
    let refused = converted(&bytes, &settings).unwrap_err();
    assert!(format!("{refused:#}").contains("its pre-tokenizer has add_prefix_space"), "{refused:#}");
}

/// Adds a token that `flags` describes, in words.
fn with_added(tokenizer: &mut Value, id: u32, text: &str, flags: &str) {
    let mut token = json!({"id": id, "content": text, "special": false, "normalized": false});
    flags.split_whitespace().for_each(|flag| token[flag] = true.into());
    match tokenizer["added_tokens"].as_array_mut() {
        Some(all) => all.push(token),
        None => tokenizer["added_tokens"] = json!([token]),
    }
}

fn check(tokenizer: &Value, expected: &[(&str, &[u32])]) {
    let file = converted(tokenizer, &Value::Null).unwrap();
    for (text, expected) in expected {
        assert_eq!(ids(&file, text).0, *expected, "{text:?}");
    }
}

/// WordPiece finds added tokens with the flag `normalized` in the text that BertNormalizer has already changed, so the
/// case of the original text does not matter.
#[test]
fn tokens_of_normalized_text_are_found_in_any_case() {
    let mut words = json!({
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "vocab": {"[UNK]": 0, "a": 1, "##a": 2, "e": 3, "b": 8, "##b": 9},
        },
    });
    with_added(&mut words, 0, "[UNK]", "special");
    for (id, text) in [(4, "ÉTÉ"), (5, "\t"), (6, "中文")] {
        with_added(&mut words, id, text, "normalized");
    }
    with_added(&mut words, 7, "BA", "normalized single_word");
    check(
        &words,
        &[
            ("été", &[4]),
            ("xÉté a", &[0, 4, 5, 1]),
            ("a中文a", &[1, 6, 1]),
            ("éa a", &[3, 2, 5, 1]),
            ("a\nb", &[1, 5, 8]),
            ("ab B", &[1, 9, 5, 8]),
            ("aE\u{301}TE", &[1, 4]),
            // An accent is dropped, and does not end a word.
            ("ba\u{301} a", &[7, 5, 1]),
            ("bab", &[8, 2, 9]),
            ("ba\u{301}b", &[8, 2, 9]),
        ],
    );
}

/// Tokens of normalized text are found last. A token may lie in white space that the token before it absorbs.
#[test]
fn added_tokens_that_overlap() {
    let mut bytes = byte_level(json!({"Ġ": 0, "f": 1, "o": 2, "x": 3, "e": 4, "s": 5}), json!([]), None);
    for (id, text, flags) in [
        (6, "fox", ""),
        (7, "foxes", "normalized"),
        (8, "  ", "rstrip"),
        (9, "<s>", "special rstrip"),
        (10, "\t", "lstrip rstrip"),
    ] {
        with_added(&mut bytes, id, text, flags);
    }
    check(
        &bytes,
        &[
            ("foxe foxes", &[6, 4, 0, 6, 4, 5]),
            ("x     x", &[3, 8, 8, 3]),
            ("<s>    x", &[9, 8, 8, 3]),
            ("x\t\tx", &[3, 10, 3]),
        ],
    );
    let token = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let (text, id) = (json!({"Sequence": {"id": "A", "type_id": 0}}), |id: u32| json!({"ids": [id]}));
    bytes["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [token("<s>"), token("f"), text, token("s"), token("<s>")],
        "special_tokens": {"<s>": id(9), "f": id(1), "s": id(5)},
    });
    let file = converted(&bytes, &json!({"bos_token": "<s>", "eos_token": "<s>"})).unwrap();
    let (gguf, mut index) = (Gguf::parse(&file).unwrap(), Vec::new());
    let tokenizer = arenite_text::tokenizer(&gguf, &mut index).unwrap();
    assert_eq!(arenite_text::encode(&tokenizer, b"x", Encode::PROMPT).unwrap(), [9, 1, 3, 5, 9]);
    let mut cut = [0; 4];
    let count = tokenizer.encode_start(b"xxxx", Encode::PROMPT, &mut [0; 256], &mut cut).unwrap();
    assert_eq!((count, cut), (4, [9, 1, 5, 9]));
}

/// Tokens of normalized text are all found together, as soon as one of them must be found last.
#[test]
fn tokens_of_normalized_text_share_white_space() {
    let mut bytes = byte_level(json!({"Ġ": 0, "f": 1, "o": 2, "x": 3, "_": 4}), json!([]), None);
    for (id, text, flags) in [(5, "<l>", "special lstrip"), (6, "fo", "rstrip normalized"), (7, "  ", "normalized")] {
        with_added(&mut bytes, id, text, flags);
    }
    check(&bytes, &[("xfo   x", &[3, 6, 7, 0, 3]), ("x  <l>x", &[3, 5, 3]), ("fo    ", &[6, 7, 7])]);
}

/// An added token that must be a whole word, and is part of one, is not found by `ignore_merges` either.
#[test]
fn special_tokens_are_no_whole_words() {
    let mut bytes = byte_level(json!({"Ġ": 0, "f": 1, "o": 2, "x": 3, "_": 4}), json!([]), None);
    bytes["model"]["ignore_merges"] = true.into();
    with_added(&mut bytes, 5, "fox", "special single_word");
    with_added(&mut bytes, 6, "ox", "single_word");
    check(&bytes, &[("fox_fox", &[1, 2, 3, 4, 1, 2, 3]), ("fox fox", &[5, 0, 5]), ("ox_ox", &[2, 3, 4, 2, 3])]);
}

/// A word that begins with `▁` gets no other one.
#[test]
fn marked_words() {
    let mut pieces = json!({
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        ]},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁", -1.0], ["a", -1.0], ["▁a", -1.5]]},
    });
    with_added(&mut pieces, 0, "<unk>", "special");
    let expected: [(&str, &[u32]); 5] =
        [("▁▁ a", &[1, 1, 3]), ("▁", &[1]), ("a ▁a", &[3, 3]), ("▁a▁a b", &[3, 3, 1, 0]), ("<unk>▁a", &[0, 3])];
    check(&pieces, &expected);
}

/// A normalizer may merge runs of spaces into one. At the end of a text, one space is then kept.
#[test]
fn a_merged_space_at_the_end_is_kept() {
    let mut pieces = json!({
        "normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁", -1.0], ["a", -1.0], ["▁a", -1.5]]},
    });
    with_added(&mut pieces, 0, "<unk>", "special");
    with_added(&mut pieces, 4, "<t>", "normalized");
    let expected: [(&str, &[u32]); 5] =
        [("a  a", &[3, 3]), ("a ", &[3, 1]), ("a   ", &[3, 1]), ("  ", &[1]), ("a <t> a", &[3, 1, 4, 3])];
    check(&pieces, &expected);
}
