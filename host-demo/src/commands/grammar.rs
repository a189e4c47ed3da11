//! `arenite grammar`: compiles a grammar to a table for devices.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use arenite::grammar::{Grammar, State};
use serde::Serialize;

use crate::cli::{Text, each_line, warn_of_differences};
use crate::output::{Bytes, note};
use arenite_files::write_file;
use arenite_grammar as grammar;
use arenite_run::model_file::ModelFile;
use arenite_text as text;

/// Compile a grammar or JSON schema to a table for devices, or test texts against it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite grammar answer.gbnf answer.table
  arenite grammar answer.schema.json --try < texts.jsonl

A device loads the table with `Grammar::new(include_bytes!(\"answer.table\"))`. A model (-m) is needed only for \
a grammar that names tokens, such as <think>. With --try, each line of standard input is a JSON string. Each line of \
output has \"whole\" if the grammar accepts the string, \"beginning\" if it accepts a continuation, or \"neither\".")]
pub struct Args {
    /// Grammar in GBNF, or a JSON schema
    input: PathBuf,

    /// Table to write
    #[arg(required_unless_present = "try_texts")]
    output: Option<PathBuf>,

    /// Test each line of standard input against the grammar
    #[arg(long = "try")]
    try_texts: bool,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    let name = || args.input.display().to_string();
    let source = text::read_utf8(&args.input)?;
    arenite_files::keep(&args.input);
    let is_json = source.trim_start().starts_with(['{', '[']) || args.input.extension().is_some_and(|it| it == "json");
    let table = if is_json {
        let schema = serde_json::from_str(&source).with_context(|| format!("{} is not JSON", name()))?;
        grammar::from_json_schema(&schema, &grammar::Budget::of_command())
    } else {
        let gguf = file.parse()?;
        let mut index = Vec::new();
        let tokenizer = text::tokenizer(&gguf, &mut index).with_context(|| file.name().to_string())?;
        grammar::from_gbnf(&source, &|text| text::token(&tokenizer, text), &grammar::Budget::of_command())
    };
    let table = table.with_context(name)?;
    warn_of_differences(&table, &name());
    let grammar = Grammar::new(&table)?;
    if let Some(output) = &args.output {
        write_file(output, |file| Ok(file.write_all(&table)?))?;
        note(format_args!("{}: {}", output.display(), Bytes(table.len())));
    }
    if !args.try_texts {
        return Ok(ExitCode::SUCCESS);
    }
    #[derive(Serialize)]
    struct Tried {
        text: &'static str,
    }
    each_line(None, |text| {
        let Text::Bytes(text) = text else { bail!("give a text, not token ids") };
        let mut state = State::new(&grammar);
        let text = match state.accept(&grammar, text.iter().copied()) {
            true if state.is_complete() => "whole",
            true => "beginning",
            false => "neither",
        };
        Ok(Tried { text })
    })
}
