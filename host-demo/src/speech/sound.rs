//! Sounds from files and streams, as mono samples at 16 kHz.

use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use arenite::sound::RATE;
use rubato::{Resampler, SincFixedIn, SincInterpolationParameters, SincInterpolationType, WindowFunction};
use symphonia::core::audio::SampleBuffer;
use symphonia::core::codecs::DecoderOptions;
use symphonia::core::errors::Error as Decoding;
use symphonia::core::formats::FormatOptions;
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;
use symphonia::core::probe::Hint;

/// A sound that may still be arriving.
pub struct Sound {
    /// Samples so far.
    samples: Vec<f32>,
    /// The stream of raw 16-bit samples, and the first byte of an incomplete one.
    stream: Option<Box<dyn Read>>,
    half: Option<u8>,
}

impl Sound {
    /// Reads a sound file: WAV, FLAC or MP3, of any rate and number of channels.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        Self::read(bytes, extension).with_context(|| path.display().to_string())
    }

    /// Decodes the bytes of a sound file. The extension of its name is a hint.
    pub fn read(bytes: Vec<u8>, extension: Option<&str>) -> Result<Self> {
        ensure!(!bytes.is_empty(), "the file is empty");
        let (samples, rate) = decode(bytes, extension)?;
        Ok(Self { samples: resample(samples, rate)?, stream: None, half: None })
    }

    /// A stream of raw 16-bit little-endian mono samples at 16 kHz.
    pub fn stream(from: Box<dyn Read>) -> Self {
        Self { samples: Vec::new(), stream: Some(from), half: None }
    }

    /// Returns `len` samples from `start` on, or fewer at the end of the sound. Waits for those of a stream.
    pub fn samples(&mut self, start: usize, len: usize) -> Result<&[f32]> {
        let end = start.saturating_add(len);
        let mut buffer = [0; 4096];
        while let Some(stream) = self.stream.as_mut().filter(|_| self.samples.len() < end) {
            let count = stream.read(&mut buffer).context("cannot read the sound")?;
            if count == 0 {
                self.stream = None;
                break;
            }
            let bytes: Vec<u8> = self.half.take().into_iter().chain(buffer[..count].iter().copied()).collect();
            let (pairs, rest) = bytes.as_chunks::<2>();
            self.samples.extend(pairs.iter().map(|pair| f32::from(i16::from_le_bytes(*pair)) / 32768.0));
            self.half = rest.first().copied();
        }
        Ok(self.samples.get(start..end.min(self.samples.len())).unwrap_or(&[]))
    }

    /// Number of samples so far.
    pub fn len(&self) -> usize {
        self.samples.len()
    }
}

/// Decodes a file to mono samples. Returns them with their rate.
fn decode(bytes: Vec<u8>, extension: Option<&str>) -> Result<(Vec<f32>, u32)> {
    let mut hint = Hint::new();
    if let Some(extension) = extension {
        hint.with_extension(extension);
    }
    let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes)), Default::default());
    let probe = symphonia::default::get_probe();
    let probed = probe.format(&hint, stream, &FormatOptions::default(), &MetadataOptions::default());
    let mut format = probed.map_err(|_| anyhow!("this is not a WAV, FLAC or MP3 file"))?.format;
    let track = format.default_track().context("the file has no sound")?;
    let (id, parameters) = (track.id, track.codec_params.clone());
    let codecs = symphonia::default::get_codecs();
    let decoder = codecs.make(&parameters, &DecoderOptions::default());
    let mut decoder = decoder.map_err(|_| anyhow!("the codec is not supported: convert the file to WAV"))?;
    let (mut samples, mut rate, mut damaged) = (Vec::new(), parameters.sample_rate.unwrap_or(0), 0usize);
    loop {
        let packet = match format.next_packet() {
            Ok(packet) => packet,
            Err(Decoding::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => bail!("the file is damaged: {error}"),
        };
        if packet.track_id() != id {
            continue;
        }
        match decoder.decode(&packet) {
            Ok(decoded) => {
                let (spec, capacity) = (*decoded.spec(), decoded.capacity() as u64);
                let channels = spec.channels.count().max(1);
                rate = spec.rate;
                let mut buffer = SampleBuffer::<f32>::new(capacity, spec);
                buffer.copy_interleaved_ref(decoded);
                let mono = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
                samples.extend(buffer.samples().chunks_exact(channels).map(mono));
            }
            Err(Decoding::DecodeError(_)) => damaged += 1,
            Err(error) => bail!("the file is damaged: {error}"),
        }
    }
    ensure!(damaged == 0 || !samples.is_empty(), "the file is damaged: no part of it can be decoded");
    if damaged > 0 {
        crate::output::note(format_args!("warning: {damaged} damaged parts of the sound were left out"));
    }
    Ok((samples, rate))
}

