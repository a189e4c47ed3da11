//! Converts PEFT's LoRA adapters to GGUF, with llama.cpp's names: `X.lora_a`, `X.lora_b`, `adapter.lora.alpha`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite::quant::TensorType;
use serde_json::Value;

use super::changes::Change;
use super::config::{Config, json};
use super::families::{self, Family};
use super::names::{self, COMMON, Place, Row};
use super::output::Output;
use super::tensors::{Checkpoint, Files};
use super::view::{Step, View};
use crate::gguf_writer::Header;
use crate::new_file;

/// Converts the adapter in `directory` for the model in `base`. Returns the architecture and the number of matrices.
pub fn convert(directory: &Path, base: Option<&Path>, output: &Path) -> Result<(String, usize)> {
    let settings = json(&directory.join("adapter_config.json"))?;
    check(&settings)?;
    let base = base_config(directory, base, &settings)?;
    let config = Config::read(&base)?;
    let files = weights(directory)?;
    let checkpoint = Checkpoint::read(&files)?;
    let family = Family::of(&config, &checkpoint)?;
    let mut tables = families::tables(family, &config);
    tables.push(COMMON);
    let mut outputs = Vec::new();
    for name in checkpoint.tensors.keys() {
        let Some(stem) = [".lora_A.weight", ".lora_A.default.weight"].iter().find_map(|end| name.strip_suffix(end))
        else {
            ensure!(
                name.contains(".lora_B."),
                "the tensor {name} is no part of a plain LoRA: DoRA, embeddings and whole modules are not supported"
            );
            continue;
        };
        let view = |name: String| checkpoint.view(&name).with_context(|| format!("the tensor {name} is missing"));
        let (a, b) = (view(name.clone())?, view(name.replace(".lora_A.", ".lora_B."))?);
        let b = b.then(Step::Times(factor(&settings, stem)));
        let pair = pair(&tables, &config, stem, a, b);
        outputs.extend(pair.with_context(|| format!("the adapter of {stem}"))?);
    }
    ensure!(!outputs.is_empty(), "the adapter has no tensors");
    let count = outputs.len() / 2;
    let architecture = family.architecture(&config);
    let mut header = Header::new();
    header.set("general.architecture", architecture);
    header.set("general.type", "adapter");
    if let Some(name) =
        directory.canonicalize().ok().as_deref().and_then(Path::file_name).and_then(|name| name.to_str())
    {
        header.set("general.name", name);
    }
    header.set("adapter.type", "lora");
    header.set("adapter.lora.alpha", alpha(&settings)?);
    header.set("general.file_type", 0u32);
    header.set("general.quantization_version", 2u32);
    for output in &outputs {
        header.tensor(&output.name, &output.dims(), output.kind)?;
    }
    new_file::write_file(output, |out| {
        let mut data = header.write(out)?;
        outputs.iter().try_for_each(|output| output.write(1, &mut data, |_| Ok(())))?;
        data.finish().map(|_| ())
    })?;
    Ok((architecture.to_owned(), count))
}

/// Refuses adapters that are more than a product added to a matrix.
fn check(settings: &Value) -> Result<()> {
    ensure!(
        settings["peft_type"] == "LORA",
        "adapter_config.json is of a {} adapter: only LORA is supported",
        settings["peft_type"].as_str().unwrap_or("nameless")
    );
    for name in ["use_dora", "lora_bias"] {
        ensure!(settings[name] != true, "{name} in adapter_config.json is true: not supported");
    }
    let bias = settings["bias"].as_str().unwrap_or("none");
    ensure!(bias == "none", "bias in adapter_config.json is {bias}: only none is supported");
    let saved = settings["modules_to_save"].as_array().is_some_and(|modules| !modules.is_empty());
    ensure!(!saved, "modules_to_save in adapter_config.json names whole modules: not supported");
    Ok(())
}

