//! Rotary positions: computes frequencies once, angles per batch, and rotates heads.
//!
//! Values are computed in f32, as by the reference implementations: `frequency = 1 / base^(2i / dim)`, `angle =
//! position * frequency`.

use super::angle::sine_cosine;
use super::rows_mut;
use crate::kernel::rotate_pairs;
#[cfg(feature = "vision")]
use crate::model::Sections;
use crate::model::{Role, Rope, RopeStyle, Scaling, Spec, Weights};
use crate::quant::le_f32;

/// The rotary frequencies of one kind of heads (global or local), and the cosines and sines for the rows of a pass.
#[derive(Default)]
pub(crate) struct Rotary<'w> {
    rope: Option<Rope>,
    /// `dim / 2` frequencies, in radians per position.
    frequencies: &'w [f32],
    /// The rotations of each row of a pass: `dim / 2` cosines, then `dim / 2` sines.
    rotations: &'w mut [f32],
    /// Factor on cosines and sines.
    magnitude: f32,
}

impl<'w> Rotary<'w> {
    /// Creates the rotations for a kind of heads (0: global, 1: local) in a context of this many positions.
    #[inline(never)]
    pub fn new(
        spec: &Spec<'_>,
        kind: usize,
        context: usize,
        weights: &Weights<'_, '_>,
        frequencies: &'w mut [f32],
        rotations: &'w mut [f32],
    ) -> Self {
        let Some(rope) = spec.rope(kind > 0) else { return Self::default() };
        // The divisors in the file are for global layers. Local layers use them only if the global layers have no
        // rotary positions.
        let divisors = match rope.scaling {
            _ if kind > 0 && spec.rope(false).is_some() => &[],
            Scaling::Long { original, .. } if context > original => weights.vector(Role::RopeFactorsLong, 0),
            Scaling::Long { .. } => weights.vector(Role::RopeFactorsShort, 0),
            _ => weights.vector(Role::RopeFreqs, 0),
        };
        let scaled = Scaled::new(&rope);
        for (i, frequency) in frequencies.iter_mut().enumerate() {
            let plain = 1.0 / libm::powf(rope.base, (2 * i) as f32 / rope.dim as f32);
            let divisor = if divisors.is_empty() { 1.0 } else { le_f32(divisors, i) };
            *frequency = scaled.frequency(i, plain / divisor);
        }
        let magnitude = match rope.scaling {
            Scaling::None | Scaling::Linear { .. } => 1.0,
            Scaling::Yarn { magnitude: Some(magnitude), .. } => magnitude,
            Scaling::Yarn { factor, attn_factor, log_multiplier, .. } => {
                let growth = 0.1 * libm::logf(factor);
                attn_factor * (1.0 + growth) / (1.0 + log_multiplier * growth)
            }
            Scaling::Long { attn_factor, .. } => attn_factor,
        };
        Self { rope: Some(rope), frequencies, rotations, magnitude }
    }

    /// Computes the rotations of `tokens` rows for consecutive positions. The first one is row `first`, whose position
    /// is `position`.
    pub fn turn_to(&mut self, first: usize, position: usize, tokens: usize) {
        let half = self.frequencies.len();
        if half == 0 {
            return;
        }
        for (t, rotation) in rows_mut(self.rotations, 2 * half).skip(first).take(tokens).enumerate() {
            let Some((cos, sin)) = rotation.split_at_mut_checked(half) else { return };
            for ((frequency, cos), sin) in self.frequencies.iter().zip(cos).zip(sin) {
                let angle = (position + t) as f32 * frequency;
                let (s, c) = sine_cosine(angle);
                *cos = c * self.magnitude;
                *sin = s * self.magnitude;
            }
        }
    }

