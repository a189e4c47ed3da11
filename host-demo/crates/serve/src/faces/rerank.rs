//! Fields of rankings: Cohere's (v1 and v2), Jina's, vLLM's and llama.cpp's, and text-embeddings-inference's, where
//! `texts` replaces `documents`.

use serde_json::{Value, json};

use super::{Field, Neutral, Result, Row, Use, fields, read};
use arenite_request::{Keep, Refusal};

/// A request for a ranking.
#[derive(Debug, Default)]
pub struct Ranked {
    pub model: Option<String>,
    pub query: String,
    /// The name of the field with the documents.
    pub field: &'static str,
    pub texts: Vec<String>,
    /// The documents as objects, for the answer.
    pub documents: Vec<Value>,
    pub returns_documents: bool,
    /// Number of documents in the answer.
    pub most: Option<usize>,
    /// Number of tokens to which each document is cut.
    pub most_tokens: Option<usize>,
    /// Number of tokens to which pairs are cut.
    pub keep: Keep,
    /// True if the answer is a bare list, which is the format of text-embeddings-inference.
    pub is_list: bool,
    /// True if scores are converted to numbers from 0 to 1, false if they are the model's own scores; `None` for the
    /// default of the format.
    pub is_share: Option<bool>,
}

/// Reads a request.
pub fn ranking(body: &Value) -> Result<Ranked> {
    let mut asked = Ranked::default();
    read(fields(body)?, &[ROWS], &mut asked)?;
    if body.get("query").is_none_or(|query| !query.is_string()) {
        return Err(Refusal::about("query", "query must be a text"));
    }
    match asked.field {
        "" => Err(Refusal::about("documents", "documents must be a list of texts")),
        _ => Ok(asked),
    }
}

pub(super) const ROWS: &[Row<Ranked>] = &[
    Row(
        &["model"],
        Use::Reads(|asked, field| {
            asked.model = Some(field.text()?);
            Ok(())
        }),
    ),
    Row(
        &["query"],
        Use::Reads(|asked, field| {
            asked.query = field.text()?;
            Ok(())
        }),
    ),
    Row(
        &["documents"],
        Use::Reads(|asked, field| {
            asked.field = field.name;
            let wrong = || field.refused("documents must be a list of texts");
            for document in field.value.as_array().ok_or_else(wrong)? {
                let text = document.as_str().or_else(|| document.get("text")?.as_str());
                let text = text.ok_or_else(|| field.refused("each document must be a text"))?;
                asked.texts.push(text.into());
                // A text becomes an object, because Cohere always returns objects.
                let shown = if document.is_string() { json!({ "text": text }) } else { document.clone() };
                asked.documents.push(shown);
            }
            Ok(())
        }),
    ),
    Row(
        &["texts"],
        Use::Reads(|asked, field| {
            if asked.field.is_empty() {
                (asked.field, asked.is_list) = (field.name, true);
                asked.texts = field.texts()?;
            }
            Ok(())
        }),
    ),
    Row(
        &["raw_scores"],
        Use::Reads(|asked, field| {
            asked.is_share = Some(!field.switch()?);
            Ok(())
        }),
    ),
    Row(
        &["top_n", "top_k"],
        Use::Reads(|asked, field| {
            // A negative number means all, as in vLLM.
            asked.most = usize::try_from(field.whole()?).ok();
            Ok(())
        }),
    ),
    Row(
        &["return_documents", "return_text"],
        Use::Reads(|asked, field| {
            asked.returns_documents = field.switch()?;
            Ok(())
        }),
    ),
    Row(
        &["max_tokens_per_doc"],
        Use::Reads(|asked, field| {
            asked.most_tokens = Some(field.count()?);
            Ok(())
        }),
    ),
    Row(
        &["truncate"],
        Use::Reads(|asked, field| {
            if *field.value == Value::Bool(true) || field.value == "END" {
                asked.keep = Keep::Fitting;
            }
            Ok(())
        }),
    ),
    Row(&["truncate_prompt_tokens"], Use::Reads(keep)),
    Row(
        &["truncation_direction"],
        Use::Reads(|_, field| match field.text()?.eq_ignore_ascii_case("right") {
            true => Ok(()),
            false => Err(Refusal::unsupported(field.name)),
        }),
    ),
    Row(&["relevant_spans"], Use::Refused(Neutral::Empty)),
    Row(&["rank_fields", "max_chunks_per_doc", "priority", "client_name", "user", "encoding_format"], Use::Harmless),
];

fn keep(asked: &mut Ranked, field: &Field<'_>) -> Result<()> {
    asked.keep = super::openai::kept(field)?;
    Ok(())
}
