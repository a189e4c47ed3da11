//! `arenite convert`: converts other model formats to GGUF.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Subcommand, ValueEnum};

use super::convert_tokenizer;
use crate::cli::NoModelArgs;
use crate::output::note;
use crate::output::progress;
use crate::{foreign, interrupt};
use arenite_convert::checkpoint;
use arenite_convert::llama2c;
use arenite_convert::seq2seq;
use arenite_convert::write_model;
use arenite_gguf_writer::Header;
use arenite_quantize::mix::Mix;

/// Convert a model in another format to GGUF
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
    /// Convert a llama2.c checkpoint: version 0 or 1 (f32) or 2 (int8)
    #[command(after_help = "Example:
  arenite convert llama2c stories15M.bin tokenizer.bin stories15M.gguf

Int8 weights become Q8_0, whose scales are f16. Other commands run the checkpoint directly with -m and \
--tokenizer, with the arithmetic of run.c or runq.c.")]
    Llama2c {
        /// Checkpoint, such as stories15M.bin
        model: PathBuf,
        /// Vocabulary of the checkpoint: tokenizer.bin, or a tokenizer.json
        tokenizer: PathBuf,
        /// GGUF file to write
        output: PathBuf,
    },
    /// Replace the vocabulary of a GGUF file with a tokenizer.json, a tokenizer.model or llama2.c's tokenizer.bin
    #[command(after_help = "Example:
  arenite convert tokenizer tokenizer.json model.gguf mended.gguf")]
    Tokenizer {
        /// Vocabulary; a tokenizer_config.json in the same directory is read, too
        tokenizer: PathBuf,
        /// GGUF file with the model
        input: PathBuf,
        /// GGUF file to write; may be the input file
        output: PathBuf,
    },
    /// Convert a checkpoint of Hugging Face's transformers, nanoGPT, llama2.c or OpenAI's Whisper (safetensors or torch),
    /// or a speech model of whisper.cpp
    #[command(after_help = "Examples:
  arenite convert hf SmolLM2-135M smollm2.gguf
  arenite convert hf Qwen3-0.6B qwen3-q8.gguf --type q8_0
  arenite convert hf out/ckpt.pt story.gguf --tokenizer tokenizer.json
  arenite convert hf ggml-tiny.en.bin tiny.gguf

The folder has config.json, model.safetensors (or several files and their index, or pytorch_model.bin) and a tokenizer: \
tokenizer.json, tokenizer.model, tekken.json, vocab.json with merges.txt, vocab.txt or llama2.c's tokenizer.bin. Weights may be \
quantized by GPTQ, AWQ, auto-round, compressed-tensors, ModelOpt, Quark, torchao (8 bits), MLX, HQQ or bitsandbytes, or to FP8. \
Without --type, integers become F32; Q4_0, Q5_0, Q8_0, Q4_1 and Q5_1 lose nothing if they have the same values. A model that sees becomes two files: OUTPUT, and mmproj-OUTPUT beside it.")]
    Hf {
        /// The folder, or a file of weights with config.json beside it
        #[arg(value_name = "DIR|FILE")]
        from: PathBuf,
        /// The GGUF file to write
        output: PathBuf,
        /// Type of the weights, such as F16, Q8_0 or Q4_K_M [default: as they are]
        #[arg(long = "type", value_name = "TYPE")]
        mix: Option<Mix>,
        /// Tokenizer to use instead of the one in the folder: a file or a folder
        #[arg(long, value_name = "PATH")]
        tokenizer: Option<PathBuf>,
    },
    /// Convert a LoRA adapter of PEFT or mlx_lm; DoRA, saved modules and trained tokens need the model's weights
    #[command(after_help = "Example:
  arenite convert lora my-adapter adapter.gguf --base SmolLM2-135M
  arenite merge smollm2.gguf adapter.gguf merged.gguf")]
    Lora {
        /// Folder with adapter_config.json and adapter_model.safetensors or adapters.safetensors
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// GGUF file to write
        output: PathBuf,
        /// Folder of the model that the adapter is for, with its config.json [default: the one that adapter_config.json names]
        #[arg(long, value_name = "DIR")]
        base: Option<PathBuf>,
    },
    /// Convert an encoder-decoder model: Marian, torch's nn.Transformer, or the English-Hindi translator
    #[command(after_help = "Example:
  arenite convert seq2seq opus-mt-en-hi en-hi.gguf
  arenite translate -m en-hi.gguf -p \"Good morning.\"")]
    Seq2seq {
        /// Directory with model.safetensors, config.json and the tokenizer's files
        directory: PathBuf,
        /// GGUF file to write
        output: PathBuf,
        /// Type of the matrices [default: unchanged]
        #[arg(long = "type", value_enum, value_name = "TYPE")]
        kind: Option<Type>,
    },
}

/// Types that matrices can be converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Type {
    #[value(name = "q8_0")]
    Q8_0,
}

pub fn run(args: &Args) -> Result<()> {
    match &args.from {
        From::Llama2c { model, tokenizer, output } => {
            let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
            let (weights, vocabulary) = (read(model)?, read(tokenizer)?);
            let name = model.file_stem().unwrap_or_default().to_string_lossy();
            let converted = if vocabulary.trim_ascii_start().starts_with(b"{") {
                let write =
                    |rows: usize, header: &mut Header| checkpoint::vocabulary_of_llama2c(tokenizer, rows, header);
                llama2c::Converted::with(&name, &weights, llama2c::Int8::Q8_0, write)
            } else {
                llama2c::Converted::new(&name, &weights, &vocabulary, llama2c::Int8::Q8_0)
            };
            let converted = converted.with_context(|| model.display().to_string())?;
            write_model(output, |out| converted.write(out))?;
            converted.notes.iter().for_each(note);
            note(format_args!("{}: {}", output.display(), converted.kind));
        }
        From::Hf { from, output, mix, tokenizer } => {
            if let Some(why) = foreign::no_checkpoint(from) {
                bail!("{}: {why}", from.display());
            }
            let request = checkpoint::Request { from, to: output, mix: *mix, tokenizer: tokenizer.as_deref() };
            let report = convert_with_bar(&request).map_err(|error| match seq2seq::is_marian(from) {
                true => anyhow!(
                    "this is a translator (Marian): use `arenite convert seq2seq {} OUT.gguf`",
                    foreign::quoted(from)
                ),
                false => error,
            });
            let report = report.with_context(|| from.display().to_string())?;
            report.notes.iter().for_each(note);
            note(format_args!("{}: {}", output.display(), report.architecture));
        }
        From::Lora { directory, output, base } => {
            let report = checkpoint::lora::convert(directory, base.as_deref(), output)
                .with_context(|| directory.display().to_string())?;
            report.notes.iter().for_each(note);
            let (count, architecture) = (report.count, report.architecture);
            note(format_args!("{}: an adapter for {count} matrices of {architecture}", output.display()));
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

/// Converts a checkpoint, with a progress bar on a terminal.
fn convert_with_bar(request: &checkpoint::Request<'_>) -> Result<checkpoint::Report> {
    interrupt::listen();
    let bar = progress::bar(0, "{bar:32} {bytes}/{total_bytes} {eta} {msg}");
    let converted = checkpoint::convert(request, &mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_message(progress.tensor.to_owned());
        bar.set_position(progress.done as u64);
        !interrupt::asked()
    });
    bar.finish_and_clear();
    converted
}
