//! Whisper and Moonshine.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::Family;
use crate::checkpoint::changes::{convolution, halves, same, squeezed};
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::Row;
use arenite_gguf_writer::Meta;

/// Tensor names that Whisper and Moonshine share.
#[rustfmt::skip]
const COMMON: &[Row] = &[
    ("encoder.conv1", "enc.conv1", convolution),
    ("encoder.conv1.bias", "enc.conv1.bias", same),
    ("encoder.conv2", "enc.conv2", convolution),
    ("encoder.conv2.bias", "enc.conv2.bias", same),
    ("decoder.embed_tokens", "token_embd", same),
    ("encoder.layer_norm", "enc.output_norm", same),
    ("enc.self_attn.q_proj", "attn_q", same),
    ("enc.self_attn.k_proj", "attn_k", same),
    ("enc.self_attn.v_proj", "attn_v", same),
    ("dec.self_attn.q_proj", "attn_q", same),
    ("dec.self_attn.k_proj", "attn_k", same),
    ("dec.self_attn.v_proj", "attn_v", same),
    ("dec.encoder_attn.q_proj", "cross_attn_q", same),
    ("dec.encoder_attn.k_proj", "cross_attn_k", same),
    ("dec.encoder_attn.v_proj", "cross_attn_v", same),
    ("proj_out", "output", same),
];

#[rustfmt::skip]
const WHISPER: &[Row] = &[
    ("encoder.embed_positions", "enc.position_embd", same),
    ("decoder.embed_positions", "dec.position_embd", same),
    ("decoder.layer_norm", "dec.output_norm", same),
    ("enc.self_attn.out_proj", "attn_o", same),
    ("enc.self_attn_layer_norm", "attn_norm", same),
    ("enc.fc1", "ffn_up", same),
    ("enc.fc2", "ffn_down", same),
    ("enc.final_layer_norm", "ffn_norm", same),
    ("dec.self_attn.out_proj", "attn_o", same),
    ("dec.self_attn_layer_norm", "attn_norm", same),
    ("dec.encoder_attn.out_proj", "cross_attn_o", same),
    ("dec.encoder_attn_layer_norm", "cross_attn_norm", same),
    ("dec.fc1", "ffn_up", same),
    ("dec.fc2", "ffn_down", same),
    ("dec.final_layer_norm", "ffn_norm", same),
];

/// Whisper's names in OpenAI's own checkpoints and in whisper.cpp's files.
#[rustfmt::skip]
pub const OPENAI: &[Row] = &[
    ("encoder.conv1", "enc.conv1", convolution),
    ("encoder.conv1.bias", "enc.conv1.bias", squeezed),
    ("encoder.conv2", "enc.conv2", convolution),
    ("encoder.conv2.bias", "enc.conv2.bias", squeezed),
    ("encoder.positional_embedding", "enc.position_embd.weight", same),
    ("encoder.ln_post", "enc.output_norm", same),
    ("decoder.positional_embedding", "dec.position_embd.weight", same),
    ("decoder.token_embedding", "token_embd", same),
    ("decoder.ln", "dec.output_norm", same),
    ("enc.attn.query", "attn_q", same),
    ("enc.attn.key", "attn_k", same),
    ("enc.attn.value", "attn_v", same),
    ("enc.attn.out", "attn_o", same),
    ("enc.attn_ln", "attn_norm", same),
    ("enc.mlp.0", "ffn_up", same),
    ("enc.mlp.2", "ffn_down", same),
    ("enc.mlp_ln", "ffn_norm", same),
    ("dec.attn.query", "attn_q", same),
    ("dec.attn.key", "attn_k", same),
    ("dec.attn.value", "attn_v", same),
    ("dec.attn.out", "attn_o", same),
    ("dec.attn_ln", "attn_norm", same),
    ("dec.cross_attn.query", "cross_attn_q", same),
    ("dec.cross_attn.key", "cross_attn_k", same),
    ("dec.cross_attn.value", "cross_attn_v", same),
    ("dec.cross_attn.out", "cross_attn_o", same),
    ("dec.cross_attn_ln", "cross_attn_norm", same),
    ("dec.mlp.0", "ffn_up", same),
    ("dec.mlp.2", "ffn_down", same),
    ("dec.mlp_ln", "ffn_norm", same),
];

