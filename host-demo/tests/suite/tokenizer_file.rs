//! Vocabularies from tokenizer files. The expected ids come from Hugging Face's tokenizers 0.22, which read the same
//! files.

use std::path::PathBuf;

use crate::common::{committed, error, fixtures, json, path, stdout};
use serde_json::{Map, Value, json};

/// A model file whose embedding has 512 rows. The tests need only the file, not the output of the model.
fn model() -> PathBuf {
    committed("tests/fixtures/llama_mha/F16.gguf")
}

fn list<S: AsRef<str>>(tokens: &[S]) -> Value {
    let ids: Map<_, _> = tokens.iter().enumerate().map(|(id, token)| (token.as_ref().to_string(), id.into())).collect();
    ids.into()
}

fn added(tokens: &[(u32, &str, bool)]) -> Value {
    let token = |(id, content, special): &(u32, &str, bool)| json!({"id": id, "content": content, "special": special, "normalized": !special});
    tokens.iter().map(token).collect()
}

fn template(first: Option<(&str, u32)>, last: Option<(&str, u32)>) -> Value {
    let special =
        |token: Option<(&str, u32)>| token.map(|(name, _)| json!({"SpecialToken": {"id": name, "type_id": 0}}));
    let text = Some(json!({"Sequence": {"id": "A", "type_id": 0}}));
    let single: Vec<Value> = [special(first), text, special(last)].into_iter().flatten().collect();
    let ids: Map<_, _> =
        first.into_iter().chain(last).map(|(name, id)| (name.to_string(), json!({"id": name, "ids": [id]}))).collect();
    json!({"type": "TemplateProcessing", "single": single, "special_tokens": ids})
}

/// Returns the ids of `text` with special tokens, after `tokenizer` has replaced the model's vocabulary.
fn ids(tokenizer: &Value, text: &str) -> Value {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokenizer.json");
    std::fs::write(&file, tokenizer.to_string()).expect("a file");
    let how = ["tokenize", "--add-special", "--parse-special", "--json", "-p", text];
    let given = json(&[&how[..], &["-m", path(&model()), "--tokenizer", path(&file)]].concat());
    // The same from a converted file.
    let output = directory.path().join("out.gguf");
    stdout(&["convert", "tokenizer", path(&file), path(&model()), path(&output)]);
    assert_eq!(json(&[&how[..], &["-m", path(&output)]].concat()), given);
    given
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

fn byte_level(expression: &str) -> Value {
    // The alphabet in the order of its characters.
    let prints = |b: u32| (0x21..=0x7e).contains(&b) || (0xa1..=0xac).contains(&b) || (0xae..=0xff).contains(&b);
    let alphabet = (0..256).filter(|b| prints(*b)).chain(256..256 + 68).map(|c| char::from_u32(c).unwrap().to_string());
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "1 2", "12 3"];
    let mut tokens = vec!["<|bos|>".to_string()];
    tokens.extend(alphabet);
    tokens.extend(merges.map(|merge| merge.replace(' ', "")));
    json!({
        "added_tokens": added(&[(0, "<|bos|>", true), (266, "<tool>", false)]),
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]},
        "post_processor": template(Some(("<|bos|>", 0)), None),
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "ignore_merges": true, "vocab": list(&tokens), "merges": merges},
    })
}

#[test]
fn byte_level_bpe() {
    let found = ids(&byte_level(LLAMA3), "hello world 1234 <tool>é\n");
    assert_eq!(found, json!([0, 260, 263, 76, 68, 221, 265, 20, 221, 266, 128, 103, 199]));
    let found = ids(&byte_level(&LLAMA3.replace("{1,3}", "")), "hello 123");
    assert_eq!(found, json!([0, 260, 221, 17, 18, 19]));
}

