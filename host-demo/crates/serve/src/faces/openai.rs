//! Fields of OpenAI's chats and completions, and of llama.cpp's completions, with the fields that vLLM, SGLang and
//! llama.cpp add.

use std::time::Duration;

use serde_json::{Value, json};

use super::form::FORM;
use super::refused::{HARMLESS, REFUSED};
use super::{Asked, Field, Neutral, Result, Row, Use, fields, read, tools};
use arenite_request::{
    Biased, Content, Infill, Input, Keep, MOST_CHOICES, Message, Named, Picture, PictureSource, Prompt, Refusal,
    Samplers,
};

/// Maximum number of alternatives for a token.
const MOST_LOGPROBS: usize = 20;
/// Maximum number of alternatives in llama.cpp's own format.
const MOST_PROBS: usize = 1000;

/// The tables of a chat.
pub(super) const OF_CHAT: [&[Row<Asked>]; 8] = [CHAT, tools::ROWS, SAMPLING, ANSWER, FORM, THINKING, REFUSED, HARMLESS];
/// The tables of a completion.
pub(super) const OF_COMPLETION: [&[Row<Asked>]; 6] = [COMPLETION, SAMPLING, ANSWER, FORM, REFUSED, HARMLESS];

/// Reads a request for a chat.
pub fn chat(body: &Value) -> Result<Asked> {
    let mut asked = Asked::default();
    read(fields(body)?, &OF_CHAT, &mut asked)?;
    asked.finish_tools()?;
    if asked.request.messages().is_empty() {
        return Err(Refusal::about("messages", "there are no messages"));
    }
    Ok(asked)
}

/// Reads a request for a completion.
pub fn completion(body: &Value) -> Result<Asked> {
    let mut asked = Asked::default();
    read(fields(body)?, &OF_COMPLETION, &mut asked)?;
    match &asked.request.input {
        Input::Texts(texts) if texts.is_empty() => {
            Err(Refusal::about("prompt", "prompt must be a text, tokens, or a list of these"))
        }
        _ => Ok(asked),
    }
}

/// Seeds that stand for a random seed. llama.cpp's is the largest number of 32 bits, which its `/props` also reports.
const RANDOM: [i64; 2] = [-1, u32::MAX as i64];

/// The conversation.
const CHAT: &[Row<Asked>] = &[
    Row(
        &["messages"],
        Use::Reads(|asked, field| {
            let messages: std::result::Result<Vec<_>, _> = field.list()?.iter().map(Message::of).collect();
            let messages = messages.map_err(|why| field.refused(why))?;
            asked.request.continues = messages.last().is_some_and(|last| last.is_open);
            asked.request.input = Input::Chat(messages);
            Ok(())
        }),
    ),
    Row(
        &["continue_final_message"],
        Use::Reads(|asked, field| {
            let is_answer = |last: &Message| last.role == "assistant";
            if field.switch()? && !asked.request.messages().last().is_some_and(is_answer) {
                return Err(field.refused(format!("{}: the last message must be the assistant's", field.name)));
            }
            asked.request.continues |= field.switch()?;
            Ok(())
        }),
    ),
    Row(
        &["add_generation_prompt"],
        Use::Reads(|asked, field| {
            asked.request.is_closed = !field.switch()?;
            Ok(())
        }),
    ),
    Row(
        &["documents"],
        Use::Reads(|asked, field| {
            asked.request.arguments.insert("documents".into(), field.value.clone());
            Ok(())
        }),
    ),
    Row(
        &["modalities"],
        Use::Reads(|_, field| match field.list()?.iter().all(|modality| modality == "text") {
            true => Ok(()),
            false => Err(Refusal::unsupported(field.name)),
        }),
    ),
    Row(&["echo"], Use::Refused(Neutral::Empty)),
    Row(&["suffix"], Use::Refused(Neutral::Empty)),
    Row(&["image_data"], Use::Refused(Neutral::Empty)),
];

/// The text to continue.
const COMPLETION: &[Row<Asked>] = &[
    Row(
        &["prompt"],
        Use::Reads(|asked, field| {
            asked.request.input = Input::Texts(field.prompts()?);
            Ok(())
        }),
    ),
    Row(
        &["echo"],
        Use::Reads(|asked, field| {
            asked.request.echo = field.switch()?;
            Ok(())
        }),
    ),
    Row(&["image_data"], Use::Reads(image_data)),
    Row(&["suffix"], Use::Reads(suffix)),
    Row(&["continue_final_message", "add_generation_prompt"], Use::Harmless),
];

