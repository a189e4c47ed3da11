//! Reads sounds from files and streams, as mono samples at 16 kHz.

use std::fs;
use std::io::{Cursor, Read};
use std::iter;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use arenite::sound::RATE;
use rubato::{Resampler, SincFixedIn, SincInterpolationParameters, SincInterpolationType, WindowFunction};
use symphonia::core::audio::SampleBuffer;
use symphonia::core::codecs::{Decoder, DecoderOptions};
use symphonia::core::errors::Error as Decoding;
use symphonia::core::formats::{FormatOptions, FormatReader};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;
use symphonia::core::probe::Hint;

use super::wave;

/// Number of samples that are converted to 16 kHz at a time.
const CHUNK: usize = 4096;

/// A sound that is read while it is transcribed, so that a long sound takes little memory.
pub struct Sound {
    /// The samples read so far, from `start` on.
    samples: Vec<f32>,
    /// Number of earlier samples, which were dropped.
    start: usize,
    /// `None` after the end of the sound.
    source: Option<Source>,
    /// Maximum number of samples.
    most: usize,
}

enum Source {
    File(Box<SoundFile>),
    Live(Box<dyn Iterator<Item = Result<Vec<f32>>>>, Box<Converter>),
}

impl Sound {
    /// Reads a sound file: WAV, FLAC or MP3, of any rate and number of channels.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        Self::read(bytes, extension).with_context(|| path.display().to_string())
    }

    /// Reads the bytes of a sound file. The extension of its name is a hint.
    pub fn read(bytes: impl AsRef<[u8]> + Send + Sync + 'static, extension: Option<&str>) -> Result<Self> {
        ensure!(!bytes.as_ref().is_empty(), "the file is empty");
        let file = match wave::repaired(bytes.as_ref()) {
            Some(repaired) => SoundFile::new(repaired, Some("wav"))?,
            None => SoundFile::new(bytes, extension)?,
        };
        Ok(Self::of(Source::File(Box::new(file))))
    }

    /// Creates a sound from a stream of raw 16-bit little-endian mono samples at 16 kHz.
    pub fn stream(mut from: Box<dyn Read>) -> Result<Self> {
        let mut half = None; // the first byte of an incomplete sample
        let block = move || {
            let mut buffer = [0; 4096];
            let count = match from.read(&mut buffer).context("cannot read the sound") {
                Ok(0) => return None,
                Ok(count) => count,
                Err(error) => return Some(Err(error)),
            };
            let bytes: Vec<u8> = half.take().into_iter().chain(buffer[..count].iter().copied()).collect();
            let (pairs, rest) = bytes.as_chunks::<2>();
            half = rest.first().copied();
            Some(Ok(pairs.iter().map(|pair| f32::from(i16::from_le_bytes(*pair)) / 32768.0).collect()))
        };
        Self::live(RATE as u32, iter::from_fn(block))
    }

    /// Creates a sound from blocks of mono samples at `rate`, as a microphone records them. The sound ends with the
    /// iterator.
    pub fn live(rate: u32, blocks: impl Iterator<Item = Result<Vec<f32>>> + 'static) -> Result<Self> {
        let mut converter = Converter::default();
        converter.set_rate(rate)?;
        Ok(Self::of(Source::Live(Box::new(blocks), Box::new(converter))))
    }

    fn of(source: Source) -> Self {
        Self { samples: Vec::new(), start: 0, source: Some(source), most: usize::MAX }
    }

    /// Makes a sound of more than `seconds` an error.
    pub fn at_most(mut self, seconds: usize) -> Self {
        self.most = seconds * RATE;
        self
    }

    /// Returns `len` samples from `start` on, or fewer at the end of the sound. Waits for the samples of a stream.
    /// Drops all samples before `start`.
    pub fn samples(&mut self, start: usize, len: usize) -> Result<&[f32]> {
        let dropped = start.saturating_sub(self.start).min(self.samples.len());
        self.samples.drain(..dropped);
        self.start += dropped;
        let end = start.saturating_add(len);
        while let Some(source) = self.source.as_mut().filter(|_| self.start + self.samples.len() < end) {
            if !source.more(&mut self.samples)? {
                self.source = None;
            }
            ensure!(self.len() <= self.most, "the sound is longer than {} seconds: divide it", self.most / RATE);
        }
        let begin = start.saturating_sub(self.start).min(self.samples.len());
        Ok(&self.samples[begin..end.saturating_sub(self.start).clamp(begin, self.samples.len())])
    }

    /// Number of samples read so far, including dropped ones.
    pub fn len(&self) -> usize {
        self.start + self.samples.len()
    }
}

