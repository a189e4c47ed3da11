//! Pictures in prompts.

use arenite_chat::Prompt;
use arenite_request::{MOST_PICTURES, PictureSource, Refusal};

use super::Service;
use crate::eyes::Sights;

/// Fetches the file at an address that a client gave.
pub type Fetch = fn(&str) -> anyhow::Result<Vec<u8>>;

impl Service {
    /// Returns the tokens of a prompt, including those of its pictures. `field` is the prompt's name in errors.
    /// `is_first` is true for the first prompt in a context, which begins with BOS.
    pub(super) fn sights(&self, field: &str, mut prompt: Prompt, is_first: bool) -> Result<Sights, Refusal> {
        let refused = |error: anyhow::Error| Refusal::about(field, format!("{error:#}"));
        if prompt.pictures.is_empty() {
            let tokenizer = self.tokenizer();
            let ids = if is_first { prompt.encode(tokenizer) } else { prompt.encode_after(0, tokenizer) };
            return Ok(ids.map_err(refused)?.into());
        }
        let count = prompt.pictures.len();
        if count > MOST_PICTURES {
            let message =
                format!("there are {count} pictures, and at most {MOST_PICTURES} are possible: leave some out");
            return Err(Refusal::about(field, message));
        }
        let eyes = self.open.need_eyes().map_err(refused)?;
        for picture in &mut prompt.pictures {
            if let (PictureSource::Address(address), Some(fetch)) = (&*picture, self.fetch) {
                *picture = PictureSource::File(fetch(address).map_err(refused)?.into());
            }
        }
        // Check the length first, so that a prompt that is too long is refused before its pictures are encoded.
        let ids = eyes.tokens(&prompt, is_first, self.tokenizer(), &self.limits).map_err(refused)?;
        if ids.len() > self.context {
            return Err(Refusal::too_long(field, ids.len(), self.context));
        }
        let sights = eyes.see(&prompt.pictures, self.open.machine(self.limits)).map_err(refused)?;
        eyes.place(ids, &sights).map_err(refused)
    }
}
