//! Checkpoints that are already quantized, read exactly: FP8 and 8-bit integers with factors, NVFP4, MXFP4, BitNet's
//! ternary weights. The module [`integers`] reads packed integers.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::access::{change, ending, values};
use super::config::{Config, json};
use super::leaf::{Coding, FourBits, Leaf, Scale, e8m0};
use super::tensors::Checkpoint;
use super::{awq, hqq, integers, mlx, modelopt};

/// Joins the tensors of a quantized checkpoint that belong together, so that each quantized tensor has its factors.
/// Drops the factors of activations, keys and values, except an `input_scale` that is not 1. Returns the method of the
/// quantization.
pub fn prepare(config: &Config, directory: Option<&Path>, checkpoint: &mut Checkpoint<'_>) -> Result<Option<String>> {
    mlx::no_convolutions(checkpoint)?;
    let Some((method, settings)) = settings(config, directory, checkpoint)? else { return Ok(None) };
    let settings = &settings;
    match method.as_str() {
        "mxfp4" => mxfp4(checkpoint)?,
        "bitnet" => ternary(checkpoint, settings)?,
        "fp8" | "fbgemm_fp8" => fp8(checkpoint, settings)?,
        "hqq" => hqq::prepare(checkpoint)?,
        "quark" => {
            mxfp4_matrices(checkpoint, "weight")?;
            factors(checkpoint, "_scale", &Value::Null)?;
        }
        "modelopt" => {
            modelopt::integers(checkpoint)?;
            mxfp4_matrices(checkpoint, "weight")?;
            nvfp4(checkpoint)?;
            factors(checkpoint, "_scale", &Value::Null)?;
            modelopt::inputs(checkpoint)?;
        }
        "gptq" => integers::gptq(checkpoint, settings)?,
        "awq" => awq::prepare(checkpoint, settings)?,
        "auto-round" | "intel/auto-round" => match settings["packing_format"].as_str().unwrap_or("") {
            "auto_round:auto_gptq" => integers::gptq(checkpoint, settings)?,
            "auto_round:auto_awq" => awq::prepare(checkpoint, settings)?,
            "auto_round:fp8" => fp8(checkpoint, settings)?,
            "auto_round:llm_compressor" => compressed_matrices(checkpoint, &Value::Null)?,
            other => bail!("its weights are quantized by auto-round as {other}: save the model unquantized"),
        },
        "torchao" => torchao(checkpoint)?,
        "mlx" => mlx::prepare(checkpoint, settings)?,
        "bitsandbytes" => integers::bitsandbytes(checkpoint)?,
        "compressed-tensors" => compressed(checkpoint, settings)?,
        other => bail!("its weights are quantized by {other}, which is not supported: save the model unquantized"),
    }
    let left = [
        "input_scale",
        "input_scale_ub",
        "input_global_scale",
        "input_zero_point",
        "k_scale",
        "v_scale",
        "activation_scale",
    ];
    checkpoint.tensors.retain(|name, leaf| {
        let end = name.rsplit('.').next().unwrap_or("");
        !left.contains(&end) || end == "input_scale" && !is_one(leaf)
    });
    Ok(Some(method))
}

/// Attaches the factors of 8-bit floats.
fn fp8(checkpoint: &mut Checkpoint<'_>, settings: &Value) -> Result<()> {
    for stem in ending(checkpoint, "weight_scale_inv") {
        let name = format!("{stem}weight");
        let is_packed =
            checkpoint.tensors.get(&name).is_some_and(|leaf| matches!(leaf.coding, Coding::I8 | Coding::U8));
        ensure!(
            !is_packed,
            "the tensor {name} has 4-bit floats in bytes, which is not supported: save the model unquantized"
        );
    }
    factors(checkpoint, "_scale_inv", &settings["weight_block_size"])?;
    factors(checkpoint, "_scale", &Value::Null)
}

/// Returns the method and the settings of the quantization. Older programs store them in a separate file beside
/// config.json.
fn settings(config: &Config, directory: Option<&Path>, checkpoint: &Checkpoint<'_>) -> Result<Option<(String, Value)>> {
    if let Some(settings) = config.find(&["quantization_config", "quantization"]) {
        let is_mlx = settings["quant_method"].is_null() && settings["group_size"].is_u64();
        let method = if is_mlx { "mlx" } else { settings["quant_method"].as_str().unwrap_or("") };
        return Ok(Some((method.to_owned(), settings.clone())));
    }
    for (name, method) in [("hf_quant_config", None), ("quantize_config", Some("gptq")), ("quant_config", Some("awq"))]
    {
        let path = directory.map(|directory| directory.join(format!("{name}.json"))).filter(|path| path.is_file());
        let Some(path) = path else { continue };
        let settings = json(&path)?;
        let method = method.or(settings["producer"]["name"].as_str()).unwrap_or("").to_owned();
        return Ok(Some((method, settings)));
    }
    Ok(hqq::is_used(checkpoint).then(|| ("hqq".to_owned(), Value::Null)))
}

