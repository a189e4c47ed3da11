//! Refuses unsupported fields of requests that would change the answer. Accepts such a field with a neutral value, and
//! all fields that do not affect answers.

use serde_json::{Map, Value};

use super::error::ApiError;

/// The values of a field that leave the answer unchanged.
enum Neutral {
    /// Absent, null, false, or empty.
    Empty,
    /// The values of `Empty`, or this number.
    Number(f64),
    /// The values of `Empty`, or a negative number.
    Negative,
    /// The values of `Empty`, 0, or a negative number.
    NotPositive,
    /// The values of `Empty`, or this text.
    Text(&'static str),
}

use Neutral::{Empty, Negative, NotPositive, Number, Text};

/// Fields of OpenAI's, vLLM's and llama.cpp's requests that would change the answer.
const UNSUPPORTED: &[(&str, Neutral)] = &[
    ("suffix", Empty),
    ("functions", Empty),
    ("function_call", Text("auto")),
    ("audio", Empty),
    ("web_search_options", Empty),
    ("verbosity", Text("medium")),
    ("mirostat", Number(0.0)),
    ("mirostat_mode", Number(0.0)),
    ("xtc_probability", Number(0.0)),
    ("dry_multiplier", Number(0.0)),
    ("dynatemp_range", Number(0.0)),
    ("top_n_sigma", NotPositive),
    ("top_a", Number(0.0)),
    ("tfs_z", Number(1.0)),
    ("adaptive_target", Negative),
    ("smoothing_factor", Number(0.0)),
    ("epsilon_cutoff", Number(0.0)),
    ("eta_cutoff", Number(0.0)),
    ("no_repeat_ngram_size", Number(0.0)),
    ("penalty_alpha", Number(0.0)),
    ("guidance_scale", Number(1.0)),
    ("num_beams", Number(1.0)),
    ("use_beam_search", Empty),
    ("length_penalty", Number(1.0)),
    ("early_stopping", Empty),
    ("sampler_seq", Empty),
    ("guided_regex", Empty),
    ("guided_grammar", Empty),
    ("guided_whitespace_pattern", Empty),
    ("regex", Empty),
    ("ebnf", Empty),
    ("structural_tag", Empty),
    ("bad_words", Empty),
    ("allowed_token_ids", Empty),
    ("logits_processors", Empty),
    ("continue_final_message", Empty),
    ("include_stop_str_in_output", Empty),
    ("chat_template", Empty),
    ("image_data", Empty),
    ("prompt_logprobs", Empty),
    ("post_sampling_probs", Empty),
    ("prefix", Empty),
    ("thinking_forced_open", Empty),
    ("min_keep", Number(0.0)),
    ("no_stop_trim", Empty),
    ("stop_regex", Empty),
    ("custom_logit_processor", Empty),
    ("lora_path", Empty),
    ("session_params", Empty),
    ("grammar_lazy", Empty),
    ("grammar_triggers", Empty),
    ("logit_bias_exp", Empty),
    ("output_logits", Empty),
    ("return_token_ids", Empty),
    ("reasoning_format", Text("auto")),
    ("safe_prompt", Empty),
    ("prompt_mode", Empty),
    ("plugins", Empty),
    ("options", Empty),
    ("format", Empty),
    ("think", Empty),
];

/// Refuses a field that would change the answer.
pub fn check(fields: &Map<String, Value>) -> Result<(), ApiError> {
    for (name, value) in fields {
        let Some((_, neutral)) = UNSUPPORTED.iter().find(|(unsupported, _)| unsupported == name) else { continue };
        if !is_neutral(value, neutral) {
            return Err(ApiError::unsupported(name));
        }
    }
    if let Some(modalities) = fields.get("modalities").and_then(Value::as_array)
        && modalities.iter().any(|modality| modality != "text")
    {
        return Err(ApiError::unsupported("modalities"));
    }
    for name in ["add_generation_prompt", "skip_special_tokens", "separate_reasoning"] {
        if fields.get(name) == Some(&Value::Bool(false)) {
            return Err(ApiError::unsupported(name));
        }
    }
    Ok(())
}

fn is_neutral(value: &Value, neutral: &Neutral) -> bool {
    let is_empty = match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    };
    is_empty
        || match neutral {
            Empty => false,
            Number(number) => value.as_f64() == Some(*number),
            Negative => value.as_f64().is_some_and(|number| number < 0.0),
            NotPositive => value.as_f64().is_some_and(|number| number <= 0.0),
            Text(text) => value == text,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(fields: Value) -> Option<String> {
        check(fields.as_object().unwrap()).err().and_then(|error| error.param)
    }

    #[test]
    fn fields_that_change_the_answer_are_refused() {
        assert_eq!(refused(json!({ "mirostat": 2 })).as_deref(), Some("mirostat"));
        assert_eq!(refused(json!({ "suffix": "b" })).as_deref(), Some("suffix"));
        assert_eq!(refused(json!({ "modalities": ["text", "audio"] })).as_deref(), Some("modalities"));
        assert_eq!(refused(json!({ "dry_multiplier": 0.8 })).as_deref(), Some("dry_multiplier"));
        assert_eq!(refused(json!({ "separate_reasoning": false })).as_deref(), Some("separate_reasoning"));
        assert_eq!(refused(json!({ "reasoning_format": "none" })).as_deref(), Some("reasoning_format"));
        let harmless =
            json!({ "mirostat": 0, "suffix": null, "user": "me", "store": true, "tfs_z": 1.0, "xtc_probability": 0 });
        assert_eq!(refused(harmless), None);
        // llama.cpp's steps are off at these values.
        assert_eq!(refused(json!({ "top_n_sigma": 0, "adaptive_target": -0.01 })), None);
        assert_eq!(refused(json!({ "top_n_sigma": 0.5 })).as_deref(), Some("top_n_sigma"));
        assert_eq!(refused(json!({ "adaptive_target": 0 })).as_deref(), Some("adaptive_target"));
    }
}