#[rustfmt::skip]
const MOONSHINE: &[Row] = &[
    ("encoder.conv3", "enc.conv3", convolution),
    ("encoder.conv3.bias", "enc.conv3.bias", same),
    ("encoder.groupnorm", "enc.conv1_norm", same),
    ("decoder.norm", "dec.output_norm", same),
    ("enc.self_attn.o_proj", "attn_o", same),
    ("enc.input_layernorm", "attn_norm", same),
    ("enc.post_attention_layernorm", "ffn_norm", same),
    ("enc.mlp.fc1", "ffn_up", same),
    ("enc.mlp.fc2", "ffn_down", same),
    ("dec.self_attn.o_proj", "attn_o", same),
    ("dec.input_layernorm", "attn_norm", same),
    ("dec.encoder_attn.o_proj", "cross_attn_o", same),
    ("dec.post_attention_layernorm", "cross_attn_norm", same),
    ("dec.final_layernorm", "ffn_norm", same),
    ("dec.mlp.fc1", "ffn_up ffn_gate", halves),
    ("dec.mlp.fc2", "ffn_down", same),
];

pub fn whisper(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let activation = c.text("activation_function").unwrap_or("gelu");
    ensure!(
        activation == "gelu",
        "activation_function {activation} in config.json is not supported: Whisper's is gelu"
    );
    c.only("scale_embedding", &Value::Bool(false))?;
    keys.number("context_length", &["max_target_positions"])?;
    keys.number("encoder_context_length", &["max_source_positions"])?;
    keys.number("mel_bins", &["num_mel_bins"])?;
    keys.number("embedding_length", &["d_model"])?;
    keys.number("feed_forward_length", &["encoder_ffn_dim"])?;
    keys.number("decoder_feed_forward_length", &["decoder_ffn_dim"])?;
    keys.number("block_count", &["encoder_layers"])?;
    keys.number("decoder_block_count", &["decoder_layers"])?;
    keys.number("attention.head_count", &["encoder_attention_heads"])?;
    keys.number("attention.decoder_head_count", &["decoder_attention_heads"])?;
    keys.set("attention.layer_norm_epsilon", 1e-5f32);
    keys.number("decoder_start_token_id", &["decoder_start_token_id"])
}

/// Number of encoder positions for 30 seconds, the longest sound that Moonshine was trained with.
const LONGEST: u32 = 1248;

fn moonshine(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    for (name, wanted) in [("encoder_hidden_act", "gelu"), ("decoder_hidden_act", "silu")] {
        let found = c.text(name).unwrap_or(wanted);
        ensure!(found == wanted, "{name} {found} in config.json is not supported: Moonshine's is {wanted}");
    }
    c.only("attention_bias", &Value::Bool(false))?;
    keys.number("context_length", &["max_position_embeddings"])?;
    keys.set("encoder_context_length", LONGEST);
    keys.number("embedding_length", &["hidden_size"])?;
    keys.number("feed_forward_length", &["intermediate_size"])?;
    keys.number("block_count", &["encoder_num_hidden_layers"])?;
    keys.number("decoder_block_count", &["decoder_num_hidden_layers"])?;
    let (heads, own) = (c.need(&["encoder_num_attention_heads"])?, c.need(&["decoder_num_attention_heads"])?);
    keys.set("attention.head_count", heads);
    keys.set("attention.head_count_kv", c.number(&["encoder_num_key_value_heads"])?.unwrap_or(heads));
    keys.set("attention.decoder_head_count", own);
    keys.set("attention.decoder_head_count_kv", c.number(&["decoder_num_key_value_heads"])?.unwrap_or(own));
    keys.set("attention.layer_norm_epsilon", 1e-5f32);
    ensure!(heads == own, "encoder and decoder in config.json have different heads, which is not supported");
    ensure!(matches!(c.rope_type(), None | Some("default")), "the rope type in config.json is not supported");
    let head = c.need(&["hidden_size"])? / heads.max(1);
    let share = c.rope_float("partial_rotary_factor").or(c.float(&["partial_rotary_factor"])?.map(f64::from));
    let rotated = (f64::from(head) * share.unwrap_or(0.9)) as u32;
    let base = c.rope_float("rope_theta").unwrap_or(10000.0);
    // transformers rotates whole pairs, but computes the frequencies from the number of elements, even if this number
    // is odd.
    let even = rotated.next_multiple_of(2);
    keys.set("rope.dimension_count", even);
    keys.set("rope.freq_base", base.powf(f64::from(even) / f64::from(rotated.max(1))) as f32);
    keys.number("decoder_start_token_id", &["decoder_start_token_id", "bos_token_id"])
}

