//! `arenite`: run, inspect and plan transformer models from GGUF files.
#![deny(unsafe_code)]
// Printing macros panic when the other end of a pipe is gone; `output` does not.
#![warn(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, clippy::expect_used)]

mod boards;
mod chat;
mod cli;
mod commands;
mod corpus;
mod faults;
mod generation;
mod gguf_writer;
mod grammar;
mod guess;
mod interrupt;
mod llama2c;
mod log_probs;
mod model_file;
mod new_file;
mod new_model;
mod npy;
mod output;
mod plot;
mod program;
mod quantize;
mod ranking;
mod runtime;
mod seq2seq;
mod server;
mod stop;
mod tensor;
mod text;
mod tokenizer_file;
mod workers;

use std::process::ExitCode;

use clap::Parser;

use commands::Cli;

fn main() -> ExitCode {
    faults::prepare();
    interrupt::prepare();
    let typed = match cli::llama::understand(std::env::args_os()) {
        Ok(typed) => typed,
        Err(wrong) => return output::usage(&wrong),
    };
    typed.notes.iter().for_each(output::note);
    match Cli::try_parse_from(typed.args) {
        Ok(cli) => commands::run(cli).unwrap_or_else(|error| output::report(&error)),
        Err(told) => output::usage_error(&told),
    }
}
