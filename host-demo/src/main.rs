//! `arenite`: run, inspect and plan transformer models from GGUF files.
#![deny(unsafe_code)]
// Printing macros panic when the other end of a pipe is gone; `output` does not.
#![warn(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, clippy::expect_used)]

mod boards;
mod cli;
mod commands;
mod faults;
mod generation;
mod gguf_writer;
mod interrupt;
mod model_file;
mod new_file;
mod npy;
mod output;
mod runtime;
mod seq2seq;
mod stop;
mod text;
mod workers;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    faults::prepare();
    interrupt::prepare();
    match commands::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => output::report(&error),
    }
}
