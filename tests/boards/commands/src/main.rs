//! Turns commands in English, German and Hindi into calls: a line over the UART in, a JSON call out.
//!
//! It runs under qemu on a Cortex-M4F, a Cortex-M33 and a RISC-V core. For your own board, replace the memory map
//! (`memory/`) and the crate `board`.
#![no_std]
#![no_main]

mod assistant;
mod home;
mod partition;
#[cfg(feature = "signed")]
mod signature;
mod slots;

use core::fmt::Write;

use arenite::Error;
use arenite::workers::Serial;
use assistant::Assistant;
use board::{Board, Stack, mark, poll};
use heapless::Vec;
use home::Home;
use partition::Running;
use slots::Head;

/// Bytes of the longest command.
const LONGEST: usize = 256;
/// Ends the program: end of transmission, Ctrl-D.
const END: u8 = 4;
/// Drops the part of a line that was received: cancel, Ctrl-X.
const CANCEL: u8 = 24;

/// Answers each line up to the end of the input, or up to a line that announces an update; returns what is known of the
/// update. Reports an error in a command and reads the next command.
fn serve(board: &mut Board) -> Result<Option<(Running, Head)>, Error> {
    let stack = Stack::paint();
    let mut running = partition::choose(board)?;
    let gguf = arenite::Gguf::parse(running.model)?;
    let model = arenite::Model::new(&gguf)?;
    let mut assistant = Assistant::new(&gguf, &model, &Serial)?;
    let mut home = Home::default();
    let _ = writeln!(board, "ready: {} bytes of statics, {} of stack", board::statics(), stack.used());

    let mut line = Vec::new();
    while read_line(board, &mut line) {
        if let Some(head) = partition::announced(&line) {
            match running.refuses(&head) {
                Ok(()) => return Ok(Some((running, head))),
                Err(reason) => drop(writeln!(board, "error: update {}: {reason}", head.version)),
            }
            continue;
        }
        let start = board.micros();
        mark();
        let answer = assistant.answer(&line, || board.feed_watchdog());
        mark();
        let micros = board.micros().wrapping_sub(start);
        match answer {
            Ok(answer) => {
                running.confirm();
                let _ = writeln!(board, "{}", answer.call);
                match home.apply(&answer.call) {
                    Ok(()) => board.led(home.is_lit()),
                    Err(error) => drop(writeln!(board, "error: {error}")),
                }
                let tokens = (answer.prompt, answer.generated);
                let _ = write!(board, "# {} + {} tokens, {micros} us, ", tokens.0, tokens.1);
                let _ = writeln!(board, "{} bytes of stack, LED {}", stack.used(), home.is_lit());
            }
            Err(error) => drop(writeln!(board, "error: {error}")),
        }
    }
    Ok(None)
}

/// Reads a line with its line feed. Returns false at the end of the input. The rest of a line that is too long is
/// dropped. There is no time limit, because somebody may be typing.
fn read_line(board: &mut Board, line: &mut Vec<u8, LONGEST>) -> bool {
    line.clear();
    loop {
        match board.read() {
            None | Some(END) => return false,
            Some(CANCEL) => line.clear(),
            Some(b'\n' | b'\r') if line.is_empty() => {}
            Some(b'\n' | b'\r') => {
                // The line feed, for which there is always room, ends a command for the model.
                line.truncate(LONGEST - 1);
                return line.push(b'\n').is_ok();
            }
            Some(byte) => drop(line.push(byte)),
        }
    }
}

fn run() -> bool {
    let mut board = Board::new();
    board.start_watchdog();
    match serve(&mut board) {
        Ok(None) => true,
        Ok(Some((running, head))) => {
            running.receive(&mut board, &head);
            board::restart()
        }
        Err(error) => {
            let _ = writeln!(board, "error: {error}");
            false
        }
    }
}

board::main!(run);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    board::exit(false)
}
