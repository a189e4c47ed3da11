//! Drives a [`Generation`] with one session, which may verify proposed tokens.

use std::time::{Duration, Instant};

use anyhow::Result;
use arenite::{Session, TokenId};

use super::{End, Generation, Workbench};
use crate::guess::Guesser;

/// Watches an answer while it is generated.
pub trait Watch {
    /// Called before each pass; false ends the answer.
    fn goes_on(&mut self) -> bool {
        true
    }

    /// Called after each pass of the prompt with the number of tokens that are prefilled, and their sum.
    fn prefilled(&mut self, done: usize, sum: usize) {
        let _ = (done, sum);
    }

    /// Receives the text, in whole characters.
    ///
    /// # Errors
    ///
    /// The text cannot be shown, which ends the answer.
    fn text(&mut self, text: &str) -> Result<()>;
}

/// Counts and times of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub end: End,
    /// Time to prefill the tokens that the session did not have.
    pub prefill: Duration,
    /// Number of passes after the prefill, and the time of these passes, including sampling.
    pub decodes: usize,
    pub decode: Duration,
}

/// Generates an answer. The session has the first tokens of the prompt; the others are prefilled in pieces of `step`
/// tokens, with the same result as in one pass.
///
/// # Errors
///
/// The session, the sampler or the watcher fails.
pub fn run(
    session: &mut Session<'_, '_>,
    generation: &mut Generation,
    bench: &mut Workbench<'_, '_, '_>,
    mut guesser: Option<Guesser<'_>>,
    step: usize,
    watch: &mut dyn Watch,
) -> Result<Outcome> {
    let start = Instant::now();
    let mut outcome = Outcome { end: End::Interrupted, prefill: Duration::ZERO, decodes: 0, decode: Duration::ZERO };
    let is_read = prefill(session, &generation.ids()[session.position()..], step, watch)?;
    outcome.prefill = start.elapsed();
    if !is_read {
        generation.interrupt();
        return Ok(outcome);
    }
    let start = Instant::now();
    while generation.end().is_none() {
        if !watch.goes_on() {
            generation.interrupt();
            break;
        }
        let logits = match &mut guesser {
            Some(guesser) => guesser.logits(session),
            None => session.logits_mut(),
        };
        let step = generation.step(logits, bench)?;
        if let Some(token) = step.token {
            watch.text(&token.text)?;
            if let Some(position) = generation.take_rewound() {
                let (engine, context) = session.parts();
                let position = engine.nearest(context, position);
                session.rewind(position)?;
                session.prefill(&generation.ids()[session.position()..])?;
            } else if step.end.is_none() {
                match &mut guesser {
                    Some(guesser) => _ = guesser.decode(session, generation.ids())?,
                    None => session.decode(token.id)?,
                }
                outcome.decodes += 1;
            }
        }
    }
    outcome.decode = start.elapsed();
    watch.text(&generation.rest())?;
    outcome.end = generation.end().unwrap_or(End::Interrupted);
    Ok(outcome)
}

/// Prefills the prompt. Returns false if the watcher ended the answer.
fn prefill(session: &mut Session<'_, '_>, prompt: &[TokenId], step: usize, watch: &mut dyn Watch) -> Result<bool> {
    if prompt.is_empty() {
        session.prefill(&[])?; // fails with the core's error
    }
    let mut done = 0;
    for part in prompt.chunks(step.max(1)) {
        if !watch.goes_on() {
            return Ok(false);
        }
        session.prefill(part)?;
        done += part.len();
        watch.prefilled(done, prompt.len());
    }
    Ok(true)
}
