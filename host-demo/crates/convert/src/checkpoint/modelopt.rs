//! Reads the formats that only NVIDIA's ModelOpt has: 4-bit integers (W4A16_AWQ, W4A8_AWQ) and factors of a matrix's
//! inputs. Each row of bytes has the integers of two rows, and each group of columns has a factor.

use anyhow::{Result, ensure};

use super::access::{change, ending, values};
use super::integers::{need, put, take};
use super::leaf::{Codes, Coding, Factors, Groups, Order, Packed, Zeros};
use super::tensors::Checkpoint;

/// The integers of the codes: two's complement.
const BOOK: [f32; 16] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0];

/// Converts the matrices of 4-bit integers.
pub fn integers(checkpoint: &mut Checkpoint<'_>) -> Result<()> {
    for stem in ending(checkpoint, "weight_scale") {
        let (name, scale) = (format!("{stem}weight"), format!("{stem}weight_scale"));
        let shape = |name: &str, coding: Coding| {
            let leaf = checkpoint.tensors.get(name).filter(|leaf| leaf.coding == coding)?;
            <[usize; 2]>::try_from(leaf.shape.as_slice()).ok()
        };
        // The factors of 4-bit floats are 8-bit floats.
        let (Some([half, columns]), Some([rows, groups])) = (shape(&name, Coding::U8), shape(&scale, Coding::F32))
        else {
            continue;
        };
        ensure!(
            rows == half * 2 && groups > 0 && columns.is_multiple_of(groups),
            "the factors of {name} have shape {:?}, which does not fit",
            [rows, groups]
        );
        let (codes, scales) = (need(checkpoint, &name)?, need(checkpoint, &scale)?);
        // `weight_scale_2` is dropped, because the factors of groups already include it. ModelOpt stores it separately
        // only for its kernels.
        take(checkpoint, &format!("{stem}weight_scale_2"));
        let packed = Packed {
            codes: Codes { bytes: codes.bytes, bits: 4, order: Order::RowPairs { columns } },
            columns,
            groups: Groups::OfColumns(columns / groups),
            scales: Factors { leaf: scales, groups, rows: None, nested: None },
            zeros: Zeros::Constant(0.0),
            biases: None,
            book: Some(BOOK.to_vec()),
        };
        put(checkpoint, &name, &[rows, columns], packed)?;
    }
    Ok(())
}

/// Multiplies each matrix's columns by `pre_quant_scale`. In ModelOpt's models, the inputs of the matrix are multiplied
/// by these factors.
pub fn inputs(checkpoint: &mut Checkpoint<'_>) -> Result<()> {
    for stem in ending(checkpoint, "pre_quant_scale") {
        let factors = values(&need(checkpoint, &format!("{stem}pre_quant_scale"))?);
        change(checkpoint, &format!("{stem}weight"), |leaf| {
            let is_whole = leaf.shape.last() == Some(&factors.len()) && !factors.is_empty();
            ensure!(is_whole, "its pre_quant_scale has {} values", factors.len());
            leaf.of_columns = Some(factors.into());
            Ok(())
        })?;
    }
    Ok(())
}