/// Converts the matrices of compressed-tensors. Each matrix may have another format, which is recognized by the
/// matrix's tensors.
fn compressed(checkpoint: &mut Checkpoint<'_>, settings: &Value) -> Result<()> {
    const FORMATS: &[&str] = &[
        "pack-quantized",
        "float-quantized",
        "naive-quantized",
        "int-quantized",
        "nvfp4-pack-quantized",
        "mxfp4-pack-quantized",
        "mxfp8-quantized",
        "mixed-precision",
    ];
    let format = settings["format"].as_str().unwrap_or("");
    ensure!(
        FORMATS.contains(&format),
        "its weights are quantized by compressed-tensors as {format}: save the model unquantized"
    );
    let groups = settings["config_groups"].as_object();
    let of_blocks = |group: &&Value| group["block_structure"].is_array();
    let block = groups.and_then(|groups| groups.values().map(|group| &group["weights"]).find(of_blocks));
    compressed_matrices(checkpoint, block.map_or(&Value::Null, |weights| &weights["block_structure"]))
}

/// Converts the matrices that compressed-tensors has packed. `block` is the size of blocks that have one factor.
fn compressed_matrices(checkpoint: &mut Checkpoint<'_>, block: &Value) -> Result<()> {
    integers::compressed(checkpoint)?;
    for stem in ending(checkpoint, "weight_global_scale") {
        let global = checkpoint.tensors.remove(&format!("{stem}weight_global_scale"));
        let global = global.and_then(|leaf| values(&leaf).first().copied()).unwrap_or(1.0);
        rename(checkpoint, &format!("{stem}weight_packed"), &format!("{stem}weight"))?;
        // ModelOpt stores the reciprocal.
        let name = format!("{stem}weight_scale_2");
        let mut leaf = Leaf::new(&name, &ONE, Coding::F32, &[1]);
        leaf.scale =
            Some(Scale { values: vec![1.0 / global], zeros: Vec::new(), columns: 1, block: [1, 1], across: 1 });
        checkpoint.tensors.insert(name, Arc::new(leaf));
    }
    nvfp4(checkpoint)?;
    mxfp4_matrices(checkpoint, "weight_packed")?;
    factors(checkpoint, "_scale", block)
}

/// The bytes of the number 1.
const ONE: [u8; 4] = 1f32.to_le_bytes();

fn rename(checkpoint: &mut Checkpoint<'_>, from: &str, to: &str) -> Result<()> {
    let leaf = checkpoint.tensors.remove(from).with_context(|| format!("the tensor {from} is missing"))?;
    checkpoint.tensors.insert(to.to_owned(), leaf);
    Ok(())
}

/// Converts torchao's 8-bit integers and floats, which are stored as codes, and as factors and zeros of rows or blocks.
fn torchao(checkpoint: &mut Checkpoint<'_>) -> Result<()> {
    for stem in ending(checkpoint, "_weight_qdata") {
        let codes = format!("{stem}_weight_qdata");
        let is_eight = |leaf: &Arc<Leaf<'_>>| matches!(leaf.coding, Coding::I8 | Coding::F8E4M3 | Coding::F8E5M2);
        ensure!(
            checkpoint.tensors.get(&codes).is_some_and(is_eight),
            "the tensor {codes} is quantized by torchao to less than 8 bits, which is not supported: save the model \
             unquantized"
        );
        rename(checkpoint, &codes, &format!("{stem}weight"))?;
        rename(checkpoint, &format!("{stem}_weight_scale"), &format!("{stem}weight_scale"))?;
        if checkpoint.has(&format!("{stem}_weight_zero_point")) {
            rename(checkpoint, &format!("{stem}_weight_zero_point"), &format!("{stem}weight_zero_point"))?;
        }
    }
    factors(checkpoint, "_scale", &Value::Null)
}

/// Returns true if a factor has no effect.
fn is_one(leaf: &Arc<Leaf<'_>>) -> bool {
    values(leaf).iter().all(|value| *value == 1.0)
}

