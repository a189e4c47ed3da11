//! Front ends: the convolutions between a sound and an encoder.

use crate::kernel::Activation;

/// Maximum number of convolutions in a front end.
pub(crate) const MAX_STAGES: usize = 3;

/// The front end of an encoder that reads sounds: convolutions over time that compute the encoder's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Front {
    /// Log-mel features, 100 frames per second, and two convolutions
    /// ([Whisper](https://arxiv.org/abs/2212.04356)).
    LogMel {
        /// Features of a frame.
        bins: usize,
    },
    /// Samples of the sound, and three convolutions; the output of the first convolution is normalized over the whole
    /// sound ([Moonshine](https://arxiv.org/abs/2410.15608)).
    Samples,
}

/// A convolution over time. A row holds the elements of one time step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Convolution {
    /// Number of input rows that an output row depends on.
    pub taps: usize,
    /// Number of input rows between the first taps of two consecutive output rows.
    pub stride: usize,
    /// Rows of zeros before and after the input.
    pub padding: usize,
    /// Elements of an input row.
    pub inputs: usize,
    /// Elements of an output row.
    pub outputs: usize,
    /// Activation function of the outputs. `None` stands for the hyperbolic tangent, after which each channel is normed
    /// over the whole length of the sound.
    pub activation: Option<Activation>,
}

impl Convolution {
    /// Number of rows that the convolution makes of `rows` input rows. 0 if the input is too short.
    pub const fn rows(&self, rows: usize) -> usize {
        match rows.saturating_add(2 * self.padding).checked_sub(self.taps) {
            Some(rest) => match rest.checked_div(self.stride) {
                Some(steps) => steps + 1,
                None => 0,
            },
            None => 0,
        }
    }

    /// Number of input rows that `rows` output rows depend on.
    pub const fn reach(&self, rows: usize) -> usize {
        match rows.checked_sub(1) {
            Some(steps) => steps.saturating_mul(self.stride).saturating_add(self.taps),
            None => 0,
        }
    }
}

impl Front {
    /// Elements of a frame: the features, or one sample.
    pub const fn inputs(self) -> usize {
        match self {
            Self::LogMel { bins } => bins,
            Self::Samples => 1,
        }
    }

    /// Number of encoder positions for this many frames; 0 if there are too few frames.
    pub const fn positions(self, frames: usize) -> usize {
        let stages = self.stages(0);
        let (mut rows, mut i) = (frames, 0);
        while i < MAX_STAGES {
            if let Some(stage) = &stages[i] {
                rows = stage.rows(rows);
            }
            i += 1;
        }
        rows
    }

    /// Returns the front end's convolutions in order. `dim` is the width of the encoder behind them.
    pub(crate) const fn stages(self, dim: usize) -> [Option<Convolution>; MAX_STAGES] {
        let activation = Some(Activation::GeluErf);
        let last = Convolution { taps: 3, stride: 2, padding: 1, inputs: dim, outputs: dim, activation };
        match self {
            Self::LogMel { bins } => [Some(Convolution { stride: 1, inputs: bins, ..last }), Some(last), None],
            Self::Samples => [
                Some(Convolution { taps: 127, stride: 64, padding: 0, inputs: 1, activation: None, ..last }),
                Some(Convolution { taps: 7, stride: 3, padding: 0, outputs: 2 * dim, ..last }),
                Some(Convolution { padding: 0, inputs: 2 * dim, ..last }),
            ],
        }
    }

    /// Largest number of inputs of a convolution's matrix.
    pub(crate) const fn widest_input(self, dim: usize) -> usize {
        let stages = self.stages(dim);
        let (mut most, mut i) = (0, 0);
        while i < MAX_STAGES {
            if let Some(stage) = &stages[i]
                && stage.taps * stage.inputs > most
            {
                most = stage.taps * stage.inputs;
            }
            i += 1;
        }
        most
    }

    /// Number of elements of scratch memory for computing `batch` positions. It holds the inputs of one convolution at
    /// a time, and the outputs of all convolutions but the last.
    pub(crate) const fn scratch(self, dim: usize, batch: usize) -> usize {
        let stages = self.stages(dim);
        let (mut total, mut rows, mut i) = (batch.saturating_mul(self.widest_input(dim)), batch, MAX_STAGES);
        while i > 0 {
            i -= 1;
            if let Some(stage) = &stages[i] {
                rows = stage.reach(rows);
                if i > 0 {
                    total = total.saturating_add(rows.saturating_mul(stage.inputs));
                }
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_per_second() {
        let mel = Front::LogMel { bins: 80 };
        assert_eq!([3000, 300, 2, 1, 0].map(|frames| mel.positions(frames)), [1500, 150, 1, 1, 0]);
        // `transformers` computed the expected numbers for the lengths of the sounds in the fixture.
        assert_eq!([17_920, 6764, 31_614, 895, 894].map(|n| Front::Samples.positions(n)), [45, 16, 80, 1, 0]);
    }

    #[test]
    fn scratch_holds_all_rows() {
        let mel = Front::LogMel { bins: 80 };
        assert_eq!((mel.widest_input(64), mel.widest_input(100)), (240, 300));
        assert_eq!(mel.scratch(64, 4), 4 * 240 + 9 * 64);
        assert_eq!(Front::Samples.scratch(60, 1), 420 + 3 * 120 + 13 * 60);
    }
}
