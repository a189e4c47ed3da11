//! Converts a model to other tensor types. The choice of types and the encoded bytes are the same as in llama.cpp.
//!
//! | module | |
//! |---|---|
//! | [`mix`] | the type of each tensor in a file such as Q4_K_M |
//! | `encode`, `simple`, `k_quants`, `iq1`, `iq4`, `lattice`, `search` | rows of weights as blocks |
//! | [`importance`] | importance matrices |
//! | [`underflow`] | weights that are too small for a type |
//! | [`edits`], [`pruned`] | changes of metadata; layers that are left out |
//!
//! ```
//! use arenite_quantize::mix::{Mix, TypeOptions};
//!
//! let model = std::fs::read("../../../tests/fixtures/stories.gguf")?;
//! let gguf = arenite::Gguf::parse(&model)?;
//! let changes = arenite_quantize::changes(&gguf, Mix::Q8_0, &TypeOptions::default(), None, true)?;
//! let header = arenite_quantize::header(&gguf, Mix::Q8_0, &changes, None)?;
//! let mut file = header.write(std::io::Cursor::new(Vec::new()))?; // or a file
//! for change in &changes {
//!     change.write(1, &mut file, |_bytes| Ok(()))?; // by one thread
//! }
//! let quantized = file.finish()?.into_inner();
//! # arenite::Gguf::parse(&quantized)?;
//! # Ok::<(), anyhow::Error>(())
//! ```
#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

pub mod edits;
mod encode;
pub mod importance;
mod iq1;
mod iq4;
mod k_quants;
mod lattice;
pub mod mix;
pub mod pruned;
mod search;
mod simple;
#[cfg(test)]
mod tests;
pub mod underflow;

use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::thread;

use anyhow::{Result, anyhow, bail, ensure};
use arenite::gguf::{Gguf, Tensor};
use arenite::quant::{TensorType, decode_row};
use half::{bf16, f16};

use self::importance::Importance;
use self::mix::{Chooser, Mix, Shape, TypeOptions};
use arenite_gguf_writer::Header;

/// The key with a file's type.
const FILE_TYPE: &str = "general.file_type";
/// Number of elements that a thread encodes at a time. Encoding so many elements takes some hundredths of a second.
const PIECE: usize = 1 << 18;

/// Encodes a row of weights. Returns `false` if `kind` has no encoder, or if its encoder needs an importance matrix.
pub fn encode_values(kind: TensorType, row: &[f32], out: &mut [u8]) -> bool {
    encode::encode(kind, row, None, out)
}

/// A tensor and the type that it is converted to.
pub struct Change<'a> {
    pub tensor: Tensor<'a>,
    /// Name of the tensor in the new file.
    pub name: String,
    pub to: TensorType,
    /// The type that was chosen for the tensor. `to` is another type if the tensor's rows do not consist of whole
    /// blocks of the chosen type.
    pub wanted: TensorType,
    /// The chosen type, if it is too imprecise because the weights are so small. The tensor then keeps its old type.
    pub too_coarse: Option<TensorType>,
    /// Importance of each column, matrix after matrix.
    importance: Option<&'a [f32]>,
}

