//! Decodes the token 1 again and again, and calls `token_mark` before and after each pass: `.ci/boards speed` counts the
//! instructions between the calls. qemu loads the model to `_model`, and two bytes to `_settings`: the type of the cache
//! and the number of tokens.
#![no_std]
#![no_main]

use core::cell::UnsafeCell;

use arenite::{Error, Gguf, KvType, Model, Options, Plan, Session};
use semihosting::{eprintln, process};

/// Memory of the session. (Not a `Workspace`, because some of these cores have no compare-and-swap.)
#[repr(C, align(64))]
struct Memory(UnsafeCell<[[u8; 1 << 20]; 2]>);
// SAFETY: only `decode` uses it, once.
unsafe impl Sync for Memory {}
static MEMORY: Memory = Memory(UnsafeCell::new([[0; 1 << 20]; 2]));

unsafe extern "C" {
    static _model: u8;
    static _settings: [u8; 2];
}

fn decode() -> Result<(), Error> {
    // SAFETY: memory of the board that the program uses for nothing else. The slice is longer than the file, but the
    // header gives all positions.
    let (model, [cache, tokens]) =
        unsafe { (core::slice::from_raw_parts(&raw const _model, 15 << 20), (&raw const _settings).read()) };
    let cache = [KvType::F32, KvType::F16, KvType::Q8_0, KvType::Q4_0][usize::from(cache % 4)];
    let gguf = Gguf::parse(model)?;
    let plan = Plan::new(&gguf, Options::new().context(128).batch(1).kv(cache))?;
    let model = Model::new(&gguf)?;
    // SAFETY: nobody else uses this memory.
    let [workspace, kv] = unsafe { &mut *MEMORY.0.get() };
    let mut session = Session::new(&model, plan, workspace, kv)?;
    for _ in 0..tokens {
        token_mark();
        session.decode(1)?;
        token_mark();
    }
    Ok(())
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn token_mark() {
    // SAFETY: an empty instruction sequence that the compiler cannot see through.
    unsafe { core::arch::asm!("") };
}

#[cfg_attr(target_arch = "arm", cortex_m_rt::entry)]
fn main() -> ! {
    match decode() {
        Ok(()) => process::exit(0),
        Err(error) => {
            eprintln!("error: {error}");
            process::exit(1)
        }
    }
}

// Enables the floating-point unit, if there is one. (qemu's RAM is zero at the start; otherwise .bss would be cleared
// here.)
#[cfg(target_arch = "riscv32")]
core::arch::global_asm!(
    ".section .start, \"ax\"",
    ".globl _start",
    "_start:",
    "li t0, 0x2000",
    "csrs mstatus, t0",
    "la sp, _stack_0",
    "call {main}",
    main = sym main,
);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    process::exit(2)
}
