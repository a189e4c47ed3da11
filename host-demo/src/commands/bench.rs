//! `arenite bench`: how fast a model runs here.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use arenite::sampler::argmax;
use arenite::{Context as Conversation, Engine, Model, Plan, TokenId, Work};
use serde::Serialize;

use crate::cli::{SessionArgs, at_least_one};
use crate::model_file::ModelFile;
use crate::output::{self, Bytes, Out, note};
use crate::runtime::{self, Memory};
use crate::{interrupt, workers};

/// Measure prefill and decode speed, time to the first token, load time and memory
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite bench -m model.gguf
  arenite bench -m model.gguf -p 512 -n 64 -t 1,2 -r 5 --json
  arenite bench -m model.gguf --sequences 1,8

Prefill is one prompt of -p tokens from an empty context, decode is -n single tokens from an empty
context, of each of --sequences conversations in one pass (tok/s: of all together); medians of -r rounds after one that is not counted. load_ms: from opening the file to a
session that is ready. first_token_ms: that, a first prompt of -p tokens, and choosing a token.")]
pub struct Args {
    /// Tokens of the prompt
    #[arg(short, long, value_name = "TOKENS", default_value_t = 512, value_parser = at_least_one())]
    prompt: usize,

    /// Tokens to decode
    #[arg(short, long, value_name = "TOKENS", default_value_t = 128, value_parser = at_least_one())]
    n_tokens: usize,

    /// Numbers of threads to try [default: one for every core]
    #[arg(short, long, value_delimiter = ',', value_parser = at_least_one())]
    threads: Vec<usize>,

    /// Numbers of conversations that decode together to try
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = at_least_one())]
    sequences: Vec<usize>,

    /// Rounds
    #[arg(short, long, default_value_t = 5, value_parser = at_least_one())]
    rounds: usize,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct Report {
    results: Vec<Measured>,
}

#[derive(Serialize)]
struct Measured {
    model: String,
    isa: &'static str,
    threads: usize,
    sequences: usize,
    prefill_tokens: usize,
    decode_tokens: usize,
    prefill_tok_s: f64,
    decode_tok_s: f64,
    first_token_ms: f64,
    load_ms: f64,
    workspace_bytes: usize,
    kv_bytes: usize,
    peak_rss_bytes: Option<usize>,
}

