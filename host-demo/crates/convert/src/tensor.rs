//! Tensors in memory, for conversions.

use std::borrow::Cow;

use arenite::quant::TensorType;
use half::{bf16, f16};

/// A tensor to be written.
pub struct Tensor<'s> {
    pub name: String,
    /// Dimensions, the contiguous one first.
    pub dims: Vec<u64>,
    pub kind: TensorType,
    pub bytes: Cow<'s, [u8]>,
}

impl Tensor<'_> {
    /// Converts a matrix to q8_0 if each row consists of whole blocks. Other tensors stay unchanged.
    pub fn into_q8_0(self) -> Self {
        let values: Vec<f32> = match (self.dims.as_slice(), self.kind) {
            ([row, _], _) if row % 32 != 0 => return self,
            ([_, _], TensorType::F32) => self.bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            ([_, _], TensorType::F16) => halves(&self.bytes, |b| f16::from_le_bytes(b).to_f32()).collect(),
            ([_, _], TensorType::BF16) => halves(&self.bytes, |b| bf16::from_le_bytes(b).to_f32()).collect(),
            _ => return self,
        };
        let bytes: Vec<u8> = values.as_chunks().0.iter().flat_map(q8_0).collect();
        Self { kind: TensorType::Q8_0, bytes: bytes.into(), ..self }
    }
}

/// Encodes 32 values as a block of q8_0, with the same bytes as ggml's reference: the scale, then the codes.
fn q8_0(values: &[f32; 32]) -> [u8; 34] {
    let d = values.iter().fold(0.0f32, |max, v| max.max(v.abs())) / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut block = [0; 34];
    let (scale, numbers) = block.split_at_mut(2);
    scale.copy_from_slice(&f16::from_f32(d).to_le_bytes());
    for (number, value) in numbers.iter_mut().zip(values) {
        *number = (value * inverse).round() as i8 as u8;
    }
    block
}

/// Converts the values of a 16-bit tensor.
pub fn halves(data: &[u8], f: impl Fn([u8; 2]) -> f32) -> impl Iterator<Item = f32> {
    data.as_chunks().0.iter().map(move |b| f(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values come from `gguf.quants.quantize` in llama.cpp's Python package.
    #[test]
    fn blocks_are_rounded_as_in_ggml() {
        let values: [f32; 32] = std::array::from_fn(|i| ((i * i * 7 % 41) as f32 - 20.0) / 8.0);
        let expected = [
            10, 37, 129, 173, 51, 13, 64, 199, 167, 224, 114, 89, 148, 44, 25, 95, 250, 237, 57, 218, 212, 38, 205,
            205, 38, 212, 218, 57, 237, 250, 95, 25, 44, 148,
        ];
        assert_eq!(q8_0(&values), expected);
        assert_eq!(q8_0(&[0.0; 32]), [0; 34]);
    }
}
