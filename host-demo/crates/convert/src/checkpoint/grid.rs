//! Stores weights in GGUF's blocks of 32 weights without loss, if another program has quantized the weights to
//! integers. This is possible if each block lies in one group and F16 can represent the factor of the group. Q4_0, Q5_0
//! and Q8_0 store the code minus the zero of the group; Q4_1 and Q5_1 store the code, and the bias of the group.

use arenite::quant::TensorType;
use half::f16;

use super::leaf::{Coding, Groups, Leaf, Packed, Scale};
use super::view::View;

/// Number of weights in a block.
const BLOCK: usize = 32;

/// A weight before its factor, `code * scale + bias`.
#[derive(Clone, Copy, PartialEq)]
pub struct Weight {
    pub code: i32,
    pub scale: f16,
    pub bias: f16,
}

/// The smallest and the largest code of each type.
const WITHOUT_BIAS: [(TensorType, [f32; 2]); 3] =
    [(TensorType::Q4_0, [-8.0, 7.0]), (TensorType::Q5_0, [-16.0, 15.0]), (TensorType::Q8_0, [-128.0, 127.0])];
const WITH_BIAS: [(TensorType, usize); 2] = [(TensorType::Q4_1, 4), (TensorType::Q5_1, 5)];

/// Returns true if type `kind` can represent all values of type `grid` exactly.
pub fn holds(kind: TensorType, grid: TensorType) -> bool {
    let place = |kind| WITHOUT_BIAS.iter().position(|(other, _)| *other == kind);
    let with_bias = |kind| WITH_BIAS.iter().position(|(other, _)| *other == kind);
    place(kind) >= place(grid) && place(grid).is_some()
        || with_bias(kind) >= with_bias(grid) && with_bias(grid).is_some()
}

fn is_half(value: f32) -> bool {
    value.is_finite() && f16::from_f32(value).to_f32() == value
}

/// Returns the smallest type that holds all integers from `low` to `high` and that has no bias for its groups.
fn without_bias(low: f32, high: f32) -> Option<TensorType> {
    WITHOUT_BIAS.iter().find(|(_, [least, most])| *least <= low && high <= *most).map(|(kind, _)| *kind)
}

impl Packed<'_> {
    /// Returns the smallest type of GGUF that holds all weights of a matrix of `rows` rows without loss. `None` if
    /// there is none.
    fn grid(&self, rows: usize) -> Option<TensorType> {
        let (size, lines) = match self.groups {
            Groups::OfColumns(size) => (size, rows),
            Groups::Flat(size) => (size, 1),
            Groups::Listed(_) | Groups::Apart(_) => return None,
        };
        if !size.is_multiple_of(BLOCK) || !self.columns.is_multiple_of(BLOCK) || self.book.is_some() {
            return None;
        }
        let groups = if lines == 1 { (rows * self.columns).div_ceil(size) } else { self.columns.div_ceil(size) };
        let mut zeros = [f32::MAX, f32::MIN];
        for (line, group) in (0..lines).flat_map(|line| (0..groups).map(move |group| (line, group))) {
            let (scale, zero, bias) = self.factors(line, group);
            if !is_half(scale) || !is_half(bias.unwrap_or(0.0)) || zero.fract() != 0.0 {
                return None;
            }
            zeros = [zeros[0].min(zero), zeros[1].max(zero)];
        }
        let most = (1 << self.codes.bits) - 1;
        if self.biases.is_none() {
            return without_bias(-zeros[1], most as f32 - zeros[0]);
        }
        let kind = WITH_BIAS.iter().find(|(_, bits)| self.codes.bits <= *bits).map(|(kind, _)| *kind);
        kind.filter(|_| zeros == [0.0; 2])
    }
}

