//! The options that choose how the messages of a conversation become a prompt.

use std::fs;

use anyhow::{Context, Result};
use arenite::chat::Format;
use clap::Args;

/// The format by name, or a template.
#[derive(Clone, Debug, Args)]
pub struct TemplateArgs {
    /// Chat format: auto for the model's own template, or a well-known one, such as chatml, llama3 or plain
    #[arg(long, value_name = "NAME|auto", default_value = "auto")]
    template: String,

    /// Jinja template to use instead of the model's own: a file, the template itself, or the name of a chat format
    #[arg(long, value_name = "F.jinja", conflicts_with = "template")]
    chat_template: Option<String>,
}

impl TemplateArgs {
    /// Returns the name of the format and the template. As in llama.cpp, the value of `--chat-template` may also be the
    /// name of a format, or the template itself.
    pub fn read(&self) -> Result<(&str, Option<String>)> {
        let Some(given) = &self.chat_template else { return Ok((&self.template, None)) };
        match fs::read_to_string(given) {
            Err(_) if Format::by_name(given).is_some() => Ok((given, None)),
            Err(_) if given.contains("{{") || given.contains("{%") => Ok((&self.template, Some(given.clone()))),
            text => {
                Ok((
                    &self.template,
                    Some(text.with_context(|| {
                        format!("cannot read {given}, which is not the name of a chat format, either")
                    })?),
                ))
            }
        }
    }
}
