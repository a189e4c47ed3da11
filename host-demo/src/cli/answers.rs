//! Options of the answers in a conversation, which `/set` changes.

use anyhow::{Result, anyhow, ensure};
use arenite::TokenId;
use arenite::sampler::Sampler;
use arenite_run::generation::{Settings, within};
use arenite_run::open_model::OpenModel;
use arenite_text as text;
use clap::{Args, Command, FromArgMatches};

use super::{Limit, SamplingArgs};
use crate::output::usage_words;

/// Options of answers.
#[derive(Clone, Debug, Args)]
pub struct AnswerArgs {
    /// Maximum number of tokens per answer [default: until an end token or a full context]
    #[arg(short, long, alias = "num-predict", value_name = "N", allow_negative_numbers = true)]
    n_tokens: Option<Limit>,

    /// Stop string of answers (not printed); may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Additional end token of answers; may be repeated
    #[arg(long, value_name = "ID")]
    stop_id: Vec<TokenId>,

    #[command(flatten)]
    pub sampling: SamplingArgs,
}

impl AnswerArgs {
    /// Sets the option `--NAME VALUE`. Names may have underscores, as in ollama.
    ///
    /// # Errors
    ///
    /// There is no such option, or it cannot have the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        ensure!(!name.is_empty() && !value.is_empty(), "/set needs an option and a value, such as /set temperature 0");
        let command = Self::augment_args_for_update(Command::new("set").no_binary_name(true).disable_help_flag(true));
        // Defaults would replace the values of other options.
        let command = command.mut_args(|arg| arg.default_value(None));
        let matches = command.try_get_matches_from([format!("--{}={value}", name.replace('_', "-"))]);
        matches.and_then(|matches| self.update_from_arg_matches(&matches)).map_err(|told| anyhow!(usage_words(&told)))
    }

    /// Writes the options to the settings of answers, and returns memory for the sampler.
    ///
    /// # Errors
    ///
    /// The options exclude one another, or the vocabulary lacks a token.
    pub fn apply(&self, settings: &mut Settings, open: &OpenModel) -> Result<Vec<u8>> {
        let (sampling, vocab) = (&self.sampling, open.model().spec().vocab);
        let params = sampling.params()?;
        let bounded = within(&params, open.context(0));
        let mut scratch = vec![0; Sampler::scratch_bytes(&bounded, vocab)];
        Sampler::new(bounded, &sampling.logit_bias, vocab, &mut scratch)?; // reports wrong options
        text::in_vocabulary(&self.stop_id, vocab)?;
        settings.breakers = sampling.breakers(&params, Some(open.vocabulary()?))?;
        settings.params = params;
        settings.bias.clone_from(&sampling.logit_bias);
        settings.limit = self.n_tokens.and_then(|Limit(limit)| limit);
        settings.stops.clone_from(&self.stop);
        settings.stop_ids.clone_from(&self.stop_id);
        Ok(scratch)
    }
}
