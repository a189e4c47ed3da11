//! Saved log-probabilities of a whole vocabulary, and the divergence of a model's logits from the saved ones.
//!
//! The file has the format of llama.cpp's `llama-perplexity --kl-divergence-base`, so each program can read the other's
//! file: `_logits_`, three `u32` (tokens per chunk, vocabulary size, number of chunks), all tokens, then a record for
//! each scored token. A record is two `f32` (step and smallest log-probability) and a `u16` number of steps for each
//! token of the vocabulary, padded to an even count.

use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use arenite::TokenId;

const SHORT: &str = "the file of log-probabilities is truncated; make one with --save-logits";
const MAGIC: &[u8; 8] = b"_logits_";
/// All log-probabilities that are at least this far below the largest one are stored as the same value.
const DEPTH: f32 = 16.0;

/// Number of `u16` in a record, padded to an even count.
fn padded(vocab: usize) -> usize {
    vocab.next_multiple_of(2)
}

/// Returns the largest logit, and the logarithm of the sum of `exp(logit - largest)`.
pub fn log_sum(logits: &[f32]) -> (f32, f64) {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (top, logits.iter().map(|&logit| f64::from((logit - top).exp())).sum::<f64>().ln())
}

/// The head of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of tokens per chunk.
    pub chunk: usize,
    pub vocab: usize,
    /// Tokens of all chunks.
    pub tokens: Vec<TokenId>,
}

impl Head {
    pub fn write(&self, out: &mut impl Write) -> Result<()> {
        out.write_all(MAGIC)?;
        let chunks = self.tokens.len() / self.chunk;
        for number in [self.chunk, self.vocab, chunks] {
            out.write_all(&u32::try_from(number)?.to_le_bytes())?;
        }
        self.tokens.iter().try_for_each(|token| out.write_all(&token.to_le_bytes()))?;
        Ok(())
    }

    pub fn read(from: &mut impl Read) -> Result<Self> {
        let mut head = [[0; 4]; 5];
        from.read_exact(head.as_flattened_mut()).context(SHORT)?;
        ensure!(
            head.as_flattened().starts_with(MAGIC),
            "this is not a file of log-probabilities: make one with --save-logits"
        );
        let [chunk, vocab, chunks] = [2, 3, 4].map(|i| u32::from_le_bytes(head[i]) as usize);
        let sizes = (2..1 << 24).contains(&chunk) && (1..1 << 24).contains(&vocab) && chunks < 1 << 24;
        ensure!(sizes, "the file of log-probabilities is damaged: it claims {chunks} chunks of {chunk} tokens");
        let mut tokens = Vec::new();
        let mut token = [0; 4];
        for _ in 0..chunk * chunks {
            from.read_exact(&mut token).context(SHORT)?;
            tokens.push(TokenId::from_le_bytes(token));
        }
        Ok(Self { chunk, vocab, tokens })
    }
}

/// The log-probabilities of all tokens of a vocabulary, in steps of equal size: token `i` has `least + step *
/// steps[i]`.
pub struct Record {
    step: f32,
    least: f32,
    steps: Vec<u16>,
}

impl Record {
    /// Encodes a model's logits.
    pub fn of(logits: &[f32]) -> Self {
        let (top, log_sum) = log_sum(logits);
        let low = logits.iter().copied().fold(f32::INFINITY, f32::min).max(top - DEPTH);
        let step = (top - low) / 65535.0;
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        let steps = logits.iter().map(|&logit| (inverse * (logit - low).max(0.0)).round_ties_even() as u16).collect();
        Self { step, least: low - top - log_sum as f32, steps }
    }

    pub fn write(&self, out: &mut impl Write) -> Result<()> {
        out.write_all(&self.step.to_le_bytes())?;
        out.write_all(&self.least.to_le_bytes())?;
        let padding = padded(self.steps.len()) - self.steps.len();
        let mut bytes: Vec<u8> = self.steps.iter().flat_map(|steps| steps.to_le_bytes()).collect();
        bytes.resize(bytes.len() + 2 * padding, 0);
        Ok(out.write_all(&bytes)?)
    }

    pub fn read(from: &mut impl Read, vocab: usize) -> Result<Self> {
        let mut bytes = vec![0; 8 + 2 * padded(vocab)];
        from.read_exact(&mut bytes).context(SHORT)?;
        let (floats, steps) = bytes.split_at(8);
        let float = |i: usize| floats.as_chunks().0.get(i).map_or(0.0, |bytes| f32::from_le_bytes(*bytes));
        let steps = steps.as_chunks().0.iter().take(vocab).map(|bytes| u16::from_le_bytes(*bytes)).collect();
        Ok(Self { step: float(0), least: float(1), steps })
    }

    /// The log-probability of token `id`.
    pub fn log_prob(&self, id: TokenId) -> f64 {
        self.steps
            .get(id as usize)
            .map_or(f64::NEG_INFINITY, |&steps| f64::from(self.step * f32::from(steps) + self.least))
    }

    /// Returns the Kullback-Leibler divergence of a model's logits from this record, in nats, and true if both have the
    /// same most probable token.
    pub fn divergence(&self, logits: &[f32]) -> (f64, bool) {
        let (top, log_sum) = log_sum(logits);
        let norm = f64::from(top) + log_sum;
        let mut sum = 0.0;
        for (&steps, &logit) in self.steps.iter().zip(logits) {
            let ours = self.step * f32::from(steps) + self.least;
            if ours > -DEPTH {
                sum += f64::from(ours.exp()) * (f64::from(ours) - f64::from(logit) + norm);
            }
        }
        let largest = self.steps.iter().max();
        let first = self.steps.iter().position(|steps| Some(steps) == largest);
        (sum, first == logits.iter().position(|&logit| logit == top))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let logits = [1.0, -3.5, 4.25, 0.0, -40.0];
        let record = Record::of(&logits);
        let mut bytes = Vec::new();
        record.write(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 8 + 12);
        let back = Record::read(&mut &bytes[..], 5).unwrap();
        let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        for (id, &logit) in (0..4).zip(&logits) {
            assert!((back.log_prob(id) - (f64::from(logit) - sum.ln())).abs() < 2e-4, "{id}");
        }
        // The divergence of a record from its own logits is only the rounding error, at most half a step. The
        // divergence from uniform logits of five tokens is ln 5 minus the entropy, and `entropy` below is the negative
        // entropy.
        let (itself, same) = back.divergence(&logits);
        assert!(itself.abs() < f64::from(DEPTH) / 65535.0 / 2.0 && same, "{itself}");
        let (uniform, same) = back.divergence(&[0.0; 5]);
        let entropy: f64 = logits.iter().map(|&x| f64::from(x).exp() / sum * (f64::from(x) - sum.ln())).sum();
        assert!((uniform - (entropy + 5f64.ln())).abs() < 1e-4 && !same, "{uniform}");
        assert!(Record::read(&mut &bytes[1..], 5).is_err());
    }

    #[test]
    fn a_head_comes_back() {
        let head = Head { chunk: 2, vocab: 7, tokens: vec![1, 2, 3, 4] };
        let mut bytes = Vec::new();
        head.write(&mut bytes).unwrap();
        assert_eq!(Head::read(&mut &bytes[..]).unwrap(), head);
        assert!(Head::read(&mut &bytes[..bytes.len() - 1]).is_err());
        assert!(Head::read(&mut &b"GGUF------------------"[..]).is_err());
    }
}
