//! Reads HQQ's weights: from `qmodel.pt`, and from the safetensors of transformers, which store the settings of a layer as
//! tensors.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::access::{ending, values};
use super::integers::{need, put, take};
use super::leaf::{Codes, Coding, Factors, Groups, Order, Packed, Zeros};
use super::tensors::Checkpoint;

/// Returns true if a layer is quantized by HQQ. This is recognized by the names of the tensors, because HQQ's own files
/// have no settings in config.json.
pub fn is_used(checkpoint: &Checkpoint<'_>) -> bool {
    checkpoint.tensors.keys().any(|name| name.ends_with(".W_q"))
}

pub fn prepare(checkpoint: &mut Checkpoint<'_>) -> Result<()> {
    for stem in ending(checkpoint, "W_q") {
        let settings = settings(checkpoint, &stem)?;
        matrix(checkpoint, &stem, &settings).with_context(|| format!("the layer {}", stem.trim_end_matches('.')))?;
    }
    Ok(())
}

/// Returns the quantization settings of the layer whose tensor names begin with `stem`, and removes the tensors that
/// store these settings.
fn settings(checkpoint: &mut Checkpoint<'_>, stem: &str) -> Result<Value> {
    const NAMES: &[&str] = &["shape", "nbits", "group_size", "axis", "view_as_float", "quant_scale", "quant_zero"];
    const WITHOUT_EFFECT: &[&str] = &[
        "unpack_view_dtype",
        "compute_dtype",
        "offload_meta",
        "encoded_state_dict",
        "stores_quant_config",
        "channel_wise",
        "optimize",
        "round_zero",
    ];
    let stored = checkpoint.settings.as_ref().map(|settings| settings[stem.trim_end_matches('.')].clone());
    if let Some(settings) = stored.filter(Value::is_object) {
        return Ok(settings);
    }
    WITHOUT_EFFECT.iter().for_each(|name| drop(take(checkpoint, &format!("{stem}{name}"))));
    let mut settings = json!({});
    for name in NAMES {
        let Some(leaf) = take(checkpoint, &format!("{stem}{name}")) else { continue };
        let numbers: Vec<u64> = values(&leaf).into_iter().map(|number| number as u64).collect();
        settings[name] = match numbers[..] {
            [number] if leaf.shape.is_empty() => number.into(),
            _ => numbers.into(),
        };
    }
    if let Some(packing) = take(checkpoint, &format!("{stem}packing")) {
        settings["packing"] = String::from_utf8_lossy(packing.bytes).into();
    }
    Ok(settings)
}

/// Converts a matrix. HQQ reshapes the matrix so that each row (`axis` 1) or each column (`axis` 0) is a group, and
/// packs the codes of distant rows into one byte.
fn matrix(checkpoint: &mut Checkpoint<'_>, stem: &str, settings: &Value) -> Result<()> {
    let is_set = |name: &str| settings[name] == true || settings[name] == 1;
    ensure!(
        !is_set("quant_scale") && !is_set("quant_zero"),
        "its factors are quantized, too, which is not supported: quantize the model with quant_scale and quant_zero false"
    );
    ensure!(!is_set("view_as_float"), "its codes are stored as floats (view_as_float), which is not supported");
    let size = |value: &Value| value.as_u64().map(|size| size as usize).filter(|size| *size > 0);
    let [rows, columns] = settings["shape"].as_array().map_or(&[][..], |shape| shape) else { bail!("it has no shape") };
    let (Some(rows), Some(columns)) = (size(rows), size(columns)) else { bail!("it has no shape") };
    let packing = settings["packing"].as_str().unwrap_or("");
    let (bits, bytes) = match packing {
        "8bit_u8" => (8, 1),
        "4bit_u8" => (4, 1),
        "3bit_32" => (3, 4),
        "2bit_u8" => (2, 1),
        "1bit_u8" => (1, 1),
        other => bail!("its packing {other:?} is not supported"),
    };
    let codes = need(checkpoint, &format!("{stem}W_q"))?;
    let scales = need(checkpoint, &format!("{stem}scale"))?;
    let zeros = need(checkpoint, &format!("{stem}zero"))?;
    let all = rows.checked_mul(columns).context("its shape is too large")?;
    let group = size(&settings["group_size"]);
    let is_across = settings["axis"] == 0;
    let groups = match group {
        Some(group) => all / group,
        None if is_across => columns,
        None => rows,
    };
    let words = codes.bytes.len() / bytes;
    ensure!(
        codes.coding == if bytes == 1 { Coding::U8 } else { Coding::I32 }
            && words * (8 * bytes / bits) >= all
            && groups > 0
            && all.is_multiple_of(groups)
            && [&scales, &zeros].iter().all(|part| part.shape.iter().product::<usize>() == groups),
        "its tensors do not fit its shape {rows} x {columns}"
    );
    let factors = |leaf: Arc<_>| Factors { leaf, groups, rows: None, nested: None };
    let packed = Packed {
        codes: Codes { bytes: codes.bytes, bits, order: Order::Parts { codes: columns, words, bytes } },
        columns,
        groups: if is_across { Groups::Apart(groups) } else { Groups::Flat(all / groups) },
        scales: factors(scales),
        zeros: Zeros::Values(factors(zeros)),
        biases: None,
        book: None,
    };
    put(checkpoint, &format!("{stem}weight"), &[rows, columns], packed)
}