/// Texts are converted to NFC around control tokens, but a combining character does not change a control token.
#[test]
fn texts_are_normalized() {
    let mut tokenizer = byte_level(LLAMA3);
    tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}]});
    for (text, wanted) in [
        ("hello", json!([0, 260])),
        ("hello e\u{301} \u{1100}\u{1161}\u{11a8}", json!([0, 260, 221, 128, 103, 221, 167, 109, 224])),
        ("<|bos|>\u{338}>\u{338}", json!([0, 0, 137, 117, 159, 232, 108])),
        ("\u{212b}\u{958}<tool>e\u{301}", json!([0, 128, 228, 157, 98, 244, 157, 98, 121, 266, 128, 103])),
    ] {
        assert_eq!(ids(&tokenizer, text), wanted, "{text:?}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (file, output) = (directory.path().join("tokenizer.json"), directory.path().join("out.gguf"));
    std::fs::write(&file, tokenizer.to_string()).expect("a file");
    stdout(&["convert", "tokenizer", path(&file), path(&model()), path(&output)]);
    for how in [&["inspect", path(&output)][..], &["plan", "-m", path(&output)]] {
        assert!(stdout(how).contains("a program on a device must do so"), "{how:?}");
    }
    tokenizer["normalizer"] =
        json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a"}, {"type": "NFC"}]});
    std::fs::write(&file, tokenizer.to_string()).expect("a file");
    assert!(error(&["tokenize", "-p", "a", "-m", path(&model()), "--tokenizer", path(&file)]).contains("Prepend"));
}

/// A tokenizer may convert texts before it splits them. NFC is applied separately; all other steps are applied in the
/// order of the file.
#[test]
fn texts_are_converted_step_by_step() {
    for (steps, wanted) in [
        (
            &["NFKC"][..],
            json!([0, 40, 37, 44, 44, 47, 221, 139, 254, 139, 97, 128, 232, 70, 73, 54, 41, 41, 41, 0, 137, 224, 266]),
        ),
        (
            &["Lowercase"],
            json!([0, 260, 221, 139, 124, 140, 226, 128, 103, 172, 106, 224, 159, 228, 116, 0, 137, 224, 266]),
        ),
        (
            &["NFD", "StripAccents", "Lowercase"],
            json!([0, 260, 221, 139, 124, 140, 226, 69, 172, 106, 224, 159, 228, 116, 0, 266]),
        ),
        (
            &["Lowercase", "NFKD"],
            json!([0, 260, 221, 139, 124, 140, 226, 69, 137, 224, 70, 73, 86, 73, 73, 73, 0, 137, 224, 266]),
        ),
    ] {
        let mut tokenizer = byte_level(LLAMA3);
        let steps: Vec<_> = steps.iter().map(|step| json!({"type": step})).collect();
        tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": steps});
        assert_eq!(ids(&tokenizer, "HELLO ΟΣ\u{c9}\u{fb01}\u{2167}<|bos|>\u{301}<tool>"), wanted, "{steps:?}");
    }
}

/// Control tokens are found in the original text, before the steps convert it. Other added tokens are found in the
/// converted text.
#[test]
fn conversion_makes_no_control_token() {
    for (step, text, wanted) in [
        ("Lowercase", "<|BOS|>HELLO<|bos|>", json!([0, 28, 92, 66, 79, 83, 92, 30, 260, 0])),
        ("NFKC", "hello＜|bos|＞<|bos|>＜tool＞", json!([0, 260, 28, 92, 66, 79, 83, 92, 30, 0, 266])),
    ] {
        let mut tokenizer = byte_level(LLAMA3);
        tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": step}]});
        assert_eq!(ids(&tokenizer, text), wanted, "{step}");
    }
}

#[test]
fn white_space_is_converted() {
    let mut tokenizer = byte_level(LLAMA3);
    tokenizer["normalizer"] = json!({"type": "Nmt"});
    let text = "hello\tworld\n\u{200b}▁\u{7}\u{8f}1\u{2028}<|bos|>\u{feff}23";
    assert_eq!(ids(&tokenizer, text), json!([0, 260, 263, 76, 68, 221, 221, 221, 17, 221, 0, 221, 18, 19]));
}

/// Behaviors of a split other than the usual one.
#[test]
fn how_texts_are_split() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokenizer.json");
    let mut tokenizer = byte_level(LLAMA3);
    let same = ids(&tokenizer, "hello world 123");
    let split = "/pre_tokenizer/pretokenizers/0";
    for (behavior, is_inverted, is_same) in
        [("Removed", true, true), ("Removed", false, false), ("Isolated", true, false), ("Contiguous", false, false)]
    {
        let split = tokenizer.pointer_mut(split).expect("a split");
        (split["behavior"], split["invert"]) = (behavior.into(), is_inverted.into());
        if is_same {
            assert_eq!(ids(&tokenizer, "hello world 123"), same);
            continue;
        }
        std::fs::write(&file, tokenizer.to_string()).expect("a file");
        let message = error(&["tokenize", "-p", "a", "-m", path(&model()), "--tokenizer", path(&file)]);
        assert!(message.contains(&format!("with the behavior {behavior} is not supported")), "{message}");
    }
}

