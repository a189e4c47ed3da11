//! Vocabularies without a `tokenizer.json`, as transformers' classes in Python saved them: `vocab.json` with
//! `merges.txt`, `vocab.txt`, and `sentencepiece.bpe.model`. They are converted to the form of `tokenizer.json`, and
//! completed with the settings that the code of the class adds.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use prost::Message;
use serde_json::{Value, json};

use super::expressions::split;
use super::sentencepiece::SentencePiece;
use super::{added, expressions, special};

/// Classes of transformers whose vocabulary is `vocab.json` and `merges.txt`. The classes differ in the settings that
/// their code adds.
enum Class {
    /// Words of GPT-2.
    Gpt2,
    /// Words of GPT-2, and special tokens around a text.
    Roberta,
    /// Words of Qwen 2, after normalization to NFC.
    Qwen2,
}

impl Class {
    fn of(settings: &Value, config: &Value) -> Result<Self> {
        let class = settings["tokenizer_class"].as_str();
        let name = match class {
            Some(class) => class.strip_suffix("Fast").unwrap_or(class),
            None => match config["model_type"].as_str().unwrap_or_default() {
                kind @ ("gpt2" | "whisper" | "qwen2" | "roberta") => kind,
                kind => bail!("tokenizer_config.json has no tokenizer_class, which {kind} needs beside vocab.json"),
            },
        };
        Ok(match name {
            "GPT2Tokenizer" | "WhisperTokenizer" | "CodeGenTokenizer" | "gpt2" | "whisper" => Self::Gpt2,
            "RobertaTokenizer" | "BartTokenizer" | "LongformerTokenizer" | "LEDTokenizer" | "roberta" => Self::Roberta,
            "Qwen2Tokenizer" | "qwen2" => Self::Qwen2,
            other => bail!(
                "vocab.json of the class {other} is not supported: save the tokenizer with transformers' fast class, as \
                 tokenizer.json"
            ),
        })
    }
}

/// The special tokens of a class: the name of each token in `tokenizer_config.json`, and its text if that file does not
/// name it.
type Defaults = [(&'static str, &'static str); 7];

const ANGLED: Defaults = [
    ("bos", "<s>"),
    ("eos", "</s>"),
    ("unk", "<unk>"),
    ("sep", "</s>"),
    ("pad", "<pad>"),
    ("cls", "<s>"),
    ("mask", "<mask>"),
];
const BERT: Defaults = [
    ("bos", "[CLS]"),
    ("eos", "[SEP]"),
    ("unk", "[UNK]"),
    ("sep", "[SEP]"),
    ("pad", "[PAD]"),
    ("cls", "[CLS]"),
    ("mask", "[MASK]"),
];
const END_OF_TEXT: Defaults = {
    let text = "<|endoftext|>";
    [("bos", text), ("eos", text), ("unk", text), ("sep", text), ("pad", text), ("cls", text), ("mask", text)]
};

/// The added tokens of a vocabulary, and its special tokens by name.
struct Tokens {
    added: BTreeMap<u64, Value>,
    special: Vec<(&'static str, String, u64)>,
}

impl Tokens {
    /// Reads the tokens from the files of a folder. `defaults` has the special tokens that the class has by default.
    fn of(vocabulary: &Value, folder: &Path, settings: &Value, defaults: &Defaults) -> Result<Self> {
        let mut added: BTreeMap<u64, Value> = BTreeMap::new();
        for token in added::beside(folder, settings)? {
            let (text, id) = (token["content"].as_str().unwrap_or_default(), token["id"].as_u64());
            let id = id.with_context(|| format!("the added token {text:?} has no id"))?;
            added.insert(id, token);
        }
        let mut tokens = Self { added, special: Vec::new() };
        for (name, default) in *defaults {
            let entry = &settings[format!("{name}_token")];
            let text = entry.as_str().or(entry["content"].as_str()).unwrap_or(default);
            if let Some(id) = tokens.id(vocabulary, text) {
                tokens.special.push((name, text.to_owned(), id));
            }
        }
        let names = tokens.special.iter().map(|(_, text, id)| (text.clone(), *id));
        let names = names.map(|(text, id)| (json!({ "content": text, "special": true }), id));
        let others = added::special(settings).into_iter().filter_map(|token| {
            let id = tokens.id(vocabulary, token["content"].as_str()?)?;
            Some((token, id))
        });
        let all: Vec<(Value, u64)> = others.chain(names).collect();
        for (mut token, id) in all {
            token["id"] = id.into();
            tokens.added.entry(id).or_insert(token);
        }
        Ok(tokens)
    }