pub fn run(args: &Args, model: Option<&Path>) -> Result<ExitCode> {
    interrupt::listen();
    let threads = if args.threads.is_empty() { vec![workers::cores()] } else { args.threads.clone() };
    let mut out = Out::lock();
    if !args.json {
        writeln!(
            out,
            "{:>7}  {:>8}  {:>9}  {:>14}  {:>14}  {:>11}  {:>8}  {:>10}  {:>10}  {:>10}",
            "threads",
            "isa",
            "sequences",
            "prefill tok/s",
            "decode tok/s",
            "first token",
            "load",
            "workspace",
            "KV cache",
            "peak RSS"
        )?;
    }
    let mut results = Vec::new();
    let ways = threads.iter().flat_map(|threads| args.sequences.iter().map(|sequences| (*threads, *sequences)));
    for (threads, sequences) in ways {
        let Some(measured) = measure(args, model, threads, sequences)? else {
            note("stopped");
            return Ok(ExitCode::from(output::INTERRUPTED));
        };
        if !args.json {
            print(&mut out, &measured)?;
        }
        results.push(measured);
    }
    if args.json {
        out.json_pretty(&Report { results })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads the model and runs all rounds; `None` after Ctrl-C.
fn measure(args: &Args, path: Option<&Path>, threads: usize, sequences: usize) -> Result<Option<Measured>> {
    let start = Instant::now();
    let file = ModelFile::open(path)?;
    let gguf = file.parse()?;
    let model = Model::new(&gguf).with_context(|| file.name().to_string())?;
    let kernels = runtime::kernels(&args.session.isa)?;
    let workers = workers::start(threads);
    let context = args.session.ctx_size.unwrap_or(args.prompt.max(args.n_tokens));
    ensure!(
        context >= args.prompt.max(args.n_tokens),
        "a context of {context} is too short for -p {} and -n {}: give a larger -c",
        args.prompt,
        args.n_tokens
    );
    let options = runtime::options(&args.session, context, workers.count()).contexts(sequences);
    let plan = Plan::try_of(&gguf, options).with_context(|| file.name().to_string())?;
    let mut memory = Memory::new(&plan)?;
    let mut engine = memory.engine(&model, plan, kernels, &*workers)?;
    let mut contexts = (0..sequences).map(|_| engine.open()).collect::<Result<Vec<_>, _>>()?;
    let load = start.elapsed();

    let tokens = random_ids(args.prompt.max(args.n_tokens), model.spec().vocab);
    let prompt = &tokens[..args.prompt];
    engine.run(&mut [Work::prefill(&mut contexts[0], prompt)])?;
    std::hint::black_box(argmax(engine.logits(&contexts[0])));
    let first_token = start.elapsed();

    let mut prefill = Vec::new();
    let mut decode = Vec::new();
    // Round 0 warms up what the first prompt did not touch.
    for round in 0..=args.rounds {
        let Some((prefilled, decoded)) = one_round(&mut engine, &mut contexts, prompt, &tokens[..args.n_tokens])?
        else {
            return Ok(None);
        };
        if round > 0 {
            prefill.push(prefilled);
            decode.push(decoded);
        }
    }
    Ok(Some(Measured {
        model: file.name().to_string(),
        isa: kernels.name,
        threads: workers.count(),
        sequences,
        prefill_tokens: args.prompt,
        decode_tokens: args.n_tokens,
        prefill_tok_s: args.prompt as f64 / median(&mut prefill),
        decode_tok_s: (sequences * args.n_tokens) as f64 / median(&mut decode),
        first_token_ms: milliseconds(first_token),
        load_ms: milliseconds(load),
        workspace_bytes: plan.workspace,
        kv_bytes: plan.kv,
        peak_rss_bytes: peak_rss(),
    }))
}

/// Seconds of one prefill and of decoding with all contexts, each from an empty context; `None` after Ctrl-C.
fn one_round(
    engine: &mut Engine<'_, '_>,
    contexts: &mut [Conversation],
    prompt: &[TokenId],
    decode: &[TokenId],
) -> Result<Option<(f64, f64)>> {
    rewind(engine, contexts)?;
    let start = Instant::now();
    engine.run(&mut [Work::prefill(&mut contexts[0], prompt)])?;
    let prefilled = start.elapsed();

    rewind(engine, contexts)?;
    let start = Instant::now();
    for &token in decode {
        let mut works: Vec<_> = contexts.iter_mut().map(|context| Work::decode(context, token)).collect();
        engine.run(&mut works)?;
        if interrupt::asked() {
            return Ok(None);
        }
    }
    Ok(Some((prefilled.as_secs_f64(), start.elapsed().as_secs_f64())))
}

/// All contexts to their beginning.
fn rewind(engine: &mut Engine<'_, '_>, contexts: &mut [Conversation]) -> Result<()> {
    Ok(contexts.iter_mut().try_for_each(|context| engine.rewind(context, 0))?)
}

fn print(out: &mut Out, measured: &Measured) -> Result<()> {
    writeln!(
        out,
        "{:>7}  {:>8}  {:>9}  {:>14.1}  {:>14.1}  {:>8.1} ms  {:>5.1} ms  {:>10}  {:>10}  {:>10}",
        measured.threads,
        measured.isa,
        measured.sequences,
        measured.prefill_tok_s,
        measured.decode_tok_s,
        measured.first_token_ms,
        measured.load_ms,
        Bytes(measured.workspace_bytes),
        Bytes(measured.kv_bytes),
        measured.peak_rss_bytes.map_or("unknown".to_string(), |bytes| Bytes(bytes).to_string()),
    )?;
    out.flush()?;
    Ok(())
}

/// The same ids in every run: what they are does not matter to the speed, only that a table of
/// embeddings is not read from one place.
fn random_ids(count: usize, vocab: usize) -> Vec<TokenId> {
    let mut state = 1u64;
    let mut next = || {
        // Knuth's MMIX generator; its high bits are good enough here.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) % vocab.max(1) as u64) as TokenId
    };
    (0..count).map(|_| next()).collect()
}

fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    match seconds.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => seconds[n / 2],
        n => (seconds[n / 2 - 1] + seconds[n / 2]) / 2.0,
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The most memory that this process has had in RAM so far, the mapped model included; known on
/// Linux.
fn peak_rss() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_even_and_odd_numbers() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn random_ids_are_in_the_vocabulary() {
        assert!(random_ids(100, 7).iter().all(|&id| id < 7));
    }
}
