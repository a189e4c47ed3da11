//! Reads vocabularies from files other than `tokenizer.json`, and converts them to the form of `tokenizer.json`:
//! Mistral's `tekken.json`, and the files that `slow` reads.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::expressions::split;
use super::ranks::Ranks;
use super::slow;

/// Files that [`tokenizer`] reads, in order of preference.
pub const FILES: [&str; 3] = ["tokenizer.json", "tekken.json", "vocab.json"];

/// Reads a vocabulary in the form of `tokenizer.json`, from the file `path` or from one of [`FILES`] in the folder
/// `path`. Returns `None` if there is no such file.
pub fn tokenizer(path: &Path) -> Result<Option<Value>> {
    let path = if path.is_dir() {
        FILES.iter().map(|name| path.join(name)).find(|path| path.is_file())
    } else {
        Some(path.to_owned())
    };
    let Some(path) = path.filter(|path| path.extension().is_some_and(|kind| kind == "json")) else { return Ok(None) };
    let file = arenite_files::read(&path)?;
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
        return slow::merged(&json, path.parent().unwrap_or(Path::new(".")));
    }
    Ok(json)
}

/// The special tokens for a `tekken.json` that does not list any.
const TEKKEN: &str = "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] \
    [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]";

/// Converts a `tekken.json`. The special tokens come first; the ranks of all other tokens are the ranks of the merges.
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
