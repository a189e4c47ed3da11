//! Embeddings, one between two passes.

use arenite::Error;

use super::{Embedding, STOPPED, Scheduler, is_wanted};
use crate::ranking::Texts;

impl Scheduler<'_, '_, '_> {
    /// Embeds one text between two passes. Clients take turns. If there are too few free pages, the text waits until
    /// conversations end.
    pub(super) fn embed_next(&mut self) {
        const MOST: usize = 256;
        self.texts.retain(|text| !text.answer.is_closed());
        let last = |text: &Embedding| self.embedded.iter().position(|client| *client == text.client);
        let Some((at, _)) = self.texts.iter().enumerate().min_by_key(|(_, text)| last(text)) else { return };
        let Some(text) = self.texts.remove(at) else { return };
        match self.embed(&text) {
            Err(Error::OutOfPages { .. }) if !self.running.is_empty() => self.texts.push_front(text),
            done => {
                self.embedded.retain(|client| *client != text.client);
                self.embedded.push_back(text.client);
                if self.embedded.len() > MOST {
                    self.embedded.pop_front();
                }
                let done = done.map_err(|error| error.to_string());
                text.answer.send(done.and_then(|vector| vector.ok_or(STOPPED.into())));
            }
        }
    }

    /// Returns the vector of a text, or `None` if its client has left.
    fn embed(&mut self, text: &Embedding) -> Result<Option<Vec<f32>>, Error> {
        let mut context = self.open_with(&text.lora)?;
        let spec = *self.engine.model().spec();
        let mut vector = vec![0.0; spec.embedding_buffer()];
        let counters = self.counters.clone();
        let Texts { ids, second } = &text.texts;
        let done = loop {
            let goes_on = || is_wanted(&*text.answer, &counters);
            let made = self.engine.embed_while(&mut context, (ids, *second), &mut vector, goes_on);
            match made.map(|made| made.is_some()) {
                Err(Error::OutOfPages { .. }) if self.evict() => {}
                done => break done,
            }
        };
        self.engine.close(context);
        vector.truncate(spec.embedding_len());
        Ok(match done? {
            true => crate::runtime::numbers(&vector).map(|()| Some(vector))?,
            false => None,
        })
    }
}