/// Falcon's pre-tokenizer.
#[test]
fn numbers_are_separated() {
    let mut tokenizer = byte_level(LLAMA3);
    tokenizer["pre_tokenizer"]["pretokenizers"] = json!([
        {"type": "Punctuation", "behavior": "Contiguous"},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        {"type": "Digits", "individual_digits": false},
        {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": false},
    ]);
    tokenizer["model"]["ignore_merges"] = false.into();
    assert_eq!(
        ids(&tokenizer, "hello world 1234 12  x12y ½²3a"),
        json!([0, 260, 263, 76, 68, 221, 265, 20, 221, 264, 221, 221, 88, 264, 89, 221, 127, 122, 127, 111, 19, 65])
    );

    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokenizer.json");
    let refused = |tokenizer: &Value| {
        std::fs::write(&file, tokenizer.to_string()).expect("a file");
        let message = error(&["tokenize", "-p", "a", "-m", path(&model()), "--tokenizer", path(&file)]);
        assert!(message.contains("Digits separates numbers"), "{message}");
    };
    let mut mixed = tokenizer.clone();
    mixed["model"]["vocab"]["Ġ1"] = 267.into();
    refused(&mixed);
    tokenizer["pre_tokenizer"]["pretokenizers"].as_array_mut().expect("a list").swap(1, 2);
    refused(&tokenizer);
}

/// Added tokens with `single_word` are found only as whole words.
#[test]
fn whole_words() {
    let mut tokenizer = byte_level(LLAMA3);
    tokenizer["added_tokens"] = json!([
        {"id": 0, "content": "<|bos|>", "special": true},
        {"id": 266, "content": "ow", "special": false, "single_word": true},
    ]);
    for (text, wanted) in [
        ("ow", json!([0, 266])),
        ("o ow", json!([0, 79, 221, 266])),
        ("how", json!([0, 72, 79, 87])),
        ("own", json!([0, 79, 87, 78])),
        ("_ow", json!([0, 63, 79, 87])),
        ("ow_", json!([0, 79, 87, 63])),
        ("\u{e9}ow", json!([0, 128, 103, 79, 87])),
        ("ow\u{301}", json!([0, 79, 87, 137, 224])),
        ("(ow)", json!([0, 8, 266, 9])),
        ("ow.o", json!([0, 266, 14, 79])),
        ("\u{24d0}ow", json!([0, 159, 242, 239, 79, 87])),
        ("ow\u{2160}", json!([0, 79, 87, 159, 228, 255])),
        ("\u{b2}ow", json!([0, 127, 111, 266])),
        ("ow\u{ff3f}", json!([0, 79, 87, 172, 121, 124])),
    ] {
        assert_eq!(ids(&tokenizer, text), wanted, "{text:?}");
    }
}

/// Added tokens with `lstrip` or `rstrip` absorb the white space before or after them.
#[test]
fn white_space_around_added_tokens() {
    let mut tokenizer = byte_level(LLAMA3);
    tokenizer["added_tokens"] = json!([
        {"id": 0, "content": "<|bos|>", "special": true},
        {"id": 266, "content": "<mask>", "special": true, "lstrip": true},
        {"id": 267, "content": "<|user|>", "special": false, "rstrip": true},
    ]);
    for (text, wanted) in [
        ("o <mask> o", json!([0, 79, 266, 221, 79])),
        ("o <|user|> o", json!([0, 79, 221, 267, 79])),
        ("o\n\u{3000}<mask>\u{a0}<|user|>\u{2003}\t\no", json!([0, 79, 266, 127, 255, 267, 79])),
        ("<|user|> <mask>", json!([0, 267, 266])),
        ("\u{e9}\u{85}<mask>\u{e9}<|user|>\u{e9}", json!([0, 128, 103, 266, 128, 103, 267, 128, 103])),
    ] {
        assert_eq!(ids(&tokenizer, text), wanted, "{text:?}");
    }
}

#[test]
fn pieces_with_merges() {
    let merges = ["▁ h", "e l", "▁h el", "l o", "▁hel lo"];
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend("▁helowrd".chars().map(String::from));
    tokens.extend(merges.map(|merge| merge.replace(' ', "")));
    let mut tokenizer = json!({
        "added_tokens": added(&[(0, "<unk>", true), (1, "<s>", true), (2, "</s>", true)]),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "pre_tokenizer": null,
        "post_processor": template(Some(("<s>", 1)), None),
        "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>", "vocab": list(&tokens),
            "merges": merges.map(|merge| merge.split(' ').collect::<Vec<_>>())},
    });
    let found = ids(&tokenizer, "hello world é");
    assert_eq!(found, json!([1, 271, 259, 264, 263, 265, 262, 266, 259, 198, 172]));
    // The tokenizer finds this added token in the normalized text, where spaces have become `▁`. So the token takes no
    // white space beside it, despite `lstrip` and `rstrip`.
    tokenizer["normalizer"] = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let tool =
        json!({"id": 272, "content": "<tool>", "special": false, "normalized": true, "lstrip": true, "rstrip": true});
    tokenizer["added_tokens"].as_array_mut().unwrap().push(tool);
    assert_eq!(ids(&tokenizer, "o <tool> o"), json!([1, 263, 259, 272, 259, 263]));
}

