//! Writes transcripts in several formats.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::{Segment, Summary};

/// Format of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One segment per line.
    Text,
    /// SubRip subtitles.
    Srt,
    /// WebVTT subtitles.
    Vtt,
    /// One object, in the format of OpenAI's `verbose_json`. If there are several sounds, the object takes one line.
    Json,
}

impl Format {
    /// All formats by name.
    pub const ALL: [(&str, Self); 4] =
        [("text", Self::Text), ("srt", Self::Srt), ("vtt", Self::Vtt), ("json", Self::Json)];

    /// The format with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(other, _)| *other == name).map(|(_, format)| format)
    }
}

/// Writes a transcript. Each segment is written as soon as it is known.
pub struct Writer<W> {
    format: Format,
    /// The sound's file, if it is one of several.
    file: Option<String>,
    to: W,
    segments: Vec<Segment>,
}

#[derive(Serialize)]
struct Transcript<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'p str>,
    task: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<&'p str>,
    duration: f64,
    text: String,
    segments: &'p [Segment],
}

impl<W: Write> Writer<W> {
    /// `file` names the sound if it is one of several.
    pub fn new(format: Format, file: Option<&Path>, mut to: W) -> io::Result<Self> {
        if format == Format::Vtt {
            writeln!(to, "WEBVTT\n")?;
        }
        Ok(Self { format, file: file.map(|file| file.display().to_string()), to, segments: Vec::new() })
    }

    pub fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        let text = segment.text.trim();
        match self.format {
            Format::Text => writeln!(self.to, "{text}")?,
            Format::Srt => {
                let (start, end) = (clock(segment.start, true, ','), clock(segment.end, true, ','));
                writeln!(self.to, "{}\n{start} --> {end}\n{}\n", segment.id + 1, text.replace("-->", "->"))?;
            }
            Format::Vtt => {
                let (start, end) = (clock(segment.start, false, '.'), clock(segment.end, false, '.'));
                writeln!(self.to, "{start} --> {end}\n{}\n", text.replace("-->", "->"))?;
            }
            Format::Json => self.segments.push(segment.clone()),
        }
        self.to.flush()
    }

    pub fn finish(mut self, summary: &Summary) -> io::Result<W> {
        if self.format == Format::Json {
            let transcript = Transcript {
                file: self.file.as_deref(),
                task: if summary.is_translated { "translate" } else { "transcribe" },
                language: summary.language.as_deref(),
                duration: summary.duration,
                text: self.segments.iter().map(|segment| segment.text.as_str()).collect(),
                segments: &self.segments,
            };
            match self.file {
                None => serde_json::to_writer_pretty(&mut self.to, &transcript),
                Some(_) => serde_json::to_writer(&mut self.to, &transcript),
            }
            .map_err(io::Error::from)?;
            writeln!(self.to)?;
        }
        self.to.flush()?;
        Ok(self.to)
    }
}

/// Formats a time as minutes, seconds and milliseconds. Adds the hours if `hours` is true or the time is at least one
/// hour.
fn clock(seconds: f64, hours: bool, mark: char) -> String {
    let all = (seconds.max(0.0) * 1000.0).round() as u64;
    let (hour, minute, second, milli) = (all / 3_600_000, all / 60_000 % 60, all / 1000 % 60, all % 1000);
    if hours || hour > 0 {
        format!("{hour:02}:{minute:02}:{second:02}{mark}{milli:03}")
    } else {
        format!("{minute:02}:{second:02}{mark}{milli:03}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(clock(3725.0405, true, ','), "01:02:05,041");
        assert_eq!([clock(59.9999, false, '.'), clock(3600.0, false, '.')], ["01:00.000", "01:00:00.000"]);
    }
}
