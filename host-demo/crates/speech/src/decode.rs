//! Decodes the text of one window. A window is a section of the sound that the encoder reads at once.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, ensure};
use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::sound::Rules;
use arenite::tokenizer::Tokenizer;
use arenite::{Error, Session, TokenId};
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::marks::Marks;
use arenite_run::generation::{End, Generation, Settings, Workbench};
use arenite_run::rng::AnyRng;
use arenite_text::{decode as text_of, log_of_sum};

/// The error of a transcription that was stopped.
pub const STOPPED: &str = "stopped";
/// Temperatures that are tried in turn, as in OpenAI's program.
const TEMPERATURES: [f32; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// A text that compresses by more than this ratio counts as repeating itself.
const REPEATED: f32 = 2.4;
/// A text with a lower mean log-probability is not trusted.
const UNLIKELY: f32 = -1.0;
/// Probability of the no-speech token above which a window counts as silent, if the text is not trusted.
const SILENT: f32 = 0.6;

/// A decoded window.
pub struct Decoded {
    /// Tokens of the text, without the end token.
    pub tokens: Vec<TokenId>,
    pub temperature: f32,
    pub avg_logprob: f32,
    pub compression_ratio: f32,
    pub no_speech_prob: f32,
}

impl Decoded {
    /// True if the window has no speech.
    pub fn is_silent(&self) -> bool {
        self.no_speech_prob > SILENT && self.avg_logprob <= UNLIKELY
    }
}

/// Decodes the text of a window whose encoder has run.
pub struct Decoder<'d, 't, 's, 'm, 'w> {
    pub session: &'d mut Session<'m, 'w>,
    pub rules: &'d Rules<'t>,
    pub marks: &'d Marks,
    pub tokenizer: &'d Tokenizer<'t, 's>,
    /// True if the text contains timestamps.
    pub timestamps: bool,
    /// Maximum number of tokens generated for a window.
    pub most: usize,
    /// Asked before each pass; false ends the transcription.
    pub goes_on: &'d dyn Fn() -> bool,
}

impl Decoder<'_, '_, '_, '_, '_> {
    /// Returns the most likely language of the window.
    pub fn language(&mut self) -> Result<Option<(&str, TokenId)>> {
        self.session.rewind(0)?;
        self.session.prefill(&[self.marks.start])?;
        let logits = self.session.logits();
        let at = |id: TokenId| logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let best = self.marks.languages.iter().max_by(|a, b| at(a.1).total_cmp(&at(b.1)));
        Ok(best.map(|(name, id)| (name.as_str(), *id)))
    }

    /// Decodes the text that follows `before` (the text of earlier windows) and `head` (start, language and task).
    /// Tries rising temperatures, beginning with `first`, until the text is plausible.
    pub fn decode(&mut self, before: &[TokenId], head: &[TokenId], first: f32) -> Result<Decoded> {
        let later = TEMPERATURES.into_iter().filter(|t| *t > first);
        let mut decoded = self.attempt(before, head, first)?;
        for temperature in later {
            let is_plausible = decoded.compression_ratio <= REPEATED && decoded.avg_logprob >= UNLIKELY;
            if is_plausible || decoded.is_silent() {
                break;
            }
            decoded = self.attempt(if temperature > 0.5 { &[] } else { before }, head, temperature)?;
        }
        Ok(decoded)
    }

    fn attempt(&mut self, before: &[TokenId], head: &[TokenId], temperature: f32) -> Result<Decoded> {
        let session = &mut *self.session;
        session.rewind(0)?;
        let mut prompt = Vec::new();
        if let (Some(previous), false) = (self.marks.previous, before.is_empty()) {
            // The text of earlier windows takes up at most half of the context, as in OpenAI's program Whisper.
            let kept = (session.context() / 2).saturating_sub(1);
            prompt.push(previous);
            prompt.extend(&before[before.len().saturating_sub(kept)..]);
        }
        let (start, rest) = head.split_at(head.len().min(1));
        prompt.extend(start);
        session.prefill(&prompt)?;
        let no_speech = self.marks.no_speech.and_then(|id| session.logits().get(id as usize).copied());
        let no_speech_prob =
            no_speech.map_or(0.0, |logit| (f64::from(logit) - log_of_sum(session.logits())).exp() as f32);
        if !rest.is_empty() {
            session.prefill(rest)?;
        }

        prompt.extend(rest);
        let params = Params { temperature, top_k: 0, top_p: 1.0, min_p: 0.0, ..Params::DEFAULT };
        let mut scratch = vec![0; Sampler::scratch_bytes(&params, session.logits().len())];
        let (limit, stop_ids) = (Some(self.most), vec![self.marks.end]);
        let settings = Arc::new(Settings { params, limit, stop_ids, ..Settings::default() });
        let rng = AnyRng::Pcg(Pcg32::new(u64::from(temperature.to_bits())));
        let mut generation = Generation::new(settings, &prompt, rng, 0, None)?;
        let mut bench = Workbench { tokenizer: None, masks: None, scratch: &mut scratch, context: session.context() };
        let (mut sum, mut count) = (0.0, 0);
        while generation.end().is_none() {
            ensure!((self.goes_on)(), STOPPED);
            self.rules.apply(session.logits_mut(), generation.answer(), self.timestamps);
            let all = log_of_sum(session.logits());
            if all.is_nan() {
                return Err(Error::NotNumbers.into());
            }
            let logits = session.logits().to_vec();
            let step = generation.step(session.logits_mut(), &mut bench)?;
            let token = match (&step.token, step.end) {
                (Some(token), _) => token.id,
                (None, Some(End::Token)) => self.marks.end,
                (None, _) => break,
            };
            sum += f64::from(logits.get(token as usize).copied().unwrap_or(0.0)) - all;
            count += 1;
            if step.end.is_none() {
                session.decode(token)?;
            }
        }
        let tokens = generation.answer().to_vec();
        let text = self.text(&tokens)?;
        Ok(Decoded {
            compression_ratio: compression_ratio(&text)?,
            tokens,
            temperature,
            avg_logprob: (sum / f64::from(count.max(1))) as f32,
            no_speech_prob,
        })
    }

    /// The text of tokens, without timestamps.
    pub fn text(&self, tokens: &[TokenId]) -> Result<String> {
        let is_text = |id: &&TokenId| {
            (**id as usize) < self.tokenizer.vocab_len()
                && (self.marks.no_timestamps.is_none() || **id < self.marks.end)
        };
        let ids: Vec<TokenId> = tokens.iter().filter(is_text).copied().collect();
        Ok(String::from_utf8_lossy(&text_of(self.tokenizer, &ids)?).into_owned())
    }
}

/// Length of a text divided by its compressed length.
fn compression_ratio(text: &str) -> Result<f32> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes())?;
    Ok(text.len() as f32 / encoder.finish()?.len().max(1) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_compressed() -> Result<()> {
        assert!(compression_ratio(&"and then ".repeat(20))? > REPEATED);
        assert!(compression_ratio("The quick brown fox jumps over the lazy dog.")? < REPEATED);
        Ok(())
    }
}
