//! Compares the model that the core reads from the new metadata with `config.json`.
//!
//! GGUF has no key for some settings, or only for some architectures; the architecture then implies the usual value. If
//! a config has a different value, this module adds a key that the core reads, or refuses the config.

use anyhow::{Result, bail};
use arenite::Gguf;
use arenite::kernel::Activation;
use arenite::model::{Positions, Scaling, Spec, Stack};
use serde_json::{Map, Value};

use super::config::{self, Config};
use super::keys::Keys;
use arenite_gguf_writer::{Header, Meta};

/// A setting of config.json that the new model would not follow.
struct Difference {
    /// The field in `config.json`.
    field: &'static str,
    value: String,
    /// The keys that would make the model follow the setting. Empty if there are no such keys.
    keys: Vec<(&'static str, Meta)>,
}

impl Difference {
    fn new(field: &'static str, value: impl ToString, keys: Vec<(&'static str, Meta)>) -> Self {
        Self { field, value: value.to_string(), keys }
    }
}

/// Compares one setting of a model with the config.
type Check = fn(&Spec<'_>, &Gguf<'_>, &Config) -> Option<Difference>;

/// Adds keys to a complete header until the model agrees with the config.
pub fn settle(header: &mut Header, config: &Config, architecture: &str) -> Result<()> {
    let mut are_added = false;
    loop {
        let Some(file) = header.with_zeros()? else { return Ok(()) };
        // If the core cannot read the header, nothing is compared here. The file is then refused later, with the
        // reason.
        let Ok(gguf) = Gguf::parse(&file) else { return Ok(()) };
        let Ok(spec) = Spec::read(&gguf) else { return Ok(()) };
        let checks: &[Check] = match spec.stack() {
            Stack::Alone => &[activation, caps, windows, rope_base, rope_scaling, rotated, direction, learned],
            Stack::Encoder => &[activation, windows, rope_base, rope_scaling],
            _ => &[],
        };
        let found: Vec<Difference> = checks.iter().filter_map(|check| check(&spec, &gguf, config)).collect();
        if found.is_empty() {
            return Ok(());
        }
        for Difference { field, value, keys } in found {
            if keys.is_empty() || are_added {
                bail!("{field} in config.json is {value}: not supported for the architecture {architecture}");
            }
            let mut new = Keys { config, header, architecture };
            if field == SCALING {
                new.rope()?;
                continue;
            }
            keys.into_iter().for_each(|(key, value)| new.set(key, value));
        }
        are_added = true;
    }
}

/// Compares the activation function of the feed-forward.
fn activation(spec: &Spec<'_>, gguf: &Gguf<'_>, config: &Config) -> Option<Difference> {
    let architecture = gguf.architecture().unwrap_or_default();
    // In these architectures, the published code does not read the function's name from the config: gpt-oss has a
    // variant of SiLU, and Apertus has a function with learned weights.
    let is_fixed = architecture.starts_with("rwkv")
        || ["apertus", "gpt-oss", "jais", "refact", "smallthinker"].contains(&architecture);
    let named = match architecture {
        // Only `hidden_act` counts, because transformers ignores the field `hidden_activation` of these configs.
        "gemma" => Some(("hidden_act", config.text("hidden_act").unwrap_or("gelu_pytorch_tanh"))),
        _ => config.activation(),
    };
    let (field, name) = named.filter(|_| !is_fixed)?;
    let name = match name {
        // The first configs of Gemma name the exact GELU, but the published code computes the approximation.
        "gelu" if ["gemma", "spark2_5"].contains(&architecture) => "gelu_pytorch_tanh",
        name => config::activation(name),
    };
    let own = match spec.activation() {
        Activation::Silu => "silu",
        Activation::GeluTanh => "gelu_pytorch_tanh",
        Activation::GeluErf => "gelu",
        Activation::Relu => "relu",
        Activation::ReluSquared => "relu2",
        _ => "",
    };
    // The recurrent mixers of these models also use this function. A key would change it there, too, so no key is
    // offered.
    let is_mixed = spec.is_recurrent() && !["kimi-linear", "bailingmoe3"].contains(&architecture);
    let is_known = ["silu", "gelu_pytorch_tanh", "gelu", "relu", "relu2"].contains(&name);
    let keys = if is_known && !is_mixed { vec![("hidden_activation", Meta::from(name))] } else { Vec::new() };
    (name != own).then(|| Difference::new(field, name, keys))
}

/// Compares the soft caps of attention scores and logits.
fn caps(spec: &Spec<'_>, _: &Gguf<'_>, config: &Config) -> Option<Difference> {
    let caps = [("attn_logit_softcapping", spec.attention_cap()), ("final_logit_softcapping", spec.logit_cap())];
    caps.into_iter().find_map(|(field, own)| {
        let cap = config.float(&[field]).ok()?.filter(|cap| *cap != 0.0);
        let value = cap.map_or_else(|| "null".to_owned(), |cap| cap.to_string());
        (config.get(field).is_some() && cap != own).then(|| Difference::new(field, value, Vec::new()))
    })
}

