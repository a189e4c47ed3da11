//! Texts to embed, and pairs of texts to rank.

use arenite::TokenId;
use arenite::tokenizer::Encode;
use arenite_request::{Keep, Prompt, Refusal, RefusalKind};
use arenite_text::{self as text, Frame};

use super::{Service, few};
use crate::ranking::Texts;

/// Maximum number of texts in a request.
pub const MOST_TEXTS: usize = 2048;

/// A query, and documents to rank.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    /// The query.
    pub query: &'a str,
    /// The name of the field with the documents, for errors.
    pub field: &'a str,
    /// The documents.
    pub texts: &'a [String],
    /// The tokens of a pair to keep.
    pub keep: Keep,
    /// Number of tokens to which each document is cut.
    pub most_tokens: Option<usize>,
}

impl Service {
    /// Refuses embeddings if the results of the model are not vectors of texts.
    ///
    /// # Errors
    ///
    /// The model computes no embeddings.
    pub fn check_vectors(&self) -> Result<(), Refusal> {
        match (self.open.model().spec().ranks(), self.makes_vectors || self.makes_text) {
            (true, _) if self.ranking.is_none() => {
                Err(Refusal::invalid("this model is a classifier and computes no embeddings: use `arenite classify`"))
            }
            (true, _) => Err(Refusal::invalid("this model scores texts and computes no embeddings: use /v1/rerank")),
            (false, false) => Err(Refusal::invalid("this model computes no embeddings")),
            (false, true) => Ok(()),
        }
    }

    /// Returns the tokens of texts to embed, cut to `limit` tokens. `field` is the name of the texts in errors.
    ///
    /// # Errors
    ///
    /// A token is not in the model's vocabulary, or a text does not fit in its context.
    pub fn texts(&self, field: &str, prompts: &[Prompt], limit: Option<usize>) -> Result<Vec<Texts>, Refusal> {
        few(field, prompts.len(), MOST_TEXTS)?;
        let how = Encode { add_special: true, parse_special: false };
        let tokens = |prompt| self.tokens(field, prompt, how);
        let texts = prompts.iter().map(tokens).collect::<Result<Vec<_>, _>>()?;
        let frame = Frame::of(self.tokenizer()).unwrap_or_default();
        let one = |(_, ids): (String, Vec<TokenId>)| {
            let ids = limit.map_or(Ok(ids.clone()), |limit| frame.cut(ids, limit)).map_err(invalid)?;
            self.fitting(field, "a text", ids.into())
        };
        each(field, texts.into_iter().map(one))
    }

    /// Returns the tokens of the pairs of a query and each document.
    ///
    /// # Errors
    ///
    /// The model is not a reranker, or a pair does not fit in its context.
    pub fn pairs(&self, asked: &Pairs<'_>) -> Result<Vec<Texts>, Refusal> {
        let ranking = self
            .ranking
            .as_ref()
            .ok_or_else(|| Refusal::invalid("this model is no reranker: start the server with one"))?;
        few(asked.field, asked.texts.len(), MOST_TEXTS)?;
        let limit = match asked.keep {
            Keep::All => None,
            Keep::Fitting => Some(self.context),
            Keep::Last(limit) => Some(self.context.min(limit)),
        };
        let pair = |text: &String| {
            let text = asked.most_tokens.map_or(Ok(text.clone()), |most| self.cut(text, most)).map_err(invalid)?;
            let pair = ranking.pairing.pair(self.tokenizer(), asked.query, &text, limit).map_err(invalid)?;
            self.fitting(asked.field, "a pair of query and document", pair)
        };
        each(asked.field, asked.texts.iter().map(pair))
    }

    /// Returns the text of the first `most` tokens of a document.
    fn cut(&self, text: &str, most: usize) -> anyhow::Result<String> {
        let how = Encode { add_special: false, parse_special: false };
        let ids = text::encode(self.tokenizer(), text.as_bytes(), how)?;
        match ids.len() > most {
            true => Ok(String::from_utf8_lossy(&text::decode(self.tokenizer(), &ids[..most])?).into_owned()),
            false => Ok(text.to_string()),
        }
    }

    /// Checks that the tokens of a text or of a pair fit in the context.
    pub(crate) fn fitting(&self, param: &str, what: &str, texts: Texts) -> Result<Texts, Refusal> {
        let (len, context) = (texts.ids.len(), self.context);
        if (1..=context).contains(&len) {
            return Ok(texts);
        }
        let message = format!(
            "{what} has {len} tokens, and 1 to {context} are possible: shorten it, or cut it with truncate_prompt_tokens"
        );
        let kind = if len > context { RefusalKind::TooLong } else { RefusalKind::Invalid };
        Err(Refusal { kind, ..Refusal::about(param, message) })
    }
}

/// Divides a vector by its length, so that its length becomes 1. A vector of zeros is not changed.
pub fn unit(vector: &[f32]) -> Vec<f32> {
    let norm = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt().max(1e-12);
    vector.iter().map(|x| (f64::from(*x) / norm) as f32).collect()
}

fn invalid(error: impl std::fmt::Display) -> Refusal {
    Refusal::invalid(error.to_string())
}

/// Returns the results, or the first error. If there are several texts, the error names the index of its text.
fn each(field: &str, results: impl ExactSizeIterator<Item = Result<Texts, Refusal>>) -> Result<Vec<Texts>, Refusal> {
    let is_list = results.len() > 1;
    let at = |(at, result): (usize, Result<Texts, Refusal>)| {
        result.map_err(|refusal| match is_list {
            true => Refusal { message: format!("{field}[{at}]: {}", refusal.message), ..refusal },
            false => refusal,
        })
    };
    results.enumerate().map(at).collect()
}

/// Number of tokens of all texts.
pub fn token_count(texts: &[Texts]) -> usize {
    texts.iter().map(|texts| texts.ids.len()).sum()
}
