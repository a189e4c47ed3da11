//! Computes the size of the weights that are read for a token. The ratio of two sizes is the cost of a proposed token,
//! because decoding is limited by reading weights.

use arenite::{Gguf, Model, model::Experts};

use crate::open_model::OpenModel;

/// Returns the cost of a step of the model's own draft layers, relative to a pass of the model.
pub fn of_own(open: &OpenModel) -> f64 {
    let (gguf, model) = (open.gguf(), open.model());
    let layers = format!("blk.{}.", model.spec().layers);
    // If the drafter is a separate file, this file contains only draft layers, so all of its layers are counted.
    let of_layers = |name: &str| name.starts_with(&layers) || name.contains("nextn.");
    let (own, others) = match gguf.drafter() {
        Some(file) => (bytes(file, model, |name| name.starts_with("blk.") || name.starts_with("nextn.")), file),
        None => (bytes(gguf, model, of_layers), gguf),
    };
    let pass = bytes(gguf, model, |name| name.starts_with("blk.") && !of_layers(name)) + head(gguf, model);
    let has_head = others.tensors().any(|tensor| tensor.name.ends_with("shared_head_head.weight"));
    (own + if has_head { 0.0 } else { head(others, model) }) / pass.max(1.0)
}

/// Returns the cost of a step of a smaller model, relative to a pass of the model.
pub fn of_small(small: &OpenModel, open: &OpenModel) -> f64 {
    let all = |open: &OpenModel| {
        let (gguf, model) = (open.gguf(), open.model());
        bytes(gguf, model, |name| name.starts_with("blk.")) + head(gguf, model)
    };
    all(small) / all(open).max(1.0)
}

/// Bytes of the head.
fn head(gguf: &Gguf<'_>, model: &Model<'_>) -> f64 {
    match bytes(gguf, model, |name| name == "output.weight") {
        0.0 => bytes(gguf, model, |name| name == "token_embd.weight"),
        bytes => bytes,
    }
}

/// Returns the number of bytes of the tensors whose names satisfy `is_read`. Of experts, only those that a token uses
/// count. Embeddings do not count, because only one row is read.
fn bytes(gguf: &Gguf<'_>, model: &Model<'_>, is_read: impl Fn(&str) -> bool) -> f64 {
    let used = match model.spec().experts() {
        Some(Experts { count, used, .. }) => used as f64 / count.max(1) as f64,
        None => 1.0,
    };
    let read = gguf.tensors().filter(|tensor| is_read(tensor.name) && !tensor.name.ends_with("embed_tokens.weight"));
    read.map(|tensor| tensor.data.len() as f64 * if tensor.name.contains("_exps.") { used } else { 1.0 }).sum()
}
