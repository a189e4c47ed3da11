//! Runs encoders of sounds.

use super::{Context, Engine};
use crate::Error;
use crate::sound::check_samples;

impl Engine<'_, '_> {
    /// Runs the encoder on a sound: log-mel features, `[frames][bins]` ([`LogMel`](crate::sound::LogMel)), or samples,
    /// depending on the model's [`Front`](crate::model::Front). The context restarts at position 0 and attends to this
    /// sound from now on; afterwards [`states`](Self::states) returns the encoder's states.
    ///
    /// Whisper expects the features of its whole window, padded with silence.
    ///
    /// # Errors
    ///
    /// [`Error::NoPart`] if the model has no encoder of sounds; [`Error::Sound`] for values that are not finite and for
    /// a sound that is too short; [`Error::ContextFull`], [`Error::OutOfPages`], [`Error::ForeignContext`]. On error
    /// nothing was run.
    pub fn listen(&mut self, context: &mut Context, sound: &[f32]) -> Result<(), Error> {
        self.known(context)?;
        let part = Error::NoPart { part: "encoder of sounds" };
        let front = self.forward.spec.sound().ok_or(part)?.front;
        check_samples(sound, 0)?;
        let frames = sound.len() / front.inputs().max(1);
        let positions = front.positions(frames);
        if positions == 0 || frames * front.inputs() != sound.len() {
            return Err(Error::Sound { at: sound.len(), why: "is missing: the model needs a longer sound" });
        }
        self.begin_source(context, positions)?;
        self.forward.listen(context.slot, (front, frames), sound);
        Ok(())
    }
}
