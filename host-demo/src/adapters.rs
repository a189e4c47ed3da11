//! Opens files of LoRA adapters.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use arenite::gguf::Value;
use arenite::{Adapter, Gguf, Model, Options};

use crate::model_file::{Load, ModelFile, Source};

/// Splits `FILE:SCALE` into path and scale. The scale defaults to 1.
pub fn scaled(text: &str) -> Result<(&Path, f32)> {
    match text.rsplit_once(':') {
        Some((path, scale)) if !Path::new(text).exists() => {
            let scale: f32 = scale.parse().with_context(|| format!("{scale:?} in {text} is not a scale"))?;
            ensure!(scale.is_finite(), "the scale in {text} is not finite");
            Ok((Path::new(path), scale))
        }
        _ => Ok((Path::new(text), 1.0)),
    }
}

/// How adapter files are held in memory: on Linux, copied to large pages. The copy is cheap, and with two threads an
/// adapter in small pages is 1.6 times as slow.
const LOAD: Load = if cfg!(target_os = "linux") { Load::Copy } else { Load::Map };

/// Opened files of adapters, each with its scale.
#[derive(Default)]
pub struct AdapterFiles(Vec<(ModelFile, f32)>);

impl AdapterFiles {
    /// Opens the files of a list of `FILE` or `FILE:SCALE`.
    pub fn open(lora: &[String]) -> Result<Self> {
        let open = |text: &String| {
            let (path, scale) = scaled(text)?;
            let file = ModelFile::open(Source { model: Some(path), load: LOAD, ..Source::default() })?;
            file.parse().and_then(|gguf| must_be_adapter(&gguf)).with_context(|| file.name().to_owned())?;
            Ok((file, scale))
        };
        lora.iter().map(open).collect::<Result<_>>().map(Self)
    }

    /// Creates the adapters, and checks that they fit `model`.
    pub fn adapters(&self, model: &Model<'_>) -> Result<Vec<Adapter<'_>>> {
        let files = self.0.iter().map(|(file, _)| file);
        files.map(|file| Adapter::new(&file.gguf()?, model).with_context(|| file.name().to_owned())).collect()
    }

    /// Index and scale of each adapter.
    pub fn scales(&self) -> Vec<(usize, f32)> {
        self.0.iter().enumerate().map(|(index, (_, scale))| (index, *scale)).collect()
    }

    /// Total size of all files in bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(file, _)| file.len()).sum()
    }

    /// Adds memory for the adapters to `options`.
    pub fn planned(&self, options: Options) -> Options {
        let ranks = self.0.iter().filter_map(|(file, _)| file.gguf().ok()).map(|gguf| largest_rank(&gguf));
        options.adapters(self.0.len()).rank(ranks.max().unwrap_or(0))
    }
}

/// Refuses a file that is not an adapter.
pub fn must_be_adapter(gguf: &Gguf<'_>) -> Result<()> {
    let is_lora = matches!(gguf.get("adapter.type"), Some(Value::Str(b"lora")));
    ensure!(
        is_lora,
        "this is no LoRA adapter: give one that `arenite convert lora DIR OUT.gguf` made, and a model with -m"
    );
    Ok(())
}

/// Returns the largest rank in an adapter's file, which need not have been checked; 0 if the file has none.
fn largest_rank(gguf: &Gguf<'_>) -> usize {
    let halves = gguf.tensors().filter(|tensor| tensor.name.ends_with(".lora_b"));
    halves.map(|tensor| tensor.dims[0] as usize).max().unwrap_or(0)
}
