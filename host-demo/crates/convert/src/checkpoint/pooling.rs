//! The modules that sentence-transformers applies after an encoder: a pooling and linear layers. Each has a folder of
//! its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::config::json;
use super::keys::Keys;
use super::output::Output;
use super::tensors::{Checkpoint, Files};
use super::view::View;

/// Returns the modules that `modules.json` in a folder lists. For each module, returns the last component of its type
/// and its path.
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

/// Returns the folder of the model itself. Older versions of sentence-transformers put the model into a subfolder such
/// as `0_Transformer`.
pub fn transformer(directory: &Path) -> Result<PathBuf> {
    if directory.join("config.json").is_file() {
        return Ok(directory.to_owned());
    }
    let Some((kind, path)) = modules(directory)?.into_iter().next() else { return Ok(directory.to_owned()) };
    ensure!(kind != "StaticEmbedding", "modules.json has a module {kind}, which is not supported");
    let first = directory.join(path);
    Ok(if first.join("config.json").is_file() { first } else { directory.to_owned() })
}

/// Returns true if the folder has a module for pooling.
pub fn pools(directory: &Path) -> Result<bool> {
    Ok(modules(directory)?.iter().any(|(kind, _)| kind == "Pooling"))
}

/// Returns the folders of the linear layers after the pooling, and the names of their tensors: `dense_2` and `dense_3`, or
/// `dense_3` alone.
fn dense_layers(directory: &Path) -> Result<Vec<(PathBuf, &'static str)>> {
    let modules = modules(directory)?;
    let steps: Vec<&str> = modules.iter().map(|(kind, _)| kind.as_str()).collect();
    let steps = steps.iter().filter(|kind| ["Pooling", "Dense", "Normalize"].contains(kind)).copied();
    let steps: Vec<&str> = steps.collect();
    let names = match steps[..] {
        ["Pooling", "Dense", "Dense"] | ["Pooling", "Dense", "Dense", "Normalize"] => &["dense_2", "dense_3"][..],
        ["Pooling", "Dense"] | ["Pooling", "Dense", "Normalize"] => &["dense_3"],
        // A vector for each token (ColBERT).
        ["Dense"] | ["Dense", "Normalize"] => &["dense_3"],
        _ if !steps.contains(&"Dense") => &[],
        _ => bail!(
            "modules.json has the steps {}: at most 2 linear layers between pooling and normalization are supported",
            steps.join(", ")
        ),
    };
    let folders = modules.iter().filter(|(kind, _)| kind == "Dense").map(|(_, path)| directory.join(path));
    Ok(folders.zip(names.iter().copied()).collect())
}

/// Returns GGUF's name for the activation function after a linear layer.
fn activation(settings: &Value) -> Result<Option<&'static str>> {
    let name = match settings.get("activation_function") {
        None => "Tanh", // the default of sentence-transformers
        Some(name) => name.as_str().and_then(|name| name.rsplit('.').next()).unwrap_or("Identity"),
    };
    Ok(match name {
        "Identity" => None,
        "Tanh" => Some("tanh"),
        "GELU" => Some("gelu"),
        "ReLU" => Some("relu"),
        "SiLU" => Some("silu"),
        other => bail!("its activation {other} is not supported"),
    })
}

