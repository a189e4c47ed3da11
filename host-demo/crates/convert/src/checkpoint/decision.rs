//! Decision models, which answer typed questions with probabilities. The type of a decision model is recognized by the
//! files in its repository. The type determines the template of the prompt, the source of the temperatures and the file
//! of the head. Source: llama.cpp b11434, `conversion/{qwen,lev,clef,bert}.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arenite_gguf_writer::Meta;
use serde_json::{Value, json};

use super::config::{self, Config, JOINT_DECODER, SCORING_ENCODER};
use super::keys::Keys;
use super::output::Output;
use super::tensors::{Checkpoint, Files};
use super::view::View;

/// A type of decision models.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    OpenJev,
    Lev,
    Nimble,
    Kev,
    Clef,
    Laya,
    Julia,
}

impl Decision {
    /// Returns the type of the decision model in a folder; `None` for other models.
    ///
    /// # Errors
    ///
    /// The folder contains an adapter instead of a model.
    pub fn of(directory: &Path) -> Result<Option<Self>> {
        let has = |name: &str| directory.join(name).is_file();
        if has("encoder/config.json") && has("julia_config.json") {
            return Ok(Some(Self::Julia));
        }
        if has("encoder/config.json") && has("rl_agent_config.json") {
            return Ok(Some(Self::Laya));
        }
        let field = |name: &str| if has(name) { config::json(&directory.join(name)) } else { Ok(Value::Null) };
        let kind = if has("joint_head_config.json") {
            Self::Clef
        } else if has("lev_release.json") {
            Self::Lev
        } else if has("head.pt") && field("training_config.json")?["args"]["head_dim"].is_u64() {
            Self::Kev
        } else if field("schema_config.json")?["task"] == "schema_candidate_classification_v2" {
            Self::Nimble
        } else if has("helper/shim.py") {
            Self::OpenJev
        } else {
            return Ok(None);
        };
        let (shown, name) = (directory.display(), kind.name());
        let files = if kind == Self::Kev { "head.pt and the JSON files" } else { "the JSON files" };
        ensure!(
            has("config.json") || !has("adapter_config.json"),
            "{shown} is an adapter of the type {name}: merge it into {} with PEFT's merge_and_unload(), save the model and its \
             tokenizer, copy {files} of this folder there except adapter_config.json, and convert that folder",
            field("adapter_config.json")?["base_model_name_or_path"].as_str().unwrap_or("its model")
        );
        Ok(Some(kind))
    }

    /// The folders of the config and of the tokenizer; `None` if both are in the folder of the weights.
    pub fn folders(self, directory: &Path) -> Option<(PathBuf, PathBuf)> {
        matches!(self, Self::Laya | Self::Julia).then(|| (directory.join("encoder"), directory.join("tokenizer")))
    }

    /// The settings of laya's scoring layers.
    fn scoring(self, directory: &Path) -> Result<Value> {
        config::json(&directory.join(if self == Self::Julia { "julia_config.json" } else { "rl_agent_config.json" }))
    }

