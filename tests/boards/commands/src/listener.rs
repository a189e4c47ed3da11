//! Recognizes commands in a recording and turns them into calls: the recognizer's text is the second model's prompt.
//!
//! On a board with a microphone, pass the samples of each buffer to [`Recognizer::push`] instead of the recording's.
#![no_std]
#![no_main]

mod assistant;
mod home;
mod recognizer;

use core::fmt::Write;

use arenite::{Error, Gguf, Model};
use assistant::Assistant;
use board::{Board, Stack, mark};
use heapless::String;
use home::Home;
use recognizer::Recognizer;

/// Bytes of the longest command.
const LONGEST: usize = 256;
/// Speech in five voices: 8-bit samples (mu-law) at 16 kHz, after a header.
static RECORDING: &[u8] = include_bytes!("../recording.wav");
const HEADER: usize = 46;
/// Samples of a buffer: 20 ms.
const BUFFER: usize = 320;

fn listen(board: &mut Board) -> Result<(), Error> {
    let stack = Stack::paint();
    let (ears, calls) = (Gguf::parse(recognizer::MODEL)?, Gguf::parse(assistant::MODEL)?);
    let (ears_model, calls_model) = (Model::new(&ears)?, Model::new(&calls)?);
    let mut recognizer = Recognizer::new(&ears, &ears_model)?;
    let mut assistant = Assistant::new(&calls, &calls_model)?;
    let mut home = Home::default();
    let _ = writeln!(board, "ready: {} bytes of statics, {} of stack", board::statics(), stack.used());

    let samples = RECORDING.get(HEADER..).unwrap_or_default();
    let _ = writeln!(board, "# {} samples", samples.len());
    mark();
    for bytes in samples.chunks(BUFFER) {
        let mut buffer = [0; BUFFER];
        for (sample, byte) in buffer.iter_mut().zip(bytes) {
            *sample = expanded(*byte);
        }
        board.feed_watchdog();
        recognizer.push(&buffer[..bytes.len()], |text| answer(board, &mut assistant, &mut home, text))?;
    }
    mark();
    let _ = writeln!(board, "# {} bytes of stack", stack.used());
    Ok(())
}

/// Prints the text and its call, and carries the call out.
fn answer(board: &mut Board, assistant: &mut Assistant<'_, '_>, home: &mut Home, text: &str) {
    let _ = writeln!(board, "heard: {text}");
    let mut command = String::<LONGEST>::new();
    if text.is_empty() || write!(command, "{text}\n").is_err() {
        return;
    }
    match assistant.answer(command.as_bytes(), || board.feed_watchdog()) {
        Ok(answer) => {
            let _ = writeln!(board, "{}", answer.call);
            match home.apply(&answer.call) {
                Ok(()) => board.led(home.is_lit()),
                Err(error) => drop(writeln!(board, "error: {error}")),
            }
            let _ = writeln!(board, "# {} + {} tokens", answer.prompt, answer.generated);
        }
        Err(error) => drop(writeln!(board, "error: {error}")),
    }
}

/// Decodes a byte of mu-law (ITU-T G.711).
fn expanded(byte: u8) -> i16 {
    let bits = !byte;
    let magnitude = ((i16::from(bits & 15) << 3) + 132) << (bits >> 4 & 7);
    if bits & 128 == 0 { magnitude - 132 } else { 132 - magnitude }
}

fn run() -> bool {
    let mut board = Board::new();
    board.start_watchdog();
    match listen(&mut board) {
        Ok(()) => true,
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
