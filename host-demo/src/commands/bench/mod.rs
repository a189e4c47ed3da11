//! `arenite bench`: measures the speed of a model on this machine.

mod limits;
mod profile;
mod report;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use arenite::sampler::argmax;
use arenite::{Context, Engine, KvType, TokenId, Work};

use crate::cli::{ModelArgs, SessionArgs, at_least_one, threads};
use crate::output::{self, Out, note};
use crate::{formats, interrupt};
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::{self, Memory};
use arenite_run::workers;
use limits::Limits;
use report::{Format, Measured, Report};
use traffic::Run;

/// Measure prefill and decode speed, time to first token, load time and memory
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite bench -m model.gguf
  arenite bench -m model.gguf -p 512 -n 64 -t 1,2 -r 5 --json
  arenite bench -m model.gguf -d 8192 -n 32 -r 1
  arenite bench -m model.gguf --profile
  arenite bench -m model.gguf -t 1,2,4 --plot speed.svg

Prefill is a prompt of -p tokens, decode is -n single tokens; each begins after -d tokens that are not measured. \
Speeds are medians of -r rounds after a warm-up round. load_ms is the time from opening the file to a \
ready session; first_token_ms adds the first prompt of -d and -p tokens and sampling a token. The limits of the machine are \
measured after them: \"of peak\" is the share of the products of bytes that the processor can do in registers (a product \
of floats, as in attention, counts as four), \"of reads\" the share of plain reading of the same pages; a model in the \
cache is read faster than from memory. \
The profile is measured separately; its clock adds a little time, which is included in the rows.")]
pub struct Args {
    /// Numbers of prompt tokens; 0 measures only decoding
    #[arg(short, long, value_name = "TOKENS", value_delimiter = ',', default_value = "512", value_parser = count)]
    prompt: Vec<usize>,

    /// Numbers of tokens to decode; 0 measures only the prompt
    #[arg(short, long, value_name = "TOKENS", value_delimiter = ',', default_value = "128", value_parser = count)]
    n_tokens: Vec<usize>,

    /// Numbers of tokens that the context has before the prompt, and before the tokens to decode
    #[arg(short, long, value_name = "TOKENS", value_delimiter = ',', default_value = "0", value_parser = count)]
    depth: Vec<usize>,

    /// Numbers of threads to try [default: number of cores]
    #[arg(short, long, value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,

    /// Numbers of conversations to decode in one pass
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = sequences)]
    sequences: Vec<usize>,

    /// Number of proposed tokens, all wrong, that are verified with each decoded token: the speed is that of one token per
    /// pass. If the model has layers for drafts, they propose the tokens
    #[arg(long, value_name = "N", default_value_t = 0)]
    draft: usize,

    /// Number of rounds
    #[arg(short, long, default_value_t = 5, value_parser = at_least_one)]
    rounds: usize,

    /// Print one JSON object; the same as -o json
    #[arg(long)]
    json: bool,

    /// Output format: a table, Markdown, comma-separated values, or a JSON object
    #[arg(short, long, value_enum, default_value_t = Format::Table, conflicts_with = "json")]
    output: Format,

    /// Show the time of each section of a pass
    #[arg(long)]
    profile: bool,

    /// Plot the speed over the number of threads
    #[arg(long, value_name = "F.svg")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    session: SessionArgs,
}

fn count(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { at_least_one(text) }
}

fn sequences(text: &str) -> Result<usize, String> {
    const MAX: usize = 1024;
    at_least_one(text).and_then(|n| if n <= MAX { Ok(n) } else { Err(format!("give at most {MAX}")) })
}

