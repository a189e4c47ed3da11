//! Reads the vocabulary in a model's folder, and writes the same metadata as llama.cpp's converter.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::parts::list;
use super::special::{self, Special};
use super::wanted::Wanted;
use super::{
    CONTROL, Token, UNKNOWN, USER_DEFINED, Vocabulary, added, characters, files, json, plamo2, sentencepiece, slow,
    support, tiktoken, world, write_templates,
};
use crate::llama2c;
use arenite_gguf_writer::{Header, Meta};

/// Files with a vocabulary, in order of preference.
const FILES: [&str; 12] = [
    "rwkv_vocab_v20230424.txt",
    "tokenizer.jsonl",
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.txt",
    "tokenizer.bin",
    "tekken.json",
    "vocab.json",
    "tiktoken.model",
    "qwen.tiktoken",
];

/// Writes the vocabulary. Returns messages.
pub fn write(wanted: &Wanted<'_>, header: &mut Header) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let path = find(wanted, &mut notes)?;
    let name = || format!("the tokenizer {}", path.display());
    let file = arenite_files::read(&path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    notes.extend(read(wanted, &path, folder, &file, header).with_context(name)?);
    Ok(notes)
}

/// Returns whether a folder has a vocabulary.
pub fn has(directory: &Path) -> bool {
    FILES.iter().any(|name| directory.join(name).is_file())
}

/// Returns the file with the vocabulary.
fn find(wanted: &Wanted<'_>, notes: &mut Vec<String>) -> Result<PathBuf> {
    let directory = wanted.directory;
    if directory.is_file() {
        return Ok(directory.to_owned());
    }
    let found: Vec<PathBuf> = FILES.iter().map(|name| directory.join(name)).filter(|path| path.is_file()).collect();
    let [first, others @ ..] = &found[..] else {
        bail!("there is no tokenizer in {}: none of {}", directory.display(), FILES.join(", "))
    };
    let model = others.first().filter(|path| path.extension().is_some_and(|kind| kind == "model"));
    // Gemma 4 needs tokenizer.json, because no other file has its merges.
    let Some(model) = model.filter(|_| first.ends_with("tokenizer.json") && wanted.architecture != "gemma4") else {
        return Ok(first.clone());
    };
    let json = special::optional_json(first)?;
    if support::is_byte_level(&json) || json["model"]["type"] != "BPE" {
        return Ok(first.clone());
    }
    // Prefer SentencePiece's own file, because it has scores, which a tokenizer.json of the same vocabulary lacks.
    if fs::read(model).is_ok_and(|file| is_same(&json, &file)) {
        return Ok(model.clone());
    }
    let name = model.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    notes.push(format!("{name} has another vocabulary than tokenizer.json: it is ignored, as by transformers"));
    Ok(first.clone())
}

/// Returns true if a `tokenizer.json` and a SentencePiece file have the same tokens, apart from added tokens.
fn is_same(json: &Value, model: &[u8]) -> bool {
    let Ok(model) = sentencepiece::read(model) else { return false };
    let added: Vec<_> = list(&json["added_tokens"]).filter_map(|token| token["content"].as_str()).collect();
    let Some(vocabulary) = json["model"]["vocab"].as_object() else { return false };
    vocabulary.iter().all(|(text, id)| {
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
        let piece = id.and_then(|id| model.tokens.get(&id));
        added.contains(&text.as_str()) || piece.is_some_and(|piece| piece.text == *text)
    })
}

fn read(wanted: &Wanted<'_>, path: &Path, folder: &Path, file: &[u8], header: &mut Header) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    // The unknown token of a SentencePiece file is looked up before `added` is applied, because this can change the
    // token's type.
    let mut unknown = None;
    let settings = special::config(folder)?;
    let json = as_json(wanted, path, folder, file, &settings, &mut notes)?;
    let mut vocabulary = match (&json, file) {
        (_, [_, _, 0, 0, ..]) => {
            llama2c::vocabulary::read(file, wanted.rows)?.keys(header);
            return Ok(notes);
        }
        (Some(json), _) => {
            let model = json::Model { architecture: wanted.architecture, pre: None };
            let vocabulary = json::read(&model, json, &mut notes)?;
            let special = Special::of(Some(json), &settings, wanted, &vocabulary.ids());
            notes.extend(special.write(header));
            vocabulary
        }
        _ if world::is(file) => world::read(file)?,
        _ if plamo2::is(file) => {
            let vocabulary = plamo2::read(file, wanted.rows)?;
            notes.extend(Special::of(None, &settings, wanted, &vocabulary.ids()).write(header));
            vocabulary
        }
        _ if characters::is(file) => characters::read(file)?,
        _ => {
            let mut vocabulary = sentencepiece::read(file)?;
            unknown = vocabulary.unknown();
            added_pieces(&mut vocabulary, folder, &settings, wanted)?;
            let special = Special::of(None, &settings, wanted, &vocabulary.ids());
            notes.extend(special.write(header));
            // As in llama.cpp, the settings take precedence, and default values are not written.
            let is_spm = vocabulary.keys.contains(&("model", Meta::from("llama")));
            if settings["add_prefix_space"] == false {
                vocabulary.keys.retain(|(key, _)| *key != "add_space_prefix");
                vocabulary.key("add_space_prefix", false);
            }
            // The normalization of the SentencePiece model is not written, because Hugging Face's tokenizer, which the
            // tokenizer.json beside this file describes, does not normalize.
            let is_plain = is_spm && wanted.directory.is_dir() && folder.join("tokenizer.json").is_file();
            vocabulary.keys.retain(|(key, value)| match *key {
                "add_space_prefix" if is_spm => *value == Meta::from(false),
                "remove_extra_whitespaces" => !is_spm,
                "normalizer.steps" | "precompiled_charsmap" => !is_plain,
                "bos_token_id" if is_spm => *value != Meta::from(1u32) && !header.has("tokenizer.ggml.bos_token_id"),
                "eos_token_id" if is_spm => *value != Meta::from(2u32) && !header.has("tokenizer.ggml.eos_token_id"),
                "add_bos_token" | "add_eos_token" => !header.has(&format!("tokenizer.ggml.{key}")),
                _ => !key.ends_with("_token_id"),
            });
            vocabulary
        }
    };
    // Write the key, because readers would otherwise add a start token for these pre-tokenizers.
    let adds_start = ["llama-bpe", "tekken", "chameleon"].map(|name| ("pre", Meta::from(name)));
    let adds_start = vocabulary.keys.iter().any(|key| adds_start.contains(key));
    if adds_start && !header.has("tokenizer.ggml.add_bos_token") {
        header.set("tokenizer.ggml.add_bos_token", false);
    }
    let start = header.u32("tokenizer.ggml.bos_token_id").and_then(|id| vocabulary.tokens.get(&id));
    let start = start.map(|token| token.text.clone());
    let templates = special::chat_templates(folder, &settings)?;
    vocabulary.chat_templates = special::with_start(templates, &settings, start.as_deref());
    let unknown = unknown.or(vocabulary.unknown());
    // Without the key for the end token, readers use this default token as the end token.
    let default = match &vocabulary {
        byte_level if byte_level.keys.contains(&("model", Meta::from("gpt2"))) => Some(11),
        _ if characters::is(file) => Some(2),
        _ => None,
    };
    let default = default.and_then(|id| Some((id, vocabulary.tokens.get(&id)?.text.clone())));
    notes.extend(finish(wanted, vocabulary, unknown, header)?);
    let ends = special::ends(folder, wanted.config, wanted.rows)?;
    let key = "tokenizer.ggml.eos_token_id";
    let named = header.u32(key);
    if let [first, ..] = ends[..] {
        header.set(key, named.unwrap_or(first));
        if ends.len() > 1 || named.is_some_and(|named| named != first) {
            header.set("tokenizer.ggml.eos_token_ids", Meta::array(ends));
        }
    }
    if let Some((id, text)) = default.filter(|_| !header.has("tokenizer.ggml.eos_token_id")) {
        notes.push(format!(
            "the vocabulary has no end token, and readers treat token {id} ({text:?}) as one: use --ignore-eos"
        ));
    }
    Ok(notes)
}

/// Writes the vocabulary `json`, which is stored with the weights and has the form of a `tokenizer.json`.
pub fn write_json(wanted: &Wanted<'_>, json: &Value, header: &mut Header) -> Result<()> {
    let model = json::Model { architecture: wanted.architecture, pre: None };
    let vocabulary = json::read(&model, json, &mut Vec::new())?;
    Special::of(Some(json), &Value::Null, wanted, &vocabulary.ids()).write(header);
    let unknown = vocabulary.unknown();
    finish(wanted, vocabulary, unknown, header).map(|_| ())
}

/// Writes a vocabulary to the header, by the rules of its family. If some tokens are left out, returns a message about
/// them.
fn finish(
    wanted: &Wanted<'_>,
    mut vocabulary: Vocabulary,
    unknown: Option<u32>,
    header: &mut Header,
) -> Result<Option<String>> {
    adjust(wanted, &mut vocabulary);
    // If the id of the unknown token is llama.cpp's default, its key is left out.
    let default = if vocabulary.keys.contains(&("model", Meta::from("t5"))) { 2 } else { 0 };
    if let Some(unknown) = unknown.filter(|id| *id != default)
        && !header.has("tokenizer.ggml.unknown_token_id")
    {
        header.set("tokenizer.ggml.unknown_token_id", unknown);
    }
    let rows = wanted.rows.next_multiple_of(wanted.rules.multiple.max(1));
    let rows = if rows > wanted.rows { wanted.rows } else { rows };
    for (name, value) in wanted.rules.defaults {
        let key = format!("tokenizer.ggml.{name}");
        if !header.has(&key) {
            header.set(&key, *value);
        }
    }
    if wanted.rules.token_types {
        let types = wanted.config["type_vocab_size"].as_u64().unwrap_or(1);
        header.set("tokenizer.ggml.token_type_count", types as u32);
    }
    let left_out = vocabulary.leave_out(rows);
    vocabulary.write_as_llama(rows, header)?;
    for (name, value) in wanted.rules.ids {
        if (*value as usize) < rows {
            header.set(&format!("tokenizer.ggml.{name}"), *value);
        }
    }
    if wanted.rules.end_of_document
        && let Some(id) = wanted.config["eod_token_id"].as_u64()
    {
        header.set("tokenizer.ggml.eos_token_id", id as u32);
    }
    for (name, value) in wanted.rules.adds {
        header.set(&format!("tokenizer.ggml.{name}"), *value);
    }
    // A tokenizer.json says whether a space is added.
    let key = "tokenizer.ggml.add_space_prefix";
    if let Some(space) = wanted.rules.space_prefix.filter(|_| !header.has(key)) {
        header.set(key, space);
    }
    Ok(left_out)
}

/// Applies the family's rules to the tokens.
fn adjust(wanted: &Wanted<'_>, vocabulary: &mut Vocabulary) {
    for token in vocabulary.tokens.values_mut() {
        if wanted.rules.shown.contains(&token.text.as_str()) {
            token.kind = USER_DEFINED;
        }
    }
}

/// Adds the added tokens of a SentencePiece vocabulary.
fn added_pieces(vocabulary: &mut Vocabulary, folder: &Path, settings: &Value, wanted: &Wanted<'_>) -> Result<()> {
    let mut tokens = BTreeMap::new();
    let json = special::optional_json(&folder.join("added_tokens.json"))?;
    for (text, id) in json.as_object().into_iter().flatten() {
        tokens.insert(id.as_u64().unwrap_or(u64::MAX), (text.clone(), USER_DEFINED));
    }
    for (id, token) in settings["added_tokens_decoder"].as_object().into_iter().flatten() {
        let (Ok(id), Some(text)) = (id.parse(), token["content"].as_str()) else { continue };
        let control = token["special"] == true || support::looks_special(text);
        let text = if control { text.to_owned() } else { text.replace('▁', " ") };
        tokens.insert(id, (text, if control { CONTROL } else { USER_DEFINED }));
    }
    // transformers reads tokenizer.json alone if it exists.
    if wanted.directory.is_dir()
        && let Ok(file) = fs::read(folder.join("tokenizer.json"))
    {
        let json: Value = serde_json::from_slice(&file).context("tokenizer.json is not JSON")?;
        tokens.clear();
        for token in list(&json["added_tokens"]) {
            let (Some(id), Some(text)) = (token["id"].as_u64(), token["content"].as_str()) else { continue };
            let control = token["special"] == true || support::looks_special(text);
            let text = if control { text.to_owned() } else { text.replace('▁', " ") };
            tokens.insert(id, (text, if control { CONTROL } else { USER_DEFINED }));
        }
        json::rules(&json, vocabulary);
        vocabulary.keys.retain(|(key, _)| !key.starts_with("add_space_prefix"));
        json::space_prefix(&json, vocabulary);
    }
    for (id, text) in sentinels(vocabulary, settings, wanted) {
        tokens.entry(id).or_insert((text, CONTROL));
    }
    for (id, (text, kind)) in tokens {
        let at = u32::try_from(id).ok().filter(|id| (*id as usize) < wanted.rows);
        let Some(at) = at else { continue };
        vocabulary.tokens.insert(at, Token { text, score: -1000.0, kind });
    }
    Ok(())
}

/// Returns T5's tokens `<extra_id_N>`, which its class adds in descending order after the tokens of SentencePiece.
/// Returns no tokens if the vocabulary already has them.
fn sentinels(vocabulary: &Vocabulary, settings: &Value, wanted: &Wanted<'_>) -> Vec<(u64, String)> {
    let is_t5 = matches!(settings["tokenizer_class"].as_str(), Some("T5Tokenizer" | "T5TokenizerFast"));
    let has = vocabulary.tokens.values().any(|token| token.text == "<extra_id_0>");
    let count = settings["extra_ids"].as_u64().unwrap_or(100).min(wanted.rows as u64);
    if !is_t5 || has {
        return Vec::new();
    }
    let first = vocabulary.tokens.last_key_value().map_or(0, |(last, _)| u64::from(*last) + 1);
    (0..count).map(|number| (first + count - 1 - number, format!("<extra_id_{number}>"))).collect()
}

/// Returns the vocabulary in the form of a `tokenizer.json`, completed from the other files of the folder; `None` for
/// files that other functions read.
fn as_json(
    wanted: &Wanted<'_>,
    path: &Path,
    folder: &Path,
    file: &[u8],
    settings: &Value,
    notes: &mut Vec<String>,
) -> Result<Option<Value>> {
    let mut json = match () {
        // llama2.c's.
        () if matches!(file, [_, _, 0, 0, ..]) => return Ok(None),
        () if file.trim_ascii_start().starts_with(b"{") => files::parse(path, file)?,
        () if world::is(file) => return Ok(None),
        () if tiktoken::is(path) => return tiktoken::read(path, file, settings).map(Some),
        () if path.extension().is_some_and(|kind| kind == "txt") => {
            return slow::words(file, folder, settings).map(Some);
        }
        () if path.ends_with("sentencepiece.bpe.model") => {
            return slow::fairseq(file, folder, settings, wanted.config).map(Some);
        }
        () => return Ok(None),
    };
    if path.ends_with("tokenizer.json") {
        if settings["split_special_tokens"] == true {
            notes.push(
                "tokenizer_config.json has split_special_tokens: Hugging Face's tokenizer splits the names of special tokens in \
                 texts, Arenite reads them as tokens where special tokens are read"
                    .to_owned(),
            );
        }
        added::complete(&mut json, folder, settings, notes)?;
        added::spell_out(&mut json);
        if let Some(adds) = settings["add_prefix_space"].as_bool() {
            prefix_as_class(&mut json, settings, adds);
        }
        normalize_as_bert(&mut json, settings, wanted.config);
    }
    Ok(Some(json))
}

/// Decides whether a `tokenizer.json` adds a space before a text. If the settings have `add_prefix_space`,
/// transformers' class follows them and not the file.
fn prefix_as_class(json: &mut Value, settings: &Value, adds: bool) {
    let class = settings["tokenizer_class"].as_str().unwrap_or_default();
    let class = class.strip_suffix("Fast").unwrap_or(class);
    let is_pieces = json["model"]["type"] == "BPE" && !support::is_byte_level(json);
    let words = &mut json["pre_tokenizer"];
    // Any class changes a pre-tokenizer that stands alone.
    if adds && words["type"] == "ByteLevel" {
        words["add_prefix_space"] = true.into();
    } else if adds && class == "Qwen2Tokenizer" {
        let bytes = words["pretokenizers"].as_array_mut().into_iter().flatten().find(|it| it["type"] == "ByteLevel");
        bytes.into_iter().for_each(|it| it["add_prefix_space"] = true.into());
    } else if is_pieces && class == "LlamaTokenizer" {
        let scheme = match adds {
            false => "never",
            true if settings["legacy"] == true => "always",
            true => "first",
        };
        if words["type"] == "Metaspace" && (!adds || words["prepend_scheme"] == "never") {
            words["prepend_scheme"] = scheme.into();
        }
        if !adds && let Some(normalizers) = json["normalizer"]["normalizers"].as_array_mut() {
            normalizers.retain(|it| it["type"] != "Prepend");
        }
    }
}

/// Changes the normalizer of a `tokenizer.json` in the same way as transformers' class, which replaces the normalizer's
/// values by the settings and by its own defaults.
fn normalize_as_bert(json: &mut Value, settings: &Value, config: &Value) {
    let class = settings["tokenizer_class"].as_str().map(|class| class.strip_suffix("Fast").unwrap_or(class));
    let kind = match class {
        Some(class) => class.strip_suffix("Tokenizer").map(str::to_lowercase),
        None => config["model_type"].as_str().map(str::to_owned),
    };
    let kinds = ["bert", "distilbert", "electra", "funnel", "layoutlm", "lxmert", "mobilebert", "mpnet", "splinter"];
    let normalizer = &mut json["normalizer"];
    let is_known = kind.is_some_and(|kind| kinds.contains(&kind.as_str()));
    if !is_known || !settings.is_object() || normalizer["type"] != "BertNormalizer" {
        return;
    }
    let stated =
        |name: &str, usual: Value| Some(&settings[name]).filter(|value| value.is_boolean()).cloned().unwrap_or(usual);
    normalizer["lowercase"] = stated("do_lower_case", true.into());
    normalizer["strip_accents"] = stated("strip_accents", Value::Null);
    normalizer["handle_chinese_chars"] = stated("tokenize_chinese_chars", true.into());
}

impl Vocabulary {
    /// Removes added tokens without a row in the embedding, such as tokens for pictures in a model that reads only
    /// text. The model cannot process a text with such a token anyway. Returns a message if tokens were removed.
    fn leave_out(&mut self, rows: usize) -> Option<String> {
        let beyond: Vec<u32> = self.tokens.range(rows as u32..).map(|(id, _)| *id).collect();
        let is_added = |id: &u32| matches!(self.tokens[id].kind, CONTROL | USER_DEFINED | super::UNUSED);
        if beyond.is_empty() || !beyond.iter().all(is_added) {
            return None;
        }
        let texts: Vec<String> =
            beyond.iter().filter_map(|id| Some(format!("{:?}", self.tokens.remove(id)?.text))).collect();
        Some(format!("the model has no rows for the added tokens {}: they are left out", texts.join(", ")))
    }

    fn unknown(&self) -> Option<u32> {
        self.tokens.iter().find(|(_, token)| token.kind == UNKNOWN).map(|(id, _)| *id)
    }

    /// Writes exactly the keys that llama.cpp's converter writes, and the keys of normalizers.
    fn write_as_llama(mut self, rows: usize, header: &mut Header) -> Result<()> {
        let count = self.tokens.last_key_value().map_or(0, |(last, _)| *last as usize + 1);
        if count > rows {
            bail!(
                "it has {count} tokens and the model has {rows} rows: give the vocabulary that the model was made with"
            );
        }
        let is = |models: &[&str]| {
            let model = self.keys.iter().find(|(key, _)| *key == "model");
            model.is_some_and(|(_, value)| models.iter().any(|model| *value == Meta::from(*model)))
        };
        let scored = is(&["llama", "t5", "gemma4", "plamo2"]);
        let space = if is(&["bert"]) { "▁" } else { "" };
        let unused = |id| Token { text: format!("{space}[PAD{id}]"), score: -10000.0, kind: super::UNUSED };
        let tokens: Vec<Token> =
            (0..rows as u32).map(|id| self.tokens.remove(&id).unwrap_or_else(|| unused(id))).collect();
        for (name, value) in self.keys {
            let key = format!("tokenizer.ggml.{name}");
            // `false` is only the default of a unigram vocabulary. If the settings or the post-processor have already
            // set the key, their value stays.
            if name != "add_bos_token" || !header.has(&key) {
                header.set(&key, value);
            }
        }
        header.set("tokenizer.ggml.tokens", Meta::strings(tokens.iter().map(|token| &token.text)));
        if scored {
            header.set("tokenizer.ggml.scores", Meta::array(tokens.iter().map(|token| token.score)));
        }
        header.set("tokenizer.ggml.token_type", Meta::array(tokens.iter().map(|token| token.kind)));
        write_templates(&self.chat_templates, header);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use crate::tokenizer_file::VocabularyRules;
    use arenite::Gguf;
    use arenite::gguf::{Array, Value as Stored};
    use prost::Message;
    use serde_json::json;

    use super::sentencepiece::{Piece, SentencePiece, Trainer};
    use super::*;

    /// The expected values come from `AutoTokenizer.from_pretrained` in transformers 5.24.
    #[test]
    fn settings_replace_the_normalizer_of_bert() {
        let bert = json!({ "model_type": "bert" });
        for (settings, stored, lowercase) in [
            (json!({ "tokenizer_class": "BertTokenizer", "do_lower_case": false }), true, false),
            (json!({ "tokenizer_class": "BertTokenizerFast", "do_lower_case": true }), false, true),
            (json!({ "tokenizer_class": "MPNetTokenizer" }), false, true),
            (json!({ "do_lower_case": false }), true, false),
            (json!({ "tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": true }), false, false),
            (Value::Null, false, false),
        ] {
            let mut json = json!({ "normalizer": { "type": "BertNormalizer", "lowercase": stored } });
            normalize_as_bert(&mut json, &settings, &bert);
            assert_eq!(json["normalizer"]["lowercase"], lowercase, "{settings}");
        }
        let settings = json!({ "strip_accents": false, "tokenize_chinese_chars": false });
        let mut json = json!({ "normalizer": { "type": "BertNormalizer", "strip_accents": true } });
        normalize_as_bert(&mut json, &settings, &bert);
        let wanted = json!({
            "type": "BertNormalizer", "strip_accents": false, "handle_chinese_chars": false, "lowercase": true
        });
        assert_eq!(json["normalizer"], wanted);
    }

    /// `tokenizer.model` with BPE.
    fn sentence_pieces() -> Vec<u8> {
        let pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("▁a", 1), ("▁", 1), ("a", 1)];
        let pieces = pieces.map(|(text, kind)| Piece { piece: text.to_owned(), score: 0.0, kind: Some(kind) });
        let trainer = Some(Trainer { model_type: Some(2), ..Trainer::default() });
        SentencePiece { pieces: pieces.into(), trainer, normalizer: None }.encode_to_vec()
    }

    fn added(tokens: &[(u32, &str, bool)]) -> Value {
        tokens.iter().map(|(id, text, special)| json!({"id": id, "content": text, "special": special})).collect()
    }

    /// A tokenizer.json with merges and more tokens, but otherwise with the same vocabulary as the test's other
    /// `tokenizer.json`.
    fn merges() -> Value {
        json!({
            "added_tokens": added(&[(0, "<unk>", true), (6, "<|end|>", true), (7, "two words", false), (8, "<tool>", false)]),
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            "model": {
                "type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "merges": ["▁ a"],
                "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁a": 3, "▁": 4, "a": 5},
            },
        })
    }

    fn unigram() -> Value {
        json!({
            "added_tokens": added(&[
                (0, "<s>", true), (1, "<pad>", true), (2, "</s>", true), (3, "<unk>", true), (5, "<mask>", true), (6, "<x>", false),
            ]),
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
            "model": {"type": "Unigram", "unk_id": 3, "vocab": [
                ["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁a", -1.0], ["<mask>", 0.0], ["<x>", -2.0],
            ]},
        })
    }

    /// Returns the vocabulary of a folder with these files: the texts of the tokens, the types of the tokens, and the
    /// number of merges.
    fn vocabulary(wanted: &Wanted<'_>, files: &[(&str, &[u8])]) -> (Vec<String>, Vec<i32>, usize) {
        files.iter().for_each(|(name, file)| fs::write(wanted.directory.join(name), file).unwrap());
        let mut header = Header::new();
        write(wanted, &mut header).unwrap();
        let file = header.write(Cursor::new(Vec::new())).unwrap().finish().unwrap().into_inner();
        let gguf = Gguf::parse(&file).unwrap();
        let array = |name: &str| match gguf.get(&format!("tokenizer.ggml.{name}")) {
            Some(Stored::Array(array)) => Some(array),
            _ => None,
        };
        let texts = |array: Array<'_>| {
            let mut strings = array.strings();
            let text = |_| String::from_utf8(strings.next_string().unwrap().to_vec()).unwrap();
            (0..array.len()).map(text).collect()
        };
        let kinds = array("token_type").unwrap();
        let kinds = (0..kinds.len()).map(|id| kinds.get_i32(id).unwrap()).collect();
        (texts(array("tokens").unwrap()), kinds, array("merges").map_or(0, |merges| merges.len()))
    }

    /// The expected tokens and types come from llama.cpp's converter (in llama-cpp-python 0.3.36), which read the same
    /// files with the methods `set_vocab` of `Phi3MiniModel`, `LlamaModel`, `Gemma4Model` and `XLMRobertaModel`. (With
    /// a `tokenizer.json`, Llama's added tokens are read in the same way as Phi 3's.)
    #[test]
    fn added_tokens_and_merges_are_llama_cpps() {
        let settings = json!({"added_tokens_decoder": {
            "0": {"content": "<unk>", "special": true}, "6": {"content": "<|old|>", "special": false},
        }});
        let (model, merges, unigram, settings) =
            (sentence_pieces(), merges().to_string(), unigram().to_string(), settings.to_string());
        let both = [
            ("tokenizer.model", &model[..]),
            ("tokenizer.json", merges.as_bytes()),
            ("tokenizer_config.json", settings.as_bytes()),
        ];
        let xlm_roberta = [("tokenizer.json", unigram.as_bytes())];
        let six = ["<unk>", "<s>", "</s>", "▁a", "▁", "a"];
        let roberta = ["<s>", "<pad>", "</s>", "<unk>", "▁a", "<mask>", "<x>"];
        // Gemma 4's vocabulary keeps its merges in the file. Of its token types, only that of `<unk>` is compared with
        // llama.cpp, because transformers changes the types of the other tokens.
        for (architecture, files, first, others, kinds, merges) in [
            (
                "phi3",
                &both[..],
                &six[..],
                &["<|end|>", "two words", "<tool>"][..],
                &[3, 3, 3, 1, 1, 1, 3, 4, 4, 5][..],
                0,
            ),
            ("llama", &both[..1], &six, &["[PAD6]", "[PAD7]"], &[2, 3, 3, 1, 1, 1, 5, 5, 5, 5], 0),
            ("llama", &[both[0], both[2]], &six, &["<|old|>", "[PAD7]"], &[3, 3, 3, 1, 1, 1, 3, 5, 5, 5], 0),
            ("gemma4", &both, &six, &["<|end|>", "two words", "<tool>"], &[3], 1),
            ("bert", &xlm_roberta, &roberta, &["[PAD7]"], &[3, 3, 3, 2, 1, 3, 4, 5, 5, 5], 0),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (directory, config) = (folder.path(), &Value::Null);
            let wanted = Wanted { directory, architecture, config, rows: 10, rules: &VocabularyRules::PLAIN };
            let (found, found_kinds, found_merges) = vocabulary(&wanted, files);
            assert_eq!(found[..first.len() + others.len()], [first, others].concat(), "{architecture}");
            assert_eq!(found_kinds[..kinds.len()], *kinds, "{architecture}");
            assert_eq!(found_merges, merges, "{architecture}");
        }
    }

    /// The expected texts and types come from llama.cpp's converter for RWKV World, PLaMo 2 and mmBERT.
    #[test]
    fn vocabularies_of_single_families() {
        let world = "1 'a' 1\n2 '\\n\\n' 2\n3 b'\\xff' 1\n";
        let plamo = "[\"<|plamo:bos|>\", 0.0, \"CONTROL\"]\n[\"<0x00>\", 0.0, \"BYTE\"]\n[\"a b\", -1.5, \"NORMAL\"]\n";
        let mmbert = json!({
            "added_tokens": added(&[(0, "<mask>", true), (1, "\n", false), (2, "  ", false)]),
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
            "model": {
                "type": "BPE", "byte_fallback": true, "merges": ["▁ a"], "vocab": {"<mask>": 0, "\n": 1, "▁▁": 2, "▁a": 3},
            },
        });
        let words = json!({
            "added_tokens": added(&[(0, "<unk>", true)]),
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "Whitespace"},
            "model": {"type": "BPE", "unk_token": "<unk>", "merges": ["a b"], "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3}},
        });
        let (mmbert, words) = (mmbert.to_string(), words.to_string());
        for (architecture, name, file, texts, kinds, merges) in [
            ("rwkv7", "rwkv_vocab_v20230424.txt", world, ["<s>", "a", r"\n\n", r"\xff", "[PAD4]"], [3, 1, 1, 1, 5], 0),
            (
                "plamo2",
                "tokenizer.jsonl",
                plamo,
                ["<|plamo:bos|>", "<0x00>", "a b", "[PAD1]", "[PAD2]"],
                [3, 6, 1, 5, 5],
                0,
            ),
            ("modern-bert", "tokenizer.json", &mmbert, ["<mask>", "\n", "▁▁", "▁a", "[PAD4]"], [3, 4, 1, 1, 5], 1),
            ("jina-bert-v2", "tokenizer.json", &words, ["<unk>", "a", "b", "ab", "[PAD4]"], [3, 1, 1, 1, 5], 1),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (directory, config) = (folder.path(), &Value::Null);
            let wanted = Wanted { directory, architecture, config, rows: 5, rules: &VocabularyRules::PLAIN };
            let found = vocabulary(&wanted, &[(name, file.as_bytes())]);
            let texts = texts.map(str::to_owned).to_vec();
            assert_eq!(found, (texts, kinds.to_vec(), merges), "{architecture}");
        }
    }
}