/// Reads the text after the cursor. A completion with such a text fills the gap between the prompt and this text.
pub fn suffix(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let suffix = field.text()?;
    if suffix.is_empty() {
        return Ok(());
    }
    let prefix = match &asked.request.input {
        Input::Texts(texts) if texts.is_empty() => String::new(),
        Input::Texts(texts) => match &texts[..] {
            [Prompt::Text(text)] => text.clone(),
            _ => return Err(field.refused("suffix goes with a prompt that is one text")),
        },
        _ => return Err(Refusal::unsupported(field.name)),
    };
    if asked.request.echo {
        return Err(field.refused("suffix and echo exclude each other: leave one out"));
    }
    let prefix = Some(Named { field: "prompt", value: prefix });
    asked.request.input = Input::Infill(Infill { prefix, suffix: Some(field.named(suffix)), ..Infill::default() });
    Ok(())
}

/// Reads pictures in an older format of llama.cpp, `[{"id": 12, "data": BASE64}]`. The text `[img-12]` in the prompt is
/// the place of picture 12.
fn image_data(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let list = field.list()?;
    let Input::Texts(prompts) = &mut asked.request.input else { return Ok(()) };
    let ([Prompt::Text(text)], false) = (&prompts[..], list.is_empty()) else {
        return if list.is_empty() {
            Ok(())
        } else {
            Err(field.refused("image_data goes with a prompt that is one text"))
        };
    };
    let mut content = Content::from(text.clone());
    for image in list {
        let data = image.get("data").and_then(Value::as_str);
        let data = data.ok_or_else(|| field.refused("a picture in image_data needs data"))?;
        let source = PictureSource::of_base64(data).map_err(|why| field.refused(why))?;
        let id = image.get("id").and_then(Value::as_i64).unwrap_or_default();
        let place = format!("[img-{id}]");
        let wrong = || field.refused(format!("the prompt has no place {place} for the picture {id}"));
        let at = content.text.find(&place).ok_or_else(wrong)?;
        content.text.replace_range(at..at + place.len(), "");
        let later = content.pictures.iter_mut().filter(|picture| picture.at > at);
        later.for_each(|picture| picture.at -= place.len());
        content.pictures.push(Picture { at, source });
    }
    content.pictures.sort_by_key(|picture| picture.at);
    *prompts = vec![Prompt::Seen(content)];
    Ok(())
}

/// A row for a number of the sampler.
macro_rules! sampling {
    ($names:expr, $to:ident, $read:ident) => {
        Row(
            $names,
            Use::Reads(|asked, field| {
                asked.request.sampling.$to = Some(field.$read()?);
                Ok(())
            }),
        )
    };
}

