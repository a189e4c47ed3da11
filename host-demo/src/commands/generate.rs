//! `arenite generate`: continue a text.

use std::hash::{BuildHasher, Hasher};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::tokenizer::{Decoder, Encode, Tokenizer};
use arenite::{Model, TokenId};
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::{Ids, RunArgs};
use crate::generation::{self, End, Outcome, Request};
use crate::model_file::ModelFile;
use crate::output::{self, Bytes, Out, note};
use crate::runtime::{self, Memory};
use crate::{interrupt, text, workers};

/// Continue a text
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite generate -m model.gguf -p \"The sea was\" -n 100 --temp 0.7 --seed 7
  arenite generate -m model.gguf --ids 1,403,407 --temp 0 --format ids

It ends at an end token, at a --stop text, after -n tokens, when the context is full, or with
Ctrl-C, which finishes the line, prints the statistics and gives exit code 130.")]
pub struct Args {
    /// The text to continue; special tokens are added as the model's metadata says
    #[arg(short, long, value_name = "TEXT", default_value = "Once upon a time", conflicts_with = "ids")]
    prompt: String,

    /// Token ids to continue instead of a text, exactly as given, such as 1,2,3
    #[arg(long, value_name = "IDS")]
    ids: Option<Ids>,

    /// Most tokens to make [default: until an end token comes or the context is full]
    #[arg(short, long, value_name = "N")]
    n_tokens: Option<usize>,

    /// Print only what is new
    #[arg(long)]
    no_display_prompt: bool,

    /// What to print: text as it comes, a JSON list of the new ids, or a JSON object
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// End when this text appears, which is not shown; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Go on after an end token
    #[arg(long)]
    ignore_eos: bool,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    run: RunArgs,
}

/// How the next token is chosen.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// Temperature: 0 always takes the most likely token
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = not_negative)]
    temp: f32,

    /// Only the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: u32,

    /// Only the most likely tokens that together have this probability; 1 for all
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = probability)]
    top_p: f32,

    /// Only tokens at least this probable, relative to the most likely one; 0 for all
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = probability)]
    min_p: f32,

    /// Divide the logits of recent tokens by this; 1 for no change
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = positive)]
    repeat_penalty: f32,

    /// Subtract this for every time a recent token came
    #[arg(long, value_name = "F", default_value_t = 0.0, allow_negative_numbers = true, value_parser = finite)]
    frequency_penalty: f32,

    /// Subtract this if a recent token came at all
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true, value_parser = finite)]
    presence_penalty: f32,

    /// Seed of the random numbers [default: by chance, printed at the end]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// Add B to the logit of token ID, such as 13=-2.5 or 13=-inf; may be given several times
    #[arg(long, value_name = "ID=B", value_parser = bias)]
    logit_bias: Vec<(TokenId, f32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Ids,
    Json,
}

/// What is known of a run when it is over.
#[derive(Serialize)]
struct Stats {
    prompt_tokens: usize,
    prefill_tok_s: f64,
    tokens: usize,
    decode_tok_s: f64,
    workspace_bytes: usize,
    kv_bytes: usize,
    model_bytes: usize,
    context: usize,
    batch: usize,
    kv: &'static str,
    isa: &'static str,
    threads: usize,
    seed: u64,
    end: &'static str,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    interrupt::listen();
    let named = || file.name().to_string();
    let gguf = file.parse()?;
    let model = Model::new(&gguf).with_context(named)?;
    let kernels = runtime::kernels(&args.run.session.isa)?;
    let workers = workers::start(args.run.threads.unwrap_or_else(workers::cores));

    let mut index = Vec::new();
    let tokenizer = match text::tokenizer(&gguf, &mut index) {
        Ok(tokenizer) => Some(tokenizer),
        // Ids in, ids out: that works without a vocabulary.
        Err(_) if args.ids.is_some() && args.format == Format::Ids => None,
        Err(error) => return Err(error).with_context(named),
    };
    let tokenizer = tokenizer.as_ref();
    let (prompt, shown, decoder) = prompt(args, tokenizer)?;

