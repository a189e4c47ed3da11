//! `arenite convert`: models in other formats to GGUF.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::output::note;
use crate::seq2seq;

/// Turn a model in another format into a GGUF file
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite convert seq2seq opus-mt-en-hi en-hi.gguf
  arenite translate -m en-hi.gguf -p \"Good morning.\"")]
pub struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// An encoder-decoder model: Marian, torch's nn.Transformer, or the English-Hindi translator
    Seq2seq {
        /// The directory of model.safetensors, config.json and the tokenizer's files
        directory: PathBuf,
        /// The GGUF file to write
        output: PathBuf,
    },
}

pub fn run(args: &Args) -> Result<()> {
    match &args.from {
        From::Seq2seq { directory, output } => {
            let kind = seq2seq::convert(directory, output).with_context(|| directory.display().to_string())?;
            note(format_args!("{}: {kind}", output.display()));
        }
    }
    Ok(())
}
