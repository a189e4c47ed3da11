//! Chooses between the model in the program and an update in a second partition of the flash; receives updates.

use core::fmt::{self, Write};

use arenite::tokenizer::Tokenizer;
use arenite::{Error, Gguf, Model, Plan};
use board::Board;

use crate::assistant::{LARGEST, MODEL, OPTIONS};

/// Bytes of the second partition.
pub const BYTES: usize = 512 * 1024;
/// Number of bytes of an update that `receive` confirms with one line.
const BLOCK: usize = 4096;

/// Maximum time between two bytes of an update, in seconds.
const PATIENCE: u32 = 5;

/// Reasons not to run a model.
enum Refusal {
    Model(Error),
    NoHashes,
    TooLarge(Plan),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Model(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(error) => error.fmt(f),
            Self::NoHashes => f.write_str("it has no hashes: pack it with `arenite pack`"),
            Self::TooLarge(plan) => write!(
                f,
                "it needs {} + {} bytes of memory, and this program has {} + {}",
                plan.workspace, plan.kv, LARGEST.workspace, LARGEST.kv
            ),
        }
    }
}

/// The first byte of the second partition.
fn start() -> *mut u8 {
    unsafe extern "C" {
        static mut _update: u8;
    }
    &raw mut _update
}

/// Returns the update if it is whole and fits into the statics, and otherwise the model in the program.
#[inline(never)]
pub fn choose(board: &mut Board) -> Result<&'static [u8], Error> {
    // SAFETY: the partition is memory of the board. Only `receive` writes to it, and the board restarts after that.
    let update: &'static [u8] = unsafe { core::slice::from_raw_parts(start(), BYTES) };
    // Erased flash does not begin like a GGUF file.
    if update.starts_with(b"GGUF") {
        match check(update, board) {
            Ok(()) => {
                let _ = writeln!(board, "the update runs");
                return Ok(update);
            }
            Err(refusal) => drop(writeln!(board, "the update is refused: {refusal}")),
        }
    }
    match check(MODEL, board) {
        Err(Refusal::Model(error)) => Err(error),
        // `NoHashes` and `TooLarge` are impossible: MODEL has hashes, and the compiler has compared its plan with the
        // statics.
        _ => Ok(MODEL),
    }
}

/// Checks a model: its memory, its tensors, and their hashes. After an interrupted write, tensors at the end of the file do
/// not match their hashes.
#[inline(never)]
fn check(file: &[u8], board: &mut Board) -> Result<(), Refusal> {
    let gguf = Gguf::parse(file)?;
    let plan = Plan::new(&gguf, OPTIONS)?;
    if plan.workspace > LARGEST.workspace || plan.kv > LARGEST.kv {
        return Err(Refusal::TooLarge(plan));
    }
    check_contents(&gguf)?;
    let mut verify = gguf.verify()?.ok_or(Refusal::NoHashes)?;
    while verify.step(4096)? {
        board.feed_watchdog();
    }
    Ok(())
}

/// Checks the tokenizer and the tensors. The tokenizer's index has to be in the file: there are no statics for it.
#[inline(never)] // keeps the model off the stack of `check`
fn check_contents(gguf: &Gguf<'_>) -> Result<(), Error> {
    Tokenizer::packed(gguf)?;
    Model::new(gguf).map(drop)
}

/// The size of the update that a line announces, such as "update 292160".
pub fn announced(line: &[u8]) -> Option<usize> {
    core::str::from_utf8(line.strip_prefix(b"update ")?).ok()?.trim_ascii().parse().ok()
}

/// Reads an update from the UART into the partition. Under qemu the partition is RAM; on a board, replace the writes with
/// calls of your flash driver. Confirms every block, because the sender has to wait while flash is written. If the sender
/// stops, the rest stays erased. Restart the board afterwards: it runs the update only if all of it has arrived.
#[inline(never)]
pub fn receive(board: &mut Board, bytes: usize) {
    // SAFETY: the partition is memory of the board. A model in the partition is not used any more.
    let partition = unsafe { core::slice::from_raw_parts_mut(start(), BYTES) };
    partition.fill(0xff); // erased
    let _ = writeln!(board, "# 0 of {bytes}");
    let mut at = 0;
    for block in partition.get_mut(..bytes).unwrap_or_default().chunks_mut(BLOCK) {
        for byte in block {
            let Some(received) = board.read_within(PATIENCE) else {
                let _ = writeln!(
                    board,
                    "error: no byte for {PATIENCE} seconds, after {at} of {bytes}: send the update again"
                );
                return;
            };
            *byte = received;
            at += 1;
        }
        board.feed_watchdog();
        let _ = writeln!(board, "# {at} of {bytes}");
    }
}
