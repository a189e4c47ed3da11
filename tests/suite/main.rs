//! All tests of the core in one program, so that common code is compiled once. (Separate: `allocation.rs`, which
//! replaces the allocator, `built.rs`, which also runs with few features, and `updates.rs`, which tests a board's code and
//! is not in the package.)

#[path = "../common/mod.rs"]
mod common;

mod chat;
mod contexts;
mod decoded;
mod drafts;
mod encoders;
mod eyes;
mod files;
mod gguf;
mod grammar;
mod hostile;
mod hostile_vocabulary;
mod lora;
mod memory;
mod observer;
mod peers;
mod pieces;
mod reference;
mod reuse;
mod same_bits;
mod sampler;
mod samplers;
mod sizes;
mod snapshot;
mod speech;
mod split;
mod storage;
mod tokenizer;
mod verify;
mod vocabularies;
