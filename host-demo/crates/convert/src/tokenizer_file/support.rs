//! Refuses settings of a `tokenizer.json` that a GGUF vocabulary cannot express.

use anyhow::{Result, bail};
use serde_json::Value;

use super::expressions::{LINE_STARTS, SOME_DIGITS, SOME_THREES};
use super::normalized;
use super::parts::{list, part};
use arenite_text::normalizer::{Step, apply};

/// Returns true if a token is spelled like `<0x41>`.
pub fn is_byte(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')
}

pub fn is_byte_level(json: &Value) -> bool {
    part(&json["pre_tokenizer"], "ByteLevel").or(part(&json["decoder"], "ByteLevel")).is_some()
}

/// Returns true for added tokens that are always control tokens.
pub fn looks_special(text: &str) -> bool {
    let between = |first: &str, last: &str| {
        text.starts_with(first) && text.ends_with(last) && text.len() >= first.len() + last.len()
    };
    matches!(text, "<pad>" | "<mask>" | "<2mass>" | "[@BOS@]")
        || between("<|", "|>")
        || between("<｜", "｜>")
        || between("<unused", ">")
}

/// Returns true if an added token is a control token.
pub fn is_control(token: &Value) -> bool {
    token["special"] == true || looks_special(token["content"].as_str().unwrap_or_default())
}

/// Returns the steps that convert a text before it is tokenized. Refuses settings that would give other ids. A setting
/// that changes only few texts is accepted, and a line about it is added to `notes`.
pub fn check(json: &Value, notes: &mut Vec<String>) -> Result<Vec<Step>> {
    let (mut normalizers, mut pre_tokenizers) = (Vec::new(), Vec::new());
    flatten(&json["normalizer"], "normalizers", &mut normalizers);
    flatten(&json["pre_tokenizer"], "pretokenizers", &mut pre_tokenizers);
    let mut steps = normalization(json, &normalizers, notes)?;
    added(json, &normalizers, &steps, notes)?;
    words(json, &pre_tokenizers, &mut steps, notes)?;
    spaces(json, &normalizers, &pre_tokenizers, notes)?;
    model(json, notes)?;
    notes.extend(spelled(json, &steps));
    notes.extend(first_dropped(json, &steps));
    Ok(steps)
}

/// Checks the normalizers, and returns the normalizers that the host applies as steps.
fn normalization(json: &Value, normalizers: &[&Value], notes: &mut Vec<String>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let splits = part(&json["pre_tokenizer"], "WhitespaceSplit").is_some();
    let strips_spaces = json["model"]["type"] == "Unigram" && has_single_spaces(json);
    if part(&json["normalizer"], "Strip").is_some() && !splits && !normalizers.iter().any(converts_spaces) {
        notes
            .push("line breaks and tabs at the ends of a text are kept, unlike in Hugging Face's tokenizer".to_owned());
    }
    if normalizers.iter().filter(|it| it["type"] == "Precompiled").count() > 1 {
        bail!("it has several normalizers Precompiled: one is supported");
    }
    for (at, normalizer) in normalizers.iter().enumerate() {
        let kind = normalizer["type"].as_str().unwrap_or("of no type");
        match Step::of_normalizer(kind) {
            // The host applies all steps before all other normalizers. So a step is accepted only if its result is the
            // same before and after the normalizers that precede it.
            Some(step) if normalizers[..at].iter().all(|before| commute(before, step, strips_spaces)) => {
                steps.push(step)
            }
            Some(_) => bail!("its normalizer {kind} comes after one of another kind, which is not supported"),
            None if kind == "Strip" && strips_spaces => {}
            None if is_supported(json, kind, normalizer) => {}
            None => bail!("its normalizer {kind} is not supported for a vocabulary of this kind"),
        }
    }
    Ok(steps)
}

