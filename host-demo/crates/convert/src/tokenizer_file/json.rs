//! Reads `tokenizer.json` of Hugging Face's tokenizers, and `tokenizer_config.json` in the same directory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use arenite::tokenizer::is_taken_for_control;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::parts::{list, part};
use super::support::{is_byte, is_byte_level, is_control};
use super::{BYTE, CONTROL, NORMAL, Token, UNKNOWN, USER_DEFINED, Vocabulary, expressions, normalized, support};
use arenite_gguf_writer::Meta;
use arenite_text::normalizer::{self, Step};

/// The model for which a vocabulary is read.
pub struct Model<'m> {
    pub architecture: &'m str,
    /// The pre-tokenizer that the model's GGUF file names, if the file has a byte-level vocabulary.
    pub pre: Option<&'m [u8]>,
}

/// Reads a vocabulary file, with the settings in the same directory.
pub fn read_file(model: &Model<'_>, path: &Path, file: &[u8]) -> Result<Vocabulary> {
    let mut json = super::files::parse(path, file)?;
    super::added::spell_out(&mut json);
    let mut notes = Vec::new();
    let mut vocabulary = read(model, &json, &mut notes)?;
    notes.iter().for_each(|note| log::warn!("{note}"));
    let ids = vocabulary.ids();
    let folder = path.parent().unwrap_or(Path::new("."));
    ends(&json, super::special::adds_no_others(&json, &super::special::config(folder)?), &mut vocabulary);
    config(path, &ids, &mut vocabulary)?;
    if let Some(id) = vocabulary.tokens.iter().find(|(_, token)| token.kind == UNKNOWN).map(|(id, _)| *id) {
        vocabulary.key("unknown_token_id", id);
    }
    Ok(vocabulary)
}

/// Reads the tokens and merges. Adds messages to `notes`.
pub fn read(wanted: &Model<'_>, json: &Value, notes: &mut Vec<String>) -> Result<Vocabulary> {
    let mut vocabulary = Vocabulary::default();
    let model = &json["model"];
    let mut steps = support::check(json, notes)?;
    match model["type"].as_str() {
        Some("BPE") if is_byte_level(json) => byte_level(wanted, json, &mut vocabulary)?,
        Some("BPE") if support::splits_words(json) => {
            words_by_merges(json, &mut vocabulary)?;
            if steps.pop_if(|last| *last == Step::Lowercase).is_some() {
                vocabulary.key("normalizer.lowercase", true);
            }
        }
        Some("BPE") => {
            pieces_by_merges(wanted, json, &mut vocabulary)?;
            notes.extend(other_merges(wanted, json)?);
        }
        Some("Unigram") => unigram(json, &mut vocabulary)?,
        Some("WordPiece") => word_pieces(json, &mut vocabulary)?,
        other => bail!("its model is {}: BPE, Unigram and WordPiece are supported", other.unwrap_or("without a type")),
    }
    if !steps.is_empty() {
        vocabulary.key("normalizer.steps", normalizer::names(steps).as_str());
    }
    let precompiled = part(&json["normalizer"], "Precompiled").and_then(|it| it["precompiled_charsmap"].as_str());
    if let Some(map) = precompiled {
        vocabulary.key("precompiled_charsmap", Meta::array(BASE64.decode(map).context("its charsmap is not base64")?));
    }
    if let Some(unknown) =
        model["unk_token"].as_str().or_else(|| model["vocab"][model["unk_id"].as_u64()? as usize][0].as_str())
        && let Some(token) = vocabulary.tokens.values_mut().find(|token| token.text == unknown)
    {
        token.kind = UNKNOWN;
    }
    for token in list(&json["added_tokens"]) {
        let text = token["content"].as_str().context("an added token has no text")?;
        let id = token["id"].as_u64().with_context(|| format!("the added token {text:?} has no id"))?;
        let unknown = model["unk_token"] == text || model["unk_id"] == id;
        let kind = match is_control(token) {
            // In WordPiece and BPE, the unknown token gets the type of a control token or of a user-defined token, like
            // any other added token.
            _ if unknown && model["type"] != "WordPiece" && model["type"] != "BPE" => UNKNOWN,
            true => CONTROL,
            false => USER_DEFINED,
        };
        // An added token without a score in the model must not take part in the segmentation by scores. Before the
        // segmentation, it is found by its spelling.
        let unscored = if kind == USER_DEFINED && model["type"] == "Unigram" { f32::NEG_INFINITY } else { 0.0 };
        let score = vocabulary.tokens.get(&u32::try_from(id).unwrap_or(u32::MAX)).map_or(unscored, |token| token.score);
        // The text is changed only in vocabularies that spell a space as `▁`. In all others, `▁` stands for itself.
        let text = normalized::text(json, token);
        let text = if kind == USER_DEFINED && support::marks_spaces(json) { text.replace('▁', " ") } else { text };
        vocabulary.set(id, text, score, kind)?;
    }
    if merging(wanted, json) == Some(MMBERT) {
        // As in llama.cpp, added tokens that consist of spaces are ordinary tokens.
        let of_spaces = |token: &&mut Token| token.kind == USER_DEFINED && token.text.bytes().all(|byte| byte == b' ');
        for token in vocabulary.tokens.values_mut().filter(of_spaces) {
            (token.text, token.kind) = (token.text.replace(' ', "▁"), NORMAL);
        }
    }
    rules(json, &mut vocabulary);
    second_ends(json, &mut vocabulary);
    // Written only if readers would change a type.
    let changes = |token: &Token| match token.kind {
        NORMAL | USER_DEFINED => is_taken_for_control(token.text.as_bytes(), token.kind == USER_DEFINED),
        _ => false,
    };
    if vocabulary.tokens.values().any(changes) {
        vocabulary.key("token_type_final", true);
    }
    Ok(vocabulary)
}

