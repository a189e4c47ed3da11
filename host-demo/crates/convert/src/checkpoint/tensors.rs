//! The tensors of a checkpoint, as views of mapped files: safetensors (one file or several), torch's zip files, and
//! whisper.cpp's files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::leaf::{Coding, Leaf};
use super::view::View;
use super::{torch, whisper_cpp};

/// More shards than any checkpoint has.
const MOST_SHARDS: usize = 1 << 14;

/// The mapped files of a checkpoint.
pub struct Files(Vec<(PathBuf, Mmap)>);

impl Files {
    /// Opens the weights in a directory, the weights that an index names, or a single file.
    pub fn open(path: &Path) -> Result<Self> {
        let is_index = path.to_str().is_some_and(|path| path.ends_with(".index.json"));
        let files = match path {
            directory if directory.is_dir() => weights(directory)?,
            index if is_index => indexed(index)?,
            file => vec![file.to_owned()],
        };
        let map = |path: PathBuf| -> Result<(PathBuf, Mmap)> {
            let map = arenite_files::map(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok((path, map))
        };
        Ok(Self(files.into_iter().map(map).collect::<Result<_>>()?))
    }

    /// Drops the pages of `part` from memory. The next access reads them again.
    pub fn release(&self, part: &[u8]) {
        self.0.iter().for_each(|(_, map)| arenite_files::release(map, part));
    }
}

/// Returns the files with weights in a directory, in transformers' order: a single file, the files that an index names,
/// or shards without an index.
fn weights(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut missing = None;
    for (stem, kind) in [("model", "safetensors"), ("pytorch_model", "bin")] {
        let single = directory.join(format!("{stem}.{kind}"));
        if single.is_file() {
            return Ok(vec![single]);
        }
        let index = directory.join(format!("{stem}.{kind}.index.json"));
        let named = if index.is_file() { Some(indexed(&index)?) } else { None };
        let shards = shards(directory, stem, kind)?;
        let lost = shards.iter().find(|path| !path.is_file()).cloned();
        // Complete shards take precedence over an index that names missing files, because the index may belong to older
        // shards that were replaced.
        match named {
            Some(named) if shards.is_empty() || lost.is_some() || named.iter().all(|path| path.is_file()) => {
                return Ok(named);
            }
            _ if !shards.is_empty() && lost.is_none() => return Ok(shards),
            _ => {}
        }
        missing = missing.or(lost);
    }
    if let Some(path) = missing {
        bail!("{} is missing: fetch it", path.display());
    }
    let mut found: Vec<PathBuf> = fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let kind = path.extension().and_then(|kind| kind.to_str());
            kind.is_some_and(|kind| ["safetensors", "pt", "pth", "ckpt", "bin"].contains(&kind))
                && !path.ends_with("tokenizer.bin")
                && !is_of_trainer(path)
        })
        .collect();
    found.sort();
    let named = |name: &str| directory.join(name).is_file();
    let is_adapter =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("adapter"));
    if named("adapter_config.json") && !found.is_empty() && found.iter().all(is_adapter) {
        let shown = directory.display();
        bail!("{shown} is an adapter without its model: convert it with `arenite convert lora {shown} OUT.gguf`");
    }
    let is_usual = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "safetensors" || kind == "pt");
    if found.iter().any(is_usual) {
        found.retain(is_usual);
    }
    match found.len() {
        0 => bail!("{} has no model.safetensors and no pytorch_model.bin{}", directory.display(), others(directory)),
        1 => Ok(found),
        _ => bail!(
            "{} has several files of weights and no index such as model.safetensors.index.json: give one of them",
            directory.display()
        ),
    }
}

/// Returns true for files that trainers store beside the weights, such as training_args.bin.
fn is_of_trainer(path: &Path) -> bool {
    const STARTS: [&str; 5] = ["optimizer", "rng_state", "scaler", "scheduler", "training_args"];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    STARTS.iter().any(|start| name.starts_with(start))
}

