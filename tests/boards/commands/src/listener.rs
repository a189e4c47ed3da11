//! Recognizes commands in a recording and turns them into calls: the recognizer's text is the second model's prompt.
//!
//! With the feature `microphone`, an interrupt stores the samples of a minute while the models run; on a board with a
//! microphone, its interrupt does the same. The models call [`poll`] after each part of their work, of at most
//! [`PRODUCTS`] multiplications: the place for whatever else a main loop does.
#![no_std]
#![no_main]

mod assistant;
mod home;
mod recognizer;

use core::fmt::Write;

use arenite::workers::Paced;
use arenite::{Error, Gguf, Model};
use assistant::Assistant;
use board::{Board, Stack, mark, poll};
use heapless::String;
use home::Home;
use recognizer::Recognizer;

/// Bytes of the longest command.
const LONGEST: usize = 256;
/// Speech in five voices: 8-bit samples (mu-law) at 16 kHz, after a header.
static RECORDING: &[u8] = include_bytes!("../recording.wav");
static SAMPLES: &[u8] = RECORDING.split_at(46).1;
/// Samples of a buffer: 20 ms.
const BUFFER: usize = 320;
/// Multiplications between two calls of [`poll`].
const PRODUCTS: usize = 6144;
static WORKERS: Paced<fn()> = Paced::new(PRODUCTS, || poll());

fn listen(board: &mut Board) -> Result<(), Error> {
    let stack = Stack::paint();
    let (ears, calls) = (Gguf::parse(recognizer::MODEL)?, Gguf::parse(assistant::MODEL)?);
    let (ears_model, calls_model) = (Model::new(&ears)?, Model::new(&calls)?);
    let mut recognizer = Recognizer::new(&ears, &ears_model, &WORKERS)?;
    let mut assistant = Assistant::new(&calls, &calls_model, &WORKERS)?;
    let mut home = Home::default();
    let _ = writeln!(board, "ready: {} bytes of statics, {} of stack", board::statics(), stack.used());

    let mut sound = Sound::start();
    let mut bytes = [0; BUFFER];
    mark();
    while let Some(bytes) = sound.next(&mut bytes) {
        let mut buffer = [0; BUFFER];
        for (sample, byte) in buffer.iter_mut().zip(bytes) {
            *sample = expanded(*byte);
        }
        board.feed_watchdog();
        recognizer.push(&buffer[..bytes.len()], |text| answer(board, &mut assistant, &mut home, text))?;
        poll();
    }
    mark();
    sound.report(board);
    let _ = writeln!(board, "# {} bytes of stack", stack.used());
    Ok(())
}

/// The samples of the recording.
#[cfg(not(feature = "microphone"))]
struct Sound(core::slice::Chunks<'static, u8>);

#[cfg(not(feature = "microphone"))]
impl Sound {
    fn start() -> Self {
        Self(SAMPLES.chunks(BUFFER))
    }

    fn next<'b>(&mut self, _: &'b mut [u8; BUFFER]) -> Option<&'b [u8]> {
        self.0.next()
    }

    fn report(&self, board: &mut Board) {
        let _ = writeln!(board, "# {} samples", SAMPLES.len());
    }
}

/// The samples of the microphone, which plays the recording again and again for a minute.
#[cfg(feature = "microphone")]
struct Sound(Option<board::Microphone>, usize);

#[cfg(feature = "microphone")]
impl Sound {
    const SAMPLES: usize = 60 * board::RATE;

    fn start() -> Self {
        Self(board::Microphone::start(SAMPLES), 0)
    }

    fn next<'b>(&mut self, buffer: &'b mut [u8; BUFFER]) -> Option<&'b [u8]> {
        if self.1 >= Self::SAMPLES {
            return None;
        }
        self.0.as_mut()?.read(buffer);
        self.1 += BUFFER;
        Some(buffer)
    }

    fn report(&self, board: &mut Board) {
        let lost = self.0.as_ref().map_or(0, |microphone| microphone.lost());
        let _ = writeln!(board, "# {} samples, {lost} lost", self.1);
    }
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
