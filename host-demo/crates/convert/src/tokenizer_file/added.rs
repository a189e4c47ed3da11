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

/// Returns the special tokens that the settings name, in transformers' order, in the form of added tokens.
pub fn special(settings: &Value) -> Vec<Value> {
    let named = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"].map(|name| &settings[format!("{name}_token")]);
    let lists = ["additional_special_tokens", "extra_special_tokens"].map(|name| list(&settings[name]));
    let maps = ["extra_special_tokens", "model_specific_special_tokens"].map(|name| settings[name].as_object());
    let maps = maps.into_iter().flatten().flatten().map(|(_, token)| token);
    let token = |token: &Value| match token {
        Value::String(text) => Some(json!({ "content": text, "special": true })),
        Value::Object(_) if token["content"].is_string() => {
            let mut token = token.clone();
            token["special"] = true.into();
            Some(token)
        }
        _ => None,
    };
    named.into_iter().chain(lists.into_iter().flatten()).chain(maps).filter_map(token).collect()
}

/// Changes the added tokens of a `tokenizer.json` as transformers does. Adds messages to `notes`.
///
/// - A token that is in the vocabulary has its id there. A second token with the same text is left out.
/// - `added_tokens_decoder` changes the flags of tokens.
/// - Tokens that other files name and the `tokenizer.json` lacks are added. A token that is in the vocabulary keeps its
///   id, and any other token gets the next free id.
pub fn complete(json: &mut Value, folder: &Path, settings: &Value, notes: &mut Vec<String>) -> Result<()> {
    let vocabulary = &json["model"]["vocab"];
    let of_list = (0u64..).zip(list(vocabulary)).filter_map(|(id, entry)| Some((entry[0].as_str()?, id)));
    let of_map =
        vocabulary.as_object().into_iter().flatten().filter_map(|(text, id)| Some((text.as_str(), id.as_u64()?)));
    let ids: HashMap<String, u64> = of_list.chain(of_map).map(|(text, id)| (text.to_owned(), id)).collect();
    let text = |token: &Value| token["content"].as_str().unwrap_or_default().to_owned();

    // The place of each token in `known`.
    let mut places: HashMap<String, usize> = HashMap::new();
    let (mut known, mut moved, mut last): (Vec<Value>, _, Option<u64>) = (Vec::new(), None, None);
    for mut token in list(&json["added_tokens"]).filter(|token| token.is_object()).cloned() {
        if places.contains_key(&text(&token)) {
            continue;
        }
        if let Some(id) = ids.get(&text(&token)) {
            token["id"] = (*id).into();
        } else if let Some(id) = token["id"].as_u64() {
            let next = last.map_or(0, |last| last.saturating_add(1)).max(ids.len() as u64);
            moved = moved.or((id != next).then(|| (text(&token), id, next)));
        }
        last = last.max(token["id"].as_u64());
        places.insert(text(&token), known.len());
        known.push(token);
    }
    if let Some((text, id, next)) = moved {
        notes.push(format!(
            "the added token {text:?} has the id {id} here, as the file says, and {next} in Hugging Face's tokenizer, which \
             numbers added tokens without gaps"
        ));
    }
    for other in settings["added_tokens_decoder"].as_object().into_iter().flatten().map(|(_, token)| token) {
        let Some(token) = places.get(&text(other)).and_then(|place| known.get_mut(*place)) else { continue };
        for flag in ["single_word", "lstrip", "rstrip", "normalized", "special"] {
            if !other[flag].is_null() {
                token[flag] = other[flag].clone();
            }
        }
    }
    let mut last = ids.values().copied().max().max(last);
    for mut token in beside(folder, settings)?.into_iter().chain(special(settings)) {
        let text = text(&token);
        if text.is_empty() || places.contains_key(&text) {
            continue;
        }
        token["id"] = match ids.get(&text) {
            Some(id) => (*id).into(),
            None => {
                last = Some(last.map_or(0, |last| last.saturating_add(1)));
                last.into()
            }
        };
        places.insert(text, known.len());
        known.push(token);
    }
    if !known.is_empty() {
        json["added_tokens"] = known.into();
    }
    Ok(())
}

