//! Tells a story and prints it to a register. `build.rs` writes the memory map; the program is linked and not run.
#![no_std]
#![no_main]

use core::fmt::{self, Write};

use arenite::sampler::argmax;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Error, Gguf, Model, Options, Plan, Session, Workspace};
use heapless::String;

static MODEL: &[u8] = arenite::include_model!(env!("FIT_MODEL"));
const PLAN: Plan = Plan::of(MODEL, include!(concat!(env!("OUT_DIR"), "/options.rs")));
#[unsafe(link_section = ".fit.workspace")]
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
#[unsafe(link_section = ".fit.kv")]
static KV: Workspace<{ PLAN.kv }> = Workspace::new();
#[unsafe(link_section = ".fit.index")]
static INDEX: Workspace<{ PLAN.tokenizer }> = Workspace::new();

const PROMPT: &str = "One day";
const TOKENS: usize = 64;

fn tell(out: &mut Register) -> Result<(), Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let tokenizer = Tokenizer::new(&gguf, INDEX.take()?)?;
    let mut session = Session::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?;
    let mut scratch = [0; Tokenizer::scratch_bytes(PROMPT.len())];
    let prompt = tokenizer.encode_list::<{ PROMPT.len() + 1 }>(PROMPT.as_bytes(), Encode::PROMPT, &mut scratch)?;
    session.prefill(&prompt)?;
    let _ = out.write_str(PROMPT);
    let (mut decoder, mut text) = (tokenizer.decoder_after_prompt(), String::<64>::new());
    for _ in 0..TOKENS {
        let Some(token) = argmax(session.logits()).filter(|&token| !tokenizer.is_end(token)) else { break };
        decoder.write(token, &tokenizer, &mut text)?;
        let _ = out.write_str(&text);
        text.clear();
        session.decode(token)?;
    }
    decoder.write_rest(&mut text)?;
    let _ = out.write_str(&text);
    Ok(())
}

/// The data register of a UART.
struct Register(*mut u8);

impl Write for Register {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the program is linked and not run. On a board, the address would be that of a register.
            unsafe { self.0.write_volatile(byte) };
        }
        Ok(())
    }
}

extern "C" fn main() -> ! {
    let mut out = Register(0x4000_4000 as _);
    if let Err(error) = tell(&mut out) {
        let _ = writeln!(out, "error: {error}");
    }
    loop {
        core::hint::spin_loop();
    }
}

// The vector table: the initial stack pointer, the first instruction, and room for 14 exceptions and 240 interrupts.
#[cfg(target_arch = "arm")]
core::arch::global_asm!(
    ".section .start, \"ax\"",
    ".globl _start",
    "_start: .word _stack_0",
    ".word {main}",
    ".space 1016",
    main = sym main
);
#[cfg(target_arch = "riscv32")]
core::arch::global_asm!(".section .start, \"ax\"", ".globl _start", "_start:", "la sp, _stack_0", "call {main}", main = sym main);

/// One core without interrupts.
struct Single;
critical_section::set_impl!(Single);
// SAFETY: nothing interrupts this program.
unsafe impl critical_section::Impl for Single {
    unsafe fn acquire() -> bool {
        false
    }
    unsafe fn release(_: bool) {}
}

/// The linker proves that the program cannot panic: this handler calls a function that does not exist.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn panic_is_possible() -> !;
    }
    // SAFETY: never reached, or the program would not have been linked.
    unsafe { panic_is_possible() }
}
