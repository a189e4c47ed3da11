//! Profiles a pass: the time of each section, and the number of bytes and multiplications in each section.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::{Plan, Profiler, Section, Session, TokenId};
use serde::Serialize;

use super::traffic::{self, Run, Traffic};
use crate::interrupt;
use crate::output::Out;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::Memory;

/// Sums the time of each section.
struct Timer {
    last: Mutex<Instant>,
    nanoseconds: [AtomicU64; Section::ALL.len()],
}

impl Timer {
    fn new() -> Self {
        Self { last: Mutex::new(Instant::now()), nanoseconds: Default::default() }
    }

    /// Starts the clock of the first section.
    fn start(&self) {
        *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }

    fn clear(&self) {
        self.nanoseconds.iter().for_each(|sum| sum.store(0, Ordering::Relaxed));
    }

    fn seconds(&self, section: Section) -> f64 {
        let at = Section::ALL.iter().position(|other| *other == section);
        let sum = at.and_then(|at| self.nanoseconds.get(at));
        sum.map_or(0.0, |sum| sum.load(Ordering::Relaxed) as f64 * 1e-9)
    }
}

impl Profiler for Timer {
    fn done(&self, section: Section) {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = Section::ALL.iter().position(|other| *other == section);
        if let Some(sum) = at.and_then(|at| self.nanoseconds.get(at)) {
            sum.fetch_add(now.duration_since(*last).as_nanos() as u64, Ordering::Relaxed);
        }
        *last = now;
    }
}

/// The profile of a model on this machine.
#[derive(Serialize)]
pub struct Profile {
    prefill: Pass,
    decode: Pass,
}

/// Profile of the prompt, or of one decoded token.
#[derive(Serialize)]
struct Pass {
    tokens: usize,
    ms: f64,
    parts: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    part: &'static str,
    ms: f64,
    share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    gb_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gmul_s: Option<f64>,
}

fn name(section: Section) -> &'static str {
    match section {
        Section::Embedding => "embedding",
        Section::Norms => "norms, sums",
        Section::Qkv => "q, k, v",
        Section::Heads => "rotation, cache",
        Section::Attention => "attention",
        Section::Output => "output",
        Section::State => "state",
        Section::FeedForward => "feed-forward",
        Section::Head => "head",
        _ => "other",
    }
}

/// What is measured: a model, the tokens that it reads, and the number of rounds.
pub struct Task<'t> {
    pub open: &'t OpenModel,
    pub plan: Plan,
    pub prompt: &'t [TokenId],
    pub decode: &'t [TokenId],
    pub rounds: usize,
    /// Size of a value in the KV cache, in 34ths of a byte.
    pub value_34ths: u64,
}

