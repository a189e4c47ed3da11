//! The sampler's parameters of a request.

use std::ops::RangeInclusive;

use arenite::sampler::{Mirostat, More, Params};

use super::{Refusal, Samplers};

/// The sampler's parameters; `None` for the usual value.
#[derive(Clone, Debug, Default)]
pub struct Sampling {
    /// The temperature. At 0, the most likely token is always chosen.
    pub temperature: Option<f32>,
    /// Top-p: tokens are sampled only from the most likely ones, as many as are needed for their probabilities to reach
    /// this sum.
    pub top_p: Option<f32>,
    /// Number of tokens to sample from; -1 and 0 for all.
    pub top_k: Option<i64>,
    /// Min-p: the minimum probability of a token, as a fraction of the largest probability.
    pub min_p: Option<f32>,
    /// The sum of the probabilities of the most typical tokens.
    pub typical_p: Option<f32>,
    /// The factor for the logits of recent tokens.
    pub repeat_penalty: Option<f32>,
    /// Number of recent tokens; -1 for as many as possible.
    pub repeat_last_n: Option<i64>,
    /// Subtracted from a token's logit for each occurrence.
    pub frequency_penalty: Option<f32>,
    /// Subtracted from the logit of a token that occurs.
    pub presence_penalty: Option<f32>,
    /// Minimum number of tokens that typical, top-p, min-p and XTC keep.
    pub min_keep: Option<i64>,
    /// Maximum distance of a token's logit from the highest logit, in standard deviations; numbers up to 0 turn this
    /// step off.
    pub top_n_sigma: Option<f32>,
    /// The probability of XTC; 0 is off.
    pub xtc_probability: Option<f32>,
    /// The probability of XTC's top choices.
    pub xtc_threshold: Option<f32>,
    /// DRY's penalty; 0 is off.
    pub dry_multiplier: Option<f32>,
    /// DRY's factor for each further token of a repetition.
    pub dry_base: Option<f32>,
    /// Length of the shortest repetition that DRY penalizes.
    pub dry_allowed_length: Option<i64>,
    /// Number of recent tokens in which DRY looks for repetitions; -1 for the whole context.
    pub dry_penalty_last_n: Option<i64>,
    /// Texts that interrupt the repetitions counted by DRY; `None` for [`DRY_BREAKERS`](Self::DRY_BREAKERS).
    pub dry_sequence_breakers: Option<Vec<String>>,
    /// Range of the dynamic temperature; 0 is off.
    pub dynatemp_range: Option<f32>,
    /// Exponent of the dynamic temperature.
    pub dynatemp_exponent: Option<f32>,
    /// Version of Mirostat; 0 is off.
    pub mirostat: Option<i64>,
    /// Mirostat's target in bits.
    pub mirostat_tau: Option<f32>,
    /// Mirostat's learning rate.
    pub mirostat_eta: Option<f32>,
    /// The probability near which adaptive-p selects tokens; a negative number turns this step off.
    pub adaptive_target: Option<f32>,
    /// The share of earlier tokens in adaptive-p's mean.
    pub adaptive_decay: Option<f32>,
    /// The names of the steps in order, as in [`Samplers::of_names`].
    pub order: Option<Vec<String>>,
}

impl Sampling {
    /// llama.cpp's default texts that interrupt the repetitions counted by DRY.
    pub const DRY_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

    /// llama.cpp's default parameters of the remaining steps: DRY looks for repetitions in the whole context.
    pub const MORE: More = More { dry_last_n: u32::MAX, ..More::OFF };