/// If a vocabulary has no byte tokens, each character that it lacks, or each run of such characters, becomes an unknown
/// token. A file is refused if its tokens do not mark the start of a word by `▁`, because SentencePiece's BPE has no
/// other way.
#[test]
fn pieces_without_bytes() {
    let merges = ["▁ h", "e l", "▁h el", "l o", "▁hel lo"];
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend("▁helowrd".chars().map(String::from));
    tokens.extend(merges.map(|merge| merge.replace(' ', "")));
    let mut tokenizer = json!({
        "added_tokens": added(&[(0, "<unk>", true), (1, "<s>", true), (2, "</s>", true)]),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "post_processor": template(Some(("<s>", 1)), None),
        "model": {"type": "BPE", "unk_token": "<unk>", "vocab": list(&tokens),
            "merges": merges.map(|merge| merge.split(' ').collect::<Vec<_>>())},
    });
    for (is_fused, wanted) in [
        (true, json!([1, 15, 3, 0, 3, 8, 0, 9, 6, 10, 3, 0])),
        (false, json!([1, 15, 3, 0, 0, 3, 8, 0, 9, 6, 10, 3, 0, 0])),
    ] {
        tokenizer["model"]["fuse_unk"] = is_fused.into();
        assert_eq!(ids(&tokenizer, "hello éü wörld 中文"), wanted, "{is_fused}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokenizer.json");
    for (normalizer, words, told) in [
        (Value::Null, Value::Null, "has no Metaspace"),
        (
            Value::Null,
            json!({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}),
            "replaces spaces by",
        ),
    ] {
        (tokenizer["normalizer"], tokenizer["pre_tokenizer"]) = (normalizer, words);
        std::fs::write(&file, tokenizer.to_string()).expect("a file");
        let message = error(&["tokenize", "-p", "a", "-m", path(&model()), "--tokenizer", path(&file)]);
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn unigram() {
    let mut tokenizer = json!({
        "added_tokens": added(&[(0, "<pad>", true), (1, "</s>", true), (2, "<unk>", true)]),
        "normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "post_processor": template(None, Some(("</s>", 1))),
        "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": false, "vocab": [
            ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁", -3.0], ["▁he", -2.0], ["l", -4.0], ["lo", -3.0],
            ["▁hello", -5.5], ["w", -5.0], ["o", -5.0], ["r", -5.0], ["d", -5.0],
        ]},
    });
    assert_eq!(ids(&tokenizer, "hello  world hélo"), json!([7, 3, 8, 9, 10, 5, 11, 3, 2, 6, 1]));
    // Without a post-processor, the tokenizer adds no tokens to a text. If the scheme is "never", it puts no space
    // before the first word.
    tokenizer["post_processor"] = Value::Null;
    assert_eq!(ids(&tokenizer, "lo lo"), json!([3, 6, 3, 6]));
    tokenizer["pre_tokenizer"]["prepend_scheme"] = "never".into();
    assert_eq!(ids(&tokenizer, "lo lo"), json!([6, 3, 6]));
    assert_eq!(ids(&tokenizer, "  lo"), json!([3, 6]));
    let bytes = (0..256).map(|byte| json!([format!("<0x{byte:02X}>"), -9.0]));
    tokenizer["model"]["vocab"].as_array_mut().unwrap().extend(bytes);
    assert_eq!(ids(&tokenizer, "wé語o"), json!([8, 2, 9]));
    tokenizer["model"]["byte_fallback"] = true.into();
    assert_eq!(ids(&tokenizer, "wé語o"), json!([8, 207, 181, 244, 182, 170, 9]));
}

#[test]
fn word_pieces() {
    let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "he", "##llo", "##l", "hello", "w", "##or", "##ld", "!", "e"];
    let mut tokenizer = json!({
        "added_tokens": added(&[(0, "[PAD]", true), (1, "[UNK]", true), (2, "[CLS]", true), (3, "[SEP]", true)]),
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template(Some(("[CLS]", 2)), Some(("[SEP]", 3))),
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": list(&tokens)},
    });
    assert_eq!(ids(&tokenizer, "Hello WORLD! HÉllo zzz"), json!([2, 7, 8, 9, 10, 11, 7, 1, 3]));
    // In this file, the character `▁` only marks the start of words. In a text, it is an ordinary character.
    assert_eq!(ids(&tokenizer, "e▁hello e"), json!([2, 1, 12, 3]));
    assert_eq!(ids(&tokenizer, "▁e"), json!([2, 1, 3]));
    let steps = ["NFD", "Lowercase", "StripAccents"].map(|step| json!({"type": step}));
    tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": steps});
    assert_eq!(ids(&tokenizer, "he\u{1}llo e"), json!([2, 1, 12, 3]));
}

/// A character without a token is left out if the model has no unknown token, and its neighbors may merge.
#[test]
fn words_with_characters_without_a_token() {
    let merges = ["h e", "l l", "he ll"];
    let mut tokens = vec!["<s>".to_owned()];
    tokens.extend("helo".chars().map(String::from));
    tokens.extend(merges.map(|merge| merge.replace(' ', "")));
    let tokenizer = json!({
        "added_tokens": added(&[(0, "<s>", true)]),
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": template(Some(("<s>", 0)), None),
        "model": {"type": "BPE", "vocab": list(&tokens),
            "merges": merges.map(|merge| merge.split(' ').collect::<Vec<_>>())},
    });
    assert_eq!(ids(&tokenizer, "hXeéll Xhell hellX XX o"), json!([0, 7, 7, 7, 4]));
}

/// In a WordPiece tokenizer, converting to lowercase and removing accents are separate settings.
#[test]
fn word_pieces_with_accents() {
    let tokens = [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "he", "##llo", "##l", "hello", "w", "##or", "##ld", "!", "e", "É", "é",
        "E", "hé", "##é", "H",
    ];
    for (lowercase, strips, wanted) in [
        (true, false, json!([2, 16, 14, 14, 1, 7, 4, 3])),
        (false, true, json!([2, 1, 15, 12, 12, 1, 1, 3])),
        (true, true, json!([2, 4, 12, 12, 12, 7, 4, 3])),
        (false, false, json!([2, 1, 13, 14, 1, 1, 1, 3])),
    ] {
        let tokenizer = json!({
            "added_tokens": added(&[(0, "[PAD]", true), (1, "[UNK]", true), (2, "[CLS]", true), (3, "[SEP]", true)]),
            "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "lowercase": lowercase, "strip_accents": strips},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": template(Some(("[CLS]", 2)), Some(("[SEP]", 3))),
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "vocab": list(&tokens)},
        });
        assert_eq!(ids(&tokenizer, "HÉ É é e\u{301} Hello HE"), wanted, "{lowercase} {strips}");
    }
}