/// Expands each special token of a template that has several ids into one token per id.
pub fn spell_out(json: &mut Value) {
    let vocabulary = json["model"]["vocab"].as_object().into_iter().flatten();
    let vocabulary = vocabulary.filter_map(|(text, id)| Some((id.as_u64()?, text.clone())));
    let added = list(&json["added_tokens"]);
    let added = added.filter_map(|token| Some((token["id"].as_u64()?, token["content"].as_str()?.to_owned())));
    let texts: HashMap<u64, String> = vocabulary.chain(added).collect();
    let Some(processor) = json.get_mut("post_processor") else { return };
    let is_template = |it: &&mut Value| it["type"] == "TemplateProcessing";
    let template = match processor.get("processors").is_some() {
        true => processor["processors"].as_array_mut().and_then(|all| all.iter_mut().find(is_template)),
        false => Some(processor).filter(is_template),
    };
    let Some(template) = template else { return };
    let mut named = template["special_tokens"].clone();
    for name in ["single", "pair"] {
        let mut pieces = Vec::new();
        for piece in list(&template[name]) {
            let token = &template["special_tokens"][piece["SpecialToken"]["id"].as_str().unwrap_or_default()];
            let ids: Vec<u64> = list(&token["ids"]).filter_map(Value::as_u64).collect();
            if ids.len() < 2 || !ids.iter().all(|id| texts.contains_key(id)) {
                pieces.push(piece.clone());
                continue;
            }
            for (id, text) in ids.iter().filter_map(|id| Some((id, texts.get(id)?))) {
                let kind = &piece["SpecialToken"]["type_id"];
                pieces.push(json!({ "SpecialToken": { "id": text, "type_id": kind } }));
                named[text] = json!({ "id": text, "ids": [id], "tokens": [text] });
            }
        }
        template[name] = pieces.into();
    }
    template["special_tokens"] = named;
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
            complete(&mut tokenizer, folder.path(), &settings, &mut Vec::new()).unwrap();
            let added = list(&tokenizer["added_tokens"]);
            let added: Vec<_> = added.map(|it| (it["content"].as_str().unwrap(), it["id"].as_u64().unwrap())).collect();
            assert_eq!(added, [("<s>", 2), ("[ENT]", 3), ("b", 1), ("a", 0), ("[PAD]", 4), ("<x>", 5)]);
        }
        let settings = json!({ "added_tokens_decoder": { "7": { "content": "c", "special": false } } });
        assert_eq!(beside(folder.path(), &settings).unwrap(), [json!({ "id": 7, "content": "c", "special": false })]);
    }

    /// The tokens are those of transformers 5.24, except for the id 9: transformers numbers the token 4, and the model
    /// was made with 9.
    #[test]
    fn added_tokens_are_changed_as_by_transformers() {
        let folder = tempfile::tempdir().unwrap();
        let mut tokenizer = json!({
            "added_tokens": [
                { "id": 3, "content": "<s>", "lstrip": false, "special": true }, { "id": 7, "content": "a" },
                { "id": 8, "content": "<s>" }, { "id": 9, "content": "<x>" },
            ],
            "model": { "vocab": { "a": 0, "b": 1, "c": 2 } },
        });
        let settings = json!({
            "added_tokens_decoder": { "3": { "content": "<s>", "lstrip": true, "special": true } },
            "pad_token": { "content": "[PAD]", "rstrip": true }, "model_specific_special_tokens": { "x_token": "<y>" },
        });
        let mut notes = Vec::new();
        complete(&mut tokenizer, folder.path(), &settings, &mut notes).unwrap();
        let added = list(&tokenizer["added_tokens"]);
        let added: Vec<_> = added.map(|it| json!([it["content"], it["id"], it["lstrip"], it["rstrip"]])).collect();
        let want = json!([
            ["<s>", 3, true, null],
            ["a", 0, null, null],
            ["<x>", 9, null, null],
            ["[PAD]", 10, null, true],
            ["<y>", 11, null, null],
        ]);
        assert_eq!(Value::from(added), want);
        assert!(matches!(&notes[..], [note] if note.contains("id 9") && note.contains("and 4 in")), "{notes:?}");
    }

    #[test]
    fn a_special_token_with_several_ids_is_several_tokens() {
        let mut tokenizer = json!({
            "added_tokens": [{ "id": 3, "content": "<s>" }], "model": { "vocab": { "a": 0, "b": 1, "c": 2 } },
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{ "SpecialToken": { "id": "X", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
                "special_tokens": { "X": { "id": "X", "ids": [3, 1], "tokens": ["<s>", "b"] } },
            },
        });
        spell_out(&mut tokenizer);
        let template = &tokenizer["post_processor"];
        let names: Vec<&Value> = list(&template["single"]).map(|piece| &piece["SpecialToken"]["id"]).collect();
        assert_eq!(names, [&json!("<s>"), &json!("b"), &Value::Null]);
        assert_eq!(template["special_tokens"]["b"]["ids"], json!([1]));
    }
}
