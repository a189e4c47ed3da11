//! Pictures in prompts.

use arenite_chat::Prompt;
use arenite_request::Refusal;

use super::Service;

impl Service {
    /// Puts the pictures of a prompt in their places. `field` names the prompt in errors.
    pub fn seen(&self, field: &str, prompt: Prompt) -> Result<Prompt, Refusal> {
        match prompt.pictures.is_empty() {
            true => Ok(prompt),
            false => Err(Refusal::about(field, NO_EYES)),
        }
    }
}

/// The error for pictures without a projector.
pub const NO_EYES: &str = "this model reads no pictures here: leave them out, or give the projector of a model that sees with \
                       --mmproj FILE";