impl Scale {
    /// Returns the smallest type of GGUF that holds all weights without loss, if the weights are 8-bit integers.
    fn grid(&self) -> Option<TensorType> {
        let is_whole = self.columns.is_multiple_of(BLOCK) && self.block[1].is_multiple_of(BLOCK);
        let zeros = self.zeros.iter().fold([0f32; 2], |[low, high], zero| [low.min(*zero), high.max(*zero)]);
        let is_exact =
            self.values.iter().all(|value| is_half(*value)) && self.zeros.iter().all(|zero| zero.fract() == 0.0);
        without_bias(-128.0 - zeros[1], 127.0 - zeros[0]).filter(|_| is_whole && is_exact)
    }
}

impl Leaf<'_> {
    /// Returns the smallest type of GGUF that holds the weights without loss. `None` if the weights are not integers,
    /// or if a block of the type would lie in more than one group.
    fn grid(&self) -> Option<TensorType> {
        if self.of_columns.is_some() {
            return None;
        }
        match (&self.coding, &self.packed, &self.scale) {
            (Coding::Packed, Some(packed), None) => {
                packed.grid(self.shape.iter().product::<usize>() / packed.columns.max(1))
            }
            (Coding::I8, None, Some(scale)) => scale.grid(),
            _ => None,
        }
    }

    fn weight(&self, at: usize) -> Weight {
        let half = |scale: f32, bias: f32| (f16::from_f32(scale), f16::from_f32(bias));
        if let Some(packed) = &self.packed {
            let (code, [scale, zero, bias]) = packed.weight(at);
            let (scale, bias) = half(scale, bias);
            return Weight { code: code as i32 - zero as i32, scale, bias };
        }
        let code = self.bytes.get(at).map_or(0, |byte| i32::from(*byte as i8));
        let [scale, zero] = self.scale.as_ref().map_or([1.0, 0.0], |scale| scale.at(at));
        Weight { code: code - zero as i32, scale: f16::from_f32(scale), bias: f16::ZERO }
    }
}

impl View<'_> {
    /// The smallest type of GGUF that holds the weights without loss; `None` unless the weights are integers and each
    /// block of a row lies in one group.
    pub fn grid(&self) -> Option<TensorType> {
        self.has_whole_blocks(BLOCK).then(|| self.leaf().grid()).flatten()
    }

    /// Writes the weights from index `start` on as blocks of type `kind`, which can represent them without loss.
    pub fn write_grid(&self, kind: TensorType, start: usize, out: &mut [u8]) {
        let bytes = kind.block().1;
        self.runs(start, out.len() / bytes * BLOCK, |at, place, len, _| {
            for (block, out) in
                (place..place + len).step_by(BLOCK).zip(out[at / BLOCK * bytes..].chunks_exact_mut(bytes))
            {
                write_block(kind, std::array::from_fn(|i| self.leaf().weight(block + i)), out);
            }
        });
    }
}

/// Writes a block of weights with one scale and one bias.
fn write_block(kind: TensorType, weights: [Weight; BLOCK], out: &mut [u8]) {
    let Weight { scale, bias, .. } = weights[0];
    let mut out = out.iter_mut();
    let mut put = |bytes: &[u8]| bytes.iter().zip(&mut out).for_each(|(byte, out)| *out = *byte);
    put(&scale.to_le_bytes());
    let is_biased = matches!(kind, TensorType::Q4_1 | TensorType::Q5_1);
    if is_biased {
        put(&bias.to_le_bytes());
    }
    if kind == TensorType::Q8_0 {
        return put(&weights.map(|weight| weight.code as u8));
    }
    let is_five = matches!(kind, TensorType::Q5_0 | TensorType::Q5_1);
    let offset = match (is_biased, is_five) {
        (true, _) => 0,
        (_, true) => 16,
        _ => 8,
    };
    let codes = weights.map(|weight| (weight.code + offset) as u32);
    if is_five {
        let high = (0..).zip(codes).fold(0u32, |high, (i, code)| high | (code >> 4 & 1) << i);
        put(&high.to_le_bytes());
    }
    let (low, high) = codes.split_at(BLOCK / 2);
    put(&std::array::from_fn::<u8, { BLOCK / 2 }, _>(|i| (low[i] & 15 | (high[i] & 15) << 4) as u8));
}
