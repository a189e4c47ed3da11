//! Streams the text of an answer while it is generated.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, ensure};

use super::{Loaded, failed, gone};
use crate::scheduler::{Event, Finish};
use crate::service::{Choice, Endpoint, Prepared};
use arenite_chat::{Part, Reader};

/// An iterator over the text of an answer, in whole characters, while it is generated. Dropping the iterator stops the
/// generation.
#[must_use = "an answer that is dropped is not generated"]
pub struct Answer<'m> {
    events: Receiver<Event>,
    /// Separates the text of a chat from thoughts.
    reader: Option<Reader>,
    /// Text that was not returned yet.
    parts: VecDeque<String>,
    thought: String,
    choice: Choice,
    is_over: bool,
    /// The error that ended the answer, until it is returned.
    failure: Option<Error>,
    /// Tells the engine that nobody waits for the rest.
    is_gone: Arc<AtomicBool>,
    /// Stands for the borrow of the model: the engine that generates the answer must not outlive the model. If the
    /// answer owns the model, `owned` has it.
    model: PhantomData<&'m Loaded>,
    owned: Option<Arc<Loaded>>,
}

/// The reason why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// An end token, a stop string, or the end of the grammar.
    Stop,
    /// The maximum number of tokens, or a full context.
    Length,
}

impl Answer<'_> {
    pub(super) fn new(prepared: Prepared, events: Receiver<Event>, is_gone: Arc<AtomicBool>) -> Self {
        let reader = (prepared.endpoint == Endpoint::Chat).then(|| prepared.reader(0));
        let (parts, thought, choice) = Default::default();
        Self {
            events,
            reader,
            parts,
            thought,
            choice,
            is_over: false,
            failure: None,
            is_gone,
            model: PhantomData,
            owned: None,
        }
    }

    /// The same answer, which keeps the model alive.
    pub(super) fn keeping(mut self, model: Arc<Loaded>) -> Self {
        self.owned = Some(model);
        self
    }

    /// Waits at most `time` for more text. Returns true if there is more text, or if the answer has ended or failed:
    /// [`next`](Iterator::next) then returns at once. With this function, a program can handle other events while a
    /// long prompt is read.
    pub fn wait(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.is_over && self.parts.iter().all(String::is_empty) {
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(event) => self.failure = self.take(event).err(),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => self.failure = Some(gone()),
            }
            self.is_over |= self.failure.is_some();
        }
        true
    }

    /// Waits for the end of the answer and returns the rest of the text.
    ///
    /// # Errors
    ///
    /// The generation failed.
    pub fn text(self) -> Result<String> {
        self.collect()
    }

    /// The reason for the end, once the answer has ended.
    pub fn end(&self) -> Option<AnswerEnd> {
        self.choice.end.map(|end| match end {
            Finish::Stop => AnswerEnd::Stop,
            Finish::Length => AnswerEnd::Length,
        })
    }

    /// Returns an error if the end of the context or `max_tokens` has cut the answer off.
    ///
    /// # Errors
    ///
    /// The answer is not complete.
    pub fn must_be_whole(&self) -> Result<()> {
        ensure!(
            self.end() != Some(AnswerEnd::Length),
            "the value was cut off: raise max_tokens or the context, or limit the lengths in the schema"
        );
        Ok(())
    }

    /// Returns the thought of the model, as far as it has been generated; empty if the model does not think.
    pub fn thought(&self) -> &str {
        &self.thought
    }

    /// Returns the number of tokens of the prompt and the number of tokens of the answer, after the answer has ended.
    pub fn tokens(&self) -> (usize, usize) {
        (self.choice.prompt, self.choice.answer)
    }

    /// Takes the next event of the generation.
    fn take(&mut self, event: Event) -> Result<()> {
        self.is_over = self.choice.take(event).map_err(failed)?;
        let text = std::mem::take(&mut self.choice.text);
        let Some(reader) = &mut self.reader else {
            self.parts.push_back(text);
            return Ok(());
        };
        let mut parts = Vec::new();
        reader.push(&text, &mut parts);
        if self.is_over {
            reader.finish(&mut parts, self.choice.is_unfinished());
        }
        for part in parts {
            match part {
                Part::Content(text) => self.parts.push_back(text),
                Part::Thought(text) => self.thought += &text,
                // Never happens, because requests declare no functions.
                Part::Call(_) => {}
            }
        }
        Ok(())
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        const LONG: Duration = Duration::from_secs(3600);
        while !self.wait(LONG) {}
        while let Some(text) = self.parts.pop_front() {
            if !text.is_empty() {
                return Some(Ok(text));
            }
        }
        self.failure.take().map(Err)
    }
}