/// Writes the ids of special tokens, and of tokens that are never generated. `settings` is `generation_config.json`,
/// and `tokenizer` is `tokenizer.json`.
pub fn tokens(settings: &Value, tokenizer: &Value, keys: &mut Keys<'_>) -> Result<()> {
    let config = keys.config.json();
    let find = |name: &str| [settings, &config].into_iter().map(|file| &file[name]).find(|value| !value.is_null());
    let number = |value: Option<&Value>| value.and_then(|value| u32::try_from(value.as_u64()?).ok());
    for name in ["suppress_tokens", "begin_suppress_tokens"] {
        let list = find(name).and_then(|list| list.as_array());
        let ids: Vec<u32> = list.into_iter().flatten().filter_map(|id| number(Some(id))).collect();
        if !ids.is_empty() {
            keys.set(name, Meta::array(ids));
        }
    }
    let added = tokenizer["added_tokens"].as_array();
    let ids: HashMap<&str, u32> = added
        .into_iter()
        .flatten()
        .filter_map(|token| Some((token["content"].as_str()?, number(Some(&token["id"]))?)))
        .collect();
    for (key, setting, names) in [
        ("no_timestamps_token_id", "no_timestamps_token_id", &["<|notimestamps|>"][..]),
        ("max_initial_timestamp_index", "max_initial_timestamp_index", &[]),
        ("previous_token_id", "prev_sot_token_id", &["<|startofprev|>"]),
        ("transcribe_token_id", "", &["<|transcribe|>"]),
        ("translate_token_id", "", &["<|translate|>"]),
        ("no_speech_token_id", "", &["<|nospeech|>", "<|nocaptions|>"]),
    ] {
        let id = number(find(setting)).or_else(|| names.iter().find_map(|name| ids.get(name).copied()));
        if let Some(id) = id {
            keys.set(key, id);
        }
    }
    // True for a model that was trained only with English. It gets no language tokens, although its vocabulary has
    // some. Older files lack `is_multilingual`. In these, `forced_decoder_ids` has the token of a language for other
    // models, but only the token of a text without timestamps for English models.
    let is_english = match (find("is_multilingual"), find("lang_to_id"), find("forced_decoder_ids")) {
        (Some(is_multilingual), ..) => is_multilingual == false,
        (None, None, Some(Value::Array(forced))) => {
            matches!(&forced[..], [pair] if number(Some(&pair[1])) == ids.get("<|notimestamps|>").copied())
        }
        _ => false,
    };
    if is_english {
        return Ok(());
    }
    let mut languages: Vec<(String, u32)> = match find("lang_to_id").and_then(|map| map.as_object()) {
        Some(map) => map.iter().filter_map(|(name, id)| Some((name.clone(), number(Some(id))?))).collect(),
        None => ids.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect(),
    };
    let code = |token: &str| {
        let code = token.strip_prefix("<|")?.strip_suffix("|>")?;
        ((2..=3).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_lowercase())).then(|| code.to_owned())
    };
    languages.sort_by_key(|(_, id)| *id);
    let languages: Vec<(String, u32)> =
        languages.into_iter().filter_map(|(token, id)| Some((code(&token)?, id))).collect();
    if !languages.is_empty() {
        keys.set("languages", Meta::strings(languages.iter().map(|(code, _)| code)));
        keys.set("language_token_ids", Meta::array(languages.iter().map(|(_, id)| *id)));
        let text = |name: &str| find(name).and_then(Value::as_str).map(str::to_owned);
        let (mut language, mut task) = (text("language"), text("task"));
        // As in transformers, the older setting `forced_decoder_ids` counts only if both newer settings are missing.
        if language.is_none() && task.is_none() {
            let forced = find("forced_decoder_ids").and_then(Value::as_array);
            for id in forced.into_iter().flatten().filter_map(|pair| number(Some(&pair[1]))) {
                let is = |token: &str| ids.get(token) == Some(&id);
                let named = languages.iter().find(|(_, own)| *own == id).map(|(code, _)| code.clone());
                language = language.or(named);
                task = task.or_else(|| TASKS.into_iter().find(|task| is(&format!("<|{task}|>"))).map(str::to_owned));
            }
        }
        defaults(language, task, keys)?;
    }
    Ok(())
}

const TASKS: [&str; 2] = ["transcribe", "translate"];

