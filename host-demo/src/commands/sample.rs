//! `arenite sample`: shows which tokens the sampling steps keep, for given logits.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use arenite::TokenId;
use arenite::sampler::{Params, Sampler, State, Xorshift};
use arenite::tokenizer::Tokenizer;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::cli::{Ids, SamplingArgs};
use crate::output::{Out, npy};
use arenite_request::Sampling;
use arenite_run::generation::BreakerList;
use arenite_run::model_file::ModelFile;
use arenite_text as text;

/// Show which tokens the sampling steps leave of given logits
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite logits -m model.gguf -p \"The sea was\" -o logits.npy
  arenite sample -m model.gguf --logits logits.npy --temp 0.7 --top-p 0.5
  arenite sample -m model.gguf --logits logits.npy --json --case '{\"sampler\": \"typical\", \"p\": 0.5}'

Prints each token from which the next one would be drawn: its id, its logit divided by the temperature, and its \
probability. XTC is applied as if its draw succeeded, unless its probability is 0. The model file may contain only a \
vocabulary.")]
pub struct Args {
    /// File with 32-bit floats of shape [vocabulary] or [positions, vocabulary]; the last position counts
    #[arg(long, value_name = "F.npy")]
    logits: PathBuf,

    /// Tokens before the next one, for the penalties and DRY
    #[arg(long, value_name = "IDS", default_value = "", hide_default_value = true)]
    history: Ids,

    /// One step, or the chain of all of them, with llama.cpp's names for the parameters; all other steps are off
    #[arg(long, value_name = "JSON", value_parser = object)]
    case: Option<Map<String, Value>>,

    /// Print one JSON object with the lists ids, logits and probs
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    sampling: SamplingArgs,
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("give a JSON object with the field sampler: {error}"))
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    let gguf = file.parse()?;
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).with_context(|| file.name().to_string())?;
    let (shape, values) = npy::load(&args.logits)?;
    let vocab = shape.last().copied().unwrap_or(0);
    ensure!(vocab > 0 && values.len() >= vocab, "{}: there are no logits", args.logits.display());
    let mut logits = values[values.len() - vocab..].to_vec();
    let chain = match &args.case {
        Some(case) => Chain::of_case(case, &tokenizer).context("--case")?,
        None => {
            let params = args.sampling.params()?;
            Chain { params, breakers: args.sampling.breakers(&params, Some(&tokenizer))?, state: None }
        }
    };
    let left = chain.left(&args.sampling.logit_bias, &args.history.0, &mut logits)?;
    let mut out = Out::lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&left)?)?,
        false => left.table(&mut out, &tokenizer)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The tokens that are left, in the order of their ids.
#[derive(Default, Serialize)]
struct Left {
    ids: Vec<TokenId>,
    logits: Vec<f32>,
    probs: Vec<f64>,
}

impl Left {
    /// Prints a line for each token, the most likely first.
    fn table(&self, out: &mut impl Write, tokenizer: &Tokenizer<'_, '_>) -> Result<()> {
        writeln!(out, "{:>8}  {:>11}  {:>10}  text", "id", "probability", "logit")?;
        let mut rows: Vec<_> = self.ids.iter().zip(&self.logits).zip(&self.probs).collect();
        rows.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        for ((id, logit), prob) in rows {
            let text = text::piece(tokenizer, *id).unwrap_or_default();
            writeln!(out, "{id:>8}  {:>9.3} %  {logit:>10.4}  {text:?}", 100.0 * prob)?;
        }
        Ok(())
    }
}

/// The sampling steps.
struct Chain {
    params: Params,
    breakers: BreakerList,
    /// The state of Mirostat and adaptive-p; `None` at the start of an answer.
    state: Option<State>,
}