#[test]
fn what_is_no_vocabulary_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokenizer.json");
    let tell = |content: &str| {
        std::fs::write(&file, content).expect("a file");
        error(&["tokenize", "-p", "a", "-m", path(&model()), "--tokenizer", path(&file)])
    };
    assert!(tell("{").contains("not JSON"));
    assert!(tell("{}").contains("BPE, Unigram and WordPiece are supported"));
    assert!(tell("\u{1}nonsense").contains("not a tokenizer.json"));
    assert!(tell(&byte_level("a|b").to_string()).contains("unknown pre-tokenizer: a|b"));
    let mut large = byte_level(LLAMA3);
    large["added_tokens"] = added(&[(16_000_000, "<far>", true)]);
    assert!(tell(&large.to_string()).contains("512 rows"));
    large["added_tokens"] = added(&[(u32::MAX, "<far>", true)]);
    assert!(tell(&large.to_string()).contains("too large for any vocabulary"));
}

/// The same vocabulary is in SentencePiece's file and in llama2.c's file, which llama2.c's exporter made from
/// SentencePiece's file.
#[test]
fn files_of_one_vocabulary() {
    let Some(case) = crate::common::fixtures("llama2c_legacy") else { return };
    let model = case.join("expected.gguf");
    let texts = ["Once upon a time", " é 語\n\n x", "", "a  b<s>"];
    for text in texts {
        let how = ["tokenize", "--add-special", "--json", "-p", text, "-m", path(&model)];
        let expected = json(&how);
        for file in ["tokenizer.model", "tokenizer.bin"] {
            let file = case.join(file);
            assert_eq!(json(&[&how[..], &["--tokenizer", path(&file)]].concat()), expected, "{text:?}");
        }
    }
}

