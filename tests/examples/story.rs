//! Runs a model from a file, with heap memory and threads (feature `std`):
//!
//!     cargo run --release --features std --example story -- MODEL.gguf "Once upon a time"

use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Gguf, Line, Model, Options, Plan, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or("tests/fixtures/stories.gguf".into());
    let prompt = arguments.next().unwrap_or("Once upon a time".into());

    #[cfg(feature = "std")]
    let workers = arenite::workers::Pool::new(std::thread::available_parallelism()?.get());
    #[cfg(not(feature = "std"))]
    let workers = arenite::workers::Serial;
    let count = arenite::workers::Workers::count(&workers);

    let file = std::fs::read(path)?;
    let gguf = Gguf::parse(&file)?;
    let model = Model::new(&gguf)?;
    let context = model.spec().context.min(1024);
    let plan = Plan::new(&gguf, Options::new().context(context).batch(64).workers(count))?;
    let [mut workspace, mut kv, mut index] =
        [plan.workspace, plan.kv, plan.tokenizer].map(|bytes| vec![Line::ZERO; bytes.div_ceil(64)]);
    let tokenizer = Tokenizer::new(&gguf, Line::bytes_mut(&mut index))?;
    let mut session =
        Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?.with_workers(&workers);

    let mut scratch = vec![0; Tokenizer::scratch_bytes(prompt.len())];
    let mut ids = vec![0; prompt.len() + 2];
    let n = tokenizer.encode(prompt.as_bytes(), Encode::PROMPT, &mut scratch, &mut ids)?;
    session.prefill(&ids[..n])?;

    let mut scratch = vec![0; Sampler::scratch_bytes(&Params::DEFAULT, model.spec().vocab)];
    let mut sampler = Sampler::new(Params::DEFAULT, &[], model.spec().vocab, &mut scratch)?;
    let (mut rng, mut decoder) = (Pcg32::new(7), tokenizer.decoder_after_prompt());
    print!("{prompt}");
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
