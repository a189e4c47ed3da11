//! Tells a story on a microcontroller: the model is in flash, and the compiler computes how much RAM it needs.
//!
//! It runs on a Cortex-M under qemu and prints over semihosting. For your own board, replace the memory map
//! (`memory/`) and the printing.
#![no_std]
#![no_main]

use arenite::sampler::argmax;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Error, Gguf, Model, Options, Plan, Session, Workspace, include_model};
use cortex_m_rt::entry;
use cortex_m_semihosting::{heprintln, hprint, hprintln};
use heapless::String;

/// The model is read in place, where the linker puts it. `build.rs` selects the file: the story model unless the
/// environment names another.
#[cfg(not(external_flash))]
static MODEL: &[u8] = include_model!(env!("ARENITE_MODEL"));
#[cfg(external_flash)]
static MODEL: &[u8] = include_model!(env!("ARENITE_MODEL"), section = unsafe(".external"));

/// The compiler reads the model's header. A damaged file, or one that needs more RAM than the limit, does not compile.
const PLAN: Plan = Plan::of(MODEL, Options::new().context(256).batch(8)).within(512 * 1024);

// All memory except the stack.
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();
static INDEX: Workspace<{ PLAN.tokenizer }> = Workspace::new();

const PROMPT: &str = "One day";
const TOKENS: usize = 64;

fn tell() -> Result<(), Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let tokenizer = Tokenizer::new(&gguf, INDEX.take()?)?;

    // A session refuses memory that is one byte too small; this shows the error.
    let (workspace, kv) = (WORKSPACE.take()?, KV.take()?);
    let short = workspace.get_mut(..PLAN.workspace - 1).unwrap_or_default();
    if let Err(error) = Session::new(&model, PLAN, short, kv) {
        heprintln!("one byte less: {}", error);
    }
    let mut session = Session::new(&model, PLAN, workspace, kv)?;

    // Tokenize the prompt.
    let mut scratch = [0; Tokenizer::scratch_bytes(PROMPT.len())];
    let prompt = tokenizer.encode_list::<{ PROMPT.len() + 1 }>(PROMPT.as_bytes(), Encode::PROMPT, &mut scratch)?;

    // Continue with the most probable token each time.
    session.prefill(&prompt)?;
    hprint!("{}", PROMPT);
    let (mut decoder, mut text) = (tokenizer.decoder_after_prompt(), String::<64>::new());
    let mut checksum = Checksum::new();
    for made in 1..=TOKENS {
        checksum.add(session.logits());
        let Some(token) = argmax(session.logits()).filter(|&token| !tokenizer.is_end(token)) else { break };
        decoder.write(token, &tokenizer, &mut text)?;
        hprint!("{}", text);
        text.clear();
        if made < TOKENS {
            session.decode(token)?;
        }
    }
    decoder.write_rest(&mut text)?;
    hprintln!("{}", text);
    heprintln!("logits {:016x}", checksum.0);
    Ok(())
}

/// FNV-1a over the bits of all logits, to be compared with the host's.
struct Checksum(u64);

impl Checksum {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, logits: &[f32]) {
        for logit in logits {
            self.0 = (self.0 ^ u64::from(logit.to_bits())).wrapping_mul(0x100_0000_01b3);
        }
    }
}

#[entry]
fn main() -> ! {
    firmware::finish(tell())
}
