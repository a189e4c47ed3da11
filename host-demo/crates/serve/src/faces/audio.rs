//! Fields of OpenAI's transcriptions and translations, and fields that servers for Whisper add. The fields are parts of
//! a form, so every value is a text; an empty text means that the field is absent.

use serde_json::{Map, Value};

use super::{Field, Result, Row, Use, read};
use arenite_request::Refusal;
use arenite_speech::{Format, Request, language_code};

/// A request for a transcript.
pub struct Transcribe {
    pub model: Option<String>,
    pub wanted: Request,
    pub format: Format,
    /// True if the answer has only the text.
    pub is_brief: bool,
}

/// Reads a request.
pub fn transcription(fields: &Map<String, Value>) -> Result<Transcribe> {
    let mut given = fields.clone();
    given.retain(|_, value| value != "");
    let mut asked = Transcribe { model: None, wanted: Request::default(), format: Format::Json, is_brief: true };
    read(&given, &[ROWS], &mut asked)?;
    Ok(asked)
}

pub(super) const ROWS: &[Row<Transcribe>] = &[
    Row(
        &["model"],
        Use::Reads(|asked, field| {
            asked.model = Some(field.text()?);
            Ok(())
        }),
    ),
    Row(
        &["language"],
        Use::Reads(|asked, field| {
            asked.wanted.language = language_code(&field.text()?);
            Ok(())
        }),
    ),
    // If several languages are possible, the model recognizes the language itself, because it cannot be limited to some
    // languages.
    Row(
        &["languages"],
        Use::Reads(|asked, field| {
            if let [language] = &field.texts()?[..] {
                asked.wanted.language = language_code(language);
            }
            Ok(())
        }),
    ),
    Row(
        &["prompt", "initial_prompt"],
        Use::Reads(|asked, field| {
            asked.wanted.prompt = Some(field.text()?);
            Ok(())
        }),
    ),
    Row(
        &["response_format"],
        Use::Reads(|asked, field| {
            asked.is_brief = field.text()? == "json";
            asked.format = match field.text()?.as_str() {
                "json" | "verbose_json" => Format::Json,
                "text" => Format::Text,
                "srt" => Format::Srt,
                "vtt" => Format::Vtt,
                _ => return Err(field.refused("response_format must be json, text, srt, vtt or verbose_json")),
            };
            Ok(())
        }),
    ),
    Row(
        &["temperature"],
        Use::Reads(|asked, field| {
            let temperature = field.text()?.trim().parse().ok().filter(|t| (0.0..=1.0).contains(t));
            let wrong = || field.refused("temperature must be a number from 0 to 1");
            asked.wanted.temperature = temperature.ok_or_else(wrong)?;
            Ok(())
        }),
    ),
    Row(&["timestamp_granularities"], Use::Reads(|_, field| one_of(field, &["segment"]))),
    Row(&["chunking_strategy"], Use::Reads(|_, field| one_of(field, &["auto"]))),
    Row(&["task"], Use::Reads(|_, field| one_of(field, &["transcribe"]))),
    Row(&["stream"], off()),
    Row(&["include"], off()),
    Row(&["word_timestamps"], off()),
    Row(&["translate"], off()),
    Row(&["diarize", "diarization"], off()),
    Row(&["known_speaker_names"], off()),
    Row(&["known_speaker_references"], off()),
    Row(&["hotwords"], off()),
    Row(&["keywords"], off()),
    Row(&["suppress_tokens"], off()),
    Row(&["split_on_word"], off()),
    Row(&["max_len"], off()),
    Row(&["no_timestamps"], off()),
    // These fields are ignored, because this server chooses text and detects silence by its own methods.
    Row(
        &[
            "user",
            "temperature_inc",
            "beam_size",
            "best_of",
            "vad_filter",
            "vad_parameters",
            "condition_on_previous_text",
            "no_speech_threshold",
            "seed",
        ],
        Use::Harmless,
    ),
];

/// The row of a field that must be off. Several texts mean off, because form libraries write a switch in different
/// ways.
const fn off() -> Use<Transcribe> {
    Use::Reads(|_, field| one_of(field, &["false", "0", "0.0", "no", "off", "none", "null", "[]"]))
}

fn one_of(field: &Field<'_>, values: &[&str]) -> Result<()> {
    let texts = field.texts()?;
    let is_known = |text: &String| text.is_empty() || values.contains(&text.to_ascii_lowercase().as_str());
    match texts.iter().all(is_known) {
        true => Ok(()),
        false => Err(Refusal::unsupported(field.name)),
    }
}