/// The sampler and the limits of an answer.
pub const SAMPLING: &[Row<Asked>] = &[
    sampling!(&["temperature"], temperature, number),
    sampling!(&["top_p"], top_p, number),
    sampling!(&["top_k"], top_k, whole),
    sampling!(&["min_p"], min_p, number),
    sampling!(&["typical_p", "typ_p"], typical_p, number),
    sampling!(&["repeat_penalty", "repetition_penalty"], repeat_penalty, number),
    sampling!(&["repeat_last_n"], repeat_last_n, whole),
    sampling!(&["frequency_penalty"], frequency_penalty, number),
    sampling!(&["presence_penalty"], presence_penalty, number),
    sampling!(&["min_keep"], min_keep, whole),
    sampling!(&["top_n_sigma"], top_n_sigma, number),
    sampling!(&["xtc_probability"], xtc_probability, number),
    sampling!(&["xtc_threshold"], xtc_threshold, number),
    sampling!(&["dry_multiplier"], dry_multiplier, number),
    sampling!(&["dry_base"], dry_base, number),
    sampling!(&["dry_allowed_length"], dry_allowed_length, whole),
    sampling!(&["dry_penalty_last_n"], dry_penalty_last_n, whole),
    sampling!(&["dry_sequence_breakers"], dry_sequence_breakers, texts),
    sampling!(&["dynatemp_range"], dynatemp_range, number),
    sampling!(&["dynatemp_exponent"], dynatemp_exponent, number),
    sampling!(&["mirostat", "mirostat_mode"], mirostat, whole),
    sampling!(&["mirostat_tau"], mirostat_tau, number),
    sampling!(&["mirostat_eta"], mirostat_eta, number),
    sampling!(&["adaptive_target"], adaptive_target, number),
    sampling!(&["adaptive_decay"], adaptive_decay, number),
    Row(
        &["samplers"],
        Use::Reads(|asked, field| {
            let names = match field.value {
                Value::String(letters) => Samplers::names_of_letters(letters),
                Value::Array(_) => field.texts()?,
                _ => {
                    let message = "samplers: give a list of names, such as [\"top_k\", \"temperature\"]";
                    return Err(field.refused(message));
                }
            };
            asked.request.sampling.order = Some(names);
            Ok(())
        }),
    ),
    Row(
        &["seed", "random_seed"],
        Use::Reads(|asked, field| {
            asked.request.seed = Some(field.whole()?).filter(|seed| !RANDOM.contains(seed)).map(i64::cast_unsigned);
            Ok(())
        }),
    ),
    Row(
        &["cache_prompt"],
        Use::Reads(|asked, field| {
            asked.request.reads_anew = !field.switch()?;
            Ok(())
        }),
    ),
    Row(
        &["n_cache_reuse"],
        Use::Reads(|asked, field| {
            asked.request.reuse = Some(field.count()?);
            Ok(())
        }),
    ),
    Row(
        &["id_slot", "slot_id"],
        Use::Reads(|asked, field| {
            // A negative number means any slot.
            asked.request.slot = usize::try_from(field.whole()?).ok();
            Ok(())
        }),
    ),
    Row(
        &["n_keep", "num_keep"],
        Use::Reads(|asked, field| {
            asked.request.n_keep = field.whole()?;
            Ok(())
        }),
    ),
    Row(
        &["n_discard"],
        Use::Reads(|asked, field| {
            asked.request.n_discard = usize::try_from(field.whole()?).unwrap_or(0);
            Ok(())
        }),
    ),
    Row(&["stop"], Use::Reads(stop)),
    Row(
        &["stop_token_ids"],
        Use::Reads(|asked, field| {
            let wrong = || field.refused("stop_token_ids names a token that does not exist");
            let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong);
            asked.request.stop_ids = field.list()?.iter().map(id).collect::<Result<_>>()?;
            Ok(())
        }),
    ),
    Row(&["logit_bias"], Use::Reads(logit_bias)),
    Row(
        &["ignore_eos"],
        Use::Reads(|asked, field| {
            asked.request.ignore_end = field.switch()?;
            Ok(())
        }),
    ),
    Row(
        &["min_tokens"],
        Use::Reads(|asked, field| {
            asked.request.min_tokens = field.count()?;
            Ok(())
        }),
    ),
    Row(
        &["lora"],
        Use::Reads(|asked, field| {
            let wrong = || field.refused("lora must be a list of adapters: [{\"id\": 0, \"scale\": 1.0}]");
            let scale = |scale: &Value| {
                let id = scale.get("id").and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
                let scale = scale.get("scale").and_then(Value::as_f64).map(|scale| scale as f32);
                id.zip(scale).ok_or_else(wrong)
            };
            asked.request.lora = Some(field.list()?.iter().map(scale).collect::<Result<_>>()?);
            Ok(())
        }),
    ),
];

/// Reads one text or several texts that end the answer.
pub fn stop(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    asked.request.stops = field.texts()?;
    Ok(())
}

