//! Names the fault in a log: some lines over the UART and an empty line in, a code and its probability out. Nothing is
//! generated.
//!
//! It runs under qemu on a Cortex-M4F and a Cortex-M33, and on the host. For your own board, replace the memory map (`memory/`)
//! and the crate `board`.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod decider;

use core::fmt::Write;

use arenite::{Error, Gguf, Model};
use board::{Board, Stack, mark};
use decider::Decider;
use heapless::Vec;

/// Bytes of the longest log.
const LONGEST: usize = 256;
/// Ends the program: end of transmission, Ctrl-D.
const END: u8 = 4;

/// Answers each log up to the end of the input. Reports an error in a log and reads the next one.
fn serve(board: &mut Board) -> Result<(), Error> {
    let gguf = Gguf::parse(decider::MODEL)?;
    let model = Model::new(&gguf)?;
    let mut decider = Decider::new(&gguf, &model)?;
    let mut log = Vec::new();
    while read_log(board, &mut log) {
        mark();
        let decision = decider.decide(&log);
        mark();
        // An integer is printed, because the code that prints floats takes much flash. The bits are for comparisons.
        let _ = match decision {
            Ok((code, p)) => writeln!(board, "{code} 0.{:04} ({:08x})", ((p * 1e4) as u32).min(9999), p.to_bits()),
            Err(error) => writeln!(board, "error: {error}"),
        };
    }
    Ok(())
}

/// Reads the lines of a log, up to an empty line. Returns false at the end of the input. A log that is too long loses its
/// first lines.
fn read_log(board: &mut Board, log: &mut Vec<u8, LONGEST>) -> bool {
    log.clear();
    loop {
        match board.read() {
            None | Some(END) => return false,
            Some(b'\r') => {}
            Some(b'\n') if log.is_empty() => {}
            Some(b'\n') if log.ends_with(b"\n") => return true,
            Some(byte) => {
                while log.is_full() {
                    decider::drop_line(log);
                }
                let _ = log.push(if byte.is_ascii() { byte } else { b'?' }); // there is room
            }
        }
    }
}

fn run() -> bool {
    let stack = Stack::paint();
    let mut board = Board::new();
    let result = serve(&mut board);
    if let Err(error) = &result {
        let _ = writeln!(board, "error: {error}");
    }
    stack.print();
    result.is_ok()
}

board::main!(run);
board::no_panic!();
