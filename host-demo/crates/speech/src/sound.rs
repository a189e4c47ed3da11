//! Reads sounds from files and streams, as mono samples at 16 kHz.

use std::io::Read;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;
use std::{fs, iter};

use anyhow::{Context, Result, anyhow, bail, ensure};
use arenite::sound::RATE;
use rubato::{Resampler, SincFixedIn, SincInterpolationParameters, SincInterpolationType, WindowFunction};
use symphonia::core::audio::SampleBuffer;
use symphonia::core::codecs::{CodecParameters, Decoder, DecoderOptions};
use symphonia::core::errors::{Error, Result as Decoding};
use symphonia::core::formats::{FormatOptions, FormatReader};
use symphonia::core::io::MediaSourceStream;
use symphonia::default::formats::{FlacReader, MpaReader, WavReader};

use super::container::{Container, Kind, OTHER_CODEC, OTHER_KIND, check_rate};
use super::wave;

/// Number of samples that are converted to 16 kHz at a time.
const CHUNK: usize = 4096;
/// Name of the threads that decode. The program does not report panics of these threads, because each panic becomes an
/// error of the sound.
pub const DECODER: &str = "sound";
/// Maximum number of samples in a block of decoded samples, and maximum number of decoded blocks that wait until the
/// caller reads them.
const BLOCK: usize = 16 << 10;
const WAITING: usize = 16;
/// Maximum time for a block of a file.
const PATIENCE: Duration = Duration::from_secs(10);

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
    File(SoundFile),
    Live(Box<dyn Iterator<Item = Result<Vec<f32>>>>, Box<Converter>),
}

impl Sound {
    /// Reads a sound file: WAV, FLAC or MP3, of any rate and number of channels.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::read(bytes).with_context(|| path.display().to_string())
    }

    /// Reads the bytes of a sound file.
    pub fn read(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        SoundFile::new(bytes).map(Self::from)
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
        let end = start.saturating_add(len);
        self.fill(start, end, true)?;
        let begin = start.saturating_sub(self.start).min(self.samples.len());
        Ok(&self.samples[begin..end.saturating_sub(self.start).clamp(begin, self.samples.len())])
    }

    /// Returns true if [`samples`](Self::samples) would return without waiting. Drops all samples before `start`.
    pub fn is_ready(&mut self, start: usize, len: usize) -> Result<bool> {
        self.fill(start, start.saturating_add(len), false)
    }

    /// Drops the samples before `start`, and reads the samples before `end`. If `waits` is true, waits for them;
    /// otherwise returns false if samples are not available yet.
    fn fill(&mut self, start: usize, end: usize, waits: bool) -> Result<bool> {
        let dropped = start.saturating_sub(self.start).min(self.samples.len());
        self.samples.drain(..dropped);
        self.start += dropped;
        while let Some(source) = self.source.as_mut().filter(|_| self.start + self.samples.len() < end) {
            match source.more(&mut self.samples, waits)? {
                Some(true) => {}
                Some(false) => self.source = None,
                None => return Ok(false),
            }
            ensure!(self.len() <= self.most, "the sound is longer than {} seconds: divide it", self.most / RATE);
        }
        Ok(true)
    }

    /// Number of samples read so far, including dropped ones.
    #[allow(clippy::len_without_is_empty)] // a count, not a collection
    pub fn len(&self) -> usize {
        self.start + self.samples.len()
    }
}

impl Source {
    /// Appends further samples. Returns false at the end of the sound. If `waits` is false, returns `None` for a file
    /// whose next samples are not available yet.
    fn more(&mut self, samples: &mut Vec<f32>, waits: bool) -> Result<Option<bool>> {
        match self {
            Self::File(file) => file.more(samples, waits),
            Self::Live(blocks, converter) => {
                let block = blocks.next().transpose()?;
                let is_open = block.is_some();
                converter.push(block.unwrap_or_default());
                converter.convert(is_open, samples)?;
                Ok(Some(is_open))
            }
        }
    }
}

/// A message of the thread that decodes a file.
enum Decoded {
    Samples(Vec<f32>),
    /// Sent at the end of the file, with the number of damaged parts and the number of samples that the file should
    /// have.
    End {
        damaged: usize,
        lost: u64,
    },
    Failed(String),
}

/// A sound file that is decoded by a separate thread. A panic of the decoder then ends only this sound, and a decoder
/// that gets stuck does not block the caller for long. The channel limits the number of waiting samples.
pub struct SoundFile {
    blocks: Receiver<Decoded>,
    /// The first samples. They are decoded when the file is opened, so that opening fails if the file cannot be
    /// decoded.
    first: Vec<f32>,
    /// False after the end of the file.
    is_open: bool,
}

