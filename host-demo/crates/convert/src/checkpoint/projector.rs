//! The projector of a model that reads pictures: the encoder of pictures in a checkpoint becomes a separate file
//! (`mmproj`). Names and keys are the same as in llama.cpp's converter.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite::quant::TensorType;
use arenite_gguf_writer::{Header, Meta};
use arenite_quantize::mix::Mix;
use serde_json::Value;

use super::image_processor::{ImageProcessor, Sizes};
use super::output::Output;
use super::tensors::Checkpoint;
use super::view::{Step, View};
use super::{New, config};

/// A kind of projector: its name, the classes of models that have it, and the names of its tensors.
struct Kind {
    name: &'static str,
    classes: &'static [&'static str],
    names: &'static [Row],
}

/// A row of a table of names: the end of a tensor's name in the checkpoint, without `.weight` and `.bias`, and the
/// tensor's name in the new file. `#` stands for the number of a layer.
type Row = (&'static str, &'static str);

const SIGLIP: &[Row] = &[
    ("embeddings.patch_embedding", "v.patch_embd"),
    ("embeddings.position_embedding", "v.position_embd"),
    ("encoder.layers.#.layer_norm1", "v.blk.#.ln1"),
    ("encoder.layers.#.layer_norm2", "v.blk.#.ln2"),
    ("encoder.layers.#.mlp.fc1", "v.blk.#.ffn_up"),
    ("encoder.layers.#.mlp.fc2", "v.blk.#.ffn_down"),
    ("encoder.layers.#.self_attn.q_proj", "v.blk.#.attn_q"),
    ("encoder.layers.#.self_attn.k_proj", "v.blk.#.attn_k"),
    ("encoder.layers.#.self_attn.v_proj", "v.blk.#.attn_v"),
    ("encoder.layers.#.self_attn.out_proj", "v.blk.#.attn_out"),
    ("post_layernorm", "v.post_ln"),
    ("connector.modality_projection.proj", "mm.model.fc"),
    ("multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"),
    ("multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm"),
    ("multi_modal_projector.layer_norm", "mm.input_norm"),
    ("multi_modal_projector.linear_1", "mm.1"),
    ("multi_modal_projector.linear_2", "mm.2"),
];

const INTERN: &[Row] = &[
    ("embeddings.cls_token", "v.class_embd"),
    ("embeddings.patch_embeddings.projection", "v.patch_embd"),
    ("embeddings.position_embeddings", "v.position_embd.weight"),
    ("encoder.layer.#.attention.q_proj", "v.blk.#.attn_q"),
    ("encoder.layer.#.attention.k_proj", "v.blk.#.attn_k"),
    ("encoder.layer.#.attention.v_proj", "v.blk.#.attn_v"),
    ("encoder.layer.#.attention.projection_layer", "v.blk.#.attn_out"),
    ("encoder.layer.#.lambda_1", "v.blk.#.ls1.weight"),
    ("encoder.layer.#.lambda_2", "v.blk.#.ls2.weight"),
    ("encoder.layer.#.layernorm_before", "v.blk.#.ln1"),
    ("encoder.layer.#.layernorm_after", "v.blk.#.ln2"),
    ("encoder.layer.#.mlp.fc1", "v.blk.#.ffn_up"),
    ("encoder.layer.#.mlp.fc2", "v.blk.#.ffn_down"),
    ("multi_modal_projector.layer_norm", "mm.model.mlp.0"),
    ("multi_modal_projector.linear_1", "mm.model.mlp.1"),
    ("multi_modal_projector.linear_2", "mm.model.mlp.3"),
];

