//! `arenite perplexity`: measures how well a model predicts a text, and the loss by quantization.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use arenite::{Session, TokenId};

use crate::cli::{RunArgs, at_least_one};
use crate::commands::corpus::{Corpus, DEFAULT_CHUNK};
use crate::commands::log_probs::{Head, Record, log_sum};
use crate::interrupt;
use crate::output::plot::Plot;
use crate::output::{INTERRUPTED, Out, note};
use arenite_files::NewFile;
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::{self, Memory};

/// Compute the perplexity of a text
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite perplexity -m model.gguf -f text.txt
  arenite perplexity -m model-f16.gguf -f text.txt --save-logits f16.logits
  arenite perplexity -m model-q4.gguf --kl f16.logits     measure the loss by quantization

The definition is that of llama-perplexity: the text is run in chunks of the context size (-c, or 512), and the second \
half of each chunk is scored. --save-logits writes the format of llama-perplexity's --kl-divergence-base. The file takes 2 bytes \
for each scored token and each token of the vocabulary.")]
pub struct Args {
    /// Text; not needed with --kl, whose file contains the tokens
    #[arg(short, long, value_name = "FILE", required_unless_present = "kl")]
    file: Option<PathBuf>,

    /// Run only the first N chunks
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    chunks: Option<usize>,

    /// Save the log-probabilities of the whole vocabulary, for --kl with another model
    #[arg(long, value_name = "F")]
    save_logits: Option<PathBuf>,

    /// Compare with saved log-probabilities (KL divergence)
    #[arg(long, value_name = "F")]
    kl: Option<PathBuf>,

    /// Plot the perplexity, and with --kl the divergence, of each chunk
    #[arg(long, value_name = "F.svg")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let open = OpenModel::new(file, args.run.options()?)?;
    let vocab = open.model().spec().vocab;
    let mut base = args.kl.as_deref().map(|path| Base::open(path, vocab)).transpose()?;
    let corpus = corpus(args, &open, base.as_ref())?;
    let chunk = corpus.chunk;

