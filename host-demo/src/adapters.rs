//! LoRA adapters given on the command line.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use arenite::gguf::Value;
use arenite::{Adapter, Engine, Gguf, Model, Options, Session};

use crate::model_file::ModelFile;

/// Splits `PATH:SCALE`. The scale is 1 if there is none.
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

/// Sizes of the adapters of a command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    count: usize,
    /// Largest rank.
    rank: usize,
    /// Bytes of all files.
    pub bytes: usize,
}

impl Sizes {
    pub fn of(lora: &[String]) -> Result<Self> {
        let mut sizes = Self { count: lora.len(), ..Self::default() };
        for text in lora {
            let file = ModelFile::open(Some(scaled(text)?.0))?;
            let gguf = file.parse()?;
            must_be_adapter(&gguf).with_context(|| file.name().to_owned())?;
            sizes.rank = sizes.rank.max(largest_rank(&gguf));
            sizes.bytes += file.len();
        }
        Ok(sizes)
    }

    /// Returns the options with memory for the adapters.
    pub fn planned(self, options: Options) -> Options {
        options.adapters(self.count).rank(self.rank)
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

/// Largest rank of an adapter that was not checked yet.
fn largest_rank(gguf: &Gguf<'_>) -> usize {
    let halves = gguf.tensors().filter(|tensor| tensor.name.ends_with(".lora_b"));
    halves.map(|tensor| tensor.dims[0] as usize).max().unwrap_or(0)
}

/// Adapters that are loaded until the process ends, and their scales.
#[derive(Clone, Copy, Default)]
pub struct Adapters {
    list: &'static [Adapter<'static>],
    /// Index and scale of each adapter.
    scales: &'static [(usize, f32)],
}

impl Adapters {
    /// Loads the adapters of the command line.
    pub fn load(lora: &[String], model: &Model<'_>) -> Result<Self> {
        let (mut list, mut scales) = (Vec::new(), Vec::new());
        for (number, text) in lora.iter().enumerate() {
            let (path, scale) = scaled(text)?;
            // Adapters are few and small, and in use until the process ends.
            let file: &'static ModelFile = Box::leak(Box::new(ModelFile::open(Some(path))?));
            let adapter = file.parse().and_then(|gguf| Ok(Adapter::new(&gguf, model)?));
            list.push(adapter.with_context(|| file.name().to_owned())?);
            scales.push((number, scale));
        }
        Ok(Self { list: list.leak(), scales: scales.leak() })
    }

    /// Lets an engine use the adapters. Its contexts do not use them yet.
    pub fn attach<'m, 'w>(&self, engine: Engine<'m, 'w>) -> Result<Engine<'m, 'w>> {
        Ok(if self.list.is_empty() { engine } else { engine.with_adapters(self.list)? })
    }

    /// Uses the adapters in a session.
    pub fn apply<'m, 'w>(&self, session: Session<'m, 'w>) -> Result<Session<'m, 'w>> {
        if self.list.is_empty() {
            return Ok(session);
        }
        let mut session = session.with_adapters(self.list)?;
        session.adapt(self.scales)?;
        Ok(session)
    }

    /// Index of each adapter, and its scale on the command line.
    pub fn scales(&self) -> &'static [(usize, f32)] {
        self.scales
    }
}
