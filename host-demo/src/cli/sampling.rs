//! Sampling options, with llama-cli's names and defaults.

use std::hash::{BuildHasher, Hasher};

use anyhow::{Result, anyhow, ensure};
use arenite::TokenId;
use arenite::sampler::{Link, Params, Pcg32, Xorshift};
use arenite::tokenizer::Tokenizer;
use clap::{Args, ValueEnum};

use super::more::MoreArgs;
use super::number::{count_or, finite, not_negative, positive, probability};
use arenite_request::{Samplers, Sampling};
use arenite_run::generation::BreakerList;
use arenite_run::rng::AnyRng;

/// Options of the sampling steps.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct StepArgs {
    /// Temperature; 0 always takes the most likely token [default: 0.8, and 1 for `serve`]
    #[arg(long, visible_alias = "temperature", value_name = "T", allow_negative_numbers = true, value_parser = not_negative)]
    pub temp: Option<f32>,

    /// Keep only the K most likely tokens; 0 disables [default: 40]
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = |k: &str| count_or(k, 0))]
    pub top_k: Option<u32>,

    /// Keep the most likely tokens whose probabilities sum to this; 1 disables [default: 0.95]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    pub top_p: Option<f32>,

    /// Drop tokens less likely than this, relative to the most likely token; 0 disables [default: 0.05]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    pub min_p: Option<f32>,

    /// Locally typical sampling: keep the tokens of typical information content whose probabilities sum to this; 1
    /// disables
    #[arg(long, visible_alias = "typical-p", value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    pub typical: Option<f32>,

    /// Number of recent tokens that the penalties apply to; 0 disables
    #[arg(long, value_name = "N", default_value = "64", allow_negative_numbers = true,
        value_parser = |n: &str| count_or(n, 1 << 16))]
    pub repeat_last_n: u32,

    /// Divide positive logits of recent tokens by this, and multiply negative ones; 1 disables
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true, value_parser = positive)]
    pub repeat_penalty: f32,

    /// Subtract this from a token's logit for each recent occurrence
    #[arg(long, value_name = "F", default_value_t = 0.0, allow_negative_numbers = true, value_parser = finite)]
    pub frequency_penalty: f32,

    /// Subtract this from a token's logit if it occurred recently
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true, value_parser = finite)]
    pub presence_penalty: f32,

    /// Sampling steps in order, such as top_k;top_p;temperature; steps not listed are skipped [default:
    /// penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature;adaptive_p]
    #[arg(long, value_name = "LIST")]
    pub samplers: Option<Samplers>,

    #[command(flatten)]
    more: MoreArgs,
}

/// Sampling options.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    #[command(flatten)]
    steps: StepArgs,

    /// Add B to the logit of token ID, such as 13=-2.5 or 13=-inf; may be repeated
    #[arg(short, long, value_name = "ID=B", value_parser = bias)]
    pub logit_bias: Vec<(TokenId, f32)>,

    /// Random seed [default: random, printed at the end]
    #[arg(short, long, value_name = "S", allow_negative_numbers = true, value_parser = seed)]
    pub seed: Option<Seed>,

    /// Random number generator: pcg, or llama2c to reproduce the text that llama2.c's run.c prints for a seed (with
    /// its defaults --temp 1 --top-p 0.9 and no other steps)
    #[arg(long, value_enum, default_value_t = RngKind::Pcg, hide_possible_values = true, value_name = "pcg|llama2c")]
    pub rng: RngKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RngKind {
    Pcg,
    Llama2c,
}

/// A seed; `None` means a random one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(Option<u64>);

