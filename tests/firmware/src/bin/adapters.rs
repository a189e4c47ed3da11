//! Runs one model in flash with two adapters: two conversations with different adapters in the same passes, and again
//! after their adapters have changed.
//!
//! Prints the most probable tokens of each conversation for `.ci/firmware`, which compares them with the host's.
#![no_std]
#![no_main]

use arenite::sampler::argmax;
use arenite::{Adapter, Context, Engine, Error, Gguf, Model, Options, Plan, TokenId, Work, Workspace, include_model};
use cortex_m_rt::entry;
use cortex_m_semihosting::{hprint, hprintln};

static MODEL: &[u8] = include_model!(env!("ARENITE_MODEL"));
static FIRST: &[u8] = include_bytes!(concat!(env!("ARENITE_ADAPTERS"), "/first.gguf"));
static SECOND: &[u8] = include_bytes!(concat!(env!("ARENITE_ADAPTERS"), "/second.gguf"));

const OPTIONS: Options = Options::new().context(32).batch(2).contexts(2).adapters(2).rank(2);
const PLAN: Plan = Plan::of(MODEL, OPTIONS).within(256 * 1024);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();

const TOKENS: usize = 12;

fn run() -> Result<(), Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let adapters = [Adapter::new(&Gguf::parse(FIRST)?, &model)?, Adapter::new(&Gguf::parse(SECOND)?, &model)?];
    let engine = Engine::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?;
    let mut engine = engine.with_adapters(&adapters)?;
    let (mut a, mut b) = (engine.open()?, engine.open()?);
    engine.adapt(&mut a, &[(0, 1.0)])?;
    engine.adapt(&mut b, &[(1, 1.0)])?;
    together(&mut engine, &mut a, &mut b)?;
    engine.adapt(&mut a, &[])?;
    engine.adapt(&mut b, &[(0, 0.5), (1, -0.5)])?;
    together(&mut engine, &mut a, &mut b)
}

/// Continues token 1 in both contexts, in the same passes.
fn together(engine: &mut Engine<'_, '_>, a: &mut Context, b: &mut Context) -> Result<(), Error> {
    let mut tokens: [[TokenId; 2]; TOKENS + 1] = [[1; 2]; TOKENS + 1];
    let mut last: [TokenId; 2] = [1; 2];
    for place in tokens.iter_mut().skip(1) {
        let [first, second] = last;
        engine.run(&mut [Work::decode(a, first), Work::decode(b, second)])?;
        last = [argmax(engine.logits(a)).unwrap_or_default(), argmax(engine.logits(b)).unwrap_or_default()];
        *place = last;
    }
    for context in 0..2 {
        for token in tokens.iter().skip(1) {
            hprint!("{} ", token.get(context).copied().unwrap_or_default());
        }
        hprintln!();
    }
    Ok(())
}

#[entry]
fn main() -> ! {
    firmware::finish(run())
}
