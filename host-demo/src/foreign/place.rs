//! Recognizes paths that are not files: directories, and names of models elsewhere.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

#[cfg(feature = "hub")]
use arenite_hub::is_repository;

use super::{FETCH, extension, file_name, nearest, quoted};

/// Extensions that mark a name as a file name.
const FILES: &[&str] =
    &["gguf", "bin", "pt", "pth", "safetensors", "json", "txt", "zip", "gz", "ckpt", "model", "part"];

/// Describes a path that is not a file (a directory, or nothing), and gives advice; `None` if the path is a file.
pub fn path(path: &Path) -> Option<String> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Some(folder(path)),
        Ok(_) => None,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(missing(path)),
        Err(_) => None,
    }
}

/// Returns false: a build without the feature `hub` does not recommend the option `-hf`, because it does not have this
/// option.
#[cfg(not(feature = "hub"))]
fn is_repository(_: &str) -> bool {
    false
}

/// Guesses the meaning of a name that is not a file, such as an address or a repository.
fn missing(path: &Path) -> String {
    const NONE: &str = "there is no such file";
    let text = path.display().to_string();
    if text.starts_with("http://") || text.starts_with("https://") {
        return format!(
            "this is an address, and not a file: fetch it with `arenite pull {}` and give the path that it prints",
            quoted(path)
        );
    }
    let is_file_name = FILES.contains(&extension(path).as_str());
    let folder = path.parent().unwrap_or(Path::new(""));
    let has_folder = !folder.as_os_str().is_empty() && folder.is_dir();
    let hub = ["hf.co/", "huggingface.co/"].iter().find_map(|host| text.strip_prefix(host));
    if let Some(name) = hub.or(Some(text.as_str())).filter(|name| is_repository(name))
        && (hub.is_some() || !is_file_name && !has_folder)
    {
        return format!("{NONE}: if this is a model of the Hugging Face hub, give it with -hf {name}");
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    if !is_file_name && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_name) {
        return format!("{NONE}: if this is a name of Ollama's, {}", ollama(&text));
    }
    let names = fs::read_dir(if has_folder { folder } else { Path::new(".") }).into_iter().flatten().flatten();
    let names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let models = names.iter().map(String::as_str).filter(|name| name.ends_with(".gguf"));
    match nearest(file_name(path), models) {
        Some(near) => format!("{NONE}; check the path: there is {}", quoted(&path.with_file_name(near))),
        None => format!("{NONE}; check the path, or {FETCH}"),
    }
}

/// Explains how to run a model of Ollama. Gives the path of the model's file if the file is on this machine.
pub fn ollama(name: &str) -> String {
    let (model, tag) = name.split_once(':').unwrap_or((name, "latest"));
    let model = if model.contains('/') { model.to_owned() } else { format!("library/{model}") };
    let found = folders().find_map(|folder| {
        let manifest = folder.join("manifests/registry.ollama.ai").join(&model).join(tag);
        let manifest: Value = serde_json::from_slice(&fs::read(&manifest).ok()?).ok()?;
        blob_in(&manifest, &folder)
    });
    match found {
        Some(blob) => format!("its file is here: give -m {}", quoted(&blob)),
        None => format!(
            "`ollama show {name} --modelfile` prints the path of its file for -m; or fetch the model from the Hugging Face \
             hub with -hf USER/REPO"
        ),
    }
}

/// The folders in which Ollama keeps its models.
fn folders() -> impl Iterator<Item = PathBuf> {
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".ollama/models"));
    let own = env::var_os("OLLAMA_MODELS").map(PathBuf::from);
    own.into_iter().chain(home).chain([PathBuf::from("/usr/share/ollama/.ollama/models")])
}

/// Returns the model file that Ollama's manifest at `path` names, if the file exists.
pub fn blob(manifest: &Value, path: &Path) -> Option<PathBuf> {
    // A manifest's path is MODELS/manifests/HOST/USER/MODEL/TAG.
    let own = path.canonicalize().ok().and_then(|path| path.ancestors().nth(5).map(Path::to_owned));
    own.into_iter().chain(folders()).find_map(|folder| blob_in(manifest, &folder))
}

fn blob_in(manifest: &Value, folder: &Path) -> Option<PathBuf> {
    let layers = manifest["layers"].as_array()?;
    let is_model = |layer: &&Value| layer["mediaType"].as_str().is_some_and(|kind| kind.ends_with("image.model"));
    let digest = layers.iter().find(is_model)?["digest"].as_str()?;
    Some(folder.join("blobs").join(digest.replace(':', "-"))).filter(|blob| blob.is_file())
}

/// Describes the contents of a directory, and gives advice.
fn folder(path: &Path) -> String {
    let directory = quoted(path);
    let mut names: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let has = |name: &str| names.iter().any(|found| found == name);
    let models: Vec<&String> =
        names.iter().filter(|name| name.ends_with(".gguf") && !name.contains("mmproj")).collect();
    if let Some(first) = models.first() {
        let more =
            if models.len() > 1 { format!(" (or another of its {} models)", models.len()) } else { String::new() };
        return format!("this is a directory: give a file in it, -m {}{more}", quoted(&path.join(first)));
    }
    if has("adapter_config.json") {
        return format!("this is a LoRA adapter of PEFT: convert it with `arenite convert lora {directory} OUT.gguf`");
    }
    if has("config.json") {
        let config = fs::read(path.join("config.json")).unwrap_or_default();
        let config: Value = serde_json::from_slice(&config).unwrap_or_default();
        let command = if config["model_type"] == "marian" { "seq2seq" } else { "hf" };
        return format!(
            "this is a checkpoint of Hugging Face: convert it with `arenite convert {command} {directory} OUT.gguf`"
        );
    }
    if has("snapshots") && has("refs") {
        let name = file_name(path).strip_prefix("models--").unwrap_or_default().replacen("--", "/", 1);
        return format!("this is a repository in the cache of the Hugging Face hub: give it with -hf {name}");
    }
    if has("blobs") && has("manifests") {
        return "this is Ollama's directory of models: `ollama show NAME --modelfile` prints the path of a model for -m"
            .into();
    }
    if has("params.json") && names.iter().any(|name| name.starts_with("consolidated.")) {
        return format!(
            "this is a checkpoint of Meta or Mistral: convert it with `arenite convert hf {directory} OUT.gguf`"
        );
    }
    if names.iter().any(|name| name.ends_with(".safetensors") || name.starts_with("pytorch_model")) {
        return format!(
            "this directory has weights but no config.json: put the checkpoint's config.json and tokenizer beside them, then \
             use `arenite convert hf {directory} OUT.gguf`"
        );
    }
    format!("this is a directory without a model; {FETCH}")
}
