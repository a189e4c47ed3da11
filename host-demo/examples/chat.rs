//! A chat loop. Each line continues where the last answer ended, so nothing is prefilled twice.
//!
//!     cargo run --release -p host-demo --example chat [MODEL.gguf]
//!
//! The text is passed to the model unchanged. Most chat models expect the markers of their chat template around the
//! text.

use std::io::{BufRead, Write, stdin, stdout};

use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::workers::Pool;
use arenite::{Gguf, Line, Model, Options, Plan, Session};

const STORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories.gguf");

fn lines(bytes: usize) -> Vec<Line> {
    vec![Line::ZERO; bytes.div_ceil(size_of::<Line>())]
}

fn main() -> anyhow::Result<()> {
    let file = std::fs::read(std::env::args().nth(1).unwrap_or_else(|| STORIES.into()))?;
    let gguf = Gguf::parse(&file)?;
    let model = Model::new(&gguf)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan::new(&gguf, Options::new().context(1024.min(model.spec().context)).batch(64).workers(threads))?;
    let (mut workspace, mut kv, mut index) = (lines(plan.workspace), lines(plan.kv), lines(plan.tokenizer));
    let tokenizer = Tokenizer::new(&gguf, Line::bytes_mut(&mut index))?;
    let workers = Pool::new(threads);
    let mut session =
        Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?.with_workers(&workers);

    let params = Params::DEFAULT;
    let mut scratch = vec![0; Sampler::scratch_bytes(&params, model.spec().vocab)];
    let mut sampler = Sampler::new(params, &[], model.spec().vocab, &mut scratch)?;
    let mut rng = Pcg32::new(7);
    for line in stdin().lock().lines() {
        let line = line?;
        let how = if session.position() == 0 { Encode::PROMPT } else { Encode::TEXT };
        let mut scratch = vec![0; Tokenizer::scratch_bytes(line.len())];
        let mut ids = vec![0; line.len() + 2];
        let count = tokenizer.encode(line.as_bytes(), how, &mut scratch, &mut ids)?;
        let ids = &ids[..count];
        if ids.is_empty() {
            continue;
        }
        if session.position() + ids.len() >= session.context() {
            eprintln!("(the context is full: starting over)");
            session.rewind(0)?;
        }
        session.prefill(ids)?;
        let mut decoder = tokenizer.decoder_after_prompt();
        for _ in 0..100 {
            let token = sampler.sample(session.logits_mut(), &mut rng)?;
            if tokenizer.is_end(token) || session.position() == session.context() {
                break;
            }
            decoder.push(token, &tokenizer, |text| print!("{text}"))?;
            stdout().flush()?;
            session.decode(token)?;
        }
        decoder.finish(|text| print!("{text}"));
        println!();
    }
    Ok(())
}
