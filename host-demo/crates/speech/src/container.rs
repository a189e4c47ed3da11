//! Reduces a sound file to the parts that are needed for decoding. Tags, pictures and cue points are removed before a
//! decoder reads the file. The file states their lengths, and decoders allocate memory of this length before they read
//! the data.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use anyhow::{Result, bail, ensure};
use symphonia::core::io::MediaSource;

/// Sampling rates that can be converted.
const RATES: std::ops::RangeInclusive<u32> = 1000..=768_000;
/// Number of bytes at the start of the data in which the beginning of a WAV or FLAC file is searched for.
const SEARCHED: usize = 64 << 10;
/// Length of a FLAC stream's description.
const STREAM_INFO: usize = 34;

/// The advice on a file of another kind.
pub const OTHER_KIND: &str =
    "this is not a WAV, FLAC or MP3 file: convert it with `ffmpeg -i FILE -ar 16000 -ac 1 out.wav`";

/// The advice on a file whose codec is not supported.
pub const OTHER_CODEC: &str =
    "the codec in this file is not supported: convert it with `ffmpeg -i FILE -ar 16000 -ac 1 out.wav`";

/// Returns true for the start of a container of another format. Such a container is refused because the search for a
/// WAV or FLAC file would find the streams in the container. The container's own headers are between the frames of
/// these streams.
fn is_other(all: &[u8]) -> bool {
    /// Marks and their positions.
    const MARKS: [(usize, &[u8]); 12] = [
        (0, b"\x1a\x45\xdf\xa3"), // Matroska and WebM
        (0, b"OggS"),
        (4, b"ftyp"), // MP4
        (4, b"moov"),
        (4, b"mdat"),
        (8, b"AVI "),
        (0, b"FLV"),
        (0, b"FORM"), // AIFF
        (0, b"caff"),
        (0, b".snd"),
        (0, b"\x30\x26\xb2\x75"), // ASF: WMA
        (0, b"wvpk"),
    ];
    let has = |at: usize, mark: &[u8]| all.get(at..).is_some_and(|rest| rest.starts_with(mark));
    let is_transport_stream = [0, 188, 376].iter().all(|at| has(*at, b"\x47"));
    is_transport_stream || MARKS.iter().any(|(at, mark)| has(*at, mark))
}

/// The kind of a sound file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Wav,
    Flac,
    /// Frames of MPEG audio, without a header of their own.
    Mpeg,
}

/// A sound file without the parts that decoding does not need: a new head, then ranges of the file's bytes.
pub struct Container<B> {
    pub kind: Kind,
    bytes: B,
    head: Vec<u8>,
    ranges: Vec<Range<usize>>,
    at: u64,
}

impl<B: AsRef<[u8]>> Container<B> {
    /// Finds the parts of a file.
    ///
    /// # Errors
    ///
    /// The file is damaged, has a different format, or has a sampling rate that cannot be converted.
    pub fn new(bytes: B) -> Result<Self> {
        let all = bytes.as_ref();
        let start = behind_tags(all);
        ensure!(!is_other(&all[start..]), OTHER_KIND);
        let begins = |at: usize, mark: &[u8]| all.get(at..).is_some_and(|rest| rest.starts_with(mark));
        let is_wav = |at: usize| begins(at, b"RIFF") && begins(at + 8, b"WAVE");
        let is_mpeg = all.get(start..start + 2).is_some_and(|sync| sync[0] == 0xff && sync[1] & 0xe0 == 0xe0);
        let last = if is_mpeg { start } else { all.len().min(start.saturating_add(SEARCHED)) };
        let found = (start..=last).find_map(|at| match () {
            () if is_wav(at) => Some((Kind::Wav, at)),
            () if begins(at, b"fLaC") => Some((Kind::Flac, at)),
            () => None,
        });
        let (kind, (head, ranges)) = match found {
            Some((Kind::Wav, at)) => (Kind::Wav, wav(all, at)?),
            Some((Kind::Flac, at)) => (Kind::Flac, flac(all, at)?),
            _ => (Kind::Mpeg, (Vec::new(), std::iter::once(start..all.len()).collect())),
        };
        Ok(Self { kind, bytes, head, ranges, at: 0 })
    }

