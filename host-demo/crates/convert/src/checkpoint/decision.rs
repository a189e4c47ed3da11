//! Decision models, which answer typed questions with probabilities. Files of their repositories tell the type; it decides the
//! template of the prompt and the source of the temperatures. Source: llama.cpp b11434, `conversion/{qwen,lev,bert}.py`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite_gguf_writer::Meta;
use serde_json::{Value, json};

use super::config::{self, Config};
use super::keys::Keys;

/// The class of laya's encoder with its scoring layers.
pub const SCORING_ENCODER: &str = "ModernBertDecisionModel";

/// A type of decision models.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    OpenJev,
    Lev,
    Nimble,
    Laya,
    Julia,
}

impl Decision {
    /// Returns the type of the decision model in a folder; `None` for other models.
    ///
    /// # Errors
    ///
    /// The type is not converted, or the folder has an adapter instead of a model.
    pub fn of(directory: &Path) -> Result<Option<Self>> {
        let has = |name: &str| directory.join(name).is_file();
        if has("encoder/config.json") && has("julia_config.json") {
            return Ok(Some(Self::Julia));
        }
        if has("encoder/config.json") && has("rl_agent_config.json") {
            return Ok(Some(Self::Laya));
        }
        let field = |name: &str| if has(name) { config::json(&directory.join(name)) } else { Ok(Value::Null) };
        let (kind, name) = if has("joint_head_config.json") {
            (None, "clef")
        } else if has("lev_release.json") {
            (Some(Self::Lev), "lev")
        } else if has("head.pt") && field("training_config.json")?["args"]["head_dim"].is_u64() {
            (None, "kev")
        } else if field("schema_config.json")?["task"] == "schema_candidate_classification_v2" {
            (Some(Self::Nimble), "nimble")
        } else if has("helper/shim.py") {
            (Some(Self::OpenJev), "openjev")
        } else {
            return Ok(None);
        };
        let shown = directory.display();
        ensure!(
            kind.is_some(),
            "{shown} is a decision model of the type {name}, whose head is not converted: convert it with llama.cpp's \
             convert_hf_to_gguf.py"
        );
        ensure!(
            has("config.json") || !has("adapter_config.json"),
            "{shown} is an adapter of the type {name}: merge it into {} with PEFT's merge_and_unload(), save the model and its \
             tokenizer, copy the JSON files of this folder there except adapter_config.json, and convert that folder",
            field("adapter_config.json")?["base_model_name_or_path"].as_str().unwrap_or("its model")
        );
        Ok(kind)
    }

    /// The folder of the config and the folder of the tokenizer, if they are not that of the weights.
    pub fn folders(self, directory: &Path) -> Option<(PathBuf, PathBuf)> {
        matches!(self, Self::Laya | Self::Julia).then(|| (directory.join("encoder"), directory.join("tokenizer")))
    }

    /// The settings of laya's scoring layers.
    fn scoring(self, directory: &Path) -> Result<Value> {
        config::json(&directory.join(if self == Self::Julia { "julia_config.json" } else { "rl_agent_config.json" }))
    }

    /// Reads the config. For laya, the scoring layers count as layers of the encoder, after its own.
    pub fn config(self, directory: &Path) -> Result<Config> {
        let Some((encoder, _)) = self.folders(directory) else { return Config::read(&directory.join("config.json")) };
        let mut values = config::json(&encoder.join("config.json"))?;
        let size = |values: &Value, name: &str| {
            values[name]
                .as_u64()
                .map(|size| size as usize)
                .with_context(|| format!("{name} is missing in {}", encoder.display()))
        };
        let (layers, wide, dim) =
            (size(&values, "num_hidden_layers")?, size(&values, "intermediate_size")?, size(&values, "hidden_size")?);
        let head = size(&self.scoring(directory)?, "head_layers")?;
        values["architectures"] = json!([SCORING_ENCODER]);
        values["num_layers_per_stack"] = layers.into();
        values["num_hidden_layers"] = (layers + head).into();
        values["intermediate_size"] = [vec![wide; layers], vec![4 * dim; head]].concat().into();
        Config::new(&values)
    }