/// Writes the language and the task for requests that do not specify them.
fn defaults(language: Option<String>, task: Option<String>, keys: &mut Keys<'_>) -> Result<()> {
    if let Some(language) = language {
        let name = language.strip_prefix("<|").and_then(|name| name.strip_suffix("|>")).unwrap_or(&language);
        keys.set("default_language", name.to_lowercase().as_str());
    }
    if let Some(task) = task {
        ensure!(
            TASKS.contains(&task.as_str()),
            "the task {task:?} in generation_config.json is not supported: give transcribe or translate"
        );
        keys.set("default_task", task.as_str());
    }
    Ok(())
}

/// Refuses settings of the feature extractor that differ from the settings of the front end. `settings` is
/// `preprocessor_config.json`; a missing setting has the default of the extractor's class.
pub fn check_extractor(settings: &Value, architecture: &str) -> Result<()> {
    let whisper = [
        ("sampling_rate", json!(16000), 16000.into()),
        ("hop_length", json!(160), 160.into()),
        ("n_fft", json!(400), 400.into()),
    ];
    let moonshine = [("sampling_rate", json!(16000), 16000.into()), ("do_normalize", json!(false), true.into())];
    let fixed: &[(&str, Value, Value)] = if architecture == "whisper" { &whisper } else { &moonshine };
    for (name, wanted, usual) in fixed {
        let found = Some(&settings[*name]).filter(|value| !value.is_null()).unwrap_or(usual);
        ensure!(
            found == wanted,
            "{name} in preprocessor_config.json is {found}, and only {wanted} is implemented for {architecture}"
        );
    }
    Ok(())
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["WhisperForConditionalGeneration"],
        architecture: "whisper",
        names: &[COMMON, WHISPER],
        keys: whisper,
        ..Family::PLAIN
    },
    Family {
        classes: &["MoonshineForConditionalGeneration"],
        architecture: "moonshine",
        names: &[COMMON, MOONSHINE],
        keys: moonshine,
        ..Family::PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::config::Config;
    use arenite_gguf_writer::Header;

    /// The settings of whisper-tiny.en and whisper-tiny, without what later versions of transformers added.
    #[test]
    fn models_for_english_have_no_languages() {
        let added = [("<|en|>", 5), ("<|fr|>", 6), ("<|transcribe|>", 7), ("<|notimestamps|>", 9)];
        let added = added.map(|(content, id)| json!({ "content": content, "id": id }));
        let tokenizer = json!({ "added_tokens": added });
        for (settings, has_languages) in [
            (json!({}), true),
            (json!({ "forced_decoder_ids": [[1, 9]] }), false),
            (json!({ "forced_decoder_ids": [[1, 5], [2, 7], [3, 9]] }), true),
            (json!({ "forced_decoder_ids": [[1, 9]], "is_multilingual": true }), true),
            (json!({ "forced_decoder_ids": [[1, 9]], "lang_to_id": { "<|en|>": 5 } }), true),
            (json!({ "is_multilingual": false }), false),
        ] {
            let config = Config::new(&json!({ "architectures": ["WhisperForConditionalGeneration"] })).unwrap();
            let mut header = Header::new();
            let mut keys = Keys { config: &config, architecture: "whisper", header: &mut header };
            tokens(&settings, &tokenizer, &mut keys).unwrap();
            assert_eq!(header.has("whisper.languages"), has_languages, "{settings}");
        }
    }

    #[test]
    fn only_the_front_ends_of_the_models_are_accepted() {
        for (architecture, settings, refused) in [
            ("whisper", json!({}), None),
            ("whisper", json!({ "sampling_rate": 16000, "hop_length": 160, "n_fft": 400, "do_normalize": true }), None),
            ("whisper", json!({ "sampling_rate": 8000 }), Some("sampling_rate")),
            ("whisper", json!({ "hop_length": 80 }), Some("hop_length")),
            ("moonshine", json!({ "do_normalize": false }), None),
            ("moonshine", json!({ "do_normalize": false, "sampling_rate": 8000 }), Some("sampling_rate")),
            // The default of Wav2Vec2FeatureExtractor is to normalize.
            ("moonshine", json!({ "sampling_rate": 16000 }), Some("do_normalize")),
            ("moonshine", json!({ "do_normalize": true }), Some("do_normalize")),
        ] {
            let error = check_extractor(&settings, architecture).err().map(|error| error.to_string());
            let name = error.as_ref().and_then(|error| error.split(' ').next());
            assert_eq!(name, refused, "{architecture} {settings}");
        }
    }
}