impl Chain {
    /// Reads the parameters of a step. All other steps are off.
    fn of_case(case: &Map<String, Value>, tokenizer: &Tokenizer<'_, '_>) -> Result<Self> {
        let step = case.get("sampler").and_then(Value::as_str).context("the field sampler names the step")?;
        ensure!(KEYS.iter().any(|(of, ..)| *of == step), "there is no step `{step}`");
        let mut sampling = Sampling { mirostat: mirostat(step), ..Sampling::default() };
        let (mut texts, mut learned) = (Vec::new(), Map::new());
        for (key, value) in case.iter().filter(|(key, value)| *key != "sampler" && !value.is_null()) {
            let wrong = || anyhow!("{key} must be a number");
            match key.as_str() {
                "sequence_breakers" | "dry_sequence_breakers" => texts = serde_json::from_value(value.clone())?,
                // These are facts about the case, and not parameters.
                "seed" | "sorted_input" | "n_vocab" => {}
                "m" => ensure!(value.as_f64() == Some(100.0), "m is always 100 here"),
                "mu" | "weighted_sum" | "total_weight" => {
                    learned.insert(key.clone(), value.clone());
                }
                _ => match KEYS.iter().find(|(of, name, _)| *of == step && name == key) {
                    Some((.., set)) => set(&mut sampling, value.as_f64().ok_or_else(wrong)?),
                    None => bail!("the step {step} has no parameter `{key}`"),
                },
            }
        }
        let off = Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Params::DEFAULT };
        let params = sampling.params(&off).map_err(|refusal| anyhow!(refusal.message))?;
        let mut state = State::new(&params.more);
        let given = |key: &str| learned.get(key).and_then(Value::as_f64).map(|value| value as f32);
        state.mirostat_mu = given("mu").unwrap_or(state.mirostat_mu);
        state.adaptive_sum = given("weighted_sum").unwrap_or(state.adaptive_sum);
        state.adaptive_weight = given("total_weight").unwrap_or(state.adaptive_weight);
        Ok(Self { params, breakers: BreakerList::new(&texts, tokenizer)?, state: Some(state) })
    }

    /// Applies the steps.
    fn left(&self, bias: &[(TokenId, f32)], history: &[TokenId], logits: &mut [f32]) -> Result<Left> {
        let params = arenite_run::generation::within(&self.params, history.len());
        let mut scratch = vec![0; Sampler::scratch_bytes(&params, logits.len())];
        let mut sampler = Sampler::new(params, bias, logits.len(), &mut scratch)?.with_breakers(self.breakers.list());
        history.iter().for_each(|id| sampler.accept(*id));
        self.state.into_iter().for_each(|state| sampler.set_state(state));
        let mut found = Vec::new();
        // This generator gives only zeros, so the sampler XTC, which works at random, always removes tokens.
        sampler.candidates(logits, &mut Xorshift::new(0), |id, logit, prob| found.push((id, logit, prob)))?;
        found.sort_by_key(|(id, ..)| *id);
        let mut left = Left::default();
        for (id, logit, prob) in found {
            left.ids.push(id);
            left.logits.push(logit);
            left.probs.push(prob);
        }
        Ok(left)
    }
}

fn mirostat(step: &str) -> Option<i64> {
    match step {
        "mirostat_v1" => Some(1),
        "mirostat_v2" => Some(2),
        _ => None,
    }
}

/// Sets a parameter.
type Set = fn(&mut Sampling, f64);

/// Makes a table row of each parameter of a step: the step's name, the parameter's name, and a function that sets it.
macro_rules! keys {
    ($($step:literal: $($name:literal $field:ident $kind:ty),+;)+) => {
        &[$($(($step, $name, |sampling, value| sampling.$field = Some(value as $kind))),+),+]
    };
}

const KEYS: &[(&str, &str, Set)] = keys! {
    "penalties": "last_n" repeat_last_n i64, "repeat" repeat_penalty f32, "frequency" frequency_penalty f32,
        "presence" presence_penalty f32;
    "dry": "multiplier" dry_multiplier f32, "base" dry_base f32, "allowed_length" dry_allowed_length i64,
        "penalty_last_n" dry_penalty_last_n i64;
    "top_n_sigma": "n" top_n_sigma f32;
    "top_k": "k" top_k i64;
    "typical": "p" typical_p f32, "min_keep" min_keep i64;
    "top_p": "p" top_p f32, "min_keep" min_keep i64;
    "min_p": "p" min_p f32, "min_keep" min_keep i64;
    "xtc": "probability" xtc_probability f32, "threshold" xtc_threshold f32, "min_keep" min_keep i64;
    "dynatemp": "temp" temperature f32, "range" dynatemp_range f32, "exponent" dynatemp_exponent f32;
    "mirostat_v1": "tau" mirostat_tau f32, "eta" mirostat_eta f32;
    "mirostat_v2": "tau" mirostat_tau f32, "eta" mirostat_eta f32;
    "adaptive_p": "target" adaptive_target f32, "decay" adaptive_decay f32;
    "chain": "penalty_last_n" repeat_last_n i64, "penalty_repeat" repeat_penalty f32,
        "penalty_freq" frequency_penalty f32, "penalty_present" presence_penalty f32,
        "dry_multiplier" dry_multiplier f32, "dry_base" dry_base f32, "dry_allowed_length" dry_allowed_length i64,
        "dry_penalty_last_n" dry_penalty_last_n i64, "top_n_sigma" top_n_sigma f32, "top_k" top_k i64,
        "typ_p" typical_p f32, "top_p" top_p f32, "min_p" min_p f32, "xtc_probability" xtc_probability f32,
        "xtc_threshold" xtc_threshold f32, "temp" temperature f32, "dynatemp_range" dynatemp_range f32,
        "dynatemp_exponent" dynatemp_exponent f32, "min_keep" min_keep i64,
        "adaptive_target" adaptive_target f32, "adaptive_decay" adaptive_decay f32;
};
