//! Finds the tokens that begin and end a text, and other special tokens, by the rules of llama.cpp's converter.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::parts::part;
use super::support::{is_byte_level, missing_bytes, splits_words};
use super::wanted::Wanted;
use arenite_gguf_writer::Header;

/// For each special token: its name in `tokenizer_config.json`, and its name in GGUF keys.
const NAMES: [(&str, &str); 8] = [
    ("bos", "bos"),
    ("eos", "eos"),
    ("unk", "unknown"),
    ("sep", "seperator"),
    ("pad", "padding"),
    ("mask", "mask"),
    ("eot", "eot"),
    ("eom", "eom"),
];

/// Returns `tokenizer_config.json`, or null. As in transformers, `special_tokens_map.json` adds the tokens that
/// `tokenizer_config.json` does not name. If `tokenizer_config.json` has no `added_tokens_decoder`, as in folders of
/// older versions, `special_tokens_map.json` takes precedence.
pub fn config(folder: &Path) -> Result<Value> {
    let mut settings = optional_json(&folder.join("tokenizer_config.json"))?;
    let map = optional_json(&folder.join("special_tokens_map.json"))?;
    let wins = settings["added_tokens_decoder"].is_null();
    let is_special = |name: &str| name.ends_with("_token") || name == "additional_special_tokens";
    for (name, token) in map.as_object().into_iter().flatten().filter(|(name, _)| is_special(name)) {
        if matches!(settings, Value::Object(_) | Value::Null) && !token.is_null() && (wins || settings[name].is_null())
        {
            settings[name] = token.clone();
        }
    }
    Ok(settings)
}

/// Reads a JSON file that may be missing; returns null if it is missing. A file that exists but cannot be read, or is
/// not JSON, is an error, because ignoring it would give a different model.
pub fn optional_json(path: &Path) -> Result<Value> {
    if !path.exists() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&arenite_files::read(path)?).with_context(|| format!("{} is not JSON", path.display()))
}

/// Returns the chat templates with their names; the default template has an empty name. As in transformers, separate
/// template files replace the template in the settings.
pub fn chat_templates(folder: &Path, settings: &Value) -> Result<Vec<(String, String)>> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let default = |text: &str| vec![(String::new(), text.to_owned())];
    let path = folder.join("chat_template.jinja");
    if path.is_file() {
        let mut templates = default(&read(&path)?);
        let more = match fs::read_dir(folder.join("additional_chat_templates")) {
            Ok(more) => more.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let mut more = more.context("cannot read additional_chat_templates")?;
        more.sort();
        for path in more.iter().filter(|path| path.extension().is_some_and(|kind| kind == "jinja")) {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            templates.push((key_name(name), read(path)?));
        }
        return Ok(templates);
    }
    let named = |name: &str, text: &Value| {
        let name = if name == "default" { "" } else { name };
        Some((key_name(name), text.as_str()?.to_owned()))
    };
    let all = |template: &Value| match template {
        Value::String(text) => default(text),
        Value::Array(list) => list
            .iter()
            .filter_map(|template| named(template["name"].as_str().unwrap_or_default(), &template["template"]))
            .collect(),
        Value::Object(map) => map.iter().filter_map(|(name, text)| named(name, text)).collect(),
        _ => Vec::new(),
    };
    match &settings["chat_template"] {
        Value::Null => Ok(all(&optional_json(&folder.join("chat_template.json"))?["chat_template"])),
        template => Ok(all(template)),
    }
}

/// Sets `bos_token` in templates if transformers uses another value than `start`, the vocabulary's start token, which
/// programs that read GGUF files would use: an empty text if the settings name no start token, otherwise the named token.
pub fn with_start(templates: Vec<(String, String)>, settings: &Value, start: Option<&str>) -> Vec<(String, String)> {
    // In these tokenizer classes there is no start token unless the settings name one. All other classes have a start
    // token by default.
    let class = settings["tokenizer_class"].as_str().map(|class| class.strip_suffix("Fast").unwrap_or(class));
    let is_plain = matches!(class, None | Some("PreTrainedTokenizer" | "TokenizersBackend" | "Qwen2Tokenizer"));
    let value = match settings.get("bos_token") {
        Some(Value::Null) => Some(""),
        Some(token) => {
            token.as_str().or(token["content"].as_str()).filter(|named| start.is_some_and(|it| it != *named))
        }
        None => (settings.is_object() && is_plain).then_some(""),
    };
    let set = |(name, text): (String, String)| match value {
        Some("") if text.contains("bos_token") => (name, format!("{{%- set bos_token = '' %}}{text}")),
        Some(value) if text.contains("bos_token") => {
            (name, format!("{{%- set bos_token = {} %}}{text}", Value::from(value)))
        }
        _ => (name, text),
    };
    templates.into_iter().map(set).collect()
}

