//! Reads added tokens from the files beside a vocabulary: `added_tokens.json` and `tokenizer_config.json`.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::parts::list;
use super::special;

/// Returns the added tokens in the form of a `tokenizer.json`, ordered by id. They come from `tokenizer_config.json`,
/// or from `added_tokens.json` if the former lists none.
pub fn beside(folder: &Path, settings: &Value) -> Result<Vec<Value>> {
    let mut tokens = Vec::new();
    for (id, token) in settings["added_tokens_decoder"].as_object().into_iter().flatten() {
        let id: u64 = id.parse().with_context(|| format!("{id:?} in added_tokens_decoder is not an id"))?;
        let mut token = token.clone();
        ensure!(token.is_object(), "the token {id} in added_tokens_decoder is not an object");
        token["id"] = id.into();
        tokens.push((id, token));
    }
    if tokens.is_empty() {
        for (text, id) in special::optional_json(&folder.join("added_tokens.json"))?.as_object().into_iter().flatten() {
            let id = id.as_u64().with_context(|| format!("{text:?} in added_tokens.json has no id"))?;
            tokens.push((id, json!({ "id": id, "content": text, "special": true })));
        }
    }
    tokens.sort_by_key(|(id, _)| *id);
    Ok(tokens.into_iter().map(|(_, token)| token).collect())
}

/// Returns the texts of the special tokens that the settings name, in transformers' order.
pub fn special(settings: &Value) -> Vec<String> {
    let named = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"].map(|name| &settings[format!("{name}_token")]);
    let lists = ["additional_special_tokens", "extra_special_tokens"].map(|name| &settings[name]);
    let others = lists
        .iter()
        .flat_map(|others| list(others))
        .chain(settings["extra_special_tokens"].as_object().into_iter().flatten().map(|(_, token)| token));
    let text = |token: &Value| token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned);
    named.into_iter().chain(others).filter_map(text).collect()
}

/// Adds the tokens that other files name and a `tokenizer.json` lacks. As in transformers, a token that is in the
/// vocabulary keeps its id, and any other token gets the next free id.
pub fn complete(json: &mut Value, folder: &Path, settings: &Value) -> Result<()> {
    let known = |json: &Value, text: &str| list(&json["added_tokens"]).any(|token| token["content"] == text);
    let named = special(settings).into_iter().map(|text| json!({ "content": text, "special": true }));
    let tokens: Vec<Value> = beside(folder, settings)?.into_iter().chain(named).collect();
    let text = |token: &Value| token["content"].as_str().unwrap_or_default().to_owned();
    let missing: Vec<Value> = tokens.into_iter().filter(|token| !known(json, &text(token))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let vocabulary = &json["model"]["vocab"];
    let of_list = (0u64..).zip(list(vocabulary)).filter_map(|(id, entry)| Some((entry[0].as_str()?, id)));
    let of_map =
        vocabulary.as_object().into_iter().flatten().filter_map(|(text, id)| Some((text.as_str(), id.as_u64()?)));
    let ids: HashMap<String, u64> = of_list.chain(of_map).map(|(text, id)| (text.to_owned(), id)).collect();
    let added = list(&json["added_tokens"]).filter_map(|token| token["id"].as_u64());
    let mut next = ids.values().copied().chain(added).max().map_or(0, |last| last.saturating_add(1));
    for mut token in missing {
        let text = text(&token);
        if text.is_empty() || known(json, &text) {
            continue;
        }
        token["id"] = match ids.get(&text) {
            Some(id) => (*id).into(),
            None => {
                next = next.saturating_add(1);
                (next - 1).into()
            }
        };
        match json["added_tokens"].as_array_mut() {
            Some(all) => all.push(token),
            None => json["added_tokens"] = json!([token]),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids are those of transformers 5.24.
    #[test]
    fn other_files_add_tokens() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("added_tokens.json"), r#"{"[ENT]": 3, "b": 9}"#).unwrap();
        let settings = json!({
            "eos_token": { "content": "a" }, "pad_token": "[PAD]", "additional_special_tokens": ["[ENT]", "<x>"],
            "extra_special_tokens": { "image_token": "b" },
        });
        for vocab in [json!({ "a": 0, "b": 1, "<s>": 2 }), json!([["a", 0.0], ["b", 0.0], ["<s>", 0.0]])] {
            let mut tokenizer = json!({
                "added_tokens": [{ "id": 2, "content": "<s>", "special": true }], "model": { "vocab": vocab },
            });
            complete(&mut tokenizer, folder.path(), &settings).unwrap();
            let added = list(&tokenizer["added_tokens"]);
            let added: Vec<_> = added.map(|it| (it["content"].as_str().unwrap(), it["id"].as_u64().unwrap())).collect();
            assert_eq!(added, [("<s>", 2), ("[ENT]", 3), ("b", 1), ("a", 0), ("[PAD]", 4), ("<x>", 5)]);
        }
        let settings = json!({ "added_tokens_decoder": { "7": { "content": "c", "special": false } } });
        assert_eq!(beside(folder.path(), &settings).unwrap(), [json!({ "id": 7, "content": "c", "special": false })]);
    }
}
