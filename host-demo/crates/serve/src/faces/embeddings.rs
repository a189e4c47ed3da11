//! Fields of embeddings: OpenAI's, vLLM's, llama.cpp's, Jina's, those of text-embeddings-inference, and Ollama's
//! `/api/embed` and `/api/embeddings`.

use serde_json::Value;

use super::{Field, Neutral, Result, Row, Use, fields, read};
use arenite_request::{Keep, Prompt, Refusal};

/// A request for embeddings.
#[derive(Debug, Default)]
pub struct Embedded {
    pub model: Option<String>,
    /// The name of the field with the texts.
    pub field: &'static str,
    pub prompts: Vec<Prompt>,
    /// Number of values of each embedding.
    pub dimensions: Option<Value>,
    /// The tokens of a long text that are kept.
    pub keep: Keep,
    /// True if the values are not scaled to unit length.
    pub is_raw: bool,
    /// True if the values are written as bytes in base64.
    pub is_base64: bool,
}

/// Reads a request.
pub fn embeddings(body: &Value) -> Result<Embedded> {
    let mut asked = Embedded::default();
    read(fields(body)?, &[ROWS], &mut asked)?;
    match asked.field {
        "" => Err(Refusal::about("input", "input must be a text, tokens, or a list of these")),
        _ => Ok(asked),
    }
}

pub(super) const ROWS: &[Row<Embedded>] = &[
    Row(
        &["model"],
        Use::Reads(|asked, field| {
            asked.model = Some(field.text()?);
            Ok(())
        }),
    ),
    // Five names of the texts to embed. `input` is OpenAI's, `content` is for llama.cpp's own routes, `prompt` for
    // Ollama's old route, `inputs` is that of text-embeddings-inference, and `texts` is Cohere's.
    Row(
        &["input", "content", "prompt", "inputs", "texts"],
        Use::Reads(|asked, field| {
            (asked.field, asked.prompts) = (field.name, field.prompts()?);
            if field.value.as_array().is_some_and(Vec::is_empty) {
                asked.prompts.clear();
            }
            Ok(())
        }),
    ),
    Row(
        &["dimensions", "output_dimension"],
        Use::Reads(|asked, field| {
            asked.dimensions = Some(field.value.clone());
            Ok(())
        }),
    ),
    Row(
        &["encoding_format"],
        Use::Reads(|asked, field| match ["float", "base64"].iter().position(|format| field.value == format) {
            Some(at) => {
                asked.is_base64 = at == 1;
                Ok(())
            }
            None => Err(field.refused("encoding_format must be float or base64")),
        }),
    ),
    Row(
        &["embd_normalize"],
        Use::Reads(|asked, field| match field.whole()? {
            norm @ (-1 | 2) => {
                asked.is_raw = norm == -1;
                Ok(())
            }
            _ => Err(field.refused("embd_normalize must be 2 (unit length) or -1 (as computed)")),
        }),
    ),
    Row(
        &["normalize", "normalized"],
        Use::Reads(|asked, field| {
            asked.is_raw = !field.switch()?;
            Ok(())
        }),
    ),
    Row(&["add_special_tokens"], Use::Refused(Neutral::True)),
    Row(&["prompt_name"], Use::Refused(Neutral::Empty)),
    Row(
        &["embedding_types"],
        Use::Reads(|_, field| match field.texts()?.iter().all(|kind| kind == "float") {
            true => Ok(()),
            false => Err(field.refused("embedding_types must be a list with float")),
        }),
    ),
    Row(&["late_chunking"], Use::Refused(Neutral::Empty)),
    Row(&["embed_dtype"], Use::Refused(Neutral::Text("float32"))),
    Row(&["embedding_type"], Use::Refused(Neutral::Text("float"))),
    // `truncate` is a field of Cohere and of text-embeddings-inference. It is read before the field of vLLM, so that
    // the field of vLLM takes precedence.
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
    // These fields are for accounting, and for the time that Ollama keeps the model. Ollama's options do not change
    // embeddings, because they are about the sampler and the machine.
    Row(&["user", "keep_alive", "options"], Use::Harmless),
    // `lora` is ignored in this table, because the routes read it together with the server's adapters.
    Row(&["lora"], Use::Harmless),
];

fn keep(asked: &mut Embedded, field: &Field<'_>) -> Result<()> {
    asked.keep = super::openai::kept(field)?;
    Ok(())
}
