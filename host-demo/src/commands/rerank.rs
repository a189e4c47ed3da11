//! `arenite rerank`: orders texts by their relevance to a query.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use arenite::Model;
use serde::Serialize;

use crate::cli::{RunArgs, TextArgs};
use crate::model_file::ModelFile;
use crate::output::Out;
use crate::ranking::{self, Ranking};
use crate::runtime::{self, Memory};
use crate::text;

/// Order texts by their relevance to a query, with a reranker model
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite rerank -m bge-reranker.gguf -p \"What is a panda?\" -f texts.txt
  cat texts.txt | arenite rerank -m qwen3-reranker.gguf -p \"What is a panda?\" --top 3

Each line of the file, or of standard input, is a text. The output has a JSON object per line, the best text first:
  index            line number of the text, from 0
  relevance_score  the model's score for query and text
  document         the text")]
pub struct Args {
    /// Query
    #[arg(short, long, value_name = "QUERY")]
    prompt: String,

    /// File with one text per line [default: standard input]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Print only the N best texts
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Serialize)]
struct Ranked {
    index: usize,
    relevance_score: f64,
    document: String,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    let named = || file.name().to_string();
    let gguf = file.parse()?;
    let model = Model::new(&gguf).with_context(named)?;
    let ranking = Ranking::new(&gguf, &model).with_context(named)?;
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).with_context(named)?;
    let texts = TextArgs::lines(args.file.as_deref())?;
    let pairs = texts.iter().map(|document| ranking.pair(&tokenizer, &args.prompt, document));
    let pairs = pairs.collect::<Result<Vec<_>>>().with_context(named)?;

    let kernels = runtime::kernels(&args.run.session.isa)?;
    let workers = args.run.workers();
    let longest = pairs.iter().map(|pair| pair.ids.len()).max().unwrap_or(1).max(1);
    let context = args.run.session.ctx_size.unwrap_or(longest);
    let plan = runtime::plan(&gguf, &args.run.session, context, workers.count()).with_context(named)?;
    let mut memory = Memory::new(&plan)?;
    let mut session = memory.session(&args.run.session, &model, plan, kernels, &*workers)?;
    let mut buffer = vec![0.0; model.spec().embedding_buffer()];
    let mut ranked = Vec::new();
    for (index, (pair, document)) in pairs.iter().zip(texts).enumerate() {
        let vector =
            session.embed_pair(&pair.ids, pair.second, &mut buffer).with_context(|| format!("line {}", index + 1))?;
        runtime::numbers(vector).with_context(named)?;
        ranked.push(Ranked { index, relevance_score: ranking::score(vector), document });
    }
    ranked.sort_by(|a, b| b.relevance_score.total_cmp(&a.relevance_score));
    let mut out = Out::lock();
    for answer in ranked.iter().take(args.top.unwrap_or(usize::MAX)) {
        out.json(answer)?;
    }
    Ok(ExitCode::SUCCESS)
}
