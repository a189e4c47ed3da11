//! Importance matrices: the mean square of the input of each column of a matrix.
//!
//! Reads both of llama.cpp's formats, GGUF and the older `.dat`, and writes GGUF.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use arenite::gguf::{Gguf, Tensor, Value};
use arenite::quant::{TensorType, decode_row};

use arenite_files::{map, write_file};
use arenite_gguf_writer::{Header, Meta};

const CHUNK_COUNT: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
const DATASETS: &str = "imatrix.datasets";
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// An importance matrix.
pub struct Importance {
    /// Importance of each column, by the name of the tensor. A tensor of experts has separate columns for each expert.
    pub columns: BTreeMap<String, Vec<f32>>,
    /// Name of the first text that the matrix was computed from.
    pub dataset: Option<Vec<u8>>,
    pub chunks: u32,
}

impl Importance {
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = map(path).with_context(|| format!("cannot read the importance matrix {}", path.display()))?;
        let read = match bytes.starts_with(b"GGUF") {
            true => Self::from_gguf(&Gguf::parse(&bytes).with_context(|| path.display().to_string())?),
            false => Self::from_legacy(&bytes),
        };
        let mut read = read
            .with_context(|| format!("{} is not an importance matrix (`arenite imatrix` makes one)", path.display()))?;
        for (name, columns) in &mut read.columns {
            ensure!(
                columns.iter().all(|x| x.is_finite() && *x >= 0.0),
                "{}: {name} has a value that is not finite or is negative",
                path.display()
            );
            usable(columns);
        }
        Ok(read)
    }

    fn from_gguf(gguf: &Gguf<'_>) -> Result<Self> {
        let Some(Value::Array(datasets)) = gguf.get(DATASETS) else { bail!("it has no {DATASETS}") };
        let chunks = gguf.u32("imatrix", "chunk_count")?.with_context(|| format!("it has no {CHUNK_COUNT}"))?;
        let mut columns = BTreeMap::new();
        for sums in gguf.tensors() {
            let Some(name) = sums.name.strip_suffix(SUMS) else { continue };
            let counts = gguf.tensor(&format!("{name}{COUNTS}")).with_context(|| format!("{name} has no counts"))?;
            let (mut values, counts) = (numbers(&sums)?, numbers(&counts)?);
            let row = values.len() / counts.len().max(1);
            ensure!(row * counts.len() == values.len(), "the counts of {name} do not fit its sums");
            for (values, &count) in values.chunks_mut(row.max(1)).zip(&counts) {
                // If the file has no data for an expert, because no token chose the expert, all of its columns get the
                // same importance.
                values.iter_mut().for_each(|x| *x = if count > 0.0 { *x / count } else { 1.0 });
            }
            columns.insert(name.to_owned(), values);
        }
        ensure!(!columns.is_empty(), "it has no sums");
        Ok(Self { columns, dataset: datasets.strings().next().map(<[u8]>::to_vec), chunks })
    }

    /// Reads the older `.dat` format: a number of entries; then, for each entry, the name, the number of calls, and the
    /// sums over these calls.
    fn from_legacy(mut bytes: &[u8]) -> Result<Self> {
        const SHORT: &str = "it is too short";
        let mut next = |n: usize| -> Result<&[u8]> {
            let (part, rest) = bytes.split_at_checked(n).context(SHORT)?;
            bytes = rest;
            Ok(part)
        };
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word)) as usize;
        let entries = word(next(4)?);
        ensure!((1..1 << 20).contains(&entries), "it is neither a GGUF nor a .dat file");
        let mut columns = BTreeMap::new();
        for _ in 0..entries {
            let len = word(next(4)?);
            let name = String::from_utf8(next(len)?.to_vec()).context("it has a name that is not UTF-8")?;
            let calls = word(next(4)?).max(1) as f32;
            let len = word(next(4)?);
            let sums = next(len.checked_mul(4).context(SHORT)?)?.as_chunks().0;
            columns.insert(name, sums.iter().map(|x| f32::from_le_bytes(*x) / calls).collect());
        }
        // The fields after the entries are optional.
        let chunks = next(4).map_or(0, word) as u32;
        let len = next(4).map_or(0, word);
        let dataset = next(len).ok().filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
        Ok(Self { columns, dataset, chunks })
    }
}

/// Scales importances so that sums of their products neither overflow nor vanish. Only the ratios of importances
/// matter. If all importances are zero, they become equal and positive.
fn usable(columns: &mut [f32]) {
    const RANGE: std::ops::Range<f32> = 1e-12..1e12;
    let most = columns.iter().copied().fold(0.0, f32::max);
    if most == 0.0 {
        columns.fill(1.0);
    } else if !RANGE.contains(&most) {
        columns.iter_mut().for_each(|x| *x /= most);
    }
}

/// All elements of an F32 tensor.
fn numbers(tensor: &Tensor<'_>) -> Result<Vec<f32>> {
    let mut out = vec![0.0; tensor.data.len() / 4];
    ensure!(
        tensor.kind == TensorType::F32 && decode_row(tensor.kind, tensor.data, &mut out),
        "{} is {:?}, not F32",
        tensor.name,
        tensor.kind
    );
    Ok(out)
}

/// Running sums for one tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    /// Sum of squares of each column, matrix after matrix.
    pub squares: Vec<f32>,
    /// Number of inputs of each matrix.
    pub counts: Vec<u64>,
}

/// Writes an importance matrix as GGUF.
pub fn write(
    path: &Path,
    sums: &BTreeMap<String, Sums>,
    dataset: &str,
    chunks: usize,
    chunk_size: usize,
) -> Result<()> {
    let mut header = Header::new();
    header.set("general.type", "imatrix");
    header.set(DATASETS, Meta::strings([dataset]));
    header.set(CHUNK_COUNT, chunks as u32);
    header.set(CHUNK_SIZE, chunk_size as u32);
    for (name, sums) in sums {
        let matrices = sums.counts.len() as u64;
        header.tensor(&format!("{name}{SUMS}"), &[sums.squares.len() as u64 / matrices, matrices], TensorType::F32)?;
        header.tensor(&format!("{name}{COUNTS}"), &[1, matrices], TensorType::F32)?;
    }
    write_file(path, |out| {
        let mut data = header.write(out)?;
        for sums in sums.values() {
            sums.squares.iter().try_for_each(|x| data.write_all(&x.to_le_bytes()))?;
            sums.counts.iter().try_for_each(|&count| data.write_all(&(count as f32).to_le_bytes()))?;
        }
        data.finish().map(|_| ())
    })
}
