//! Detection of voices.

use super::mel::LOUDEST;
use super::{RATE, Sample};

/// Number of samples of a frame: 10 ms.
const FRAME: u32 = RATE as u32 / 100;
/// A voice begins after this number of frames in a row whose energy is more than this multiple of the noise's energy.
const FIRST: (u32, f32) = (3, 8.0);
/// A voice ends after this number of frames in a row whose energy is less than this multiple of the noise's energy.
const LAST: (u32, f32) = (30, 4.0);
/// Number of frames in a period of 2 seconds. The search for the quietest frame starts anew in each period, so that the
/// noise can also rise.
const PERIOD: u32 = 200;
/// Minimum energy of a frame, as a sum of squares. Without a minimum, the noise in digital silence would have no
/// energy, and every sound would be a voice. This energy corresponds to a change of 1e-4 per sample.
const FAINT: f32 = FRAME as f32 * 1e-8;
/// Maximum energy of the noise that is assumed for the beginning of a sound. Without this limit, a voice at the
/// beginning would be taken for noise.
const PRESUMED: f32 = FRAME as f32 * 1e-5;

/// Detects voices: sounds that are louder than the surrounding noise.
///
/// The energy of each frame of 10 ms, without low frequencies, is compared with the noise: the energy of the quietest
/// frame of the last 2 to 4 seconds. A voice begins after 3 frames of more than 8 times the noise, and ends after 30
/// frames (0.3 seconds) of less than 4 times the noise. Any loud sound counts as a voice.
///
/// # Examples
///
/// ```
/// use arenite::sound::Voice;
///
/// let mut voice = Voice::new();
/// assert!(!voice.push(0i16));
/// let heard = (0..800).map(|i| voice.push(if i % 8 < 4 { 0.1 } else { -0.1 })).filter(|is_voice| *is_voice);
/// assert!(heard.count() > 300);
/// ```
#[derive(Clone, Debug)]
pub struct Voice {
    is_voice: bool,
    /// Number of consecutive frames, up to the last one, that say the opposite of `is_voice`.
    run: u32,
    last: f32,
    /// Number of samples in the unfinished frame; `energy` is the energy of these samples.
    samples: u32,
    energy: f32,
    /// Number of frames of the unfinished period.
    frames: u32,
    /// Energy of the quietest frame in the period that is not finished yet, and in the period before it.
    quietest: [f32; 2],
}

impl Voice {
    /// Number of samples before the detected beginning of a voice that may already belong to the voice: 0.2 seconds.
    pub const BEFORE: usize = RATE / 5;

    /// Starts at the beginning of a sound.
    pub const fn new() -> Self {
        let quietest = [f32::MAX, PRESUMED];
        Self { is_voice: false, run: 0, last: 0.0, samples: 0, energy: 0.0, frames: 0, quietest }
    }

    /// Takes the next sample. Returns true if the sample belongs to a voice, judging by the frames that are complete so
    /// far. A sample that is not a number counts as silence.
    pub fn push<S: Sample>(&mut self, sample: S) -> bool {
        let value = sample.value();
        let value = if (-LOUDEST..=LOUDEST).contains(&value) { value } else { 0.0 };
        let change = value - 0.97 * self.last;
        self.last = value;
        self.energy += change * change;
        self.samples += 1;
        if self.samples == FRAME {
            self.frame(if self.energy > FAINT { self.energy } else { FAINT });
            (self.samples, self.energy) = (0, 0.0);
        }
        self.is_voice
    }

    /// Takes the energy of the next frame.
    fn frame(&mut self, energy: f32) {
        let [now, before] = &mut self.quietest;
        *now = if energy < *now { energy } else { *now };
        let noise = if *now < *before { *now } else { *before };
        let (frames, is_change) = match self.is_voice {
            false => (FIRST.0, energy > FIRST.1 * noise),
            true => (LAST.0, energy < LAST.1 * noise),
        };
        self.run = if is_change { self.run + 1 } else { 0 };
        if self.run == frames {
            (self.is_voice, self.run) = (!self.is_voice, 0);
        }
        self.frames += 1;
        if self.frames == PERIOD {
            (self.quietest, self.frames) = ([f32::MAX, *now], 0);
        }
    }
}

impl Default for Voice {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    /// Noise in every sample, a voice in some of them.
    fn sound(seconds: usize, noise: f32, voice: f32, voices: &[(usize, usize)]) -> Vec<f32> {
        let mut seed = 1u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let speaks = |i| voices.iter().any(|(start, end)| (*start..*end).contains(&i));
        (0..seconds * RATE).map(|i| random() * if speaks(i) { voice } else { noise }).collect()
    }

    /// Returns the positions where voices begin and end.
    fn changes(sound: impl IntoIterator<Item = impl Sample>) -> Vec<usize> {
        let (mut voice, mut was, mut found) = (Voice::new(), false, Vec::new());
        for (i, sample) in sound.into_iter().enumerate() {
            let is = voice.push(sample);
            if is != was {
                found.push(i);
            }
            was = is;
        }
        found
    }

    #[test]
    fn voices_begin_and_end_where_they_are() {
        let voices = [(16_000, 30_000), (48_050, 50_000), (52_000, 60_000), (100_000, 130_000)];
        // All noises are below `PRESUMED`.
        for (noise, voice) in [(0.001, 0.1), (0.0, 0.01), (0.004, 0.03), (0.003, 0.9)] {
            let sound = sound(12, noise, voice, &voices);
            let found = changes(sound.iter().copied());
            // The second and the third sound count as one voice, because the pause between them is shorter than 0.3
            // seconds.
            let wanted = [16_000, 30_000, 48_050, 60_000, 100_000, 130_000];
            assert_eq!(found.len(), wanted.len(), "{noise}: {found:?}");
            for (pair, wanted) in found.as_chunks::<2>().0.iter().zip(wanted.as_chunks::<2>().0) {
                assert!((wanted[0] + 320..wanted[0] + 640).contains(&pair[0]), "{noise}: {found:?}");
                assert!((wanted[1] + 4640..wanted[1] + 5120).contains(&pair[1]), "{noise}: {found:?}");
            }
            // The same as 16-bit samples, and with an offset and hum.
            assert_eq!(changes(sound.iter().map(|x| (x * 32768.0) as i16)).len(), wanted.len());
            let hum = |i: usize| 0.003 * libm::sinf(i as f32 * 0.0196) + 0.1;
            assert_eq!(changes(sound.iter().enumerate().map(|(i, x)| x + hum(i))).len(), wanted.len(), "{noise}");
        }
    }

    #[test]
    fn noise_is_not_a_voice_for_long() {
        assert!(changes(sound(8, 0.002, 0.0, &[])).is_empty());
        // A louder noise may count as a voice at first.
        let found = changes(sound(8, 0.2, 0.0, &[]));
        assert!(found.len() == 2 && found[1] < 4 * RATE, "{found:?}");
        // A noise that becomes louder counts as a voice for some seconds.
        let found = changes(sound(12, 0.001, 0.1, &[(3 * RATE, 12 * RATE)]));
        assert!(found.len() == 2 && found[1] < 8 * RATE, "{found:?}");
    }

    #[test]
    fn no_number_is_silence() {
        assert!(changes([f32::NAN, f32::INFINITY, -1e30, f32::MAX].repeat(10_000)).is_empty());
    }
}