    fn id(&self, vocabulary: &Value, text: &str) -> Option<u64> {
        let added = || Some(*self.added.iter().find(|(_, token)| token["content"] == text)?.0);
        vocabulary[text].as_u64().or_else(added)
    }

    /// A special token as a pair of text and id.
    fn pair(&self, name: &str) -> Result<Value> {
        let found = self.special.iter().find(|(known, ..)| *known == name);
        let (_, text, id) = found.with_context(|| format!("its {name} token is not in the vocabulary"))?;
        Ok(json!([text, id]))
    }

    /// Returns the template of a class that puts the token `name` before each text.
    fn first(&self, name: &str) -> Result<Value> {
        let begin = self.pair(name)?;
        let single = [shown(&begin), text("A")];
        Ok(template(&single, &[&single[..], &[shown(&begin), text("B")]].concat(), &[begin]))
    }

    /// Returns the template `cls A sep`. In a pair, the token `sep` is repeated `between` times between the two texts.
    fn around(&self, between: usize) -> Result<Value> {
        let (cls, sep) = (self.pair("cls")?, self.pair("sep")?);
        let single = [shown(&cls), text("A"), shown(&sep)];
        let more = [&vec![shown(&sep); between - 1][..], &[text("B"), shown(&sep)]].concat();
        Ok(template(&single, &[&single[..], &more].concat(), &[cls, sep]))
    }
}

/// Returns a special token as the template of a post-processor in `tokenizer.json` has it. `token` is a pair of the
/// token's text and its id.
fn shown(token: &Value) -> Value {
    json!({ "SpecialToken": { "id": token[0] } })
}

/// A text in a template.
fn text(name: &str) -> Value {
    json!({ "Sequence": { "id": name } })
}

fn template(single: &[Value], pair: &[Value], tokens: &[Value]) -> Value {
    let known =
        tokens.iter().map(|token| (token[0].as_str().unwrap_or_default().to_owned(), json!({ "ids": [token[1]] })));
    let known = Value::Object(known.collect());
    json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": known })
}

/// Combines `vocab.json`, `merges.txt` and the added tokens of a folder.
pub fn merged(vocabulary: &Value, folder: &Path) -> Result<Value> {
    let settings = special::config(folder)?;
    let config = special::optional_json(&folder.join("config.json"))?;
    let class = Class::of(&settings, &config)?;
    let merges = arenite_files::read(&folder.join("merges.txt"))?;
    let merges = String::from_utf8(merges).context("merges.txt beside it is not text")?;
    let merges: Vec<&str> = merges.lines().filter(|line| !line.is_empty() && !line.starts_with("#version")).collect();
    let defaults = if matches!(class, Class::Roberta) { ANGLED } else { END_OF_TEXT };
    let mut tokens = Tokens::of(vocabulary, folder, &settings, &defaults)?;
    if matches!(class, Class::Roberta)
        && let Ok(mask) = tokens.pair("mask")
        && let Some(mask) = mask[1].as_u64().and_then(|id| tokens.added.get_mut(&id))
        && mask["lstrip"].is_null()
    {
        mask["lstrip"] = true.into();
    }
    let prefix = settings["add_prefix_space"] == true;
    let gpt2 = json!({ "type": "ByteLevel", "add_prefix_space": prefix, "use_regex": true });
    let (normalizer, words) = match class {
        Class::Qwen2 => (json!({ "type": "NFC" }), split(expressions::QWEN2)),
        Class::Gpt2 | Class::Roberta => (Value::Null, gpt2),
    };
    let processor = match class {
        Class::Roberta => tokens.around(2)?,
        Class::Gpt2 if settings["add_bos_token"] == true => tokens.first("bos")?,
        Class::Gpt2 | Class::Qwen2 => Value::Null,
    };
    Ok(json!({
        "added_tokens": tokens.added.into_values().collect::<Vec<_>>(),
        "normalizer": normalizer,
        "pre_tokenizer": words,
        "post_processor": processor,
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "vocab": vocabulary, "merges": merges },
    }))
}