/// Attaches scale factors to weights. The factors of `NAME` are in the tensor `NAME` + `end`: one factor for the whole
/// tensor, or one per row or block. The size of a block is needed only if it does not divide the matrix evenly.
fn factors(checkpoint: &mut Checkpoint<'_>, end: &str, block: &Value) -> Result<()> {
    for stem in ending(checkpoint, &format!("weight{end}")) {
        let name = format!("{stem}weight");
        let Some(scale) = checkpoint.tensors.remove(&format!("{name}{end}")) else { continue };
        let zeros = checkpoint.tensors.remove(&format!("{stem}weight_zero_point"));
        let mut factors = values(&scale);
        if scale.coding == Coding::U8 {
            factors.iter_mut().for_each(|factor| *factor = e8m0(*factor as u8));
        }
        // ModelOpt keeps the two sizes of the blocks as 1.
        let shape = match scale.shape[..] {
            [down, 1, across, 1] => vec![down, across],
            _ => scale.shape.clone(),
        };
        change(checkpoint, &name, |leaf| {
            let [rows, columns] = leaf.shape[..] else { bail!("it has a factor but is not a matrix") };
            let stated = |at: usize| block[at].as_u64().filter(|n| *n > 0).map(|n| n as usize);
            let (down, across) = match shape[..] {
                [] | [1] => (1, 1),
                [n] | [n, 1] if n == rows => (rows, 1),
                [down, across] => (down, across),
                _ => bail!("its factors have shape {shape:?}"),
            };
            let size = |len: usize, blocks: usize, stated: Option<usize>| -> usize {
                match len.checked_div(blocks) {
                    Some(size) if len.is_multiple_of(blocks) => size.max(1),
                    _ => stated.unwrap_or(128), // the default of transformers
                }
            };
            let block = [size(rows, down, stated(0)), size(columns, across, stated(1))];
            ensure!(
                rows.div_ceil(block[0]) == down && columns.div_ceil(block[1]) == across,
                "its factors have shape {shape:?}, which does not fit"
            );
            let zeros = zeros.as_ref().map_or_else(Vec::new, values);
            ensure!(zeros.is_empty() || zeros.len() == factors.len(), "it has {} zeros", zeros.len());
            leaf.scale = Some(Scale { values: factors, zeros, columns, block, across });
            Ok(())
        })?;
    }
    Ok(())
}

/// Converts ModelOpt's NVFP4: each byte has two weights, and 16 weights have one 8-bit factor.
fn nvfp4(checkpoint: &mut Checkpoint<'_>) -> Result<()> {
    for stem in ending(checkpoint, "weight_scale") {
        let scales = format!("{stem}weight_scale");
        if checkpoint.tensors.get(&scales).is_none_or(|leaf| leaf.shape.len() != 2 || leaf.coding != Coding::F8E4M3) {
            continue;
        }
        let Some(scale) = checkpoint.tensors.remove(&scales) else { continue };
        change(checkpoint, &format!("{stem}weight"), |leaf| {
            let [rows, packed] = leaf.shape[..] else { bail!("it is not a matrix") };
            ensure!(leaf.coding == Coding::U8, "it is not packed");
            ensure!(
                scale.shape[..] == [rows, packed / 8] && (packed * 2).is_multiple_of(64),
                "its factors have shape {:?}, which does not fit",
                scale.shape
            );
            *leaf = Leaf::new(&leaf.name, leaf.bytes, Coding::Four(FourBits::Nv), &[rows, packed * 2]);
            leaf.groups = scale.bytes;
            Ok(())
        })?;
    }
    Ok(())
}

/// Converts gpt-oss's MXFP4: blocks of 32 weights with one exponent each.
fn mxfp4(checkpoint: &mut Checkpoint<'_>) -> Result<()> {
    for stem in ending(checkpoint, "_blocks") {
        let scales = format!("{stem}_scales");
        let scale = checkpoint.tensors.remove(&scales).with_context(|| format!("the tensor {scales} is missing"))?;
        change(checkpoint, &format!("{stem}_blocks"), |leaf| {
            let [experts, rows, blocks, 16] = leaf.shape[..] else { bail!("it has shape {:?}", leaf.shape) };
            ensure!(scale.shape[..] == [experts, rows, blocks], "its exponents have shape {:?}", scale.shape);
            *leaf = Leaf::new(&leaf.name, leaf.bytes, Coding::Four(FourBits::Mx), &[experts, rows, blocks * 32]);
            leaf.groups = scale.bytes;
            Ok(())
        })?;
    }
    Ok(())
}

