//! Tells the story of `tests/firmware` on both cores, and prints it over semihosting.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicPtr, Ordering};

use arenite::sampler::argmax;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::workers::{Helper, Pair, Workers};
use arenite::{Error, Gguf, Model, Options, Plan, Session, Workspace};
use heapless::String;
use semihosting::{eprintln, print, println, process};
use static_cell::StaticCell;

static MODEL: &[u8] = arenite::include_model!("../../../../host-demo/models/stories.gguf");
const PLAN: Plan = Plan::of(MODEL, Options::new().context(256).batch(1).workers(2)).within(512 * 1024);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();
static INDEX: Workspace<{ PLAN.tokenizer }> = Workspace::new();
const PROMPT: &str = "One day, a little fox";
const TOKENS: usize = 64;

static PAIR: StaticCell<Pair> = StaticCell::new();
static HELPER: StaticCell<Helper<'static>> = StaticCell::new();
/// The second core's helper. Null until the first core has initialized it.
static READY: AtomicPtr<Helper<'static>> = AtomicPtr::new(core::ptr::null_mut());

// Each core gets its stack, and the first one starts. Entries 0 and 1 of the physical memory protection forbid any access
// to the 4 KiB below each stack. (qemu's RAM is zero at the start; otherwise .bss would be cleared here.)
core::arch::global_asm!(
    ".section .start, \"ax\"",
    ".globl _start",
    "_start:",
    "la t0, fault",
    "csrw mtvec, t0",
    "la t0, _guard_0",
    "srli t0, t0, 2",
    "ori t0, t0, 0x1ff", // 4 KiB
    "csrw pmpaddr0, t0",
    "la t0, _guard_1",
    "srli t0, t0, 2",
    "ori t0, t0, 0x1ff",
    "csrw pmpaddr1, t0",
    "li t0, 0x9898", // locked, naturally aligned, no access
    "csrw pmpcfg0, t0",
    "csrr t0, mhartid",
    "bnez t0, 1f",
    "la sp, _stack_0",
    "call first",
    "1: la sp, _stack_1",
    "call second",
    ".balign 4",
    "fault: la sp, _stack_0",
    "call overflow"
);

/// Called after a fault, such as the overflow of a stack.
#[unsafe(no_mangle)]
extern "C" fn overflow() -> ! {
    eprintln!("error: a fault");
    process::exit(3)
}

#[unsafe(no_mangle)]
extern "C" fn first() -> ! {
    let (workers, helper) = PAIR.init(Pair::new()).split();
    READY.store(HELPER.init(helper), Ordering::Release);
    match tell(&workers) {
        Ok(()) => process::exit(0),
        Err(error) => {
            eprintln!("error: {error}");
            process::exit(1)
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn second() -> ! {
    loop {
        // SAFETY: the first core stored a pointer to an initialized static that it does not use any more, and only
        // this core loads it.
        if let Some(helper) = unsafe { READY.load(Ordering::Acquire).as_mut() } {
            helper.serve()
        }
        core::hint::spin_loop();
    }
}

fn tell(workers: &dyn Workers) -> Result<(), Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let tokenizer = Tokenizer::new(&gguf, INDEX.take()?)?;
    let mut session = Session::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?.with_workers(workers);
    let mut scratch = [0; Tokenizer::scratch_bytes(PROMPT.len())];
    let prompt = tokenizer.encode_list::<{ PROMPT.len() + 1 }>(PROMPT.as_bytes(), Encode::PROMPT, &mut scratch)?;
    session.prefill(&prompt)?;
    print!("{PROMPT}");
    let (mut decoder, mut text) = (tokenizer.decoder_after_prompt(), String::<64>::new());
    let mut checksum = 0xcbf2_9ce4_8422_2325;
    for made in 1..=TOKENS {
        for logit in session.logits() {
            checksum = (checksum ^ u64::from(logit.to_bits())).wrapping_mul(0x100_0000_01b3);
        }
        let Some(token) = argmax(session.logits()).filter(|&token| !tokenizer.is_end(token)) else { break };
        decoder.write(token, &tokenizer, &mut text)?;
        print!("{text}");
        text.clear();
        if made < TOKENS {
            token_mark();
            session.decode(token)?;
            token_mark();
        }
    }
    decoder.write_rest(&mut text)?;
    println!("{text}");
    eprintln!("logits {checksum:016x}");
    Ok(())
}

/// Instructions are counted between calls of this function: see `benches/instructions.c`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn token_mark() {
    // SAFETY: an empty instruction sequence that the compiler cannot see through.
    unsafe { core::arch::asm!("") };
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    process::exit(2)
}
