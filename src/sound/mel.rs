//! Whisper's features: the logarithms of the energies in bands of the mel scale.

use bytemuck::{Pod, Zeroable};

use super::fft::{Complex, FREQUENCIES, HALF, SIZE, cos, powers};
use super::{RATE, Sample};
use crate::memory::Arena;
use crate::{Error, Name};

/// Samples from one frame to the next.
const HOP: usize = 160;
/// Maximum number of bands.
const MAX_BINS: usize = 256;
/// Number of samples in the buffer: a frame, and one more sample, which is needed to mirror the beginning of the sound.
const BUFFER: usize = SIZE + 1;
/// Largest accepted magnitude of a sample, 2^16 times full scale, because larger samples are a mistake, and could
/// overflow.
pub(super) const LOUDEST: f32 = 65_536.0;

/// The weights that a frequency has in the two triangular mel bands that contain it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Tap {
    /// A frequency lies on the rising side of one triangle and on the falling side of the triangle before it. The field
    /// is the index of the rising triangle, plus one.
    band: u32,
    rising: f32,
    falling: f32,
}

/// Computes log-mel features of a window of sound, as OpenAI's Whisper defines them.
///
/// Frames of 400 samples start every 160 samples and are weighted by a Hann window. The energies of a frame's
/// frequencies are summed in bands by Slaney's triangles, and the features are the decimal logarithms of these sums. At
/// the [end](Self::finish), features that are more than 8 below the largest feature of the window are raised to this
/// limit, and all features are scaled. The window is padded with zeros, and mirrored at both ends.
///
/// See the [module](super) for an example.
#[derive(Debug)]
pub struct LogMel<'w> {
    bins: usize,
    /// Length of the window in samples.
    window: usize,
    taps: &'w mut [Tap],
    /// The latest samples of the sound, from the first sample of the next frame on.
    buffer: &'w mut [f32],
    spectrum: &'w mut [Complex],
    /// Number of samples in the buffer.
    filled: usize,
    /// Number of samples of the sound so far.
    received: usize,
    /// Number of frames so far.
    frames: usize,
    /// The largest feature so far.
    most: f32,
}

impl<'w> LogMel<'w> {
    /// Bytes of memory that [`new`](Self::new) needs.
    pub const BYTES: usize = Arena::padded(FREQUENCIES * size_of::<Tap>())
        + Arena::padded(BUFFER * size_of::<f32>())
        + Arena::padded(2 * HALF * size_of::<Complex>());

    /// Number of frames in a window of this many samples: 100 per second.
    pub const fn frames(window: usize) -> usize {
        window / HOP
    }

    /// Computes features of `bins` bands (80, or 128 for large-v3) for a window of this many samples (480000 for 30
    /// seconds). `memory` has [`BYTES`](Self::BYTES) bytes and starts on an [`ALIGN`](crate::memory::ALIGN) boundary.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless there are 1 to 256 bands and the window has at least one frame;
    /// [`Error::BufferTooSmall`] and [`Error::Misaligned`] for `memory`.
    pub fn new(bins: usize, window: usize, memory: &'w mut [u8]) -> Result<Self, Error> {
        if bins == 0 || bins > MAX_BINS {
            return Err(Error::Unsupported { what: "number of mel bands", name: Name::new(b"").with_number(bins) });
        }
        if window < SIZE {
            return Err(Error::Unsupported { what: "window of samples", name: Name::new(b"").with_number(window) });
        }
        let short = Error::BufferTooSmall { what: "bytes for the features", needed: Self::BYTES, given: memory.len() };
        let mut arena = Arena::new(memory.get_mut(..Self::BYTES).ok_or(short)?)?;
        let taps = arena.take(FREQUENCIES).ok_or(short)?;
        let buffer = arena.take(BUFFER).ok_or(short)?;
        let spectrum = arena.take(2 * HALF).ok_or(short)?;
        triangles(bins, taps);
        let mut mel = Self { bins, window, taps, buffer, spectrum, filled: 0, received: 0, frames: 0, most: f32::MIN };
        mel.restart();
        Ok(mel)
    }

    /// Discards the samples so far, and starts another sound.
    pub fn restart(&mut self) {
        // The first frame also covers time before the sound. Room is left for samples there, which will be mirror
        // images of later samples.
        (self.filled, self.received, self.frames, self.most) = (SIZE / 2, 0, 0, f32::MIN);
    }

    /// Takes the next samples of the sound, and writes the features of every completed frame to `features`. `features`
    /// is `[frames][bins]` for the whole window. Returns the number of complete frames since the beginning.
    ///
    /// # Errors
    ///
    /// [`Error::Sound`] for samples that are not finite or beyond the window; [`Error::BufferTooSmall`]. On error no
    /// sample was taken.
    pub fn push<S: Sample>(&mut self, samples: &[S], features: &mut [f32]) -> Result<usize, Error> {
        self.check(features)?;
        if samples.len() > self.window.saturating_sub(self.received) {
            return Err(Error::Sound { at: self.window, why: "is beyond the window: split the sound" });
        }
        check_samples(samples, self.received)?;
        for sample in samples {
            self.take(sample.value(), features);
        }
        self.received += samples.len();
        Ok(self.frames)
    }