    let wanted = prompt.len().saturating_add(args.n_tokens.unwrap_or(0));
    let context = runtime::context(&args.run.session, &model, wanted);
    let plan = runtime::plan(&gguf, &args.run.session, context, workers.count()).with_context(named)?;
    let mut memory = Memory::new(&plan)?;
    let mut session = memory.session(&model, plan, kernels, &*workers)?;

    let vocab = model.spec().vocab;
    let seed = args.sampling.seed.unwrap_or_else(any_seed);
    let params = params(&args.sampling);
    let mut scratch = vec![0; Sampler::scratch_bytes(&params, vocab)];
    let mut sampler = Sampler::new(params, &args.sampling.logit_bias, vocab, &mut scratch)?;
    let request = Request {
        prompt: &prompt,
        text: tokenizer.zip(decoder),
        limit: args.n_tokens,
        stops: &args.stop,
        ignore_end: args.ignore_eos,
        step: plan.options.batch,
    };

    let mut printer = Printer::new(args, shown);
    let outcome =
        generation::run(&mut session, &mut sampler, &mut Pcg32::new(seed), request, |text| printer.text(text))?;
    let stats = Stats {
        prompt_tokens: prompt.len(),
        prefill_tok_s: rate(prompt.len(), outcome.prefill),
        tokens: outcome.ids.len(),
        decode_tok_s: rate(outcome.decodes, outcome.decode),
        workspace_bytes: plan.workspace,
        kv_bytes: plan.kv,
        model_bytes: file.len(),
        context: plan.options.context,
        batch: plan.options.batch,
        kv: args.run.session.kv.name(),
        isa: kernels.name,
        threads: workers.count(),
        seed,
        end: outcome.end.name(),
    };
    printer.finish(&prompt, &outcome, &stats)?;
    print_stats(&stats);
    Ok(if outcome.end == End::Interrupted { ExitCode::from(output::INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The tokens to continue, their text, and a decoder that goes on after them.
fn prompt(args: &Args, tokenizer: Option<&Tokenizer<'_, '_>>) -> Result<(Vec<TokenId>, String, Option<Decoder>)> {
    let ids = match (&args.ids, tokenizer) {
        (Some(ids), _) => ids.0.clone(),
        (None, Some(tokenizer)) => text::encode(tokenizer, args.prompt.as_bytes(), Encode::PROMPT)?,
        (None, None) => Vec::new(),
    };
    if ids.is_empty() {
        bail!("there is nothing to continue: give a text with -p, or tokens with --ids");
    }
    let Some(tokenizer) = tokenizer else { return Ok((ids, String::new(), None)) };
    // Whether a space is dropped from what follows depends on what was before.
    let mut decoder = tokenizer.decoder();
    let mut shown = String::new();
    for &id in &ids {
        text::push(&mut decoder, id, tokenizer, &mut shown)?;
    }
    if args.ids.is_none() {
        shown.clone_from(&args.prompt);
    }
    Ok((ids, shown, Some(decoder)))
}

/// Writes the output in its format.
struct Printer {
    format: Format,
    out: Out,
    /// What stands before the continuation.
    prompt: String,
    display_prompt: bool,
    text: String,
    started: bool,
}

impl Printer {
    fn new(args: &Args, prompt: String) -> Self {
        Self {
            format: args.format,
            out: Out::lock(),
            prompt,
            display_prompt: !args.no_display_prompt,
            text: String::new(),
            started: false,
        }
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.text += text;
        if self.format == Format::Text {
            self.start()?;
            self.out.now(text.as_bytes())?;
        }
        Ok(())
    }

    /// Prints the prompt, once.
    fn start(&mut self) -> Result<()> {
        if !self.started && self.display_prompt {
            self.out.now(self.prompt.as_bytes())?;
        }
        self.started = true;
        Ok(())
    }

    fn finish(&mut self, prompt_ids: &[TokenId], outcome: &Outcome, stats: &Stats) -> Result<()> {
        #[derive(Serialize)]
        struct Report<'a> {
            prompt: &'a str,
            text: &'a str,
            prompt_ids: &'a [TokenId],
            ids: &'a [TokenId],
            stats: &'a Stats,
        }
        match self.format {
            Format::Text => {
                self.start()?;
                self.out.now(b"\n")?;
            }
            Format::Ids => self.out.json(&outcome.ids)?,
            Format::Json => self.out.json_pretty(&Report {
                prompt: &self.prompt,
                text: &self.text,
                prompt_ids,
                ids: &outcome.ids,
                stats,
            })?,
        }
        Ok(())
    }
}

fn print_stats(stats: &Stats) {
    let count = |n: usize| format!("{n} token{}", if n == 1 { "" } else { "s" });
    // The first token comes with the prompt: one alone has no speed.
    let speed = |rate: f64| if rate > 0.0 { format!(", {rate:.1} tok/s") } else { String::new() };
    note(format_args!("prompt  {}{}", count(stats.prompt_tokens), speed(stats.prefill_tok_s)));
    note(format_args!("decode  {}{}, ended by {}", count(stats.tokens), speed(stats.decode_tok_s), stats.end));
    note(format_args!(
        "memory  workspace {}, KV cache {} ({} positions in {}), model {} read in place",
        Bytes(stats.workspace_bytes),
        Bytes(stats.kv_bytes),
        stats.context,
        stats.kv,
        Bytes(stats.model_bytes),
    ));
    note(format_args!("run     --seed {} --isa {} --threads {}", stats.seed, stats.isa, stats.threads));
}

/// Tokens in a second; 0 where there were none.
fn rate(tokens: usize, time: Duration) -> f64 {
    if tokens == 0 { 0.0 } else { tokens as f64 / time.as_secs_f64().max(1e-9) }
}

fn params(args: &SamplingArgs) -> Params {
    Params {
        temperature: args.temp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repeat_penalty: args.repeat_penalty,
        frequency_penalty: args.frequency_penalty,
        presence_penalty: args.presence_penalty,
        ..Params::DEFAULT
    }
}

/// A seed that nobody chose, short enough to be typed again. The keys of the standard library's
/// hash maps come from the system's random numbers.
fn any_seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() % 1_000_000_000
}

fn finite(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err("give a number, such as 0.8".to_string()),
    }
}

fn not_negative(text: &str) -> Result<f32, String> {
    finite(text).and_then(|value| if value >= 0.0 { Ok(value) } else { Err("it must not be negative".to_string()) })
}

fn positive(text: &str) -> Result<f32, String> {
    finite(text).and_then(|value| if value > 0.0 { Ok(value) } else { Err("it must be more than 0".to_string()) })
}

fn probability(text: &str) -> Result<f32, String> {
    finite(text).and_then(|value| {
        if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("it must be from 0 to 1".to_string()) }
    })
}

fn bias(text: &str) -> Result<(TokenId, f32), String> {
    let parsed = text.split_once('=').and_then(|(id, bias)| {
        let bias = bias.trim().parse::<f32>().ok().filter(|bias| !bias.is_nan())?;
        Some((id.trim().parse().ok()?, bias))
    });
    parsed.ok_or_else(|| "give a token id and a number, such as 13=-2.5".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_are_read() {
        assert_eq!(bias("13=-2.5"), Ok((13, -2.5)));
        assert_eq!(bias("0=-inf"), Ok((0, f32::NEG_INFINITY)));
        for wrong in ["13", "x=1", "1=x", "-1=1", "1=nan"] {
            assert!(bias(wrong).is_err(), "{wrong}");
        }
    }
}
