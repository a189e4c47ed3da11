//! Reads `config.json`. Errors quote its field names.

use std::cell::RefCell;
use std::collections::BTreeSet;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use super::defaults;

/// The class of laya's encoder with its scoring layers.
pub const SCORING_ENCODER: &str = "ModernBertDecisionModel";
/// The class of clef's decoder, whose states a head reads.
pub const JOINT_DECODER: &str = "ClefModel";

/// A model's config. Fields of a nested config of the text model take precedence.
pub struct Config {
    values: Map<String, Value>,
    /// The settings of rotary positions: `rope_parameters` or `rope_scaling`, and older fields for the same settings.
    rope: Map<String, Value>,
    /// `model_type` of a nested config.
    text_type: Option<String>,
    /// The type whose defaults hold.
    kind: String,
    /// Names of the fields that were read.
    read: RefCell<BTreeSet<String>>,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self> {
        Self::new(&json(path)?)
    }

    pub fn new(json: &Value) -> Result<Self> {
        let mut values = json.as_object().context("config.json is not a JSON object")?.clone();
        let own_type = json["model_type"].as_str().unwrap_or_default();
        let default_type = defaults::text_type(own_type);
        let inner = [&json["llm_config"], &json["lm_config"], &json["language_config"], &json["text_config"]];
        let mut text_type = None;
        for inner in inner.into_iter().chain([&json["thinker_config"]["text_config"]]) {
            let default = default_type.filter(|_| inner.is_object());
            text_type = inner["model_type"].as_str().or(text_type).or(default);
            for (name, value) in inner.as_object().into_iter().flatten() {
                // The class and the type stay those of the whole model.
                if !matches!(name.as_str(), "architectures" | "model_type") || !values.contains_key(name) {
                    values.insert(name.clone(), value.clone());
                }
            }
        }
        let kind = text_type.or(default_type).unwrap_or(own_type);
        check_rope(kind, &values)?;
        let rope = rope(kind, &values);
        for kind in [kind, own_type] {
            defaults::fill(kind, &mut values);
        }
        // If `enable_moe_block` is false, the layers of a Gemma 4 are dense, even if the fields about experts have
        // values.
        if values.get("enable_moe_block") == Some(&Value::Bool(false)) {
            for name in ["num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size"] {
                values.remove(name);
            }
        }
        let (kind, text_type) = (kind.to_owned(), text_type.map(str::to_owned));
        Ok(Self { values, rope, text_type, kind, read: RefCell::default() })
    }

    /// Returns the config as JSON.
    pub fn json(&self) -> Value {
        Value::Object(self.values.clone())
    }