    fn len(&self) -> u64 {
        (self.head.len() + self.ranges.iter().map(Range::len).sum::<usize>()) as u64
    }
}

/// Returns the position after the ID3 tags at the start of a file.
fn behind_tags(all: &[u8]) -> usize {
    let mut at = 0;
    while let Some(tag) = all.get(at..at + 10).filter(|tag| tag.starts_with(b"ID3")) {
        let len = tag[6..10].iter().fold(0, |len, byte| len << 7 | usize::from(byte & 0x7f));
        let footer = if tag[5] & 0x10 != 0 { 10 } else { 0 };
        at = (at + 10 + len + footer).min(all.len());
    }
    at
}

fn word(all: &[u8], at: usize) -> Option<u32> {
    all.get(at..at + 4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
}

/// Refuses a sampling rate that cannot be converted.
///
/// # Errors
///
/// The rate is outside [`RATES`].
pub fn check_rate(rate: u32) -> Result<()> {
    ensure!(
        RATES.contains(&rate),
        "the sampling rate {rate} Hz is not supported: use one from {} to {} Hz",
        RATES.start(),
        RATES.end()
    );
    Ok(())
}

type Parts = (Vec<u8>, Vec<Range<usize>>);

/// Returns the bytes for a new head, and the ranges of the chunks `fmt `, `fact` and `data` of the WAV file at `start`.
fn wav(all: &[u8], start: usize) -> Result<Parts> {
    /// Maximum length in bytes of the description of a format. A longer description contains nothing that decoding
    /// needs.
    const LONGEST: usize = 256;
    let (mut ranges, mut at, mut has_format) = (Vec::new(), start + 12, false);
    loop {
        let (Some(name), Some(len)) = (all.get(at..at + 4), word(all, at + 4)) else {
            bail!("the file is damaged: it has no samples");
        };
        let body = at + 8;
        // A chunk cannot end after the end of the file: in a file that was written as a stream, the stated length of
        // the samples is wrong. A chunk with an odd length is followed by one byte of padding.
        let end = body.saturating_add(len as usize).saturating_add(len as usize & 1).min(all.len());
        match name {
            b"data" => {
                ensure!(has_format, "the file is damaged: its samples come before their format");
                ranges.push(at..all.len());
                break;
            }
            b"fmt " | b"fact" => {
                ensure!(end - body <= LONGEST, "the file is damaged: a chunk is too long");
                if name == b"fmt " {
                    check_rate(word(all, body + 4).unwrap_or(0))?;
                    has_format = true;
                }
                ranges.push(at..end);
            }
            _ => {}
        }
        at = end;
    }
    // The new head has the length of the whole file. If the file ends before its samples are complete, the length must
    // nevertheless include the stated length of the samples.
    let samples = ranges.last().and_then(|data| word(all, data.start + 4)).unwrap_or(0);
    let others: usize = ranges.iter().rev().skip(1).map(Range::len).sum();
    let len = u32::try_from(12 + others).unwrap_or(u32::MAX).saturating_add(samples);
    Ok(([&b"RIFF"[..], &len.to_le_bytes(), b"WAVE"].concat(), ranges))
}

/// Returns the description of the stream and the frames of the FLAC file that begins at `start`.
fn flac(all: &[u8], start: usize) -> Result<Parts> {
    let (mut at, mut info) = (start + 4, None);
    loop {
        let Some(&[first, a, b, c]) = all.get(at..at + 4) else {
            bail!("the file is damaged: it ends in its metadata");
        };
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let body = at + 4;
        if first & 0x7f == 0 && info.is_none() {
            info = all.get(body..body + STREAM_INFO).filter(|_| len == STREAM_INFO);
            ensure!(info.is_some(), "the file is damaged: the description of its stream has {len} bytes");
        }
        at = (body + len).min(all.len());
        if first & 0x80 != 0 {
            break;
        }
    }
    let Some(info) = info else { bail!("the file is damaged: it does not describe its stream") };
    // 20 bits after the sizes of blocks and frames.
    check_rate(u32::from(info[10]) << 12 | u32::from(info[11]) << 4 | u32::from(info[12]) >> 4)?;
    let bits = ((info[12] & 1) << 4 | info[13] >> 4) + 1;
    ensure!(
        bits <= 24,
        "FLAC with samples of {bits} bits is not supported: convert it with `ffmpeg -i FILE -ar 16000 -ac 1 out.wav`"
    );
    let end = before_tags(all).max(at);
    Ok(([b"fLaC", &[0x80, 0, 0, STREAM_INFO as u8][..], info].concat(), std::iter::once(at..end).collect()))
}

/// Returns the position before the ID3v1 and APE tags at the end of a file. The tags are cut off because decoders take
/// them for a part of the last frame.
fn before_tags(all: &[u8]) -> usize {
    let mut end = all.len();
    loop {
        let last =
            |len: usize, mark: &[u8]| all[..end].get(end.checked_sub(len)?..).filter(|tag| tag.starts_with(mark));
        let len = match (last(128, b"TAG"), last(32, b"APETAGEX")) {
            (Some(_), _) => 128,
            (None, Some(footer)) => {
                let header = if footer[23] & 0x80 != 0 { 32 } else { 0 };
                word(footer, 12).unwrap_or(0).max(32) as usize + header
            }
            (None, None) => return end,
        };
        end = end.saturating_sub(len);
    }
}

impl<B: AsRef<[u8]>> Read for Container<B> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut skip = self.at as usize;
        let parts =
            std::iter::once(&self.head[..]).chain(self.ranges.iter().map(|range| &self.bytes.as_ref()[range.clone()]));
        for part in parts {
            if skip < part.len() {
                let count = into.len().min(part.len() - skip);
                into[..count].copy_from_slice(&part[skip..skip + count]);
                self.at += count as u64;
                return Ok(count);
            }
            skip -= part.len();
        }
        Ok(0)
    }
}

