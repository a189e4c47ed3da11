//! `arenite detokenize`: converts token ids to text.

use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use arenite::TokenId;

use crate::cli::{Ids, each_json};
use crate::output::Out;
use arenite_run::model_file::ModelFile;
use arenite_text as text;

/// Convert token ids to text
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite detokenize -m model.gguf --ids 9038,2501,263,931
  arenite tokenize -p \"Hello world\" | arenite detokenize

Without --ids the ids are read from standard input. The text is printed byte for byte. With --jsonl, \
bytes that are not UTF-8 become U+FFFD.")]
pub struct Args {
    /// Token ids, such as 1,2,3 [default: standard input]
    #[arg(long, value_name = "IDS", allow_hyphen_values = true, conflicts_with = "jsonl")]
    ids: Option<Ids>,

    /// Read a JSON list of ids per line and write a JSON string per line
    #[arg(long)]
    jsonl: bool,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    let gguf = file.parse()?;
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).with_context(|| file.name().to_string())?;
    if args.jsonl {
        return each_json(None, |line| {
            let ids: Vec<TokenId> = serde_json::from_slice(line).context("this is not a JSON list of ids")?;
            Ok(String::from_utf8_lossy(&text::decode(&tokenizer, &ids)?).into_owned())
        });
    }
    let mut out = BufWriter::new(Out::lock());
    let ids = match &args.ids {
        Some(ids) => ids.clone(),
        None => {
            let mut list = String::new();
            io::stdin().lock().read_to_string(&mut list).context("cannot read standard input")?;
            list.parse().map_err(|error| anyhow!("standard input: {error}"))?
        }
    };
    out.write_all(&text::decode(&tokenizer, &ids.0)?)?;
    if io::stdout().is_terminal() {
        writeln!(out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
