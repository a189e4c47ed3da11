//! Runs the model that turns a command into a call.

use arenite::grammar::{Constraint, Grammar};
use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::workers::Workers;
use arenite::{Error, Gguf, Model, Options, Plan, Session, TokenId, Work, Workspace};
use heapless::String;

use crate::{mark, poll};

/// The model in flash, packed by `arenite pack`: it contains the tokenizer's index, which therefore takes no RAM. `build.rs`
/// selects the file.
pub static MODEL: &[u8] = arenite::include_model!(env!("ARENITE_MODEL"));
/// The grammar of the calls, compiled by `arenite grammar`.
static CALLS: &[u8] = include_bytes!(env!("ARENITE_GRAMMAR"));

pub const OPTIONS: Options = Options::new().context(96).batch(1);
const PLAN: Plan = Plan::of(MODEL, OPTIONS);
/// The plan of the largest model that an update may bring. Only the compiler reads that model's file; the file takes no
/// flash.
pub const LARGEST: Plan = Plan::of(include_bytes!(env!("ARENITE_LARGEST")), OPTIONS).within(80 * 1024);
const _: () = assert!(PLAN.workspace <= LARGEST.workspace && PLAN.kv <= LARGEST.kv, "ARENITE_LARGEST is too small");
static WORKSPACE: Workspace<{ LARGEST.workspace }> = Workspace::new();
static KV: Workspace<{ LARGEST.kv }> = Workspace::new();
/// Scratch of the tokenizer.
static SCRATCH: Workspace<{ Tokenizer::scratch_bytes(crate::LONGEST) }> = Workspace::new();

/// Tokens of the longest call, and its bytes.
const TOKENS: usize = 32;
const BYTES: usize = 96;
/// Parameters that give the most probable call.
const GREEDY: Params = Params { temperature: 0.0, ..Params::DEFAULT };

pub struct Assistant<'m, 'a> {
    tokenizer: Tokenizer<'a, 'a>,
    grammar: Grammar<'static>,
    session: Session<'m, 'a>,
    scratch: &'a mut [u8],
}

pub struct Answer {
    pub call: String<BYTES>,
    /// Number of tokens of the command and of the call.
    pub prompt: usize,
    pub generated: usize,
}

impl<'m, 'a> Assistant<'m, 'a> {
    /// Creates the assistant in the static memory, which can be taken once.
    #[inline(never)]
    pub fn new(gguf: &'a Gguf<'a>, model: &'m Model<'_>, workers: &'m dyn Workers) -> Result<Self, Error> {
        let plan = Plan::new(gguf, OPTIONS)?; // an update may have another plan
        Ok(Self {
            tokenizer: Tokenizer::packed(gguf)?,
            grammar: Grammar::new(CALLS)?,
            session: Session::new(model, plan, WORKSPACE.take()?, KV.take()?)?.with_workers(workers),
            scratch: SCRATCH.take()?,
        })
    }

    /// Returns the call for a command, which ends with a line feed. Calls `step` after every layer.
    #[inline(never)]
    pub fn answer(&mut self, command: &[u8], mut step: impl FnMut()) -> Result<Answer, Error> {
        let prompt = self.read(command, &mut step)?;
        mark();
        let vocabulary = self.tokenizer.vocab_len();
        let mut scratch = [0; Sampler::scratch_bytes(&GREEDY, 0)]; // greedy: no scratch for tokens of the vocabulary
        let mut sampler = Sampler::new(GREEDY, &[], vocabulary, &mut scratch)?;
        let mut random = Pcg32::new(0); // not used: the call is the most probable one
        let mut constraint = Constraint::new(self.grammar);
        let mut decoder = self.tokenizer.decoder();
        let mut answer = Answer { call: String::new(), prompt, generated: 0 };
        while answer.generated < TOKENS {
            let allows = |token| {
                poll();
                constraint.allows(&self.tokenizer, token)
            };
            let token = sampler.sample_where(self.session.logits_mut(), &mut random, allows)?;
            constraint.accept(&self.tokenizer, token)?;
            decoder.write(token, &self.tokenizer, &mut answer.call)?;
            answer.generated += 1;
            if constraint.is_over() {
                break;
            }
            self.run(&[token], &mut step)?;
            mark();
        }
        decoder.write_rest(&mut answer.call)?;
        Ok(answer)
    }

    /// Runs a command from the first position. Returns its number of tokens.
    #[inline(never)]
    fn read(&mut self, command: &[u8], step: &mut impl FnMut()) -> Result<usize, Error> {
        let mut ids = [0; PLAN.options.context];
        // The text comes from a user, so names of control tokens in it are plain text.
        let encode = Encode { parse_special: false, ..Encode::PROMPT };
        let count = self.tokenizer.encode(command, encode, self.scratch, &mut ids)?;
        self.session.rewind(0)?;
        self.run(ids.get(..count).unwrap_or(&[]), step)?;
        Ok(count)
    }

    #[inline(never)]
    fn run(&mut self, tokens: &[TokenId], step: &mut impl FnMut()) -> Result<(), Error> {
        let (engine, context) = self.session.parts();
        let works = &mut [Work::prefill(context, tokens)];
        let mut pass = engine.begin(works)?;
        while pass.step() {
            step();
        }
        Ok(())
    }
}