impl Task<'_> {
    /// Profiles prefill and decode; `None` after Ctrl-C.
    pub fn measure(&self) -> Result<Option<Profile>> {
        let timer = Timer::new();
        let mut memory = Memory::new(&self.plan)?;
        let session = self.open.session(&mut memory, self.plan)?;
        let mut session = session.with_profiler(&timer);
        session.prefill(self.prompt)?;

        timer.clear();
        let mut whole = Duration::ZERO;
        for _ in 0..self.rounds {
            session.rewind(0)?;
            let start = Instant::now();
            timer.start();
            session.prefill(self.prompt)?;
            whole += start.elapsed();
            if interrupt::asked() {
                return Ok(None);
            }
        }
        let batch = self.plan.options.batch;
        let run = Run { tokens: self.prompt.len(), before: 0, batch, value_34ths: self.value_34ths };
        let prefill = self.pass(&timer, whole, None, self.rounds, run);

        timer.clear();
        let Some((whole, sampling)) = self.decode(&mut session, &timer)? else { return Ok(None) };
        // Decoded tokens have different amounts of traffic. The traffic of a token in the middle of the text is taken
        // as their average.
        let run = Run { tokens: 1, before: self.decode.len() / 2, batch, value_34ths: self.value_34ths };
        let decode = self.pass(&timer, whole, Some(sampling), self.rounds * self.decode.len(), run);
        Ok(Some(Profile { prefill, decode }))
    }

    /// Decodes all tokens in every round, and samples after each token. Returns the time of decoding and sampling
    /// together, and the time of sampling alone; `None` after Ctrl-C.
    fn decode(&self, session: &mut Session<'_, '_>, timer: &Timer) -> Result<Option<(Duration, Duration)>> {
        let vocab = self.open.model().spec().vocab;
        let mut scratch = vec![0; Sampler::scratch_bytes(&Params::DEFAULT, vocab)];
        let mut sampler = Sampler::new(Params::DEFAULT, &[], vocab, &mut scratch).context("the sampler")?;
        let mut rng = Pcg32::new(1);
        let (mut whole, mut sampling) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..self.rounds {
            session.rewind(0)?;
            for &token in self.decode {
                let start = Instant::now();
                timer.start();
                session.decode(token)?;
                let decoded = Instant::now();
                std::hint::black_box(sampler.sample(session.logits_mut(), &mut rng)?);
                sampling += decoded.elapsed();
                whole += start.elapsed();
                if interrupt::asked() {
                    return Ok(None);
                }
            }
        }
        Ok(Some((whole, sampling)))
    }

    fn pass(&self, timer: &Timer, whole: Duration, sampling: Option<Duration>, times: usize, run: Run) -> Pass {
        let whole = whole.as_secs_f64() / times as f64;
        let part = |part, seconds: f64, traffic: Option<Traffic>| {
            let rate = |amount: u64| amount as f64 * 1e-9 / seconds.max(1e-12);
            let traffic = traffic.filter(|traffic| traffic.multiplications > 0);
            Part {
                part,
                ms: seconds * 1e3,
                share: seconds / whole.max(1e-12),
                gb_s: traffic.map(|traffic| rate(traffic.bytes)),
                gmul_s: traffic.map(|traffic| rate(traffic.multiplications)),
            }
        };
        let mut parts: Vec<Part> = Section::ALL
            .into_iter()
            .map(|section| {
                let seconds = timer.seconds(section) / times as f64;
                part(name(section), seconds, traffic::of(section, self.open.gguf(), self.open.model(), &run))
            })
            .filter(|part| part.ms > 0.0) // drops sections that the model does not have
            .collect();
        parts.extend(sampling.map(|sampling| part("sampling", sampling.as_secs_f64() / times as f64, None)));
        Pass { tokens: run.tokens, ms: whole * 1e3, parts }
    }
}

impl Profile {
    /// Prints the profile as a table.
    pub fn print(&self, out: &mut Out) -> Result<()> {
        for (title, pass) in [("prefill", &self.prefill), ("decode", &self.decode)] {
            let tokens = if pass.tokens == 1 { "a token".to_string() } else { format!("{} tokens", pass.tokens) };
            writeln!(
                out,
                "\n{:16}  {:>10}  {:>7}  {:>8}  {:>9}",
                format!("{title}, {tokens}"),
                "ms",
                "share",
                "GB/s",
                "Gmul/s"
            )?;
            for part in &pass.parts {
                let rate = |rate: Option<f64>| rate.map_or(String::new(), |rate| format!("{rate:.2}"));
                let (share, gb, gmul) = (100.0 * part.share, rate(part.gb_s), rate(part.gmul_s));
                writeln!(out, "  {:14}  {:>10.4}  {share:>5.1} %  {gb:>8}  {gmul:>9}", part.part, part.ms)?;
            }
            let sum: f64 = pass.parts.iter().map(|part| part.ms).sum();
            writeln!(out, "  {:14}  {sum:>10.4}  {:>5.1} %  of {:.4} ms", "together", 100.0 * sum / pass.ms, pass.ms)?;
        }
        Ok(())
    }
}
