//! Continues a text without drafts, then with drafts of up to one, two and three tokens by the model's own layer for multi-token
//! prediction. Prints each answer, the checksum of its logits, and the number of passes and of accepted drafts, for
//! `.ci/firmware more`. Calls `token_mark` before and after each answer.
#![no_std]
#![no_main]

use arenite::sampler::argmax;
use arenite::{Engine, Error, Gguf, KvType, Model, Options, Plan, TokenId, Work, Workspace, include_model};
use cortex_m_rt::entry;
use cortex_m_semihosting::{hprint, hprintln};
use firmware::token_mark;
use heapless::Vec;

static MODEL: &[u8] = include_model!(env!("ARENITE_MODEL"));

/// Maximum number of tokens of a draft.
const DRAFTS: usize = 3;
const OPTIONS: Options = Options::new().context(80).batch(DRAFTS + 1).kv(KvType::F32);
const WITHOUT: Plan = Plan::of(MODEL, OPTIONS);
const PLAN: Plan = Plan::of(MODEL, OPTIONS.drafts(DRAFTS).own_drafts(true).logits(DRAFTS + 1)).within(192 * 1024);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();

const PROMPT: [TokenId; 3] = [266, 356, 260];
const TOKENS: usize = 64;

/// An answer, and how it was computed.
#[derive(Default)]
struct Answer {
    tokens: Vec<TokenId, TOKENS>,
    /// FNV-1a over the logits of all tokens.
    checksum: u64,
    passes: usize,
    accepted: usize,
}

impl Answer {
    /// Adds the most probable token.
    fn add(&mut self, logits: &[f32]) -> TokenId {
        for logit in logits {
            self.checksum = (self.checksum ^ u64::from(logit.to_bits())).wrapping_mul(0x100_0000_01B3);
        }
        let token = argmax(logits).unwrap_or_default();
        let _ = self.tokens.push(token); // there is room
        token
    }
}

/// Continues the prompt with drafts of at most `most` tokens.
fn answer(engine: &mut Engine<'_, '_>, most: usize) -> Result<Answer, Error> {
    let mut context = engine.open()?;
    let mut answer = Answer { checksum: 0xCBF2_9CE4_8422_2325, ..Answer::default() };
    engine.run(&mut [Work::prefill(&mut context, &PROMPT)])?;
    let mut last = answer.add(engine.logits(&context));
    token_mark();
    while !answer.tokens.is_full() {
        let position = context.position();
        let mut run = Vec::<TokenId, { DRAFTS + 1 }>::new();
        let _ = run.push(last);
        for _ in 0..most.min(TOKENS - answer.tokens.len() - 1) {
            engine.draft(&mut [Work::decode(&mut context, last)])?;
            last = argmax(engine.logits(&context)).unwrap_or_default();
            let _ = run.push(last);
        }
        let work = Work::prefill(&mut context, &run).all_logits();
        engine.run(&mut [if most > 0 { work.tentative() } else { work }])?;
        answer.passes += 1;
        let mut read = 0;
        loop {
            last = answer.add(engine.logits_at(&context, position + read));
            read += 1;
            if run.get(read) != Some(&last) {
                break;
            }
            answer.accepted += 1;
        }
        engine.rewind(&mut context, position + read)?;
    }
    token_mark();
    engine.close(context);
    Ok(answer)
}

fn run() -> Result<(), Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let (workspace, kv) = (WORKSPACE.take()?, KV.take()?);
    for most in 0..=DRAFTS {
        let plan = if most > 0 { PLAN } else { WITHOUT };
        let mut engine = Engine::new(&model, plan, &mut *workspace, &mut *kv)?;
        let Answer { tokens, checksum, passes, accepted } = answer(&mut engine, most)?;
        for token in &tokens {
            hprint!("{} ", token);
        }
        hprintln!("| {:016x} {} {}", checksum, passes, accepted);
    }
    Ok(())
}

#[entry]
fn main() -> ! {
    firmware::finish(run())
}
