//! Refuses features of a `tokenizer.json` that a GGUF vocabulary cannot represent.

use anyhow::{Result, bail};
use serde_json::Value;

use super::json::{is_byte_level, list};

/// Refuses features that would change ids. Features that rarely change a text become a line in `notes`.
pub fn check(json: &Value, notes: &mut Vec<String>) -> Result<()> {
    for token in list(&json["added_tokens"]) {
        for flag in ["lstrip", "rstrip", "single_word"] {
            if token[flag] == true && !is_harmless(token, flag) {
                bail!("its added token {} has {flag}, which is not supported", token["content"]);
            }
        }
    }
    let mut normalizers = Vec::new();
    flatten(&json["normalizer"], "normalizers", &mut normalizers);
    for normalizer in normalizers {
        let kind = normalizer["type"].as_str().unwrap_or("of no type");
        if !is_supported(json, kind, normalizer) {
            bail!("its normalizer {kind} is not supported for a vocabulary of this kind");
        }
        if kind == "NFC" && is_byte_level(json) {
            notes.push("texts are not brought into Unicode's composed form (NFC) before they are tokenized".to_owned());
        }
    }
    Ok(())
}

/// A mask token does not occur in texts for a model.
fn is_harmless(token: &Value, flag: &str) -> bool {
    flag == "lstrip" && matches!(token["content"].as_str(), Some("<mask>" | "[MASK]"))
}

/// Collects the elements of a sequence of normalizers.
fn flatten<'v>(value: &'v Value, inner: &str, found: &mut Vec<&'v Value>) {
    match value["type"].as_str() {
        None => {}
        Some("Sequence") => list(&value[inner]).for_each(|part| flatten(part, inner, found)),
        Some(_) => found.push(value),
    }
}

fn is_supported(json: &Value, kind: &str, normalizer: &Value) -> bool {
    let spaces = normalizer["pattern"]["String"] == " " && normalizer["content"] == "▁";
    match (json["model"]["type"].as_str(), kind) {
        (Some("BPE"), "NFC") if is_byte_level(json) => true,
        (Some("BPE"), _) if is_byte_level(json) => false,
        (Some("BPE"), "Prepend") => normalizer["prepend"] == "▁",
        (Some("BPE"), "Replace") => spaces,
        (Some("Unigram"), "Precompiled") => true,
        (Some("Unigram"), "Replace") => normalizer["pattern"]["Regex"] == " {2,}" || spaces,
        (Some("Unigram"), "Strip") => normalizer["strip_left"] == false || normalizer["strip_right"] == true,
        (Some("WordPiece"), "BertNormalizer") => {
            normalizer["clean_text"] != false
                && (normalizer["strip_accents"].is_null() || normalizer["strip_accents"] == normalizer["lowercase"])
        }
        _ => false,
    }
}
