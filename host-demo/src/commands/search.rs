//! `arenite search`: the passages of an index that are nearest to a question.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use arenite_run::Loaded;
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_search::{Found, Index, reranked};

use crate::cli::{ModelArgs, RunArgs};
use crate::formats;
use crate::output::Out;

/// Search in the files of an index
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite search notes.index \"Where did we park the car?\"
  arenite search docs.index \"retry after a timeout\" --rerank bge-reranker.gguf --json

Prints the nearest passages with their files and lines. The model that made the index is used again; -m tells where it is \
now. With --json each line is an object with `file`, `line`, `text` and `score`.")]
pub struct Args {
    /// Index of `arenite index`
    #[arg(value_name = "FILE")]
    index: PathBuf,

    /// Question or words
    #[arg(value_name = "QUERY")]
    query: String,

    /// Number of passages
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,

    /// Reranker model that orders the nearest passages: four times as many as are printed
    #[arg(long, value_name = "FILE")]
    rerank: Option<PathBuf>,

    /// Print a JSON object per passage
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, model: &ModelArgs) -> Result<ExitCode> {
    let index = Index::open(&args.index)?;
    let found = found(args, &index, model)?;
    let mut out = Out::lock();
    for found in found {
        if args.json {
            out.json(&found)?;
            continue;
        }
        let Found { passage, score } = found;
        let text = passage.text.lines().map(|line| format!("    {line}\n")).collect::<String>();
        out.now(format!("{score:.4}  {}:{}\n{text}\n", passage.file, passage.line).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The passages to print.
fn found(args: &Args, index: &Index, model: &ModelArgs) -> Result<Vec<Found>> {
    let load = |path: &Path| -> Result<Loaded> {
        let file = ModelFile::open(formats::source(model, path))?;
        Loaded::new(OpenModel::new(file, args.run.options()?)?)
    };
    let path = model.file().unwrap_or(&index.model);
    ensure!(path.is_file(), "the model of the index ({}) is not there: give its path with -m", path.display());
    let embedder = load(path)?;
    let Some(reranker) = &args.rerank else { return index.search(&embedder, &args.query, args.top) };
    let candidates = index.search(&embedder, &args.query, args.top.saturating_mul(4))?;
    drop(embedder); // frees its memory for the second model
    let reranker = load(reranker).context("--rerank")?;
    let mut found = reranked(&reranker, &args.query, candidates)?;
    found.truncate(args.top);
    Ok(found)
}