/// Returns a template's name as llama.cpp spells it in a key.
fn key_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Returns all ids that end an answer. They come from `generation_config.json`, or from `config.json` if the former has
/// none. transformers stops at each of these ids.
pub fn ends(folder: &Path, config: &Value, rows: usize) -> Result<Vec<u32>> {
    let generation = optional_json(&folder.join("generation_config.json"))?;
    let found = [&generation["eos_token_id"], &config["eos_token_id"]].into_iter().find(|ids| !ids.is_null());
    // Some programs write all numbers with a decimal point.
    let id = |id: &Value| {
        id.as_u64().or_else(|| id.as_f64().filter(|id| id.fract() == 0.0 && *id >= 0.0).map(|id| id as u64))
    };
    let ids: Vec<u64> = match found {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(one) => id(one).into_iter().collect(),
        None => Vec::new(),
    };
    Ok(ids.into_iter().filter(|id| *id < rows as u64).map(|id| id as u32).collect())
}

/// Special tokens of a vocabulary.
#[derive(Default)]
pub struct Special {
    ids: Vec<(&'static str, u32)>,
    adds: Vec<(&'static str, bool)>,
    /// Number of special tokens between the texts of a pair, if it differs from the number that readers assume.
    between: Option<u32>,
    /// True if the second text of a pair has the token type 0.
    is_untyped: bool,
    /// Messages about ids that are left out.
    notes: Vec<String>,
}

/// Texts of the tokens, updated by each rule.
struct Texts {
    by_name: HashMap<&'static str, String>,
    adds: Vec<(&'static str, bool)>,
    /// True if the start token that the settings name replaces the post-processor's first token.
    begins_as_named: bool,
}

impl Texts {
    fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(String::as_str)
    }

    /// A classifier's vocabulary may have no start token or end token, but tokens named `cls` and `sep`. Then uses
    /// `cls` as the start token and `sep` as the end token.
    fn stand_in(&mut self) {
        for (name, other) in [("bos", "cls"), ("eos", "sep")] {
            if let (None, Some(text)) = (self.get(name), self.get(other)) {
                let text = text.to_owned();
                self.by_name.insert(name, text);
            }
        }
    }

    /// Takes the first token of the post-processor as the start token.
    fn begin(&mut self, first: &str) {
        if !self.begins_as_named || self.get("bos").is_none() {
            self.by_name.insert("bos", first.to_owned());
        }
    }

    fn add(&mut self, name: &'static str, adds: bool, over: bool) {
        match self.adds.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) if over => *known = adds,
            Some(_) => {}
            None => self.adds.push((name, adds)),
        }
    }
}

