//! A server for several conversations. One thread owns the engine and runs all conversations in one pass. An answer
//! does not depend on the other conversations.
//!
//!     cargo run --release -p host-demo --example server [MODEL.gguf]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use arenite::sampler::argmax;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Context, Engine, Gguf, Line, Model, Options, Plan, TokenId, Work};

const STORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories.gguf");
/// Maximum number of conversations at once.
const PARALLEL: usize = 4;
const TOKENS: usize = 40;

/// A prompt, and the channel for the answer's tokens.
struct Request {
    prompt: Vec<TokenId>,
    answer: Sender<TokenId>,
}

/// A conversation whose answer is being generated.
struct Conversation {
    context: Context,
    /// Tokens for the next pass: the prompt, then the last generated token.
    next: Vec<TokenId>,
    left: usize,
    answer: Sender<TokenId>,
}

/// Serves requests until all clients are gone.
fn serve(
    mut engine: Engine<'_, '_>,
    end: &(dyn Fn(TokenId) -> bool + Sync),
    requests: &Receiver<Request>,
) -> Result<(), arenite::Error> {
    let mut running: Vec<Conversation> = vec![];
    loop {
        // Accept waiting requests while there is room. If nothing is running, wait for one.
        while running.len() < PARALLEL {
            let request = if running.is_empty() { requests.recv().ok() } else { requests.try_recv().ok() };
            let Some(Request { prompt, answer }) = request else { break };
            running.push(Conversation { context: engine.open()?, next: prompt, left: TOKENS, answer });
        }
        if running.is_empty() {
            return Ok(());
        }
        // One pass runs prompts and single tokens together.
        let mut works: Vec<_> = running.iter_mut().map(|one| Work::prefill(&mut one.context, &one.next)).collect();
        engine.run(&mut works)?;
        let mut i = 0;
        while i < running.len() {
            let one = &mut running[i];
            let token = argmax(engine.logits(&one.context)).unwrap_or(0);
            one.left -= 1;
            // If the client is gone, drop the conversation, which frees its pages.
            let gone = end(token) || one.answer.send(token).is_err() || one.left == 0;
            one.next = vec![token];
            if gone {
                engine.close(running.swap_remove(i).context);
            } else {
                i += 1;
            }
        }
    }
}

fn main() -> anyhow::Result<()> {
    let file = std::fs::read(std::env::args().nth(1).unwrap_or_else(|| STORIES.into()))?;
    let gguf = Gguf::parse(&file)?;
    let model = Model::new(&gguf)?;
    let plan = Plan::new(&gguf, Options::new().context(128).batch(32).contexts(PARALLEL))?;
    let lines = |bytes: usize| vec![Line::ZERO; bytes.div_ceil(size_of::<Line>())];
    let (mut workspace, mut kv, mut index) = (lines(plan.workspace), lines(plan.kv), lines(plan.tokenizer));
    let tokenizer = Tokenizer::new(&gguf, Line::bytes_mut(&mut index))?;
    let engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;

    let (requests, waiting) = channel();
    thread::scope(|scope| {
        let end = |token| tokenizer.is_end(token);
        let server = scope.spawn(move || serve(engine, &end, &waiting));
        for prompt in ["One day, a little fox", "The sun", "Once upon a time", "Lily had a", "A dog", "In the garden"] {
            let (requests, tokenizer) = (requests.clone(), &tokenizer);
            scope.spawn(move || -> anyhow::Result<()> {
                let (mut scratch, mut ids) =
                    (vec![0; Tokenizer::scratch_bytes(prompt.len())], vec![0; prompt.len() + 1]);
                let count = tokenizer.encode(prompt.as_bytes(), Encode::PROMPT, &mut scratch, &mut ids)?;
                ids.truncate(count);
                let (answer, tokens) = channel();
                requests.send(Request { prompt: ids, answer })?;
                let (mut decoder, mut text) = (tokenizer.decoder_after_prompt(), String::from(prompt));
                for token in tokens {
                    decoder.push(token, tokenizer, |piece| text.push_str(piece))?;
                }
                decoder.finish(|piece| text.push_str(piece));
                println!("{text}\n");
                Ok(())
            });
        }
        drop(requests);
        server.join().expect("the server does not panic")
    })?;
    Ok(())
}
