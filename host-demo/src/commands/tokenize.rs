//! `arenite tokenize`: text to token ids.

use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use arenite::TokenId;
use arenite::tokenizer::Encode;

use crate::cli::each_json;
use crate::model_file::ModelFile;
use crate::output::Out;
use crate::text::{self, JsonBytes};

/// Turn text into token ids
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite tokenize -m model.gguf -p \"Hello world\"
  echo '\"Hello world\"' | arenite tokenize -m model.gguf --jsonl

Without -p the text is read from standard input, to its end and as it is. A file that holds only a \
vocabulary is enough.")]
pub struct Args {
    /// The text, or - for standard input [default: standard input]
    #[arg(short, long, value_name = "TEXT", conflicts_with_all = ["jsonl", "file"])]
    prompt: Option<String>,

    /// Take the text from a file, as it is
    #[arg(short, long, value_name = "FILE", conflicts_with = "jsonl")]
    file: Option<PathBuf>,

    /// Each line of standard input is a JSON string, each line of output its JSON list of ids
    #[arg(long)]
    jsonl: bool,

    /// Add the special tokens that the model wants at the start or the end
    #[arg(long)]
    add_special: bool,

    /// Take the names of special tokens in the text, such as `<s>`, as these tokens
    #[arg(long)]
    parse_special: bool,

    /// Print a JSON list
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    let gguf = file.parse()?;
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).with_context(|| file.name().to_string())?;
    let how = Encode { add_special: args.add_special, parse_special: args.parse_special };
    if args.jsonl {
        return each_json(None, |line| {
            let JsonBytes(text) = serde_json::from_slice(line).context("this is no JSON string")?;
            text::encode(&tokenizer, &text, how)
        });
    }
    let mut out = BufWriter::new(Out::lock());
    let text = match (&args.prompt, &args.file) {
        (Some(text), _) if text != "-" => text.clone().into_bytes(),
        (_, Some(path)) => std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        _ => {
            let mut text = Vec::new();
            io::stdin().lock().read_to_end(&mut text).context("cannot read standard input")?;
            text
        }
    };
    let ids = text::encode(&tokenizer, &text, how)?;
    if args.json {
        serde_json::to_writer(&mut out, &ids).map_err(io::Error::from)?;
    } else {
        write!(out, "{}", ids.iter().map(TokenId::to_string).collect::<Vec<_>>().join(","))?;
    }
    writeln!(out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
