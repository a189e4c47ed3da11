//! `arenite tokenize`: converts text to token ids.

use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use arenite::TokenId;
use arenite::tokenizer::Encode;

use crate::cli::{PictureArgs, each_json, read_input};
use crate::output::Out;
use arenite_run::model_file::ModelFile;
use arenite_text::{self as text, JsonBytes};

/// Convert text to token ids
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite tokenize -m model.gguf -p \"Hello world\"
  echo '\"Hello world\"' | arenite tokenize -m model.gguf --jsonl

Without -p all of standard input is read, unchanged. The model file may contain only a vocabulary. With --image the list \
has the tokens of the pictures, as the model reads them.")]
pub struct Args {
    /// Text, or - for standard input [default: standard input]
    #[arg(short, long, value_name = "TEXT", conflicts_with_all = ["jsonl", "file"])]
    prompt: Option<String>,

    /// Read the text from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "jsonl")]
    file: Option<PathBuf>,

    /// Read a JSON string per line and write a JSON list of ids per line
    #[arg(long)]
    jsonl: bool,

    /// Add the special tokens that the model expects at the start or the end
    #[arg(long)]
    add_special: bool,

    /// Convert names of special tokens in the text, such as `<s>`, to these tokens
    #[arg(long)]
    parse_special: bool,

    /// Print a JSON list
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pictures: PictureArgs,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    let gguf = file.parse()?;
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).with_context(|| file.name().to_string())?;
    let how = Encode { add_special: args.add_special, parse_special: args.parse_special };
    if args.jsonl {
        ensure!(args.pictures.image.is_empty(), "--image goes with one text: leave out --jsonl");
        return each_json(None, |line| {
            let JsonBytes(text) = serde_json::from_slice(line).context("this is not a JSON string")?;
            text::encode(&tokenizer, &text, how)
        });
    }
    let mut out = BufWriter::new(Out::lock());
    let text = match (&args.prompt, &args.file) {
        (Some(text), _) if text != "-" => text.clone().into_bytes(),
        (_, Some(path)) => read_input(path)?,
        _ => {
            let mut text = Vec::new();
            io::stdin().lock().read_to_end(&mut text).context("cannot read standard input")?;
            text::without_mark(text).context("cannot read standard input")?
        }
    };
    let ids = match args.pictures.image.is_empty() {
        true => text::encode(&tokenizer, &text, how)?,
        false => args.pictures.ids(file, &text, args.add_special, &tokenizer)?,
    };
    if args.json {
        serde_json::to_writer(&mut out, &ids).map_err(io::Error::from)?;
    } else {
        write!(out, "{}", ids.iter().map(TokenId::to_string).collect::<Vec<_>>().join(","))?;
    }
    writeln!(out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