/// Reads an object or a list of pairs. A token is given by its id or, as in llama-server, by its text.
fn logit_bias(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let wrong = || field.refused("logit_bias must map tokens or texts to numbers");
    let pairs: Vec<(Value, &Value)> = match field.value {
        Value::Object(map) => map.iter().map(|(token, bias)| (json!(token), bias)).collect(),
        Value::Array(pairs) => {
            let pair = |pair: &Value| pair.as_array().filter(|pair| pair.len() == 2).is_some();
            if !pairs.iter().all(pair) {
                return Err(wrong());
            }
            pairs.iter().map(|pair| (pair[0].clone(), &pair[1])).collect()
        }
        _ => return Err(wrong()),
    };
    let is_object = field.value.is_object();
    for (token, bias) in pairs {
        let id = |id: u64| u32::try_from(id).map_err(|_| field.refused("logit_bias names a token that does not exist"));
        let biased = match &token {
            // `logit_bias` may be an object, whose keys are texts. A key that looks like a number is the id of a token.
            Value::String(text) => match text.parse::<u64>() {
                Ok(number) if is_object => Biased::Token(id(number)?),
                _ => Biased::Text(text.clone()),
            },
            token => match (token.as_u64(), token.as_f64()) {
                (Some(number), _) => Biased::Token(id(number)?),
                (None, Some(number)) if number >= 0.0 && number.fract() == 0.0 => Biased::Token(id(number as u64)?),
                (None, Some(_)) => return Err(field.refused("logit_bias names a token that does not exist")),
                _ => return Err(wrong()),
            },
        };
        let bias = match (bias, bias.as_f64()) {
            (Value::Bool(false), _) => f32::NEG_INFINITY,
            (_, Some(bias)) if bias <= -100.0 => f32::NEG_INFINITY,
            (_, Some(bias)) => bias as f32,
            _ => return Err(field.refused("a bias in logit_bias is no number")),
        };
        asked.request.bias.push((biased, bias));
    }
    Ok(())
}

/// The number, the length and the report of answers.
pub const ANSWER: &[Row<Asked>] = &[
    Row(
        &["model"],
        Use::Reads(|asked, field| {
            asked.request.model = Some(field.text()?);
            Ok(())
        }),
    ),
    Row(
        &["stream"],
        Use::Reads(|asked, field| {
            asked.reply.stream = field.switch()?;
            Ok(())
        }),
    ),
    Row(
        &["stream_options"],
        Use::Reads(|asked, field| {
            let given = field.object()?.get("include_usage");
            asked.reply.include_usage = given.and_then(Value::as_bool).unwrap_or(false);
            Ok(())
        }),
    ),
    Row(
        &["n_predict", "max_completion_tokens", "max_tokens"],
        Use::Reads(|asked, field| {
            asked.request.limit = field.limit()?;
            Ok(())
        }),
    ),
    Row(
        &["n_cmpl", "n"],
        Use::Reads(|asked, field| match field.whole()? {
            n if (1..=MOST_CHOICES as i64).contains(&n) => {
                asked.request.count = Some(n as usize);
                Ok(())
            }
            n => Err(Refusal::about("n", format!("n is {n}, and 1 to {MOST_CHOICES} are possible"))),
        }),
    ),
    Row(
        &["best_of"],
        Use::Reads(|asked, field| match field.count()? == asked.request.count.unwrap_or(1) {
            true => Ok(()),
            false => Err(Refusal::unsupported(field.name)),
        }),
    ),
    Row(
        &["top_logprobs"],
        Use::Reads(|asked, field| {
            asked.top_logprobs = Some(alternatives(field)?);
            Ok(())
        }),
    ),
    Row(
        &["logprobs"],
        Use::Reads(|asked, field| {
            asked.request.logprobs = match field.value {
                Value::Bool(false) => None,
                Value::Bool(true) => Some(asked.top_logprobs.unwrap_or(0)),
                Value::Number(_) => Some(alternatives(field)?),
                _ => return Err(field.refused("logprobs must be true, false or a count")),
            };
            Ok(())
        }),
    ),
    Row(
        &["n_probs"],
        Use::Reads(|asked, field| {
            let count = at_most(field, MOST_PROBS)?;
            asked.request.logprobs = Some(count).filter(|count| *count > 0).or(asked.request.logprobs);
            Ok(())
        }),
    ),
    Row(
        &["truncate_prompt_tokens"],
        Use::Reads(|asked, field| {
            asked.request.keep = kept(field)?;
            Ok(())
        }),
    ),
    Row(
        &["n_indent"],
        Use::Reads(|asked, field| {
            asked.request.indent = usize::try_from(field.whole()?).unwrap_or(0);
            Ok(())
        }),
    ),
    Row(
        &["t_max_predict_ms"],
        Use::Reads(|asked, field| {
            let time = u64::try_from(field.whole()?).ok().filter(|time| *time > 0);
            asked.request.time = time.map(Duration::from_millis);
            Ok(())
        }),
    ),
    Row(
        &["timings_per_token"],
        Use::Reads(|asked, field| {
            asked.reply.has_timings = field.switch()?;
            Ok(())
        }),
    ),
    Row(
        &["response_fields"],
        Use::Reads(|asked, field| {
            asked.reply.fields = field.texts()?;
            Ok(())
        }),
    ),
    Row(
        &["return_tokens"],
        Use::Reads(|asked, field| {
            asked.reply.has_tokens = field.switch()?;
            Ok(())
        }),
    ),
];

