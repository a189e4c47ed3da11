//! The host: standard input and output stand for the UART.

use std::fmt;
use std::io::{self, Read, Write};
use std::process;

pub struct Board(io::Bytes<io::BufReader<io::Stdin>>);

impl Board {
    #[allow(clippy::new_without_default, reason = "the boards write to registers")]
    pub fn new() -> Self {
        Self(io::BufReader::new(io::stdin()).bytes())
    }

    /// Reads a byte; `None` at the end of the input.
    pub fn read(&mut self) -> Option<u8> {
        self.0.next()?.ok()
    }
}

/// The host's stack is not measured.
pub struct Stack;

impl Stack {
    pub fn paint() -> Self {
        Self
    }

    pub fn print(&self) {}
}

impl fmt::Write for Board {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        io::stdout().write_all(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// There is nothing to reset.
pub fn restart() -> ! {
    exit(false)
}

/// Ends the program.
pub fn exit(is_well: bool) -> ! {
    process::exit(if is_well { 0 } else { 1 })
}