/// Chooses the new type of every tensor, in the order of the new file. All errors in the model and the options are
/// found here, before anything is written.
pub fn changes<'a>(
    gguf: &Gguf<'a>,
    mix: Mix,
    options: &TypeOptions,
    importance: Option<&'a Importance>,
    requantize: bool,
) -> Result<Vec<Change<'a>>> {
    let names_some = |all: &Importance| gguf.tensors().any(|tensor| all.columns.contains_key(tensor.name));
    ensure!(
        importance.is_none_or(|all| all.columns.is_empty() || names_some(all)),
        "the importance matrix names no weights of this model: it belongs to another model"
    );
    let mut chooser = Chooser::new(gguf, mix, options, importance.is_some())?;
    let named = |tensor: Tensor<'a>| Some((options.pruned.name(tensor.name)?, tensor));
    let mut tensors: Vec<(String, Tensor<'a>)> = gguf.tensors().filter_map(named).collect();
    tensors.sort_by(|(a, _), (b, _)| mix::order(a).cmp(&mix::order(b)));
    let change = |(new_name, tensor): (String, Tensor<'a>)| -> Result<Change<'a>> {
        let (name, kind) = (tensor.name, tensor.kind);
        let to = chooser.choose(&Shape { name: &new_name, dims: tensor.dims, kind })?;
        let wanted = chooser.wanted;
        if to == kind || tensor.data.is_empty() {
            return Ok(Change { tensor, name: new_name, to: kind, wanted, too_coarse: None, importance: None });
        }
        ensure!(
            tensor.dims[0].is_multiple_of(to.block().0 as u64),
            "the rows of {name} have {} elements, which are not whole blocks of {to:?}: give it another type",
            tensor.dims[0]
        );
        let plain = matches!(kind, TensorType::F32 | TensorType::F16 | TensorType::BF16);
        ensure!(
            plain || requantize,
            "{name} is already {kind:?}, and quantizing it again loses more accuracy: start from the F16 file, or give \
             --allow-requantize"
        );
        let importance = match importance.and_then(|all| all.columns.get(name)) {
            Some(columns) if columns.len() as u64 == tensor.dims[0] * tensor.dims[2] => Some(&columns[..]),
            Some(columns) if name != "token_embd.weight" => {
                bail!(
                    "the importance matrix has {} columns for {name}, which has {}: it belongs to another model",
                    columns.len(),
                    tensor.dims[0] * tensor.dims[2]
                )
            }
            _ => None,
        };
        if importance.is_none() && !options.is_dry && mix::needs_importance(name, to, mix) {
            bail!(
                "{name} cannot become {to:?} without an importance matrix: make one with `arenite imatrix` \
                 and give it with --imatrix"
            );
        }
        let mut change = Change { tensor, name: new_name, to, wanted, too_coarse: None, importance };
        if plain && !options.is_dry && change.underflows() {
            (change.too_coarse, change.to, change.wanted) = (Some(to), kind, kind);
        }
        Ok(change)
    };
    tensors.into_iter().map(change).collect()
}

/// Builds the header of the new file, with the keys in llama.cpp's order. The header describes the importance matrix
/// and its file.
pub fn header(
    gguf: &Gguf<'_>,
    mix: Mix,
    changes: &[Change<'_>],
    importance: Option<(&Importance, &Path)>,
) -> Result<Header> {
    const VERSION: &str = "general.quantization_version";
    let mut header = Header::new();
    gguf.keys().filter(|(key, _)| ![VERSION, FILE_TYPE].contains(key)).for_each(|(key, value)| header.set(key, value));
    header.set(VERSION, 2u32);
    header.set(FILE_TYPE, mix.number());
    if let Some((importance, path)) = importance {
        header.set("quantize.imatrix.file", path.as_os_str().as_encoded_bytes());
        if let Some(dataset) = &importance.dataset {
            header.set("quantize.imatrix.dataset", &dataset[..]);
        }
        header.set("quantize.imatrix.entries_count", importance.columns.len() as u32);
        if importance.chunks > 0 {
            header.set("quantize.imatrix.chunks_count", importance.chunks);
        }
    }
    if gguf.get("general.alignment").is_some() {
        header.align(gguf.alignment() as u32)?;
    }
    for Change { tensor, name, to, .. } in changes {
        let dims: Vec<u64> = tensor.dims.into_iter().take(tensor.dim_count as usize).collect();
        header.tensor(name, &dims, *to)?;
    }
    Ok(header)
}

impl Change<'_> {
    /// True if the tensor is quantized as if all columns had the same importance. Importance matrices usually do not
    /// contain the embeddings and the head.
    pub fn lacks_importance(&self) -> bool {
        self.to != self.tensor.kind
            && self.to.block().0 > 1
            && self.importance.is_none()
            && !["token_embd.weight", "output.weight"].contains(&self.tensor.name)
    }

    /// Size in the new file.
    pub fn bytes(&self) -> usize {
        self.tensor.data.len() / self.tensor.kind.block().1 * self.tensor.kind.block().0 / self.to.block().0
            * self.to.block().1
    }

    fn columns(&self) -> usize {
        self.tensor.dims[0] as usize
    }

    fn rows(&self) -> usize {
        self.tensor.dims.iter().skip(1).product::<u64>() as usize
    }

    /// The importance of the columns of a row.
    fn importance(&self, row: usize) -> Option<&[f32]> {
        let columns = self.columns();
        self.importance.map(|all| &all[row / self.tensor.dims[1] as usize * columns..][..columns])
    }

    /// The stored bytes of a row.
    fn row(&self, row: usize) -> &[u8] {
        let (values, bytes) = self.tensor.kind.block();
        let size = self.columns() / values * bytes;
        self.tensor.data.get(row * size..(row + 1) * size).unwrap_or_default()
    }

    /// Returns true if the tensor's weights are so small that the scales of the new type cannot represent them well.
    fn underflows(&self) -> bool {
        underflow::underflows(self.to, [self.rows(), self.columns()], |row, to| {
            decode_row(self.tensor.kind, self.row(row), to);
            self.importance(row)
        })
    }

    /// Writes the tensor in its new type. Calls `go_on` with the size of every written chunk. An error of `go_on` stops
    /// the conversion.
    pub fn write(
        &self,
        threads: usize,
        out: &mut impl Write,
        mut go_on: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        if self.to == self.tensor.kind {
            for piece in self.tensor.data.chunks(4 << 20) {
                out.write_all(piece)?;
                go_on(piece.len())?;
            }
            return Ok(());
        }
        let rows = (PIECE / self.columns()).max(1) * threads;
        let mut bytes = Vec::new();
        for first in (0..self.rows()).step_by(rows) {
            let rows = first..(first + rows).min(self.rows());
            self.encode(rows, threads, &mut bytes)?;
            out.write_all(&bytes)?;
            go_on(bytes.len())?;
        }
        Ok(())
    }

    /// Encodes the rows `rows` in the new type. Each thread encodes a part of these rows.
    fn encode(&self, rows: Range<usize>, threads: usize, out: &mut Vec<u8>) -> Result<()> {
        let row_bytes = self.columns() / self.to.block().0 * self.to.block().1;
        out.resize(rows.len() * row_bytes, 0);
        let part = rows.len().div_ceil(threads);
        thread::scope(|scope| {
            let parts = rows.step_by(part).zip(out.chunks_mut(part * row_bytes));
            let parts: Vec<_> = parts.map(|(first, out)| scope.spawn(move || self.encode_part(first, out))).collect();
            parts.into_iter().try_for_each(|part| part.join().map_err(|_| anyhow!("a thread panicked"))?)
        })
    }

    fn encode_part(&self, first: usize, out: &mut [u8]) -> Result<()> {
        let (columns, name) = (self.columns(), &self.name);
        let to = columns / self.to.block().0 * self.to.block().1;
        // Weights above this limit would overflow, because most formats store scales in f16, and the search for a scale
        // sums squares.
        let most = match self.to {
            TensorType::F32 => f32::MAX,
            TensorType::BF16 => bf16::MAX.to_f32(),
            _ => f16::MAX.to_f32(),
        };
        let mut row = vec![0.0; columns];
        for (i, out) in (first..).zip(out.chunks_exact_mut(to)) {
            ensure!(
                decode_row(self.tensor.kind, self.row(i), &mut row),
                "this build does not read {:?}",
                self.tensor.kind
            );
            ensure!(row.iter().all(|x| x.is_finite()), "{name} has a weight that is not finite, in row {i}");
            ensure!(
                row.iter().all(|x| x.abs() <= most),
                "{name} has a weight beyond {most:e} in row {i}, too large for {:?}: keep it with --tensor-type {name}=F32",
                self.to
            );
            ensure!(encode::encode(self.to, &row, self.importance(i), out), "this build does not write {:?}", self.to);
        }
        Ok(())
    }
}
