//! Turns samples into the text of a command.

use arenite::model::Stack;
use arenite::sound::{LogMel, Rules, Voice};
use arenite::tokenizer::Tokenizer;
use arenite::workers::Workers;
use arenite::{Error, Gguf, Model, Options, Plan, Session, TokenId, Workspace};
use heapless::{String, Vec};

use crate::{mark, poll};

pub static MODEL: &[u8] = arenite::include_model!(env!("ARENITE_RECOGNIZER"));

/// Features per frame and samples per window, as in the model.
const BINS: usize = 32;
const WINDOW: usize = 32_000;
const FEATURES: usize = LogMel::frames(WINDOW) * BINS;
/// Samples from one frame of features to the next.
const HOP: usize = 160;
/// Minimum number of samples of a window. Shorter ones are ignored.
const SHORTEST: usize = 160;
/// Maximum length of a text, in tokens and in bytes.
const TOKENS: usize = 4;
const BYTES: usize = 64;

const PLAN: Plan = Plan::of(MODEL, Options::new().context(8).batch(1));
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();
static MEL: Workspace<{ LogMel::BYTES }> = Workspace::new();
static NUMBERS: Workspace<{ FEATURES * size_of::<f32>() }> = Workspace::new();
static EARLIER: Workspace<{ Voice::BEFORE * size_of::<i16>() }> = Workspace::new();

pub struct Recognizer<'m, 'a> {
    tokenizer: Tokenizer<'a, 'a>,
    rules: Rules<'a>,
    start: TokenId,
    session: Session<'m, 'a>,
    voice: Voice,
    /// Ring buffer of the last samples before a voice, and the number of samples stored since the last window.
    earlier: &'a mut [i16],
    waited: usize,
    mel: LogMel<'a>,
    features: &'a mut [f32],
    /// Number of samples of the window so far.
    taken: usize,
}

impl<'m, 'a> Recognizer<'m, 'a> {
    /// Creates the recognizer in the static memory, which can be taken once.
    #[inline(never)]
    pub fn new(gguf: &'a Gguf<'a>, model: &'m Model<'m>, workers: &'m dyn Workers) -> Result<Self, Error> {
        let part = Error::NoPart { part: "encoder of sounds" };
        let Stack::Target { start, .. } = model.spec().stack() else { return Err(part) };
        Ok(Self {
            tokenizer: Tokenizer::new(gguf, &mut [])?,
            rules: Rules::new(gguf)?,
            start,
            session: Session::new(model, PLAN, WORKSPACE.take()?, KV.take()?)?.with_workers(workers),
            voice: Voice::new(),
            earlier: bytemuck::cast_slice_mut(EARLIER.take()?),
            waited: 0,
            mel: LogMel::new(BINS, WINDOW, MEL.take()?)?,
            features: bytemuck::cast_slice_mut(NUMBERS.take()?),
            taken: 0,
        })
    }

    /// Takes samples. When the voice ends or the window is full, calls `heard` with the recognized text, which is empty
    /// for sounds that are not a command.
    pub fn push(&mut self, samples: &[i16], mut heard: impl FnMut(&str)) -> Result<(), Error> {
        for sample in samples {
            let is_voice = self.voice.push(*sample);
            if self.taken == 0 && !is_voice {
                self.wait(*sample);
                continue;
            }
            if self.taken == 0 {
                self.begin()?;
            }
            self.take(*sample)?;
            if is_voice && self.taken < WINDOW {
                continue;
            }
            if self.taken >= SHORTEST {
                mark();
                let text = self.text()?;
                mark();
                heard(&text);
            }
            self.mel.restart();
            (self.taken, self.waited) = (0, 0);
        }
        Ok(())
    }

    /// Stores a sample that may precede a voice.
    fn wait(&mut self, sample: i16) {
        if let Some(place) = self.earlier.get_mut(self.waited % Voice::BEFORE) {
            *place = sample;
        }
        self.waited += 1;
        if self.waited == 2 * Voice::BEFORE {
            self.waited = Voice::BEFORE;
        }
    }

    /// Begins a window with the last samples before the voice. The caller adds the current sample.
    fn begin(&mut self) -> Result<(), Error> {
        for i in self.waited.saturating_sub(Voice::BEFORE - 1)..self.waited {
            let sample = self.earlier.get(i % Voice::BEFORE).copied().unwrap_or(0);
            self.take(sample)?;
        }
        Ok(())
    }

    fn take(&mut self, sample: i16) -> Result<(), Error> {
        self.taken += 1;
        self.mel.push(&[sample], self.features)?;
        if self.taken.is_multiple_of(HOP) {
            poll();
        }
        Ok(())
    }

    /// The text of the window.
    #[inline(never)]
    fn text(&mut self) -> Result<String<BYTES>, Error> {
        // `finish` would also fill the window with silence, but without calls of `poll`.
        while self.taken < WINDOW {
            self.take(0)?;
        }
        self.mel.finish(self.features)?;
        poll();
        self.session.listen(self.features)?;
        let (mut text, mut decoder) = (String::new(), self.tokenizer.decoder());
        let (mut token, mut tokens) = (self.start, Vec::<TokenId, TOKENS>::new());
        while !tokens.is_full() {
            self.session.decode(token)?;
            self.rules.apply(self.session.logits_mut(), &tokens, false);
            token = best(self.session.logits());
            if self.tokenizer.is_end(token) {
                break;
            }
            decoder.write(token, &self.tokenizer, &mut text)?;
            let _ = tokens.push(token); // there is room
        }
        decoder.write_rest(&mut text)?;
        Ok(text)
    }
}

/// The most probable token.
fn best(logits: &[f32]) -> TokenId {
    let larger = |best: (TokenId, f32), (i, logit): (usize, &f32)| match *logit > best.1 {
        true => (i as TokenId, *logit),
        false => best,
    };
    logits.iter().enumerate().fold((0, f32::MIN), larger).0
}
