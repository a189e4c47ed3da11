//! The program `arenite`, described in `host-demo/README.md`: commands, options and terminal output, based on the
//! crates in `host-demo/crates`.
//!
//! Programs that run models depend on `arenite-run`.
#![deny(unsafe_code)]
// Use `output` instead of printing macros, because these macros panic if a pipe was closed.
#![warn(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, clippy::expect_used)]

mod boards;
mod chat;
mod cli;
mod commands;
mod foreign;
mod formats;
mod interrupt;
mod output;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use commands::Cli;

/// The command line that started this process.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The executable file: `arenite`, or an interpreter that calls [`main`].
    pub program: PathBuf,
    /// Arguments with which an interpreter starts `arenite`, such as `-m arenite`.
    pub leading: Vec<OsString>,
    /// Arguments of `arenite`, without its name.
    pub arguments: Vec<OsString>,
}

/// Runs a command line. It needs a process of its own: it handles signals, and it may end the process.
pub fn main(invocation: Invocation) -> ExitCode {
    arenite_files::faults::prepare();
    interrupt::prepare();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Do not report a panic of a decoder here, because the panic becomes an error of its sound or picture.
        let decoders = [arenite_speech::DECODER, arenite_pictures::DECODER];
        if !std::thread::current().name().is_some_and(|name| decoders.contains(&name)) {
            report(panic);
        }
    }));
    output::show_log();
    formats::register();
    arenite_files::clean_up_on_signals(interrupt::clean_up_on_signals);
    let mut program = Cli::command();
    let typed = [OsString::from("arenite")].into_iter().chain(invocation.arguments.iter().cloned());
    let args = cli::words::with_command(typed.collect(), &program);
    let typed = match cli::llama::understand(args) {
        Ok(typed) => typed,
        Err(wrong) => return output::usage(&wrong),
    };
    typed.notes.iter().for_each(output::note);
    let args = cli::words::placed(typed.args, &mut program);
    match Cli::try_parse_from(&args) {
        Ok(cli) => commands::run(cli, invocation).unwrap_or_else(|error| output::report(&error)),
        Err(told) => output::usage_error(&told, &args),
    }
}

/// Runs the Rust code of the project's README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
