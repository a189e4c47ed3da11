//! Encoding rows of f32 into the types that a device may need to write: the float types, Q8_0 and Q4_0.
//!
//! Each block has the same bytes as a block from ggml's `quantize_row_*_ref` (`ggml-quants.c`). Encoders that search
//! for the best scales are in the command-line program.

use half::{bf16, f16};

use super::TensorType;

/// Encodes the row `x` into `out`, rounding each weight once. Returns `false` if this build has no encoder for `kind`,
/// or if `out` is not exactly a row of `x.len()` elements.
///
/// # Examples
///
/// ```
/// use arenite::quant::{TensorType, decode_row, encode_row};
/// let row: [f32; 32] = core::array::from_fn(|i| i as f32 - 15.5);
/// let (mut bytes, mut back) = ([0; 34], [0.0; 32]);
/// assert!(encode_row(TensorType::Q8_0, &row, &mut bytes));
/// assert!(decode_row(TensorType::Q8_0, &bytes, &mut back));
/// assert!(row.iter().zip(back).all(|(x, y)| (x - y).abs() < 0.07)); // half of 15.5 / 127
/// ```
pub fn encode_row(kind: TensorType, x: &[f32], out: &mut [u8]) -> bool {
    if kind.row_bytes(x.len()) != Some(out.len()) {
        return false;
    }
    match kind {
        TensorType::F32 => each(x, out, |&[x]: &[f32; 1], out: &mut [u8; 4]| *out = x.to_le_bytes()),
        TensorType::F16 => each(x, out, |&[x]: &[f32; 1], out: &mut [u8; 2]| *out = f16::from_f32(x).to_le_bytes()),
        TensorType::BF16 => each(x, out, |&[x]: &[f32; 1], out: &mut [u8; 2]| *out = bf16::from_f32(x).to_le_bytes()),
        TensorType::Q8_0 => each(x, out, q8_0),
        TensorType::Q4_0 => each(x, out, q4_0),
        _ => return false,
    }
    true
}

/// Divides `x` into blocks of `N` elements, and `out` into blocks of `B` bytes. Calls `block` with each pair of blocks,
/// to write the bytes of the elements.
fn each<const N: usize, const B: usize>(x: &[f32], out: &mut [u8], block: impl Fn(&[f32; N], &mut [u8; B])) {
    for (x, out) in x.as_chunks::<N>().0.iter().zip(out.as_chunks_mut::<B>().0) {
        block(x, out);
    }
}

/// `1 / d`, or 0 for a block of zeros.
fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Quantizes a block to Q8_0. The largest magnitude becomes 127; halves are rounded away from zero.
fn q8_0(x: &[f32; 32], out: &mut [u8; 34]) {
    let [d0, d1, codes @ ..] = out;
    let d = x.iter().fold(0.0, |top: f32, x| top.max(x.abs())) / 127.0;
    let id = inverse(d);
    [*d0, *d1] = f16::from_f32(d).to_le_bytes();
    for (code, x) in codes.iter_mut().zip(x) {
        *code = libm::roundf(x * id) as i8 as u8;
    }
}

/// Quantizes a block to Q4_0. The weight with the largest magnitude (the first, if there are several) becomes -8, which
/// is code 0. The scale therefore has the opposite sign of that weight.
fn q4_0(x: &[f32; 32], out: &mut [u8; 18]) {
    let [d0, d1, codes @ ..] = out;
    let d = x.iter().fold(0.0, |top: f32, &x| if x.abs() > top.abs() { x } else { top }) / -8.0;
    let id = inverse(d);
    [*d0, *d1] = f16::from_f32(d).to_le_bytes();
    let code = |x: &f32| ((x * id + 8.5) as u8).min(15);
    let (low, high) = x.split_at(16);
    for ((byte, low), high) in codes.iter_mut().zip(low).zip(high) {
        *byte = code(low) | code(high) << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_rows_are_encoded() {
        assert!(!encode_row(TensorType::Q8_0, &[0.0; 31], &mut [0; 34]));
        assert!(!encode_row(TensorType::Q8_0, &[0.0; 32], &mut [0; 33]));
        assert!(!encode_row(TensorType::Q6_K, &[0.0; 256], &mut [0; 210]));
        assert!(encode_row(TensorType::F16, &[], &mut []));
    }

    #[test]
    fn halves_of_q8_0_go_away_from_zero() {
        let mut x = [0.0; 32];
        x[..3].copy_from_slice(&[127.0, 0.5, -2.5]); // a scale of 1
        let mut out = [0; 34];
        assert!(encode_row(TensorType::Q8_0, &x, &mut out));
        assert_eq!(out[..6], [0x00, 0x3c, 127, 1, 253, 0]);
    }

    #[test]
    fn zeros_are_zeros() {
        let (mut q8_0, mut q4_0) = ([9; 34], [9; 18]);
        assert!(encode_row(TensorType::Q8_0, &[0.0; 32], &mut q8_0));
        assert!(encode_row(TensorType::Q4_0, &[0.0; 32], &mut q4_0));
        assert_eq!(q8_0, [0; 34]);
        assert_eq!(q4_0[2..], [0x88; 16]);
    }
}