/// Returns the subfolder that has the weights: the newest checkpoint of a training run, or a snapshot in the hub's
/// cache.
fn inner(directory: &Path, names: &[PathBuf]) -> Option<PathBuf> {
    let step = |path: &&PathBuf| path.file_name()?.to_str()?.strip_prefix("checkpoint-")?.parse::<u64>().ok();
    let snapshot = || {
        let commit = fs::read_to_string(directory.join("refs/main")).ok()?;
        Some(directory.join("snapshots").join(commit.trim()))
    };
    let newest = names.iter().filter(|path| path.is_dir() && step(path).is_some()).max_by_key(step);
    newest.cloned().or_else(snapshot).filter(|path| path.is_dir())
}

/// Describes the files of a folder that has no weights in a known format. The text is the end of an error message.
fn others(directory: &Path) -> String {
    let names: Vec<PathBuf> = fs::read_dir(directory)
        .map(|files| files.filter_map(|file| Some(file.ok()?.path())).collect())
        .unwrap_or_default();
    if let Some(inner) = inner(directory, &names) {
        return format!(": give the folder {}", inner.display());
    }
    let is_step =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("global_step"));
    let has = |kinds: &[&str]| {
        let kind =
            |path: &PathBuf| path.extension().and_then(|kind| kind.to_str()).is_some_and(|kind| kinds.contains(&kind));
        names.iter().any(kind)
    };
    match () {
        () if directory.join("model_index.json").is_file() => {
            ", but a pipeline that draws pictures, which is not supported"
        }
        () if directory.join("zero_to_fp32.py").is_file() || names.iter().any(is_step) => {
            ", but DeepSpeed's parts of a checkpoint: join them with its zero_to_fp32.py"
        }
        () if has(&["gguf"]) => ", but a GGUF file, which needs no conversion",
        () if has(&["h5", "msgpack", "onnx", "xml", "nemo", "tflite"]) => {
            ", but weights of another library: save the model with PyTorch (save_pretrained)"
        }
        () => "",
    }
    .to_owned()
}

/// Returns the paths `STEM-00001-of-00002.KIND` and so on, if one of these files exists. If the folder has several sets
/// of shards, a complete set takes precedence.
fn shards(directory: &Path, stem: &str, kind: &str) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let count = |name: &str| -> Option<usize> {
        let name = name.strip_prefix(stem)?.strip_prefix('-')?.strip_suffix(kind)?.strip_suffix('.')?;
        name.split_once("-of-")?.1.parse().ok().filter(|all| (1..=MOST_SHARDS).contains(all))
    };
    let names: Vec<String> = read.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let counts: BTreeSet<usize> = names.iter().filter_map(|name| count(name)).collect();
    let paths = |all| (1..=all).map(move |shard| directory.join(format!("{stem}-{shard:05}-of-{all:05}.{kind}")));
    let is_whole = |all: &usize| paths(*all).all(|path| path.is_file());
    let whole: Vec<usize> = counts.iter().copied().filter(is_whole).collect();
    if let [first, second, ..] = whole[..] {
        bail!(
            "{} has two sets of weights, {stem}-*-of-{first:05}.{kind} and {stem}-*-of-{second:05}.{kind}, and no index \
             that names one of them: remove the other",
            directory.display()
        );
    }
    let all = whole.first().or(counts.first());
    Ok(all.map_or_else(Vec::new, |all| paths(*all).collect()))
}

