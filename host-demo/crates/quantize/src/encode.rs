//! Encodes rows of weights. The table in this module lists every type that can be written.

use arenite::quant::{TensorType, encode_row};

use super::{iq1, iq4, k_quants, lattice, simple};

/// Encodes `row` as one row of type `kind` into `out`, which must have exactly the size of such a row. `importance` has
/// the weight of the error in each column. Returns `false` if `kind` has no encoder, or if its encoder needs an
/// importance matrix and there is none.
pub fn encode(kind: TensorType, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    use TensorType::*;
    if kind.row_bytes(row.len()) != Some(out.len()) || importance.is_some_and(|columns| columns.len() != row.len()) {
        return false;
    }
    if importance.is_none() && needs_importance(kind) {
        return false;
    }
    match kind {
        Q4_0 if importance.is_some() => simple::centred::<4>(row, importance, out),
        Q5_0 => simple::centred::<5>(row, importance, out),
        Q4_1 => simple::with_minimum::<4>(row, importance, out),
        Q5_1 => simple::with_minimum::<5>(row, importance, out),
        MXFP4 => simple::mxfp4(row, out),
        NVFP4 => simple::nvfp4(row, out),
        Q1_0 => simple::q1_0(row, out),
        Q2_0 => simple::q2_0(row, out),
        TQ1_0 => simple::tq1_0(row, out),
        TQ2_0 => simple::tq2_0(row, out),
        Q2_K => k_quants::q2_k(row, importance, out),
        Q3_K => k_quants::q3_k(row, importance, out),
        Q4_K => k_quants::q4_k(row, importance, out),
        Q5_K => k_quants::q5_k(row, importance, out),
        Q6_K => k_quants::q6_k(row, importance, out),
        IQ4_NL => iq4::iq4_nl(row, importance, out),
        IQ4_XS => iq4::iq4_xs(row, importance, out),
        IQ3_XXS => lattice::IQ3_XXS.encode(row, importance, out),
        IQ3_S => lattice::IQ3_S.encode(row, importance, out),
        IQ2_XXS => lattice::IQ2_XXS.encode(row, importance, out),
        IQ2_XS => lattice::IQ2_XS.encode(row, importance, out),
        IQ2_S => lattice::IQ2_S.encode(row, importance, out),
        IQ1_S => iq1::iq1_s(row, importance, out),
        IQ1_M => iq1::iq1_m(row, importance, out),
        _ => return encode_row(kind, row, out),
    }
    true
}

/// Returns true if this type cannot be encoded without an importance matrix.
pub fn needs_importance(kind: TensorType) -> bool {
    matches!(kind, TensorType::IQ2_XXS | TensorType::IQ2_XS | TensorType::IQ1_S)
}
