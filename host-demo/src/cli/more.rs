//! Options of the sampling steps that are off by default, with llama-cli's names and defaults.

use clap::Args;

use super::number::{finite, not_negative, probability};
use arenite_request::Sampling;

/// Options of further sampling steps.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Further sampling steps")]
pub struct MoreArgs {
    /// Tokens that --typical, --top-p, --min-p and XTC keep at least
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32))]
    min_keep: Option<u32>,

    /// DRY: penalty of a token that continues a repetition; 0 disables
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = finite)]
    dry_multiplier: Option<f32>,

    /// DRY: factor of the penalty for each further token of the repetition [default: 1.75]
    #[arg(long, value_name = "B", allow_negative_numbers = true, value_parser = finite)]
    dry_base: Option<f32>,

    /// DRY: length of the shortest repetition that is penalized [default: 2]
    #[arg(long, value_name = "N")]
    dry_allowed_length: Option<u32>,

    /// DRY: number of recent tokens in which repetitions are searched; -1 for the context [default: -1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    dry_penalty_last_n: Option<i64>,

    /// DRY: text over which repetitions do not continue; may be repeated; `none` for no text [default: line break, colon,
    /// quotation mark, asterisk]
    #[arg(long, value_name = "TEXT", value_parser = unescaped)]
    dry_sequence_breaker: Vec<String>,

    /// Keep tokens whose logits are at most N standard deviations below the best one; -1 disables
    #[arg(long, visible_alias = "top-nsigma", value_name = "N", allow_negative_numbers = true, value_parser = finite)]
    top_n_sigma: Option<f32>,

    /// XTC: probability that the most likely tokens but one are removed; 0 disables
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    xtc_probability: Option<f32>,

    /// XTC: probability of the tokens that are removed; above 0.5 disables [default: 0.1]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    xtc_threshold: Option<f32>,

    /// Dynamic temperature: from --temp minus this to --temp plus this, by the entropy of the tokens; 0 disables
    #[arg(long, value_name = "R", allow_negative_numbers = true, value_parser = not_negative)]
    dynatemp_range: Option<f32>,

    /// Dynamic temperature: exponent of the entropy [default: 1]
    #[arg(long, value_name = "E", allow_negative_numbers = true, value_parser = finite)]
    dynatemp_exp: Option<f32>,

    /// Mirostat, version 1 or 2, in place of all steps but the penalties and --temp; 0 disables
    #[arg(long, value_name = "0|1|2", value_parser = clap::value_parser!(i64).range(0..=2))]
    mirostat: Option<i64>,

    /// Mirostat: surprise of a token in bits (tau) [default: 5]
    #[arg(long, value_name = "TAU", value_parser = not_negative)]
    mirostat_ent: Option<f32>,

    /// Mirostat: learning rate (eta) [default: 0.1]
    #[arg(long, value_name = "ETA", value_parser = not_negative)]
    mirostat_lr: Option<f32>,

    /// Adaptive-p: select tokens near this probability; negative disables
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = finite)]
    adaptive_target: Option<f32>,

    /// Adaptive-p: share of the earlier tokens in the mean probability [default: 0.9]
    #[arg(long, value_name = "D", value_parser = probability)]
    adaptive_decay: Option<f32>,
}

impl MoreArgs {
    /// The parameters as those of a request.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            min_keep: self.min_keep.map(i64::from),
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length.map(i64::from),
            dry_penalty_last_n: self.dry_penalty_last_n,
            dry_sequence_breakers: self.breakers(),
            top_n_sigma: self.top_n_sigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            dynatemp_range: self.dynatemp_range,
            dynatemp_exponent: self.dynatemp_exp,
            mirostat: self.mirostat,
            mirostat_tau: self.mirostat_ent,
            mirostat_eta: self.mirostat_lr,
            adaptive_target: self.adaptive_target,
            adaptive_decay: self.adaptive_decay,
            ..Sampling::default()
        }
    }

    /// The texts that end repetitions; `None` for llama.cpp's.
    fn breakers(&self) -> Option<Vec<String>> {
        let given = self.dry_sequence_breaker.iter().filter(|text| *text != "none").cloned().collect();
        Some(given).filter(|_| !self.dry_sequence_breaker.is_empty())
    }
}

/// Replaces `\n`, `\t`, `\"` and `\\`, which are hard to type on a command line.
fn unescaped(text: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        plain.push(match next {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    Ok(plain)
}
