//! Opens files of LoRA adapters.

use std::io::{Cursor, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use arenite::gguf::{Tensor, Value};
use arenite::quant::{TensorType, decode_row};
use arenite::{Adapter, Gguf, Model, Options};

use crate::model_file::{Load, ModelFile, Source};
use arenite_gguf_writer::Header;

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

/// How adapter files are held in memory. On Linux, they are copied to large pages, because with two threads an adapter
/// in small pages takes 1.6 times as long. The copy is cheap.
const LOAD: Load = if cfg!(target_os = "linux") { Load::Copy } else { Load::Map };

/// Opened files of adapters, each with its scale.
#[derive(Default)]
pub struct AdapterFiles(Vec<(ModelFile, f32)>);

impl AdapterFiles {
    /// Opens the files of a list of `FILE` or `FILE:SCALE`.
    pub fn open(lora: &[String]) -> Result<Self> {
        lora.iter().map(|text| open(text)).collect::<Result<_>>().map(Self)
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
    #[allow(clippy::len_without_is_empty)] // a count, not a collection
    pub fn len(&self) -> usize {
        self.0.iter().map(|(file, _)| file.len()).sum()
    }

    /// Adds memory for the adapters to `options`.
    pub fn planned(&self, options: Options) -> Options {
        let ranks = self.0.iter().filter_map(|(file, _)| file.gguf().ok()).map(|gguf| largest_rank(&gguf));
        options.adapters(self.0.len()).rank(ranks.max().unwrap_or(0))
    }
}

/// Opens the adapter in an argument `FILE` or `FILE:SCALE`. Quantized matrices are decoded, because the core runs only
/// adapters with floats.
pub fn open(text: &str) -> Result<(ModelFile, f32)> {
    let (path, scale) = scaled(text)?;
    let file = ModelFile::open(Source { load: LOAD, ..Source::from(path) })?;
    let read = |gguf: &Gguf<'_>| must_be_adapter(gguf).and_then(|()| decoded(gguf));
    let made = file.parse().and_then(|gguf| read(&gguf)).with_context(|| file.name().to_owned())?;
    Ok((made.map_or_else(|| file, |bytes| ModelFile::made(path, bytes)), scale))
}

/// Returns a file with F32 matrices, if some are quantized.
fn decoded(gguf: &Gguf<'_>) -> Result<Option<Vec<u8>>> {
    if gguf.tensors().all(|tensor| matches!(tensor.kind, TensorType::F32 | TensorType::F16 | TensorType::BF16)) {
        return Ok(None);
    }
    let mut header = Header::new();
    gguf.keys().for_each(|(key, value)| header.set(key, value));
    header.align(32)?;
    for tensor in gguf.tensors() {
        header.tensor(tensor.name, &tensor.dims[..tensor.dim_count as usize], TensorType::F32)?;
    }
    let mut bytes = Cursor::new(Vec::new());
    let mut data = header.write(&mut bytes)?;
    for tensor in gguf.tensors() {
        values(&tensor)?.iter().try_for_each(|value| data.write_all(&value.to_le_bytes()))?;
    }
    data.finish()?;
    Ok(Some(bytes.into_inner()))
}

/// Decodes all values of an adapter's matrix.
pub fn values(tensor: &Tensor<'_>) -> Result<Vec<f32>> {
    let columns = tensor.dims[0] as usize;
    let row_bytes = tensor.kind.row_bytes(columns).context("rows that are not whole blocks")?;
    let mut values = vec![0.0; tensor.dims.iter().product::<u64>() as usize];
    for (bytes, row) in tensor.data.chunks_exact(row_bytes).zip(values.chunks_exact_mut(columns)) {
        ensure!(decode_row(tensor.kind, bytes, row), "this build does not read {:?}", tensor.kind);
    }
    Ok(values)
}

/// Refuses a file that is not an adapter.
fn must_be_adapter(gguf: &Gguf<'_>) -> Result<()> {
    let is_lora = matches!(gguf.get("adapter.type"), Some(Value::Str(b"lora")));
    ensure!(
        is_lora,
        "this is no LoRA adapter: give one that `arenite convert lora DIR OUT.gguf` made, and a model with -m"
    );
    Ok(())
}

/// Returns the largest rank in an adapter's file; 0 if the file has no adapter. The file may not have been checked yet.
fn largest_rank(gguf: &Gguf<'_>) -> usize {
    let halves = gguf.tensors().filter(|tensor| tensor.name.ends_with(".lora_b"));
    halves.map(|tensor| tensor.dims[0] as usize).max().unwrap_or(0)
}