/// Values of the keys `model` and `pre` for a vocabulary whose tokens consist of characters (not bytes) and are built
/// by merges, not chosen by scores.
type Merging = (&'static str, Option<&'static str>);

const GEMMA4: Merging = ("gemma4", None);
const MMBERT: Merging = ("gpt2", Some("mmbert"));

/// Returns the values of the GGUF keys `model` and `pre` for a tokenizer whose vocabulary consists of characters and
/// byte tokens, if the tokenizer's merges determine the tokens; otherwise `None`.
fn merging(wanted: &Model<'_>, json: &Value) -> Option<Merging> {
    let space = part(&json["pre_tokenizer"], "Metaspace");
    let starts_words = space.is_some_and(|it| it["prepend_scheme"] == "always" && it["split"] != false);
    match wanted.architecture {
        "gemma4" => Some(GEMMA4),
        "modern-bert" if starts_words && json["model"]["type"] == "BPE" && !is_byte_level(json) => Some(MMBERT),
        _ => None,
    }
}

/// Writes the rules for finding added tokens: which tokens absorb the white space beside them, and which match only as
/// a whole word.
pub fn rules(json: &Value, vocabulary: &mut Vocabulary) {
    // A normalizer that replaces spaces leaves none beside a token. Tokens of normalized texts can then absorb no
    // space.
    let keeps_spaces = !part(&json["normalizer"], "Replace").is_some_and(support::replaces_space);
    let are_last = normalized::are_last(json);
    let mut rules = BTreeSet::new();
    for token in list(&json["added_tokens"]) {
        let Some(id) = token["id"].as_u64().and_then(|id| u32::try_from(id).ok()?.checked_mul(8)) else { continue };
        let strips = keeps_spaces || token["normalized"] != true;
        let bits = [("lstrip", 1, strips), ("rstrip", 2, strips), ("single_word", 4, true)];
        let rule: u32 = bits.iter().filter(|(name, _, has)| *has && token[*name] == true).map(|(_, bit, _)| bit).sum();
        rules.extend((rule > 0).then_some(id + rule));
        // An entry without a rule says that the token is searched after all others.
        rules.extend((are_last && token["normalized"] == true).then_some(id));
    }
    if !rules.is_empty() {
        vocabulary.key("added_tokens.rules", Meta::array(rules));
    }
}

fn vocab(json: &Value) -> Result<impl Iterator<Item = Result<(&str, u64)>>> {
    let tokens = json["model"]["vocab"].as_object().context("it has no vocabulary")?;
    Ok(tokens.iter().map(|(token, id)| Ok((token.as_str(), id.as_u64().context("an id is not a number")?))))
}

/// The two halves of each merge.
fn merges(json: &Value) -> Result<Vec<(&str, &str)>> {
    fn merge(merge: &Value) -> Result<(&str, &str)> {
        // A merge is a list of two texts. In older files, it is one text in which a space separates the two.
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            pair => pair[0].as_str().zip(pair[1].as_str()),
        };
        pair.with_context(|| format!("{merge} is not a merge"))
    }
    json["model"]["merges"].as_array().context("it has no merges")?.iter().map(merge).collect()
}