impl StepArgs {
    /// Returns the sampler's parameters. Parameters that were not given are taken from `default`.
    pub fn params(&self, default: Params) -> Result<Params> {
        let default = Params { more: Sampling::MORE, ..default };
        let params = Params {
            temperature: self.temp.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            typical_p: self.typical.unwrap_or(default.typical_p),
            order: default.order,
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            repeat_last_n: self.repeat_last_n,
            more: default.more,
        };
        let params = self.more.sampling().params(&params).map_err(|refusal| anyhow!(refusal.message))?;
        Ok(self.samplers.map_or(params, |samplers| samplers.apply(params)))
    }

    /// The texts over which DRY's repetitions do not continue.
    pub fn breakers(&self) -> Vec<String> {
        self.more.sampling().dry_breakers()
    }
}

impl SamplingArgs {
    /// The sampler's parameters.
    pub fn params(&self) -> Result<Params> {
        let Self { steps, rng, seed, .. } = self;
        if *rng == RngKind::Pcg {
            return steps.params(Params::DEFAULT);
        }
        let others = steps.top_k.is_some() || steps.min_p.is_some() || steps.typical.is_some();
        let others = others || steps.more != MoreArgs::default();
        ensure!(
            !others && steps.samplers.is_none(),
            "--rng llama2c samples like run.c, with --temp and --top-p only: leave out --top-k, --min-p, --typical, \
             --samplers and the further steps"
        );
        ensure!(*seed != Some(Seed(Some(0))), "run.c takes --seed 0 as the current time: give another seed");
        let order = Link::order(&[Link::Temperature, Link::TopP]);
        let params = steps.params(Params { temperature: 1.0, top_p: 0.9, order, ..Params::DEFAULT })?;
        // In run.c a top-p of 0 also disables the step.
        Ok(Params { top_p: if params.top_p == 0.0 { 1.0 } else { params.top_p }, ..params })
    }

    /// Returns the sequences that interrupt the repetitions counted by DRY; no sequences if DRY is off.
    pub fn breakers(&self, params: &Params, tokenizer: Option<&Tokenizer<'_, '_>>) -> Result<BreakerList> {
        match tokenizer.filter(|_| params.more.dry_multiplier != 0.0) {
            Some(tokenizer) => BreakerList::new(&self.steps.breakers(), tokenizer),
            None => Ok(BreakerList::default()),
        }
    }

    /// The seed that was given, or a random one.
    pub fn seed(&self) -> u64 {
        self.seed.and_then(|Seed(seed)| seed).unwrap_or_else(any_seed)
    }

    /// Creates the generator for a seed.
    pub fn generator(&self, seed: u64) -> AnyRng {
        match self.rng {
            RngKind::Pcg => AnyRng::Pcg(Pcg32::new(seed)),
            RngKind::Llama2c => AnyRng::Xorshift(Xorshift::new(seed)),
        }
    }
}

/// Returns a random seed of at most nine digits, which is short enough to type. It is computed from the keys of the
/// standard library's hash maps, which come from the system's random numbers.
fn any_seed() -> u64 {
    1 + std::hash::RandomState::new().build_hasher().finish() % 999_999_999
}

fn seed(text: &str) -> Result<Seed, String> {
    match text {
        "-1" => Ok(Seed(None)),
        _ => text
            .parse()
            .map(|seed| Seed(Some(seed)))
            .map_err(|_| "give a whole number, or -1 for a random seed".to_string()),
    }
}

/// Parses the bias of a token: `ID=B`, or `ID+B` and `ID-B` as in llama-cli.
fn bias(text: &str) -> Result<(TokenId, f32), String> {
    let parts = text.split_once('=').or_else(|| {
        let at = text.find(['+', '-']).filter(|at| *at > 0)?;
        Some(text.split_at(at))
    });
    let parsed = parts.and_then(|(id, bias)| {
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
        assert_eq!((bias("15043+1"), bias("15043-1.5")), (Ok((15043, 1.0)), Ok((15043, -1.5))));
        for wrong in ["13", "x=1", "1=x", "-1=1", "1=nan", "1+x", "-1"] {
            assert!(bias(wrong).is_err(), "{wrong}");
        }
    }
}
