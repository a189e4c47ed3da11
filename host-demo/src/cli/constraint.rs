//! Options that constrain the output to a grammar, to a JSON schema, or to any JSON object.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use arenite::tokenizer::Tokenizer;
use clap::Args;
use serde_json::json;

use crate::{grammar, text};

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

impl ConstraintArgs {
    /// Compiles the grammar or schema into a table. Returns `None` if the output is not constrained.
    pub fn table(&self, tokenizer: Option<&Tokenizer<'_, '_>>) -> Result<Option<Vec<u8>>> {
        if self.grammar.is_none() && self.json_schema.is_none() && !self.json {
            return Ok(None);
        }
        let tokenizer = tokenizer.ok_or_else(|| anyhow!("a grammar needs a vocabulary, and the model has none"))?;
        if let Some(source) = &self.grammar {
            let (name, text) = read(source, |text| text.contains("::="))?;
            let token = |text: &str| text::token(tokenizer, text);
            return grammar::from_gbnf(&text, &token, &grammar::Budget::of_command())
                .with_context(|| format!("--grammar{name}"))
                .map(Some);
        }
        let (name, schema) = match &self.json_schema {
            Some(source) => {
                let (name, text) = read(source, |text| text.trim_start().starts_with('{'))?;
                let schema = serde_json::from_str(&text).with_context(|| format!("--json-schema{name} is not JSON"))?;
                (name, schema)
            }
            None => (String::new(), json!({ "type": "object" })),
        };
        grammar::from_json_schema(&schema, &grammar::Budget::of_command())
            .with_context(|| format!("--json-schema{name}"))
            .map(Some)
    }
}

/// Returns `source` itself if `is_text` accepts it and no file has that name, otherwise the contents of the file
/// `source`. Also returns the file's name with a leading space, for messages.
fn read(source: &str, is_text: impl Fn(&str) -> bool) -> Result<(String, String)> {
    if is_text(source) && !Path::new(source).exists() {
        return Ok((String::new(), source.into()));
    }
    let text = std::fs::read_to_string(source).with_context(|| format!("cannot read {source}"))?;
    Ok((format!(" {source}"), text))
}
