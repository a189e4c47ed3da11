//! Takes the tensors of a safetensors file one by one and renames them for GGUF.

use std::borrow::Cow;
use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use arenite::quant::TensorType;
use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::tensor::{Tensor, halves};

/// A file, and the tensors taken from it so far.
pub struct Source<'s> {
    file: SafeTensors<'s>,
    taken: BTreeSet<String>,
    out: Vec<Tensor<'s>>,
}

impl<'s> Source<'s> {
    pub fn new(bytes: &'s [u8]) -> Result<Self> {
        let file = SafeTensors::deserialize(bytes).context("model.safetensors is damaged")?;
        Ok(Self { file, taken: BTreeSet::new(), out: Vec::new() })
    }

    pub fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_ok()
    }

    /// Counts the layers for which `name(layer)` is a tensor.
    pub fn layers(&self, name: impl Fn(usize) -> String) -> usize {
        (0..).take_while(|layer| self.has(&name(*layer))).count()
    }

    fn view(&self, name: &str) -> Result<TensorView<'s>> {
        self.file.tensor(name).ok().with_context(|| format!("the tensor {name} is missing in model.safetensors"))
    }

    /// Rows and columns of a matrix.
    pub fn shape(&self, name: &str) -> Result<(usize, usize)> {
        match self.view(name)?.shape() {
            [rows, cols] => Ok((*rows, *cols)),
            shape => bail!("the tensor {name} has shape {shape:?}, expected a matrix"),
        }
    }

    /// Writes the tensor `name` to the new file under the name `new`. If it is a matrix, it stays unchanged. Any other
    /// tensor is written as a vector of f32.
    pub fn take(&mut self, name: &str, new: impl Into<String>) -> Result<()> {
        self.take_part(name, 0, 1, new)
    }

    /// Adds slice `part` of `parts` equal slices of a vector or of a matrix's rows to the output, under the name `new`.
    /// For example, a fused matrix of q, k and v becomes three tensors.
    pub fn take_part(&mut self, name: &str, part: usize, parts: usize, new: impl Into<String>) -> Result<()> {
        let view = self.view(name)?;
        self.taken.insert(name.to_owned());
        let data = view.data();
        let len = data.len() / parts;
        ensure!(len * parts == data.len(), "the tensor {name} cannot be split into {parts} equal parts");
        let data = &data[part * len..(part + 1) * len];
        let tensor = match *view.shape() {
            [rows, cols] if rows > 1 => {
                let kind = match view.dtype() {
                    Dtype::F32 => TensorType::F32,
                    Dtype::F16 => TensorType::F16,
                    Dtype::BF16 => TensorType::BF16,
                    other => bail!("the tensor {name} has type {other:?}: save the model as F32, F16 or BF16"),
                };
                let dims = vec![cols as u64, (rows / parts) as u64];
                Tensor { name: new.into(), dims, kind, bytes: Cow::Borrowed(data) }
            }
            _ => {
                let bytes: Cow<'s, [u8]> = match view.dtype() {
                    Dtype::F32 => Cow::Borrowed(data),
                    Dtype::F16 => widened(data, |b| f16::from_le_bytes(b).to_f32()),
                    Dtype::BF16 => widened(data, |b| bf16::from_le_bytes(b).to_f32()),
                    other => bail!("the tensor {name} has type {other:?}: save the model as F32, F16 or BF16"),
                };
                Tensor { name: new.into(), dims: vec![bytes.len() as u64 / 4], kind: TensorType::F32, bytes }
            }
        };
        self.out.push(tensor);
        Ok(())
    }

    /// Skips the tensor `name`, if the file has it. Its values must equal those of `twin`.
    pub fn skip_copy(&mut self, name: &str, twin: &str) -> Result<()> {
        if let Ok(copy) = self.file.tensor(name) {
            ensure!(
                copy.data() == self.view(twin)?.data(),
                "the tensors {name} and {twin} differ, but the config says that they are tied"
            );
            self.taken.insert(name.to_owned());
        }
        Ok(())
    }

    /// Skips a tensor that can be computed.
    pub fn skip(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    /// Checks that every tensor was taken.
    ///
    /// # Errors
    ///
    /// An error names a tensor that was not taken.
    pub fn all_taken(&self) -> Result<()> {
        match self.file.names().into_iter().find(|name| !self.taken.contains(*name)) {
            Some(name) => {
                bail!("the converter does not know the tensor {name}, and leaving it out would change the results")
            }
            None => Ok(()),
        }
    }

    /// Returns the tensors taken, in order.
    pub fn finish(&mut self) -> Vec<Tensor<'s>> {
        std::mem::take(&mut self.out)
    }
}

fn widened(data: &[u8], f: impl Fn([u8; 2]) -> f32) -> Cow<'static, [u8]> {
    halves(data, f).flat_map(f32::to_le_bytes).collect::<Vec<_>>().into()
}