/// Converts MXFP4 of compressed-tensors and Quark: each byte has two weights, and 32 weights have one exponent. The
/// names of the matrices end with `packed`.
fn mxfp4_matrices(checkpoint: &mut Checkpoint<'_>, packed: &str) -> Result<()> {
    for stem in ending(checkpoint, packed) {
        let (name, scales) = (format!("{stem}{packed}"), format!("{stem}weight_scale"));
        let is_bytes = |name: &str| checkpoint.tensors.get(name).is_some_and(|leaf| leaf.coding == Coding::U8);
        if !is_bytes(&name) || !is_bytes(&scales) {
            continue;
        }
        let Some(scale) = checkpoint.tensors.remove(&scales) else { continue };
        change(checkpoint, &name, |leaf| {
            let [rows, bytes] = leaf.shape[..] else { bail!("it is not a matrix") };
            let columns = bytes * 2;
            ensure!(scale.shape[..] == [rows, columns / 32], "its exponents have shape {:?}", scale.shape);
            *leaf = Leaf::new(&leaf.name, leaf.bytes, Coding::Four(FourBits::Mx), &[rows, columns]);
            leaf.groups = scale.bytes;
            Ok(())
        })?;
        rename(checkpoint, &name, &format!("{stem}weight"))?;
    }
    Ok(())
}

