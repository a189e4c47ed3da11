//! Special tokens of a speech model.

use anyhow::{Result, bail};
use arenite::gguf::Value;
use arenite::model::{Spec, Stack};
use arenite::{Error, Gguf, TokenId};

use super::language::language_code;

pub struct Marks {
    /// Token that starts a transcript.
    pub start: TokenId,
    /// Token that ends a transcript. Smaller ids are text.
    pub end: TokenId,
    /// Token that starts the text of earlier windows.
    pub previous: Option<TokenId>,
    pub transcribe: Option<TokenId>,
    pub translate: Option<TokenId>,
    pub no_timestamps: Option<TokenId>,
    pub no_speech: Option<TokenId>,
    /// Codes of languages and their tokens.
    pub languages: Vec<(String, TokenId)>,
    /// Code of the language for requests that do not specify a language; `None` to detect the language.
    pub default_language: Option<String>,
    /// True if a request that names no task is translated.
    pub translates: bool,
}

impl Marks {
    pub fn new(gguf: &Gguf<'_>, spec: &Spec<'_>) -> Result<Self> {
        let Stack::Target { start, .. } = spec.stack() else { bail!(Error::NoPart { part: "encoder of sounds" }) };
        let prefix = gguf.architecture()?;
        let id = |name| gguf.u32(prefix, name).map(|id| id.filter(|id| (*id as usize) < spec.vocab));
        let mut languages = Vec::new();
        if let (Some(names), Some(ids)) = (gguf.array(prefix, "languages")?, gguf.array(prefix, "language_token_ids")?)
        {
            let mut names = names.strings();
            for i in 0..ids.len() {
                let (Some(name), Some(Value::U32(id))) = (names.next_string(), ids.get(i)) else { break };
                if (id as usize) < spec.vocab {
                    languages.push((String::from_utf8_lossy(name).into_owned(), id));
                }
            }
        }
        let text = |name| gguf.str(prefix, name).map(|text| text.map(String::from_utf8_lossy));
        Ok(Self {
            start,
            end: gguf.u32("tokenizer.ggml", "eos_token_id")?.unwrap_or(0),
            previous: id("previous_token_id")?,
            transcribe: id("transcribe_token_id")?,
            translate: id("translate_token_id")?,
            no_timestamps: id("no_timestamps_token_id")?,
            no_speech: id("no_speech_token_id")?,
            languages,
            default_language: text("default_language")?.and_then(|name| language_code(&name)),
            translates: text("default_task")?.is_some_and(|task| task == "translate"),
        })
    }

    /// Returns the token of a language, given as its code.
    pub fn language(&self, code: &str) -> Result<TokenId> {
        match self.languages.iter().find(|(name, _)| *name == code.to_ascii_lowercase()) {
            Some((_, id)) => Ok(*id),
            None if self.languages.is_empty() => bail!("the model is for one language: leave out --language"),
            None => {
                let names: Vec<_> = self.languages.iter().map(|(name, _)| name.as_str()).collect();
                bail!("the model does not know the language {code}; give one of: {}", names.join(", "))
            }
        }
    }
}
