//! Modules after a sentence-transformers encoder: pooling and linear layers, in separate folders.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::config::json;
use super::keys::Keys;
use super::output::Output;
use super::tensors::{Checkpoint, Files};

/// Returns the modules of a folder: the last component of each module's type, and the module's path.
fn modules(directory: &Path) -> Result<Vec<(String, String)>> {
    let path = directory.join("modules.json");
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let list = json(&path)?;
    let list = list.as_array().context("modules.json is not a list")?;
    let module = |module: &Value| {
        let (kind, path) = (module["type"].as_str()?, module["path"].as_str()?);
        Some((kind.rsplit('.').next()?.to_owned(), path.to_owned()))
    };
    Ok(list.iter().filter_map(module).collect())
}

/// Returns true if the folder has a module for pooling.
pub fn pools(directory: &Path) -> Result<bool> {
    Ok(modules(directory)?.iter().any(|(kind, _)| kind == "Pooling"))
}

/// Adds the linear layers after the pooling: `dense_2` and `dense_3`.
pub fn dense(directory: &Path, outputs: &mut Vec<Output<'_>>) -> Result<()> {
    let dense: Vec<String> =
        modules(directory)?.into_iter().filter(|(kind, _)| kind == "Dense").map(|(_, path)| path).collect();
    ensure!(
        dense.len() <= 2,
        "modules.json has {} linear layers after the pooling: at most 2 are supported",
        dense.len()
    );
    for (folder, name) in dense.iter().zip(["dense_2", "dense_3"]) {
        let folder = directory.join(folder);
        let mut read = || -> Result<()> {
            let settings = json(&folder.join("config.json"))?;
            let activation = settings["activation_function"].as_str().unwrap_or("torch.nn.modules.linear.Identity");
            ensure!(activation.ends_with("Identity"), "its activation {activation} is not supported");
            let files = Files::open(&folder)?;
            let checkpoint = Checkpoint::read(&files)?;
            ensure!(!checkpoint.has("linear.bias"), "it has a bias, which is not supported");
            let view = checkpoint.view("linear.weight").context("it has no linear.weight")?;
            let mut values = vec![0.0; view.len()];
            view.read(0, &mut values);
            outputs.push(Output::of_values(format!("{name}.weight"), view.dims(), values));
            Ok(())
        };
        read().with_context(|| folder.display().to_string())?;
    }
    Ok(())
}

/// Describes the steps of sentence-transformers that a GGUF file cannot express. `context` is the length of the model's
/// context.
pub fn notes(directory: &Path, context: Option<u32>) -> Result<Vec<String>> {
    let read = |name: &str| {
        let path = directory.join(name);
        if path.is_file() { json(&path) } else { Ok(Value::Null) }
    };
    let mut notes = Vec::new();
    let settings = read("config_sentence_transformers.json")?;
    let prompt = settings["default_prompt_name"].as_str().and_then(|name| settings["prompts"][name].as_str());
    if let Some(prompt) = prompt.filter(|prompt| !prompt.is_empty()) {
        notes.push(format!("sentence-transformers puts {prompt:?} before each text: give texts with it"));
    }
    let transformer = read("sentence_bert_config.json")?;
    if directory.join("modules.json").is_file() {
        // Version 6 stores the length only in the tokenizer's settings.
        let length = match transformer["max_seq_length"].as_u64() {
            Some(length) => Some(length),
            None => read("tokenizer_config.json")?["model_max_length"].as_u64(),
        };
        if let Some(length) = length.filter(|length| context.is_some_and(|context| *length < context.into())) {
            notes.push(format!(
                "sentence-transformers cuts texts after {length} tokens: give texts of at most this length"
            ));
        }
    }
    if let Some(size) = settings["truncate_dim"].as_u64() {
        notes.push(format!(
            "sentence-transformers cuts embeddings after {size} values (truncate_dim): this model returns all values"
        ));
    }
    if transformer["do_lower_case"] == true {
        notes.push("sentence-transformers converts each text to lower case: give texts in lower case".to_owned());
    }
    Ok(notes)
}

/// Writes the type of pooling, and the sizes of linear layers.
pub fn keys(directory: &Path, keys: &mut Keys<'_>) -> Result<()> {
    let mut layers = ["dense_2", "dense_3"].into_iter();
    for (kind, path) in modules(directory)? {
        match kind.as_str() {
            "Pooling" => {
                // Without settings the mean is used, as in sentence-transformers.
                let file = directory.join(&path).join("config.json");
                let kind = if file.is_file() { pooling(&json(&file)?)? } else { 1 };
                keys.set("pooling_type", kind);
            }
            "Dense" => {
                let settings = json(&directory.join(&path).join("config.json"))?;
                let size = |name: &str| settings[name].as_u64().map(|size| size as u32);
                let sizes = size("in_features").zip(size("out_features")).zip(layers.next());
                let ((before, after), name) = sizes.with_context(|| format!("{path}/config.json has no sizes"))?;
                keys.set(&format!("{name}_feat_in"), before);
                keys.set(&format!("{name}_feat_out"), after);
            }
            // Rerankers read the logits of two tokens (`LogitScore`): see `reranker.rs`.
            "Transformer" | "Normalize" | "Dropout" | "LogitScore" => {}
            other => bail!("modules.json has a module {other}, which is not supported"),
        }
    }
    // Without a classifier, `classifier_pooling` has no effect, so values other than mean and cls are ignored.
    let ranks = ranks(keys);
    match keys.config.text("classifier_pooling").filter(|name| ranks || matches!(*name, "mean" | "cls")) {
        Some("mean") => keys.set("classifier.pooling_type", 1u32),
        Some("cls") => keys.set("classifier.pooling_type", 2u32),
        Some(other) => bail!("classifier_pooling in config.json is {other}: mean and cls are supported"),
        None => {}
    }
    labels(keys);
    Ok(())
}

fn pooling(settings: &Value) -> Result<u32> {
    let on = |name: &str| settings[format!("pooling_mode_{name}")] == true;
    let others = ["max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens"];
    if let Some(other) = others.iter().find(|name| on(name)) {
        bail!("the pooling {other} is not supported: mean, cls and the last token are");
    }
    Ok(match settings["pooling_mode"].as_str() {
        _ if on("mean_tokens") => 1,
        _ if on("cls_token") => 2,
        _ if on("lasttoken") => 3,
        Some("mean") => 1,
        Some("cls") => 2,
        Some("lasttoken") => 3,
        _ => bail!("the pooling config selects none of mean, cls and last token"),
    })
}

/// Returns true if the model is a classifier.
fn ranks(keys: &Keys<'_>) -> bool {
    keys.config.classes().iter().any(|class| class.ends_with("ForSequenceClassification"))
}

/// Writes the names of a classifier's outputs; a reranker's only output has no name.
fn labels(keys: &mut Keys<'_>) {
    if !ranks(keys) {
        return;
    }
    keys.set("pooling_type", 4u32);
    if let Some(labels) = keys.config.get("id2label").and_then(|labels| labels.as_object()) {
        let mut names: Vec<(u64, &str)> =
            labels.iter().filter_map(|(id, name)| Some((id.parse().ok()?, name.as_str()?))).collect();
        names.sort_unstable();
        if names.first().is_some_and(|(_, name)| *name != "LABEL_0") || names.len() > 2 {
            keys.set(
                "classifier.output_labels",
                arenite_gguf_writer::Meta::strings(names.iter().map(|(_, name)| name)),
            );
        }
    }
}
