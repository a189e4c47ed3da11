//! Names the traffic sign in a camera's picture: RGB565 of 96 by 96 pixels over the UART in, a name and its probability out.
//!
//! It runs under qemu on a Cortex-M4F and a Cortex-M55, and on the host. For your own board, replace the memory map (`memory/`)
//! and the crate `board`, and let the camera's driver write to the frame.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod camera;
mod eye;

use core::fmt::Write;

use arenite::vision::Vision;
use arenite::{Error, Gguf};
use board::{Board, Stack, mark};
use eye::Eye;

/// Ends the program: end of transmission, Ctrl-D.
const END: u8 = 4;
/// Starts a picture.
const START: u8 = b'F';

/// Answers each picture up to the end of the input.
fn serve(board: &mut Board) -> Result<(), Error> {
    let gguf = Gguf::parse(eye::MODEL)?;
    let vision = Vision::new(&gguf)?;
    let mut eye = Eye::new(&gguf, &vision)?;
    let frame = camera::FRAME.take()?;
    while receive(board, frame) {
        mark();
        let seen = eye.see(frame);
        mark();
        // An integer is printed, because the code that prints floats takes much flash. The bits are for comparisons.
        let _ = match seen {
            Ok((sign, p)) => writeln!(board, "{sign} 0.{:04} ({:08x})", ((p * 1e4) as u32).min(9999), p.to_bits()),
            Err(error) => writeln!(board, "error: {error}"),
        };
    }
    Ok(())
}

/// Reads a picture, in place of a camera's driver. Returns false at the end of the input.
fn receive(board: &mut Board, frame: &mut [u8]) -> bool {
    loop {
        match board.read() {
            None | Some(END) => return false,
            Some(START) => break,
            Some(_) => {}
        }
    }
    for byte in frame {
        let Some(received) = board.read() else { return false };
        *byte = received;
    }
    true
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
