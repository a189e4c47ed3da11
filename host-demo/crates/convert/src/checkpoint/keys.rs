//! Metadata of an architecture, derived from the config.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::config::Config;
use arenite_gguf_writer::{Header, Meta};

/// Values of `expert_gating_func`.
pub const SOFTMAX: u32 = 1;
pub const SIGMOID: u32 = 2;

/// A header to which an architecture's keys are written.
pub struct Keys<'k> {
    pub config: &'k Config,
    pub header: &'k mut Header,
    pub architecture: &'k str,
}

impl Keys<'_> {
    /// Sets a key of the architecture.
    pub fn set(&mut self, name: &str, value: impl Into<Meta>) {
        self.header.set(&format!("{}.{name}", self.architecture), value);
    }

    /// Returns the length of the context, if it is set.
    pub fn context_length(&self) -> Option<u32> {
        self.header.u32(&format!("{}.context_length", self.architecture))
    }

    /// Copies an integer that the config must have.
    pub fn number(&mut self, name: &str, from: &[&str]) -> Result<()> {
        let value = self.config.need(from)?;
        self.set(name, value);
        Ok(())
    }

    /// Copies an integer, if the config has it.
    pub fn maybe(&mut self, name: &str, from: &[&str]) -> Result<()> {
        if let Some(value) = self.config.number(from)? {
            self.set(name, value);
        }
        Ok(())
    }

    pub fn float(&mut self, name: &str, from: &[&str]) -> Result<()> {
        let value = self.config.float(from)?.with_context(|| format!("config.json has no {}", from.join(" or ")))?;
        self.set(name, value);
        Ok(())
    }

    pub fn maybe_float(&mut self, name: &str, from: &[&str]) -> Result<()> {
        if let Some(value) = self.config.float(from)? {
            self.set(name, value);
        }
        Ok(())
    }

    /// Copies a factor, if it exists and is not 0.
    pub fn factor(&mut self, name: &str, from: &str) -> Result<()> {
        if let Some(value) = self.config.float(&[from])?.filter(|value| *value != 0.0) {
            self.set(name, value);
        }
        Ok(())
    }

    pub fn flag(&mut self, name: &str, from: &str) {
        if let Some(value) = self.config.flag(from) {
            self.set(name, value);
        }
    }

    pub fn block_count(&mut self) -> Result<()> {
        let layers = self.config.layers()? as u32;
        self.set("block_count", layers);
        Ok(())
    }

    /// Writes the number of layers at the beginning that have no experts.
    pub fn leading_dense(&mut self) -> Result<()> {
        let dense =
            self.config.leading_dense()?.context("config.json has no mlp_layer_types or first_k_dense_replace")?;
        self.set("leading_dense_block_count", dense);
        Ok(())
    }

    /// Adds `count` layers for predicting further tokens. They come after all other layers.
    pub fn predicting(&mut self, count: usize) -> Result<()> {
        if count > 0 {
            self.set("block_count", (self.config.layers()? + count) as u32);
            self.set("nextn_predict_layers", count as u32);
        }
        if self.header.has(&format!("{}.attention.recurrent_layers", self.architecture)) {
            self.recurrent_layers(count);
        }
        Ok(())
    }

    pub fn vocab_size(&mut self) -> Result<()> {
        self.number("vocab_size", &["vocab_size"])
    }

    pub fn key_length(&mut self, width: u32) {
        self.set("attention.key_length", width);
        self.set("attention.value_length", width);
    }

    /// Writes `rope.dimension_count`: the number of rotated elements of a head, which is a fraction of the head or the
    /// whole head.
    pub fn rope_dimensions(&mut self, default: f64) -> Result<()> {
        let share = self.config.rope_float("partial_rotary_factor").unwrap_or(default);
        let width = self.config.head_width()? as f64;
        self.set("rope.dimension_count", (width * share) as u32);
        Ok(())
    }

    /// Writes the keys that most architectures have.
    pub fn common(&mut self) -> Result<()> {
        let c = self.config;
        self.block_count()?;
        self.maybe(
            "context_length",
            &[
                "max_position_embeddings",
                "n_ctx",
                "n_positions",
                "max_length",
                "max_sequence_length",
                "model_max_length",
            ],
        )?;
        self.maybe("embedding_length", &["hidden_size", "n_embd", "dim"])?;
        let widths =
            ["prefix_dense_intermediate_size", "dense_intermediate_size", "intermediate_size", "n_inner", "hidden_dim"];
        match c.find(&widths).and_then(|width| width.as_array()) {
            Some(list) => {
                let list: Option<Vec<u32>> = list.iter().map(|n| u32::try_from(n.as_u64()?).ok()).collect();
                let list = list.context("intermediate_size in config.json is not a list of numbers")?;
                self.set("feed_forward_length", Meta::array(list.into_iter().map(|n| n as i32)));
            }
            None => self.maybe("feed_forward_length", &widths)?,
        }
        self.maybe("attention.head_count", &["num_attention_heads", "n_head", "n_heads"])?;
        match c.find(&["num_key_value_heads", "n_kv_heads"]).and_then(|heads| heads.as_array()) {
            Some(list) => {
                let list: Option<Vec<i32>> = list.iter().map(|n| i32::try_from(n.as_u64()?).ok()).collect();
                let list = list.context("num_key_value_heads in config.json is not a list of numbers")?;
                self.set("attention.head_count_kv", Meta::array(list));
            }
            None => self.maybe("attention.head_count_kv", &["num_key_value_heads", "n_kv_heads"])?,
        }
        self.direction();
        self.rope()?;
        self.maybe_float("attention.layer_norm_rms_epsilon", &["rms_norm_eps", "norm_eps"])?;
        self.maybe_float("attention.layer_norm_epsilon", &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"])?;
        self.maybe("expert_count", &["num_local_experts", "num_experts", "n_routed_experts"])?;
        self.maybe("expert_used_count", &["num_experts_per_tok", "num_experts_per_token", "top_k_experts"])?;
        self.maybe("expert_group_count", &["n_group"])?;
        self.maybe("expert_group_used_count", &["topk_group"])?;
        let groups = c.number(&["n_group"])?.zip(c.number(&["topk_group"])?);
        ensure!(!matches!(groups, Some((1.., 0))), "topk_group in config.json is 0: no expert could be chosen");
        let router = [
            "score_function",
            "scoring_func",
            "score_func",
            "moe_router_activation",
            "moe_router_activation_func",
            "expert_selection_fn",
        ];
        match c.find(&router).and_then(|name| name.as_str()) {
            Some("sigmoid") => self.set("expert_gating_func", SIGMOID),
            Some("softmax") => self.set("expert_gating_func", SOFTMAX),
            Some(other) => bail!("the router's scores are {other}, which is not supported"),
            None => {}
        }
        if let Some(width) = c.number(&["head_dim"])? {
            self.key_length(width);
        }
        Ok(())
    }

    /// Writes the keys of rotary positions and their scaling.
    pub fn rope(&mut self) -> Result<()> {
        let c = self.config;
        let factor = c.rope_float("factor");
        match (c.rope_type(), factor) {
            (None | Some("default" | "llama3" | "dynamic" | "xdrope" | "proportional"), _) => {}
            (Some("linear"), Some(factor)) => {
                self.set("rope.scaling.type", "linear");
                self.set("rope.scaling.factor", factor as f32);
            }
            (Some("yarn"), Some(factor)) => {
                self.set("rope.scaling.type", "yarn");
                self.set("rope.scaling.factor", factor as f32);
                let original = c.rope("original_max_position_embeddings").or(c.get("max_position_embeddings"));
                let original = original.and_then(|n| n.as_u64());
                let original = original.context("config.json has no original_max_position_embeddings")?;
                self.set("rope.scaling.original_context_length", original as u32);
                // Says whether the ends of YaRN's ramp are rounded. llama.cpp does not know this key, so it is written
                // only if its value differs from what llama.cpp does for the architecture.
                let rounded = c.rope("truncate").and_then(|rounded| rounded.as_bool()).unwrap_or(true);
                if rounded != (self.architecture != "gpt-oss" || original != 4096) {
                    self.set("rope.scaling.yarn_truncate", rounded);
                }
                for (key, names) in [
                    ("yarn_ext_factor", &["extrapolation_factor"][..]),
                    ("yarn_attn_factor", &["attention_factor", "attn_factor"]),
                    ("yarn_beta_fast", &["beta_fast"]),
                    ("yarn_beta_slow", &["beta_slow"]),
                ] {
                    if let Some(value) = names.iter().find_map(|name| c.rope_float(name)) {
                        self.set(&format!("rope.scaling.{key}"), value as f32);
                    }
                }
                self.magnitude(factor);
            }
            (Some("longrope" | "su"), _) => self.set("rope.scaling.type", "longrope"),
            (Some("linear" | "yarn"), None) => {}
            (Some(other), _) => bail!("the rope type {other} in config.json is not supported"),
        }
        if let Some(sections) = c.rope_outer("mrope_section").and_then(|sections| sections.as_array()) {
            let mut sections: Vec<i32> = sections.iter().map(|n| n.as_i64().unwrap_or(0) as i32).collect();
            sections.resize(4, 0);
            self.set("rope.dimension_sections", Meta::array(sections));
        }
        if let Some(base) = c.rope_float("rope_theta") {
            self.set("rope.freq_base", base as f32);
        }
        if let Some(base) = c.rope_outer("sliding_attention").and_then(|local| local["rope_theta"].as_f64()) {
            self.set("rope.freq_base_swa", base as f32);
        }
        Ok(())
    }

    /// If the config has no scaling of rotary positions, writes the key that says so. Otherwise readers would apply
    /// their default for this architecture.
    pub fn unscaled(&mut self) {
        if !self.header.has(&format!("{}.rope.scaling.type", self.architecture)) {
            self.set("rope.scaling.type", "none");
        }
    }

    /// Writes a flag that says whether the weights of experts are divided by their sum. The flag is written only if the
    /// config differs from the architecture's `usual` value.
    pub fn normed_weights(&mut self, usual: bool) {
        if let Some(normed) = self.config.flag("norm_topk_prob").filter(|normed| *normed != usual) {
            self.set("expert_weights_norm", normed);
        }
    }

    /// Writes the factor by which YaRN multiplies cosines and sines, if the config has `mscale` and `mscale_all_dim`.
    fn magnitude(&mut self, factor: f64) {
        let c = self.config;
        let is_given = ["attention_factor", "attn_factor"].iter().any(|name| c.rope_float(name).is_some());
        let scales = c.rope_float("mscale").zip(c.rope_float("mscale_all_dim"));
        let Some((scale, all)) = scales.filter(|(scale, all)| !is_given && *scale != 0.0 && *all != 0.0) else {
            return;
        };
        // In these architectures, programs already compute this factor from the key for `mscale_all_dim` if the
        // condition is true.
        let is_implied = match self.architecture {
            "deepseek2" | "mistral4" | "kimi-linear" | "bailingmoe3" => scale == all,
            "mistral3" => scale == 1.0,
            _ => false,
        };
        let growth = |scale: f64| if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 };
        if !is_implied {
            self.set("rope.scaling.yarn_attn_factor", (growth(scale) / growth(all)) as f32);
        }
    }

    /// For decoders that were trained to compute embeddings: writes that attention has no mask, if config.json says so.
    pub fn direction(&mut self) {
        if self.config.flag("is_causal") == Some(false) {
            self.set("attention.causal", false);
        }
    }

    /// Writes the window of local layers, and their pattern.
    pub fn window(&mut self) -> Result<()> {
        self.maybe("attention.sliding_window", &["sliding_window"])?;
        self.window_pattern();
        Ok(())
    }

    /// Returns the length of the attention window in the config, if the model uses the window and if it is shorter than
    /// the context.
    fn short_window(&self) -> Option<u32> {
        let number = |name| self.config.get(name).and_then(Value::as_u64);
        let (window, context) = (number("sliding_window")?, number("max_position_embeddings")?);
        // The code of Llama has no windows, so a window in the config of these classes is ignored.
        let has_none = ["LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel", "LlamaForSequenceClassification"];
        let ignores = self.config.classes().iter().any(|class| has_none.contains(class));
        let is_used =
            !ignores && self.config.flag("use_sliding_window") != Some(false) && (1..context).contains(&window);
        if is_used { u32::try_from(window).ok() } else { None }
    }

    /// Writes the window of an architecture in which every layer has a window. llama.cpp ignores this key for some
    /// architectures.
    pub fn window_everywhere(&mut self) {
        if let Some(window) = self.short_window() {
            self.set("attention.sliding_window", window);
        }
    }

    /// Checks a window in the config for which the file has no key, because GGUF defines no windows for this
    /// architecture. Refuses the window if layers use it; otherwise returns a note about it.
    pub fn dropped_window(&self) -> Result<Option<String>> {
        let is_written = self.header.has(&format!("{}.attention.sliding_window", self.architecture));
        let Some(window) = self.short_window().filter(|_| !is_written) else { return Ok(None) };
        let listed = self.config.texts("layer_types").map(|types| types.contains(&"sliding_attention"));
        ensure!(
            !listed.unwrap_or(self.config.flag("use_sliding_window") == Some(true)),
            "sliding_window in config.json is {window}: windows are not supported for the architecture {}",
            self.architecture
        );
        Ok(listed.is_none().then(|| {
            format!("the window of {window} tokens is left out: on longer texts the model differs from the checkpoint")
        }))
    }

    /// Returns a note if the config's ALiBi slopes differ from those in the code of transformers.
    pub fn other_slopes(&self) -> Option<String> {
        let most = self.config.get("attn_config")?["alibi_bias_max"].as_f64()?;
        (self.architecture == "mpt" && most != 8.0).then(|| {
            format!("alibi_bias_max is {most}: transformers ignores it and always takes 8, so its results differ")
        })
    }

    /// Returns a note if rotary positions are scaled for texts that are longer than the context.
    pub fn dynamic_scaling(&self) -> Option<String> {
        // HunYuan also writes a scaling of the type "dynamic", with `alpha`. It does not depend on the length of a
        // text, and the families convert it.
        let is_dynamic = self.config.rope_type() == Some("dynamic") && self.config.rope("alpha").is_none();
        (is_dynamic || self.config.get("rotary_scaling_factor").is_some()).then(|| {
            "the rotary positions of texts that are longer than the context are not scaled, unlike in the checkpoint \
             (dynamic scaling)"
                .to_owned()
        })
    }

    /// If the config lists the types of the layers, writes which layers are local.
    pub fn window_pattern(&mut self) {
        if let Some(types) = self.config.texts("layer_types") {
            let local = types.iter().map(|kind| *kind == "sliding_attention");
            self.set("attention.sliding_window_pattern", Meta::array(local));
        }
    }

    /// If the config lists the types of the layers, writes which layers have a recurrent state instead of attention.
    /// The `others` layers after the listed ones have attention.
    pub fn recurrent_layers(&mut self, others: usize) {
        if let Some(types) = self.config.texts("layer_types") {
            let recurrent = types.iter().map(|kind| *kind == "linear_attention");
            let recurrent: Vec<bool> = recurrent.chain(std::iter::repeat_n(false, others)).collect();
            self.set("attention.recurrent_layers", Meta::array(recurrent));
        }
    }
}
