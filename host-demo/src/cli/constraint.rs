//! Options that constrain the output to a grammar, to a JSON schema, or to any JSON object.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use arenite::tokenizer::Tokenizer;
use clap::Args;
use serde_json::{Value, json};

use arenite_grammar::{self as grammar, Piece, Table};
use arenite_text as text;

/// Options that constrain the output.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Constrained output")]
pub struct ConstraintArgs {
    /// Constrain the output by a grammar in llama.cpp's notation (GBNF)
    #[arg(long, value_name = "FILE", group = "form")]
    grammar: Option<String>,

    /// Constrain the output to JSON that matches a schema, given as a file or as text
    #[arg(short = 'j', long, value_name = "FILE|TEXT", group = "form")]
    json_schema: Option<String>,

    /// Constrain the output to a JSON object
    #[arg(long, group = "form")]
    json: bool,
}

/// A constraint of the output as the user has given it: the option with the name of the file, which is used in
/// messages, and the source of the grammar.
pub struct Form {
    pub option: String,
    pub source: FormSource,
}

pub enum FormSource {
    Gbnf(String),
    Schema(Value),
}

impl ConstraintArgs {
    /// Returns true if the output is a JSON value.
    pub fn is_json(&self) -> bool {
        self.json || self.json_schema.is_some()
    }

    /// Reads the grammar or schema. Returns `None` if the output is not constrained.
    pub fn read(&self) -> Result<Option<Form>> {
        if let Some(source) = &self.grammar {
            let (name, text) = read(source, |text| text.contains("::="))?;
            return Ok(Some(Form { option: format!("--grammar{name}"), source: FormSource::Gbnf(text) }));
        }
        let (name, schema) = match &self.json_schema {
            Some(source) => {
                let (name, text) = read(source, |text| text.trim_start().starts_with('{'))?;
                let schema = serde_json::from_str(&text).with_context(|| format!("--json-schema{name} is not JSON"))?;
                (name, schema)
            }
            None if self.json => (String::new(), json!({ "type": "object" })),
            None => return Ok(None),
        };
        Ok(Some(Form { option: format!("--json-schema{name}"), source: FormSource::Schema(schema) }))
    }
}

impl Form {
    /// Compiles the grammar or schema into a table. `in_messages` returns the grammar of an answer that consists of
    /// more than a value that matches the schema.
    pub fn table(
        &self,
        tokenizer: Option<&Tokenizer<'_, '_>>,
        in_messages: impl FnOnce(&Value) -> Option<Piece>,
    ) -> Result<Arc<Table>> {
        let tokenizer = tokenizer.ok_or_else(|| anyhow!("a grammar needs a vocabulary, and the model has none"))?;
        let budget = grammar::Budget::of_command();
        let table = match &self.source {
            FormSource::Gbnf(text) => grammar::from_gbnf(text, &|text| text::token(tokenizer, text), &budget),
            FormSource::Schema(schema) => match in_messages(schema) {
                Some(piece) => grammar::from_pieces(&piece, &budget),
                None => grammar::from_json_schema(schema, &budget),
            },
        };
        let table = table.with_context(|| self.option.clone())?;
        warn_of_differences(&table, &self.option);
        Ok(table.into())
    }

    /// True if the answer follows a JSON schema.
    pub fn is_schema(&self) -> bool {
        matches!(self.source, FormSource::Schema(_))
    }
}

/// Warns if a grammar allows other values than its schema.
pub fn warn_of_differences(table: &Table, option: &str) {
    table.differences().iter().for_each(|difference| log::warn!("warning: {option}: {difference}"));
}

/// Returns `source` itself if `is_text` accepts it and no file has that name, otherwise the contents of the file
/// `source`. Also returns the file's name with a leading space, for messages.
fn read(source: &str, is_text: impl Fn(&str) -> bool) -> Result<(String, String)> {
    if is_text(source) && !Path::new(source).exists() {
        return Ok((String::new(), source.into()));
    }
    let text = text::read_utf8(Path::new(source))?;
    arenite_files::keep(Path::new(source));
    Ok((format!(" {source}"), text))
}
