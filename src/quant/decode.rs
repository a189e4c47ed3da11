//! Rows of weights back to f32, exactly. One function a format, each after ggml's block struct of
//! the same name (`ggml-common.h`) and its `dequantize_row_*`.

use half::{bf16, f16};

use super::TensorType;

/// The f16 in two little-endian bytes, as f32.
#[inline]
pub(crate) fn le_f16(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32_const()
}

/// The f32 at element `i` of little-endian bytes; 0 beyond their end.
#[inline]
pub(crate) fn le_f32(bytes: &[u8], i: usize) -> f32 {
    bytes.get(i * 4..).and_then(|tail| tail.first_chunk()).map_or(0.0, |b| f32::from_le_bytes(*b))
}

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
        TensorType::F32 => each(bytes, out, |&b: &[u8; 4], [y]: &mut [f32; 1]| *y = f32::from_le_bytes(b)),
        TensorType::F16 if const { TensorType::F16.is_built() } => {
            each(bytes, out, |&b: &[u8; 2], [y]: &mut [f32; 1]| *y = le_f16(b))
        }
        TensorType::BF16 if const { TensorType::BF16.is_built() } => {
            each(bytes, out, |&b: &[u8; 2], [y]: &mut [f32; 1]| *y = bf16::from_le_bytes(b).to_f32_const());
        }
        TensorType::Q8_0 if const { TensorType::Q8_0.is_built() } => each(bytes, out, q8_0),
        TensorType::Q4_0 if const { TensorType::Q4_0.is_built() } => each(bytes, out, q4_0),
        TensorType::Q6_K if const { TensorType::Q6_K.is_built() } => each(bytes, out, q6_k),
        _ => return false,
    }
    true
}

/// Runs `block` on every block of `B` bytes and its `N` elements.
#[inline]
fn each<const B: usize, const N: usize>(bytes: &[u8], out: &mut [f32], block: impl Fn(&[u8; B], &mut [f32; N])) {
    for (b, y) in bytes.as_chunks::<B>().0.iter().zip(out.as_chunks_mut::<N>().0) {
        block(b, y);
    }
}

/// 32 weights: f16 scale, 32 signed bytes.
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let [d0, d1, q @ ..] = block;
    let d = le_f16([*d0, *d1]);
    for (y, &q) in out.iter_mut().zip(q) {
        *y = d * f32::from(q as i8);
    }
}

/// 32 weights: f16 scale, 16 bytes; the low nibbles are the first half, each less 8.
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let [d0, d1, q @ ..] = block;
    let d = le_f16([*d0, *d1]);
    let (low, high) = out.split_at_mut(16);
    for ((&q, a), b) in q.iter().zip(low).zip(high) {
        *a = d * (f32::from(q & 15) - 8.0);
        *b = d * (f32::from(q >> 4) - 8.0);
    }
}

/// 256 weights in 210 bytes: 4 low bits each, 2 high bits each, a signed scale for every 16, an
/// f16 scale for all.
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let block = Q6K::new(block);
    for (i, y) in out.iter_mut().enumerate() {
        *y = block.d * f32::from(block.scale(i / 16)) * f32::from(block.quant(i));
    }
}

/// A Q6_K super-block, taken apart.
pub(crate) struct Q6K<'a> {
    low: &'a [u8; 128],
    high: &'a [u8; 64],
    scales: &'a [u8; 16],
    /// The scale of the whole super-block.
    pub d: f32,
}

impl<'a> Q6K<'a> {
    pub fn new(block: &'a [u8; 210]) -> Self {
        let (low, rest) = block.split_first_chunk::<128>().unwrap_or((&[0; 128], &[]));
        let (high, rest) = rest.split_first_chunk::<64>().unwrap_or((&[0; 64], &[]));
        let (scales, rest) = rest.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
        Self { low, high, scales, d: rest.first_chunk().map_or(0.0, |d| le_f16(*d)) }
    }

    /// The scale of elements `16 * i ..`, `i < 16`.
    #[inline]
    pub fn scale(&self, i: usize) -> i8 {
        self.scales[i % 16] as i8
    }

    /// Element `i < 256`, from -32 to 31. Each half of 128 has 64 low bytes and 32 high bytes;
    /// quarter `k` of the half takes a nibble (`k / 2`) and two bits (`2 * k`).
    #[inline]
    pub fn quant(&self, i: usize) -> i8 {
        let (half, k, l) = (i / 128 % 2, i / 32 % 4, i % 32);
        let nibble = self.low[half * 64 + (k % 2) * 32 + l] >> (4 * (k / 2)) & 15;
        let bits = self.high[half * 32 + l] >> (2 * k) & 3;
        (nibble | bits << 4) as i8 - 32
    }
}
