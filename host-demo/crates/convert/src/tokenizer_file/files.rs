//! Vocabularies in other files than `tokenizer.json`, read in its form: Mistral's `tekken.json`, and `vocab.json` with
//! `merges.txt`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::ranks::Ranks;
use super::{expressions, special};

/// Files that [`tokenizer`] reads, in order of preference.
pub const FILES: [&str; 3] = ["tokenizer.json", "tekken.json", "vocab.json"];

/// Reads a file, or the one of [`FILES`] in a folder, in the form of `tokenizer.json`. Returns `None` if there is none.
pub fn tokenizer(path: &Path) -> Result<Option<Value>> {
    let path = if path.is_dir() {
        FILES.iter().map(|name| path.join(name)).find(|path| path.is_file())
    } else {
        Some(path.to_owned())
    };
    let Some(path) = path.filter(|path| path.extension().is_some_and(|kind| kind == "json")) else { return Ok(None) };
    let file = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&path, &file).with_context(|| format!("the tokenizer {}", path.display())).map(Some)
}

/// Parses the content of a file.
pub fn parse(path: &Path, file: &[u8]) -> Result<Value> {
    let json: Value = serde_json::from_slice(file).context("it is not JSON")?;
    if json["model"].is_object() {
        return Ok(json);
    }
    if json["config"]["pattern"].is_string() && json["vocab"].is_array() {
        return tekken(&json);
    }
    if path.ends_with("vocab.json") {
        return merged(&json, path.parent().unwrap_or(Path::new(".")));
    }
    Ok(json)
}

/// Special tokens of a `tekken.json` that does not list them.
const TEKKEN: &str = "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] \
    [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]";

/// Converts a `tekken.json`: special tokens come first, and the ranks of the others are those of merges.
fn tekken(json: &Value) -> Result<Value> {
    let size = |name: &str| json["config"][name].as_u64().map(|size| size as usize);
    let count = size("default_num_special_tokens").context("it has no default_num_special_tokens")?;
    let all = size("default_vocab_size").context("it has no default_vocab_size")?;
    let entries = json["vocab"].as_array().map_or(&[][..], Vec::as_slice);
    let bytes: Vec<Vec<u8>> = entries
        .iter()
        .take(all.saturating_sub(count))
        .map(|entry| BASE64.decode(entry["token_bytes"].as_str().unwrap_or_default()).context("a token is not base64"))
        .collect::<Result<_>>()?;
    let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    let ranks = Ranks::new(&bytes);
    let vocabulary: Map<String, Value> =
        ranks.texts().map(|(text, rank)| (text, (rank as usize + count).into())).collect();
    let mut special: Vec<String> = match json["special_tokens"].as_array() {
        Some(list) => list.iter().map(|token| token["token_str"].as_str().unwrap_or_default().to_owned()).collect(),
        None => TEKKEN.split_whitespace().map(str::to_owned).collect(),
    };
    for id in special.len()..count {
        special.push(format!("<SPECIAL_{id}>"));
    }
    special.truncate(count);
    let added = special.iter().enumerate();
    let added: Vec<Value> = added.map(|(id, text)| json!({ "id": id, "content": text, "special": true })).collect();
    let begin = json!({ "SpecialToken": { "id": "<s>" } });
    let text = |name: &str| json!({ "Sequence": { "id": name } });
    Ok(json!({
        "added_tokens": added,
        "pre_tokenizer": split(json["config"]["pattern"].as_str().unwrap_or_default()),
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, text("A")],
            "pair": [begin, text("A"), begin, text("B")],
            "special_tokens": { "<s>": { "ids": [special.iter().position(|text| text == "<s>")] } },
        },
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "ignore_merges": true, "vocab": vocabulary, "merges": ranks.merges() },
    }))
}

/// A pre-tokenizer that splits at an expression.
fn split(expression: &str) -> Value {
    json!({ "type": "Sequence", "pretokenizers": [
        { "type": "Split", "pattern": { "Regex": expression }, "behavior": "Isolated", "invert": false },
        { "type": "ByteLevel", "add_prefix_space": false, "use_regex": false },
    ] })
}

/// Classes of transformers whose vocabulary is `vocab.json` and `merges.txt`, and what their code adds to it.
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

/// Combines `vocab.json`, `merges.txt` and the added tokens of a folder.
fn merged(vocabulary: &Value, folder: &Path) -> Result<Value> {
    let settings = special::config(folder)?;
    let config = special::optional_json(&folder.join("config.json"))?;
    let class = Class::of(&settings, &config)?;
    let merges = fs::read_to_string(folder.join("merges.txt")).context("cannot read merges.txt beside it")?;
    let merges: Vec<&str> = merges.lines().filter(|line| !line.is_empty() && !line.starts_with("#version")).collect();
    let mut added: BTreeMap<u64, Value> = BTreeMap::new();
    for (text, id) in special::optional_json(&folder.join("added_tokens.json"))?.as_object().into_iter().flatten() {
        let id = id.as_u64().with_context(|| format!("{text:?} in added_tokens.json has no id"))?;
        added.insert(id, json!({ "id": id, "content": text, "special": true }));
    }
    for (id, token) in settings["added_tokens_decoder"].as_object().into_iter().flatten() {
        let id: u64 = id.parse().with_context(|| format!("{id:?} in added_tokens_decoder is not an id"))?;
        let mut token = token.clone();
        token["id"] = id.into();
        added.insert(id, token);
    }
    let special = |name: &str, default: &str| {
        let entry = &settings[format!("{name}_token")];
        let text = entry.as_str().or(entry["content"].as_str()).unwrap_or(default).to_owned();
        let id = vocabulary[&text]
            .as_u64()
            .or_else(|| Some(*added.iter().find(|(_, it)| it["content"] == text.as_str())?.0));
        id.map(|id| (text, id))
    };
    let default = |text| if matches!(class, Class::Roberta) { text } else { "<|endoftext|>" };
    let names = [
        ("bos", "<s>"),
        ("eos", "</s>"),
        ("unk", "<unk>"),
        ("sep", "</s>"),
        ("pad", "<pad>"),
        ("cls", "<s>"),
        ("mask", "<mask>"),
    ];
    let found: Vec<_> = names.iter().filter_map(|(name, text)| Some((*name, special(name, default(text))?))).collect();
    let ends = |name: &str| found.iter().find(|(known, _)| *known == name).map(|(_, (text, id))| json!([text, id]));
    let (cls, sep) = (ends("cls"), ends("sep"));
    for (name, (text, id)) in found {
        let strips = matches!(class, Class::Roberta) && name == "mask";
        added.entry(id).or_insert_with(|| json!({ "id": id, "content": text, "special": true, "lstrip": strips }));
    }
    let prefix = settings["add_prefix_space"] == true;
    let gpt2 = json!({ "type": "ByteLevel", "add_prefix_space": prefix, "use_regex": true });
    let (normalizer, words) = match class {
        Class::Qwen2 => (json!({ "type": "NFC" }), split(expressions::QWEN2)),
        Class::Gpt2 | Class::Roberta => (Value::Null, gpt2),
    };
    let processor = match class {
        Class::Roberta => json!({ "type": "RobertaProcessing", "cls": cls, "sep": sep }),
        Class::Gpt2 | Class::Qwen2 => Value::Null,
    };
    Ok(json!({
        "added_tokens": added.into_values().collect::<Vec<_>>(),
        "normalizer": normalizer,
        "pre_tokenizer": words,
        "post_processor": processor,
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "vocab": vocabulary, "merges": merges },
    }))
}