impl Special {
    /// Applies the rules to a `tokenizer.json` (if there is one), to the settings, and to the model's config.
    pub fn of(json: Option<&Value>, settings: &Value, wanted: &Wanted<'_>, ids: &HashMap<String, u32>) -> Self {
        let mut texts = Texts { by_name: HashMap::new(), adds: Vec::new(), begins_as_named: false };
        for name in ["bos", "eos", "unk", "sep", "pad", "mask", "cls"] {
            let entry = &settings[format!("{name}_token")];
            if let Some(text) = entry.as_str().or_else(|| entry["content"].as_str()) {
                texts.by_name.insert(name, text.to_owned());
            }
        }
        if let Some(json) = json {
            texts.stand_in();
            texts.begins_as_named = builds_processor(json, settings, wanted.config);
            let processor = &json["post_processor"];
            match processor["processors"].as_array() {
                Some(all) => all.iter().for_each(|processor| self::processor(processor, &mut texts)),
                None => self::processor(processor, &mut texts),
            }
            // Looks for the stand-ins again, because the post-processor may have named tokens that the settings do not
            // name.
            texts.stand_in();
            if drops_unknown(json) {
                texts.by_name.remove("unk");
            }
        }
        let mut special = Self::default();
        let added = |text: &str| match json {
            Some(json) => {
                let tokens = json["added_tokens"].as_array().into_iter().flatten();
                let id = tokens.filter(|token| token["content"] == text).find_map(|token| token["id"].as_u64());
                id.and_then(|id| u32::try_from(id).ok())
            }
            None => ids.get(text).copied(),
        };
        for (name, key) in NAMES {
            if let Some((adds, over)) = stated_adds(name, json, settings, wanted.config) {
                texts.add(name, adds, over);
            }
            let id = texts.get(name).and_then(added).filter(|id| (*id as usize) < wanted.rows);
            let field = format!("{name}_token_id");
            match (id, wanted.config[&field].as_u64()) {
                (Some(id), _) => special.ids.push((key, id)),
                (None, Some(id)) if id < wanted.rows as u64 => special.ids.push((key, id as u32)),
                // An id outside of the vocabulary is only noted, because many config classes have a default id for a
                // larger vocabulary.
                (None, Some(id)) => special.notes.push(format!(
                    "{field} in config.json is {id}, but the model has {} tokens: it is left out",
                    wanted.rows
                )),
                (None, None) => {}
            }
        }
        if json.is_some_and(|json| adds_no_others(json, settings)) {
            for name in ["bos", "eos"] {
                texts.add(name, false, false);
            }
        }
        let has_none =
            |name: &str| texts.get(name).is_none() && settings.get(format!("{name}_token")).is_some_and(Value::is_null);
        let is_known = |name: &str| special.ids.iter().any(|(known, _)| *known == name) && !has_none(name);
        // If a flag says that a token is added to texts, but this token has no id, the flag is written as false.
        // Otherwise readers would add their default id, which is some other token here.
        let adds = texts
            .adds
            .iter()
            .map(|(name, adds)| (*name, *adds && (json.is_none() || *name == "sep" || is_known(name))));
        special.adds = adds.collect();
        if let Some(json) = json {
            let is_roberta = is_byte_level(json) && wanted.architecture == "bert";
            let usual = if is_roberta || json["model"]["type"] == "Unigram" { 2 } else { 1 };
            special.between = between(&json["post_processor"]).filter(|count| *count != usual && *count > 0);
        }
        let types = wanted.config["type_vocab_size"].as_u64().unwrap_or(1);
        let processor = json.map_or(&Value::Null, |json| &json["post_processor"]);
        special.is_untyped = wanted.rules.token_types && types > 1 && !is_typed(processor, settings);
        special
    }

    /// Writes the keys. Returns messages.
    pub fn write(self, header: &mut Header) -> Vec<String> {
        for (name, id) in &self.ids {
            header.set(&format!("tokenizer.ggml.{name}_token_id"), *id);
        }
        for (name, adds) in &self.adds {
            header.set(&format!("tokenizer.ggml.add_{name}_token"), *adds);
        }
        if let Some(count) = self.between {
            header.set("tokenizer.ggml.pair_separators", count);
        }
        if self.is_untyped {
            header.set("tokenizer.ggml.pair_token_type", 0u32);
        }
        self.notes
    }
}

/// Returns two flags: whether the settings add a token to texts, and whether they replace the post-processor of the
/// `tokenizer.json`. The settings replace the post-processor for classes that build it themselves; these classes add
/// the start token by default. For all other classes, the settings have no effect.
fn stated_adds(name: &str, json: Option<&Value>, settings: &Value, config: &Value) -> Option<(bool, bool)> {
    let stated = settings[format!("add_{name}_token")].as_bool().filter(|_| matches!(name, "bos" | "eos" | "sep"));
    let Some(json) = json else { return Some((stated?, true)) };
    if !builds_processor(json, settings, config) {
        return (stated == Some(false)).then_some((false, false));
    }
    let default = match name {
        _ if is_new(config) => None,
        "bos" => Some(true),
        "eos" => Some(false),
        _ => None,
    };
    Some((stated.or(default)?, true))
}

/// Returns true if the model was saved by transformers 5.
fn is_new(config: &Value) -> bool {
    config["transformers_version"].as_str().is_some_and(|version| version.starts_with("5."))
}

/// Returns true if the tokenizer has a class that builds the post-processor from its settings, not from the
/// `tokenizer.json`. The models of Llama and DeepSeek use such classes. transformers 5 keeps a post-processor that the
/// file has.
fn builds_processor(json: &Value, settings: &Value, config: &Value) -> bool {
    let class = settings["tokenizer_class"].as_str().unwrap_or_default();
    let class = class.strip_suffix("Fast").unwrap_or(class);
    let kinds = ["TemplateProcessing", "RobertaProcessing", "BertProcessing"];
    let is_explicit = kinds.iter().any(|kind| part(&json["post_processor"], kind).is_some());
    matches!(class, "LlamaTokenizer" | "CodeLlamaTokenizer" | "GemmaTokenizer" | "CohereTokenizer")
        && !(is_new(config) && is_explicit)
}

