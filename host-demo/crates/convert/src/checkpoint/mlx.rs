//! Reads MLX's weights.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::access::{change, ending};
use super::integers::{bits, need, put};
use super::leaf::{Codes, Coding, Factors, FourBits, Groups, Leaf, Order, Packed, Scale, Zeros, e8m0};
use super::tensors::Checkpoint;

/// Refuses the convolutions of MLX, because MLX swaps their last two sizes. MLX also stores some norms of these models
/// differently.
pub fn no_convolutions(checkpoint: &Checkpoint<'_>) -> Result<()> {
    let is_swapped = |(name, leaf): (&String, &Arc<Leaf<'_>>)| {
        name.ends_with("conv1d.weight") && matches!(leaf.shape[..], [_, taps, 1] if taps > 1)
    };
    ensure!(
        !checkpoint.tensors.iter().any(is_swapped),
        "it is a model of MLX with convolutions, which has other weights than transformers': convert the original model"
    );
    Ok(())
}

/// Converts MLX's matrices. The matrices of experts are stacked, and each layer may have separate settings.
pub fn prepare(checkpoint: &mut Checkpoint<'_>, settings: &Value) -> Result<()> {
    for stem in ending(checkpoint, "scales") {
        let own = &settings[stem.trim_end_matches('.')];
        let own = if own["group_size"].is_u64() { own } else { settings };
        match own["mode"].as_str().or(settings["mode"].as_str()).unwrap_or("affine") {
            // Settings of one layer can leave out the mode `affine`.
            _ if checkpoint.has(&format!("{stem}biases")) => affine(checkpoint, &stem, own)?,
            mode @ ("mxfp4" | "nvfp4" | "mxfp8") => floats(checkpoint, &stem, mode)?,
            "affine" => bail!("the tensor {stem}biases is missing"),
            mode => bail!(
                "its weights are quantized by MLX with the mode {mode}: affine, mxfp4, mxfp8 and nvfp4 are supported"
            ),
        }
    }
    Ok(())
}

/// Converts a matrix of codes: each row is a stream of bits, and each group has a scale and a bias.
fn affine(checkpoint: &mut Checkpoint<'_>, stem: &str, settings: &Value) -> Result<()> {
    let scales = need(checkpoint, &format!("{stem}scales"))?;
    let biases = need(checkpoint, &format!("{stem}biases"))?;
    let codes = need(checkpoint, &format!("{stem}weight"))?;
    let ([stack @ .., words], [height @ .., groups]) = (&codes.shape[..], &scales.shape[..]) else {
        bail!("the tensor {} is not a matrix of 32-bit words", codes.name)
    };
    ensure!(codes.coding == Coding::I32, "the tensor {} is not a matrix of 32-bit words", codes.name);
    let size = settings["group_size"].as_u64().context("its quantization has no group_size")? as usize;
    let columns = *groups * size;
    let bits = bits(*words, columns).with_context(|| codes.name.clone())?;
    ensure!(
        height == stack && biases.shape == scales.shape && *words * 32 == columns * bits,
        "the factors of {} have shape {:?}, which does not fit",
        codes.name,
        scales.shape
    );
    let (words, groups, shape) = (*words, *groups, [stack, &[columns]].concat());
    let factors = |leaf| Factors { leaf, groups, rows: None, nested: None };
    let packed = Packed {
        codes: Codes { bytes: codes.bytes, bits, order: Order::Lines { words } },
        columns,
        groups: Groups::OfColumns(size),
        scales: factors(scales),
        zeros: Zeros::Constant(0.0),
        biases: Some(factors(biases)),
        book: None,
    };
    put(checkpoint, &format!("{stem}weight"), &shape, packed)
}

/// Converts a matrix of 4-bit or 8-bit floats. Each group of weights has a factor of 8 bits.
fn floats(checkpoint: &mut Checkpoint<'_>, stem: &str, mode: &str) -> Result<()> {
    let scales = need(checkpoint, &format!("{stem}scales"))?;
    change(checkpoint, &format!("{stem}weight"), |leaf| {
        let (size, group) = match mode {
            "mxfp4" => (8, 32),
            "nvfp4" => (8, 16),
            _ => (4, 32),
        };
        let ([stack @ .., words], [height @ .., groups]) = (&leaf.shape[..], &scales.shape[..]) else {
            bail!("it is not a matrix")
        };
        ensure!(
            leaf.coding == Coding::I32
                && scales.coding == Coding::U8
                && height == stack
                && words * size == groups * group,
            "its factors have shape {:?}, which does not fit",
            scales.shape
        );
        let (columns, shape) = (words * size, [stack, &[words * size]].concat());
        let coding = match mode {
            "mxfp4" => Coding::Four(FourBits::Mx),
            "nvfp4" => Coding::Four(FourBits::Nv),
            _ => Coding::F8E4M3,
        };
        *leaf = Leaf::new(&leaf.name, leaf.bytes, coding, &shape);
        if mode == "mxfp8" {
            let values = scales.bytes.iter().map(|byte| e8m0(*byte)).collect();
            leaf.scale = Some(Scale { values, zeros: Vec::new(), columns, block: [1, group], across: columns / group });
        } else {
            leaf.groups = scales.bytes;
        }
        Ok(())
    })
}
