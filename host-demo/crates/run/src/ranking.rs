//! Scores the relevance of documents to a query with reranker models.

use anyhow::{Result, bail, ensure};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Gguf, Model, TokenId};

use crate::classes::Labels;
use arenite_text::{self as text, Frame};

/// A reranker's output, and its pairs of texts.
pub struct Ranking {
    output: Output,
    pub pairing: Pairing,
}

/// Settings for tokenizing a pair of texts, read from a model's file.
pub struct Pairing {
    /// A template with `{query}` and `{document}`, for models that answer yes or no.
    template: Option<String>,
    /// True if the end token of the first text is repeated before the second text (`</s></s>`, as in RoBERTa).
    separated: bool,
    /// True if the second text has the token type 1.
    typed: bool,
    frame: Frame,
}

/// The meaning of a reranker's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// One value, the score.
    Score,
    /// Two classes. This one is that of relevant documents.
    Relevant(usize),
}

/// Labels of relevant documents in the files of rerankers with two classes. `LABEL_1` is the name that transformers
/// gives to the class of positive examples.
const RELEVANT: [&str; 5] = ["yes", "relevant", "true", "entailment", "label_1"];

impl Output {
    /// Finds the output that scores a document's relevance.
    ///
    /// # Errors
    ///
    /// The model is a classifier, and none of its classes means that a document is relevant.
    fn new(labels: &[String], has_template: bool) -> Result<Self> {
        let is_relevant = |label: &String| RELEVANT.contains(&label.trim().to_lowercase().as_str());
        let are_unnamed = labels.iter().all(|label| label.starts_with("LABEL_"));
        match labels {
            [_] => Ok(Self::Score),
            // If the two classes have no names, the first of them means that a document is relevant: a model with a
            // template answers yes or no, in this order.
            [_, _] if has_template && are_unnamed => Ok(Self::Relevant(0)),
            [a, b] if is_relevant(a) != is_relevant(b) => Ok(Self::Relevant(usize::from(is_relevant(b)))),
            _ => bail!(
                "this is a classifier with {} labels ({}{}), and not a reranker: use `arenite classify`",
                labels.len(),
                labels.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", "),
                if labels.len() > 3 { ", ..." } else { "" }
            ),
        }
    }
}

/// The tokens of one text or of a pair.
pub struct Texts {
    pub ids: Vec<TokenId>,
    /// Index of the first token that has the second token type, which is the type of the second text. If all tokens
    /// have the first type, this is the number of tokens.
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
        let pairing = Pairing::new(gguf, tokenizer)?;
        Ok(Self { output: Output::new(Labels::new(gguf, model)?.names(), pairing.template.is_some())?, pairing })
    }

    /// Returns the score of a document, which is computed from the model's output: the output's only value, or the
    /// probability that the document is relevant.
    pub fn score(&self, vector: &[f32]) -> f64 {
        match (self.output, vector) {
            (Output::Relevant(which), [a, b]) => {
                let (own, other) = if which == 0 { (a, b) } else { (b, a) };
                1.0 / (1.0 + (f64::from(*other) - f64::from(*own)).exp())
            }
            (_, [score, ..]) => f64::from(*score),
            (_, []) => 0.0,
        }
    }

    /// Returns the score of a document as a number from 0 to 1: the probability that it is relevant, or the logistic
    /// function of the model's only output.
    pub fn share(&self, vector: &[f32]) -> f64 {
        match self.output {
            Output::Relevant(_) => self.score(vector),
            Output::Score => 1.0 / (1.0 + (-self.score(vector)).exp()),
        }
    }
}

impl Pairing {
    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// The vocabulary has no special tokens that it should add to texts.
    pub fn new(gguf: &Gguf<'_>, tokenizer: &Tokenizer<'_, '_>) -> Result<Self> {
        let template = gguf.str("tokenizer", "chat_template.rerank").ok().flatten();
        Ok(Self {
            template: template.map(|template| String::from_utf8_lossy(template).into_owned()),
            separated: separators(gguf) > 1,
            typed: gguf.u32("tokenizer.ggml", "pair_token_type").ok().flatten() != Some(0),
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
        // The start token before the second text is left out, because a pair of texts has only one start token.
        let start = frame.before_len();
        if let Some(limit) = limit {
            let special = 2 * frame.len() - start + usize::from(self.separated);
            ensure!(limit > special, "{limit} tokens are too few: a pair has {special} special ones");
            let (one, two) = longest_first(frame.inner_len(&ids), frame.inner_len(&second), limit - special);
            (ids, second) = (frame.cut(ids, one + frame.len())?, frame.cut(second, two + frame.len())?);
        }
        let first = ids.len();
        ids.extend(ids.last().copied().filter(|_| self.separated));
        ids.extend(second.iter().skip(start));
        Ok(Texts { second: if self.typed { first } else { ids.len() }, ids })
    }
}

/// Number of special tokens between the texts of a pair. If a file does not state this number, it is two for a unigram
/// vocabulary (XLM-RoBERTa) and for a byte-level vocabulary of the architecture `bert` (RoBERTa), and one otherwise.
fn separators(gguf: &Gguf<'_>) -> u32 {
    let usual = match gguf.str("tokenizer.ggml", "model") {
        Ok(Some(b"t5")) => 2,
        Ok(Some(b"gpt2")) if gguf.architecture() == Ok("bert") => 2,
        _ => 1,
    };
    gguf.u32("tokenizer.ggml", "pair_separators").ok().flatten().unwrap_or(usual)
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

/// Returns the lengths to which two texts are cut, so that the two together have at most `room` tokens. Removes tokens
/// from the longer text first (Hugging Face's `longest_first`).
fn longest_first(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let short = first.min(second).min(room / 2);
    if first <= second { (short, room - short) } else { (room - short, short) }
}

#[cfg(test)]
mod tests {
    use super::{Output, longest_first};

    #[test]
    fn the_labels_say_which_class_is_relevant() {
        let output = |labels: &[&str], has_template| {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            Output::new(&labels, has_template).ok()
        };
        for (labels, has_template, want) in [
            (&["LABEL_0"][..], false, Some(Output::Score)),
            (&["yes", "no"], true, Some(Output::Relevant(0))),
            (&["no", "yes"], true, Some(Output::Relevant(1))),
            (&["LABEL_0", "LABEL_1"], true, Some(Output::Relevant(0))),
            (&["LABEL_0", "LABEL_1"], false, Some(Output::Relevant(1))),
            (&["not relevant", "relevant"], false, Some(Output::Relevant(1))),
            (&["RELEVANT", "IRRELEVANT"], false, Some(Output::Relevant(0))),
            (&["NEGATIVE", "POSITIVE"], false, None),
            (&["contradiction", "entailment", "neutral"], false, None),
        ] {
            assert_eq!(output(labels, has_template), want, "{labels:?}");
        }
    }

    #[test]
    fn the_longer_text_is_cut() {
        // The expected lengths come from the package `tokenizers` with `strategy="longest_first"`.
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
