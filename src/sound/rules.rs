//! The rules that Whisper's decoder follows: tokens that are never generated, and the order of timestamps.

use crate::gguf::{Array, Value};
use crate::{Error, Gguf, Name, TokenId};

/// Seconds from one timestamp token to the next.
pub const TIMESTAMP: f32 = 0.02;

/// Masks the logits of tokens that may not follow, as OpenAI's decoder does.
///
/// A file holds the lists under its architecture's prefix: `suppress_tokens`, `begin_suppress_tokens` (for the first
/// token only), `no_timestamps_token_id` (the token before the timestamp tokens) and `max_initial_timestamp_index`. A
/// model without these lists has no rules.
///
/// # Examples
///
/// ```
/// use arenite::Gguf;
/// use arenite::sound::Rules;
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let rules = Rules::new(&Gguf::parse(&file)?)?;
/// let mut logits = [0.5; 512];
/// rules.apply(&mut logits, &[], false);
/// assert_eq!(logits, [0.5; 512]); // not a speech model
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Tokens that are never generated.
    suppress: Option<Array<'a>>,
    /// Tokens that are not generated first.
    begin_suppress: Option<Array<'a>>,
    /// The token that announces a text without timestamps. In the vocabulary, the timestamp tokens follow this token.
    no_timestamps: Option<TokenId>,
    /// The first timestamp of a text may be at most this late, in steps of [`TIMESTAMP`].
    latest_start: Option<u32>,
    /// The token that ends a text. Lower ids are text, higher ids are not.
    end: TokenId,
}

impl<'a> Rules<'a> {
    /// Reads the rules from a file.
    ///
    /// # Errors
    ///
    /// [`Error::KeyType`] and [`Error::KeyValue`] for keys whose values are neither token ids nor numbers of steps.
    pub fn new(gguf: &Gguf<'a>) -> Result<Self, Error> {
        let prefix = gguf.architecture()?;
        let list = |name| -> Result<Option<Array<'a>>, Error> {
            let Some(list) = gguf.array(prefix, name)? else { return Ok(None) };
            let is_id = |i| matches!(list.get(i), Some(Value::U32(_) | Value::I32(0..)));
            if (0..list.len()).all(is_id) {
                return Ok(Some(list));
            }
            Err(Error::KeyValue { key: Name::key(prefix, name), why: "is not a list of token ids" })
        };
        Ok(Self {
            suppress: list("suppress_tokens")?,
            begin_suppress: list("begin_suppress_tokens")?,
            no_timestamps: gguf.u32(prefix, "no_timestamps_token_id")?,
            latest_start: gguf.u32(prefix, "max_initial_timestamp_index")?,
            end: gguf.u32("tokenizer.ggml", "eos_token_id")?.unwrap_or(0),
        })
    }

    /// The time of a timestamp token in seconds from the start of the window.
    pub fn seconds(&self, token: TokenId) -> Option<f32> {
        let steps = token.checked_sub(self.first_time()?)?;
        Some(steps as f32 * TIMESTAMP)
    }

    /// The token of time 0.
    fn first_time(&self) -> Option<TokenId> {
        self.no_timestamps?.checked_add(1)
    }

    /// Sets the logits of tokens that may not come next to negative infinity. `generated` has the tokens after the
    /// prompt. If `timestamps` is true, timestamp tokens divide the text into segments.
    pub fn apply(&self, logits: &mut [f32], generated: &[TokenId], timestamps: bool) {
        if generated.is_empty() {
            suppress(logits, &self.begin_suppress);
        }
        suppress(logits, &self.suppress);
        if let (true, Some(first)) = (timestamps, self.first_time()) {
            self.apply_times(logits, generated, first as usize);
        }
    }

    fn apply_times(&self, logits: &mut [f32], generated: &[TokenId], first: usize) {
        let is_time = |token: &TokenId| *token as usize >= first;
        mask(logits, first - 1, first);
        let (last_is_time, one_before_is_time) = match generated {
            [.., before, last] => (is_time(last), is_time(before)),
            [last] => (is_time(last), true),
            [] => (false, true),
        };
        if last_is_time && one_before_is_time {
            mask(logits, first, usize::MAX); // times come in pairs: the end of a segment and the start of the next
        } else if last_is_time {
            mask(logits, 0, self.end as usize);
        }
        if let Some(time) = generated.iter().rev().find(|token| is_time(token)) {
            // Times do not decrease, and a segment is not empty.
            let is_pair = last_is_time && !one_before_is_time;
            mask(logits, first, (*time as usize).saturating_add(usize::from(!is_pair)));
        }
        if generated.is_empty() {
            mask(logits, 0, first);
            if let Some(latest) = self.latest_start {
                mask(logits, first.saturating_add(latest as usize).saturating_add(1), usize::MAX);
            }
        }
        // If all timestamp tokens together are more likely than the most likely text token, the next token must be a
        // timestamp.
        let (text, times) = logits.split_at_checked(first).unwrap_or_default();
        if log_sum(times) > largest(text) {
            mask(logits, 0, first);
        }
    }
}

fn suppress(logits: &mut [f32], list: &Option<Array<'_>>) {
    let Some(list) = list else { return };
    for id in (0..list.len()).filter_map(|i| list.get_i32(i)) {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

fn mask(logits: &mut [f32], start: usize, end: usize) {
    let end = end.min(logits.len());
    logits.get_mut(start.min(end)..end).unwrap_or_default().fill(f32::NEG_INFINITY);
}

fn largest(logits: &[f32]) -> f32 {
    logits.iter().fold(f32::NEG_INFINITY, |most, x| if *x > most { *x } else { most })
}

/// The logarithm of the sum of exponentials.
fn log_sum(logits: &[f32]) -> f32 {
    let most = largest(logits);
    if most == f32::NEG_INFINITY {
        return most;
    }
    most + libm::logf(logits.iter().map(|x| libm::expf(*x - most)).sum())
}