/// Checks that all pre-tokenizers are supported. Adds those that run before the core's tokenizer to `steps`.
fn words(json: &Value, pre_tokenizers: &[&Value], steps: &mut Vec<Step>, notes: &mut Vec<String>) -> Result<()> {
    let kinds = kinds(pre_tokenizers);
    for (expressions, texts) in [
        (&SOME_DIGITS[..], "numbers that are no digits, such as ½, are split like digits"),
        (&SOME_THREES, "numbers before letters (12345a), and those that are no digits, are split into threes as well"),
        (&[LINE_STARTS], "a carriage return before a line break is a token of its own"),
    ] {
        let splits = |it: &&Value| it["pattern"]["Regex"].as_str().is_some_and(|it| expressions.contains(&it));
        if pre_tokenizers.iter().any(splits) {
            notes.push(format!("{texts}, unlike in Hugging Face's tokenizer"));
        }
    }
    if kinds.iter().filter(|kind| **kind == "ByteLevel").count() > 1 {
        bail!("it has several pre-tokenizers ByteLevel: one is supported");
    }
    for (at, (it, kind)) in pre_tokenizers.iter().zip(&kinds).enumerate() {
        if *kind == "Metaspace" && it["replacement"].as_str().is_some_and(|text| text != "▁") {
            bail!("its pre-tokenizer replaces spaces by {}: only \"▁\" is supported", it["replacement"]);
        }
        // After WhitespaceSplit, Metaspace gets each word as a separate text. If Metaspace does not mark every word,
        // words do not begin with `▁`, and SentencePiece's rule of a space before each word would be wrong.
        let marks_all =
            it["prepend_scheme"].as_str().unwrap_or("always") == "always" && it["add_prefix_space"] != false;
        if *kind == "Metaspace" && !marks_all && kinds.iter().take(at).any(|kind| *kind == "WhitespaceSplit") {
            bail!("its pre-tokenizer Metaspace does not mark every word, which is not supported after WhitespaceSplit");
        }
        match json["model"]["type"].as_str() {
            Some("BPE") if is_byte_level(json) => {
                // The regular expressions of pre-tokenizers of byte-level vocabularies are checked in `expressions.rs`,
                // the other properties here.
                if *kind == "ByteLevel" && it["add_prefix_space"] == true {
                    bail!("its pre-tokenizer has add_prefix_space, which is not supported for a byte-level vocabulary");
                }
                // The pre-tokenizer splits words between numbers and other characters. This makes no difference if no
                // token has both, so it can be ignored then. (Falcon's vocabulary was trained with words that were
                // split at numbers.)
                let is_after_bytes = kinds.iter().take(at).any(|kind| *kind == "ByteLevel");
                let separates = *kind == "Digits" && it["individual_digits"] != true;
                if separates && (!is_after_bytes || mixes_numbers(json)) {
                    bail!("its pre-tokenizer Digits separates numbers from other characters, which is not supported");
                }
            }
            Some("BPE") if *kind == "Split" && it["pattern"]["String"] == " " => {}
            Some("BPE") if splits_words(json) => {}
            Some("BPE" | "Unigram") if *kind == "Metaspace" => {}
            Some("Unigram") if *kind == "WhitespaceSplit" => {
                let texts = list(&json["added_tokens"]).filter(|token| token["special"] != true);
                let mut texts = texts.filter_map(|token| token["content"].as_str());
                if let Some(text) = texts.find(|text| apply(&[Step::WhitespaceSplit], text) != *text) {
                    bail!("its added token {text:?} has white space, which is not supported beside WhitespaceSplit");
                }
                let mut texts = list(&json["added_tokens"]).filter(|token| token["special"] != true);
                if let Some(token) = texts.find(|token| token["content"].as_str().is_some_and(|it| it.contains(' '))) {
                    notes.push(format!(
                        "the added token {} is also found where a text has other white space than spaces",
                        token["content"]
                    ));
                }
                steps.push(Step::WhitespaceSplit);
            }
            Some("WordPiece") if *kind == "BertPreTokenizer" => {}
            _ => bail!("its pre-tokenizer {kind} is not supported for a vocabulary of this kind"),
        }
    }
    Ok(())
}

/// Checks how spaces are kept and marked.
fn spaces(json: &Value, normalizers: &[&Value], pre_tokenizers: &[&Value], notes: &mut Vec<String>) -> Result<()> {
    let kinds = kinds(pre_tokenizers);
    // If texts are stripped, the core drops a space at the end, as SentencePiece does. Hugging Face's tokenizer drops
    // it only if `Strip` comes after the character map, because the map turns other characters into spaces.
    let mut after_map = normalizers.iter().rev().take_while(|it| it["type"] != "Precompiled");
    let is_before_map = !after_map.any(|it| strips_end(it)) && normalizers.iter().any(|it| strips_end(it));
    let splits = kinds.contains(&"WhitespaceSplit");
    if json["model"]["type"] == "Unigram" && has_single_spaces(json) && is_before_map && !splits {
        notes.push(
            "a space at the end of a text (or what becomes one) is dropped, unlike in Hugging Face's tokenizer"
                .to_owned(),
        );
    }
    let marks_spaces = kinds.contains(&"Metaspace") || normalizers.iter().any(|it| replaces_space(it));
    let is_of_pieces = json["model"]["type"] == "BPE" && !is_byte_level(json) && !splits_words(json);
    let needs_marks = is_of_pieces || json["model"]["type"] == "Unigram";
    if needs_marks && !marks_spaces {
        bail!("it has no Metaspace and does not replace spaces by \"▁\", which is not supported");
    }
    Ok(())
}