impl From<SoundFile> for Sound {
    fn from(mut file: SoundFile) -> Self {
        let samples = std::mem::take(&mut file.first);
        Self { samples, source: file.is_open.then_some(Source::File(file)), start: 0, most: usize::MAX }
    }
}

impl SoundFile {
    /// Starts to decode the bytes of a file, and waits for its first samples.
    ///
    /// # Errors
    ///
    /// The bytes are not a sound file, or the file is damaged.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        ensure!(!bytes.as_ref().is_empty(), "the file is empty");
        match wave::repaired(bytes.as_ref()) {
            Some(repaired) => {
                drop(bytes);
                Self::start(Container::new(repaired)?)
            }
            None => Self::start(Container::new(bytes)?),
        }
    }

    fn start<B: AsRef<[u8]> + Send + Sync + 'static>(container: Container<B>) -> Result<Self> {
        let (out, blocks) = sync_channel(WAITING);
        let work = move || {
            let decode = AssertUnwindSafe(|| decode(container, &out));
            let failed = match catch_unwind(decode) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => format!("{error:#}"),
                Err(payload) => {
                    std::mem::forget(payload); // its drop may panic, too
                    "the file is damaged: it cannot be decoded".into()
                }
            };
            let _ = out.send(Decoded::Failed(failed));
        };
        std::thread::Builder::new().name(DECODER.into()).spawn(work).context("cannot start a thread for the sound")?;
        let (mut file, mut first) = (Self { blocks, first: Vec::new(), is_open: true }, Vec::new());
        file.is_open = file.more(&mut first, true)?.unwrap_or(true);
        Ok(Self { first, ..file })
    }

    /// Appends the samples of the next block; returns false at the end of the file. If `waits` is false, returns `None`
    /// if the block is not available yet.
    fn more(&mut self, samples: &mut Vec<f32>, waits: bool) -> Result<Option<bool>> {
        let block = match waits {
            true => self.blocks.recv_timeout(PATIENCE).map_err(|error| error == RecvTimeoutError::Timeout),
            false => self.blocks.try_recv().map_err(|error| error == TryRecvError::Empty),
        };
        match block {
            Ok(Decoded::Samples(mut block)) => samples.append(&mut block),
            Ok(Decoded::End { damaged, lost }) => {
                if damaged > 0 {
                    let told = format_args!("warning: {damaged} damaged parts of the sound were left out");
                    log::warn!("{told}");
                }
                if lost > 0 {
                    log::warn!("warning: the last {lost} samples are missing: the file is cut short or damaged");
                }
                return Ok(Some(false));
            }
            Ok(Decoded::Failed(why)) => bail!(why),
            Err(true) if !waits => return Ok(None),
            Err(true) => bail!("the file takes too long to decode: convert it"),
            Err(false) => bail!("the thread that decodes the sound has ended"),
        }
        Ok(Some(true))
    }
}

/// Decodes a file, and sends its samples at 16 kHz until the receiver is dropped.
fn decode<B: AsRef<[u8]> + Send + Sync + 'static>(container: Container<B>, out: &SyncSender<Decoded>) -> Result<()> {
    let kind = container.kind;
    let stream = MediaSourceStream::new(Box::new(container), Default::default());
    let options = FormatOptions::default();
    let format: Decoding<Box<dyn FormatReader>> = match kind {
        Kind::Wav => WavReader::try_new(stream, &options).map(|reader| Box::new(reader) as _),
        Kind::Flac => FlacReader::try_new(stream, &options).map(|reader| Box::new(reader) as _),
        Kind::Mpeg => MpaReader::try_new(stream, &options).map(|reader| Box::new(reader) as _),
    };
    let format = format.map_err(|error| match error {
        Error::Unsupported(_) => anyhow!(OTHER_CODEC),
        _ => anyhow!(OTHER_KIND),
    })?;
    let track = format.default_track().context("the file has no sound")?;
    let (track, parameters) = (track.id, track.codec_params.clone());
    let decoder = symphonia::default::get_codecs().make(&parameters, &DecoderOptions::default());
    let decoder = decoder.map_err(|_| anyhow!(OTHER_CODEC))?;
    let (converter, trim) = (Converter::default(), Trim::of(&parameters));
    let mut packets = Packets { format, decoder, track, damaged: 0, frames: 0, converter, trim };
    let mut is_open = true;
    while is_open {
        is_open = packets.next()?;
        let mut samples = Vec::new();
        packets.converter.convert(is_open, &mut samples)?;
        for block in samples.chunks(BLOCK) {
            if out.send(Decoded::Samples(block.to_vec())).is_err() {
                return Ok(());
            }
        }
    }
    let has_sound = packets.damaged == 0 || packets.converter.received > 0;
    ensure!(has_sound, "the file is damaged: no part of it can be decoded");
    // The header of a FLAC file states the number of samples. It is not compared if damaged frames are already
    // reported.
    let stated = parameters.n_frames.filter(|_| kind == Kind::Flac && packets.damaged == 0);
    let lost = stated.map_or(0, |stated| stated.saturating_sub(packets.frames));
    ensure!(packets.frames > 0 || lost == 0, "the file is damaged: none of its {lost} samples can be decoded");
    let _ = out.send(Decoded::End { damaged: packets.damaged, lost });
    Ok(())
}