/// Reads the number of tokens at the start of a prompt to keep; -1 means as many as fit.
pub fn kept(field: &Field<'_>) -> Result<Keep> {
    match field.whole()? {
        -1 => Ok(Keep::Fitting),
        count @ 1.. => Ok(Keep::Last(count as usize)),
        count => {
            let name = field.name;
            Err(field.refused(format!("{name} is {count}: give a number of tokens, or -1")))
        }
    }
}

/// Reads the number of alternatives for each token.
pub fn alternatives(field: &Field<'_>) -> Result<usize> {
    at_most(field, MOST_LOGPROBS)
}

fn at_most(field: &Field<'_>, most: usize) -> Result<usize> {
    match field.count()? {
        count if count <= most => Ok(count),
        count => {
            let name = field.name;
            Err(field.refused(format!("{name} is {count}, and at most {most} are possible")))
        }
    }
}

/// The settings of thoughts, and variables of the template.
pub const THINKING: &[Row<Asked>] = &[
    Row(
        &["reasoning"],
        Use::Reads(|asked, field| {
            let given = |key: &str| field.object().map(|object| object.get(key).filter(|value| !value.is_null()));
            let part = |value| Field { name: field.name, value };
            let thinking = &mut asked.request.thinking;
            if let Some(effort) = given("effort")? {
                thinking.try_hard(field.name, &part(effort).text()?);
            }
            if let Some(is_on) = given("enabled")? {
                thinking.turn(field.name, part(is_on).switch()?);
            }
            if let Some(budget) = given("max_tokens")? {
                thinking.budget = Some(part(budget).whole()?);
                // As in OpenRouter, a limit asks for thoughts.
                thinking.turn(field.name, thinking.budget != Some(0));
            }
            if let Some(is_hidden) = given("exclude")? {
                thinking.is_hidden |= part(is_hidden).switch()?;
            }
            Ok(())
        }),
    ),
    Row(
        &["thinking"],
        Use::Reads(|asked, field| {
            // `thinking` may also be true or false, because some templates have a switch with this name, which programs
            // then set directly.
            if let Value::Bool(is_on) = field.value {
                asked.request.thinking.turn(field.name, *is_on);
                return Ok(());
            }
            if let Some(kind) = field.object()?.get("type").and_then(Value::as_str) {
                asked.request.thinking.turn(field.name, kind != "disabled");
            }
            if let Some(value) = field.object()?.get("budget_tokens").filter(|value| !value.is_null()) {
                asked.request.thinking.budget = Some(Field { name: field.name, value }.whole()?);
            }
            Ok(())
        }),
    ),
    Row(
        &["reasoning_budget", "thinking_budget_tokens", "thinking_budget"],
        Use::Reads(|asked, field| {
            asked.request.thinking.budget = Some(field.whole()?);
            Ok(())
        }),
    ),
    Row(
        &["reasoning_effort"],
        Use::Reads(|asked, field| {
            asked.request.thinking.try_hard(field.name, &field.text()?);
            Ok(())
        }),
    ),
    Row(
        &["enable_thinking"],
        Use::Reads(|asked, field| {
            asked.request.thinking.turn(field.name, field.switch()?);
            Ok(())
        }),
    ),
    // OpenRouter's and vLLM's.
    Row(
        &["include_reasoning"],
        Use::Reads(|asked, field| {
            asked.request.thinking.is_hidden |= !field.switch()?;
            Ok(())
        }),
    ),
    Row(
        &["chat_template_kwargs"],
        Use::Reads(|asked, field| {
            asked.request.arguments.extend(field.object()?.clone());
            Ok(())
        }),
    ),
];