fn joined(merges: &[(&str, &str)]) -> Meta {
    Meta::strings(merges.iter().map(|(left, right)| format!("{left} {right}")))
}

fn byte_level(wanted: &Model<'_>, json: &Value, vocabulary: &mut Vocabulary) -> Result<()> {
    for token in vocab(json)? {
        let (token, id) = token?;
        vocabulary.set(id, token.to_owned(), 0.0, NORMAL)?;
    }
    vocabulary.key("model", "gpt2");
    let ignores_merges = json["model"]["ignore_merges"] == true;
    let name = expressions::name(&json["pre_tokenizer"], ignores_merges);
    let name = match (name, wanted.pre) {
        // If the expression that splits words is unknown, the vocabulary takes the pre-tokenizer that the model's file
        // names.
        (Err(_), Some(pre)) => String::from_utf8_lossy(pre).into_owned(),
        (name, _) => name?.to_owned(),
    };
    vocabulary.key("pre", name.as_str());
    if let Some(ignores) = expressions::ignores_merges(&name, ignores_merges) {
        vocabulary.key("ignore_merges", ignores);
    }
    vocabulary.key("merges", joined(&merges(json)?));
    if support::missing_bytes(json) > 0 {
        unknown(json, vocabulary)?;
    }
    Ok(())
}

/// Writes the unknown token that the model names. If the model names none, bytes or characters without a token are left
/// out.
fn unknown(json: &Value, vocabulary: &mut Vocabulary) -> Result<()> {
    if let Some(id) = json["model"]["unk_token"].as_str().and_then(|text| json["model"]["vocab"][text].as_u64()) {
        vocabulary.key("unknown_token_id", u32::try_from(id)?);
    }
    Ok(())
}

/// Converts BPE over characters with byte tokens, Hugging Face's form of SentencePiece BPE. As in SentencePiece, the
/// score of a token is the rank of the merge that produces it.
fn pieces_by_merges(wanted: &Model<'_>, json: &Value, vocabulary: &mut Vocabulary) -> Result<()> {
    let merges = merges(json)?;
    let mut ranks = HashMap::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        ranks.entry(format!("{left}{right}")).or_insert(rank);
    }
    for token in vocab(json)? {
        let (token, id) = token?;
        let score = -(ranks.get(token).copied().unwrap_or(merges.len()) as f32);
        vocabulary.set(id, token.to_owned(), score, if is_byte(token) { BYTE } else { NORMAL })?;
    }
    if let Some((model, pre)) = merging(wanted, json) {
        // The merges determine the tokens, so the scores are not used. llama.cpp also writes -1000 for unused scores.
        vocabulary.tokens.values_mut().for_each(|token| token.score = -1000.0);
        vocabulary.key("model", model);
        if let Some(pre) = pre {
            vocabulary.key("pre", pre);
        }
        vocabulary.key("merges", joined(&merges));
    } else {
        vocabulary.key("model", "llama");
        vocabulary.key("pre", "default");
        space_prefix(json, vocabulary);
        // Without the key `fuse_unk`, readers do as SentencePiece does. The key is written only if the tokenizer
        // differs from this and has no byte tokens, because it otherwise has no effect.
        if json["model"]["fuse_unk"] != true && json["model"]["byte_fallback"] != true {
            vocabulary.key("fuse_unk", false);
        }
    }
    Ok(())
}

/// Reads BPE over the characters of words, without spaces.
fn words_by_merges(json: &Value, vocabulary: &mut Vocabulary) -> Result<()> {
    for name in ["fuse_unk", "byte_fallback"] {
        ensure!(json["model"][name] != true, "its model has {name}, which is not supported beside Whitespace");
    }
    for token in vocab(json)? {
        let (token, id) = token?;
        vocabulary.set(id, token.to_owned(), 0.0, NORMAL)?;
    }
    vocabulary.key("model", "whitespace");
    vocabulary.key("pre", "whitespace");
    vocabulary.key("merges", joined(&merges(json)?));
    unknown(json, vocabulary)
}