/// The packets of a file, and their samples.
struct Packets {
    format: Box<dyn FormatReader>,
    decoder: Box<dyn Decoder>,
    track: u32,
    damaged: usize,
    /// Number of samples of a channel.
    frames: u64,
    converter: Converter,
    trim: Trim,
}

/// Cuts off the silence that an MP3 encoder adds before and after a sound.
struct Trim {
    /// Number of samples before the sound.
    delay: u64,
    /// The range of the samples after the sound. They are held back: if files are joined, the next file follows, and
    /// these samples are kept.
    padding: Range<u64>,
    /// Samples that have arrived and may belong to the padding at the end of the file. They are held until it is known
    /// that the file ends there.
    held: Vec<f32>,
}

impl Trim {
    /// Reads the lengths in the file's first frame.
    fn of(parameters: &CodecParameters) -> Self {
        let (delay, padding) = (parameters.delay.unwrap_or(0), parameters.padding.unwrap_or(0));
        let end = parameters.n_frames.unwrap_or(u64::MAX);
        Self { delay: delay.into(), padding: end.saturating_sub(padding.into())..end, held: Vec::new() }
    }

    /// Returns those of `samples`, which begin at position `at` of the sound, that belong to the part to keep.
    fn cut(&mut self, at: u64, mut samples: Vec<f32>) -> Vec<f32> {
        let end = at + samples.len() as u64;
        let within = |position: u64| position.clamp(at, end).abs_diff(at) as usize;
        self.held.extend(samples.split_off(within(self.padding.start)));
        samples.drain(..within(self.delay).min(samples.len()));
        if end > self.padding.end {
            samples.append(&mut self.held);
        }
        samples
    }
}

impl Packets {
    /// Decodes a packet. Returns false at the end of the file.
    fn next(&mut self) -> Result<bool> {
        let packet = match self.format.next_packet() {
            Ok(packet) => packet,
            Err(Error::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
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
                let samples = mono(buffer.samples(), channels);
                let at = self.frames;
                self.frames += samples.len() as u64;
                self.converter.push(self.trim.cut(at, samples));
            }
            Err(Error::DecodeError(_)) => self.damaged += 1,
            Err(error) => bail!("the file is damaged: {error}"),
        }
        Ok(true)
    }
}

/// Returns the mean of the channels of each frame.
pub fn mono(samples: &[f32], channels: usize) -> Vec<f32> {
    samples.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() / channels as f32).collect()
}

/// Converts mono samples to 16 kHz.
#[derive(Default)]
struct Converter {
    /// Samples that were received, but are not converted yet. Between two conversions, there are fewer than [`CHUNK`].
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
            check_rate(rate)?;
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

