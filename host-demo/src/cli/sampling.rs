//! Sampling options, with llama-cli's names and defaults.

use std::hash::{BuildHasher, Hasher};
use std::str::FromStr;

use anyhow::{Result, ensure};
use arenite::TokenId;
use arenite::sampler::{Link, Params, Pcg32, Xorshift};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::number::{count_or, finite, not_negative, positive, probability};
use crate::rng::AnyRng;

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
    /// penalties;top_k;typ_p;top_p;min_p;temperature]
    #[arg(long, value_name = "LIST")]
    pub samplers: Option<Samplers>,
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

/// Sampling steps in order: first the penalties, if `penalties` is true, then the steps in `order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samplers {
    penalties: bool,
    order: [Option<Link>; Link::ALL.len()],
}

impl StepArgs {
    /// The sampler's parameters. Parameters that were not given are taken from `default`.
    pub fn params(&self, default: Params) -> Params {
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
        };
        self.samplers.map_or(params, |samplers| samplers.apply(params))
    }
}

impl SamplingArgs {
    /// The sampler's parameters.
    pub fn params(&self) -> Result<Params> {
        let Self { steps, rng, seed, .. } = self;
        if *rng == RngKind::Pcg {
            return Ok(steps.params(Params::DEFAULT));
        }
        let others = steps.top_k.is_some() || steps.min_p.is_some() || steps.typical.is_some();
        ensure!(
            !others && steps.samplers.is_none(),
            "--rng llama2c samples like run.c, with --temp and --top-p only: leave out --top-k, --min-p, --typical and \
             --samplers"
        );
        ensure!(*seed != Some(Seed(Some(0))), "run.c takes --seed 0 as the current time: give another seed");
        let order = Link::order(&[Link::Temperature, Link::TopP]);
        let params = steps.params(Params { temperature: 1.0, top_p: 0.9, order, ..Params::DEFAULT });
        // In run.c a top-p of 0 also disables the step.
        Ok(Params { top_p: if params.top_p == 0.0 { 1.0 } else { params.top_p }, ..params })
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

impl Samplers {
    /// Reads the `samplers` of a request as llama-server does: a list of names, or a text with a letter for each step.
    /// Steps that do not exist here are skipped; requests cannot turn them on. If the penalties of the request are off,
    /// their position does not matter.
    pub fn of_request(list: &Value, has_penalties: bool) -> Result<Self, String> {
        let names = match list {
            Value::String(letters) => Some(letters.chars().filter_map(name_of_letter).collect()),
            Value::Array(names) => names.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        let names = names.ok_or("give a list of names, such as [\"top_k\", \"temperature\"]")?;
        let counts = |name: &&str| if *name == PENALTIES { has_penalties } else { link(name).is_some() };
        names.into_iter().filter(counts).try_fold(Self::NONE, Self::with)
    }

    const NONE: Self = Self { penalties: false, order: [None; Link::ALL.len()] };

    /// Adds a step.
    fn with(mut self, name: &str) -> Result<Self, String> {
        let given = self.order.iter().flatten().count();
        if name == PENALTIES && (given > 0 || self.penalties) {
            return Err("penalties must be the first step: list it once, before the others".to_string());
        }
        if name == PENALTIES {
            return Ok(Self { penalties: true, ..self });
        }
        let link = link(name)
            .ok_or_else(|| format!("`{name}` is not one of penalties, top_k, typ_p, top_p, min_p, temperature"))?;
        if self.order.contains(&Some(link)) {
            return Err(format!("{name} is listed twice: list each step once"));
        }
        if let Some(place) = self.order.get_mut(given) {
            *place = Some(link);
        }
        Ok(self)
    }

    /// Returns the parameters with these steps. The penalties are off if they are not listed.
    pub fn apply(self, params: Params) -> Params {
        let repeat_last_n = if self.penalties { params.repeat_last_n } else { 0 };
        Params { order: self.order, repeat_last_n, ..params }
    }
}

const PENALTIES: &str = "penalties";

/// Returns the step with this name.
fn link(name: &str) -> Option<Link> {
    match name {
        "top_k" | "top-k" => Some(Link::TopK),
        "typ_p" | "typical" | "typical_p" | "typical-p" => Some(Link::Typical),
        "top_p" | "top-p" => Some(Link::TopP),
        "min_p" | "min-p" => Some(Link::MinP),
        "temperature" | "temp" => Some(Link::Temperature),
        _ => None,
    }
}

/// Returns the name of the step with this letter in llama.cpp.
fn name_of_letter(letter: char) -> Option<&'static str> {
    match letter {
        'e' => Some(PENALTIES),
        'k' => Some("top_k"),
        'y' => Some("typ_p"),
        'p' => Some("top_p"),
        'm' => Some("min_p"),
        't' => Some("temperature"),
        _ => None,
    }
}

impl FromStr for Samplers {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let mut names = list.split([';', ',']).map(str::trim).filter(|name| !name.is_empty());
        names.try_fold(Self::NONE, |samplers, name| match name {
            "dry" | "xtc" | "top_n_sigma" | "infill" | "adaptive_p" => {
                Err(format!("{name} is not supported: leave it out; it is off by default"))
            }
            _ => samplers.with(name),
        })
    }
}

/// Returns a random seed of at most nine digits, short enough to type. The source is the keys of the standard library's
/// hash maps, which come from the system's random numbers.
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

/// Parses `ID=B`, or llama-cli's notation `ID+B` and `ID-B`.
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

    #[test]
    fn orders_are_read() {
        let samplers: Samplers = "penalties;top_k;typ_p;top_p;min_p;temperature".parse().unwrap();
        assert_eq!(samplers, Samplers { penalties: true, order: Params::DEFAULT.order });
        let samplers: Samplers = "temp, top-p".parse().unwrap();
        assert!(!samplers.penalties);
        assert_eq!(samplers.order, Link::order(&[Link::Temperature, Link::TopP]));
        for (list, word) in
            [("dry;top_k", "dry is not"), ("top_k;penalties", "first"), ("top_k;top_k", "twice"), ("x", "`x`")]
        {
            assert!(list.parse::<Samplers>().unwrap_err().contains(word), "{list}");
        }
    }

    /// The names and letters are those of llama.cpp's `common/sampling.cpp`.
    #[test]
    fn orders_in_requests_are_read() {
        let read = |list: Value| Samplers::of_request(&list, true);
        let all = Samplers { penalties: true, order: Params::DEFAULT.order };
        let names = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"];
        assert_eq!((read(names.into()), read("edskypmxt".into())), (Ok(all), Ok(all)));
        let some = Samplers { penalties: false, order: Link::order(&[Link::Temperature, Link::TopK]) };
        assert_eq!((read("t?k".into()), read(vec!["tfs_z", "temperature", "top_k"].into())), (Ok(some), Ok(some)));
        assert_eq!(read(Value::Array(vec![])), Ok(Samplers::NONE));
        for (list, word) in [(vec!["top_k", "penalties"], "first"), (vec!["top_k", "top_k"], "twice")] {
            assert!(read(list.into()).unwrap_err().contains(word));
        }
        assert!(read(3.into()).unwrap_err().contains("a list of names"));
        let last = Samplers { penalties: false, order: Link::order(&[Link::TopK]) };
        assert_eq!(Samplers::of_request(&vec!["top_k", "penalties"].into(), false), Ok(last));
    }
}