const PIXTRAL: &[Row] = &[
    ("ln_pre", "v.pre_ln"),
    ("patch_conv", "v.patch_embd"),
    ("transformer.layers.#.attention.q_proj", "v.blk.#.attn_q"),
    ("transformer.layers.#.attention.k_proj", "v.blk.#.attn_k"),
    ("transformer.layers.#.attention.v_proj", "v.blk.#.attn_v"),
    ("transformer.layers.#.attention.o_proj", "v.blk.#.attn_out"),
    ("transformer.layers.#.attention_norm", "v.blk.#.ln1"),
    ("transformer.layers.#.ffn_norm", "v.blk.#.ln2"),
    ("transformer.layers.#.feed_forward.gate_proj", "v.blk.#.ffn_gate"),
    ("transformer.layers.#.feed_forward.up_proj", "v.blk.#.ffn_up"),
    ("transformer.layers.#.feed_forward.down_proj", "v.blk.#.ffn_down"),
    ("multi_modal_projector.norm", "mm.input_norm"),
    ("multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger"),
    ("multi_modal_projector.linear_1", "mm.1"),
    ("multi_modal_projector.linear_2", "mm.2"),
];

const QWEN: &[Row] = &[
    ("blocks.#.attn.proj", "v.blk.#.attn_out"),
    ("blocks.#.attn.qkv", "v.blk.#.attn_qkv"),
    ("blocks.#.mlp.gate_proj", "v.blk.#.ffn_gate"),
    ("blocks.#.mlp.up_proj", "v.blk.#.ffn_up"),
    ("blocks.#.mlp.down_proj", "v.blk.#.ffn_down"),
    ("blocks.#.mlp.linear_fc1", "v.blk.#.ffn_up"),
    ("blocks.#.mlp.linear_fc2", "v.blk.#.ffn_down"),
    ("blocks.#.norm1", "v.blk.#.ln1"),
    ("blocks.#.norm2", "v.blk.#.ln2"),
    ("merger.ln_q", "v.post_ln"),
    ("merger.norm", "v.post_ln"),
    ("merger.mlp.0", "mm.0"),
    ("merger.mlp.2", "mm.2"),
    ("merger.linear_fc1", "mm.0"),
    ("merger.linear_fc2", "mm.2"),
    ("patch_embed.proj", "v.patch_embd"),
    ("pos_embed", "v.position_embd"),
    ("deepstack_merger_list.#.linear_fc1", "v.deepstack.#.fc1"),
    ("deepstack_merger_list.#.linear_fc2", "v.deepstack.#.fc2"),
    ("deepstack_merger_list.#.norm", "v.deepstack.#.norm"),
];

const KINDS: &[Kind] = &[
    Kind {
        name: "idefics3",
        classes: &["Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"],
        names: SIGLIP,
    },
    Kind { name: "gemma3", classes: &["Gemma3ForConditionalGeneration"], names: SIGLIP },
    Kind { name: "lfm2", classes: &["Lfm2VlForConditionalGeneration"], names: SIGLIP },
    Kind { name: "internvl", classes: &["InternVLForConditionalGeneration"], names: INTERN },
    Kind {
        name: "pixtral",
        classes: &["Mistral3ForConditionalGeneration", "LlavaForConditionalGeneration"],
        names: PIXTRAL,
    },
    Kind { name: "qwen2.5vl_merger", classes: &["Qwen2_5_VLForConditionalGeneration"], names: QWEN },
    Kind {
        name: "qwen3vl_merger",
        classes: &["Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"],
        names: QWEN,
    },
];

/// Names before those of an encoder's tensors.
const ROOTS: &[&str] = &["model.", "vision_tower.", "vision_model.", "visual."];
/// Prefixes of the names of those tensors that are part of the encoder and of its projector. `model.` may precede these
/// prefixes.
const OWN: &[&str] = &["vision_tower.", "vision_model.", "visual.", "multi_modal_projector.", "connector."];

/// Returns the path of the projector, which is written beside the new file of a model.
pub fn beside(model: &Path) -> PathBuf {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    model.with_file_name(format!("mmproj-{name}"))
}

/// The settings of a checkpoint.
struct Settings {
    /// The `config.json`.
    config: Value,
}

