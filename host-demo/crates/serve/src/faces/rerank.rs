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
    /// The fields of documents that are ranked; `text` if there are none.
    pub rank_fields: Vec<String>,
    pub returns_documents: bool,
    /// Number of documents in the answer.
    pub most: Option<usize>,
    /// Number of tokens to which each document is cut.
    pub most_tokens: Option<usize>,
    /// Number of tokens to which pairs are cut; `None` for the default of the route.
    pub keep: Option<Keep>,
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
    // Read before the documents.
    Row(
        &["rank_fields"],
        Use::Reads(|asked, field| {
            asked.rank_fields = field.texts()?;
            Ok(())
        }),
    ),
    Row(
        &["documents"],
        Use::Reads(|asked, field| {
            asked.field = field.name;
            let wrong = || field.refused("documents must be a list of texts");
            for document in field.value.as_array().ok_or_else(wrong)? {
                // A text becomes an object, because Cohere always returns objects.
                let document = if document.is_string() { json!({ "text": document }) } else { document.clone() };
                asked.texts.push(ranked_text(&document, &asked.rank_fields).map_err(|why| field.refused(why))?);
                asked.documents.push(document);
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
            let cuts = *field.value == Value::Bool(true) || field.value == "END";
            asked.keep = Some(if cuts { Keep::Fitting } else { Keep::All });
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
    Row(&["max_chunks_per_doc", "priority", "client_name", "user", "encoding_format"], Use::Harmless),
];

/// Returns the text of a document that is ranked: its field `text`, or the texts of `fields` in this order.
fn ranked_text(document: &Value, fields: &[String]) -> std::result::Result<String, String> {
    if fields.is_empty() {
        let text = document.get("text").and_then(Value::as_str);
        return text.map(str::to_string).ok_or_else(|| "each document must be a text, or have the field text".into());
    }
    let texts: Vec<&str> = fields.iter().filter_map(|name| document.get(name)?.as_str()).collect();
    match texts.is_empty() {
        true => Err(format!("a document has no text in the fields of rank_fields: {}", fields.join(", "))),
        false => Ok(texts.join("\n")),
    }
}

fn keep(asked: &mut Ranked, field: &Field<'_>) -> Result<()> {
    asked.keep = Some(super::openai::kept(field)?);
    Ok(())
}
