//! Chooses between the model in the program and the updates in the flash; receives updates.

use core::convert::Infallible;
use core::fmt::{self, Write};

use arenite::tokenizer::Tokenizer;
use arenite::{Error, Gguf, Model, Plan};
use board::Board;

use crate::assistant::{LARGEST, MODEL, OPTIONS};
#[cfg(feature = "signed")]
use crate::signature;
use crate::slots::{Flash, Head, SIGNATURE, Slots, TRIALS, Update};

/// Number of bytes of an update that `receive` confirms with one line.
const BLOCK: usize = 4096;

/// Maximum time between two bytes of an update, in seconds.
const PATIENCE: u32 = 5;

/// The part of the flash for updates. Under qemu it is RAM that a reset does not clear. For a board, call your flash driver.
struct Partition;

impl Partition {
    fn start() -> *mut u8 {
        unsafe extern "C" {
            static mut _update: u8;
        }
        &raw mut _update
    }
}

impl Flash for Partition {
    type Error = Infallible;

    const SECTOR: usize = 4096;
    const SLOT: usize = 512 * 1024;

    fn read(&self, at: usize, bytes: &mut [u8]) {
        // SAFETY: the partition is memory of the board with room for two slots.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(Self::start().add(at), bytes.len()) };
    }

    fn erase(&mut self, at: usize) -> Result<(), Infallible> {
        // SAFETY: as in `read`. No reference to these bytes exists: the model that runs is in the other slot.
        unsafe { Self::start().add(at).write_bytes(0xff, Self::SECTOR) };
        Ok(())
    }

    fn program(&mut self, at: usize, bytes: &[u8]) -> Result<(), Infallible> {
        // SAFETY: as in `erase`; of the slot that runs, only the record is written.
        unsafe { Self::start().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}

/// The model that runs.
pub struct Running {
    pub model: &'static [u8],
    /// The update that has the model; `None` for the model in the program.
    update: Option<Update>,
}

/// Reasons not to run a model.
enum Refusal {
    Model(Error),
    NoHashes,
    TooLarge(Plan),
    #[cfg(feature = "signed")]
    Signature,
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
            #[cfg(feature = "signed")]
            Self::Signature => f.write_str("its signature is not by the key of this program"),
        }
    }
}

/// Returns the newest update that is whole, fits into the statics and has trials left, and otherwise the model in the program.
#[inline(never)]
pub fn choose(board: &mut Board) -> Result<Running, Error> {
    let mut slots = Slots::new(Partition);
    for update in slots.updates().into_iter().flatten() {
        let version = update.head.version;
        let Ok(has_trials) = slots.start(&update);
        if !has_trials {
            let _ = writeln!(board, "update {version} failed {TRIALS} times");
            continue;
        }
        let place = Slots::<Partition>::model(update.slot);
        // SAFETY: the partition is memory of the board. Nothing writes to the model in this slot while it runs.
        let model = unsafe { core::slice::from_raw_parts(Partition::start().add(place), update.head.bytes as usize) };
        match check_update(&update.head, model, board) {
            Ok(()) => {
                let _ = writeln!(board, "update {version} runs{}", if update.is_confirmed { "" } else { " on trial" });
                return Ok(Running { model, update: Some(update) });
            }
            Err(refusal) => drop(writeln!(board, "update {version} is refused: {refusal}")),
        }
    }
    match check(MODEL, board) {
        Err(Refusal::Model(error)) => Err(error),
        // The other reasons are impossible: MODEL has hashes, and the compiler has compared its plan with the statics.
        _ => Ok(Running { model: MODEL, update: None }),
    }
}

fn check_update(head: &Head, file: &[u8], board: &mut Board) -> Result<(), Refusal> {
    #[cfg(feature = "signed")]
    if !signature::is_valid(head, file) {
        return Err(Refusal::Signature);
    }
    let _ = head;
    check(file, board)
}

/// Checks a model: its memory, its tensors, and their hashes.
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

/// The update that a line announces: "update BYTES VERSION" or "update BYTES VERSION SIGNATURE", in hexadecimal digits.
pub fn announced(line: &[u8]) -> Option<Head> {
    let mut words = core::str::from_utf8(line.strip_prefix(b"update ")?).ok()?.split_ascii_whitespace();
    let (bytes, version) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut signature = [0xff; SIGNATURE];
    if let Some(digits) = words.next() {
        let digits = digits.as_bytes().as_chunks::<2>().0;
        for (to, pair) in signature.iter_mut().zip(digits) {
            *to = u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok()?;
        }
    }
    Some(Head { version, bytes, signature })
}

impl Running {
    /// The model has answered: an update on trial has proven itself.
    pub fn confirm(&mut self) {
        if let Some(update) = &mut self.update {
            let Ok(()) = Slots::new(Partition).confirm(update);
        }
    }

    /// Returns the reason why an update cannot be received.
    pub fn refuses(&self, head: &Head) -> Result<(), Reason> {
        match self.update {
            _ if head.bytes as usize > Slots::<Partition>::MOST => Err(Reason::TooLarge),
            Some(running) if !running.is_confirmed => Err(Reason::OnTrial),
            running if head.version <= running.map_or(0, |it| it.head.version) => Err(Reason::NotNewer),
            _ => Ok(()),
        }
    }

    /// Reads an update from the UART into the slot that does not run. Confirms every block, because the sender has to wait
    /// while flash is written. If the sender stops, the slot stays empty. Restart the board afterwards.
    #[inline(never)]
    pub fn receive(&self, board: &mut Board, head: &Head) {
        let mut slots = Slots::new(Partition);
        let bytes = head.bytes as usize;
        let Ok(slot) = slots.begin(self.update.map(|update| update.slot), head);
        let _ = writeln!(board, "# 0 of {bytes}");
        let mut at = 0;
        while at < bytes {
            // Four bytes at a time: the rest of the last four stays erased.
            let (mut four, len) = ([0xff; 4], (bytes - at).min(4));
            for byte in four.iter_mut().take(len) {
                let Some(received) = board.read_within(PATIENCE) else {
                    let _ = writeln!(
                        board,
                        "error: no byte for {PATIENCE} seconds, after {at} of {bytes}: send the update again"
                    );
                    return;
                };
                *byte = received;
            }
            let Ok(()) = slots.write(slot, at, &four);
            at += len;
            if at.is_multiple_of(BLOCK) || at == bytes {
                board.feed_watchdog();
                let _ = writeln!(board, "# {at} of {bytes}");
            }
        }
        let Ok(()) = slots.finish(slot, head);
    }
}

/// Reasons not to receive an update.
pub enum Reason {
    TooLarge,
    OnTrial,
    NotNewer,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "a slot has room for {} bytes", Slots::<Partition>::MOST),
            Self::OnTrial => f.write_str("the model that runs is on trial: send a command first"),
            Self::NotNewer => f.write_str("the model that runs is as new or newer"),
        }
    }
}
