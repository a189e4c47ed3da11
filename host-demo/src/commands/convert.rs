//! `arenite convert`: models in other formats to GGUF.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Subcommand, ValueEnum};

use super::convert_tokenizer;
use crate::cli::NoModelArgs;
use crate::new_model::write_model;
use crate::output::note;
use crate::{llama2c, seq2seq};

/// Turn a model in another format into a GGUF file
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite convert llama2c stories15M.bin tokenizer.bin stories15M.gguf
  arenite convert tokenizer tokenizer.json model.gguf mended.gguf
  arenite convert seq2seq opus-mt-en-hi en-hi.gguf
  arenite translate -m en-hi.gguf -p \"Good morning.\"")]
pub struct Args {
    #[command(subcommand)]
    from: From,

    #[command(flatten)]
    none: NoModelArgs,
}

#[derive(Debug, Subcommand)]
enum From {
    /// A checkpoint of llama2.c: version 0 or 1 in f32, version 2 in int8
    #[command(after_help = "Example:
  arenite convert llama2c stories15M.bin tokenizer.bin stories15M.gguf

Int8 becomes Q8_0, whose scales are f16. The checkpoint itself, given with -m and --tokenizer, runs as runq.c runs it.")]
    Llama2c {
        /// The checkpoint, such as stories15M.bin
        model: PathBuf,
        /// Its vocabulary, tokenizer.bin
        tokenizer: PathBuf,
        /// The GGUF file to write
        output: PathBuf,
    },
    /// A GGUF file with another vocabulary: of a tokenizer.json, a tokenizer.model or llama2.c's tokenizer.bin
    #[command(after_help = "Example:
  arenite convert tokenizer tokenizer.json model.gguf mended.gguf")]
    Tokenizer {
        /// The vocabulary; what tokenizer_config.json beside it says counts too
        tokenizer: PathBuf,
        /// The GGUF file with the model
        input: PathBuf,
        /// The GGUF file to write; may be the same
        output: PathBuf,
    },
    /// An encoder-decoder model: Marian, torch's nn.Transformer, or the English-Hindi translator
    #[command(after_help = "Example:
  arenite convert seq2seq opus-mt-en-hi en-hi.gguf
  arenite translate -m en-hi.gguf -p \"Good morning.\"")]
    Seq2seq {
        /// The directory of model.safetensors, config.json and the tokenizer's files
        directory: PathBuf,
        /// The GGUF file to write
        output: PathBuf,
        /// Number type of the matrices [default: as they are]
        #[arg(long = "type", value_enum, value_name = "TYPE")]
        kind: Option<Type>,
    },
}

/// What matrices can be turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Type {
    #[value(name = "q8_0")]
    Q8_0,
}

pub fn run(args: &Args) -> Result<()> {
    match &args.from {
        From::Llama2c { model, tokenizer, output } => {
            let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
            let (checkpoint, vocabulary) = (read(model)?, read(tokenizer)?);
            let name = model.file_stem().unwrap_or_default().to_string_lossy();
            let converted = llama2c::Converted::new(&name, &checkpoint, &vocabulary, llama2c::Int8::Q8_0);
            let converted = converted.with_context(|| model.display().to_string())?;
            write_model(output, |out| converted.write(out))?;
            converted.notes.iter().for_each(note);
            note(format_args!("{}: {}", output.display(), converted.kind));
        }
        From::Tokenizer { tokenizer, input, output } => convert_tokenizer::run(tokenizer, input, output)?,
        From::Seq2seq { directory, output, kind } => {
            let family = seq2seq::convert(directory, output, *kind == Some(Type::Q8_0));
            let family = family.with_context(|| directory.display().to_string())?;
            note(format_args!("{}: {family}", output.display()));
        }
    }
    Ok(())
}
