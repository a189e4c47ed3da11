//! Divides the text of a window into segments by its timestamps.

use arenite::TokenId;
use arenite::sound::Rules;
use serde::Serialize;

/// A segment of a transcript.
#[derive(Clone, Debug, Serialize)]
pub struct Segment {
    pub id: usize,
    /// Seconds from the start of the sound.
    pub start: f64,
    pub end: f64,
    pub text: String,
    pub tokens: Vec<TokenId>,
    pub temperature: f32,
    pub avg_logprob: f32,
    pub compression_ratio: f32,
    pub no_speech_prob: f32,
}

/// A segment of a window: its tokens, and its start and end in seconds from the start of the window.
#[derive(Debug, PartialEq)]
pub struct Slice<'t> {
    pub start: f64,
    pub end: f64,
    pub tokens: &'t [TokenId],
}

/// Divides the tokens of a window, which has `seconds` of sound, into segments, as OpenAI's program does. Returns the
/// segments, and the time at which the next window begins.
pub fn divide<'t>(tokens: &'t [TokenId], rules: &Rules<'_>, seconds: f64) -> (Vec<Slice<'t>>, f64) {
    let time = |token: &TokenId| rules.seconds(*token).map(f64::from);
    let ends_alone = match tokens {
        [.., before, last] => time(before).is_none() && time(last).is_some(),
        _ => false,
    };
    let is_pair = |i: &usize| time(&tokens[i - 1]).is_some() && time(&tokens[*i]).is_some();
    let mut ends: Vec<usize> = (1..tokens.len()).filter(is_pair).collect();
    if ends.is_empty() {
        let last = tokens.iter().rev().find_map(time).filter(|last| *last > 0.0);
        return (vec![Slice { start: 0.0, end: last.unwrap_or(seconds), tokens }], seconds);
    }
    if ends_alone {
        ends.push(tokens.len());
    }
    let (mut slices, mut from) = (Vec::new(), 0);
    for end in ends {
        let part = &tokens[from..end];
        let start = part.first().and_then(time).unwrap_or(0.0);
        slices.push(Slice { start, end: part.last().and_then(time).unwrap_or(start), tokens: part });
        from = end;
    }
    let last = slices.last().map_or(seconds, |slice| slice.end);
    // Unless a single timestamp ends the window, the next window begins at the end of the last slice, because the text
    // after the last slice is unfinished.
    let next = if ends_alone || last <= 0.0 { seconds } else { last.min(seconds) };
    (slices, next)
}