/// The pre-tokenizer `Metaspace` adds a space before a text only if the text does not begin with a space.
#[test]
fn a_first_space_is_not_doubled() {
    let tokens = ["<unk>", "▁", "a", "▁a", "▁▁a"];
    let vocab: Vec<Value> = tokens.iter().map(|token| json!([token, -1.0])).collect();
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true});
    let tokenizer = json!({
        "added_tokens": [], "normalizer": null, "pre_tokenizer": metaspace, "post_processor": null, "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false},
    });
    assert_eq!(ids(&tokenizer, "a"), json!([3]));
    assert_eq!(ids(&tokenizer, " a"), json!([3]));
}

/// Files of other tokenizers are converted to the same vocabularies as by llama.cpp's converter.
#[test]
fn vocabularies_of_other_kinds() {
    for (name, file) in [
        ("rwkv_tok_a", "rwkv_vocab.txt"),
        ("whitespace_tok_a", "tokenizer.json"),
        ("whitespace_tok_lower_a", "tokenizer.json"),
    ] {
        let Some(folder) = fixtures(&format!("vocabularies/{name}")) else { continue };
        let directory = tempfile::tempdir().expect("a directory");
        let (model, output) = (folder.join("model.gguf"), directory.path().join("out.gguf"));
        stdout(&["convert", "tokenizer", path(&folder.join(file)), path(&model), path(&output)]);
        let [got, want] = [output, model].map(|file| json(&["inspect", path(&file), "--json"])["metadata"].clone());
        for key in
            ["model", "pre", "tokens", "token_type", "merges", "bos_token_id", "eot_token_id", "normalizer.lowercase"]
        {
            let key = format!("tokenizer.ggml.{key}");
            assert_eq!(got[&key], want[&key], "{name}: {key}");
        }
    }
}