fn kinds<'v>(parts: &[&'v Value]) -> Vec<&'v str> {
    parts.iter().map(|it| it["type"].as_str().unwrap_or("of no type")).collect()
}

/// Checks the settings of the model, and the special tokens that a text gets.
fn model(json: &Value, notes: &mut Vec<String>) -> Result<()> {
    let is_unusual = |name: &str, value: &Value| match name {
        "max_input_chars_per_word" => *value != 100,
        _ => *value == "",
    };
    for name in ["max_input_chars_per_word", "continuing_subword_prefix"] {
        let value = &json["model"][name];
        if json["model"]["type"] == "WordPiece" && !value.is_null() && is_unusual(name, value) {
            bail!("its model has {name} {value}, which is not supported");
        }
    }
    unknown(json, notes);
    let template =
        part(&json["post_processor"], "TemplateProcessing").map(|it| list(&it["single"]).collect::<Vec<_>>());
    let is_text = |it: &&Value| it["Sequence"].is_object();
    if template.is_some_and(|all| all.split(is_text).any(|special| special.len() > 2)) {
        notes.push("of several special tokens at an end of a text, only the outer two are added".to_owned());
    }
    for name in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if json["model"]["type"] == "BPE" && json["model"][name].as_str().is_some_and(|text| !text.is_empty()) {
            bail!("its model has {name}, which is not supported");
        }
    }
    Ok(())
}

/// Number of bytes that occur in UTF-8.
const UTF8_BYTES: usize = 243;

/// Returns true if `text` is one byte, spelled in the byte-level alphabet, that can occur in UTF-8.
fn is_byte_of_utf8(text: &str) -> bool {
    let mut chars = text.chars();
    let is_byte = |c| matches!(c, '!'..='~' | '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{143}');
    let is_unused = |c| matches!(c, '\u{c0}' | '\u{c1}' | '\u{f5}'..='\u{ff}');
    chars.next().is_some_and(|c| is_byte(c) && !is_unused(c)) && chars.next().is_none()
}

/// Returns the number of bytes of UTF-8 that a byte-level vocabulary lacks.
pub fn missing_bytes(json: &Value) -> usize {
    let texts = json["model"]["vocab"].as_object().into_iter().flatten();
    UTF8_BYTES.saturating_sub(texts.filter(|(text, _)| is_byte_of_utf8(text)).count())
}

/// Adds notes about texts that get other tokens than from Hugging Face's tokenizer, because the vocabulary lacks
/// characters or because scores are rounded.
fn unknown(json: &Value, notes: &mut Vec<String>) {
    let model = &json["model"];
    let is_bpe = model["type"] == "BPE";
    if is_bpe && is_byte_level(json) {
        let missing = missing_bytes(json);
        if missing > 0 && model["fuse_unk"] == true && !model["unk_token"].is_null() {
            notes.push(format!(
                "{missing} bytes have no token: each becomes an unknown token, and Hugging Face's tokenizer joins them"
            ));
        }
    } else if is_bpe && !splits_words(json) && model["unk_token"].is_null() && model["byte_fallback"] != true {
        notes.push(
            "characters without a token become the unknown token, which Hugging Face's tokenizer leaves out".to_owned(),
        );
    }
    let is_longer = |entry: &Value| entry[1].as_f64().is_some_and(|score| f64::from(score as f32) != score);
    // If the file was converted from a SentencePiece model, its scores have no more digits than f32, except for a few
    // sums.
    let texts = || list(&model["vocab"]).filter(|entry| !entry[0].as_str().is_some_and(is_byte));
    let longer = texts().filter(|entry| is_longer(entry)).count();
    if model["type"] == "Unigram" && longer * 2 > texts().count() {
        notes.push(
            "scores are rounded to f32: a text that has several best tokenizations may get another one".to_owned(),
        );
    }
}