/// Adds the linear layers that the model applies after the pooling. The names of their tensors begin with `prefix`.
pub fn dense(directory: &Path, prefix: &str, outputs: &mut Vec<Output<'_>>) -> Result<()> {
    for (folder, name) in dense_layers(directory)? {
        let mut read = || -> Result<()> {
            let settings = json(&folder.join("config.json"))?;
            let input = settings["module_input_name"].as_str().unwrap_or("sentence_embedding");
            ensure!(input == "sentence_embedding", "its input is {input}: only sentence_embedding is supported");
            let files = Files::open(&folder)?;
            let checkpoint = Checkpoint::read(&files)?;
            ensure!(checkpoint.has("linear.weight"), "it has no linear.weight");
            for (stored, leaf) in &checkpoint.tensors {
                let end = match stored.as_str() {
                    "linear.weight" => "weight",
                    "linear.bias" => "bias",
                    other => bail!("it has the tensor {other}, which is not supported"),
                };
                let view = View::new(leaf.clone());
                let mut values = vec![0.0; view.len()];
                view.read(0, &mut values);
                outputs.push(Output::of_values(format!("{prefix}{name}.{end}"), view.dims(), values));
            }
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
    let pooling = modules(directory)?.into_iter().find(|(kind, _)| kind == "Pooling");
    if let Some((_, path)) = pooling
        && read(&format!("{path}/config.json"))?["include_prompt"] == false
    {
        notes.push(
            "sentence-transformers leaves the tokens of a prompt out of the pooling (include_prompt is false), here they \
             are pooled: vectors of texts with a prompt differ"
                .to_owned(),
        );
    }
    let transformer = read("sentence_bert_config.json")?;
    if directory.join("modules.json").is_file() {
        // Version 6 of sentence-transformers stores the maximum length only in the tokenizer's settings.
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

/// Writes the type of pooling, and the sizes and activations of linear layers.
pub fn keys(directory: &Path, keys: &mut Keys<'_>) -> Result<()> {
    for (folder, name) in dense_layers(directory)? {
        let settings = json(&folder.join("config.json"))?;
        let size = |name: &str| settings[name].as_u64().map(|size| size as u32);
        let sizes = size("in_features").zip(size("out_features"));
        let (before, after) =
            sizes.with_context(|| format!("{} has no sizes", folder.join("config.json").display()))?;
        keys.set(&format!("{name}_feat_in"), before);
        keys.set(&format!("{name}_feat_out"), after);
        if let Some(activation) = activation(&settings).with_context(|| folder.display().to_string())? {
            keys.set(&format!("{name}_activation"), activation);
        }
    }
    let modules = modules(directory)?;
    let has = |kind: &str| modules.iter().any(|(other, _)| other == kind);
    if has("Dense") && !has("Pooling") {
        keys.set("pooling_type", 0u32);
    }
    let only_direction = has("Normalize") && !has("Dense");
    for (kind, path) in &modules {
        match kind.as_str() {
            "Pooling" => {
                // A pooling that has no settings computes the mean, as in sentence-transformers.
                let file = directory.join(path).join("config.json");
                let kind = if file.is_file() { pooling(&json(&file)?, only_direction)? } else { 1 };
                keys.set("pooling_type", kind);
            }
            // `LogitScore` belongs to rerankers that read the logits of two tokens. `reranker.rs` converts it.
            "Transformer" | "Dense" | "Normalize" | "Dropout" | "LogitScore" => {}
            other => bail!("modules.json has a module {other}, which is not supported"),
        }
    }
    // `classifier_pooling` only has an effect in a classifier. In other models, values other than mean and cls are
    // therefore ignored.
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

/// Returns the number of the pooling that a config selects: older files select it by flags, newer files by name. If
/// only the direction of the vector matters (`only_direction`), a sum counts as the mean, because both have the same
/// direction.
fn pooling(settings: &Value, only_direction: bool) -> Result<u32> {
    const FLAG: &str = "pooling_mode_";
    let flags = settings.as_object().into_iter().flatten().filter(|(_, is_on)| **is_on == true);
    let mut modes: Vec<&str> = flags.filter_map(|(name, _)| name.strip_prefix(FLAG)).collect();
    // A missing flag for the mean counts as set.
    if settings["pooling_mode"].is_null() && settings["pooling_mode_mean_tokens"].is_null() {
        modes.push("mean_tokens");
    }
    if modes.is_empty() {
        modes = match &settings["pooling_mode"] {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
    }
    Ok(match modes[..] {
        ["mean_tokens" | "mean"] => 1,
        ["mean_sqrt_len_tokens" | "mean_sqrt_len"] if only_direction => 1,
        ["cls_token" | "cls"] => 2,
        ["lasttoken"] => 3,
        ["max_tokens" | "max"] => 101,
        ["mean_sqrt_len_tokens" | "mean_sqrt_len"] => 102,
        ["weightedmean_tokens" | "weightedmean"] => 103,
        [] => bail!("the pooling config selects no pooling"),
        [other] => bail!("the pooling {other} is not supported"),
        _ => bail!("the poolings {} together are not supported: only one of them is", modes.join(" and ")),
    })
}

/// Returns true if the model is a classifier of texts or of tokens.
fn ranks(keys: &Keys<'_>) -> bool {
    let ends = ["ForSequenceClassification", "ForTokenClassification"];
    keys.config.classes().iter().any(|class| ends.iter().any(|end| class.ends_with(end)))
}

/// If the padding token is also the end token, a classifier's text must end without the end token: transformers reads
/// the output at the last token that is not padding. In a decoder, later tokens have no effect on this output. For
/// models that score pairs, nothing is changed and a message is returned, because an end token also separates the two
/// texts of a pair.
pub fn padded_ends(keys: &mut Keys<'_>) -> Option<&'static str> {
    let (end, adds) = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_eos_token");
    let padding = keys.config.get("pad_token_id").and_then(Value::as_u64);
    let is_padding = padding.is_some() && padding == keys.header.u32(end).map(u64::from);
    let is_of_texts = keys.config.classes().iter().any(|class| class.ends_with("ForSequenceClassification"));
    if !is_of_texts || !is_padding || !keys.header.is_true(adds) {
        return None;
    }
    if keys.config.get("id2label").is_some_and(|labels| label_names(labels).len() == 1) {
        return Some("the end token is the padding token, which transformers leaves out: scores of pairs are others");
    }
    keys.header.set(adds, false);
    None
}

/// Writes the names of a classifier's outputs; a reranker's only output has no name.
fn labels(keys: &mut Keys<'_>) {
    if !ranks(keys) {
        return;
    }
    let of_tokens = keys.config.classes().iter().any(|class| class.ends_with("ForTokenClassification"));
    keys.set("pooling_type", if of_tokens { 0u32 } else { 4 });
    let names = keys.config.get("id2label").map(label_names).unwrap_or_default();
    let usual = (0..).zip(&names).all(|(id, name)| *name == default_label(id));
    if !usual || names.len() > 2 {
        keys.set("classifier.output_labels", arenite_gguf_writer::Meta::strings(&names));
    }
    // `problem_type` says whether the outputs are probabilities, and whether they exclude each other.
    if let Some(kind) = keys.config.text("problem_type").filter(|kind| *kind != "single_label_classification") {
        let kind = kind.to_owned();
        keys.header.set("general.problem_type", kind.as_str());
    }
}

/// Returns the names of a classifier's outputs in order. An output without a name gets transformers' default.
fn label_names(labels: &Value) -> Vec<String> {
    /// More outputs than any classifier has.
    const MOST: usize = 1 << 16;
    let text = |name: &Value| name.as_str().map_or_else(|| name.to_string(), str::to_owned);
    let named = labels.as_object().into_iter().flatten();
    let named: Vec<(usize, String)> =
        named.filter_map(|(id, name)| Some((id.trim().parse().ok().filter(|id| *id < MOST)?, text(name)))).collect();
    let count = named.iter().map(|(id, _)| id + 1).max().unwrap_or(0);
    let mut names: Vec<String> = (0..count).map(default_label).collect();
    named.into_iter().for_each(|(id, name)| names[id] = name);
    names
}

fn default_label(id: usize) -> String {
    format!("LABEL_{id}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checkpoint::config::Config;
    use arenite_gguf_writer::Header;

    #[test]
    fn prompts_that_are_not_pooled_are_noted() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, json: Value| std::fs::write(folder.path().join(name), json.to_string()).unwrap();
        std::fs::create_dir(folder.path().join("pool")).unwrap();
        write("modules.json", json!([{ "type": "sentence_transformers.models.Pooling", "path": "pool" }]));
        for (included, count) in [(json!(true), 0), (Value::Null, 0), (json!(false), 1)] {
            write("pool/config.json", json!({ "pooling_mode_mean_tokens": true, "include_prompt": included }));
            let notes = notes(folder.path(), None).unwrap();
            assert_eq!(notes.iter().filter(|note| note.contains("include_prompt")).count(), count, "{notes:?}");
        }
    }

    /// With the end token, transformers 5.24 gives a Qwen 3 classifier the probabilities 0.200, 0.283 and 0.517. If the
    /// padding token is the end token, the probabilities are those of the text without the end token: 0.232, 0.342 and
    /// 0.426.
    #[test]
    fn the_end_token_is_left_out_if_it_is_padding() {
        for (class, pad, labels, adds, is_noted) in [
            ("Qwen3ForSequenceClassification", 2, 3, false, false),
            ("Qwen3ForSequenceClassification", 0, 3, true, false),
            ("Qwen3ForSequenceClassification", 2, 1, true, true),
            ("Qwen3ForTokenClassification", 2, 3, true, false),
        ] {
            let labels: Vec<_> = (0..labels).map(|label| label.to_string()).collect();
            let labels: Value =
                labels.into_iter().map(|label| (label, "x".into())).collect::<serde_json::Map<_, _>>().into();
            let json = json!({ "architectures": [class], "pad_token_id": pad, "id2label": labels });
            let (config, mut header) = (Config::new(&json).unwrap(), Header::new());
            header.set("tokenizer.ggml.eos_token_id", 2u32);
            header.set("tokenizer.ggml.add_eos_token", true);
            let note = padded_ends(&mut Keys { config: &config, header: &mut header, architecture: "qwen3" });
            assert_eq!((header.is_true("tokenizer.ggml.add_eos_token"), note.is_some()), (adds, is_noted), "{json}");
        }
    }

    #[test]
    fn labels_belong_to_the_outputs_whose_numbers_they_have() {
        for (labels, names) in [
            (
                json!({"1": "b", "0": "a", "10": "k"}),
                "a b LABEL_2 LABEL_3 LABEL_4 LABEL_5 LABEL_6 LABEL_7 LABEL_8 LABEL_9 k",
            ),
            (json!({"0": "neg", "1": 1, "2": "pos"}), "neg 1 pos"),
            (json!({"0": 0, "1": 1}), "0 1"),
            (json!({"0": "LABEL_0", "1": "toxic"}), "LABEL_0 toxic"),
            (json!({"1": "a", "2": "b"}), "LABEL_0 a b"),
            (json!({"x": "a", "99999999999": "b"}), ""),
            (json!(["a"]), ""),
        ] {
            assert_eq!(label_names(&labels).join(" "), names, "{labels}");
        }
    }
}
