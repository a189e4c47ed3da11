//! Drives a [`Generation`] with one session, which can also verify proposed tokens.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;
use arenite::{Session, Work};

use super::{End, Generation, Step, Workbench};
use crate::drafts::{Draft, DraftCounts, Drafts, Turn};
use crate::eyes::Piece;
use crate::reuse::Donor;

/// Watches an answer while it is generated.
pub trait Watch {
    /// Called before each pass; false ends the answer.
    fn goes_on(&mut self) -> bool {
        true
    }

    /// Called after each pass of the prompt. `done` is the number of tokens that are already prefilled, and `sum` is
    /// the number of tokens to prefill.
    fn prefilled(&mut self, done: usize, sum: usize) {
        let _ = (done, sum);
    }

    /// Receives the text, in whole characters.
    ///
    /// # Errors
    ///
    /// The text cannot be shown; the answer then ends.
    fn text(&mut self, text: &str) -> Result<()>;
}

/// Counts and times of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub end: End,
    /// Time for prefilling the tokens of the prompt that the session did not already contain.
    pub prefill: Duration,
    /// Number of tokens read after the prefill, and the time of these passes, including sampling and drafts.
    pub decodes: usize,
    pub decode: Duration,
    pub drafts: DraftCounts,
    /// Number of prompt tokens that were reused from other positions of an earlier conversation.
    pub reused: usize,
}

/// Generates an answer. The session already contains the first tokens of the prompt. The remaining tokens are prefilled
/// in pieces of `step` tokens, with the same result as in one pass. Tokens of `donor` are reused for the prompt.
///
/// # Errors
///
/// The session, the sampler or the watcher fails.
pub fn run(
    session: &mut Session<'_, '_>,
    generation: &mut Generation,
    bench: &mut Workbench<'_, '_, '_>,
    drafts: &mut Drafts<'_>,
    (step, mut donor): (usize, Option<Donor>),
    watch: &mut dyn Watch,
) -> Result<Outcome> {
    let start = Instant::now();
    let (end, zero) = (End::Interrupted, Duration::ZERO);
    let mut outcome =
        Outcome { end, prefill: zero, decodes: 0, decode: zero, drafts: DraftCounts::default(), reused: 0 };
    let is_read = prefill(session, generation, (step, &mut donor), &mut outcome.reused, watch);
    donor.into_iter().for_each(|donor| session.parts().0.close(donor.context));
    let is_read = is_read?;
    outcome.prefill = start.elapsed();
    if !is_read {
        generation.interrupt();
        return Ok(outcome);
    }
    let start = Instant::now();
    let mut draft = Draft::default();
    let mut row = Vec::new();
    show(generation.step(session.logits_mut(), bench)?, watch)?;
    while generation.end().is_none() {
        if !watch.goes_on() {
            generation.interrupt();
            break;
        }
        if let Some(position) = generation.take_rewound() {
            let end = generation.ids().len() - 1;
            go_back(session, generation, position, end)?;
        }
        read(session, generation, bench, (drafts, &mut draft))?;
        let last = session.position() - draft.len() - 1;
        draft.begin();
        loop {
            let (engine, context) = session.parts();
            let logits = match draft.is_empty() {
                true => engine.logits_mut(context),
                false => {
                    row.clear();
                    row.extend_from_slice(engine.logits_at(context, last + draft.right));
                    &mut row[..]
                }
            };
            let step = generation.step(logits, bench)?;
            outcome.decodes += 1;
            let is_right = draft.take(step.token.as_ref().map(|token| token.id));
            show(step, watch)?;
            if !is_right || generation.end().is_some() {
                break;
            }
        }
        if !draft.is_empty() {
            let position = last + 1 + draft.right;
            go_back(session, generation, position, position)?;
        }
        draft.end(generation.end().is_some());
    }
    drafts.end(&mut draft);
    outcome.drafts = draft.counts;
    outcome.decode = start.elapsed();
    watch.text(&generation.rest())?;
    outcome.end = generation.end().unwrap_or(End::Interrupted);
    Ok(outcome)
}

fn show(step: Step, watch: &mut dyn Watch) -> Result<()> {
    step.token.map_or(Ok(()), |token| watch.text(&token.text))
}

/// Reads the last token of the text together with a draft.
fn read(
    session: &mut Session<'_, '_>,
    generation: &Generation,
    bench: &Workbench<'_, '_, '_>,
    (drafts, draft): (&mut Drafts<'_>, &mut Draft),
) -> Result<()> {
    let (engine, context) = session.parts();
    let can_undo = engine.model().spec().can_undo();
    if drafts.is_on() && generation.may_draft() {
        drafts.propose(engine, &mut [Turn { context, generation, draft }], bench.tokenizer)?;
    } else {
        draft.run = generation.ids().last().copied().into_iter().collect();
    }
    if !draft.is_empty() && !can_undo {
        engine.checkpoint(context)?;
    }
    let work = Work::prefill(context, &draft.run).all_logits();
    engine.run(&mut [if draft.is_empty() { work } else { work.tentative() }])?;
    Ok(())
}

/// Rewinds the session to `position`, and reads the tokens of the text from there to `end`.
fn go_back(session: &mut Session<'_, '_>, generation: &Generation, position: usize, end: usize) -> Result<()> {
    let (engine, context) = session.parts();
    // Rewinds further than to `position` if necessary, because some recurrent layers can only return to a checkpoint.
    // The tokens from the checkpoint on are then prefilled again.
    let back = generation.shown().whole(engine.nearest(context, position));
    session.rewind(back)?;
    if back < end { read_ids(session, generation, back..end) } else { Ok(()) }
}

/// Reads tokens of the prompt or the answer, with the pictures among them.
fn read_ids(session: &mut Session<'_, '_>, generation: &Generation, range: Range<usize>) -> Result<()> {
    let Piece { ids, spans } = generation.shown().piece(generation.ids(), range);
    if spans.is_empty() {
        return Ok(session.prefill(&ids)?);
    }
    let (engine, context) = session.parts();
    Ok(engine.run(&mut [Work::prefill(context, &ids).pictures(&spans)])?)
}

/// Prefills the prompt, and counts the reused tokens. Returns false if the watcher ended the answer.
fn prefill(
    session: &mut Session<'_, '_>,
    generation: &Generation,
    (step, donor): (usize, &mut Option<Donor>),
    reused: &mut usize,
    watch: &mut dyn Watch,
) -> Result<bool> {
    let (first, len) = (session.position(), generation.ids().len());
    if first == len {
        session.prefill(&[])?; // fails with the core's error
    }
    let mut from = first;
    while from < len {
        if !watch.goes_on() {
            return Ok(false);
        }
        if let Some(donor) = donor {
            let (engine, context) = session.parts();
            *reused += donor.give(engine, context);
            from = context.position();
        }
        let next = donor.as_ref().and_then(Donor::next).unwrap_or(len);
        let to = generation.shown().end(from, step.max(1).min(next - from));
        read_ids(session, generation, from..to)?;
        watch.prefilled(to - first, len - first);
        from = to;
    }
    Ok(true)
}
