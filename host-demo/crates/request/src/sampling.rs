//! The sampler's parameters of a request.

use arenite::sampler::Params;

use super::{Refusal, Samplers};

/// The sampler's parameters; `None` for the usual value.
#[derive(Clone, Debug, Default)]
pub struct Sampling {
    /// The temperature; with 0 every token is the most likely one.
    pub temperature: Option<f32>,
    /// The sum of the probabilities of the tokens to sample from.
    pub top_p: Option<f32>,
    /// Number of tokens to sample from; -1 and 0 for all.
    pub top_k: Option<i64>,
    /// The least probability of a token, as a share of the largest one.
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
    /// The names of the steps in order, as in [`Samplers::of_names`].
    pub order: Option<Vec<String>>,
}

impl Sampling {
    /// Returns the parameters. Those that the request does not set are taken from `usual`.
    ///
    /// # Errors
    ///
    /// A parameter is out of its range, or a step is in the wrong place.
    pub fn params(&self, usual: &Params) -> Result<Params, Refusal> {
        let ranged =
            |name: &'static str, value: Option<f32>, default: f32, range: std::ops::RangeInclusive<f32>| match value {
                None => Ok(default),
                Some(value) if range.contains(&value) => Ok(value),
                Some(value) => Err(Refusal::about(
                    name,
                    format!("{name} is {value}, and {} to {} are possible", range.start(), range.end()),
                )),
            };
        let counted = |name: &'static str, value: Option<i64>, default: u32, all: u32| match value {
            None => Ok(default),
            Some(-1) => Ok(all),
            Some(value) => u32::try_from(value)
                .map_err(|_| Refusal::about(name, format!("{name} is {value}, and must be -1 or a count"))),
        };
        let params = Params {
            temperature: ranged("temperature", self.temperature, usual.temperature, 0.0..=100.0)?,
            top_p: ranged("top_p", self.top_p, usual.top_p, 0.0..=1.0)?,
            min_p: ranged("min_p", self.min_p, usual.min_p, 0.0..=1.0)?,
            typical_p: ranged("typical_p", self.typical_p, usual.typical_p, 0.0..=1.0)?,
            top_k: counted("top_k", self.top_k, usual.top_k, 0)?,
            repeat_penalty: ranged("repeat_penalty", self.repeat_penalty, usual.repeat_penalty, 0.01..=100.0)?,
            // The limit is the room in the engine's scratch memory.
            repeat_last_n: counted("repeat_last_n", self.repeat_last_n, usual.repeat_last_n, 1024)?.min(1024),
            frequency_penalty: ranged(
                "frequency_penalty",
                self.frequency_penalty,
                usual.frequency_penalty,
                -2.0..=2.0,
            )?,
            presence_penalty: ranged("presence_penalty", self.presence_penalty, usual.presence_penalty, -2.0..=2.0)?,
            ..*usual
        };
        let Some(names) = &self.order else { return Ok(params) };
        let Params { repeat_penalty, frequency_penalty, presence_penalty, .. } = params;
        let has_penalties = repeat_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0;
        match Samplers::of_names(names, has_penalties && params.repeat_last_n > 0) {
            Ok(samplers) => Ok(samplers.apply(params)),
            Err(why) => Err(Refusal::about("samplers", format!("samplers: {why}"))),
        }
    }
}