/// Returns notes about texts that become special or byte tokens in Hugging Face's tokenizer, because its unigrams
/// include these tokens. In SentencePiece, and here, such texts are ordinary.
fn spelled(json: &Value, steps: &[Step]) -> Vec<String> {
    let model = &json["model"];
    if model["type"] != "Unigram" {
        return Vec::new();
    }
    let is_known = |test: &dyn Fn(&str) -> bool| list(&model["vocab"]).any(|entry| entry[0].as_str().is_some_and(test));
    let controls: Vec<&str> = list(&json["added_tokens"])
        .filter(|token| is_control(token))
        .filter_map(|token| token["content"].as_str())
        .collect();
    // The map of a SentencePiece model is not in this list, because the model's own tokenizer does the same as ours.
    let changes = |step: &Step| matches!(step, Step::Lowercase | Step::Nfkc | Step::Nfkd);
    let has_special = steps.iter().any(changes) && is_known(&|text| controls.contains(&text));
    let has_bytes = model["byte_fallback"] == true && is_known(&is_byte);
    [
        (has_special, "becomes a special token only when it is normalized"),
        (has_bytes, "spells a byte token, such as <0x41>,"),
    ]
    .into_iter()
    .filter(|(has, _)| *has)
    .map(|(_, text)| format!("a text that {text} gets other tokens than from Hugging Face's tokenizer"))
    .collect()
}

/// Returns a note if the normalizer may drop a text's first character: Hugging Face's `Metaspace` with the scheme
/// `first` then adds no space before the text.
fn first_dropped(json: &Value, steps: &[Step]) -> Option<String> {
    let is_first = part(&json["pre_tokenizer"], "Metaspace").is_some_and(|it| it["prepend_scheme"] == "first");
    let drops = |step: &Step| matches!(step, Step::Nmt | Step::StripAccents | Step::Precompiled);
    (is_first && steps.iter().any(drops)).then(|| {
        "a text whose first character the normalizer drops begins with a space, unlike in Hugging Face's tokenizer"
            .to_owned()
    })
}

/// Returns true if the host may apply `step` although the file has `normalizer`, which the core replaces, before
/// `step`. (The map converts white space to spaces. If the core drops spaces at the ends, the order of `Strip` and the
/// map does not matter.)
fn commute(normalizer: &Value, step: Step, strips_spaces: bool) -> bool {
    let is_step = normalizer["type"].as_str().is_some_and(|kind| Step::of_normalizer(kind).is_some());
    let is_strip = normalizer["type"] == "Strip" && strips_spaces;
    is_step
        || step == Step::Precompiled && is_strip
        || step.keeps_spaces() && (normalizer["type"] == "Prepend" || replaces_space(normalizer))
}

