//! Measures a model on a board: bytes of stack by stage and (with `benches/instructions.c`) instructions per token.
//! `.ci/firmware` runs it.
//!
//! There is one image for all models, because linking takes longer than ten runs: qemu loads the model to the address
//! `_model` of `memory/`. The plan is therefore made at run time, and the memory is large enough for any of the
//! models.
#![no_std]
#![no_main]

use arenite::memory::KvType;
use arenite::sampler::{Params, Pcg32, Sampler, argmax};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Error, Gguf, Model, Options, Plan, Session, TokenId, Workspace};
use cortex_m_rt::entry;
use cortex_m_semihosting::hprintln;
use firmware::{exit, token_mark};

static WORKSPACE: Workspace<{ 1 << 20 }> = Workspace::new();
static KV: Workspace<{ 1 << 20 }> = Workspace::new();
static INDEX: Workspace<{ 1 << 18 }> = Workspace::new();
static SCRATCH: Workspace<4096> = Workspace::new();

/// Number of tokens decoded greedily after the first one, unless `_settings` has another number.
const TOKENS: usize = 64;

/// The type of the cache, as an index of [`KvType::ALL`], and the number of tokens. qemu may write both; otherwise its
/// RAM is zero.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".uninit.settings")]
static mut _settings: [u8; 2] = [0; 2];

/// The type of the cache, and the number of tokens to decode after the first one.
fn settings() -> (KvType, usize) {
    // SAFETY: nothing writes to it after the start.
    let [cache, tokens] = unsafe { (&raw const _settings).read_volatile() }.map(usize::from);
    (KvType::ALL.get(cache).copied().unwrap_or(KvType::F32), if tokens > 0 { tokens } else { TOKENS })
}

/// Makes the plan. On a board the compiler does this, so it is not part of the measured stack.
#[inline(never)]
fn make(plan: &mut Option<Plan>) -> Result<(), Error> {
    *plan = Some(Plan::new(&Gguf::parse(loaded())?, Options::new().context(128).batch(8).kv(settings().0))?);
    Ok(())
}

/// Verifies the model, as a device does before it trusts its flash. A device would feed its watchdog between steps.
#[inline(never)]
fn verify(gguf: &Gguf<'_>) -> Result<(), Error> {
    if let Some(mut verify) = gguf.verify()? {
        while verify.step(4096)? {}
        hprintln!("verified");
    }
    Ok(())
}

fn measure(plan: &mut Option<Plan>) -> Result<(), Error> {
    make(plan)?;
    let Some(plan) = plan else { return Ok(()) };
    let stack = Stack::paint();
    let gguf = Gguf::parse(loaded())?;
    stack.report("parse");
    verify(&gguf)?;
    stack.report("verify");
    let model = Model::new(&gguf)?;
    stack.report("model");
    let (workspace, kv) = (WORKSPACE.take()?, KV.take()?);
    let mut session = Session::new(&model, *plan, workspace, kv)?;
    stack.report("session");

    // Runs BOS, then the most probable tokens. Instructions are counted between calls of `token_mark`.
    let tokenizer = Tokenizer::new(&gguf, INDEX.take()?)?;
    stack.report("index");
    let mut token: TokenId = tokenizer.bos().unwrap_or_default();
    for _ in 0..=settings().1 {
        token_mark();
        session.decode(token)?;
        token_mark();
        token = argmax(session.logits()).unwrap_or_default();
        hprintln!("token {}", token);
    }
    stack.report("decode");

    session.rewind(0)?;
    session.prefill(&[1; 20])?;
    stack.report("prefill");
    let scratch = SCRATCH.take()?;
    let mut ids = [0; 64];
    tokenizer.encode(
        b"One day, a little fox <s> met 12 <unknown> \xf0\x9f\xa6\x8a!",
        Encode::PROMPT,
        scratch,
        &mut ids,
    )?;
    stack.report("encode");
    let mut decoder = tokenizer.decoder();
    let mut bytes = 0;
    for id in ids {
        decoder.push(id, &tokenizer, |text| bytes += text.len())?;
    }
    stack.report("decode text");
    let mut sampler = Sampler::new(Params::DEFAULT, &[], model.spec().vocab, scratch)?;
    let sampled = sampler.sample(session.logits_mut(), &mut Pcg32::new(bytes as u64))?;
    stack.report("sample");
    hprintln!("sampled {}", sampled);
    Ok(())
}

/// The memory at the address where the model was loaded. The slice is longer than the file, but the header
/// gives all positions.
fn loaded() -> &'static [u8] {
    unsafe extern "C" {
        static _model: u8;
    }
    // SAFETY: memory of the board that the program uses for nothing else.
    unsafe { core::slice::from_raw_parts(&raw const _model, 16 << 20) }
}

/// The free stack, filled with a pattern: words without the pattern were used.
struct Stack {
    painted: *mut u32,
}

impl Stack {
    const WORDS: usize = 64 * 1024 / 4;
    const PAINT: u32 = 0x5AD0_5AD0;

    #[inline(never)]
    fn paint() -> Self {
        let here = 0u32;
        // The pattern ends below this frame, with some room for the loop itself.
        let painted = (&raw const here).cast_mut().wrapping_sub(Self::WORDS + 16);
        for i in 0..Self::WORDS {
            // SAFETY: the board's RAM has megabytes between the statics and the stack pointer.
            unsafe { painted.add(i).write_volatile(Self::PAINT) };
        }
        Self { painted }
    }

    /// Prints the maximum stack used so far, from the top of the RAM, including printing.
    #[inline(never)]
    fn report(&self, stage: &str) {
        unsafe extern "C" {
            static _stack_start: u32;
        }
        // SAFETY: as in `paint`.
        let is_used = |&i: &usize| unsafe { self.painted.add(i).read_volatile() } != Self::PAINT;
        let lowest = self.painted.wrapping_add((0..Self::WORDS).find(is_used).unwrap_or(Self::WORDS));
        hprintln!("stack {} {}", (&raw const _stack_start).addr() - lowest.addr(), stage);
    }
}

#[entry]
fn main() -> ! {
    static mut PLAN: Option<Plan> = None;
    // (With `finish`, the measured stack would include a second copy of the error.)
    exit(match measure(PLAN) {
        Ok(()) => true,
        Err(error) => {
            hprintln!("error: {}", error);
            false
        }
    })
}
