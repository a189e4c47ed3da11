//! `arenite score`: how probable given continuations are.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Model, Session, TokenId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::{RunArgs, each};
use crate::model_file::ModelFile;
use crate::runtime::{self, Memory};
use crate::text::{self, JsonBytes};

/// Say how probable given continuations are
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  echo '{\"prompt\": \"Once upon a\", \"continuation\": \" time\"}' | arenite score --jsonl

Each line of standard input, or of -f FILE, is a JSON object with a prompt and a continuation: texts, or lists of \
token ids that are used exactly as given; it may have an `id`, which comes back. Each line of output is one, too:
  logprob   the natural logarithm of the continuation's probability after the prompt
  tokens    the ids that were scored
  logprobs  that of each of them
  greedy    whether each is the most probable one in its place
A text is tokenized together with its prompt; what is scored are the tokens from the first one on \
that the prompt alone does not have.")]
pub struct Args {
    /// Read JSON lines and write JSON lines
    #[arg(long, required = true)]
    jsonl: bool,

    /// Read them from a file instead of standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    run: RunArgs,
}

/// A line of input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    id: Option<Value>,
    prompt: Part,
    continuation: Part,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Ids(Vec<TokenId>),
    Text(JsonBytes),
}

/// A line of output.
#[derive(Serialize)]
struct Score {
    logprob: f64,
    tokens: Vec<TokenId>,
    logprobs: Vec<f64>,
    greedy: bool,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    let named = || file.name().to_string();
    let gguf = file.parse()?;
    let model = Model::new(&gguf).with_context(named)?;
    runtime::must_continue(&model).with_context(named)?;
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index);
    let kernels = runtime::kernels(&args.run.session.isa)?;
    let workers = args.run.workers();
    let context = runtime::context(&args.run.session, &model, 0);
    let plan = runtime::plan(&gguf, &args.run.session, context, workers.count()).with_context(named)?;
    let mut memory = Memory::new(&plan)?;
    let mut session = memory.session(&model, plan, kernels, &*workers)?;
    each(args.file.as_deref(), |line| {
        let request: Request = serde_json::from_slice(line)?;
        let (ids, given) = tokens(&request, tokenizer.as_ref())?;
        Ok((request.id, score(&mut session, &ids, given)?))
    })
}

/// All tokens, and how many of them are given rather than scored.
fn tokens(request: &Request, tokenizer: Result<&Tokenizer<'_, '_>, &anyhow::Error>) -> Result<(Vec<TokenId>, usize)> {
    let (ids, given) = match (&request.prompt, &request.continuation) {
        (Part::Ids(prompt), Part::Ids(continuation)) => ([&prompt[..], continuation].concat(), prompt.len()),
        (Part::Text(JsonBytes(prompt)), Part::Text(JsonBytes(continuation))) => {
            let tokenizer = tokenizer.map_err(|error| anyhow::anyhow!("{error:#}"))?;
            let alone = text::encode(tokenizer, prompt, Encode::PROMPT)?;
            let ids = text::encode(tokenizer, &[&prompt[..], continuation].concat(), Encode::PROMPT)?;
            let given = alone.iter().zip(&ids).take_while(|(a, b)| a == b).count();
            (ids, given)
        }
        _ => bail!("prompt and continuation must both be texts or both be lists of ids"),
    };
    ensure!(given < ids.len(), "there is nothing to score: the continuation has no tokens");
    ensure!(given > 0, "nothing comes before the continuation: the prompt has no tokens");
    Ok((ids, given))
}

/// The probabilities of the tokens of `ids` after the first `given`.
fn score(session: &mut Session<'_, '_>, ids: &[TokenId], given: usize) -> Result<Score> {
    session.rewind(0)?;
    let tokens = ids[given..].to_vec();
    // The logits for a token are those of the one before it; those of the last are not needed.
    let (before, after) = ids[..ids.len() - 1].split_at(given - 1);
    if !before.is_empty() {
        session.prefill(before)?;
    }
    let (mut logprobs, mut greedy) = (Vec::new(), true);
    let mut outside = None;
    session.prefill_all(after, |position, logits| {
        let token = ids[position + 1];
        match logits.get(token as usize) {
            Some(&logit) => {
                logprobs.push(f64::from(logit) - text::log_of_sum(logits));
                greedy &= logits.iter().zip(0..).all(|(&other, id)| other < logit || other == logit && id >= token);
            }
            None => outside = Some(token),
        }
    })?;
    if let Some(token) = outside {
        bail!("token {token} is not in the vocabulary");
    }
    Ok(Score { logprob: logprobs.iter().sum(), tokens, logprobs, greedy })
}