/// Refuses added tokens that the file's tokenizer finds at a stage at which Arenite does not. Arenite finds control
/// tokens before normalization and all other added tokens after it.
fn added(json: &Value, normalizers: &[&Value], steps: &[Step], notes: &mut Vec<String>) -> Result<()> {
    let lowers = |it: &&Value| it["type"] == "BertNormalizer" && it["lowercase"] != false;
    let prepends = normalizers.iter().any(|it| it["type"] == "Prepend");
    let has_map = steps.contains(&Step::Precompiled);
    // `apply` has no map. The usual maps convert to NFKC.
    let changes = |text: &str| apply(steps, text) != text || has_map && apply(&[Step::Nfkc], text) != text;
    let only_composes = steps.iter().all(|step| matches!(step, Step::Nfc | Step::Precompiled));
    for token in list(&json["added_tokens"]) {
        let text = token["content"].as_str().unwrap_or_default();
        let is_control = is_control(token);
        let is_late = token["normalized"] == true;
        if prepends && is_late && is_control {
            notes.push(format!(
                "the added token {text:?} is found anywhere: Hugging Face's tokenizer finds it only after a space"
            ));
        } else if prepends && is_late {
            bail!("its added token {text:?} is found after normalization, which is not supported");
        }
        if is_control && !steps.is_empty() && token["single_word"] == true {
            bail!("its added token {text:?} has single_word, which is not supported beside a normalizer");
        }
        if token["single_word"] == true && is_ordinary(json, token) {
            bail!("its added token {text:?} has single_word and is an ordinary token, too, which is not supported");
        }
        let is_word = || text.to_lowercase() == text && text.chars().all(char::is_alphanumeric);
        if !is_late && is_word() && is_ordinary(json, token) && normalizers.iter().any(lowers) {
            notes.push(format!("the added token {text:?} is found in this spelling only, not in other cases"));
        }
        if is_late && text.contains("  ") && normalizers.iter().any(|it| it["pattern"]["Regex"] == " {2,}") {
            bail!("its added token {text:?} has spaces that the normalizer merges, which is not supported");
        }
        let is_marked = text.contains('▁') && text.contains(|c| c != '▁');
        let is_converted = is_late && normalizers.iter().any(|it| replaces_space(it));
        if !is_control && is_marked && !is_converted && marks_spaces(json) {
            notes.push(format!("the added token {text:?} is found where a text has spaces in place of \"▁\""));
        }
        let spelled = normalized::text(json, token);
        if spelled != text {
            notes.push(format!("the added token {text:?} is spelled {spelled:?}, as in normalized texts"));
        }
        let separates = |it: &&Value| it["type"] == "BertNormalizer" && it["handle_chinese_chars"] != false;
        if is_late && !spelled.contains(|c| c != ' ') && normalizers.iter().any(separates) {
            notes.push(format!("the added token {text:?} is not found in the spaces that are put around ideographs"));
        }
        if is_late && changes(text) {
            bail!("its added token {text:?} is changed by the normalizer, which is not supported");
        }
        if has_map && !is_late && !is_control {
            notes.push(format!("the added token {text:?} is also found in texts that the normalizer converts to it"));
        }
        if !only_composes && is_late == is_control {
            let place = if is_late { "after" } else { "before" };
            bail!("its added token {text:?} is found {place} normalization, which is not supported for its kind");
        }
    }
    notes.extend(overlap(json));
    Ok(())
}

/// Returns a note about added tokens that are found together by Hugging Face's tokenizer, but one after the other by
/// Arenite, if this makes a difference.
fn overlap(json: &Value) -> Option<String> {
    let early = || list(&json["added_tokens"]).filter(|token| token["normalized"] != true);
    let (control, others): (Vec<&Value>, Vec<&Value>) = early().partition(|token| is_control(token));
    let pairs = others.iter().flat_map(|token| control.iter().map(move |control| (*control, *token)));
    let (control, token) = pairs.into_iter().find(|(control, token)| normalized::overlap(control, token))?;
    Some(format!(
        "the added tokens {} and {} overlap: the first one is found first, unlike in Hugging Face's tokenizer",
        control["content"], token["content"]
    ))
}

/// Returns true if the model's own vocabulary also has the added token, so that merges of other tokens can form it.
fn is_ordinary(json: &Value, token: &Value) -> bool {
    let (model, text) = (&json["model"], token["content"].as_str().unwrap_or_default());
    let has_score = || model["vocab"][token["id"].as_u64()? as usize][0].as_str().map(|known| known == text);
    !model["vocab"][text].is_null() || model["vocab"].is_array() && has_score() == Some(true)
}

/// Collects the elements of a possibly nested sequence.
fn flatten<'v>(value: &'v Value, inner: &str, found: &mut Vec<&'v Value>) {
    match value["type"].as_str() {
        None => {}
        Some("Sequence") => list(&value[inner]).for_each(|part| flatten(part, inner, found)),
        Some(_) => found.push(value),
    }
}

fn is_supported(json: &Value, kind: &str, normalizer: &Value) -> bool {
    match (json["model"]["type"].as_str(), kind) {
        (Some("BPE"), _) if is_byte_level(json) => false,
        (Some("BPE"), "Prepend") => normalizer["prepend"] == "▁",
        (Some("BPE"), "Replace") => replaces_space(normalizer),
        (Some("Unigram"), "Replace") => normalizer["pattern"]["Regex"] == " {2,}" || replaces_space(normalizer),
        (Some("WordPiece"), "BertNormalizer") => true,
        _ => false,
    }
}

/// Returns true if several spaces in a row become one space, by a normalizer or because words are split at white space.
/// For such files, SentencePiece's rule is used, which also drops spaces at both ends.
pub fn has_single_spaces(json: &Value) -> bool {
    let mut normalizers = Vec::new();
    flatten(&json["normalizer"], "normalizers", &mut normalizers);
    normalizers.iter().any(|it| it["pattern"]["Regex"] == " {2,}")
        || part(&json["pre_tokenizer"], "WhitespaceSplit").is_some()
}

