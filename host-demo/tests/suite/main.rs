//! All tests of the command line are in one program, so that only one program is linked.

mod adapters;
mod batch;
mod chat;
mod checkpoint;
mod cli;
mod clients;
mod common;
mod constrained;
mod dead_ends;
mod decide;
mod doors;
mod drafts;
mod eyes;
mod faces;
mod faults;
mod fields;
mod folders;
mod hub;
mod listen;
mod llama2c;
mod loaded;
mod overload;
mod pack;
mod page;
mod pieces;
mod plan;
mod quantize;
mod readme;
mod rerank;
mod reuse;
mod sample;
mod scripted;
mod search;
mod serve;
mod several;
mod slots;
mod talk;
mod templates;
mod terminal;
mod thinking;
mod tokenizer_file;
mod translators;
mod turns;
mod typed;
mod walls;
mod warnings;

/// Maximum time to wait. Every operation takes less time even on a busy machine, so only a failing test waits this
/// long.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);
