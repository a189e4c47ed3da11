//! Runs a model as a microcontroller does: the model is part of the program, the compiler computes how much memory it
//! needs, and a model that does not fit does not compile.
//!
//!     cargo run --release --example statics

use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Gguf, Model, Options, Plan, Session, Workspace};

static MODEL: &[u8] = arenite::include_model!("../fixtures/stories.gguf");
const PLAN: Plan = Plan::of(MODEL, Options::new().context(256).batch(1)).within(450_000);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();
static INDEX: Workspace<{ PLAN.tokenizer }> = Workspace::new();

fn main() -> Result<(), arenite::Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let tokenizer = Tokenizer::new(&gguf, INDEX.take()?)?;
    let mut session = Session::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?;

    let (mut scratch, mut ids) = ([0; 4096], [0; 32]);
    let n = tokenizer.encode(b"One day, a little fox", Encode::PROMPT, &mut scratch, &mut ids)?;
    session.prefill(&ids[..n])?;

    let mut scratch = [0; Sampler::scratch_bytes(&Params::DEFAULT, 2048)];
    let mut sampler = Sampler::new(Params::DEFAULT, &[], model.spec().vocab, &mut scratch)?;
    let (mut rng, mut decoder) = (Pcg32::new(7), tokenizer.decoder_after_prompt());
    while session.position() < session.context() {
        let token = sampler.sample(session.logits_mut(), &mut rng)?;
        if tokenizer.is_end(token) {
            break;
        }
        decoder.push(token, &tokenizer, |text| print!("{text}"))?;
        session.decode(token)?;
    }
    println!();
    Ok(())
}