    /// Pads the window with zeros, computes the remaining frames, and clamps and scales all features. Afterwards
    /// [`push`](Self::push) starts a new sound.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`].
    pub fn finish(&mut self, features: &mut [f32]) -> Result<(), Error> {
        self.check(features)?;
        for _ in self.received..self.window {
            self.take(0.0, features);
        }
        let mut back = 2;
        while self.frames < Self::frames(self.window) {
            let mirrored = self.filled.checked_sub(back).and_then(|i| self.buffer.get(i)).copied();
            self.take(mirrored.unwrap_or(0.0), features);
            // The next mirrored sample is one position before this one, and the buffer's end has moved on by one. So
            // the distance between the two grows by two, also if `take` shifts the buffer.
            back += 2;
        }
        let least = self.most - 8.0;
        self.restart();
        let features = features.get_mut(..Self::frames(self.window) * self.bins).unwrap_or_default();
        for x in features {
            *x = (if *x > least { *x } else { least } + 4.0) / 4.0;
        }
        Ok(())
    }

    fn check(&self, features: &[f32]) -> Result<(), Error> {
        let (needed, given) = (Self::frames(self.window).saturating_mul(self.bins), features.len());
        if given < needed {
            return Err(Error::BufferTooSmall { what: "floats of features", needed, given });
        }
        Ok(())
    }

    /// Takes a sample, and computes the next frame if the sample completes this frame.
    fn take(&mut self, sample: f32, features: &mut [f32]) {
        if let Some(place) = self.buffer.get_mut(self.filled) {
            *place = sample;
        }
        self.filled += 1;
        if self.filled < BUFFER {
            return;
        }
        if self.frames == 0 {
            // The transform of the first frame also needs samples before the start of the sound. They mirror the
            // samples after the start.
            for i in 1..=SIZE / 2 {
                let mirrored = self.buffer.get(SIZE / 2 + i).copied().unwrap_or(0.0);
                if let Some(place) = self.buffer.get_mut(SIZE / 2 - i) {
                    *place = mirrored;
                }
            }
        }
        if let Some(row) = features.get_mut(self.frames * self.bins..(self.frames + 1) * self.bins) {
            self.frame(row);
            self.frames += 1;
        }
        for i in HOP..BUFFER {
            let moved = self.buffer.get(i).copied().unwrap_or(0.0);
            if let Some(place) = self.buffer.get_mut(i - HOP) {
                *place = moved;
            }
        }
        self.filled = BUFFER - HOP;
    }

    /// Computes the logarithms of a frame's bands.
    fn frame(&mut self, row: &mut [f32]) {
        row.fill(0.0);
        let samples = self.buffer.get(..SIZE).unwrap_or_default();
        if samples.iter().any(|x| *x != 0.0) {
            let Some((z, other)) = self.spectrum.split_at_mut_checked(HALF) else { return };
            for (i, (z, pair)) in z.iter_mut().zip(samples.as_chunks::<2>().0).enumerate() {
                let [even, odd] = *pair;
                *z = [even * hann(2 * i), odd * hann(2 * i + 1)];
            }
            powers(z, other, |k, power| {
                let Some(tap) = self.taps.get(k) else { return };
                let band = tap.band as usize;
                if let Some(sum) = band.checked_sub(1).and_then(|band| row.get_mut(band)) {
                    *sum += power * tap.rising;
                }
                if let Some(sum) = band.checked_sub(2).and_then(|band| row.get_mut(band)) {
                    *sum += power * tap.falling;
                }
            });
        }
        for x in row {
            *x = libm::log10f(if *x > 1e-10 { *x } else { 1e-10 });
            if *x > self.most {
                self.most = *x;
            }
        }
    }
}

/// The periodic Hann window.
fn hann(n: usize) -> f32 {
    0.5 - 0.5 * cos(n)
}

/// Checks that all samples are finite, and small enough that their squares do not overflow.
pub(crate) fn check_samples<S: Sample>(samples: &[S], first: usize) -> Result<(), Error> {
    let is_valid = |sample: &S| {
        let value = sample.value();
        (-LOUDEST..=LOUDEST).contains(&value)
    };
    match samples.iter().position(|sample| !is_valid(sample)) {
        Some(at) => Err(Error::Sound { at: first + at, why: "is not a number from -1 to 1: decode the sound again" }),
        None => Ok(()),
    }
}

/// Returns the frequency in Hz of a place on Slaney's mel scale, which is linear up to 1000 Hz and logarithmic above.
fn hertz(mel: f64) -> f64 {
    if mel < 15.0 { mel * (200.0 / 3.0) } else { 1000.0 * libm::exp((mel - 15.0) * (libm::log(6.4) / 27.0)) }
}

/// Computes the weights of each frequency. Band `i` is a triangle over the corners `i`, `i + 1` and `i + 2` with area
/// 1; the corners are at equal distances on the mel scale, from 0 to 8000 Hz.
fn triangles(bins: usize, taps: &mut [Tap]) {
    let highest = 15.0 + libm::log(8.0) * 27.0 / libm::log(6.4);
    let corner = |i: usize| hertz(highest * i as f64 / (bins + 1) as f64);
    let mut corners = [0.0, 0.0, corner(1), corner(2)]; // two below the frequency and two above it
    let mut band = 1;
    for (k, tap) in taps.iter_mut().enumerate() {
        let f = (k * RATE) as f64 / SIZE as f64;
        while f >= corners[2] && band <= bins {
            band += 1;
            corners = [corners[1], corners[2], corners[3], corner(band + 1)];
        }
        let [before, low, high, after] = corners;
        let share = libm::fmax((f - low) / (high - low), 0.0);
        let rest = libm::fmax(1.0 - share, 0.0);
        *tap = Tap {
            band: band as u32,
            rising: (share * 2.0 / (after - low)) as f32,
            falling: (rest * 2.0 / (high - before)) as f32,
        };
    }
}
