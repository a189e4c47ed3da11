//! A smaller model that proposes tokens. It has a context for each conversation.

use anyhow::Result;
use arenite::sampler::argmax;
use arenite::{Context, Engine, TokenId, Work};

use super::Turn;
use crate::open_model::OpenModel;
use crate::runtime::Memory;

/// What the smaller model has read of a conversation: its context, and the tokens that the context contains.
#[derive(Debug)]
pub struct Reader {
    context: Context,
    read: Vec<TokenId>,
}

/// The smaller model.
pub struct Small<'a> {
    engine: Engine<'a, 'a>,
    /// Number of token ids that both models have. Ids from this number on only pad the vocabulary of one of the models.
    shared: usize,
}

impl<'a> Small<'a> {
    /// Plans the model for `parallel` conversations of `context` positions. The smaller model runs on the threads of
    /// the large model.
    pub fn new(
        small: &'a OpenModel,
        open: &'a OpenModel,
        (parallel, context): (usize, usize),
        memory: &'a mut Option<Memory>,
    ) -> Result<Self> {
        let options = small.plan_options(context.min(small.model().spec().context)).contexts(parallel).checkpoints(1);
        let plan = small.plan(options.workers(open.workers().count()))?;
        let engine = small.engine(memory.insert(Memory::new(&plan)?), plan)?.with_workers(open.workers());
        let shared = small.model().spec().vocab.min(open.model().spec().vocab);
        Ok(Self { engine, shared })
    }

    /// Proposes the greedy continuation of each turn's text. A turn gets no proposals if the smaller model lacks one of
    /// the text's tokens, or if the smaller model's context is too short.
    pub fn propose(&mut self, turns: &mut [Turn<'_>], wanted: &[usize]) -> Result<()> {
        let Self { engine, shared } = self;
        let positions = engine.plan().options.context;
        let mut drafting = Vec::new();
        for (turn, wanted) in turns.iter_mut().zip(wanted) {
            let text = turn.generation.ids();
            let most = (*wanted).min((positions + 1).saturating_sub(text.len()));
            if most == 0 || text.iter().any(|token| *token as usize >= *shared) {
                continue;
            }
            let reader = match &mut turn.draft.reader {
                Some(reader) => reader,
                none => none.insert(Reader { context: engine.open()?, read: Vec::new() }),
            };
            let known = reader.read.iter().zip(text).take_while(|(a, b)| a == b).count().min(text.len() - 1);
            let known = engine.nearest(&reader.context, known);
            engine.rewind(&mut reader.context, known)?;
            reader.read.truncate(known);
            drafting.push((reader, &mut turn.draft.run, text, most));
        }
        // Prefill the new tokens of the text except the last. Save the state before the last token, so that the model
        // can go back when a proposal is refused.
        for (reader, _, text, _) in &mut drafting {
            let unread = &text[reader.read.len()..text.len() - 1];
            if !unread.is_empty() {
                engine.run(&mut [Work::prefill(&mut reader.context, unread).no_logits()])?;
                reader.read.extend(unread);
            }
            engine.checkpoint(&reader.context)?;
        }
        let most = drafting.iter().map(|(.., most)| *most).max().unwrap_or(0);
        for step in 0..most {
            let mut works = Vec::with_capacity(drafting.len());
            for (reader, run, _, most) in &mut drafting {
                if step < *most
                    && let Some(token) = run.last()
                {
                    reader.read.push(*token);
                    works.push(Work::decode(&mut reader.context, *token));
                }
            }
            engine.run(&mut works)?;
            for (reader, run, _, most) in &mut drafting {
                if step < *most {
                    let token = engine.logits(&reader.context).get(..*shared).and_then(argmax);
                    run.extend(token);
                }
            }
        }
        Ok(())
    }

    /// Frees the context of a conversation.
    pub fn close(&mut self, reader: Reader) {
        self.engine.close(reader.context);
    }
}