/// Returns the files that an index names.
fn indexed(index: &Path) -> Result<Vec<PathBuf>> {
    let text = arenite_files::read(index)?;
    let json: Value = serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", index.display()))?;
    let map = json["weight_map"].as_object();
    let map = map.with_context(|| format!("{} has no weight_map", index.display()))?;
    let mut names: Vec<&str> = map.values().filter_map(Value::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let is_inside =
        |name: &&str| !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if let Some(name) = names.iter().find(|name| !is_inside(name)) {
        bail!("{} names {name:?}, which is not inside this folder", index.display());
    }
    Ok(names.into_iter().map(|name| index.with_file_name(name)).collect())
}

/// Removes the prefixes that training adds to the names of tensors. They come from `torch.compile`, distributed
/// training, Lightning, activation checkpointing and PEFT.
fn own_name(name: &str) -> String {
    const PREFIXES: [&str; 2] = ["module.", "base_model.model."];
    const WRAPPERS: [&str; 4] = ["_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];
    let parts: Vec<&str> = name.split('.').filter(|part| !WRAPPERS.contains(part)).collect();
    let name = parts.join(".");
    let mut rest = name.as_str();
    while let Some(shorter) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
        rest = shorter;
    }
    rest.to_owned()
}

/// The tensors of a checkpoint by name.
#[derive(Default)]
pub struct Checkpoint<'f> {
    /// Sorted by name.
    pub tensors: BTreeMap<String, Arc<Leaf<'f>>>,
    /// The model's settings, if the file stores them with the tensors, as nanoGPT, llama2.c and OpenAI do.
    pub settings: Option<Value>,
    /// The bytes of each token, if they are stored with the tensors.
    pub tokens: Vec<&'f [u8]>,
}

impl<'f> Checkpoint<'f> {
    pub fn read(files: &'f Files) -> Result<Self> {
        let mut checkpoint = Self::default();
        for (path, map) in &files.0 {
            checkpoint.add(map).with_context(|| path.display().to_string())?;
        }
        ensure!(!checkpoint.tensors.is_empty(), "the checkpoint has no tensors");
        Ok(checkpoint)
    }

    fn add(&mut self, bytes: &'f [u8]) -> Result<()> {
        if torch::is_torch(bytes) {
            let file = torch::read(bytes)?;
            self.settings = file.settings.or_else(|| self.settings.take());
            for leaf in file.tensors {
                self.insert(leaf)?;
            }
            return Ok(());
        }
        if whisper_cpp::is_model(bytes) {
            let file = whisper_cpp::read(bytes)?;
            (self.settings, self.tokens) = (Some(file.dims), file.tokens);
            return file.tensors.into_iter().try_for_each(|leaf| self.insert(leaf));
        }
        if let Some(why) = arenite_files::stand_in(bytes) {
            bail!(why);
        }
        let file =
            SafeTensors::deserialize(bytes).context("this is not a safetensors or torch file, or it is damaged")?;
        for (name, view) in file.iter() {
            let coding = match view.dtype() {
                Dtype::F64 => Coding::F64,
                Dtype::F32 => Coding::F32,
                Dtype::F16 => Coding::F16,
                Dtype::BF16 => Coding::BF16,
                Dtype::F8_E4M3 => Coding::F8E4M3,
                Dtype::F8_E5M2 => Coding::F8E5M2,
                Dtype::F8_E8M0 => Coding::F8E8M0,
                Dtype::I64 => Coding::I64,
                Dtype::I32 | Dtype::U32 => Coding::I32,
                Dtype::I16 => Coding::I16,
                Dtype::U8 | Dtype::BOOL => Coding::U8,
                Dtype::I8 => Coding::I8,
                other => bail!("the tensor {name} has type {other:?}, which is not supported"),
            };
            // The slice of the values is taken from `bytes`, which contains them and which lives longer than `file`.
            // The view itself only borrows from `file`.
            let start = view.data().as_ptr().addr() - bytes.as_ptr().addr();
            let data = bytes.get(start..start + view.data().len()).unwrap_or_default();
            self.insert(Leaf::new(name, data, coding, view.shape()))?;
        }
        Ok(())
    }

    /// Inserts a tensor into the checkpoint. Its name is changed to the name that the model uses, without the prefixes
    /// that training adds.
    fn insert(&mut self, mut leaf: Leaf<'f>) -> Result<()> {
        let name = own_name(&leaf.name);
        leaf.name.clone_from(&name);
        ensure!(self.tensors.insert(name.clone(), Arc::new(leaf)).is_none(), "there are two tensors {name}");
        Ok(())
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub fn view(&self, name: &str) -> Option<View<'f>> {
        self.tensors.get(name).map(|leaf| View::new(leaf.clone()))
    }
}
