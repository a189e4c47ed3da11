//! llama.cpp's slots: the last conversations of each client, by number. A client can see, save and erase only its own
//! slots.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::Result;
use arenite::{Context, Error, TokenId};

use super::{Progress, ResultClient, Scheduler};
use crate::generation::Settings;
use crate::session_file::Head;
use arenite_text::shared;

/// Maximum number of clients. If there are more, the client that has been silent the longest is forgotten.
const MOST_CLIENTS: usize = 256;

/// A conversation of a client.
#[derive(Clone, Default)]
pub struct Slot {
    /// The tokens of the prompt and the answer that the model has read.
    pub ids: Vec<TokenId>,
    /// Number of tokens of the prompt.
    pub prompt: usize,
    /// Number of tokens of the answer so far.
    pub answer: usize,
    /// The settings of the last answer in this slot. `None` if there was none.
    pub settings: Option<Arc<Settings>>,
    /// Number of answers that are being generated.
    pub working: usize,
    lora: Vec<(usize, f32)>,
    /// Time of the last use.
    used: u64,
}

/// A request about the slots of a client.
pub struct SlotRequest {
    /// The client; `None` for all.
    pub scope: Option<u64>,
    pub action: SlotAction,
    pub answer: Box<dyn ResultClient<SlotAnswer>>,
}

/// An action on the slots of a client.
pub enum SlotAction {
    List,
    /// Takes a snapshot of the slot with this number.
    Save(usize),
    /// Puts a snapshot into the slot with this number.
    Restore(usize, Head, Vec<u8>),
    /// Forgets the slot with this number.
    Erase(usize),
}

/// The result of an action.
pub enum SlotAnswer {
    Slots(Vec<Slot>),
    /// The slot was saved: its tokens, and a snapshot of those tokens that the cache still has.
    Saved(Head, Vec<u8>),
    /// Number of tokens that the slot has now.
    Restored(usize),
    /// Number of tokens that the slot had.
    Erased(usize),
}

/// The slots of each client. The client that was active last is at the end.
#[derive(Default)]
pub struct Slots {
    clients: VecDeque<(Option<u64>, Vec<Slot>)>,
    count: usize,
    clock: u64,
}

impl Slots {
    /// Slots with the numbers 0 to `count - 1` for each client.
    pub fn new(count: usize) -> Self {
        Self { count: count.max(1), ..Self::default() }
    }

    fn of(&mut self, scope: Option<u64>) -> &mut Vec<Slot> {
        let at = self.clients.iter().position(|(known, _)| *known == scope);
        let known = at.and_then(|at| self.clients.remove(at));
        let own = known.unwrap_or_else(|| (scope, vec![Slot::default(); self.count]));
        if self.clients.len() >= MOST_CLIENTS {
            self.clients.pop_front();
        }
        self.clients.push_back(own);
        let last = self.clients.len() - 1;
        &mut self.clients[last].1
    }

    /// Returns the slot with a number. As in llama.cpp, numbers beyond the last slot start again at the first slot.
    fn numbered(&mut self, scope: Option<u64>, number: usize) -> &mut Slot {
        let at = number % self.count;
        &mut self.of(scope)[at]
    }

    /// Chooses the slot of a new answer: the slot that the request names, otherwise an idle slot that has more than a
    /// tenth of the prompt, otherwise the slot that was used the longest ago. Returns the slot's number.
    pub fn begin(&mut self, scope: Option<u64>, prompt: &[TokenId], settings: &Arc<Settings>) -> usize {
        self.clock += 1;
        let (now, count) = (self.clock, self.count);
        let own = self.of(scope);
        let idle = || own.iter().enumerate().filter(|(_, slot)| slot.working == 0);
        let alike = idle().map(|(at, slot)| (shared(&slot.ids, prompt), at));
        let alike = alike.filter(|(shared, _)| 10 * shared > prompt.len()).max_by_key(|(shared, _)| *shared);
        let oldest = || {
            let order = |(at, slot): (usize, &Slot)| (slot.working, slot.used, at);
            own.iter().enumerate().map(order).min().map_or(0, |(_, _, at)| at)
        };
        let at = settings.slot.map(|slot| slot % count).or(alike.map(|(_, at)| at)).unwrap_or_else(oldest);
        let slot = &mut own[at];
        (slot.prompt, slot.answer, slot.settings) = (prompt.len(), 0, Some(settings.clone()));
        (slot.working, slot.used) = (slot.working + 1, now);
        at
    }

