//! `arenite classify`: labels of a text with their probabilities.

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use arenite_run::Loaded;
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use serde_json::json;

use super::each_token;
use crate::cli::{RunArgs, Text, TextArgs, each_line};
use crate::output::Out;

/// Label a text with a classifier
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite classify -m sentiment.gguf -p \"The sea is calm\"
  arenite classify -m sentiment.gguf --jsonl -f reviews.jsonl
  arenite classify -m entailment.gguf -p \"A man eats an apple.\" --pair \"Somebody eats.\"

Prints each label with its probability, the most probable one first. A classifier of tokens (names, places) prints the \
words that it labels: the mean probability, the label and the words. `arenite embed` prints the model's outputs \
themselves, and `arenite decide` lets any language model choose.")]
pub struct Args {
    #[command(flatten)]
    text: TextArgs,

    /// Second text, for a model that compares two texts (entailment, similarity)
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["ids", "jsonl"])]
    pair: Option<String>,

    /// Print a JSON list of {\"label\": ..., \"score\": ...}
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let name = file.name().to_owned();
    let open = OpenModel::new(file, args.run.options()?)?;
    if each_token::is_unpooled(&open) {
        return entities(args, &open);
    }
    let model = Loaded::new(open)?;
    let classes = |text: &Text| {
        let classes = match (text, &args.pair) {
            (Text::Ids(ids), _) => model.classify_tokens(ids),
            (Text::Bytes(text), None) => model.classify(&String::from_utf8_lossy(text)),
            (Text::Bytes(text), Some(second)) => model.classify_pair(&String::from_utf8_lossy(text), second),
        };
        classes.with_context(|| name.clone())
    };
    if args.text.jsonl {
        return each_line(args.text.file.as_deref(), |text| Ok(json!({ "classes": classes(&text)? })));
    }
    let classes = classes(&args.text.need()?)?;
    let mut out = Out::lock();
    if args.json {
        out.json(&classes)?;
        return Ok(ExitCode::SUCCESS);
    }
    for class in classes {
        out.now(format!("{:.4}  {}\n", class.score, class.label).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the entities in a text.
fn entities(args: &Args, open: &OpenModel) -> Result<ExitCode> {
    let found = |text: &Text| {
        let Text::Bytes(text) = text else { bail!("a classifier of tokens needs a text: give one with -p or -f") };
        ensure!(args.pair.is_none(), "a classifier of tokens takes no second text: leave out --pair");
        each_token::entities(open, text).with_context(|| open.name().to_owned())
    };
    if args.text.jsonl {
        return each_line(args.text.file.as_deref(), |text| Ok(json!({ "entities": found(&text)? })));
    }
    let entities = found(&args.text.need()?)?;
    let mut out = Out::lock();
    if args.json {
        out.json(&entities)?;
        return Ok(ExitCode::SUCCESS);
    }
    for entity in entities {
        out.now(format!("{:.4}  {}  {}\n", entity.score, entity.entity_group, entity.word).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