/// Returns true if a run of spaces at the end of a text becomes one space, as in Hugging Face's tokenizer without `Strip`.
/// SentencePiece drops the run.
pub fn keeps_last_space(json: &Value) -> bool {
    let mut normalizers = Vec::new();
    flatten(&json["normalizer"], "normalizers", &mut normalizers);
    json["model"]["type"] == "Unigram"
        && has_single_spaces(json)
        && part(&json["pre_tokenizer"], "WhitespaceSplit").is_none()
        && !normalizers.into_iter().any(strips_end)
}

fn strips_end(normalizer: &Value) -> bool {
    normalizer["type"] == "Strip" && normalizer["strip_right"] != false
}

/// Returns true if the file's pre-tokenizer splits texts into words and signs, and drops white space.
pub fn splits_words(json: &Value) -> bool {
    json["pre_tokenizer"]["type"] == "Whitespace"
}

/// Returns true if other white space becomes spaces.
fn converts_spaces(normalizer: &&Value) -> bool {
    normalizer["type"] == "Precompiled" || normalizer["type"] == "Nmt"
}

/// Returns true if the vocabulary has a token that contains numbers and other characters together. Added tokens do not
/// count, because they are found before words are split.
fn mixes_numbers(json: &Value) -> bool {
    let added: Vec<_> = list(&json["added_tokens"]).filter_map(|token| token["content"].as_str()).collect();
    let mixes = |token: &str| token.contains(char::is_numeric) && token.contains(|c: char| !c.is_numeric());
    let is_mixed = |token: &String| mixes(token) && !added.contains(&token.as_str());
    json["model"]["vocab"].as_object().is_some_and(|vocab| vocab.keys().any(is_mixed))
}

/// Returns true if the vocabulary spells a space as `▁`.
pub fn marks_spaces(json: &Value) -> bool {
    !is_byte_level(json) && !splits_words(json) && json["model"]["type"] != "WordPiece"
}

/// Returns true if the normalizer replaces spaces by `▁`.
pub fn replaces_space(normalizer: &Value) -> bool {
    normalizer["pattern"]["String"] == " " && normalizer["content"] == "▁"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_without_marks_are_refused() {
        let check = |pre_tokenizers: Value| {
            let words = json!({"type": "Sequence", "pretokenizers": pre_tokenizers});
            check(&json!({"pre_tokenizer": words, "model": {"type": "Unigram"}}), &mut Vec::new())
        };
        let split = json!({"type": "WhitespaceSplit"});
        for (scheme, is_right) in [("always", true), ("first", false), ("never", false)] {
            let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme});
            assert_eq!(check(json!([split, metaspace])).is_ok(), is_right, "{scheme}");
            assert!(check(json!([metaspace])).is_ok(), "{scheme}");
        }
        let old = json!({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false});
        assert!(check(json!([split, old])).is_err());
    }

    /// The import notes where the tokens can differ from those of Hugging Face's tokenizer: SentencePiece drops a space
    /// at the end of a text, which tokenizers 0.23 keeps.
    #[test]
    fn differences_from_hugging_faces_tokenizer_are_said() {
        let (map, spaces) = (json!({"type": "Precompiled"}), json!({"type": "Replace", "pattern": {"Regex": " {2,}"}}));
        let strip = json!({"type": "Strip", "strip_left": false, "strip_right": true});
        for (normalizers, is_different, has_step) in [
            (json!([]), false, false),
            (json!([map]), false, true),
            (json!([spaces]), false, false),
            (json!([map, spaces]), false, true),
            (json!([map, strip, spaces]), false, true),
            (json!([strip, map, spaces]), true, true),
        ] {
            let normalizer = json!({"type": "Sequence", "normalizers": normalizers});
            let mut notes = Vec::new();
            let words = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"});
            let file = json!({"normalizer": normalizer, "pre_tokenizer": words, "model": {"type": "Unigram"}});
            let steps = check(&file, &mut notes).unwrap();
            assert_eq!(steps, [Step::Precompiled][..usize::from(has_step)], "{normalizer}");
            let is_told = notes.iter().any(|note| note.contains("a space at the end of a text"));
            assert_eq!((is_told, notes.len()), (is_different, usize::from(is_different)), "{normalizer}");
        }
    }
}
