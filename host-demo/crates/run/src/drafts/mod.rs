//! Drafts: several tokens are proposed and then verified in one pass together with the last token.
//!
//! A proposal never changes an answer: each token is chosen from the same logits as without drafts. Each conversation
//! has a [`Draft`]; [`Drafts`] proposes tokens for several conversations at once. The code that runs a conversation
//! verifies its tokens.
//!
//! ```text
//! pace   the length of drafts, from the acceptance seen      small  a smaller model that proposes tokens
//! cost   weights that a step reads
//! ```

mod cost;
mod pace;
mod small;

use anyhow::Result;
use arenite::sampler::argmax;
use arenite::speculation::lookup;
use arenite::tokenizer::Tokenizer;
use arenite::{Context, Engine, Error, Options, TokenId, Work};

use crate::generation::Generation;
use crate::open_model::OpenModel;
use crate::runtime::{DraftChoice, Memory};
use pace::Pace;
use small::{Reader, Small};

/// The source of drafts, and their greatest length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drafting {
    source: Kind,
    most: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Own,
    Lookup,
    Small,
}

impl Drafting {
    /// No drafts.
    pub const OFF: Self = Self { source: Kind::Lookup, most: 0 };

    /// Chooses the source for a model. `has_others` is true if several conversations may run at once.
    pub fn of(open: &OpenModel, has_others: bool) -> Self {
        let (model, options) = (open.model(), &open.options);
        let spec = model.spec();
        let continues = spec.has_head() && !spec.has_cross_attention();
        // Drafts are shorter if several conversations may run, because the tokens of all conversations share a pass
        // with the drafts.
        let of_text = if has_others { 4 } else { 8 };
        let (source, most) = match &options.draft {
            _ if !continues => return Self::OFF,
            DraftChoice::Off => return Self::OFF,
            DraftChoice::Lookup => (Kind::Lookup, of_text),
            _ if model.can_draft() && open.small().is_none() => (Kind::Own, 3),
            DraftChoice::File(_) => (Kind::Small, 4),
            // Drafts are off for models that cannot undo tokens, because they would have to compute accepted tokens
            // again.
            DraftChoice::Auto | DraftChoice::Beside(_) if !spec.can_undo() => return Self::OFF,
            DraftChoice::Auto | DraftChoice::Beside(_) => (Kind::Lookup, of_text),
        };
        let most = options.draft_max.unwrap_or(most);
        Self { source, most: most.min(options.batch.saturating_sub(1)) }
    }

    /// True if there may be drafts.
    pub fn is_on(&self) -> bool {
        self.most > 0
    }

    /// Adds the memory for drafts of `parallel` conversations to the options of a plan.
    pub fn planned(&self, options: Options, parallel: usize) -> Options {
        if self.most == 0 {
            return options;
        }
        let options = options.drafts(self.most).own_drafts(self.source == Kind::Own);
        options.logits(parallel * (1 + self.most))
    }
}

/// Number of tokens that were proposed and verified, and number of these tokens that were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    pub drafted: usize,
    pub accepted: usize,
}

impl std::ops::AddAssign for DraftCounts {
    fn add_assign(&mut self, other: Self) {
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }
}

/// The draft of one conversation.
#[derive(Debug, Default)]
pub struct Draft {
    /// The last token of the text, which the model has not read, and the proposed tokens.
    pub run: Vec<TokenId>,
    /// Number of proposed tokens that were accepted.
    pub right: usize,
    pub counts: DraftCounts,
    pace: Pace,
    /// The conversation's context in the smaller model.
    reader: Option<Reader>,
}

impl Draft {
    /// Number of proposed tokens.
    pub fn len(&self) -> usize {
        self.run.len().saturating_sub(1)
    }

    /// True if no token is proposed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to verify the tokens of the pass that has run.
    pub fn begin(&mut self) {
        self.right = 0;
        self.counts.drafted += self.len();
    }

    /// Compares the token that was chosen with the next proposed token. Returns true if they are equal. The logits
    /// after this token are then known from the same pass.
    pub fn take(&mut self, token: Option<TokenId>) -> bool {
        let is_right = token.is_some() && self.run.get(self.right + 1).copied() == token;
        self.right += usize::from(is_right);
        self.counts.accepted += usize::from(is_right);
        is_right
    }

    /// Ends the verification of the proposed tokens. Reports the number of right tokens to `pace`, which limits later
    /// drafts, and forgets the proposed tokens. `is_over` is true if the answer has ended: then no wrong token was
    /// found, even if not all tokens were used.
    pub fn end(&mut self, is_over: bool) {
        self.pace.add(self.right, self.right < self.len() && !is_over);
        self.run.clear();
    }
}

