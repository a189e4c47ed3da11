//! Relevance of documents to a query, by reranker models.

use anyhow::{Result, ensure};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Gguf, Model, TokenId};

use crate::text;

/// The file's settings for pairs of texts.
pub struct Ranking {
    /// A template with `{query}` and `{document}`, for models that answer yes or no.
    template: Option<String>,
    /// True if the second text starts with its own separator (`</s></s>`, XLM-RoBERTa).
    separated: bool,
}

/// The tokens of one text or of a pair.
pub struct Texts {
    pub ids: Vec<TokenId>,
    /// Index of the second text's first token.
    pub second: usize,
}

impl From<Vec<TokenId>> for Texts {
    fn from(ids: Vec<TokenId>) -> Self {
        Self { second: ids.len(), ids }
    }
}

impl Ranking {
    /// Reads the settings of a reranker.
    pub fn new(gguf: &Gguf<'_>, model: &Model<'_>) -> Result<Self> {
        let spec = model.spec();
        ensure!(spec.ranks(), "this model does not score pairs of texts; give a reranker with -m");
        let template = gguf.str("tokenizer", "chat_template.rerank").ok().flatten();
        Ok(Self {
            template: template.map(|template| String::from_utf8_lossy(template).into_owned()),
            separated: matches!(gguf.str("tokenizer.ggml", "model"), Ok(Some(b"t5"))),
        })
    }

    /// Tokenizes a pair.
    pub fn pair(&self, tokenizer: &Tokenizer<'_, '_>, query: &str, document: &str) -> Result<Texts> {
        if let Some(template) = &self.template {
            let (before, after) = template.split_once("{document}").unwrap_or((template, ""));
            let prompt = [&before.replace("{query}", query), document, &after.replace("{query}", query)].concat();
            let how = Encode { add_special: false, parse_special: true };
            return Ok(text::encode(tokenizer, prompt.as_bytes(), how)?.into());
        }
        let how = Encode { add_special: true, parse_special: false };
        let mut ids = text::encode(tokenizer, query.as_bytes(), how)?;
        let second = text::encode(tokenizer, document.as_bytes(), how)?;
        let first = ids.len();
        // If texts are separated, the end token of the first text is repeated before the second.
        ids.extend(ids.last().copied().filter(|_| self.separated));
        ids.extend(second.iter().skip(1));
        Ok(Texts { ids, second: first })
    }
}

/// The score from a model's output: the only value, or the probability of the first of two classes (yes and no).
pub fn score(vector: &[f32]) -> f64 {
    match *vector {
        [yes, no] => 1.0 / (1.0 + (f64::from(no) - f64::from(yes)).exp()),
        [score, ..] => f64::from(score),
        [] => 0.0,
    }
}
