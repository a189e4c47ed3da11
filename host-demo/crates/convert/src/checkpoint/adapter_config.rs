//! The settings of a LoRA adapter.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use regex_lite::Regex;
use serde_json::Value;

use super::config::json;

/// Advice for adapters that do more than add a product of two matrices to a matrix.
pub const INSTEAD: &str = "so merge the adapter with PEFT's merge_and_unload(), and convert the merged model";

/// The settings in adapter_config.json. Settings of mlx_lm are converted to PEFT's.
pub struct Settings {
    pub json: Value,
    /// The expressions of `alpha_pattern` and their values.
    alphas: Vec<(Regex, f64)>,
}

impl Settings {
    /// Reads the settings. Refuses adapters that do more than add a product of two matrices to a matrix.
    pub fn read(directory: &Path) -> Result<Self> {
        let mut settings = json(&directory.join("adapter_config.json"))?;
        if let (Some(rank), Some(scale)) =
            (settings["lora_parameters"]["rank"].as_f64(), settings["lora_parameters"]["scale"].as_f64())
        {
            let kind = settings["fine_tune_type"].as_str().unwrap_or("lora");
            ensure!(kind == "lora", "fine_tune_type in adapter_config.json is {kind}: only lora is supported");
            settings["peft_type"] = "LORA".into();
            (settings["r"], settings["lora_alpha"]) = (rank.into(), (rank * scale).into());
        }
        if settings["peft_type"] == "IA3" {
            settings["peft_type"] = "LORA".into();
            (settings["r"], settings["lora_alpha"]) = (1.into(), 1.into());
        }
        ensure!(
            settings["peft_type"] == "LORA",
            "adapter_config.json is of a {} adapter: only LORA and IA3 are supported",
            settings["peft_type"].as_str().unwrap_or("nameless")
        );
        let bias = settings["bias"].as_str().unwrap_or("none");
        let is_known = ["none", "all", "lora_only"].contains(&bias);
        ensure!(is_known, "bias in adapter_config.json is {bias}: none, all and lora_only are supported");
        let is_set = |name: &str| match &settings[name] {
            Value::Null | Value::Bool(false) => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        for name in ["layer_replication", "use_bdlora", "kasa_config", "monteclora_config"] {
            ensure!(!is_set(name), "{name} in adapter_config.json is set: not supported, {INSTEAD}");
        }
        // Without that advice, because PEFT does not merge these.
        for name in ["use_qalora", "alora_invocation_tokens", "invocation_string", "arrow_config"] {
            ensure!(!is_set(name), "{name} in adapter_config.json is set: not supported");
        }
        let start = settings["init_lora_weights"].as_str().unwrap_or_default().to_ascii_lowercase();
        ensure!(
            !["pissa", "olora", "corda", "loftq", "lora_ga"].iter().any(|name| start.starts_with(name)),
            "init_lora_weights in adapter_config.json is {start}, which also changes the model's weights: save it as a plain \
             LoRA (PEFT's path_initial_model_for_weight_conversion)"
        );
        let alphas = alphas(&settings)?;
        Ok(Self { json: settings, alphas })
    }

    fn alpha(&self) -> Result<f64> {
        self.json["lora_alpha"].as_f64().context("adapter_config.json has no lora_alpha")
    }

    fn is_stabilized(&self) -> bool {
        self.json["use_rslora"] == true
    }

    /// The alpha in the new file. An alpha of 0 becomes 1, because readers leave out the factor `alpha / rank` if alpha
    /// is 0.
    pub fn stored_alpha(&self) -> Result<f64> {
        let alpha = self.alpha()?;
        // If the adapter is rank-stabilized (rsLoRA), its scale is alpha divided by the square root of the rank.
        // Programs that read the file divide by the rank, so alpha is multiplied by the square root of the rank.
        let rank = self.json["r"].as_f64().filter(|rank| *rank > 0.0);
        let more = if self.is_stabilized() { rank.context("adapter_config.json has no rank r")?.sqrt() } else { 1.0 };
        Ok(if alpha == 0.0 { 1.0 } else { alpha * more })
    }

    /// Returns the factor by which a module's matrix B is multiplied. The stored alpha divided by the rank is another
    /// factor, which is applied when the adapter is used.
    pub fn factor(&self, module: &str, rank: usize) -> Result<f32> {
        let module = module.strip_prefix("base_model.model.").unwrap_or(module);
        let weight = format!("{module}.weight");
        let module = if self.is_parameter(&weight) { &weight } else { module };
        let own = self.alphas.iter().find(|(pattern, _)| pattern.is_match(module)).map(|(_, own)| *own);
        let alpha = own.map_or_else(|| self.alpha(), Ok)?;
        let more = if self.is_stabilized() { (rank as f64).sqrt() } else { 1.0 };
        Ok((alpha * more / self.stored_alpha()?) as f32)
    }

    /// Returns the factor for the product of the two matrices that an adapter has for a module.
    pub fn scale(&self, module: &str, rank: usize) -> Result<f32> {
        Ok(self.factor(module, rank)? * (self.stored_alpha()? / rank as f64) as f32)
    }

    /// Returns true for the name of a bias that replaces the model's: of a saved module, or of any module if PEFT trains
    /// biases.
    pub fn is_trained_bias(&self, name: &str) -> bool {
        let are_trained = !matches!(self.json["bias"].as_str(), None | Some("none"));
        name.ends_with(".bias") && !name.contains(".lora_") && (are_trained || !name.contains(".base_layer."))
    }

    /// Returns true if PEFT adapts a single parameter of a module, called `name`, instead of the whole module.
    pub fn is_parameter(&self, name: &str) -> bool {
        let mut names = self.json["target_parameters"].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.any(|target| name == target || name.ends_with(&format!(".{target}")))
    }

    /// Returns the ids of trained tokens of a module.
    pub fn trained_tokens(&self, stem: &str) -> Option<Vec<usize>> {
        let trained = &self.json["trainable_token_indices"];
        let names: BTreeMap<&str, &Value> =
            trained.as_object().into_iter().flatten().map(|(name, ids)| (name.as_str(), ids)).collect();
        let own = names.iter().find(|(name, _)| stem.ends_with(**name)).map(|(_, ids)| *ids);
        let ids = own.unwrap_or(trained).as_array()?;
        ids.iter().map(|id| Some(id.as_u64()? as usize)).collect()
    }
}

/// Compiles the expressions of `alpha_pattern`. As in PEFT, an expression may match only the end of a module's name.
fn alphas(settings: &Value) -> Result<Vec<(Regex, f64)>> {
    let compiled = settings["alpha_pattern"].as_object().into_iter().flatten().map(|(pattern, alpha)| {
        let regex = Regex::new(&format!(r"^(?:(?:.*\.)?(?:{pattern}))$"))
            .with_context(|| format!("alpha_pattern in adapter_config.json has {pattern}, which is not supported"))?;
        let alpha = alpha
            .as_f64()
            .with_context(|| format!("alpha_pattern in adapter_config.json has no number for {pattern}"))?;
        Ok((regex, alpha))
    });
    compiled.collect()
}
