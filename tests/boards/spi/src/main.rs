//! Continues a text with a model whose matrices are in a serial flash, which the processor cannot address. Metadata,
//! vocabulary and norms are in internal flash; the matrices come through a window in RAM.
//!
//! It runs under qemu on a Cortex-M4F and a Cortex-M33, and on the host. For your own board, replace the memory map
//! (`memory/`), the crate `board`, and the driver in `flash.rs`.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg_attr(not(target_os = "none"), path = "file.rs")]
mod flash;

use core::fmt::Write;
use core::sync::atomic::{AtomicUsize, Ordering};

use arenite::sampler::argmax;
use arenite::{Error, Gguf, KvType, Model, Options, Plan, Session, TokenId, Workspace};
use board::{Board, Stack, mark};
use flash::Flash;

/// The head of the model, as `arenite pack --storage` writes it.
static HEAD: &[u8] = arenite::include_model!(env!("ARENITE_HEAD"));
const OPTIONS: Options = Options::new().context(48).batch(1).kv(KvType::Q8_0).window(4096);
/// The plan counts the window. With 12 KiB of stack, all is in 64 KiB.
const PLAN: Plan = Plan::of(HEAD, OPTIONS).within(52 * 1024);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();

/// The first token, and the number of tokens after it.
const FIRST: TokenId = 1;
const TOKENS: usize = 40;

/// Numbers of bytes and of reads so far.
static READ: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Counts a read of the flash.
fn count(bytes: usize) {
    for (count, more) in READ.iter().zip([bytes, 1]) {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

/// Decodes greedily. Prints the tokens, and a checksum of the bits of all logits.
fn tell(board: &mut Board, flash: &mut Flash) -> Result<(), Error> {
    let gguf = Gguf::parse(HEAD)?;
    let model = Model::new(&gguf)?;
    let mut session = Session::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?.with_storage(flash);
    let (mut token, mut checksum) = (FIRST, 0xcbf2_9ce4_8422_2325u64);
    let read = || READ.each_ref().map(|count| count.load(Ordering::Relaxed));
    let mut before = read();
    for _ in 0..TOKENS {
        before = read();
        mark();
        session.decode(token)?;
        mark();
        for logit in session.logits() {
            checksum = (checksum ^ u64::from(logit.to_bits())).wrapping_mul(0x0100_0000_01b3);
        }
        token = argmax(session.logits()).unwrap_or_default();
        let _ = writeln!(board, "token {token}");
    }
    let [bytes, reads] = read();
    let _ = writeln!(board, "logits {:08x}{:08x}", (checksum >> 32) as u32, checksum as u32);
    let _ = writeln!(board, "a token reads {} bytes in {} reads", bytes - before[0], reads - before[1]);
    Ok(())
}

fn run() -> bool {
    let stack = Stack::paint();
    let (mut board, mut flash) = (Board::new(), Flash::new());
    let result = tell(&mut board, &mut flash);
    if let Err(error) = &result {
        let _ = writeln!(board, "error: {error}");
    }
    stack.print();
    result.is_ok()
}

board::main!(run);
board::no_panic!();