/// Compares the layers that attend within a window.
fn windows(spec: &Spec<'_>, _: &Gguf<'_>, config: &Config) -> Option<Difference> {
    let types = config.texts("layer_types")?;
    let is_local = |kind: &&str| *kind == "sliding_attention";
    if config.number(&["sliding_window"]).ok()? == Some(0) && types.iter().any(is_local) {
        return Some(Difference::new("sliding_window", 0, Vec::new()));
    }
    let window = config.number(&["sliding_window"]).ok()?.filter(|window| *window > 0)? as usize;
    let is_plain = types.iter().all(|kind| is_local(kind) || *kind == "full_attention");
    if !is_plain || types.len() != spec.layers || config.flag("use_sliding_window") == Some(false) {
        return None;
    }
    // For an encoder, only the presence of a window is compared. The lengths differ, because the window of an encoder
    // has two sides and its length is counted in another way.
    let length = |own| if spec.stack() == Stack::Encoder { window } else { own };
    let own: Vec<_> = (0..spec.layers).map(|index| spec.layer(index).window().map(length)).collect();
    let wanted = types.iter().map(|kind| is_local(kind).then_some(window));
    // If the converted model has no window in any layer, there is no difference to report here, because
    // `dropped_window` writes a note.
    if own.iter().all(Option::is_none) && !types.iter().all(|kind| !is_local(kind)) || wanted.eq(own) {
        return None;
    }
    let pattern = Meta::array(types.iter().map(is_local));
    Some(Difference::new("layer_types", types.join(", "), vec![("attention.sliding_window_pattern", pattern)]))
}

/// Compares the base of rotary positions.
fn rope_base(spec: &Spec<'_>, gguf: &Gguf<'_>, config: &Config) -> Option<Difference> {
    const KEY: &str = "rope.freq_base";
    let rope = spec.rope(false).or(spec.rope(true)).filter(|_| spec.positions() == Positions::Rotary)?;
    let base = config.rope_float("rope_theta")? as f32;
    // If the new file has a base, it counts as correct even if it differs from the config, because some families
    // multiply the config's base by a factor.
    let is_written = gguf.get2(gguf.architecture().ok()?, KEY).is_some();
    (!is_written && rope.base != base).then(|| Difference::new("rope_theta", base, vec![(KEY, base.into())]))
}

/// The fields that [`rope_scaling`] compares.
const SCALING: &str = "rope_type";
const LOCAL_SCALING: &str = "rope_type of sliding_attention";

/// Compares the scaling of rotary positions.
fn rope_scaling(spec: &Spec<'_>, gguf: &Gguf<'_>, config: &Config) -> Option<Difference> {
    let kind = config.rope_type()?;
    let rope = spec.rope(false).or(spec.rope(true)).filter(|_| spec.positions() == Positions::Rotary)?;
    let local = config.rope_outer("sliding_attention");
    // The divisors of rotary frequencies in a file apply only to global layers, if these have rotary positions. A
    // scaling in the config that also holds for local layers then cannot be written as divisors.
    let is_shared = spec.rope(false).is_some() && spec.rope(true).is_some() && local.is_none();
    let follows = match kind {
        "linear" => matches!(rope.scaling, Scaling::Linear { .. }),
        "yarn" => matches!(rope.scaling, Scaling::Yarn { .. }),
        "llama3" => gguf.tensor("rope_freqs.weight").is_some() && !is_shared,
        "longrope" | "su" => gguf.tensor("rope_factors_long.weight").is_some() && !is_shared,
        _ => true,
    };
    if !follows {
        let keys = if kind == "linear" || kind == "yarn" { vec![("", kind.into())] } else { Vec::new() };
        return Some(Difference::new(SCALING, kind, keys));
    }
    // A GGUF file has only one scaling of positions, so local layers must have the scaling of the global layers or
    // none.
    let (own, local) = (spec.rope(true)?.scaling, local?.as_object()?);
    let is_scaled = |settings: &Map<String, Value>| {
        let kind = settings.get("rope_type").and_then(Value::as_str).unwrap_or("default");
        !matches!(kind, "default" | "proportional")
    };
    let is_same = local.iter().all(|(name, value)| name == "rope_theta" || config.rope(name) == Some(value));
    let is_right = if is_scaled(local) { own != Scaling::None && is_same } else { own == Scaling::None };
    let kind = local.get("rope_type").and_then(Value::as_str).unwrap_or("default");
    (!is_right).then(|| Difference::new(LOCAL_SCALING, kind, Vec::new()))
}

/// Compares which layers have rotary positions. Despite its name, `no_rope_layers` has a 1 for a layer with rotary
/// positions.
fn rotated(spec: &Spec<'_>, _: &Gguf<'_>, config: &Config) -> Option<Difference> {
    const FIELD: &str = "no_rope_layers";
    let list = config.get(FIELD)?.as_array().filter(|list| list.len() == spec.layers)?;
    let own = (0..spec.layers).map(|index| spec.layer(index).is_rotated());
    let is_same = list.iter().map(|layer| layer.as_bool().unwrap_or(layer.as_u64() != Some(0))).eq(own);
    (!is_same).then(|| Difference::new(FIELD, Value::from(list.clone()), Vec::new()))
}

/// Reports an MPT without ALiBi whose checkpoint has no learned positions.
fn learned(spec: &Spec<'_>, gguf: &Gguf<'_>, config: &Config) -> Option<Difference> {
    const FIELD: &str = "alibi";
    let is_off = config.get("attn_config")?.get(FIELD)? == false && spec.positions() == Positions::Learned;
    (is_off && gguf.tensor("position_embd.weight").is_none()).then(|| Difference::new(FIELD, false, Vec::new()))
}

/// Reports a decoder whose attention has both directions.
fn direction(_: &Spec<'_>, _: &Gguf<'_>, config: &Config) -> Option<Difference> {
    const FIELD: &str = "use_bidirectional_attention";
    (config.flag(FIELD) == Some(true)).then(|| Difference::new(FIELD, true, Vec::new()))
}
