//! Access to the tensors of a checkpoint: their values, their names, and changes.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::leaf::Leaf;
use super::tensors::Checkpoint;
use super::view::View;

/// Returns the values of a tensor.
pub fn values(leaf: &Arc<Leaf<'_>>) -> Vec<f32> {
    let view = View::new(leaf.clone());
    let mut values = vec![0.0; view.len()];
    view.read(0, &mut values);
    values
}

/// Finds the tensors whose names end with `end`. Returns these names without the end.
pub fn ending(checkpoint: &Checkpoint<'_>, end: &str) -> Vec<String> {
    checkpoint.tensors.keys().filter_map(|name| Some(name.strip_suffix(end)?.to_owned())).collect()
}

/// Changes a tensor.
pub fn change<'f>(
    checkpoint: &mut Checkpoint<'f>,
    name: &str,
    f: impl FnOnce(&mut Leaf<'f>) -> Result<()>,
) -> Result<()> {
    let leaf = checkpoint.tensors.get_mut(name).with_context(|| format!("the tensor {name} is missing"))?;
    f(Arc::make_mut(leaf)).with_context(|| format!("the tensor {name}"))
}
