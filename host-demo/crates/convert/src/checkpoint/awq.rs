//! Reads AWQ's weights, which have three versions.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::access::ending;
use super::integers::{group_size, need, put, sizes, take};
use super::leaf::{Codes, Coding, Factors, Groups, Order, Packed, Zeros};
use super::tensors::Checkpoint;

/// Converts AWQ's matrices. In the version `gemm`, each line of packed words belongs to one input; in the other
/// versions, each line belongs to one output.
pub fn prepare(checkpoint: &mut Checkpoint<'_>, settings: &Value) -> Result<()> {
    let version = settings["version"].as_str().unwrap_or("gemm").to_ascii_lowercase();
    for stem in ending(checkpoint, "qweight") {
        let (shape, packed) = match version.as_str() {
            "gemm" => gemm(checkpoint, &stem, settings)?,
            "gemv" => gemv(checkpoint, &stem, settings)?,
            "gemv_fast" => gemv_fast(checkpoint, &stem, settings)?,
            other => bail!("its quantization has the version {other}: gemm, gemv and gemv_fast are supported"),
        };
        put(checkpoint, &format!("{stem}weight"), &shape, packed)?;
    }
    Ok(())
}

fn gemm<'f>(checkpoint: &mut Checkpoint<'f>, stem: &str, settings: &Value) -> Result<([usize; 2], Packed<'f>)> {
    let codes = need(checkpoint, &format!("{stem}qweight"))?;
    let scales = need(checkpoint, &format!("{stem}scales"))?;
    let zeros = take(checkpoint, &format!("{stem}qzeros"));
    let [columns, words] = sizes(&codes)?;
    let rows = words * 8;
    let [groups, width] = scales.shape[..] else { bail!("the tensor {} is not a matrix", scales.name) };
    let size = group_size(settings, columns);
    ensure!(
        width == rows && groups == columns.div_ceil(size),
        "the factors of {} have shape {:?}, which does not fit",
        codes.name,
        scales.shape
    );
    let zeros = match zeros {
        Some(zeros) => {
            ensure!(sizes(&zeros)? == [groups, words], "the tensor {} has shape {:?}", zeros.name, zeros.shape);
            Zeros::Packed(Codes { bytes: zeros.bytes, bits: 4, order: Order::Awq { words } })
        }
        None => Zeros::Constant(8.0),
    };
    let packed = Packed {
        codes: Codes { bytes: codes.bytes, bits: 4, order: Order::Awq { words } },
        columns,
        groups: Groups::OfColumns(size),
        scales: Factors { leaf: scales, groups, rows: Some(rows), nested: None },
        zeros,
        biases: None,
        book: None,
    };
    Ok(([rows, columns], packed))
}

/// The factors of a row are padded to whole words of zeros.
fn gemv<'f>(checkpoint: &mut Checkpoint<'f>, stem: &str, settings: &Value) -> Result<([usize; 2], Packed<'f>)> {
    let codes = need(checkpoint, &format!("{stem}qweight"))?;
    let scales = need(checkpoint, &format!("{stem}scales"))?;
    let zeros = need(checkpoint, &format!("{stem}qzeros"))?;
    let [rows, words] = sizes(&codes)?;
    let (columns, [height, zero_words]) = (words * 8, sizes(&zeros)?);
    let size = group_size(settings, columns);
    ensure!(
        height == rows && scales.shape[..] == [rows, zero_words * 8] && columns.div_ceil(size) <= zero_words * 8,
        "the factors of {} have shape {:?}, which does not fit",
        codes.name,
        scales.shape
    );
    let packed = Packed {
        codes: Codes { bytes: codes.bytes, bits: 4, order: Order::Lines { words } },
        columns,
        groups: Groups::OfColumns(size),
        scales: Factors { leaf: scales, groups: zero_words * 8, rows: None, nested: None },
        zeros: Zeros::PackedRows(Codes { bytes: zeros.bytes, bits: 4, order: Order::Lines { words: zero_words } }),
        biases: None,
        book: None,
    };
    Ok(([rows, columns], packed))
}

/// Reads matrices of AWQ's version `gemv_fast`. In this version, the tensor `qzeros` has the products of the zeros and
/// the scales instead of the zeros.
fn gemv_fast<'f>(checkpoint: &mut Checkpoint<'f>, stem: &str, settings: &Value) -> Result<([usize; 2], Packed<'f>)> {
    let codes = need(checkpoint, &format!("{stem}qweight"))?;
    let scales = need(checkpoint, &format!("{stem}scales"))?;
    let biases = need(checkpoint, &format!("{stem}qzeros"))?;
    let [quarter, columns] = codes.shape[..] else { bail!("the tensor {} is not a matrix", codes.name) };
    let (rows, size) = (quarter * 4, group_size(settings, columns));
    let [groups, width] = scales.shape[..] else { bail!("the tensor {} is not a matrix", scales.name) };
    ensure!(
        codes.coding == Coding::I16
            && columns.is_multiple_of(64)
            && width == rows
            && groups >= columns.div_ceil(size)
            && biases.shape == scales.shape,
        "the factors of {} have shape {:?}, which does not fit",
        codes.name,
        scales.shape
    );
    let factors = |leaf| Factors { leaf, groups, rows: Some(rows), nested: None };
    let packed = Packed {
        codes: Codes { bytes: codes.bytes, bits: 4, order: Order::AwqFast { columns } },
        columns,
        groups: Groups::OfColumns(size),
        scales: factors(scales),
        zeros: Zeros::Constant(0.0),
        biases: Some(factors(biases)),
        book: None,
    };
    Ok(([rows, columns], packed))
}