/// Returns a note if SentencePiece's rule gives other tokens than the merges of the file. By this rule, any two
/// neighbours merge if they form a token.
fn other_merges(wanted: &Model<'_>, json: &Value) -> Result<Option<String>> {
    if merging(wanted, json).is_some() {
        return Ok(None);
    }
    let merges = merges(json)?;
    let mut firsts: HashMap<String, usize> = HashMap::new();
    let mut known: HashSet<(&str, &str)> = HashSet::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        firsts.entry(format!("{left}{right}")).or_insert(rank);
        known.insert((left, right));
    }
    let tokens: HashSet<&str> = vocab(json)?.map(|token| Ok(token?.0)).collect::<Result<_>>()?;
    let added: HashSet<&str> = list(&json["added_tokens"]).filter_map(|token| token["content"].as_str()).collect();
    let is_missing = |token: &&&str| {
        let mut splits = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
        !added.contains(**token)
            && !is_byte(token)
            && splits.any(|pair| tokens.contains(pair.0) && tokens.contains(pair.1) && !known.contains(&pair))
    };
    let mut missing: Vec<&str> = tokens.iter().filter(is_missing).copied().collect();
    missing.sort_unstable_by_key(|token| firsts.get(*token).copied().unwrap_or(usize::MAX));
    let count = missing.len();
    Ok(missing.first().map(|first| {
        format!(
            "{count} tokens such as {first:?} lack merges, and are formed nevertheless, as by SentencePiece: some texts get other \
             tokens than from Hugging Face's tokenizer"
        )
    }))
}

/// Writes whether a space is added before a text, and flags. Flag 1: no space before a text that begins with a space.
/// Flag 2: no space after a special token. Flag 4: a space at the end of a text is kept where runs of spaces count as one.
/// Flag 8: no space before a word that begins with `▁`.
pub fn space_prefix(json: &Value, vocabulary: &mut Vocabulary) {
    let adds = adds_space(json);
    vocabulary.key("add_space_prefix", adds);
    let is_limited = adds && part(&json["normalizer"], "Prepend").is_none();
    let splits = part(&json["pre_tokenizer"], "WhitespaceSplit").is_some();
    let metaspace = part(&json["pre_tokenizer"], "Metaspace");
    let at_start = is_limited && metaspace.is_some_and(|it| it["prepend_scheme"] == "first");
    let keeps_last = support::keeps_last_space(json);
    let flags = [is_limited && !splits, at_start, keeps_last, is_limited && splits];
    let rule = flags.iter().rev().fold(0, |rule, flag| 2 * rule + u32::from(*flag));
    if rule > 0 {
        vocabulary.key("add_space_prefix_rule", rule);
    }
}

/// Returns whether a space is added before the text.
fn adds_space(json: &Value) -> bool {
    let metaspace = part(&json["pre_tokenizer"], "Metaspace");
    part(&json["normalizer"], "Prepend").is_some()
        || metaspace.is_some_and(|it| it["prepend_scheme"] != "never" && it["add_prefix_space"] != false)
}

fn unigram(json: &Value, vocabulary: &mut Vocabulary) -> Result<()> {
    for (id, entry) in (0..).zip(list(&json["model"]["vocab"])) {
        let (Some(token), Some(score)) = (entry[0].as_str(), entry[1].as_f64()) else {
            bail!("{entry} is not a pair of token and score");
        };
        let is_byte = json["model"]["byte_fallback"] == true && is_byte(token);
        vocabulary.set(id, token.to_owned(), score as f32, if is_byte { BYTE } else { NORMAL })?;
    }
    vocabulary.key("model", "t5");
    vocabulary.key("pre", "default");
    space_prefix(json, vocabulary);
    vocabulary.key("remove_extra_whitespaces", support::has_single_spaces(json));
    vocabulary.key("add_bos_token", false);
    Ok(())
}

fn word_pieces(json: &Value, vocabulary: &mut Vocabulary) -> Result<()> {
    let prefix = json["model"]["continuing_subword_prefix"].as_str().unwrap_or("##");
    for token in vocab(json)? {
        let (token, id) = token?;
        let text = match token.strip_prefix(prefix) {
            Some(rest) => rest.to_owned(),
            None => format!("▁{token}"),
        };
        vocabulary.set(id, text, 0.0, NORMAL)?;
    }
    vocabulary.key("model", "bert");
    vocabulary.key("pre", "jina-v2-en"); // llama.cpp's name for all WordPiece vocabularies
    let normalizer = part(&json["normalizer"], "BertNormalizer");
    let does = |name: &str| normalizer.is_some_and(|normalizer| normalizer[name] != false);
    let lowercase = does("lowercase");
    vocabulary.key("normalizer.lowercase", lowercase);
    // `strip_accents` is written only if it differs from `lowercase`, which is its default in llama.cpp.
    let strips = normalizer.and_then(|normalizer| normalizer["strip_accents"].as_bool());
    if let Some(strips) = strips.filter(|strips| *strips != lowercase) {
        vocabulary.key("normalizer.strip_accents", strips);
    }
    for (key, name) in
        [("normalizer.clean_text", "clean_text"), ("normalizer.handle_chinese_chars", "handle_chinese_chars")]
    {
        if !does(name) {
            vocabulary.key(key, false);
        }
    }
    for (key, text) in [("unknown_token_id", "[UNK]"), ("mask_token_id", "[MASK]"), ("padding_token_id", "[PAD]")] {
        if let Some(id) = json["model"]["vocab"][text].as_u64() {
            vocabulary.key(key, u32::try_from(id)?);
        }
    }
    Ok(())
}

