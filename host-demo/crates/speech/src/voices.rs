//! Finds the voices in a sound: sections in which somebody speaks.

use std::ops::Range;

use anyhow::Result;
use arenite::sound::Voice;

use super::sound::Sound;

/// Number of samples that are read at a time.
const CHUNK: usize = 1600;
/// Minimum number of samples of a voice. Shorter voices are dropped, also if they are the rest of a voice that was
/// longer than a window.
const SHORTEST: usize = 160;

/// Finds voices in a sound, one after the other.
#[derive(Default)]
pub struct Voices {
    voice: Voice,
    /// Number of samples that were read so far.
    heard: usize,
    is_voice: bool,
}

impl Voices {
    /// Returns the range of the next voice after `start`; for a long voice, only the range of its first `most` samples.
    /// Returns `None` at the end of the sound.
    pub fn next(&mut self, sound: &mut Sound, start: usize, most: usize) -> Result<Option<Range<usize>>> {
        let mut begin = self.is_voice.then_some(start);
        loop {
            let kept = begin.unwrap_or(start.max(self.heard.saturating_sub(Voice::BEFORE)));
            let known = self.heard - kept;
            let samples = sound.samples(kept, known + CHUNK)?;
            let new = samples.get(known..).unwrap_or_default();
            if new.is_empty() {
                return Ok(begin.map(|begin| begin..self.heard).filter(|voice| voice.len() >= SHORTEST));
            }
            for sample in new {
                self.is_voice = self.voice.push(*sample);
                self.heard += 1;
                if self.is_voice && begin.is_none() {
                    begin = Some(start.max(self.heard.saturating_sub(Voice::BEFORE)));
                }
                let Some(first) = begin.filter(|first| !self.is_voice || self.heard - first >= most) else { continue };
                if self.heard - first >= SHORTEST {
                    return Ok(Some(first..self.heard));
                }
                begin = None;
            }
        }
    }

    /// Returns true if the last voice that was returned was cut at the maximum length, so the voice goes on after its
    /// range.
    pub fn is_within(&self) -> bool {
        self.is_voice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voices_of_a_stream() -> Result<()> {
        // The test's sound has two tones, of 8000 and of 40000 samples. There is silence before, between and after
        // them.
        let tone = |len: usize| (0..len).map(|i| if i % 40 < 20 { 9000i16 } else { -9000 });
        let pause = || std::iter::repeat_n(0, 16_000);
        let sound = pause().chain(tone(8000)).chain(pause()).chain(tone(40_000)).chain(pause());
        let bytes: Vec<u8> = sound.flat_map(i16::to_le_bytes).collect();
        let mut sound = Sound::stream(Box::new(std::io::Cursor::new(bytes)))?;
        let (mut voices, mut found, mut start) = (Voices::default(), Vec::new(), 0);
        while let Some(voice) = voices.next(&mut sound, start, 24_000)? {
            start = voice.end;
            found.push(voice);
        }
        assert_eq!(found.len(), 3, "{found:?}");
        assert!((12_800..16_000).contains(&found[0].start) && (28_600..29_200).contains(&found[0].end), "{found:?}");
        assert_eq!((found[1].len(), found[2].start), (24_000, found[1].end));
        assert!((36_800..40_000).contains(&found[1].start) && (84_600..85_200).contains(&found[2].end), "{found:?}");
        Ok(())
    }
}