pub fn run(args: &Args, model: &ModelArgs) -> Result<ExitCode> {
    interrupt::listen();
    let threads = if args.threads.is_empty() { vec![workers::cores()] } else { args.threads.clone() };
    let cases = args.cases(&threads);
    ensure!(!cases.is_empty(), "there is nothing to measure: give -p or -n a number above 0");
    ensure!(
        !args.profile || cases.iter().all(|case| case.prompt > 0 && case.decode > 0),
        "--profile needs a prompt and tokens to decode: give -p and -n numbers above 0"
    );
    ensure!(!args.profile || args.depth == [0], "--profile measures from an empty context: leave out -d");
    let mut report = Report::new(if args.json { Format::Json } else { args.output });
    let mut out = Out::lock();
    for case in cases {
        let Some(measured) = measure(args, model, case)? else {
            note("stopped");
            return Ok(ExitCode::from(output::INTERRUPTED));
        };
        report.add(&mut out, measured)?;
    }
    report.finish(&mut out)?;
    if let Some(path) = &args.plot {
        report.plot(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The numbers of a measurement.
#[derive(Clone, Copy)]
struct Case {
    threads: usize,
    sequences: usize,
    depth: usize,
    prompt: usize,
    decode: usize,
}

impl Args {
    /// All combinations of the numbers that the options list.
    fn cases(&self, threads: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        for &threads in threads {
            for &depth in &self.depth {
                for &prompt in &self.prompt {
                    for &decode in &self.n_tokens {
                        let sequences = self.sequences.iter();
                        cases.extend(sequences.map(|&sequences| Case { threads, sequences, depth, prompt, decode }));
                    }
                }
            }
        }
        cases.retain(|case| case.prompt > 0 || case.decode > 0);
        cases
    }
}

/// Loads the model and runs all rounds; returns `None` after Ctrl-C.
fn measure(args: &Args, model: &ModelArgs, case: Case) -> Result<Option<Measured>> {
    let Case { threads, sequences, .. } = case;
    let start = Instant::now();
    let open = OpenModel::new(formats::open(model)?, args.session.options(threads)?)?;
    let model = open.model();
    let longest = case.depth + case.prompt.max(case.decode);
    let context = open.options.context.unwrap_or(longest + args.draft);
    ensure!(
        context >= longest + args.draft,
        "a context of {context} is too short for {longest} tokens (-d with -p or -n): give a larger -c"
    );
    runtime::warn_of_length(context, model);
    let options = open.plan_options(context).contexts(sequences).logits(sequences * (1 + args.draft));
    let own = args.draft > 0 && model.can_draft();
    let plan = open.plan(options.drafts(args.draft).own_drafts(own))?;
    let mut memory = Memory::new(&plan)?;
    let mut engine = open.engine(&mut memory, plan)?;
    let mut contexts = (0..sequences).map(|_| engine.open()).collect::<Result<Vec<_>, _>>()?;
    contexts.iter_mut().try_for_each(|context| engine.adapt(context, open.scales()))?;
    let load = start.elapsed();

    let tokens = random_ids(longest, model.spec().vocab);
    let (before, rest) = tokens.split_at(case.depth);
    let (prompt, decode) = (&rest[..case.prompt], &rest[..case.decode]);
    if let [first, ..] = &mut contexts[..]
        && !prompt.is_empty()
    {
        engine.run(&mut [Work::prefill(first, &tokens[..case.depth + case.prompt])])?;
        std::hint::black_box(argmax(engine.logits(first)));
    }
    let first_token = start.elapsed();

    let (mut prefilled, mut decoded) = (Vec::new(), Vec::new());
    // Round 0 warms up the code and the memory that the prompt's first pass did not use. Its times are not counted.
    for round in 0..=args.rounds {
        let Some((one, other)) = one_round(&mut engine, &mut contexts, before, prompt, (decode, args.draft))? else {
            return Ok(None);
        };
        if round > 0 {
            prefilled.push(one);
            decoded.push(other);
        }
    }
    // The peak memory is measured here, because the profile after this allocates memory itself.
    let peak_rss_bytes = peak_rss();
    let limits = Limits::measure(open.gguf(), open.options.kernels, threads);
    let value_34ths = value_34ths(plan.options.kv);
    // If a part of the measurement has no tokens, its speed is NaN. JSON has no NaN, so it becomes null.
    let (prefill, decode_tok_s) =
        (speed(case.prompt, median(&mut prefilled)), speed(case.decode, median(&mut decoded)));
    let traffic = |tokens, before| {
        let run = Run { tokens, before, batch: plan.options.batch, value_34ths };
        traffic::total(open.gguf(), model, &run)
    };
    let products = traffic(case.prompt, case.depth).multiplications as f64 / case.prompt as f64;
    // In decoding, a pass computes one token of each sequence. It reads the weights once, and the cache of every
    // sequence.
    let (one, weights) = (traffic(1, case.depth + case.decode / 2).bytes, traffic(1, 0).bytes);
    let bytes = (one + one.saturating_sub(weights) * (sequences as u64 - 1)) as f64;
    let mut profile = None;
    if args.profile {
        let plan = open.plan(open.plan_options(context))?;
        profile = profile::Task { open: &open, plan, prompt, decode, rounds: args.rounds, value_34ths }.measure()?;
        if profile.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(Measured {
        model: open.name().to_string(),
        isa: open.options.kernels.name,
        threads: open.workers().count(),
        sequences,
        depth: case.depth,
        prefill_tokens: case.prompt,
        decode_tokens: case.decode,
        draft: args.draft,
        prefill_tok_s: prefill,
        decode_tok_s: decode_tok_s * sequences as f64,
        limits,
        prefill_share: limits.share_of_products(products * prefill),
        decode_share: bytes * decode_tok_s / (limits.read_gb_s * 1e9),
        first_token_ms: if prompt.is_empty() { f64::NAN } else { milliseconds(first_token) },
        load_ms: milliseconds(load),
        workspace_bytes: plan.workspace,
        kv_bytes: plan.kv,
        peak_rss_bytes,
        profile,
    }))
}

/// The bytes of a value in the cache, in 34ths.
fn value_34ths(kv: KvType) -> u64 {
    match kv {
        KvType::F32 => 4 * 34,
        KvType::F16 => 2 * 34,
        KvType::Q8_0 => 36 + 1,
        KvType::Q8_0Q4_0 => 28,
        KvType::Q4_0 => 19 + 1,
    }
}

/// After the tokens `before`, prefills the first conversation; then, again after `before`, decodes all conversations. Returns
/// the number of seconds of the prefill and of the decoding; `None` after Ctrl-C.
fn one_round(
    engine: &mut Engine<'_, '_>,
    contexts: &mut [Context],
    before: &[TokenId],
    prompt: &[TokenId],
    (decode, draft): (&[TokenId], usize),
) -> Result<Option<(f64, f64)>> {
    begin(engine, contexts, before)?;
    let start = Instant::now();
    if let [first, ..] = &mut contexts[..]
        && !prompt.is_empty()
    {
        engine.run(&mut [Work::prefill(first, prompt)])?;
    }
    let prefilled = start.elapsed();

    begin(engine, contexts, before)?;
    let start = Instant::now();
    for (i, &token) in decode.iter().enumerate() {
        match &mut contexts[..] {
            all if draft > 0 => {
                let run: Vec<TokenId> = decode.iter().cycle().skip(i).take(1 + draft).copied().collect();
                verify(engine, all, &run)?;
            }
            [one] => engine.run(&mut [Work::decode(one, token)])?,
            all => engine.run(&mut all.iter_mut().map(|context| Work::decode(context, token)).collect::<Vec<_>>())?,
        }
        if interrupt::asked() {
            return Ok(None);
        }
    }
    Ok(Some((prefilled.as_secs_f64(), start.elapsed().as_secs_f64())))
}

/// Gives all contexts the tokens `before` and no others.
fn begin(engine: &mut Engine<'_, '_>, contexts: &mut [Context], before: &[TokenId]) -> Result<()> {
    for context in contexts {
        let kept = engine.nearest(context, before.len());
        engine.rewind(context, kept)?;
        if kept < before.len() {
            engine.run(&mut [Work::prefill(context, &before[kept..])])?;
        }
    }
    Ok(())
}

/// Proposes tokens and verifies them together with the first token of `run`, in all contexts. All proposed tokens are
/// wrong.
fn verify(engine: &mut Engine<'_, '_>, contexts: &mut [Context], run: &[TokenId]) -> Result<()> {
    if engine.plan().options.own_drafts && contexts.iter().all(|context| context.position() > 0) {
        for token in &run[1..] {
            engine.draft(&mut contexts.iter_mut().map(|context| Work::decode(context, *token)).collect::<Vec<_>>())?;
        }
    }
    let works = contexts.iter_mut().map(|context| Work::prefill(context, run).all_logits().tentative());
    engine.run(&mut works.collect::<Vec<_>>())?;
    for context in contexts {
        let position = context.position() + 1 - run.len();
        let back = engine.nearest(context, position);
        engine.rewind(context, back)?;
    }
    Ok(())
}

/// Returns pseudo-random token ids, the same in every run. The ids are random so that, as in real text, they read
/// different rows of the embedding.
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

/// Tokens per second; NaN without tokens.
fn speed(tokens: usize, seconds: f64) -> f64 {
    if tokens == 0 { f64::NAN } else { tokens as f64 / seconds }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Peak resident memory of this process in bytes, including the mapped model. `None` if it is unknown, as on systems
/// other than Linux.
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
