//! The commands, one file each.

mod bench;
mod convert;
mod detokenize;
mod embed;
mod generate;
mod imatrix;
mod inspect;
mod logits;
mod pack;
mod perplexity;
mod plan;
mod probe;
mod quantize;
mod score;
mod tokenize;
mod translate;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::cli::Cli;
use crate::model_file::ModelFile;

#[derive(Debug, Subcommand)]
pub enum Command {
    Generate(generate::Args),
    Translate(translate::Args),
    Embed(embed::Args),
    Tokenize(tokenize::Args),
    Detokenize(detokenize::Args),
    Inspect(inspect::Args),
    Plan(plan::Args),
    Pack(pack::Args),
    Quantize(quantize::Args),
    Imatrix(imatrix::Args),
    Perplexity(perplexity::Args),
    Logits(logits::Args),
    Probe(probe::Args),
    Score(score::Args),
    Bench(bench::Args),
    Convert(convert::Args),
}

/// Runs the command; without one, tells a story.
pub fn run(cli: Cli) -> Result<ExitCode> {
    let command = match cli.command {
        Some(command) => command,
        None => Command::Generate(defaults()?),
    };
    let model = cli.model.as_deref();
    let done = match command {
        Command::Generate(args) => return generate::run(&args, &ModelFile::open(model)?),
        Command::Bench(args) => return bench::run(&args, model),
        Command::Imatrix(args) => return imatrix::run(&args, &ModelFile::open(model)?),
        Command::Perplexity(args) => return perplexity::run(&args, &ModelFile::open(model)?),
        Command::Quantize(args) => return quantize::run(&args),
        Command::Tokenize(args) => tokenize::run(&args, &ModelFile::open(model)?),
        Command::Detokenize(args) => detokenize::run(&args, &ModelFile::open(model)?),
        Command::Inspect(args) => inspect::run(&args, model),
        Command::Plan(args) => plan::run(&args, &ModelFile::open(model)?),
        Command::Translate(args) => translate::run(&args, &ModelFile::open_translator(model)?),
        Command::Embed(args) => embed::run(&args, &ModelFile::open(model)?),
        Command::Convert(args) => convert::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Logits(args) => logits::run(&args, &ModelFile::open(model)?),
        Command::Probe(args) => probe::run(&args, &ModelFile::open(model)?),
        Command::Score(args) => score::run(&args, &ModelFile::open(model)?),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The arguments that `arenite generate` alone would have.
fn defaults() -> Result<generate::Args> {
    #[derive(Debug, Parser)]
    struct Bare {
        #[command(flatten)]
        args: generate::Args,
    }
    Ok(Bare::try_parse_from(["arenite"])?.args)
}
