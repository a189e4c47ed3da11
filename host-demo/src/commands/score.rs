//! `arenite score`: computes the probability of given continuations.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Session, TokenId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::{RunArgs, each};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::{self, Memory};
use arenite_text::{self as text, JsonBytes};

/// Compute the log-probability of given continuations
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  echo '{\"prompt\": \"Once upon a\", \"continuation\": \" time\"}' | arenite score --jsonl

Each line of standard input, or of -f FILE, is a JSON object with `prompt` and `continuation`: texts, or lists of \
token ids that are used exactly as given. An optional `id` is returned. Each line of output is a JSON object:
  logprob   natural logarithm of the continuation's probability after the prompt
  tokens    ids that were scored
  logprobs  log-probability of each of them
  greedy    whether each of them is the most probable token
Prompt and continuation are tokenized together. Scoring starts at the first token that differs from the \
tokens of the prompt alone.")]
pub struct Args {
    /// Read JSON lines and write JSON lines
    #[arg(long, required = true)]
    jsonl: bool,

    /// Read the lines from a file instead of standard input
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

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let open = OpenModel::new(file, args.run.options()?)?;
    let (model, tokenizer) = (open.model(), open.tokenizer());
    runtime::must_continue(model).with_context(|| open.name().to_string())?;
    let plan = open.plan(open.plan_options(open.context(0)))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    each(args.file.as_deref(), |line| {
        let request: Request = serde_json::from_slice(line).map_err(|error| match error.is_data() {
            true => anyhow!("give an object with `prompt` and `continuation`, both texts or both lists of ids"),
            false => error.into(),
        })?;
        let (ids, given) = tokens(&request, tokenizer)?;
        runtime::fits(ids.len() - 1, session.context(), model, "")?;
        Ok((request.id, score(&mut session, &ids, given)?))
    })
}

/// Returns all tokens of a request, and how many of them are the prompt. Only the other tokens are scored.
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
    ensure!(given < ids.len(), "the continuation is empty");
    ensure!(given > 0, "the prompt is empty");
    Ok((ids, given))
}

/// Scores the tokens of `ids` after the first `given`.
fn score(session: &mut Session<'_, '_>, ids: &[TokenId], given: usize) -> Result<Score> {
    session.rewind(0)?;
    let tokens = ids[given..].to_vec();
    // The logits for a token come from the pass of the previous token, so the last token's logits are not needed.
    let (before, after) = ids[..ids.len() - 1].split_at(given - 1);
    if !before.is_empty() {
        session.prefill(before)?;
    }
    let (mut logprobs, mut greedy) = (Vec::new(), true);
    let (mut outside, mut numbers) = (None, Ok(()));
    session.prefill_all(after, |position, logits| {
        let token = ids[position + 1];
        numbers = numbers.and_then(|()| runtime::numbers(logits));
        match logits.get(token as usize) {
            Some(&logit) => {
                logprobs.push(f64::from(logit) - text::log_of_sum(logits));
                greedy &= logits.iter().zip(0..).all(|(&other, id)| other < logit || other == logit && id >= token);
            }
            None => outside = Some(token),
        }
    })?;
    numbers?;
    if let Some(token) = outside {
        bail!("token {token} is outside the model's vocabulary: give ids of this model");
    }
    Ok(Score { logprob: logprobs.iter().sum(), tokens, logprobs, greedy })
}