/// Assembles the projector in a checkpoint. `None` if the checkpoint has no projector of a known kind.
///
/// # Errors
///
/// A tensor or a setting is missing or unknown.
pub fn assemble<'f>(folder: &Path, mix: Option<Mix>, checkpoint: &Checkpoint<'f>) -> Result<Option<New<'f>>> {
    let path = folder.join("config.json");
    let config = if path.is_file() { config::json(&path)? } else { return Ok(None) };
    let class = config["architectures"][0].as_str().unwrap_or_default();
    let Some(kind) = KINDS.iter().find(|kind| kind.classes.contains(&class)) else { return Ok(None) };
    // Other encoders of LLaVA are not known.
    if kind.name == "pixtral" && config["vision_config"]["model_type"] != "pixtral" {
        return Ok(None);
    }
    let settings = Settings { config };
    let mut outputs = Vec::new();
    let mut names: Vec<&String> = checkpoint.tensors.keys().collect();
    names.sort();
    for name in names {
        let short = name.strip_prefix("model.").unwrap_or(name);
        if OWN.iter().any(|own| short.starts_with(own)) {
            let view = checkpoint.view(name).context("a tensor is missing")?;
            settings.push(kind, name, view, &mut outputs).with_context(|| format!("the tensor {name}"))?;
        }
    }
    if outputs.is_empty() {
        return Ok(None);
    }
    for output in &mut outputs {
        output.kind = type_of(output, mix);
    }
    let mut header = Header::new();
    let processor = ImageProcessor::read(folder, kind.name)?;
    settings.keys(kind, &processor, &outputs, &mut header)?;
    let is_f32 =
        outputs.iter().all(|output| matches!(output.kind, TensorType::F32) || output.name.starts_with("mm.input_p"));
    let number = match mix {
        _ if is_f32 => Mix::F32.number(),
        Some(Mix::Q8_0) => Mix::Q8_0.number(),
        _ => Mix::F16.number(),
    };
    header.set("general.file_type", number);
    header.set("general.quantization_version", 2u32);
    for output in &outputs {
        header.tensor(&output.name, &output.dims(), output.kind)?;
    }
    Ok(Some(New { architecture: "clip", header, outputs, notes: Vec::new() }))
}

/// Returns the type of a tensor. Matrices of layers have the type that the user chose if that is F32, F16 or Q8_0, and
/// F16 otherwise.
fn type_of(output: &Output<'_>, mix: Option<Mix>) -> TensorType {
    let columns = output.shape.last().copied().unwrap_or(0);
    let is_small = output.shape.len() != 2 || output.name.starts_with("v.position_embd");
    match mix {
        // Only this matrix is stored transposed. Programs expect it in F16.
        _ if output.name == "mm.input_projection.weight" => TensorType::F16,
        _ if is_small => TensorType::F32,
        Some(Mix::F32) => TensorType::F32,
        Some(Mix::Q8_0) if columns.is_multiple_of(32) && output.name != "mm.input_projection.weight" => {
            TensorType::Q8_0
        }
        None if output.stored() == TensorType::F32 => TensorType::F32,
        _ => TensorType::F16,
    }
}

impl Settings {
    /// A number of the encoder's config, by one of its names.
    fn number(&self, names: &[&str]) -> Result<u32> {
        let vision = &self.config["vision_config"];
        let found = names.iter().find_map(|name| vision[*name].as_u64().or_else(|| vision[*name][0].as_u64()));
        let wanted = || format!("the vision_config of config.json has no {}", names.join(" or "));
        Ok(u32::try_from(found.with_context(wanted)?)?)
    }

