//! The host: standard input and output stand for the UART.

use std::fmt;
use std::io::{self, Read, Write};

pub struct Board(io::Bytes<io::BufReader<io::Stdin>>);

impl Board {
    pub fn new() -> Self {
        Self(io::BufReader::new(io::stdin()).bytes())
    }

    /// Reads a byte; `None` at the end of the input.
    pub fn read(&mut self) -> Option<u8> {
        self.0.next()?.ok()
    }
}

impl fmt::Write for Board {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        io::stdout().write_all(text.as_bytes()).map_err(|_| fmt::Error)
    }
}