    /// Computes rotations in row 0 by which heads that were rotated for position `from` become heads for position `to`.
    pub fn turn_from(&mut self, from: usize, to: usize) {
        let half = self.frequencies.len();
        let rotation = self.rotations.get_mut(..2 * half).unwrap_or_default();
        let Some((cos, sin)) = rotation.split_at_mut_checked(half) else { return };
        let distance = to as f32 - from as f32;
        for ((frequency, cos), sin) in self.frequencies.iter().zip(cos).zip(sin) {
            (*sin, *cos) = sine_cosine(distance * frequency);
        }
    }

    /// Computes the rotations of row `row`, in which each pair of elements rotates by the row's position on one of
    /// several axes.
    #[cfg(feature = "vision")]
    pub fn turn_axes(&mut self, row: usize, axes: [usize; 3], sections: Sections) {
        let half = self.frequencies.len();
        let Some(rotation) = self.rotations.get_mut(2 * half * row..2 * half * (row + 1)) else { return };
        let Some((cos, sin)) = rotation.split_at_mut_checked(half) else { return };
        for (i, ((frequency, cos), sin)) in self.frequencies.iter().zip(cos).zip(sin).enumerate() {
            let position = axes.get(sections.axis(i)).copied().unwrap_or(0);
            let (s, c) = sine_cosine(position as f32 * frequency);
            (*cos, *sin) = (c * self.magnitude, s * self.magnitude);
        }
    }

    /// Rotates heads of `dim` elements of row `t` in place.
    pub fn rotate(&self, t: usize, heads: &mut [f32], dim: usize) {
        let (Some(rope), half) = (&self.rope, self.frequencies.len()) else { return };
        let Some(rotation) = self.rotations.get(2 * half * t..2 * half * (t + 1)) else { return };
        let Some((cos, sin)) = rotation.split_at_checked(half) else { return };
        match rope.style {
            RopeStyle::Adjacent => rotate_pairs(heads, dim, cos, sin),
            RopeStyle::Halves => {
                for head in rows_mut(heads, dim) {
                    let Some((first, second)) = head.split_at_mut_checked(half) else { return };
                    for (((a, b), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                        (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
                    }
                }
            }
        }
    }
}

/// Context scaling of frequencies. All fields are always valid, because the compiler may evaluate all of them before it
/// branches on the kind of scaling.
struct Scaled {
    scaling: Scaling,
    factor: f32,
    /// YaRN treats the pairs of a head by their index: it keeps the frequencies of pairs up to `low`, divides the
    /// frequencies of pairs from `high` on, and blends both for the pairs between them.
    low: f32,
    high: f32,
}

impl Scaled {
    fn new(rope: &Rope) -> Self {
        let (factor, low, high) = match rope.scaling {
            Scaling::Linear { factor } => (factor, 0.0, 0.0),
            Scaling::Yarn { factor, original, beta_fast, beta_slow, whole_pairs, .. } => {
                // The number of the rotary pair, with a fraction, that makes `rotations` full turns over the context of
                // the original model.
                let pair = |rotations: f32| {
                    let dim = rope.dim as f32;
                    let turns = libm::logf(original / (rotations * 2.0 * core::f32::consts::PI));
                    dim * turns / (2.0 * libm::logf(rope.base))
                };
                let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
                if whole_pairs {
                    (low, high) = (libm::floorf(low), libm::ceilf(high));
                }
                (factor, low.max(0.0), high.min(rope.dim as f32 - 1.0))
            }
            _ => (1.0, 0.0, 0.0),
        };
        Self { scaling: rope.scaling, factor, low, high }
    }

    /// Scaled frequency of pair `i`.
    fn frequency(&self, i: usize, frequency: f32) -> f32 {
        let Self { scaling, factor, low, high } = self;
        match scaling {
            Scaling::None | Scaling::Long { .. } => frequency,
            Scaling::Linear { .. } => frequency / factor,
            Scaling::Yarn { .. } => {
                let ramp = ((i as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                frequency / factor * ramp + frequency * (1.0 - ramp)
            }
        }
    }
}