/// Converts `vocab.txt`, the words of WordPiece, one per line.
pub fn words(file: &[u8], folder: &Path, settings: &Value) -> Result<Value> {
    let class = settings["tokenizer_class"].as_str().unwrap_or("BertTokenizer");
    let class = class.strip_suffix("Fast").unwrap_or(class);
    let is_japanese = ["word_tokenizer_type", "subword_tokenizer_type"].iter().any(|key| settings[*key].is_string());
    if class == "BertJapaneseTokenizer" || is_japanese {
        bail!("its class {class} splits words by a dictionary, which is not supported");
    }
    ensure!(
        settings["do_basic_tokenize"] != false,
        "do_basic_tokenize in tokenizer_config.json is false, which is not supported"
    );
    let text = std::str::from_utf8(file).context("it is not text")?;
    let vocabulary = (0u64..).zip(text.lines()).map(|(id, line)| (line.to_owned(), id.into()));
    let vocabulary = Value::Object(vocabulary.collect());
    let tokens = Tokens::of(&vocabulary, folder, settings, if class == "MPNetTokenizer" { &ANGLED } else { &BERT })?;
    let given = |name: &str, default: bool| settings[name].as_bool().unwrap_or(default);
    let unknown = tokens.pair("unk").map_or_else(|_| "[UNK]".into(), |unknown| unknown[0].clone());
    let processor = tokens.around(1)?;
    Ok(json!({
        "added_tokens": tokens.added.into_values().collect::<Vec<_>>(),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": given("tokenize_chinese_chars", true),
            "strip_accents": settings["strip_accents"],
            "lowercase": given("do_lower_case", true),
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": processor,
        "decoder": { "type": "WordPiece", "prefix": "##" },
        "model": {
            "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    }))
}

/// The tokens that fairseq's vocabularies have instead of SentencePiece's first pieces, and the number of pieces that
/// they replace. There is one such list for XLM-RoBERTa and one for CamemBERT.
const XLM_ROBERTA: (&[&str], usize) = (&["<s>", "<pad>", "</s>", "<unk>"], 3);
const CAMEMBERT: (&[&str], usize) = (&["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"], 1);

/// Converts `sentencepiece.bpe.model`. The ids must be converted, because models that fairseq trained do not use
/// SentencePiece's ids.
pub fn fairseq(file: &[u8], folder: &Path, settings: &Value, config: &Value) -> Result<Value> {
    let model = SentencePiece::decode(file).context("it is not SentencePiece's model")?;
    let class = settings["tokenizer_class"].as_str().or_else(|| config["model_type"].as_str()).unwrap_or_default();
    let class = class.strip_suffix("Fast").unwrap_or(class);
    let (first, dropped) = match class {
        "XLMRobertaTokenizer" | "LayoutXLMTokenizer" | "xlm-roberta" | "xlm-roberta-xl" => XLM_ROBERTA,
        "CamembertTokenizer" | "camembert" => CAMEMBERT,
        other => bail!(
            "the ids of the class {other:?} are not known: save the tokenizer with transformers' fast class, as \
             tokenizer.json"
        ),
    };
    ensure!(
        model.trainer.as_ref().and_then(|trainer| trainer.model_type).unwrap_or(1) == 1,
        "it is not a unigram model, and this class has no other"
    );
    let pieces = model.pieces.iter().skip(dropped).map(|piece| (piece.piece.clone(), piece.score));
    let first = first.iter().map(|text| ((*text).to_owned(), if *text == "<unk>NOTUSED" { -100.0 } else { 0.0 }));
    let all: Vec<(String, f32)> = first.chain(pieces).chain([("<mask>".to_owned(), 0.0)]).collect();
    let ids = Value::Object((0u64..).zip(&all).map(|(id, (text, _))| (text.clone(), id.into())).collect());
    let mut tokens = Tokens::of(&ids, folder, settings, &ANGLED)?;
    if let Some(mask) = tokens.pair("mask")?[1].as_u64().and_then(|id| tokens.added.get_mut(&id))
        && mask["lstrip"].is_null()
    {
        mask["lstrip"] = true.into();
    }
    let processor = tokens.around(2)?;
    let normalizer = model.normalizer.unwrap_or_default();
    let spaces = json!({ "type": "Replace", "pattern": { "Regex": " {2,}" }, "content": " " });
    let map = (!normalizer.charsmap.is_empty())
        .then(|| json!({ "type": "Precompiled", "precompiled_charsmap": BASE64.encode(&normalizer.charsmap) }));
    let normalizers: Vec<Value> = map.into_iter().chain([spaces]).collect();
    let metaspace = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always" });
    let words = json!([{ "type": "WhitespaceSplit" }, metaspace]);
    Ok(json!({
        "added_tokens": tokens.added.into_values().collect::<Vec<_>>(),
        "normalizer": { "type": "Sequence", "normalizers": normalizers },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": words },
        "post_processor": processor,
        "decoder": metaspace,
        "model": { "type": "Unigram", "unk_id": 3, "vocab": all },
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tokenizer_file::sentencepiece::Piece;

    fn added(json: &Value) -> Vec<(&str, u64)> {
        let tokens = json["added_tokens"].as_array().unwrap().iter();
        tokens.map(|token| (token["content"].as_str().unwrap(), token["id"].as_u64().unwrap())).collect()
    }

    #[test]
    fn words_have_added_tokens_and_other_names() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("added_tokens.json"), r#"{"[ENT]": 5}"#).unwrap();
        let settings = json!({ "cls_token": "<s>", "sep_token": "</s>", "tokenize_chinese_chars": false });
        let json = words(b"[UNK]\r\n<s>\r\n</s>\r\na\r\n##b\r\n", folder.path(), &settings).unwrap();
        assert_eq!(json["model"]["vocab"], json!({ "[UNK]": 0, "<s>": 1, "</s>": 2, "a": 3, "##b": 4 }));
        assert_eq!(added(&json), [("[UNK]", 0), ("<s>", 1), ("</s>", 2), ("[ENT]", 5)]);
        assert_eq!(json["normalizer"]["handle_chinese_chars"], false);
        assert_eq!(json["post_processor"]["special_tokens"], json!({ "<s>": { "ids": [1] }, "</s>": { "ids": [2] } }));
        for settings in [
            json!({ "tokenizer_class": "BertJapaneseTokenizer" }),
            json!({ "word_tokenizer_type": "mecab" }),
            json!({ "do_basic_tokenize": false, "cls_token": "a", "sep_token": "a" }),
            Value::Null, // there is no [CLS]
        ] {
            assert!(words(b"a\nb\n", folder.path(), &settings).is_err(), "{settings}");
        }
    }

    /// The expected ids were computed by the functions `fairseq_tokens_to_ids` and `fairseq_offset` of transformers'
    /// slow tokenizers.
    #[test]
    fn ids_of_fairseq() {
        let pieces = ["<unk>", "<s>", "</s>", "▁a"];
        let pieces = pieces.map(|text| Piece { piece: text.to_owned(), score: -1.0, kind: None });
        let file = SentencePiece { pieces: pieces.into(), trainer: None, normalizer: None }.encode_to_vec();
        let folder = tempfile::tempdir().unwrap();
        let read =
            |class: &str, config: Value| fairseq(&file, folder.path(), &json!({ "tokenizer_class": class }), &config);
        let roberta = read("XLMRobertaTokenizer", Value::Null).unwrap();
        assert_eq!(added(&roberta), [("<s>", 0), ("<pad>", 1), ("</s>", 2), ("<unk>", 3), ("<mask>", 5)]);
        assert_eq!(roberta["model"]["vocab"][4], json!(["▁a", -1.0]));
        let camembert = read("CamembertTokenizerFast", Value::Null).unwrap();
        assert_eq!(added(&camembert), [("<pad>", 1), ("<unk>", 3), ("<s>", 5), ("</s>", 6), ("<mask>", 8)]);
        assert_eq!(camembert["model"]["vocab"][7], json!(["▁a", -1.0]));
        assert!(read("MBartTokenizer", Value::Null).is_err());
        let named = fairseq(&file, folder.path(), &Value::Null, &json!({ "model_type": "xlm-roberta" })).unwrap();
        assert_eq!(added(&named), added(&roberta));
    }
}
