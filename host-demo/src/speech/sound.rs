//! Sounds from files and streams, as mono samples at 16 kHz.

use std::fs;
use std::io::{Cursor, Read};
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

/// Samples that are converted to 16 kHz at a time.
const CHUNK: usize = 4096;

/// A sound that is read while it is transcribed, so that a long one takes little memory.
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
    /// Raw 16-bit samples, and the first byte of an incomplete one.
    Raw(Box<dyn Read>, Option<u8>),
    File(Box<SoundFile>),
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
        Ok(Self::of(Source::File(Box::new(SoundFile::new(bytes, extension)?))))
    }

    /// A stream of raw 16-bit little-endian mono samples at 16 kHz.
    pub fn stream(from: Box<dyn Read>) -> Self {
        Self::of(Source::Raw(from, None))
    }

    fn of(source: Source) -> Self {
        Self { samples: Vec::new(), start: 0, source: Some(source), most: usize::MAX }
    }

    /// Makes a sound of more than `seconds` an error.
    pub fn at_most(mut self, seconds: usize) -> Self {
        self.most = seconds * RATE;
        self
    }

    /// Returns `len` samples from `start` on, or fewer at the end of the sound. Waits for those of a stream. Forgets all
    /// samples before `start`.
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

    /// Number of samples so far.
    pub fn len(&self) -> usize {
        self.start + self.samples.len()
    }
}

impl Source {
    /// Appends further samples. Returns false at the end of the sound.
    fn more(&mut self, samples: &mut Vec<f32>) -> Result<bool> {
        let (stream, half) = match self {
            Self::File(file) => return file.more(samples),
            Self::Raw(stream, half) => (stream, half),
        };
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).context("cannot read the sound")?;
        let bytes: Vec<u8> = half.take().into_iter().chain(buffer[..count].iter().copied()).collect();
        let (pairs, rest) = bytes.as_chunks::<2>();
        samples.extend(pairs.iter().map(|pair| f32::from(i16::from_le_bytes(*pair)) / 32768.0));
        *half = rest.first().copied();
        Ok(count > 0)
    }
}

/// A sound file, decoded packet by packet to mono samples at 16 kHz.
struct SoundFile {
    format: Box<dyn FormatReader>,
    decoder: Box<dyn Decoder>,
    track: u32,
    damaged: usize,
    /// Decoded samples that are not converted yet, fewer than [`CHUNK`] between two packets.
    waiting: Vec<f32>,
    /// Number of decoded samples, and of samples after the conversion.
    decoded: usize,
    written: usize,
    rate: u32,
    /// `None` for files at 16 kHz.
    resampler: Option<SincFixedIn<f32>>,
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
        let mut file = Self {
            format,
            decoder,
            track: id,
            damaged: 0,
            waiting: Vec::new(),
            decoded: 0,
            written: 0,
            rate: 0,
            resampler: None,
        };
        // The first packet has the rate, and shows that the file can be decoded.
        while file.waiting.is_empty() && file.packet()? {}
        ensure!(file.damaged == 0 || file.decoded > 0, "the file is damaged: no part of it can be decoded");
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
                let mono = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
                let before = self.waiting.len();
                self.waiting.extend(buffer.samples().chunks_exact(channels).map(mono));
                if self.waiting.len() > before {
                    self.set_rate(spec.rate)?;
                }
                self.decoded += self.waiting.len() - before;
            }
            Err(Decoding::DecodeError(_)) => self.damaged += 1,
            Err(error) => bail!("the file is damaged: {error}"),
        }
        Ok(true)
    }

    fn set_rate(&mut self, rate: u32) -> Result<()> {
        if self.rate == rate {
            return Ok(());
        }
        ensure!(self.rate == 0, "the sampling rate changes within the file: convert the file");
        self.rate = rate;
        if rate as usize != RATE {
            ensure!((1000..=768_000).contains(&rate), "the sampling rate {rate} Hz is not supported: convert the file");
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

    /// Appends the samples of the next packet. Returns false at the end of the file.
    fn more(&mut self, samples: &mut Vec<f32>) -> Result<bool> {
        let is_open = self.packet()?;
        let before = samples.len();
        let Some(resampler) = &mut self.resampler else {
            samples.append(&mut self.waiting);
            return Ok(self.goes_on(is_open));
        };
        let mut take = |waves: Vec<Vec<f32>>| samples.extend(waves.into_iter().flatten());
        let (chunks, rest) = self.waiting.as_chunks::<CHUNK>();
        for chunk in chunks {
            take(resampler.process(&[chunk], None)?);
        }
        if !is_open {
            take(resampler.process_partial(Some(&[rest]), None)?);
            take(resampler.process_partial::<&[f32]>(None, None)?); // the end of the filter
        }
        let converted = chunks.len() * CHUNK;
        self.waiting.drain(..converted);
        self.written += samples.len() - before;
        if !is_open {
            // The first sample is at time 0: a sound in whole chunks has no delay.
            let len = (self.decoded as f64 * (RATE as f64 / f64::from(self.rate))).ceil() as usize;
            samples.truncate(samples.len().saturating_sub(self.written.saturating_sub(len)));
        }
        Ok(self.goes_on(is_open))
    }

    /// Warns of damage at the end of the file.
    fn goes_on(&self, is_open: bool) -> bool {
        if !is_open && self.damaged > 0 {
            let damaged = self.damaged;
            crate::output::note(format_args!("warning: {damaged} damaged parts of the sound were left out"));
        }
        is_open
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
