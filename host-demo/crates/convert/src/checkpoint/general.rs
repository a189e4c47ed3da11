//! `general.*`: the name, size and origin of a model, and its recommended sampling.
//!
//! The values come from the model card (`README.md`), from the name in the config or of the directory, and from
//! `generation_config.json`, by the rules of llama.cpp's converter.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::config::{self, Config};
use super::output::Output;
use crate::model_name::Components;
use arenite_gguf_writer::Header;

/// Keys of the new file, and for each of them the fields of the model card from which it is read.
const CARD: [(&str, &[&str]); 11] = [
    ("name", &["name", "model_name"]),
    ("author", &["author", "model_author", "model_creator"]),
    ("version", &["version", "model_version"]),
    ("organization", &["organization", "model_organization"]),
    ("description", &["description", "model_description"]),
    ("finetune", &["finetune", "model_finetune"]),
    ("basename", &["basename", "model_basename", "model_type"]),
    ("size_label", &["size_label", "model_size_label"]),
    ("license", &["license"]),
    ("license.name", &["license_name"]),
    ("license.link", &["license_link"]),
];

/// Keys under `general.sampling`, and the fields of `generation_config.json` from which the keys are read.
const SAMPLING: [(&str, &[&str]); 11] = [
    ("top_k", &["top_k"]),
    ("top_p", &["top_p"]),
    ("min_p", &["min_p"]),
    ("xtc_probability", &["xtc_probability"]),
    ("xtc_threshold", &["xtc_threshold"]),
    ("temp", &["temperature"]),
    ("penalty_last_n", &["penalty_last_n"]),
    ("penalty_repeat", &["penalty_repeat", "repetition_penalty"]),
    ("mirostat", &["mirostat"]),
    ("mirostat_tau", &["mirostat_tau"]),
    ("mirostat_eta", &["mirostat_eta"]),
];

/// Sampling keys that are integers.
const INTEGERS: [&str; 3] = ["top_k", "penalty_last_n", "mirostat"];

/// Writes the keys of the model at `path`. `directory` contains the model's config, model card and recommended
/// sampling.
pub fn write(
    header: &mut Header,
    path: &Path,
    directory: Option<&Path>,
    config: &Config,
    outputs: &[Output<'_>],
) -> Result<()> {
    let mut values = directory.map(card).unwrap_or_default();
    let stated = config.text("_name_or_path").filter(|name| name.matches('/').count() <= 1 && !name.is_empty());
    let here = |path| if path == Path::new("") { Path::new(".") } else { path };
    let path = directory.map_or(path, here);
    let own = path.canonicalize().ok();
    let own = own.as_deref().unwrap_or(path);
    let own = if own.is_dir() { own.file_name() } else { own.file_stem() };
    let weights = outputs.iter().map(|output| output.len() as u64).sum();
    for id in stated.into_iter().chain(own.and_then(|name| name.to_str())) {
        for (key, value) in Components::of(id, weights).keys() {
            values.entry(key).or_insert(value);
        }
    }
    values.entry("size_label").or_insert_with(|| size_label(outputs));
    for (key, value) in values {
        header.set(&format!("general.{key}"), value.as_str());
    }
    directory.map_or(Ok(()), |directory| sampling(header, directory))
}

/// Reads the fields of a model card that are plain text.
fn card(directory: &Path) -> BTreeMap<&'static str, String> {
    let text = fs::read_to_string(directory.join("README.md")).unwrap_or_default();
    let mut lines = text.lines();
    if lines.next() != Some("---") {
        return BTreeMap::new();
    }
    let fields: BTreeMap<&str, &str> = lines.take_while(|line| *line != "---").filter_map(field).collect();
    CARD.iter()
        .filter_map(|(key, names)| Some((*key, (*names.iter().find_map(|name| fields.get(name))?).to_owned())))
        .collect()
}

/// Reads `name: value`, unless the value is a list, an object, or text of several lines.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(": ")?;
    let value = value.split_once(" #").map_or(value, |(value, _)| value).trim();
    let plain = value.starts_with(|c: char| c.is_alphanumeric()) && !value.contains(": ");
    let quoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    let value = if plain { Some(value) } else { quoted.filter(|value| !value.contains(['\\', '\''])) };
    value.filter(|value| !matches!(*value, "null" | "")).map(|value| (name, value))
}

/// Writes the recommended sampling.
fn sampling(header: &mut Header, directory: &Path) -> Result<()> {
    let path = directory.join("generation_config.json");
    if !path.is_file() {
        return Ok(());
    }
    let settings = config::json(&path)?;
    for (key, names) in SAMPLING {
        let Some(value) = names.iter().find_map(|name| settings.get(name)?.as_f64()) else { continue };
        let key_of = format!("general.sampling.{key}");
        if INTEGERS.contains(&key) {
            header.set(&key_of, value as i32);
        } else {
            header.set(&key_of, value as f32);
        }
    }
    Ok(())
}

/// Returns the number of weights, abbreviated. For a model with experts, returns the number of experts and the
/// abbreviated size of one expert plus all shared weights.
fn size_label(outputs: &[Output<'_>]) -> String {
    let (mut shared, mut of_expert, mut counts, mut stacks) = (0u64, 0u64, 0u64, 0u64);
    for output in outputs {
        let size = output.len() as u64;
        let stack = if output.name.contains(".bias") {
            output.shape.len().checked_sub(2)
        } else {
            output.shape.len().checked_sub(3)
        };
        match stack.and_then(|dim| output.shape.get(dim)) {
            Some(&experts) if output.name.contains("_exps.") && output.shape.len() >= 3 => {
                of_expert += size / (experts as u64).max(1);
                counts += experts as u64;
                stacks += 1;
            }
            _ => shared += size,
        }
    }
    match counts.checked_div(stacks) {
        Some(experts) if experts > 0 => format!("{experts}x{}", rounded(shared + of_expert)),
        _ => rounded(shared + of_expert),
    }
}

fn rounded(count: u64) -> String {
    let (scaled, unit) = match count as f64 {
        n if n > 1e12 => (n * 1e-12, "T"),
        n if n > 1e9 => (n * 1e-9, "B"),
        n if n > 1e6 => (n * 1e-6, "M"),
        n => (n * 1e-3, "K"),
    };
    let whole = scaled.round_ties_even().to_string();
    let digits = 2usize.saturating_sub(whole.trim_start_matches('0').len());
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_cards() {
        assert_eq!(field("license: apache-2.0"), Some(("license", "apache-2.0")));
        assert_eq!(field("model_name: \"A name\"  # theirs"), Some(("model_name", "A name")));
        for line in ["tags:", "- text: a", "language: [en]", "description: >", "name: null", "text"] {
            assert!(field(line).is_none_or(|(name, _)| name.starts_with('-')), "{line}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(rounded(1_234_567_890), "1.2B");
        assert_eq!(rounded(152_000), "152K");
        assert_eq!(rounded(22_700_000), "23M");
    }
}
