//! The std companion of [`arenite`]: models for programs with an operating system.
//!
//! - [`Loaded`]: a model that owns its file, memory and threads. It continues texts, holds conversations, generates
//!   JSON that matches a schema, and computes embeddings and rankings.
//! - [`grammar`]: compiles JSON schemas and GBNF for [`arenite::grammar`].
//! - [`gguf_writer`]: writes GGUF files.
//! - [`main`]: the command line `arenite`, described in `host-demo/README.md`.
#![deny(unsafe_code)]
// Printing macros panic if a pipe was closed; use `output` instead.
#![warn(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, clippy::expect_used)]
// Many items are public only because `untrusted` re-exports them.
#![allow(missing_docs, clippy::missing_errors_doc)]

mod announce;
mod boards;
mod chat;
mod cli;
mod commands;
mod corpus;
mod foreign;
mod formats;
mod interrupt;
mod log_probs;
mod npy;
mod output;
mod plot;
mod program;
mod progress;

use arenite_convert::{checkpoint, llama2c, seq2seq, tokenizer_file};
use arenite_files::{self as mapped, self as new_file, self as units, faults};
pub use arenite_gguf_writer as gguf_writer;
pub use arenite_grammar as grammar;
#[cfg(feature = "hub")]
use arenite_hub as hub;
use arenite_quantize as quantize;
use arenite_request as text_request;
use arenite_run::{
    adapters, check_tensors, generation, guess, model_file, open_model, ranking, rng, runtime, session_file, split,
    workers,
};
use arenite_speech as speech;
use arenite_text::{self as text, normalizer};

pub use anyhow::{Error, Result};
pub use arenite;
pub use arenite_run::{Answer, AnswerEnd, Load, Loaded, Message, Request, Role, RunOptions, Source, Value};

use std::process::ExitCode;

use clap::Parser;

use commands::Cli;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    faults::prepare();
    interrupt::prepare();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // A panic of a sound's decoder is an error of that sound, which is reported as such.
        if std::thread::current().name() != Some(arenite_speech::DECODER) {
            report(panic);
        }
    }));
    output::show_log();
    formats::register();
    new_file::clean_up_on_signals(interrupt::clean_up_on_signals);
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

/// Runs the Rust code of the project's README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// Parsers of untrusted input, for the fuzz targets. Not part of the public interface.
#[doc(hidden)]
pub mod untrusted {
    pub use crate::chat::Renderer;
    pub use crate::chat::Style;
    pub use crate::checkpoint::{
        Request as CheckpointRequest, convert as convert_checkpoint, lora::convert as convert_lora,
    };
    pub use crate::grammar::{Budget, from_gbnf, from_json_schema};
    pub use crate::llama2c::{Converted, Int8};
    pub use crate::model_file::ModelFile;
    pub use crate::open_model::OpenModel;
    pub use crate::quantize::mix::{Mix, TypeOptions};
    pub use crate::quantize::{Change, changes, header};
    pub use crate::seq2seq::convert;
    pub use crate::text::tokenizer;
    pub use crate::tokenizer_file::{sentencepiece, with_tokenizer};
    pub use arenite_run::scheduler::{Command, Counters, Event, Finish};
    pub use arenite_run::service::{Choice, Endpoint, Host, Service};
    pub use arenite_serve::{App, CacheScope, Gate, Readers, RequestMemory, ResponseMeta, Sounds, faces, router};
}