    fn name(self) -> &'static str {
        match self {
            Self::OpenJev => "openjev",
            Self::Lev => "lev",
            Self::Nimble => "nimble",
            Self::Laya | Self::Julia => "laya",
        }
    }

    /// Writes the type, the temperatures and the template.
    pub fn keys(self, keys: &mut Keys<'_>, directory: &Path) -> Result<()> {
        keys.set("decision.type", self.name());
        let template = match self {
            Self::OpenJev => {
                // The published calibration: one temperature, and a further one for yes and no.
                for (kind, temperature) in [("choice", 0.85), ("score", 0.85), ("noul", 0.85 * 1.829_074)] {
                    keys.set(&format!("decision.temperature.{kind}"), temperature as f32);
                }
                include_str!("decision/openjev.jinja").to_owned()
            }
            Self::Lev => {
                let calibration = config::json(&directory.join("calibration.json"))?;
                for (name, value) in calibration["temperatures"].as_object().into_iter().flatten() {
                    // `choice:A:small`; `B` is another head, which is not converted.
                    match *name.split(':').collect::<Vec<_>>() {
                        [kind, "A"] => temperature(keys, kind, value)?,
                        [kind, "A", count] => temperature(keys, &format!("{kind}.{count}"), value)?,
                        _ => {}
                    }
                }
                include_str!("decision/lev.jinja").to_owned()
            }
            Self::Nimble => include_str!("decision/nimble.jinja").to_owned(),
            Self::Laya => self.of_encoder(keys, directory, include_str!("decision/laya.jinja"))?,
            Self::Julia => self.of_encoder(keys, directory, include_str!("decision/julia.jinja"))?,
        };
        let header = &mut *keys.header;
        header.set("tokenizer.chat_templates", Meta::strings(["systemone"]));
        header.set("tokenizer.chat_template.systemone", template.trim_end());
        Ok(())
    }

    /// Writes the keys of laya, and returns its template with the tokenizer's marks.
    fn of_encoder(self, keys: &mut Keys<'_>, directory: &Path, template: &str) -> Result<String> {
        let scoring = self.scoring(directory)?;
        let layers = scoring["head_layers"].as_u64().context("the scoring layers have no number: head_layers")?;
        keys.set("decision.block_count", layers as u32);
        keys.set("decision.max_head_tokens", scoring["head_max_len"].as_u64().unwrap_or(256) as u32);
        for (kind, value) in
            ["choice", "score", "noul"].iter().zip(scoring["temperature"].as_array().into_iter().flatten())
        {
            temperature(keys, kind, value)?;
        }
        for (name, value) in scoring["temperature_by_options"].as_object().into_iter().flatten() {
            // `choice:3-5` and `choice:11+`
            temperature(keys, name.replace(':', ".").replace('-', "_").trim_end_matches('+'), value)?;
        }
        keys.header.set("tokenizer.ggml.token_type_count", 3u32); // choice, score, noul
        let own = config::json(&directory.join("tokenizer/tokenizer_config.json"))?;
        let mut template = template.to_owned();
        for (mark, name) in [("[CLS]", "cls_token"), ("[SEP]", "sep_token"), ("[MASK]", "mask_token")] {
            let token = own[name].as_str().or(own[name]["content"].as_str());
            let token = token.with_context(|| format!("tokenizer_config.json has no {name}"))?;
            template = template.replace(mark, &token.replace('\\', "\\\\").replace('\'', "\\'"));
        }
        Ok(template)
    }
}

fn temperature(keys: &mut Keys<'_>, name: &str, value: &Value) -> Result<()> {
    match value.as_f64() {
        Some(value) if value > 0.0 => keys.set(&format!("decision.temperature.{name}"), value as f32),
        _ => bail!("the temperature of {name} is {value}: it must be above 0"),
    }
    Ok(())
}