/// Converts samples to 16 kHz.
fn resample(samples: Vec<f32>, rate: u32) -> Result<Vec<f32>> {
    if rate as usize == RATE || samples.is_empty() {
        return Ok(samples);
    }
    ensure!((1000..=768_000).contains(&rate), "the sampling rate {rate} Hz is not supported: convert the file");
    const CHUNK: usize = 4096;
    let ratio = RATE as f64 / f64::from(rate);
    let parameters = SincInterpolationParameters {
        sinc_len: 256,
        f_cutoff: 0.95,
        interpolation: SincInterpolationType::Cubic,
        oversampling_factor: 256,
        window: WindowFunction::BlackmanHarris2,
    };
    let mut resampler = SincFixedIn::<f32>::new(ratio, 1.0, parameters, CHUNK, 1)?;
    let len = (samples.len() as f64 * ratio).ceil() as usize;
    let mut out = Vec::with_capacity(len + CHUNK);
    let mut take = |waves: Vec<Vec<f32>>| out.extend(waves.into_iter().flatten());
    let (chunks, rest) = samples.as_chunks::<CHUNK>();
    for chunk in chunks {
        take(resampler.process(&[chunk], None)?);
    }
    take(resampler.process_partial(Some(&[rest]), None)?);
    take(resampler.process_partial::<&[f32]>(None, None)?); // the end of the filter
    // The first sample is at time 0: a sound in whole chunks has no delay.
    out.truncate(len);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A WAV file of 16-bit samples.
    fn wav(rate: u32, channels: u16, samples: &[i16]) -> Vec<u8> {
        let mut file = Vec::new();
        let bytes = samples.len() as u32 * 2;
        file.extend(b"RIFF");
        file.extend((36 + bytes).to_le_bytes());
        file.extend(b"WAVEfmt ");
        file.extend(16u32.to_le_bytes());
        file.extend(1u16.to_le_bytes());
        file.extend(channels.to_le_bytes());
        file.extend(rate.to_le_bytes());
        file.extend((rate * 2 * u32::from(channels)).to_le_bytes());
        file.extend((2 * channels).to_le_bytes());
        file.extend(16u16.to_le_bytes());
        file.extend(b"data");
        file.extend(bytes.to_le_bytes());
        samples.iter().for_each(|sample| file.extend(sample.to_le_bytes()));
        file
    }

    fn tone(rate: u32) -> Vec<i16> {
        let at = |i: u32| (f64::from(i) / f64::from(rate) * 440.0 * std::f64::consts::TAU).sin();
        (0..rate).map(|i| (at(i) * 8000.0) as i16).collect()
    }

    #[test]
    fn sixteen_kilohertz_are_unchanged() -> Result<()> {
        let samples = tone(16_000);
        let mut sound = Sound::read(wav(16_000, 1, &samples), Some("wav"))?;
        let right: Vec<f32> = samples.iter().map(|x| f32::from(*x) / 32768.0).collect();
        assert_eq!(sound.samples(0, usize::MAX)?, right);
        assert_eq!(sound.samples(15_990, 100)?.len(), 10);
        assert!(sound.samples(20_000, 100)?.is_empty());
        Ok(())
    }

    #[test]
    fn other_rates_and_channels() -> Result<()> {
        for rate in [8000, 22_050, 44_100, 48_000] {
            let stereo: Vec<i16> = tone(rate).into_iter().flat_map(|x| [x, x]).collect();
            let mut sound = Sound::read(wav(rate, 2, &stereo), None)?;
            assert_eq!(sound.len(), 16_000);
            // The same tone, within one sample of its place: 385 periods in the middle.
            let step = 440.0 / 16_000.0 * std::f64::consts::TAU;
            let middle: Vec<f64> = sound.samples(1000, 14_000)?.iter().map(|x| f64::from(*x)).collect();
            let at = |i: usize| (1000 + i) as f64 * step;
            let part = |f: fn(f64) -> f64| middle.iter().enumerate().map(|(i, x)| x * f(at(i))).sum::<f64>() / 7000.0;
            let (sine, cosine) = (part(f64::sin), part(f64::cos));
            assert!((sine.hypot(cosine) * 32768.0 - 8000.0).abs() < 40.0, "{rate}: {sine} {cosine}");
            assert!((cosine.atan2(sine) / step).abs() < 1.0, "{rate}: {}", cosine.atan2(sine) / step);
            let rest = |(i, x): (usize, &f64)| (x - sine * at(i).sin() - cosine * at(i).cos()).abs();
            let worst = middle.iter().enumerate().map(rest).fold(0.0, f64::max);
            assert!(worst < 1e-3, "{rate}: {worst}");
        }
        Ok(())
    }

    #[test]
    fn what_is_no_sound_is_refused() {
        for file in [&b""[..], b"some text that is not a sound", &[0; 4096]] {
            assert!(Sound::read(file.to_vec(), Some("wav")).is_err());
        }
        assert!(Sound::read(wav(100, 1, &[1, 2, 3]), None).is_err());
    }

    #[test]
    fn streams_arrive_in_any_pieces() -> Result<()> {
        struct Slow(Vec<u8>);
        impl Read for Slow {
            fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
                let count = 3.min(self.0.len());
                to[..count].copy_from_slice(&self.0[..count]);
                self.0.drain(..count);
                Ok(count)
            }
        }
        let bytes: Vec<u8> = (0..100i16).flat_map(i16::to_le_bytes).collect();
        let mut sound = Sound::stream(Box::new(Slow(bytes)));
        let right: Vec<f32> = (0..100).map(|x| x as f32 / 32768.0).collect();
        assert_eq!(sound.samples(0, 1000)?, right);
        Ok(())
    }
}
