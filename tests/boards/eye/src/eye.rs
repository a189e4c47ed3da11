//! Runs the encoder that names the sign in a picture.

use arenite::gguf::Value;
use arenite::vision::{Encoder, Options, Plan, Vision};
use arenite::{Error, Gguf, Workspace};
use heapless::Vec;

use crate::camera::{self, SIDE};

/// The model in flash.
pub static MODEL: &[u8] = arenite::include_model!(env!("ARENITE_MODEL"));
const PLAN: Plan = Plan::of(MODEL, SIDE, SIDE, Options::new().batch(1));
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();

/// Number of signs.
const SIGNS: usize = PLAN.rows;

pub struct Eye<'a> {
    encoder: Encoder<'a, 'static>,
    signs: Vec<&'a str, SIGNS>,
}

impl<'a> Eye<'a> {
    /// Creates the encoder in the static memory, which can be taken once.
    #[inline(never)]
    pub fn new(gguf: &Gguf<'a>, vision: &'a Vision<'_>) -> Result<Self, Error> {
        let mut signs = Vec::new();
        if let Some(Value::Array(labels)) = gguf.get("clip.vision.output_labels") {
            let mut labels = labels.strings();
            while let Some(label) = labels.next_string() {
                let _ = signs.push(core::str::from_utf8(label).unwrap_or("?"));
            }
        }
        Ok(Self { encoder: Encoder::new(vision, PLAN, WORKSPACE.take()?)?, signs })
    }

    /// Returns the most probable sign in a frame and its probability.
    #[inline(never)]
    pub fn see(&mut self, frame: &[u8]) -> Result<(&'a str, f32), Error> {
        self.encoder.load_rows(|y, rgb| camera::read_row(frame, y, rgb))?;
        let mut probabilities = [0.0; SIGNS];
        let best = self.encoder.decide(1.0, &mut probabilities)?;
        let name = self.signs.get(best).copied().unwrap_or("?");
        Ok((name, probabilities.get(best).copied().unwrap_or(0.0)))
    }
}