/// Writes the keys for special tokens that are neither first nor last: the second token before a text, and the second
/// to last token after it. (`ends` and `special.rs` write the first and the last one.)
fn second_ends(json: &Value, vocabulary: &mut Vocabulary) {
    let Some(template) = part(&json["post_processor"], "TemplateProcessing") else { return };
    let single: Vec<&Value> = list(&template["single"]).collect();
    let id = |piece: &Value| {
        let name = piece["SpecialToken"]["id"].as_str()?;
        u32::try_from(template["special_tokens"][name]["ids"][0].as_u64()?).ok()
    };
    let (first, last) = (single.first_chunk::<2>(), single.last_chunk::<2>());
    let start = first.and_then(|[outer, inner]| id(outer).and(id(inner)));
    let end = last.and_then(|[inner, outer]| id(outer).and(id(inner)));
    for (key, id) in [("after_bos_token_id", start), ("before_eos_token_id", end)] {
        id.into_iter().for_each(|id| vocabulary.key(key, id));
    }
}

/// Reads the special tokens that the post-processor adds before and after a text. `is_complete` is true if a text gets
/// no other special tokens.
fn ends(json: &Value, is_complete: bool, vocabulary: &mut Vocabulary) {
    let processor = &json["post_processor"];
    let template = part(processor, "TemplateProcessing");
    let (first, last) = match template {
        Some(template) => {
            let single: Vec<&Value> = list(&template["single"]).collect();
            let id = |place: Option<&&Value>| {
                let name = place?["SpecialToken"]["id"].as_str()?;
                template["special_tokens"][name]["ids"][0].as_u64()
            };
            (id(single.first()), id(single.last().filter(|_| single.len() > 1)))
        }
        None => {
            let classic = part(processor, "BertProcessing").or(part(processor, "RobertaProcessing"));
            classic.map_or((None, None), |it| (it["cls"][1].as_u64(), it["sep"][1].as_u64()))
        }
    };
    for (id, key, adds) in [(first, "bos_token_id", "add_bos_token"), (last, "eos_token_id", "add_eos_token")] {
        if let Some(id) = id.and_then(|id| u32::try_from(id).ok()) {
            vocabulary.key(key, id);
            vocabulary.key(adds, true);
            if key == "eos_token_id" {
                vocabulary.key("seperator_token_id", id); // the format's spelling
            }
        } else if template.is_some() || is_complete {
            vocabulary.key(adds, false);
        }
    }
}

/// Reads `tokenizer_config.json`, if it exists.
fn config(path: &Path, ids: &HashMap<String, u32>, vocabulary: &mut Vocabulary) -> Result<()> {
    let json = super::special::optional_json(&path.with_file_name("tokenizer_config.json"))?;
    for (name, key) in [("bos_token", "bos_token_id"), ("eos_token", "eos_token_id"), ("pad_token", "padding_token_id")]
    {
        // A token that the post-processor adds is the start or end token, whatever the settings name.
        if vocabulary
            .keys
            .iter()
            .any(|(known, value)| known.strip_prefix("add_") == Some(name) && *value == true.into())
        {
            continue;
        }
        let text = json[name].as_str().or_else(|| json[name]["content"].as_str());
        if let Some(id) = text.and_then(|text| ids.get(text)) {
            vocabulary.key(key, *id);
        }
    }
    for key in ["add_bos_token", "add_eos_token"] {
        if let Some(adds) = json[key].as_bool() {
            vocabulary.key(key, adds);
        }
    }
    let template = json["chat_template"].as_str();
    vocabulary.chat_templates = template.map(|text| (String::new(), text.to_owned())).into_iter().collect();
    Ok(())
}