    /// Reads the config. For laya, the scoring layers count as further layers after the layers of the encoder.
    pub fn config(self, directory: &Path) -> Result<Config> {
        if self == Self::Clef {
            let mut values = config::json(&directory.join("config.json"))?;
            values["architectures"] = json!([JOINT_DECODER]);
            return Config::new(&values);
        }
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
            Self::Kev => "kev",
            Self::Clef => "clef",
            Self::Laya | Self::Julia => "laya",
        }
    }

    /// Writes the type, the temperatures and the template.
    pub fn keys(self, keys: &mut Keys<'_>, directory: &Path) -> Result<()> {
        keys.set("decision.type", self.name());
        let template = match self {
            Self::OpenJev => {
                // The published calibration has one temperature, and a further factor for questions that are answered
                // with yes or no.
                for (kind, temperature) in [("choice", 0.85), ("score", 0.85), ("noul", 0.85 * 1.829_074)] {
                    keys.set(&format!("decision.temperature.{kind}"), temperature as f32);
                }
                include_str!("decision/openjev.jinja").to_owned()
            }
            Self::Lev => {
                let calibration = config::json(&directory.join("calibration.json"))?;
                for (name, value) in calibration["temperatures"].as_object().into_iter().flatten() {
                    // A temperature's name is `choice:A` or, for questions with a certain number of options,
                    // `choice:A:small`. `B` in place of `A` stands for a second head, which is not converted.
                    match *name.split(':').collect::<Vec<_>>() {
                        [kind, "A"] => temperature(keys, kind, value)?,
                        [kind, "A", count] => temperature(keys, &format!("{kind}.{count}"), value)?,
                        _ => {}
                    }
                }
                include_str!("decision/lev.jinja").to_owned()
            }
            Self::Nimble => include_str!("decision/nimble.jinja").to_owned(),
            Self::Kev => {
                let path = directory.join("head.pt");
                let files = Files::open(&path)?;
                let settings = Checkpoint::read(&files)?.settings.unwrap_or_default();
                let size = settings["head_dim"].as_u64().and_then(|size| u32::try_from(size.checked_mul(2)?).ok());
                keys.set("embedding_length_out", size.context("head.pt has no usable head_dim")?);
                for kind in ["choice", "score", "noul"] {
                    temperature(keys, kind, &settings["temperature"])?;
                }
                include_str!("decision/kev.jinja").to_owned()
            }
            Self::Clef => {
                let head = config::json(&directory.join("joint_head_config.json"))?;
                let names =
                    [("routing_block_count", "routing_layers"), ("block_count", "layers"), ("head_count", "heads")];
                for (name, stored) in names {
                    let value = head[stored].as_u64();
                    let value = value.with_context(|| format!("joint_head_config.json has no {stored}"))?;
                    keys.set(&format!("decision.{name}"), u32::try_from(value)?);
                }
                keys.set("attention.layer_norm_epsilon", 1e-5f32); // torch's default
                include_str!("decision/clef.jinja").to_owned()
            }
            Self::Laya => self.of_encoder(keys, directory, include_str!("decision/laya.jinja"))?,
            Self::Julia => self.of_encoder(keys, directory, include_str!("decision/julia.jinja"))?,
        };
        let header = &mut *keys.header;
        header.set("tokenizer.chat_templates", Meta::strings(["systemone"]));
        header.set("tokenizer.chat_template.systemone", template.trim_end());
        Ok(())
    }

    /// Adds the tensors of a head that has a file of its own.
    pub fn head(self, directory: &Path, outputs: &mut Vec<Output<'_>>) -> Result<()> {
        match self {
            Self::Kev => {
                let path = directory.join("head.pt");
                Head::read(&path)?.pointer(outputs).with_context(|| path.display().to_string())
            }
            Self::Clef => {
                let settings = config::json(&directory.join("joint_head_config.json"))?;
                let routing =
                    settings["routing_layers"].as_u64().context("joint_head_config.json has no routing_layers")?;
                let path = directory.join("joint_head.safetensors");
                Head::read(&path)?.joint(routing, outputs).with_context(|| path.display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// Writes the keys of laya. Returns laya's prompt template with the delimiter tokens of the tokenizer.
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

/// The tensors of a head: each has a name, dimensions (the outermost first), and values.
struct Head(Vec<(String, Vec<usize>, Vec<f32>)>);

impl Head {
    fn read(path: &Path) -> Result<Self> {
        let files = Files::open(path)?;
        let checkpoint = Checkpoint::read(&files)?;
        let tensor = |(name, leaf): (&String, &Arc<_>)| {
            let view = View::new(Arc::clone(leaf));
            let mut values = vec![0.0; view.len()];
            view.read(0, &mut values);
            (name.clone(), view.dims().to_vec(), values)
        };
        Ok(Self(checkpoint.tensors.iter().map(tensor).collect()))
    }

    /// Adds the head of a model of the type kev: a linear layer that has the rows of the matrix `q`, followed by the
    /// rows of the matrix `k`.
    fn pointer(self, outputs: &mut Vec<Output<'_>>) -> Result<()> {
        for end in ["weight", "bias"] {
            let (mut shape, mut all) = (Vec::new(), Vec::new());
            for part in ["q", "k"] {
                let name = format!("{part}.{end}");
                let found = self.0.iter().find(|(own, ..)| *own == name);
                let (_, dims, values) = found.with_context(|| format!("it has no {name}"))?;
                ensure!(shape.is_empty() || shape == *dims, "its q and k have different sizes");
                shape.clone_from(dims);
                all.extend(values);
            }
            *shape.first_mut().context("its q and k have no rows")? *= 2;
            outputs.push(Output::of_values(format!("cls.output.{end}"), &shape, all));
        }
        Ok(())
    }

    /// Adds the head of a model of the type clef. The first `routing` layers of the head route; all later layers score.
    fn joint(self, routing: u64, outputs: &mut Vec<Output<'_>>) -> Result<()> {
        let mut scales = [None; 3];
        for (name, shape, values) in self.0 {
            if let Some(at) = SCALES.iter().position(|scale| *scale == name) {
                let value = *values.first().context("a scale has no value")?;
                // Stores each scale in the form in which it is applied, so that readers need no function: the gate
                // after a sigmoid, the other scales after `exp` (of at most `ln 100`).
                let is_gate = at == 2;
                scales[at] = Some(if is_gate { 1.0 / (1.0 + (-value).exp()) } else { value.min(100f32.ln()).exp() });
                continue;
            }
            let unknown = || format!("it has the tensor {name}, which is not supported");
            let (stem, end) = name.rsplit_once(['.', '_']).with_context(unknown)?;
            let whole = |names: &[(&str, &'static str)], stem: &str| {
                names.iter().find(|(stored, _)| *stored == stem).map(|(_, name)| *name)
            };
            let Some((kind, rest)) = stem.split_once("layers.") else {
                let new = whole(JOINT, stem).with_context(unknown)?;
                outputs.push(Output::of_values(format!("{new}.{end}"), &shape, values));
                continue;
            };
            let (number, part) = rest.split_once('.').with_context(unknown)?;
            let first = if kind.is_empty() { routing } else { 0 };
            let number =
                number.parse::<u64>().ok().and_then(|number| number.checked_add(first)).with_context(unknown)?;
            let new = whole(JOINT_LAYER, part).with_context(unknown)?;
            if !part.ends_with("in_proj") {
                outputs.push(Output::of_values(format!("dec.blk.{number}.{new}.{end}"), &shape, values));
                continue;
            }
            // Query, key and value are one tensor.
            let mut shape = shape;
            let rows = shape.first_mut().filter(|rows| rows.is_multiple_of(3)).with_context(unknown)?;
            *rows /= 3;
            for (letter, values) in ["q", "k", "v"].iter().zip(values.chunks_exact((values.len() / 3).max(1))) {
                let name = format!("dec.blk.{number}.{new}_{letter}.{end}");
                outputs.push(Output::of_values(name, &shape, values.to_vec()));
            }
        }
        let [Some(prior), Some(joint), Some(gate)] = scales else { bail!("it lacks one of {}", SCALES.join(", ")) };
        outputs.push(Output::of_values("decision.scales".into(), &[3], vec![prior, joint, gate]));
        Ok(())
    }
}

/// Numbers of clef's head.
const SCALES: [&str; 3] = ["prior_logit_scale", "joint_logit_scale", "residual_gate"];

/// Parts of clef's head, and their names in GGUF.
const JOINT: &[(&str, &str)] = &[
    ("type_embedding", "token_types"),
    ("hidden_norm", "decision.hidden_norm"),
    ("memory_projection", "decision.proj_memory"),
    ("question_projection", "decision.proj_question"),
    ("option_question_projection", "decision.proj_option_question"),
    ("global_projection", "decision.proj_global"),
    ("option_context_projection", "decision.proj_option_context"),
    ("option_lexical_projection", "decision.proj_option_lexical"),
    ("option_summary_norm", "decision.option_summary_norm"),
    ("field_norm", "decision.field_norm"),
    ("option_norm", "decision.option_norm"),
    ("residual_scorer.0", "decision.scorer"),
    ("residual_scorer.3", "decision.scorer_out"),
];

/// Names of the modules in a layer of clef's head, in the checkpoint and in GGUF. A layer is torch's
/// `TransformerDecoderLayer`, to which clef adds routing.
const JOINT_LAYER: &[(&str, &str)] = &[
    ("norm1", "attn_norm"),
    ("self_attn.in_proj", "attn"),
    ("self_attn.out_proj", "attn_o"),
    ("norm2", "cross_attn_norm"),
    ("multihead_attn.in_proj", "cross_attn"),
    ("multihead_attn.out_proj", "cross_attn_o"),
    ("norm3", "ffn_norm"),
    ("linear1", "ffn_up"),
    ("linear2", "ffn_down"),
    ("query_norm", "cross_attn_norm"),
    ("memory_norm", "cross_attn_norm_kv"),
    ("attention.in_proj", "cross_attn"),
    ("attention.out_proj", "cross_attn_o"),
    ("feedforward_norm", "ffn_norm"),
    ("feedforward.0", "ffn_up"),
    ("feedforward.3", "ffn_down"),
];

fn temperature(keys: &mut Keys<'_>, name: &str, value: &Value) -> Result<()> {
    match value.as_f64() {
        Some(value) if value > 0.0 => keys.set(&format!("decision.temperature.{name}"), value as f32),
        _ => bail!("the temperature of {name} is {value}: it must be above 0"),
    }
    Ok(())
}