/// Returns true if the special tokens that the post-processor lists are all that a text gets. This is the case if the
/// post-processor has a template, or if the settings do not name a class with a rule of its own. Returns false for
/// byte-level vocabularies, whose texts get no special tokens by default.
pub fn adds_no_others(json: &Value, settings: &Value) -> bool {
    let class = settings["tokenizer_class"].as_str();
    let is_plain = matches!(class, None | Some("PreTrainedTokenizerFast" | "TokenizersBackend"));
    let processor = &json["post_processor"];
    let is_explicit = part(processor, "TemplateProcessing").is_some() || processor.is_null() && is_plain;
    is_explicit && !is_byte_level(json)
}

/// Returns true if the tokenizer drops a character or byte for which it has no token, although the settings name an
/// unknown token.
fn drops_unknown(json: &Value) -> bool {
    (splits_words(json) || is_byte_level(json) && missing_bytes(json) > 0)
        && json["model"]["type"] == "BPE"
        && json["model"]["unk_token"].is_null()
}

/// Returns the number of special tokens that a post-processor puts between the texts of a pair.
fn between(processor: &Value) -> Option<u32> {
    if part(processor, "RobertaProcessing").is_some() {
        return Some(2);
    }
    if part(processor, "BertProcessing").is_some() {
        return Some(1);
    }
    let pair = part(processor, "TemplateProcessing")?["pair"].as_array()?;
    let at = |name: &str| pair.iter().position(|piece| piece["Sequence"]["id"] == name);
    u32::try_from(at("B")?.checked_sub(at("A")? + 1)?).ok()
}

/// Returns true if the second text of a pair has the token type 1, and false if it has the type 0 or if the tokenizer
/// returns no token types.
fn is_typed(processor: &Value, settings: &Value) -> bool {
    /// The tokenizers of these classes return no token types by default, as of transformers 5.
    const UNTYPED: [&str; 6] = ["TokenizersBackend", "Roberta", "XLMRoberta", "Camembert", "DistilBert", "MPNet"];
    let class = settings["tokenizer_class"].as_str().unwrap_or("");
    let class = class.trim_end_matches("Fast").trim_end_matches("Tokenizer");
    let returns_types = match settings["model_input_names"].as_array() {
        Some(names) => names.iter().any(|name| name == "token_type_ids"),
        None => !UNTYPED.contains(&class),
    };
    let template = part(processor, "TemplateProcessing").and_then(|template| template["pair"].as_array());
    let second = template.into_iter().flatten().find(|piece| piece["Sequence"]["id"] == "B");
    let is_first = |piece: &Value| piece["Sequence"]["type_id"] == 0;
    returns_types && !second.is_some_and(is_first) && part(processor, "RobertaProcessing").is_none()
}

/// Reads the special tokens that a post-processor adds to a text.
fn processor(processor: &Value, texts: &mut Texts) {
    match processor["type"].as_str() {
        Some("ByteLevel") => {
            texts.add("bos", false, false);
            texts.add("eos", false, false);
        }
        Some("RobertaProcessing" | "BertProcessing") => {
            for name in ["bos", "eos", "sep"] {
                texts.add(name, true, true);
            }
            if let Some(first) = processor["cls"][0].as_str() {
                texts.begin(first);
            }
            if let Some(last) = processor["sep"][0].as_str() {
                texts.by_name.insert("eos", last.to_owned());
                texts.by_name.entry("sep").or_insert_with(|| last.to_owned());
            }
        }
        Some("TemplateProcessing") => template(processor, texts),
        _ => {}
    }
}