impl<B: AsRef<[u8]>> Seek for Container<B> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.filter(|at| *at <= self.len()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl<B: AsRef<[u8]> + Send + Sync> MediaSource for Container<B> {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(file: &[u8]) -> Result<(Kind, Vec<u8>)> {
        let mut container = Container::new(file)?;
        let mut bytes = Vec::new();
        container.read_to_end(&mut bytes)?;
        Ok((container.kind, bytes))
    }

    fn chunk(name: &[u8; 4], len: u32, body: &[u8]) -> Vec<u8> {
        [name, &len.to_le_bytes()[..], body].concat()
    }

    /// Returns the description of a format with one channel and 16-bit samples.
    fn format(rate: u32) -> Vec<u8> {
        let body =
            [&[1, 0, 1, 0][..], &rate.to_le_bytes(), &rate.wrapping_mul(2).to_le_bytes(), &[2, 0, 16, 0]].concat();
        chunk(b"fmt ", 16, &body)
    }

    #[test]
    fn tags_of_a_wav_file_are_left_out_however_long_they_say_they_are() {
        let data = chunk(b"data", 4, &[1, 2, 3, 4]);
        let file = |parts: &[&[u8]]| [&chunk(b"RIFF", 99, b"WAVE")[..], &parts.concat()].concat();
        let plain = file(&[&format(16000), &data]);
        let kept = whole(&plain).unwrap();
        assert_eq!((kept.0, &kept.1[12..]), (Kind::Wav, &plain[12..]));
        assert_eq!(word(&kept.1, 4), Some(plain.len() as u32 - 8));
        let tags = chunk(b"LIST", 8, b"INFOINAM");
        let tagged = file(&[&tags, &format(16000), &tags, &chunk(b"id3 ", 3, b"abc\0"), &data]);
        assert_eq!(whole(&tagged).unwrap(), kept);
        assert_eq!(whole(&[b"ID3\x04\0\0\0\0\0\x03abc", &tagged[..]].concat()).unwrap(), kept);
        for (wrong, told) in [
            (file(&[&format(0), &data]), "0 Hz"),
            (file(&[&format(u32::MAX), &data]), "not supported"),
            (file(&[&chunk(b"LIST", u32::MAX, b"INFO"), &format(16000), &data]), "no samples"),
            (file(&[&data]), "before their format"),
            (file(&[&chunk(b"fmt ", 5000, &[0; 5000]), &data]), "too long"),
        ] {
            assert!(whole(&wrong).unwrap_err().to_string().contains(told), "{told}");
        }
    }

    #[test]
    fn streams_in_other_containers_are_not_read() {
        let stream =
            [b"fLaC\x80\0\0\x22", &[16, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xe8, 0x00, 0xf0][..], &[0; 20]].concat();
        assert!(whole(&[b"some start ", &stream[..]].concat()).is_ok());
        let packet = [&[0x47][..], &[0; 187]].concat();
        for start in [
            &b"\x1a\x45\xdf\xa3"[..],
            b"OggS\0\x02",
            b"\0\0\0\x1cftypM4A ",
            b"ID3\x04\0\0\0\0\0\x01\0OggS",
            &packet.repeat(3),
        ] {
            let told = whole(&[start, &[0; 300], &stream].concat()).unwrap_err().to_string();
            assert!(told.contains("ffmpeg -i FILE"), "{told}");
        }
    }

    #[test]
    fn samples_of_32_bits_are_refused() {
        let info = [&[16, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xe8, 0x01, 0xf0][..], &[0; 20]].concat();
        let told = whole(&[b"fLaC\x80\0\0\x22", &info[..]].concat()).unwrap_err().to_string();
        assert!(told.contains("samples of 32 bits"), "{told}");
    }

    #[test]
    fn metadata_of_a_flac_file_is_left_out_however_long_it_says_it_is() {
        let info = [&[16, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xe8, 0x00, 0xf0][..], &[0; 20]].concat();
        let block = |first: u8, len: u32, body: &[u8]| [&[first], &len.to_be_bytes()[1..], body].concat();
        let kept = [b"fLaC", &block(0x80, 34, &info)[..], b"frames"].concat();
        let tagged =
            [b"fLaC", &block(0, 34, &info)[..], &block(4, 3, b"abc"), &block(0x86, 2, b"ab"), b"frames"].concat();
        assert_eq!(whole(&tagged).unwrap(), (Kind::Flac, kept.clone()));
        assert_eq!(whole(&[b"junk", &tagged[..]].concat()).unwrap(), (Kind::Flac, kept.clone()));
        let ape = |flags: u8| {
            [b"APETAGEX", &2000u32.to_le_bytes()[..], &35u32.to_le_bytes(), &[1, 0, 0, 0, 0, 0, 0, flags], &[0; 8]]
                .concat()
        };
        let id3 = [&b"TAG"[..], &[0; 125]].concat();
        for end in [&[&id3[..]][..], &[&ape(0xa0), b"abc", &ape(0x80)], &[b"abc", &ape(0), &id3]] {
            assert_eq!(whole(&[&kept[..], &end.concat()].concat()).unwrap(), (Kind::Flac, kept.clone()));
        }
        let endless = [b"fLaC", &block(0, 34, &info)[..], &block(6, 0xff_ffff, b"abc")].concat();
        assert!(whole(&endless).unwrap_err().to_string().contains("ends in its metadata"));
        let silent = [b"fLaC", &block(0x80, 34, &[0; 34])[..]].concat();
        assert!(whole(&silent).unwrap_err().to_string().contains("0 Hz"));
    }
}
