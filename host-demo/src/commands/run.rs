//! `arenite run`: `chat` if input and output are a terminal, otherwise `generate`.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use super::{chat, generate};
use crate::cli::ModelArgs;
use crate::{foreign, formats, output};

/// Chat with a model on a terminal; in a pipe, generate text
#[derive(Debug, clap::Args)]
#[command(override_usage = "arenite run [MODEL] [PROMPT] [OPTIONS OF chat OR generate]")]
#[command(after_help = "Example:
  arenite run model.gguf                        chat
  arenite run model.gguf \"The sea\" | less       generate text
  arenite run model.gguf \"Hello\" --temp 0       options of `chat` or `generate` come last")]
pub struct Args {
    /// Model (unless -m gives it), prompt, and options of `chat` or `generate`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "MODEL PROMPT OPTIONS")]
    words: Vec<OsString>,
}

#[derive(Parser)]
struct Chat {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    args: chat::Args,
}

#[derive(Parser)]
struct Generate {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    args: generate::Args,
}

pub fn run(args: &Args, model: &ModelArgs) -> Result<ExitCode> {
    let mut words = args.words.iter().cloned().peekable();
    let mut word = || words.next_if(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let file = if model.model.is_empty() { word().map(PathBuf::from) } else { None };
    let prompt = word().into_iter().flat_map(|prompt| [OsString::from("-p"), prompt]);
    let options: Vec<_> = [OsString::from("arenite run")].into_iter().chain(prompt).chain(words).collect();
    let named = file.clone();
    let open = |mut given: ModelArgs| {
        if given.raw {
            output::raw();
        }
        given.fetch()?;
        formats::open(&ModelArgs {
            model: [given.model, file.into_iter().collect(), model.model.clone()]
                .concat()
                .into_iter()
                .take(1)
                .collect(),
            tokenizer: given.tokenizer.or(model.tokenizer.clone()),
            ..given
        })
    };
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        match Chat::try_parse_from(options) {
            Ok(Chat { model, args }) => {
                chat::run(&args, open(model)?).map_err(|error| foreign::explained(named.as_deref(), error))
            }
            Err(told) => Ok(output::usage_error(&told)),
        }
    } else {
        match Generate::try_parse_from(options) {
            Ok(Generate { model, args }) => {
                generate::run(&args, open(model)?).map_err(|error| foreign::explained(named.as_deref(), error))
            }
            Err(told) => Ok(output::usage_error(&told)),
        }
    }
}