fn template(processor: &Value, texts: &mut Texts) {
    let list = |name: &str| processor[name].as_array().cloned().unwrap_or_default();
    let (single, pair) = (list("single"), list("pair"));
    let token = |value: Option<&Value>| value.and_then(|value| value["SpecialToken"]["id"].as_str()).map(str::to_owned);
    let (mut first, mut last) = (None, None);
    if single.len() > 1 {
        first = token(single.first());
        last = token(single.last());
        if let Some(first) = &first {
            texts.begin(first);
            texts.add("bos", texts.get("bos") == Some(first), true);
        }
        if let Some(last) = &last {
            if texts.get("eos") != Some(last) {
                if let Some(old) = texts.get("eos") {
                    let old = old.to_owned();
                    let name = if texts.get("eot").is_none() { "eot" } else { "eom" };
                    texts.by_name.insert(name, old);
                }
                texts.by_name.insert("eos", last.clone());
            }
            texts.add("eos", true, true);
        }
    }
    // Between the two texts of a pair, the template may have a separator besides the end token: `A [sep] [eos] B`.
    let begin = usize::from(first.is_some() && token(pair.first()) == first);
    let end = pair.len() - usize::from(last.is_some() && token(pair.last()) == last).min(pair.len());
    let middle = pair.get(begin..end).unwrap_or_default();
    if let [a, between @ .., b] = middle
        && !between.is_empty()
        && a["Sequence"]["id"] == "A"
        && b["Sequence"]["id"] == "B"
    {
        let ends = |value: &Value| {
            let text = token(Some(value));
            text.is_some() && (text.as_deref() == texts.get("sep") || text.as_deref() == texts.get("eos"))
        };
        let adds = ends(&between[0]) && last.is_none() || between.len() == 2 && ends(&between[1]);
        texts.add("sep", adds, true);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The field of chat templates may be a dict of templates or, in other files, a list. transformers converts a list
    /// to a dict.
    #[test]
    fn several_templates_are_a_list_or_a_dict() {
        let folder = tempfile::tempdir().unwrap();
        let read = |template: Value| {
            let mut all = chat_templates(folder.path(), &json!({ "chat_template": template })).unwrap();
            all.sort();
            all
        };
        let want = [(String::new(), "a".to_owned()), ("tool_use".to_owned(), "b".to_owned())];
        let list = json!([{ "name": "default", "template": "a" }, { "name": "tool_use", "template": "b" }]);
        for several in [list, json!({ "default": "a", "tool_use": "b" })] {
            assert_eq!(read(several.clone()), want);
            fs::write(folder.path().join("chat_template.json"), json!({ "chat_template": several }).to_string())
                .unwrap();
            assert_eq!(read(Value::Null), want);
        }
        assert_eq!(read("c".into()), [(String::new(), "c".to_owned())]);
    }

    /// Returns the special tokens of a vocabulary with four tokens.
    fn of_four_tokens(json: &Value, settings: &Value, config: &Value) -> Special {
        let wanted = Wanted {
            directory: Path::new("."),
            architecture: "llama",
            config,
            rows: 4,
            rules: &crate::tokenizer_file::VocabularyRules::PLAIN,
        };
        Special::of(Some(json), settings, &wanted, &HashMap::new())
    }

    /// transformers 5.24 adds no token to a text if the settings do not name the token, or if the vocabulary does not
    /// have it.
    #[test]
    fn tokens_without_an_id_are_not_added() {
        let adds = |json: Value, settings: Value, config: Value| {
            let special = of_four_tokens(&json, &settings, &config);
            let adds = |name| special.adds.iter().find(|(known, _)| *known == name).map(|(_, adds)| *adds);
            (adds("bos"), adds("eos"))
        };
        let bytes = json!({ "decoder": { "type": "ByteLevel" }, "added_tokens": [{ "id": 3, "content": "<e>" }] });
        let llama = json!({ "tokenizer_class": "LlamaTokenizerFast", "add_bos_token": true, "eos_token": "<e>" });
        assert_eq!(adds(bytes.clone(), llama.clone(), Value::Null), (Some(false), Some(false)));
        let mut named = llama.clone();
        named["bos_token"] = "<e>".into();
        assert_eq!(adds(bytes.clone(), named, Value::Null), (Some(true), Some(false)));
        // The class adds the token by default, unless the settings say that the model has no such token.
        assert_eq!(adds(bytes.clone(), llama.clone(), json!({ "bos_token_id": 1 })), (Some(true), Some(false)));
        let mut none = llama;
        none["bos_token"] = Value::Null;
        assert_eq!(adds(bytes.clone(), none, json!({ "bos_token_id": 1 })), (Some(false), Some(false)));
        let mut around = bytes;
        around["post_processor"] = json!({ "type": "BertProcessing", "sep": ["<e>", 3], "cls": ["<x>", 9] });
        assert_eq!(adds(around, json!({ "bos_token": null }), Value::Null), (Some(false), Some(true)));
    }

    /// The first token of the post-processor begins texts, whatever the settings name as start token, unless a class of
    /// transformers 4 builds the post-processor.
    #[test]
    fn the_post_processor_has_the_first_token() {
        let piece = |text: &str| json!({ "SpecialToken": { "id": text, "type_id": 0 } });
        let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
        let template =
            json!({ "type": "TemplateProcessing", "single": [piece("[C]"), text, piece("[S]")], "pair": [] });
        let bert = json!({ "type": "BertProcessing", "sep": ["[S]", 3], "cls": ["[C]", 2] });
        let token = |id: u32, text: &str| json!({ "id": id, "content": text });
        let added = json!([token(0, "<s>"), token(1, "</s>"), token(2, "[C]"), token(3, "[S]")]);
        let named = json!({ "bos_token": "<s>", "eos_token": "</s>", "cls_token": "[C]", "sep_token": "[S]" });
        let mut llama = named.clone();
        llama["tokenizer_class"] = "LlamaTokenizer".into();
        for (processor, settings, want) in [
            (&template, &named, (2, 3)),
            (&bert, &named, (2, 3)),
            (&template, &json!({ "bos_token": "<s>", "cls_token": "</s>" }), (2, 3)),
            (&template, &json!({}), (2, 3)),
            (&template, &llama, (0, 3)),
        ] {
            let json = json!({ "added_tokens": added, "post_processor": processor, "model": { "type": "WordPiece" } });
            let special = of_four_tokens(&json, settings, &Value::Null);
            let id = |name: &str| special.ids.iter().find(|(known, _)| *known == name).unwrap().1;
            assert_eq!((id("bos"), id("eos")), want, "{processor} {settings}");
            assert!(special.adds.contains(&("bos", true)), "{processor} {settings}");
        }
    }

    /// The token types that transformers 5.24 returns for pairs of texts.
    #[test]
    fn the_second_text_has_the_type_of_the_tokenizer() {
        let template = |kind: u32| {
            let text = |id: &str, kind: u32| json!({ "Sequence": { "id": id, "type_id": kind } });
            json!({ "type": "TemplateProcessing", "pair": [text("A", 0), text("B", kind)] })
        };
        let bert = json!({ "tokenizer_class": "BertTokenizer" });
        for (processor, settings, want) in [
            (template(1), bert.clone(), true),
            (template(0), bert.clone(), false),
            (json!({ "type": "BertProcessing" }), bert.clone(), true),
            (json!({ "type": "RobertaProcessing" }), bert, false),
            (template(1), json!({ "tokenizer_class": "TokenizersBackend" }), false),
            (template(1), json!({ "tokenizer_class": "XLMRobertaTokenizerFast" }), false),
            (template(1), json!({ "tokenizer_class": "A", "model_input_names": ["token_type_ids"] }), true),
            (template(1), json!({ "model_input_names": ["input_ids", "attention_mask"] }), false),
        ] {
            assert_eq!(is_typed(&processor, &settings), want, "{processor} {settings}");
        }
    }

    /// The flag of a case is true if transformers 5.24 renders the template with an empty `bos_token` for these
    /// settings.
    #[test]
    fn templates_have_no_start_token_if_the_tokenizer_has_none() {
        let template =
            |settings: &Value, text: &str| with_start(vec![(String::new(), text.to_owned())], settings, Some("<s>"));
        for (settings, is_empty) in [
            (json!({ "bos_token": null }), true),
            (json!({ "bos_token": null, "tokenizer_class": "LlamaTokenizer" }), true),
            (json!({ "tokenizer_class": "PreTrainedTokenizerFast" }), true),
            (json!({ "tokenizer_class": "LlamaTokenizerFast" }), false),
            (json!({ "bos_token": "<s>" }), false),
            (json!({ "bos_token": { "content": "<s>" } }), false),
            (Value::Null, false),
        ] {
            let text = &template(&settings, "{{ bos_token }}a")[0].1;
            assert_eq!(text.starts_with("{%- set bos_token = '' %}"), is_empty, "{settings}");
            assert!(text.ends_with("{{ bos_token }}a"));
            assert_eq!(template(&settings, "a")[0].1, "a");
        }
        let other = template(&json!({ "bos_token": "<b>" }), "{{ bos_token }}a");
        assert_eq!(other[0].1, "{%- set bos_token = \"<b>\" %}{{ bos_token }}a");
    }
}
