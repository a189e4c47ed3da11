//! Decoding rows of weights to f32, exactly.

use half::{bf16, f16};

use super::format::codes;
use super::formats_list;
use super::{Format, TensorType, formats};

/// Decodes a little-endian f16 to f32.
#[inline]
pub(crate) fn le_f16(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32_const()
}

/// Returns the f32 number `i` of little-endian bytes. 0 if `i` is past the end of the bytes.
#[inline]
pub(crate) fn le_f32(bytes: &[u8], i: usize) -> f32 {
    bytes.get(i * 4..).and_then(|tail| tail.first_chunk()).map_or(0.0, |b| f32::from_le_bytes(*b))
}

macro_rules! decode_row {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        /// Decodes the row in `bytes` into `out`; `false` if this build has no decoder for `kind` or if
        /// `bytes` is not a row of `out.len()` elements.
        ///
        /// # Examples
        ///
        /// ```
        /// use arenite::quant::{TensorType, decode_row};
        /// let mut row = [0.0; 2];
        /// assert!(decode_row(TensorType::F16, &[0x00, 0x3c, 0x00, 0xc0], &mut row));
        /// assert_eq!(row, [1.0, -2.0]);
        /// ```
        pub fn decode_row(kind: TensorType, bytes: &[u8], out: &mut [f32]) -> bool {
            if kind.row_bytes(out.len()) != Some(bytes.len()) {
                return false;
            }
            match kind {
                TensorType::F32 => floats(bytes, out, f32::from_le_bytes),
                TensorType::F16 if const { TensorType::F16.is_built() } => floats(bytes, out, le_f16),
                TensorType::BF16 if const { TensorType::BF16.is_built() } => {
                    floats(bytes, out, |b| bf16::from_le_bytes(b).to_f32_const());
                }
                $(
                    TensorType::$name if const { TensorType::$name.is_built() } => {
                        blocks::<formats::$module::$format>(bytes, out);
                    }
                )*
                _ => return false,
            }
            true
        }
    };
}
formats_list!(decode_row);

#[inline]
fn floats<const N: usize>(bytes: &[u8], out: &mut [f32], float: impl Fn([u8; N]) -> f32) {
    for (b, y) in bytes.as_chunks().0.iter().zip(out) {
        *y = float(*b);
    }
}

/// Decodes blocks, weight by weight, by the formula that [`Format`] gives.
fn blocks<F: Format>(bytes: &[u8], out: &mut [f32]) {
    let blocks: &[F::Block] = bytemuck::try_cast_slice(bytes).unwrap_or_default();
    for (block, out) in blocks.iter().zip(out.chunks_exact_mut(F::ELEMENTS)) {
        let m = F::m(block, le_f16);
        let mut scales = F::scales(block).into_iter();
        let mut minimums = F::minimums(block).into_iter();
        for (chunk, out) in out.chunks_exact_mut(32).enumerate() {
            let codes = codes::<F>(block, chunk);
            for (group, (codes, out)) in codes.chunks(F::GROUP).zip(out.chunks_mut(F::GROUP)).enumerate() {
                let d = F::d(block, chunk * 32 + group * F::GROUP, le_f16);
                let d = d * f32::from(scales.next().unwrap_or(1));
                let m = m * f32::from(minimums.next().unwrap_or(1));
                for (&code, y) in codes.iter().zip(out) {
                    *y = d * (f32::from(code) - f32::from(F::BIAS));
                    if F::M.is_some() {
                        *y += m;
                    }
                }
            }
        }
    }
}