/// Returns the path of the config of the adapter's base model.
fn base_config(directory: &Path, base: Option<&Path>, settings: &Value) -> Result<PathBuf> {
    let named = settings["base_model_name_or_path"].as_str().map(PathBuf::from);
    let beside = named.as_ref().map(|named| directory.join(named));
    let places = [base.map(Path::to_owned), Some(directory.to_owned()), named.clone(), beside];
    let found = places.into_iter().flatten().map(|place| place.join("config.json")).find(|path| path.is_file());
    let name = named.as_deref().unwrap_or(Path::new("its model"));
    found.with_context(|| format!("there is no config.json of {}: give the model's folder with --base", name.display()))
}

fn weights(directory: &Path) -> Result<Files> {
    for name in ["adapter_model.safetensors", "adapter_model.bin"] {
        let path = directory.join(name);
        if path.is_file() {
            return Files::open(&path);
        }
    }
    bail!("{} has no adapter_model.safetensors and no adapter_model.bin", directory.display())
}

fn rank(settings: &Value) -> Result<f64> {
    settings["r"].as_f64().filter(|rank| *rank > 0.0).context("adapter_config.json has no rank r")
}

/// The alpha that llama.cpp divides by the rank.
fn alpha(settings: &Value) -> Result<f32> {
    let alpha = settings["lora_alpha"].as_f64().context("adapter_config.json has no lora_alpha")?;
    // Rank-stabilized adapters divide alpha by the square root of the rank instead.
    let more = if settings["use_rslora"] == true { rank(settings)?.sqrt() } else { 1.0 };
    Ok((alpha * more) as f32)
}

/// Returns the factor for a module's matrix B: the module's own alpha, if there is one, divided by the adapter's alpha.
fn factor(settings: &Value, stem: &str) -> f32 {
    let own = settings["alpha_pattern"].as_object().into_iter().flatten();
    let own = own
        .filter(|(name, _)| stem == *name || stem.ends_with(&format!(".{name}")))
        .find_map(|(_, alpha)| alpha.as_f64());
    match (own, settings["lora_alpha"].as_f64()) {
        (Some(own), Some(alpha)) if alpha != 0.0 => (own / alpha) as f32,
        _ => 1.0,
    }
}

/// Converts the matrices A and B of a module to tensors named after the model's tensors.
fn pair<'f>(tables: &[&[Row]], config: &Config, stem: &str, a: View<'f>, b: View<'f>) -> Result<Vec<Output<'f>>> {
    let place = Place::of(&format!("{stem}.weight"));
    let found = names::find(tables, &place.layer, &place.rest).context("nothing is known about this module")?;
    ensure!(found.part.is_none(), "adapters of experts are not supported");
    let to: Vec<&str> = found.row.1.split(' ').filter(|name| !name.is_empty()).collect();
    // The adapter of a Conv1D is stored as that of a linear layer.
    let transposed = std::ptr::fn_addr_eq(found.row.2, super::changes::transposed as Change);
    let rows = if transposed { vec![b] } else { (found.row.2)(config, b)? };
    ensure!(rows.len() == to.len(), "its rows do not fit the model");
    let mut outputs = Vec::new();
    let mut merged: Vec<(&str, Vec<View<'f>>)> = Vec::new();
    for (to, rows) in to.into_iter().zip(rows) {
        match merged.iter_mut().find(|(name, _)| *name == to) {
            Some((_, parts)) => parts.push(rows),
            None => merged.push((to, vec![rows])),
        }
    }
    for (to, parts) in merged {
        let to = to.strip_suffix(".weight").unwrap_or(to);
        let name = format!("{}{to}.weight", place.layer);
        let rank = a.size(0)?;
        ensure!(parts.iter().all(|part| part.dims().get(1) == Some(&rank)), "lora_A and lora_B have different ranks");
        outputs.push(Output::of_views(format!("{name}.lora_a"), a.dims().to_vec(), vec![a.clone()]));
        let rows = parts.iter().filter_map(|part| part.dims().first()).sum();
        outputs.push(Output::of_views(format!("{name}.lora_b"), vec![rows, rank], parts));
    }
    for output in &mut outputs {
        output.kind = TensorType::F32;
    }
    Ok(outputs)
}
