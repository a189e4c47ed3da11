//! Runs the model that names the fault in a log.

use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Answers, Error, Gguf, KvType, Model, Options, Plan, Session, Workspace};
use heapless::Vec;

/// The model in flash, packed by `arenite pack`: it contains the tokenizer's index, which therefore takes no RAM.
pub static MODEL: &[u8] = arenite::include_model!(env!("ARENITE_MODEL"));
const PLAN: Plan = Plan::of(MODEL, Options::new().context(80).batch(1).kv(KvType::F32)).within(40 * 1024);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();
/// Scratch of the tokenizer. The texts are ASCII.
static SCRATCH: Workspace<{ Tokenizer::scratch_bytes_utf8(crate::LONGEST) }> = Workspace::new();

/// Number of codes.
const CODES: usize = 12;
/// The most values that the layers after an encoder's pooling need.
const BUFFER: usize = 64;

pub struct Decider<'m, 'a> {
    tokenizer: Tokenizer<'a, 'a>,
    session: Session<'m, 'a>,
    scratch: &'a mut [u8],
    codes: Codes<'a>,
}

impl<'m, 'a> Decider<'m, 'a> {
    /// Creates the decider in the static memory, which can be taken once.
    #[inline(never)]
    pub fn new(gguf: &'a Gguf<'a>, model: &'m Model<'_>) -> Result<Self, Error> {
        let tokenizer = Tokenizer::packed(gguf)?;
        let codes = Codes::new(gguf, &tokenizer);
        let session = Session::new(model, PLAN, WORKSPACE.take()?, KV.take()?)?;
        Ok(Self { tokenizer, session, scratch: SCRATCH.take()?, codes })
    }

    /// Returns the most probable code of a log and its probability. If a log has too many tokens, its first lines are
    /// dropped.
    #[inline(never)]
    pub fn decide(&mut self, log: &Vec<u8, { crate::LONGEST }>) -> Result<(&'a str, f32), Error> {
        let mut ids = [0; PLAN.options.context];
        let mut log = log.as_slice();
        // The text comes from outside, so names of control tokens in it are plain text.
        let encode = Encode { parse_special: false, ..Encode::PROMPT };
        let count = loop {
            match self.tokenizer.encode(log, encode, self.scratch, &mut ids) {
                Err(Error::BufferTooSmall { needed, .. }) if needed > ids.len() && !log.is_empty() => {
                    log = after_line(log)
                }
                result => break result?,
            }
        };
        let (mut probabilities, mut buffer) = ([0.0; CODES], [0.0; BUFFER]);
        let prompt = ids.get(..count).unwrap_or(&[]);
        let best = self.session.decide(prompt, self.codes.answers(), 1.0, &mut probabilities, &mut buffer)?;
        Ok((self.codes.name(best), probabilities.get(best).copied().unwrap_or(0.0)))
    }
}

/// The codes of an encoder: the classes of the model, whose names are in the file.
#[cfg(not(feature = "decoder"))]
struct Codes<'a>(Vec<&'a str, CODES>);

#[cfg(not(feature = "decoder"))]
impl<'a> Codes<'a> {
    fn new(gguf: &Gguf<'a>, _: &Tokenizer<'a, 'a>) -> Self {
        let mut names = Vec::new();
        if let Some(arenite::gguf::Value::Array(labels)) = gguf.get("bert.classifier.output_labels") {
            let mut labels = labels.strings();
            while let Some(label) = labels.next_string() {
                let _ = names.push(core::str::from_utf8(label).unwrap_or("?"));
            }
        }
        Self(names)
    }

    fn answers(&self) -> Answers<'_> {
        Answers::Classes
    }

    fn name(&self, index: usize) -> &'a str {
        self.0.get(index).copied().unwrap_or("?")
    }
}

/// The codes of a decoder: its control tokens, without those that begin and end a text. They follow a log.
#[cfg(feature = "decoder")]
struct Codes<'a>(Vec<arenite::TokenId, CODES>, Tokenizer<'a, 'a>);

#[cfg(feature = "decoder")]
impl<'a> Codes<'a> {
    fn new(_: &Gguf<'a>, tokenizer: &Tokenizer<'a, 'a>) -> Self {
        let is_code = |id: &arenite::TokenId| {
            tokenizer.token_type(*id) == arenite::tokenizer::TokenType::Control
                && ![tokenizer.bos(), tokenizer.eos()].contains(&Some(*id))
        };
        Self((0..tokenizer.vocab_len() as arenite::TokenId).filter(is_code).take(CODES).collect(), *tokenizer)
    }

    fn answers(&self) -> Answers<'_> {
        Answers::Tokens(&self.0)
    }

    fn name(&self, index: usize) -> &'a str {
        let name = self.0.get(index).map(|id| self.1.spelling(*id)).unwrap_or_default();
        core::str::from_utf8(name).unwrap_or("?").trim_matches(['<', '>'])
    }
}

/// Drops the first line of a log.
pub fn drop_line(log: &mut Vec<u8, { crate::LONGEST }>) {
    let rest = after_line(log).len();
    let dropped = log.len() - rest;
    log.rotate_left(dropped);
    log.truncate(rest);
}

/// The lines of a log after the first; empty if it has one line.
fn after_line(log: &[u8]) -> &[u8] {
    let end = log.iter().position(|byte| *byte == b'\n');
    end.and_then(|end| log.get(end + 1..)).unwrap_or(&[])
}