    /// Returns the classes of the model; the first known one is used.
    pub fn classes(&self) -> Vec<&str> {
        self.values
            .get("architectures")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// Returns a field that the config itself states. `None` if the config contains the nested config of a text model.
    pub fn stated(&self, name: &str) -> Option<&Value> {
        self.get(name).filter(|_| self.text_type.is_none())
    }

    /// Returns the type of the text model inside of a model that also reads pictures or sounds.
    pub fn text_type(&self) -> Option<&str> {
        self.text_type.as_deref()
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        let value = self.values.get(name).filter(|value| !value.is_null())?;
        self.read.borrow_mut().insert(name.to_owned());
        Some(value)
    }

    /// True if the field is present but null. [`get`](Self::get) treats such a field as missing.
    pub fn is_null(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(Value::is_null)
    }

    /// True if the model's class in transformers has this field, with a default other than null. A config may also have
    /// fields that the class ignores.
    pub fn is_own(&self, name: &str) -> bool {
        defaults::has(&self.kind, name)
    }

    /// Returns the fields that were not read, and their values.
    pub fn unread(&self) -> impl Iterator<Item = (&str, &Value)> {
        let read = self.read.borrow();
        let unread = self.values.iter().filter(move |(name, value)| !value.is_null() && !read.contains(*name));
        unread.map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the first field of `names` that exists.
    pub fn find(&self, names: &[&str]) -> Option<&Value> {
        names.iter().find_map(|name| self.get(name))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Returns a non-negative integer.
    pub fn number(&self, names: &[&str]) -> Result<Option<u32>> {
        let Some(value) = self.find(names) else { return Ok(None) };
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        let number =
            number.with_context(|| format!("{} in config.json is {value}, not a whole number", names.join(" or ")))?;
        Ok(Some(number))
    }

    pub fn need(&self, names: &[&str]) -> Result<u32> {
        self.number(names)?.with_context(|| format!("config.json has no {}", names.join(" or ")))
    }

    /// Returns a required non-negative integer as a size.
    pub fn size(&self, names: &[&str]) -> Result<usize> {
        Ok(self.need(names)? as usize)
    }

    pub fn float(&self, names: &[&str]) -> Result<Option<f32>> {
        let Some(value) = self.find(names) else { return Ok(None) };
        let number =
            value.as_f64().with_context(|| format!("{} in config.json is {value}, not a number", names.join(" or ")));
        Ok(Some(number? as f32))
    }

    /// Returns a flag. A null counts as false, as in Python.
    pub fn flag(&self, name: &str) -> Option<bool> {
        if self.is_null(name) { Some(false) } else { self.get(name)?.as_bool() }
    }

    /// Returns a list of texts.
    pub fn texts(&self, name: &str) -> Option<Vec<&str>> {
        Some(self.get(name)?.as_array()?.iter().map(|text| text.as_str().unwrap_or_default()).collect())
    }

    /// Returns a rotary setting. If global layers have separate settings, the value comes from these settings.
    pub fn rope(&self, name: &str) -> Option<&Value> {
        let part = self.rope.get("full_attention").and_then(Value::as_object).unwrap_or(&self.rope);
        part.get(name).filter(|value| !value.is_null())
    }

    /// Returns a rotary setting that is not nested in the settings of global or local layers.
    pub fn rope_outer(&self, name: &str) -> Option<&Value> {
        self.rope.get(name).filter(|value| !value.is_null())
    }

    pub fn rope_float(&self, name: &str) -> Option<f64> {
        self.rope(name)?.as_f64()
    }

    pub fn rope_type(&self) -> Option<&str> {
        self.rope("rope_type")?.as_str()
    }

    pub fn layers(&self) -> Result<usize> {
        match self.texts("layers_block_type") {
            Some(types) => Ok(types.len()),
            None => self.size(&["n_layers", "num_hidden_layers", "n_layer", "num_layers"]),
        }
    }

    pub fn heads(&self) -> Result<usize> {
        self.size(&["num_attention_heads", "n_head", "n_heads"])
    }

    /// Number of key and value heads; by default, the number of query heads.
    pub fn key_heads(&self) -> Result<usize> {
        Ok(self.number(&["num_key_value_heads", "n_kv_heads", "num_kv_heads"])?.map_or(self.heads()?, |n| n as usize))
    }

    pub fn width(&self) -> Result<usize> {
        self.size(&["hidden_size", "n_embd", "d_model", "n_embed", "dim"])
    }

    /// Width of a head: the field `head_dim`, or the model's width divided by the number of heads.
    pub fn head_width(&self) -> Result<usize> {
        if let Some(width) = self.number(&["head_dim"])? {
            return Ok(width as usize);
        }
        let (width, heads) = (self.width()?, self.heads()?);
        width.checked_div(heads).context("config.json has 0 attention heads")
    }

    pub fn experts(&self) -> Result<usize> {
        Ok(self.number(&["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"])?.unwrap_or(0)
            as usize)
    }

    /// Number of layers at the beginning that have no experts. Newer classes of transformers list the kind of each
    /// layer; all others have a number.
    pub fn leading_dense(&self) -> Result<Option<u32>> {
        let Some(kinds) = self.texts("mlp_layer_types") else {
            return self.number(&["first_k_dense_replace", "first_last_k_dense_replace"]);
        };
        let dense = kinds.iter().take_while(|kind| **kind == "dense").count();
        ensure!(
            !kinds[dense..].contains(&"dense"),
            "mlp_layer_types in config.json has a dense layer after one with experts: not supported"
        );
        Ok(Some(dense as u32))
    }

    /// Returns the field that names the activation function of the feed-forward, and its value, which [`activation`]
    /// translates.
    pub fn activation(&self) -> Option<(&'static str, &str)> {
        const FIELDS: &[&str] =
            &["hidden_activation", "mlp_hidden_act", "hidden_act", "activation_function", "activation"];
        FIELDS.iter().find_map(|field| Some((*field, self.text(field)?)))
    }

    /// Refuses a setting with any value other than `only`. If `only` is a flag, null counts as false.
    pub fn only(&self, name: &str, only: &Value) -> Result<()> {
        let is_null = only.is_boolean() && self.is_null(name);
        match self.get(name).or(is_null.then_some(&Value::Bool(false))) {
            Some(value) if !is_same(value, only) => bail!("{name} in config.json is {value}: only {only} is supported"),
            _ => Ok(()),
        }
    }
}

/// Refuses `rope_parameters` that do not name kinds of layers, if the class distinguishes kinds of layers, because
/// transformers would ignore such parameters.
fn check_rope(kind: &str, values: &Map<String, Value>) -> Result<()> {
    let stated = values.get("rope_parameters").and_then(Value::as_object);
    let is_flat = stated.is_some_and(|stated| !stated.is_empty() && stated.values().all(|value| !value.is_object()));
    if is_flat && defaults::has_local_rope(kind) {
        bail!(
            "rope_parameters in config.json has no full_attention and sliding_attention, which {kind} needs: add them"
        );
    }
    Ok(())
}

/// Returns the rotary settings, in the form of `rope_parameters`.
fn rope(kind: &str, values: &Map<String, Value>) -> Map<String, Value> {
    let stated = ["rope_parameters", "rope_scaling"].iter().find_map(|name| values.get(*name)?.as_object());
    let mut rope = stated.cloned().unwrap_or_default();
    let is_nested = rope.contains_key("full_attention") || rope.contains_key("sliding_attention");
    let find = |names: &[&str]| names.iter().find_map(|name| values.get(*name)).filter(|value| !value.is_null());
    let global = ["global_rope_theta", "rope_global_theta", "rope_theta_global", "rope_theta", "rotary_emb_base"];
    let share = ["partial_rotary_factor", "rope_pct", "rotary_pct", "rope_percent"];
    for (name, value) in [
        ("rope_theta", find(&global)),
        ("partial_rotary_factor", find(&share)),
        ("original_max_position_embeddings", find(&["original_max_position_embeddings"])),
        ("rope_type", rope.get("type").cloned().as_ref()),
    ] {
        if let Some(value) = value.filter(|_| !is_nested) {
            rope.entry(name).or_insert_with(|| value.clone());
        }
    }
    let local = ["local_rope_theta", "rope_local_theta", "rope_theta_local", "swa_rope_theta", "rope_local_base_freq"];
    if let Some(local) = find(&local).filter(|_| !is_nested) {
        rope.insert("sliding_attention".to_owned(), serde_json::json!({ "rope_theta": local }));
    }
    let version = values.get("transformers_version").and_then(Value::as_str).unwrap_or_default();
    defaults::fill_rope(kind, version, stated.is_some_and(|stated| !stated.is_empty()), &mut rope);
    rope
}

/// Returns the name in GGUF of an activation function.
pub fn activation(name: &str) -> &str {
    match name {
        "gelu_new" | "gelu_fast" | "gelu_accurate" | "gelu_python_tanh" => "gelu_pytorch_tanh",
        "gelu_python" | "geglu" => "gelu",
        "swish" | "swiglu" | "SwiGLU" => "silu",
        name => name,
    }
}

/// True if two values are equal. Numbers are compared as f64.
pub fn is_same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Reads a JSON file. Python writes `Infinity` and `NaN`, which JSON does not have: they become null.
pub fn json(path: &Path) -> Result<Value> {
    let name = || path.display().to_string();
    let text = String::from_utf8(arenite_files::read(path)?).with_context(|| format!("{} is not text", name()))?;
    if let Ok(json) = serde_json::from_str(&text) {
        return Ok(json);
    }
    let text = text.replace("-Infinity", "null").replace(": NaN", ": null").replace("Infinity", "null");
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", name()))
}