/// A conversation that is about to read its last token.
pub struct Turn<'c> {
    pub context: &'c mut Context,
    pub generation: &'c Generation,
    pub draft: &'c mut Draft,
}

/// Proposes tokens for the conversations of an engine.
pub struct Drafts<'a> {
    source: Source<'a>,
    most: usize,
    /// Cost of proposing a token, relative to a pass for one token. The cost of verifying is not included.
    cost: f64,
}

enum Source<'a> {
    Own,
    Lookup,
    Small(Box<Small<'a>>),
}

impl<'a> Drafts<'a> {
    /// Creates the source for an opened model. If the source is a smaller model, `memory` is the memory of its session.
    pub fn new(
        open: &'a OpenModel,
        drafting: Drafting,
        parallel: usize,
        context: usize,
        memory: &'a mut Option<Memory>,
    ) -> Result<Self> {
        let (source, cost) = match (drafting.source, open.small()) {
            (Kind::Small, Some(small)) => (
                Source::Small(Box::new(Small::new(small, open, (parallel, context), memory)?)),
                cost::of_small(small, open),
            ),
            (Kind::Own, _) => (Source::Own, cost::of_own(open)),
            _ => (Source::Lookup, 0.0),
        };
        Ok(Self { source, most: drafting.most, cost })
    }

    /// True if there may be drafts.
    pub fn is_on(&self) -> bool {
        self.most > 0
    }

    /// Proposes tokens that may follow the text of each turn, and stores them in the turns' [`Draft::run`]. A turn may
    /// get no proposals.
    pub fn propose(
        &mut self,
        engine: &mut Engine<'_, '_>,
        turns: &mut [Turn<'_>],
        tokenizer: Option<&Tokenizer<'_, '_>>,
    ) -> Result<()> {
        let context = engine.plan().options.context;
        let mut wanted = Vec::with_capacity(turns.len());
        for turn in &mut *turns {
            turn.draft.run.clear();
            turn.draft.run.extend(turn.generation.ids().last());
            let room = turn.generation.room(context).min(self.most);
            wanted.push(if room > 0 { turn.draft.pace.length(room, self.cost) } else { 0 });
        }
        if wanted.iter().all(|wanted| *wanted == 0) {
            return Ok(());
        }
        match &mut self.source {
            Source::Own => own(engine, turns, &wanted, tokenizer)?,
            Source::Small(small) => small.propose(turns, &wanted)?,
            Source::Lookup => {
                for (turn, wanted) in turns.iter_mut().zip(&wanted) {
                    turn.draft.run.extend(lookup(turn.generation.ids(), *wanted));
                }
            }
        }
        for turn in turns {
            let allowed = turn.generation.allowed(&turn.draft.run[1..], tokenizer);
            turn.draft.run.truncate(1 + allowed);
        }
        Ok(())
    }

    /// Frees the context that the smaller model has for a conversation that has ended.
    pub fn end(&mut self, draft: &mut Draft) {
        if let (Source::Small(small), Some(reader)) = (&mut self.source, draft.reader.take()) {
            small.close(reader);
        }
    }
}

/// Proposes the most probable tokens according to the model's own draft layers. Each step proposes one token for every
/// turn.
fn own(
    engine: &mut Engine<'_, '_>,
    turns: &mut [Turn<'_>],
    wanted: &[usize],
    tokenizer: Option<&Tokenizer<'_, '_>>,
) -> Result<()> {
    let most = wanted.iter().copied().max().unwrap_or(0);
    let mut is_cut = vec![false; turns.len()];
    for step in 0..most {
        let mut works = Vec::with_capacity(turns.len());
        for ((turn, wanted), is_cut) in turns.iter_mut().zip(wanted).zip(&is_cut) {
            if step < *wanted
                && !is_cut
                && let Some(token) = turn.draft.run.last()
            {
                works.push(Work::decode(turn.context, *token));
            }
        }
        if works.is_empty() {
            break;
        }
        match engine.draft(&mut works) {
            // Without free pages, nothing is proposed, and no error is reported, because proposals must not take memory
            // that conversations need.
            Err(Error::OutOfPages { .. }) => return Ok(()),
            done => done?,
        }
        for ((turn, wanted), is_cut) in turns.iter_mut().zip(wanted).zip(&mut is_cut) {
            if step < *wanted && !*is_cut {
                turn.draft.run.extend(argmax(engine.logits(turn.context)));
                // Stop after a token that the grammar forbids, because no guess after it can be right.
                *is_cut = turn.generation.allowed(&turn.draft.run[1..], tokenizer) < turn.draft.len();
            }
        }
    }
    Ok(())
}
