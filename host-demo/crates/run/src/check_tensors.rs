//! Checks the tensors of a model. `inspect --verify` compares the tensors' bytes with the hashes in the file;
//! `--check-tensors` also looks for values that are not finite.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, bail};
use arenite::gguf::{Gguf, Tensor};
use arenite::quant::decode_row;

use crate::workers;

/// Number of elements that a thread decodes at a time.
const DECODED: usize = 1 << 16;

const STEP: usize = 1 << 20;

/// Compares every tensor with its hash. Returns false if the file has no hashes.
///
/// # Errors
///
/// Names the first damaged tensor, and says how many tensors are damaged.
pub fn verify(gguf: &Gguf<'_>) -> Result<bool> {
    let Some(mut verify) = gguf.verify()? else { return Ok(false) };
    let mut errors = Vec::new();
    loop {
        match verify.step(STEP) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => errors.push(error),
        }
    }
    match errors[..] {
        [] => Ok(true),
        [error] => Err(error.into()),
        [error, ..] => bail!("{error} ({} of {} tensors are damaged)", errors.len(), gguf.tensor_count()),
    }
}

/// Compares every tensor with its hash if the file has hashes, then looks for NaN and infinity in all weights, on all
/// cores.
///
/// # Errors
///
/// Names the first tensor that is damaged or has NaN or infinity.
pub fn check(gguf: &Gguf<'_>) -> Result<()> {
    verify(gguf)?;
    let tensors: Vec<Tensor<'_>> = gguf.tensors().collect();
    let (next, first) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    thread::scope(|scope| {
        for _ in 0..workers::cores() {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(tensor) = tensors.get(index) else { return };
                    if !is_finite(tensor) {
                        first.fetch_min(index, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match tensors.get(first.into_inner()) {
        Some(tensor) => bail!("the tensor {} has a value that is not finite: the file is damaged", tensor.name),
        None => Ok(()),
    }
}

/// Returns true if all values of a tensor are finite. A tensor of a type without a decoder, such as a type of integers,
/// is not examined and counts as finite.
fn is_finite(tensor: &Tensor<'_>) -> bool {
    let (elements, bytes) = tensor.kind.block();
    let blocks = (DECODED / elements).max(1);
    let mut values = vec![0.0; blocks * elements];
    tensor.data.chunks(blocks * bytes).all(|data| {
        let values = &mut values[..data.len() / bytes * elements];
        !decode_row(tensor.kind, data, values) || values.iter().all(|value| value.is_finite())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_finite_is_found() {
        let whole = include_bytes!("../../../models/stories.gguf").to_vec();
        assert!(check(&Gguf::parse(&whole).unwrap()).is_ok());
        let gguf = Gguf::parse(&whole).unwrap();
        let places: Vec<(String, usize)> = gguf
            .tensors()
            .filter(|tensor| matches!(tensor.kind, arenite::quant::TensorType::F32))
            .flat_map(|tensor| {
                let (start, len) = (tensor.offset as usize, tensor.data.len());
                [start, start + len - 4].map(|at| (tensor.name.to_owned(), at))
            })
            .collect();
        assert!(!places.is_empty());
        for (name, at) in places {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut file = whole.clone();
                file[at..at + 4].copy_from_slice(&value.to_le_bytes());
                let error = check(&Gguf::parse(&file).unwrap()).unwrap_err().to_string();
                assert!(error.contains(&name), "{error}");
            }
        }
    }
}
