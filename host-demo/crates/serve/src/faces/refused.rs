//! Fields of OpenAI's, vLLM's, SGLang's and llama.cpp's requests that would change the answer but are not supported.

use super::Neutral::{Empty, Number, Text, True};
use super::{Asked, Row, Use};
use arenite_request::Refusal;

const fn no(names: &'static [&'static str], neutral: super::Neutral) -> Row<Asked> {
    Row(names, Use::Refused(neutral))
}

pub const REFUSED: &[Row<Asked>] = &[
    Row(
        &["functions", "function_call"],
        Use::Reads(|_, field| match Empty.includes(field.value) || Text("auto").includes(field.value) {
            true => Ok(()),
            false => Err(field.refused(format!("{} has been replaced: send tools and tool_choice", field.name))),
        }),
    ),
    // The value `none` and all other values are refused, because they ask for thoughts inside the text of the answer.
    // The answers here always have thoughts in a separate field.
    Row(
        &["reasoning_format"],
        Use::Reads(|_, field| match field.value.as_str() {
            Some("auto" | "deepseek") => Ok(()),
            _ => Err(Refusal::unsupported(field.name)),
        }),
    ),
    no(&["audio"], Empty),
    no(&["web_search_options"], Empty),
    no(&["top_a"], Number(0.0)),
    no(&["tfs_z"], Number(1.0)),
    no(&["smoothing_factor"], Number(0.0)),
    no(&["epsilon_cutoff"], Number(0.0)),
    no(&["eta_cutoff"], Number(0.0)),
    no(&["no_repeat_ngram_size"], Number(0.0)),
    no(&["penalty_alpha"], Number(0.0)),
    no(&["guidance_scale"], Number(1.0)),
    no(&["num_beams"], Number(1.0)),
    no(&["use_beam_search"], Empty),
    no(&["length_penalty"], Number(1.0)),
    no(&["early_stopping"], Empty),
    no(&["sampler_seq"], Empty),
    no(&["guided_whitespace_pattern"], Empty),
    no(&["structural_tag"], Empty),
    no(&["bad_words"], Empty),
    no(&["allowed_token_ids"], Empty),
    no(&["logits_processors"], Empty),
    no(&["include_stop_str_in_output"], Empty),
    no(&["chat_template"], Empty),
    no(&["prompt_logprobs"], Empty),
    no(&["post_sampling_probs"], Empty),
    no(&["prefix"], Empty),
    no(&["thinking_forced_open"], Empty),
    no(&["no_stop_trim"], Empty),
    no(&["stop_regex"], Empty),
    no(&["custom_logit_processor"], Empty),
    no(&["lora_path"], Empty),
    no(&["session_params"], Empty),
    no(&["grammar_lazy"], Empty),
    no(&["grammar_triggers"], Empty),
    no(&["logit_bias_exp"], Empty),
    no(&["output_logits"], Empty),
    no(&["return_token_ids"], Empty),
    no(&["safe_prompt"], Empty),
    no(&["prompt_mode"], Empty),
    no(&["plugins"], Empty),
    no(&["options"], Empty),
    no(&["format"], Empty),
    no(&["think"], Empty),
    no(&["skip_special_tokens"], True),
    no(&["separate_reasoning"], True),
];

/// Fields of the same clients that change no answer.
pub const HARMLESS: &[Row<Asked>] = &[
    // OpenAI: accounting, storage and caching of its service.
    Row(
        &[
            "user",
            "metadata",
            "store",
            "service_tier",
            "safety_identifier",
            "prompt_cache_key",
            "prompt_cache_retention",
            "prompt_cache_options",
            "prediction",
            "moderation",
        ],
        Use::Harmless,
    ),
    // llama.cpp: the cache and reports.
    Row(
        &["t_max_prompt_ms", "return_progress", "backend_sampling", "parse_tool_calls", "sse_ping_interval"],
        Use::Harmless,
    ),
    // vLLM, SGLang and others: scheduling and reports.
    Row(
        &[
            "priority",
            "request_id",
            "spaces_between_special_tokens",
            "guided_decoding_backend",
            "cache_salt",
            "kv_transfer_params",
            "add_special_tokens",
            "mm_processor_kwargs",
            "return_tokens_as_token_ids",
            "rid",
            "bootstrap_host",
        ],
        Use::Harmless,
    ),
];