    /// Returns the parameters. Parameters that the request does not set are taken from `usual`.
    ///
    /// # Errors
    ///
    /// A parameter is out of its range, or a step is in the wrong place.
    pub fn params(&self, usual: &Params) -> Result<Params, Refusal> {
        let params = Params {
            temperature: ranged("temperature", self.temperature, usual.temperature, 0.0..=100.0)?,
            top_p: ranged("top_p", self.top_p, usual.top_p, 0.0..=1.0)?,
            min_p: ranged("min_p", self.min_p, usual.min_p, 0.0..=1.0)?,
            typical_p: ranged("typical_p", self.typical_p, usual.typical_p, 0.0..=1.0)?,
            top_k: counted("top_k", self.top_k, usual.top_k, 0)?,
            repeat_penalty: ranged("repeat_penalty", self.repeat_penalty, usual.repeat_penalty, 0.01..=100.0)?,
            // The number is at most 1024, because the engine's scratch memory has no room for more tokens.
            repeat_last_n: counted("repeat_last_n", self.repeat_last_n, usual.repeat_last_n, 1024)?.min(1024),
            frequency_penalty: ranged(
                "frequency_penalty",
                self.frequency_penalty,
                usual.frequency_penalty,
                -2.0..=2.0,
            )?,
            presence_penalty: ranged("presence_penalty", self.presence_penalty, usual.presence_penalty, -2.0..=2.0)?,
            more: self.more(&usual.more)?,
            ..*usual
        };
        if self.mirostat.is_some() && params.more.mirostat != Mirostat::Off && params.temperature <= 0.0 {
            let why = "mirostat draws tokens, and at temperature 0 nothing is drawn: give a temperature above 0";
            return Err(Refusal::about("mirostat", why));
        }
        let Some(names) = &self.order else { return Ok(params) };
        let Params { repeat_penalty, frequency_penalty, presence_penalty, .. } = params;
        let has_penalties = repeat_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0;
        match Samplers::of_names(names, has_penalties && params.repeat_last_n > 0) {
            Ok(samplers) => Ok(samplers.apply(params)),
            Err(why) => Err(Refusal::about("samplers", format!("samplers: {why}"))),
        }
    }

    /// Returns the parameters of the further steps.
    fn more(&self, usual: &More) -> Result<More, Refusal> {
        Ok(More {
            min_keep: counted("min_keep", self.min_keep, usual.min_keep, 0)?,
            top_n_sigma: ranged("top_n_sigma", self.top_n_sigma, usual.top_n_sigma, ANY)?,
            xtc_probability: ranged("xtc_probability", self.xtc_probability, usual.xtc_probability, 0.0..=1.0)?,
            xtc_threshold: ranged("xtc_threshold", self.xtc_threshold, usual.xtc_threshold, 0.0..=1.0)?,
            dry_multiplier: ranged("dry_multiplier", self.dry_multiplier, usual.dry_multiplier, ANY)?,
            dry_base: ranged("dry_base", self.dry_base, usual.dry_base, ANY)?,
            dry_allowed_length: counted("dry_allowed_length", self.dry_allowed_length, usual.dry_allowed_length, 0)?,
            dry_last_n: counted("dry_penalty_last_n", self.dry_penalty_last_n, usual.dry_last_n, u32::MAX)?,
            dynatemp_range: ranged("dynatemp_range", self.dynatemp_range, usual.dynatemp_range, ANY)?,
            dynatemp_exponent: ranged("dynatemp_exponent", self.dynatemp_exponent, usual.dynatemp_exponent, ANY)?,
            mirostat: match self.mirostat {
                None => usual.mirostat,
                Some(0) => Mirostat::Off,
                Some(1) => Mirostat::V1,
                Some(2) => Mirostat::V2,
                Some(other) => {
                    return Err(Refusal::about("mirostat", format!("mirostat is {other}, and must be 0, 1 or 2")));
                }
            },
            mirostat_tau: ranged("mirostat_tau", self.mirostat_tau, usual.mirostat_tau, ANY)?,
            mirostat_eta: ranged("mirostat_eta", self.mirostat_eta, usual.mirostat_eta, ANY)?,
            adaptive_target: ranged("adaptive_target", self.adaptive_target, usual.adaptive_target, ANY)?,
            adaptive_decay: ranged("adaptive_decay", self.adaptive_decay, usual.adaptive_decay, 0.0..=1.0)?,
        })
    }

    /// Returns the texts that interrupt the repetitions counted by DRY.
    pub fn dry_breakers(&self) -> Vec<String> {
        let usual = || Self::DRY_BREAKERS.map(str::to_string).into();
        self.dry_sequence_breakers.clone().unwrap_or_else(usual)
    }
}

/// The range of a number without limits.
const ANY: RangeInclusive<f32> = -1e9..=1e9;

fn ranged(name: &'static str, value: Option<f32>, default: f32, range: RangeInclusive<f32>) -> Result<f32, Refusal> {
    match value {
        None => Ok(default),
        Some(value) if range.contains(&value) => Ok(value),
        Some(value) => {
            let message = format!("{name} is {value}, and {} to {} are possible", range.start(), range.end());
            Err(Refusal::about(name, message))
        }
    }
}

fn counted(name: &'static str, value: Option<i64>, default: u32, all: u32) -> Result<u32, Refusal> {
    match value {
        None => Ok(default),
        Some(-1) => Ok(all),
        Some(value) => u32::try_from(value)
            .map_err(|_| Refusal::about(name, format!("{name} is {value}, and must be -1 or a count"))),
    }
}
