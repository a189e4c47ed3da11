//! Scores the relevance of documents to a query with reranker models.

use anyhow::{Result, ensure};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Gguf, Model, TokenId};

use arenite_text::{self as text, Frame};

/// Settings of a model's file for tokenizing a pair of texts.
pub struct Ranking {
    /// A template with `{query}` and `{document}`, for models that answer yes or no.
    template: Option<String>,
    /// True if the end token of the first text is repeated before the second text (`</s></s>`, as in XLM-RoBERTa).
    separated: bool,
    frame: Frame,
}

/// The tokens of one text or of a pair.
pub struct Texts {
    pub ids: Vec<TokenId>,
    /// Index of the second text's first token; the number of tokens if there is only one text.
    pub second: usize,
}

impl From<Vec<TokenId>> for Texts {
    fn from(ids: Vec<TokenId>) -> Self {
        Self { second: ids.len(), ids }
    }
}

impl Ranking {
    /// Reads the settings of a reranker.
    pub fn new(gguf: &Gguf<'_>, model: &Model<'_>, tokenizer: &Tokenizer<'_, '_>) -> Result<Self> {
        let spec = model.spec();
        ensure!(spec.ranks(), "this model does not score pairs of texts; give a reranker with -m");
        let template = gguf.str("tokenizer", "chat_template.rerank").ok().flatten();
        Ok(Self {
            template: template.map(|template| String::from_utf8_lossy(template).into_owned()),
            separated: matches!(gguf.str("tokenizer.ggml", "model"), Ok(Some(b"t5"))),
            frame: Frame::of(tokenizer)?,
        })
    }

    /// Tokenizes a pair, cut to at most `limit` tokens.
    pub fn pair(
        &self,
        tokenizer: &Tokenizer<'_, '_>,
        query: &str,
        document: &str,
        limit: Option<usize>,
    ) -> Result<Texts> {
        if let Some(template) = &self.template {
            return Ok(in_template(template, tokenizer, query, document, limit.unwrap_or(usize::MAX))?.into());
        }
        let how = Encode { add_special: true, parse_special: false };
        let mut ids = text::encode(tokenizer, query.as_bytes(), how)?;
        let mut second = text::encode(tokenizer, document.as_bytes(), how)?;
        let frame = &self.frame;
        // The second text has no start token of its own, but may have a separator.
        let start = frame.before_len();
        if let Some(limit) = limit {
            let special = 2 * frame.len() - start + usize::from(self.separated);
            ensure!(limit > special, "{limit} tokens are too few: a pair has {special} special ones");
            let (one, two) = longest_first(frame.inner_len(&ids), frame.inner_len(&second), limit - special);
            (ids, second) = (frame.cut(ids, one + frame.len())?, frame.cut(second, two + frame.len())?);
        }
        let first = ids.len();
        // If texts are separated, the end token of the first text is repeated before the second.
        ids.extend(ids.last().copied().filter(|_| self.separated));
        ids.extend(second.iter().skip(start));
        Ok(Texts { ids, second: first })
    }
}

/// Fills in a template and tokenizes it. If there are more than `limit` tokens, cuts the document.
fn in_template(
    template: &str,
    tokenizer: &Tokenizer<'_, '_>,
    query: &str,
    document: &str,
    limit: usize,
) -> Result<Vec<TokenId>> {
    let (before, after) = template.split_once("{document}").unwrap_or((template, ""));
    let (before, after) = (before.replace("{query}", query), after.replace("{query}", query));
    let how = Encode { add_special: false, parse_special: true };
    let ids = |document: &str| text::encode(tokenizer, [&before, document, &after].concat().as_bytes(), how);
    let whole = ids(document)?;
    if whole.len() <= limit {
        return Ok(whole);
    }
    let ends: Vec<usize> = document.char_indices().map(|(at, _)| at).collect();
    let (mut best, mut tried) = (ids("")?, 0..ends.len());
    ensure!(best.len() <= limit, "{limit} tokens are too few: the query takes {} of them", best.len());
    while !tried.is_empty() {
        let middle = tried.start + tried.len() / 2;
        let cut = ids(&document[..ends[middle]])?;
        if cut.len() <= limit {
            (best, tried.start) = (cut, middle + 1);
        } else {
            tried.end = middle;
        }
    }
    Ok(best)
}

/// Returns the lengths to which two texts are cut, so that they have at most `room` tokens together. Removes tokens
/// from the longer text first (Hugging Face's `longest_first`).
fn longest_first(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let short = first.min(second).min(room / 2);
    if first <= second { (short, room - short) } else { (room - short, short) }
}

/// Returns the score in a model's output: the only value, or the probability of the first of two classes (yes and no).
pub fn score(vector: &[f32]) -> f64 {
    match *vector {
        [yes, no] => 1.0 / (1.0 + (f64::from(no) - f64::from(yes)).exp()),
        [score, ..] => f64::from(score),
        [] => 0.0,
    }
}

/// Returns the score as a share from 0 to 1: the probability, or the logistic function of the only value.
pub fn share(vector: &[f32]) -> f64 {
    match *vector {
        [_, _] => score(vector),
        _ => 1.0 / (1.0 + (-score(vector)).exp()),
    }
}

#[cfg(test)]
mod tests {
    use super::longest_first;

    #[test]
    fn the_longer_text_is_cut() {
        // Expected values are those of the package `tokenizers` with `strategy="longest_first"`.
        for (texts, want) in [
            ((5, 100, 20), (5, 15)),
            ((100, 5, 20), (15, 5)),
            ((100, 200, 21), (10, 11)),
            ((200, 100, 21), (11, 10)),
            ((5, 6, 20), (5, 6)),
            ((3, 9, 7), (3, 4)),
            ((9, 3, 7), (4, 3)),
            ((8, 8, 9), (4, 5)),
            ((30, 31, 20), (10, 10)),
            ((1, 40, 20), (1, 19)),
            ((10, 12, 21), (10, 11)),
            ((12, 10, 21), (11, 10)),
        ] {
            let (first, second, room) = texts;
            assert_eq!(longest_first(first, second, room), want, "{texts:?}");
        }
    }
}