    /// Stores the conversation of an answer that has ended in its slot. `ids` are the tokens that the model has read.
    pub fn end(&mut self, scope: Option<u64>, number: usize, progress: &Progress, ids: &[TokenId]) {
        let slot = self.numbered(scope, number);
        slot.working = slot.working.saturating_sub(1);
        slot.ids = ids.to_vec();
        slot.lora.clone_from(&progress.job.settings.lora);
        (slot.prompt, slot.answer) = (progress.job.prompt.len(), progress.generation.answer().len());
    }

    /// Counts an answer as ended that was never generated.
    pub fn failed(&mut self, scope: Option<u64>, number: usize) {
        let slot = self.numbered(scope, number);
        slot.working = slot.working.saturating_sub(1);
    }
}

impl Scheduler<'_, '_, '_> {
    /// Answers a request about slots.
    pub fn slot_request(&mut self, request: SlotRequest) {
        let SlotRequest { scope, action, answer } = request;
        let done = match action {
            SlotAction::List => Ok(SlotAnswer::Slots(self.slots.of(scope).clone())),
            SlotAction::Save(number) => self.save_slot(scope, number),
            SlotAction::Restore(number, head, snapshot) => self.restore_slot(scope, number, head, &snapshot),
            SlotAction::Erase(number) => {
                let Slot { ids, lora, working, .. } = std::mem::take(self.slots.numbered(scope, number));
                self.slots.numbered(scope, number).working = working;
                self.history.forget(scope, &ids, &lora);
                for context in self.cache.remove(scope, &ids, &lora) {
                    self.engine.close(context);
                }
                Ok(SlotAnswer::Erased(ids.len()))
            }
        };
        answer.send(done.map_err(|error| format!("{error:#}")));
    }

    fn save_slot(&mut self, scope: Option<u64>, number: usize) -> Result<SlotAnswer> {
        let Slot { ids, prompt, lora, .. } = self.slots.numbered(scope, number).clone();
        let head = Head { context: self.engine.plan().options.context, tokens: ids, prompt, lora, ..Head::default() };
        // The snapshot may have fewer tokens than the conversation, because the cache may have dropped the rest. The
        // rest is read again after the slot is restored.
        let known = self.cache.best(&head.tokens, &head.lora, scope);
        let room = self.open()?;
        self.engine.close(room);
        let mut context = match known.filter(|(_, shared)| *shared > 0) {
            Some((at, shared)) => {
                let context = self.cache.touch(at, self.clock);
                let position = self.engine.nearest(context, shared);
                self.engine.fork_at(context, position)?
            }
            None => self.open_with(&head.lora)?,
        };
        let mut snapshot = vec![0; self.engine.snapshot_bytes(&context)];
        let saved = self.engine.save(&context, &mut snapshot);
        self.engine.rewind(&mut context, 0).ok();
        self.engine.close(context);
        saved?;
        Ok(SlotAnswer::Saved(head, snapshot))
    }

    /// Opens a context with the conversation of a snapshot.
    pub(super) fn restored(&mut self, lora: &[(usize, f32)], snapshot: &[u8]) -> Result<Context, Error> {
        let mut context = self.open_with(lora)?;
        loop {
            match self.engine.restore(&mut context, snapshot) {
                Ok(()) => return Ok(context),
                Err(Error::OutOfPages { .. }) if self.evict() => {}
                Err(error) => {
                    self.engine.close(context);
                    return Err(error);
                }
            }
        }
    }

    fn restore_slot(&mut self, scope: Option<u64>, number: usize, head: Head, snapshot: &[u8]) -> Result<SlotAnswer> {
        let context = self.restored(&head.lora, snapshot)?;
        let Head { tokens, prompt, lora, .. } = head;
        let read = tokens[..context.position().min(tokens.len())].to_vec();
        self.clock += 1;
        if let Some(context) = self.cache.keep(context, scope, read, lora.clone(), self.clock) {
            self.engine.close(context);
        }
        if let Some(client) = scope {
            self.history.add(client, &tokens, prompt, &lora);
        }
        let slot = self.slots.numbered(scope, number);
        let count = tokens.len();
        *slot = Slot { ids: tokens, prompt, lora, working: slot.working, used: slot.used, ..Slot::default() };
        Ok(SlotAnswer::Restored(count))
    }
}