/// Converts BitNet's weights, which are -1, 0 or 1, with one factor for each matrix. In models of the class
/// `autobitlinear`, weights are multiplied by the factor; in all other models, they are divided by it. In the mode
/// `online` of `autobitlinear`, the checkpoint has the weights as they were trained, and the model rounds them on each
/// use.
fn ternary(checkpoint: &mut Checkpoint<'_>, settings: &Value) -> Result<()> {
    let is_automatic = settings["linear_class"] == "autobitlinear";
    ensure!(settings["use_rms_norm"] != true, "its quantization has use_rms_norm, which is not supported");
    if is_automatic && settings["quantization_mode"] == "online" {
        let kept = settings["modules_to_not_convert"].as_array();
        let is_usual = kept.is_none_or(|kept| kept.iter().all(|name| name == "lm_head"));
        ensure!(is_usual, "its quantization has modules_to_not_convert, which is not supported");
        for stem in ending(checkpoint, "_proj.weight") {
            change(checkpoint, &format!("{stem}_proj.weight"), |leaf| {
                let values = values(&Arc::new(leaf.clone()));
                let sum: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
                leaf.rounding = Some(1.0 / ((sum / values.len().max(1) as f64) as f32).max(1e-5));
                Ok(())
            })?;
        }
        return Ok(());
    }
    for stem in ending(checkpoint, "weight_scale") {
        let Some(scale) = checkpoint.tensors.remove(&format!("{stem}weight_scale")) else { continue };
        let scale = values(&scale).first().copied().unwrap_or(1.0);
        let factor = if is_automatic { scale } else { 1.0 / scale };
        change(checkpoint, &format!("{stem}weight"), |leaf| {
            let [rows, columns] = leaf.shape[..] else { bail!("it is not a matrix") };
            if leaf.coding == Coding::U8 {
                *leaf =
                    Leaf::new(&leaf.name, leaf.bytes, Coding::Ternary { rows, columns, factor }, &[rows * 4, columns]);
            } else {
                leaf.scale =
                    Some(Scale { values: vec![factor], zeros: Vec::new(), columns, block: [rows, columns], across: 1 });
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checkpoint<'f>(tensors: &[(&str, &'f [u8], Coding, &[usize])]) -> Checkpoint<'f> {
        let leaf = |(name, bytes, coding, shape): &(&str, &'f [u8], Coding, &[usize])| {
            ((*name).to_owned(), Arc::new(Leaf::new(name, bytes, coding.clone(), shape)))
        };
        Checkpoint { tensors: tensors.iter().map(leaf).collect(), ..Checkpoint::default() }
    }

    /// The matrices of a checkpoint may have different formats. The 4-bit codes 1, 2 and 9 stand for 0.5, 1 and -0.5.
    #[test]
    fn compressed_tensors_of_several_formats() {
        let two = 2f32.to_le_bytes();
        let mut checkpoint = checkpoint(&[
            ("a.weight_packed", &[0x21; 32], Coding::U8, &[1, 32]),
            ("a.weight_scale", &[0x38, 0x40, 0x38, 0x38], Coding::F8E4M3, &[1, 4]),
            ("a.weight_global_scale", &two, Coding::F32, &[1]),
            ("b.weight_packed", &[0x19; 16], Coding::U8, &[1, 16]),
            ("b.weight_scale", &[128], Coding::U8, &[1, 1]),
            ("c.weight", &[0x38; 4], Coding::F8E4M3, &[2, 2]),
            ("c.weight_scale", &[126, 129], Coding::U8, &[2, 1]),
            ("d.weight", &[3, 0xff], Coding::I8, &[1, 2]),
            ("d.weight_scale", &two, Coding::F32, &[1, 1]),
            ("d.weight_zero_point", &[1], Coding::I8, &[1, 1]),
        ]);
        compressed(&mut checkpoint, &json!({"format": "mixed-precision"})).unwrap();
        let names: Vec<&String> = checkpoint.tensors.keys().collect();
        assert_eq!(names, ["a.weight", "a.weight_scale_2", "b.weight", "c.weight", "d.weight"]);
        let first = |name: &str, count: usize| values(&checkpoint.tensors[name])[..count].to_vec();
        assert_eq!(first("a.weight", 18)[14..], [0.5, 1.0, 1.0, 2.0]);
        assert_eq!(first("a.weight_scale_2", 1), [0.5]);
        assert_eq!(first("b.weight", 2), [-1.0, 1.0]);
        assert_eq!(first("c.weight", 4), [0.5, 0.5, 4.0, 4.0]);
        assert_eq!(first("d.weight", 2), [4.0, -4.0]);
    }

    #[test]
    fn factors_of_blocks() {
        let factors_of = [1f32, 2.0].map(f32::to_le_bytes).concat();
        let mut checkpoint = checkpoint(&[
            ("a.weight", &[0x38; 4], Coding::F8E4M3, &[2, 2]),
            ("a.weight_scale", &factors_of, Coding::F32, &[2, 1, 1, 1]),
            ("b.weight", &[0x38; 4], Coding::I8, &[2, 2]),
            ("b.weight_scale_inv", &factors_of, Coding::F32, &[2, 1]),
        ]);
        factors(&mut checkpoint, "_scale", &Value::Null).unwrap();
        assert_eq!(values(&checkpoint.tensors["a.weight"]), [1.0, 1.0, 2.0, 2.0]);
        let error = fp8(&mut checkpoint, &Value::Null).unwrap_err().to_string();
        assert!(error.contains("b.weight has 4-bit floats"), "{error}");
    }

    /// The factors of a matrix's inputs multiply its columns.
    #[test]
    fn factors_of_inputs() {
        let (row, column) = ([1f32, 2.0].map(f32::to_le_bytes).concat(), [4f32, 8.0].map(f32::to_le_bytes).concat());
        let mut checkpoint = checkpoint(&[
            ("a.weight", &[3, 0xff, 1, 2], Coding::I8, &[2, 2]),
            ("a.weight_scale", &row, Coding::F32, &[2]),
            ("a.pre_quant_scale", &column, Coding::F32, &[2]),
        ]);
        factors(&mut checkpoint, "_scale", &Value::Null).unwrap();
        modelopt::inputs(&mut checkpoint).unwrap();
        assert_eq!(values(&checkpoint.tensors["a.weight"]), [12.0, -8.0, 8.0, 32.0]);
        assert_eq!(checkpoint.tensors.len(), 1);
    }

    #[test]
    fn eight_bits_of_torchao() {
        let two = 2f32.to_le_bytes();
        let mut checkpoint = checkpoint(&[
            ("a._weight_qdata", &[3, 0xff], Coding::I8, &[1, 2]),
            ("a._weight_scale", &two, Coding::F32, &[1, 1]),
            ("a._weight_zero_point", &[1], Coding::I8, &[1, 1]),
        ]);
        torchao(&mut checkpoint).unwrap();
        assert_eq!((values(&checkpoint.tensors["a.weight"]), checkpoint.tensors.len()), (vec![4.0, -4.0], 1));
        checkpoint.tensors.insert("b._weight_qdata".to_owned(), Arc::new(Leaf::new("b", &[1], Coding::U8, &[1, 1])));
        assert!(torchao(&mut checkpoint).unwrap_err().to_string().contains("b._weight_qdata"));
    }

    #[test]
    fn settings_beside_the_config() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        std::fs::write(&path, r#"{"model_type": "llama"}"#).unwrap();
        let config = Config::read(&path).unwrap();
        let none = Checkpoint::default();
        let found = || settings(&config, Some(directory.path()), &none).unwrap().map(|(method, _)| method);
        assert_eq!(found(), None);
        for (name, text, method) in [
            ("quant_config.json", r#"{"w_bit": 4}"#, "awq"),
            ("quantize_config.json", r#"{"bits": 4}"#, "gptq"),
            ("hf_quant_config.json", r#"{"producer": {"name": "modelopt"}}"#, "modelopt"),
        ] {
            std::fs::write(directory.path().join(name), text).unwrap();
            assert_eq!(found().as_deref(), Some(method));
        }
    }
}
