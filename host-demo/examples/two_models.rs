//! Two models that share a workspace. Each model has a separate KV cache. Before the other model runs, a snapshot of a
//! model's conversation is saved.
//!
//!     cargo run --release -p host-demo --example two_models [ONE.gguf TWO.gguf]

use arenite::sampler::argmax;
use arenite::{Gguf, Line, Model, Options, Plan, Session, TokenId};

const STORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories.gguf");
const QWEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/qwen3/model.gguf");

fn lines(bytes: usize) -> Vec<Line> {
    vec![Line::ZERO; bytes.div_ceil(size_of::<Line>())]
}

/// Generates tokens greedily.
fn go_on(session: &mut Session<'_, '_>, count: usize) -> anyhow::Result<Vec<TokenId>> {
    let mut ids = vec![];
    for _ in 0..count {
        let token = argmax(session.logits()).unwrap_or(0);
        session.decode(token)?;
        ids.push(token);
    }
    Ok(ids)
}

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let (one, two) = (args.next().unwrap_or_else(|| STORIES.into()), args.next().unwrap_or_else(|| QWEN.into()));
    let (one, two) = (std::fs::read(one)?, std::fs::read(two)?);
    let (one, two) = (Gguf::parse(&one)?, Gguf::parse(&two)?);
    let options = Options::new().context(64).batch(8);
    let plans = [Plan::new(&one, options)?, Plan::new(&two, options)?];
    let models = [Model::new(&one)?, Model::new(&two)?];

    // Large enough for either model.
    let mut workspace = lines(plans[0].workspace.max(plans[1].workspace));
    let mut caches = plans.map(|plan| lines(plan.kv));
    let mut waiting: [Vec<u8>; 2] = Default::default();
    for turn in 0..4 {
        let which = turn % 2;
        let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut caches[which]));
        let mut session = Session::new(&models[which], plans[which], workspace, kv)?;
        if waiting[which].is_empty() {
            session.prefill(&[1, 2, 3])?;
        } else {
            session.restore(&waiting[which])?;
        }
        println!("model {which}: {:?}", go_on(&mut session, 8)?);
        waiting[which].resize(session.snapshot_bytes(), 0);
        session.save(&mut waiting[which])?;
    }
    Ok(())
}