    /// Appends the samples that can be converted now; if `is_open` is false, all remaining samples.
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
            // The converted sound has no delay at its start. Therefore only its end is cut, to the length that
            // corresponds to the received samples.
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
        let mut sound = Sound::read(wav(16_000, 1, &samples))?;
        let right: Vec<f32> = samples.iter().map(|x| f32::from(*x) / 32768.0).collect();
        assert_eq!(sound.samples(0, usize::MAX)?, right);
        assert_eq!(sound.samples(15_990, 100)?.len(), 10);
        assert!(sound.samples(20_000, 100)?.is_empty());
        Ok(())
    }

    /// libsndfile wrote the files: see `adpcm.py`.
    #[test]
    fn adaptive_codes_of_wav_files() -> Result<()> {
        let tone = tone(16_000);
        for file in [
            &include_bytes!("../../../../tests/fixtures/sounds/ima.wav")[..],
            include_bytes!("../../../../tests/fixtures/sounds/ms.wav"),
        ] {
            let mut sound = Sound::read(file)?;
            let samples = sound.samples(0, 2000)?;
            let errors = samples.iter().zip(&tone).map(|(x, wanted)| (x * 32768.0 - f32::from(*wanted)).abs());
            assert_eq!(samples.len(), 2000);
            assert!(errors.skip(64).fold(0.0, f32::max) < 220.0); // 213 by libsndfile
        }
        Ok(())
    }

    #[test]
    fn other_rates_and_channels() -> Result<()> {
        for rate in [8000, 22_050, 44_100, 48_000] {
            let stereo: Vec<i16> = tone(rate).into_iter().flat_map(|x| [x, x]).collect();
            let mut sound = Sound::read(wav(rate, 2, &stereo))?;
            assert_eq!(sound.samples(0, usize::MAX)?.len(), 16_000);
            // The 14 000 samples in the middle of the sound, 385 periods, are the same tone, shifted by less than one
            // sample.
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
        let whole = Sound::read(wav(8000, 1, &tone(8000).repeat(20)))?.samples(0, usize::MAX)?.to_vec();
        let mut sound = Sound::read(wav(8000, 1, &tone(8000).repeat(20)))?;
        for start in (0..whole.len()).step_by(10_000) {
            assert_eq!(sound.samples(start, 15_000)?, &whole[start..whole.len().min(start + 15_000)]);
            assert!(sound.samples.len() <= 40_000, "{}", sound.samples.len());
        }
        let mut long = Sound::read(wav(16000, 1, &[0; 16000].repeat(4)))?.at_most(3);
        assert!(long.samples(0, usize::MAX).unwrap_err().to_string().contains("longer than 3 seconds"));
        Ok(())
    }

    #[test]
    fn what_is_no_sound_is_refused() {
        for file in [&b""[..], b"some text that is not a sound", &[0; 4096]] {
            assert!(Sound::read(file.to_vec()).is_err());
        }
        assert!(Sound::read(wav(100, 1, &[1, 2, 3])).is_err());
    }

    /// A FLAC file of frames with one constant value each.
    fn flac(frames: u8) -> Vec<u8> {
        let crc = |bytes: &[u8], bits: u32, polynomial: u32| {
            bytes.iter().fold(0u32, |crc, byte| {
                (0..8).rev().fold(crc, |crc, bit| {
                    let is_set = crc >> (bits - 1) & 1 != u32::from(*byte) >> bit & 1;
                    (crc << 1 ^ if is_set { polynomial } else { 0 }) & ((1u64 << bits) - 1) as u32
                })
            })
        };
        // The file has blocks of 4096 samples, with 16 bits, 16 kHz and one channel.
        let info = [&[16, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xe8, 0x00, 0xf0, 0, 0, 0, 0][..], &[0; 16]].concat();
        let mut file = [b"fLaC\x80\0\0\x22", &info[..]].concat();
        for number in 0..frames {
            let mut frame = vec![0xff, 0xf8, 0xc5, 0x08, number];
            frame.push(crc(&frame, 8, 0x07) as u8);
            frame.extend([0, 0x12, 0x34]); // a constant subframe
            let sum = crc(&frame, 16, 0x8005);
            frame.extend((sum as u16).to_be_bytes());
            file.extend(frame);
        }
        file
    }

    /// Damaged files are decoded. Each gives a sound or an error within a limited time, whatever the decoder does.
    #[test]
    fn damaged_files_are_sounds_or_errors() {
        let constant = SoundFile::new(flac(3)).map(Sound::from).unwrap().samples(0, usize::MAX).unwrap().to_vec();
        assert_eq!(constant, [f32::from(0x1234i16) / 32768.0; 3 * 4096]);
        // An empty frame of MPEG 1, layer 3, with 128 kbit/s at 44.1 kHz.
        let mpeg = [&[0xff, 0xfb, 0x90, 0xc4][..], &[0; 413]].concat().repeat(4);
        let tone: Vec<i16> = tone(16_000)[..2000].to_vec();
        let (mut state, mut sounds) = (5u64, 0);
        let mut random = move |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        for file in [wav(16_000, 1, &tone), wav(16_000, 2, &tone), flac(3), mpeg] {
            for _ in 0..200 {
                let mut damaged = file.clone();
                for _ in 0..1 + random(6) {
                    let most = if random(4) == 0 { damaged.len() } else { 64 };
                    let at = random(most);
                    let any = random(256) as u8;
                    damaged[at] = [0, 1, 0x7f, 0x80, 0xff, any][random(6)];
                }
                if random(4) == 0 {
                    damaged.truncate(random(file.len()));
                }
                let Ok(sound) = SoundFile::new(damaged) else { continue };
                let mut sound = Sound::from(sound).at_most(3600);
                sounds += usize::from(sound.samples(0, usize::MAX).is_ok());
            }
        }
        assert!(sounds > 100, "only {sounds} files still had a sound");
    }

    #[test]
    fn live_sounds_are_those_of_files() -> Result<()> {
        for rate in [16_000, 44_100, 48_000] {
            let mut samples = tone(rate);
            samples.extend(tone(rate));
            let right = Sound::read(wav(rate, 1, &samples))?.samples(0, usize::MAX)?.to_vec();
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