    /// Converts a tensor of the checkpoint's encoder of pictures and adds it to `outputs`, the tensors of the new file.
    fn push<'f>(&self, kind: &Kind, name: &str, view: View<'f>, outputs: &mut Vec<Output<'f>>) -> Result<()> {
        let (name, number) = new_name(kind, name).context("is not known in an encoder of pictures")?;
        let mut put = |name: &str, view: View<'f>| {
            let shape = view.shape().to_vec();
            outputs.push(Output::of_views(name.to_owned(), shape, vec![view]));
        };
        match name.as_str() {
            "v.patch_embd.weight" => match *view.shape() {
                // Two frames, of which a picture has the same twice.
                [width, channels, 2, height, columns] => {
                    for (frame, name) in ["v.patch_embd.weight", "v.patch_embd.weight.1"].into_iter().enumerate() {
                        put(name, view.clone().slice(2, frame, 1)?.reshape(&[width, channels, height, columns])?);
                    }
                }
                // Patches by line, column and channel.
                [width, _] => {
                    let side = self.number(&["patch_size"])? as usize;
                    put(&name, view.reshape(&[width, side, side, 3])?.swap(1, 3)?.swap(2, 3)?);
                }
                _ => put(&name, view),
            },
            "mm.soft_emb_norm.weight" => put(&name, view.then(Step::Add(1.0))),
            _ if name.contains(".attn_qkv.") && kind.name == "qwen2.5vl_merger" => {
                for (part, view) in ["attn_q.", "attn_k.", "attn_v."].iter().zip(view.parts(0, 3)?) {
                    put(&name.replace("attn_qkv.", part), view);
                }
            }
            _ if kind.name == "pixtral" && (name.contains(".attn_q.") || name.contains(".attn_k.")) => {
                // The halves of a head become adjacent pairs.
                let heads = self.number(&["num_attention_heads"])? as usize;
                let [rows, columns] = *view.shape() else { bail!("is no matrix") };
                ensure!(heads > 0 && rows.is_multiple_of(2 * heads), "has {rows} rows for {heads} heads");
                let view = view.reshape(&[heads, 2, rows / heads / 2, columns])?.swap(1, 2)?;
                outputs.push(Output::of_views(name, vec![rows, columns], vec![view]));
            }
            _ if name.starts_with("v.deepstack.") => {
                let layers = self.config["vision_config"]["deepstack_visual_indexes"].as_array();
                let layer = layers.and_then(|layers| layers.get(number?)?.as_u64());
                let layer = layer.context("has no layer in deepstack_visual_indexes")?;
                let (_, rest) = name["v.deepstack.".len()..].split_once('.').context("has no name")?;
                put(&format!("v.deepstack.{layer}.{rest}"), view);
            }
            _ => put(&name, view),
        }
        Ok(())
    }

    /// The sizes that the image processor must agree with.
    fn sizes(&self, kind: &Kind, processor: &ImageProcessor, patch: u32) -> Result<Sizes> {
        let merge = match kind.name {
            "lfm2" => self.config["downsample_factor"].as_u64().unwrap_or(2) as u32,
            "qwen2.5vl_merger" | "qwen3vl_merger" => self.number(&["spatial_merge_size"])?,
            _ => 1,
        };
        let image = match kind.name {
            "qwen2.5vl_merger" => 560,
            "qwen3vl_merger" => self.number(&["num_position_embeddings"])?.isqrt() * patch,
            "lfm2" => 256,
            "pixtral" => processor.longest_edge(1024)?,
            _ => self.number(&["image_size"])?,
        };
        let sizes = Sizes { patch, merge, image };
        processor.check(&sizes)?;
        Ok(sizes)
    }

    /// Writes the metadata.
    fn keys(&self, kind: &Kind, processor: &ImageProcessor, outputs: &[Output<'_>], header: &mut Header) -> Result<()> {
        let size = |name: &str, dim: usize| {
            let found = outputs.iter().find(|output| output.name == name);
            let size = found.and_then(|output| output.shape.get(dim).copied());
            size.map(|size| size as u32).with_context(|| format!("the checkpoint has no tensor for {name}"))
        };
        let is_up = |output: &&Output<'_>| output.name.ends_with(".ffn_up.weight");
        let (config, vision) = (&self.config, &self.config["vision_config"]);
        let patch = size("v.patch_embd.weight", 3)?;
        let text = config["text_config"]["hidden_size"].as_u64().or_else(|| config["hidden_size"].as_u64());
        header.set("general.architecture", "clip");
        header.set("general.type", "mmproj");
        header.set("clip.has_vision_encoder", true);
        header.set("clip.projector_type", kind.name);
        let mut set = |key: &str, value: Meta| header.set(&format!("clip.vision.{key}"), value);
        set("projection_dim", (text.context("config.json has no hidden_size of the text model")? as u32).into());
        set("patch_size", patch.into());
        set("embedding_length", size("v.patch_embd.weight", 0)?.into());
        set("feed_forward_length", size("v.blk.0.ffn_up.weight", 0)?.into());
        set("block_count", (outputs.iter().filter(is_up).count() as u32).into());
        set("attention.head_count", self.number(&["num_attention_heads", "num_heads"])?.into());
        for (name, color) in processor.colors()? {
            set(name, Meta::array(color));
        }
        let eps = if kind.name == "pixtral" { 1e-5 } else { vision["layer_norm_eps"].as_f64().unwrap_or(1e-6) as f32 };
        set("attention.layer_norm_epsilon", eps.into());
        let Sizes { merge, image, .. } = self.sizes(kind, processor, patch)?;
        set("image_size", image.into());
        match kind.name {
            "idefics3" => {
                let factor = config["scale_factor"].as_u64().context("config.json has no scale_factor")?;
                set("projector.scale_factor", (factor as u32).into());
                let longest = processor.longest_edge(1456)?;
                ensure!(longest >= image, "the image processor's size is {longest}: at least {image} is implemented");
                set("preproc_image_size", longest.into());
            }
            "gemma3" => {
                let tokens = config["mm_tokens_per_image"].as_u64().unwrap_or(256) as u32;
                let factor = (image / patch).checked_div(tokens.isqrt()).unwrap_or(0);
                if factor != 4 {
                    set("projector.scale_factor", factor.into());
                }
            }
            "lfm2" => set("projector.scale_factor", merge.into()),
            "internvl" => {
                let ratio = config["downsample_ratio"].as_f64().unwrap_or(0.5);
                set("projector.scale_factor", ((1.0 / ratio).round() as u32).into());
                for (key, name, other, usual) in [
                    ("preproc_min_tiles", "min_patches", "min_dynamic_patch", 1),
                    ("preproc_max_tiles", "max_patches", "max_dynamic_patch", 12),
                ] {
                    let tiles = processor.number(name).or_else(|| config[other].as_u64()).unwrap_or(usual);
                    set(key, (tiles as u32).into());
                }
            }
            "pixtral" => {
                if let Some(merge) = config["spatial_merge_size"].as_u64() {
                    set("spatial_merge_size", (merge as u32).into());
                }
            }
            "qwen2.5vl_merger" => {
                let last = vision["fullatt_block_indexes"][0].as_u64().context("there are no fullatt_block_indexes")?;
                set("n_wa_pattern", (last as u32 + 1).into());
            }
            _ => {
                set("spatial_merge_size", merge.into());
                let deep = vision["deepstack_visual_indexes"].as_array();
                let layers = outputs.iter().filter(is_up).count() as u64;
                let is_deep =
                    |layer: u64| deep.is_some_and(|deep| deep.iter().any(|index| index.as_u64() == Some(layer)));
                set("is_deepstack_layers", Meta::array((0..layers).map(is_deep)));
            }
        }
        if kind.name == "lfm2" || kind.name.starts_with("qwen") {
            for (name, pixels) in processor.pixels(patch * merge)? {
                set(name, pixels.into());
            }
        }
        let activation = vision["hidden_act"].as_str().unwrap_or("gelu");
        header.set(if activation == "silu" { "clip.use_silu" } else { "clip.use_gelu" }, true);
        Ok(())
    }
}

/// Returns a tensor's name in the new file, and the number in its old name that takes the place of `#`.
fn new_name(kind: &Kind, name: &str) -> Option<(String, Option<usize>)> {
    let mut rest = name;
    while let Some(root) = ROOTS.iter().find(|root| rest.starts_with(**root)) {
        rest = &rest[root.len()..];
    }
    let (stem, suffix) = match rest.rsplit_once('.') {
        Some((stem, suffix @ ("weight" | "bias"))) => (stem, suffix),
        _ => (rest, ""),
    };
    kind.names.iter().find_map(|(old, new)| {
        let number = match old.split_once('#') {
            Some((before, after)) => Some(stem.strip_prefix(before)?.strip_suffix(after)?.parse::<usize>().ok()?),
            None if *old == stem => None,
            None => return None,
        };
        let new = number.map_or_else(|| (*new).to_owned(), |number| new.replace('#', &number.to_string()));
        Some((if suffix.is_empty() { new } else { format!("{new}.{suffix}") }, number))
    })
}
