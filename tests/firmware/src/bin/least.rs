//! Tells the story of `main.rs` with the smallest program: the model is packed, and errors are numbers instead of
//! sentences.
#![no_std]
#![no_main]

use core::fmt::Write;

use arenite::sampler::argmax;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Error, Gguf, Model, Options, Plan, Session, Workspace, include_model};
use cortex_m_rt::entry;
use cortex_m_semihosting::hio;
use firmware::{exit, token_mark};
use heapless::String;

/// The model, prepared by `arenite pack`: the tokenizer's index is in the file.
#[cfg(not(external_flash))]
static MODEL: &[u8] = include_model!(env!("ARENITE_MODEL"));
#[cfg(external_flash)]
static MODEL: &[u8] = include_model!(env!("ARENITE_MODEL"), section = unsafe(".external"));
const PLAN: Plan = Plan::of(MODEL, Options::new().context(256).batch(8)).within(512 * 1024);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();

const PROMPT: &str = "One day";
const TOKENS: usize = 64;

fn tell() -> Result<(), Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let tokenizer = Tokenizer::packed(&gguf)?;
    let mut session = Session::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?;

    let mut scratch = [0; Tokenizer::scratch_bytes(PROMPT.len())];
    let prompt = tokenizer.encode_list::<{ PROMPT.len() + 1 }>(PROMPT.as_bytes(), Encode::PROMPT, &mut scratch)?;
    session.prefill(&prompt)?;
    print(PROMPT);
    let (mut decoder, mut text) = (tokenizer.decoder_after_prompt(), String::<64>::new());
    for made in 1..=TOKENS {
        let Some(token) = argmax(session.logits()).filter(|&token| !tokenizer.is_end(token)) else { break };
        decoder.write(token, &tokenizer, &mut text)?;
        print(&text);
        text.clear();
        if made < TOKENS {
            token_mark();
            session.decode(token)?;
            token_mark();
        }
    }
    decoder.write_rest(&mut text)?;
    print(&text);
    print("\n");
    Ok(())
}

#[inline(never)]
fn print(text: &str) {
    if let Ok(mut host) = hio::hstdout() {
        let _ = host.write_str(text);
    }
}

#[entry]
fn main() -> ! {
    let result = tell();
    if let Err(error) = &result {
        let number = error.number();
        let digits = [b'0' + number / 100, b'0' + number / 10 % 10, b'0' + number % 10];
        print(core::str::from_utf8(&digits).unwrap_or_default());
    }
    exit(result.is_ok())
}