impl Source {
    /// Appends further samples. Returns false at the end of the sound.
    fn more(&mut self, samples: &mut Vec<f32>) -> Result<bool> {
        match self {
            Self::File(file) => file.more(samples),
            Self::Live(blocks, converter) => {
                let block = blocks.next().transpose()?;
                let is_open = block.is_some();
                converter.push(block.unwrap_or_default());
                converter.convert(is_open, samples)?;
                Ok(is_open)
            }
        }
    }
}

/// A sound file, decoded packet by packet.
struct SoundFile {
    format: Box<dyn FormatReader>,
    decoder: Box<dyn Decoder>,
    track: u32,
    damaged: usize,
    converter: Converter,
}

impl SoundFile {
    fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static, extension: Option<&str>) -> Result<Self> {
        let mut hint = Hint::new();
        if let Some(extension) = extension {
            hint.with_extension(extension);
        }
        let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes)), Default::default());
        let probe = symphonia::default::get_probe();
        let probed = probe.format(&hint, stream, &FormatOptions::default(), &MetadataOptions::default());
        let format = probed.map_err(|_| anyhow!("this is not a WAV, FLAC or MP3 file"))?.format;
        let track = format.default_track().context("the file has no sound")?;
        let (id, parameters) = (track.id, track.codec_params.clone());
        let decoder = symphonia::default::get_codecs().make(&parameters, &DecoderOptions::default());
        let decoder = decoder.map_err(|_| anyhow!("the codec is not supported: convert the file to WAV"))?;
        let mut file = Self { format, decoder, track: id, damaged: 0, converter: Converter::default() };
        // The first packet has the rate, and shows that the file can be decoded.
        while file.converter.received == 0 && file.packet()? {}
        ensure!(file.damaged == 0 || file.converter.received > 0, "the file is damaged: no part of it can be decoded");
        Ok(file)
    }

    /// Decodes a packet. Returns false at the end of the file.
    fn packet(&mut self) -> Result<bool> {
        let packet = match self.format.next_packet() {
            Ok(packet) => packet,
            Err(Decoding::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => bail!("the file is damaged: {error}"),
        };
        if packet.track_id() != self.track {
            return Ok(true);
        }
        match self.decoder.decode(&packet) {
            Ok(decoded) => {
                let (spec, capacity) = (*decoded.spec(), decoded.capacity() as u64);
                let channels = spec.channels.count().max(1);
                let mut buffer = SampleBuffer::<f32>::new(capacity, spec);
                buffer.copy_interleaved_ref(decoded);
                if buffer.samples().len() >= channels {
                    self.converter.set_rate(spec.rate)?;
                }
                self.converter.push(mono(buffer.samples(), channels));
            }
            Err(Decoding::DecodeError(_)) => self.damaged += 1,
            Err(error) => bail!("the file is damaged: {error}"),
        }
        Ok(true)
    }

    /// Appends the samples of the next packet. Returns false at the end of the file, and warns of damage.
    fn more(&mut self, samples: &mut Vec<f32>) -> Result<bool> {
        let is_open = self.packet()?;
        self.converter.convert(is_open, samples)?;
        if !is_open && self.damaged > 0 {
            let damaged = self.damaged;
            log::warn!("warning: {damaged} damaged parts of the sound were left out");
        }
        Ok(is_open)
    }
}

/// Returns the mean of the channels of each frame.
pub fn mono(samples: &[f32], channels: usize) -> Vec<f32> {
    samples.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() / channels as f32).collect()
}

/// Converts mono samples to 16 kHz.
#[derive(Default)]
struct Converter {
    /// Samples that are not converted yet, fewer than [`CHUNK`] between two conversions.
    waiting: Vec<f32>,
    /// Number of received samples.
    received: usize,
    /// Number of samples after the conversion.
    written: usize,
    rate: u32,
    /// `None` at 16 kHz.
    resampler: Option<SincFixedIn<f32>>,
}