    let mut saved = match &args.save_logits {
        Some(path) => {
            let mut saved = NewFile::create(path)?;
            saved.fill(|saved| Head { chunk, vocab, tokens: corpus.tokens.clone() }.write(saved))?;
            Some(saved)
        }
        None => None,
    };
    let plan = open.plan(open.plan_options(chunk))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    interrupt::listen();
    let bar = corpus.bar();
    let mut scores = Scores::default();
    let (mut perplexities, mut divergences) = (Vec::new(), Vec::new());
    for (i, tokens) in corpus.chunks().enumerate() {
        if interrupt::asked() {
            bar.finish_and_clear();
            note("stopped");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        score(&mut session, &tokens, base.as_mut(), saved.as_mut(), &mut scores)?;
        perplexities.push(((i + 1) as f64, scores.loss.mean().exp()));
        divergences.push(((i + 1) as f64, scores.divergence.mean()));
        bar.set_message(format!("perplexity {:.4}", scores.loss.mean().exp()));
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(saved) = saved {
        saved.finish()?;
    }
    if let Some(path) = &args.plot {
        let (y, points) =
            if base.is_some() { ("mean divergence (nats)", divergences) } else { ("perplexity", perplexities) };
        Plot { title: open.name(), x: "chunks", y, curves: &[(y.to_owned(), points)] }.save(path)?;
    }
    scores.print(base.is_some())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the tokens to be scored. If the log-probabilities of another model are given, these are the tokens for which
/// they were saved; otherwise the tokens of the text.
fn corpus(args: &Args, open: &OpenModel, base: Option<&Base>) -> Result<Corpus> {
    let (context, tokenizer) = (open.options.context, open.vocabulary()?);
    let Some(base) = base else {
        let path = args.file.as_deref().context("give a text file with -f")?;
        let chunk = context.unwrap_or(DEFAULT_CHUNK.min(open.model().spec().context));
        ensure!(chunk > 1, "the first token of a chunk is not scored: give -c 2 or more");
        return Corpus::read(path, tokenizer, chunk, args.chunks);
    };
    let Head { chunk, tokens, .. } = &base.head;
    if let Some(context) = context {
        ensure!(context == *chunk, "{} was made with -c {chunk}: give the same, or leave -c out", base.path.display());
    }
    let limit = args.chunks.map_or(tokens.len(), |chunks| chunks.saturating_mul(*chunk));
    let tokens: Vec<TokenId> = tokens.iter().copied().take(limit).collect();
    if let Some(path) = &args.file {
        let text = Corpus::read(path, tokenizer, *chunk, args.chunks)?;
        ensure!(text.tokens.starts_with(&tokens), "{} was made from another text", base.path.display());
    }
    Ok(Corpus::new(tokens, tokenizer, *chunk))
}

/// Runs a chunk and scores its second half.
fn score(
    session: &mut Session<'_, '_>,
    tokens: &[TokenId],
    mut base: Option<&mut Base>,
    mut saved: Option<&mut NewFile>,
    scores: &mut Scores,
) -> Result<()> {
    let first = tokens.len() / 2;
    session.rewind(0)?;
    if first > 0 {
        session.prefill(&tokens[..first])?;
    }
    let mut failed = Ok(());
    session.prefill_all(&tokens[first..tokens.len() - 1], |position, logits| {
        let mut one = || -> Result<()> {
            runtime::numbers(logits)?;
            let token = tokens[position + 1];
            let (top, log_sum) = log_sum(logits);
            let logit = logits.get(token as usize).with_context(|| {
                format!(
                    "token {token} is outside the model's vocabulary: give a file whose vocabulary matches the model"
                )
            })?;
            let loss = f64::from(top) + log_sum - f64::from(*logit);
            scores.loss.add(loss);
            if let Some(base) = base.as_deref_mut() {
                let record = Record::read(&mut base.from, base.head.vocab)?;
                let (divergence, same) = record.divergence(logits);
                scores.compare(loss, -record.log_prob(token), divergence, same);
            }
            match saved.as_deref_mut() {
                Some(saved) => saved.fill(|saved| Record::of(logits).write(saved)),
                None => Ok(()),
            }
        };
        if failed.is_ok() {
            failed = one();
        }
    })?;
    failed
}

/// An opened file with the log-probabilities of a different model.
struct Base {
    path: PathBuf,
    head: Head,
    from: BufReader<File>,
}

impl Base {
    fn open(path: &Path, vocab: usize) -> Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let mut from = BufReader::with_capacity(1 << 20, File::open(path).with_context(cannot)?);
        arenite_files::keep(path);
        let head = Head::read(&mut from).with_context(|| path.display().to_string())?;
        if head.vocab != vocab {
            bail!(
                "{} has {} log-probabilities per token, but the model's vocabulary has {vocab} tokens",
                path.display(),
                head.vocab
            );
        }
        Ok(Self { path: path.to_owned(), head, from })
    }
}

/// A running mean.
#[derive(Default)]
struct Mean {
    count: usize,
    sum: f64,
    squares: f64,
}

impl Mean {
    fn add(&mut self, x: f64) {
        self.count += 1;
        self.sum += x;
        self.squares += x * x;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// Returns the standard error of the mean; 0 for fewer than two values.
    fn error(&self) -> f64 {
        let variance = self.squares / self.count as f64 - self.mean() * self.mean();
        if variance > 0.0 && self.count > 1 { (variance / (self.count - 1) as f64).sqrt() } else { 0.0 }
    }
}

/// Running means over the scored tokens.
#[derive(Default)]
struct Scores {
    /// Negative log-probability of each scored token.
    loss: Mean,
    /// The negative log-probability of each scored token in the saved log-probabilities, i.e. for the other model.
    base: Mean,
    /// `loss` minus `base` of each scored token.
    excess: Mean,
    divergence: Mean,
    divergences: Vec<f64>,
    /// Squared change of the token's probability.
    change: Mean,
    same: Mean,
}

impl Scores {
    fn compare(&mut self, loss: f64, base: f64, divergence: f64, same: bool) {
        self.base.add(base);
        self.excess.add(loss - base);
        self.divergence.add(divergence);
        self.divergences.push(divergence);
        self.change.add(((-loss).exp() - (-base).exp()).powi(2));
        self.same.add(f64::from(u8::from(same)));
    }

    fn print(mut self, compared: bool) -> Result<()> {
        let mut out = Out::lock();
        if compared {
            self.divergences.sort_by(f64::total_cmp);
            let last = self.divergences.len().saturating_sub(1);
            let quantile = |q: f64| self.divergences.get((q * last as f64).round() as usize).copied().unwrap_or(0.0);
            writeln!(out, "KL divergence {:.6} +- {:.6}", self.divergence.mean(), self.divergence.error())?;
            writeln!(
                out,
                "its median {:.6}, 99 % below {:.6}, largest {:.6}",
                quantile(0.5),
                quantile(0.99),
                quantile(1.0)
            )?;
            writeln!(out, "same top token {:.3} +- {:.3} %", 100.0 * self.same.mean(), 100.0 * self.same.error())?;
            writeln!(out, "change of probability, RMS {:.3} %", 100.0 * self.change.mean().sqrt())?;
            let (base, excess) = (self.base.mean().exp(), self.excess.mean());
            writeln!(out, "saved perplexity {base:.4} +- {:.5}", base * self.base.error())?;
            writeln!(out, "log of the ratio {excess:.5} +- {:.5}", self.excess.error())?;
        }
        let perplexity = self.loss.mean().exp();
        writeln!(out, "perplexity {perplexity:.4} +- {:.5}", perplexity * self.loss.error())?;
        Ok(())
    }
}
