//! `arenite rerank`: orders texts by their relevance to a query.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cli::{RunArgs, TextArgs};
use crate::output::{self, Out, note};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::ranking::Ranking;
use arenite_run::runtime::{self, Memory};

/// Order texts by their relevance to a query, with a reranker model
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite rerank -m bge-reranker.gguf -p \"What is a panda?\" -f texts.txt
  cat texts.txt | arenite rerank -m qwen3-reranker.gguf -p \"What is a panda?\" --top 3

Each line of the file, or of standard input, is a text. The output has a JSON object per line, the best text first:
  index            line number of the text, from 0
  relevance_score  the model's score for query and text
  document         the text
A text that is too long gets an `error` instead of a score, and the other texts are still scored. --truncate cuts it.")]
pub struct Args {
    /// Query
    #[arg(short, long, value_name = "QUERY")]
    prompt: String,

    /// File with one text per line [default: standard input]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Truncate texts so that query and text together fit in the model's positions, or in -c
    #[arg(long)]
    truncate: bool,

    /// Print only the N best texts
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Serialize)]
struct Ranked<'t> {
    index: usize,
    relevance_score: f64,
    document: &'t str,
}

/// Output line for a text without a score.
#[derive(Serialize)]
struct Failed<'t> {
    index: usize,
    error: String,
    document: &'t str,
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let open = OpenModel::new(file, args.run.options()?)?;
    let named = || open.name().to_string();
    let (model, tokenizer) = (open.model(), open.vocabulary()?);
    let ranking = Ranking::new(open.gguf(), model, tokenizer).with_context(named)?;
    let texts = TextArgs::lines(args.file.as_deref())?;
    let limit = runtime::positions(&open.options, model);
    let most = args.truncate.then_some(limit);
    let pairs: Vec<_> =
        texts.iter().map(|document| ranking.pairing.pair(tokenizer, &args.prompt, document, most)).collect();

    let longest = pairs.iter().flatten().map(|pair| pair.ids.len()).max().unwrap_or(1).max(1);
    let context = open.options.context.unwrap_or(longest);
    runtime::warn_of_length(context, model);
    let plan = open.plan(open.plan_options(context))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    let mut buffer = vec![0.0; model.spec().embedding_buffer()];
    let (mut ranked, mut failed) = (Vec::new(), Vec::new());
    for (index, (pair, document)) in pairs.into_iter().zip(&texts).enumerate() {
        let score = pair.and_then(|pair| {
            runtime::fits(pair.ids.len(), session.context(), model, ", or cut it with --truncate")?;
            let vector = session.embed_pair(&pair.ids, pair.second, &mut buffer)?;
            runtime::numbers(vector).with_context(named)?;
            Ok(ranking.score(vector))
        });
        match score {
            Ok(relevance_score) => ranked.push(Ranked { index, relevance_score, document }),
            Err(error) => {
                let error = output::words(&error);
                note(format_args!("error: line {}: {error}", index + 1));
                failed.push(Failed { index, error, document });
            }
        }
    }
    ranked.sort_by(|a, b| b.relevance_score.total_cmp(&a.relevance_score));
    let mut out = Out::lock();
    for answer in ranked.iter().take(args.top.unwrap_or(usize::MAX)) {
        out.json(answer)?;
    }
    failed.iter().try_for_each(|answer| out.json(answer))?;
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