impl Converter {
    fn set_rate(&mut self, rate: u32) -> Result<()> {
        if self.rate == rate {
            return Ok(());
        }
        ensure!(self.rate == 0, "the sampling rate changes within the file: convert the file");
        self.rate = rate;
        if rate as usize != RATE {
            ensure!(
                (1000..=768_000).contains(&rate),
                "the sampling rate {rate} Hz is not supported: use one from 1000 to 768000 Hz"
            );
            let parameters = SincInterpolationParameters {
                sinc_len: 256,
                f_cutoff: 0.95,
                interpolation: SincInterpolationType::Cubic,
                oversampling_factor: 256,
                window: WindowFunction::BlackmanHarris2,
            };
            self.resampler = Some(SincFixedIn::new(RATE as f64 / f64::from(rate), 1.0, parameters, CHUNK, 1)?);
        }
        Ok(())
    }

    fn push(&mut self, samples: Vec<f32>) {
        self.received += samples.len();
        self.waiting.extend(samples);
    }

    /// Appends the samples that can be converted now, or all that remain if `is_open` is false.
    fn convert(&mut self, is_open: bool, samples: &mut Vec<f32>) -> Result<()> {
        let before = samples.len();
        let Some(resampler) = &mut self.resampler else {
            samples.append(&mut self.waiting);
            return Ok(());
        };
        let mut take = |waves: Vec<Vec<f32>>| samples.extend(waves.into_iter().flatten());
        let (chunks, rest) = self.waiting.as_chunks::<CHUNK>();
        for chunk in chunks {
            take(resampler.process(&[chunk], None)?);
        }
        if !is_open {
            take(resampler.process_partial(Some(&[rest]), None)?);
            take(resampler.process_partial::<&[f32]>(None, None)?); // the samples that the filter still holds
        }
        let converted = chunks.len() * CHUNK;
        self.waiting.drain(..converted);
        self.written += samples.len() - before;
        if !is_open {
            // The output starts without a delay, so only the padding at its end is cut.
            let len = (self.received as f64 * (RATE as f64 / f64::from(self.rate))).ceil() as usize;
            samples.truncate(samples.len().saturating_sub(self.written.saturating_sub(len)));
        }
        Ok(())
    }
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
            assert_eq!(sound.samples(0, usize::MAX)?.len(), 16_000);
            // The 385 periods in the middle are the same tone, shifted by less than one sample.
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
    fn long_sounds_take_little_memory() -> Result<()> {
        let whole = Sound::read(wav(8000, 1, &tone(8000).repeat(20)), None)?.samples(0, usize::MAX)?.to_vec();
        let mut sound = Sound::read(wav(8000, 1, &tone(8000).repeat(20)), None)?;
        for start in (0..whole.len()).step_by(10_000) {
            assert_eq!(sound.samples(start, 15_000)?, &whole[start..whole.len().min(start + 15_000)]);
            assert!(sound.samples.len() <= 40_000, "{}", sound.samples.len());
        }
        let mut long = Sound::read(wav(16000, 1, &[0; 16000].repeat(4)), None)?.at_most(3);
        assert!(long.samples(0, usize::MAX).unwrap_err().to_string().contains("longer than 3 seconds"));
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
    fn live_sounds_are_those_of_files() -> Result<()> {
        for rate in [16_000, 44_100, 48_000] {
            let mut samples = tone(rate);
            samples.extend(tone(rate));
            let right = Sound::read(wav(rate, 1, &samples), None)?.samples(0, usize::MAX)?.to_vec();
            // Mix blocks of stereo samples, as `microphone` does.
            let stereo: Vec<f32> = samples.iter().flat_map(|x| [f32::from(*x) / 32768.0; 2]).collect();
            let blocks: Vec<_> = stereo.chunks(2 * 441).map(|block| Ok(mono(block, 2))).collect();
            let mut sound = Sound::live(rate, blocks.into_iter())?;
            // The first samples are available before the last block.
            assert_eq!(sound.samples(0, 8000)?, &right[..8000]);
            assert!(sound.len() < 16_000);
            assert_eq!(sound.samples(0, usize::MAX)?, right, "{rate}");
        }
        let mut broken = Sound::live(16_000, [Ok(vec![0.0; 100]), Err(anyhow!("the microphone is gone"))].into_iter())?;
        assert_eq!(broken.samples(0, 100)?.len(), 100);
        assert!(broken.samples(0, 101).unwrap_err().to_string().contains("gone"));
        Ok(())
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
        let mut sound = Sound::stream(Box::new(Slow(bytes)))?;
        let right: Vec<f32> = (0..100).map(|x| x as f32 / 32768.0).collect();
        assert_eq!(sound.samples(0, 1000)?, right);
        Ok(())
    }
}
