#![doc = include_str!("../README.md")]
//!
//! # The crate
//!
//! - [`Gguf`]: what a file says, checked once. [`Model`]: what it means, every tensor in its place.
//! - [`Plan`]: exact bytes of memory, in `const`. [`Session`]: prefill, decode, rewind, save, restore; encode.
//!   [`engine`]: several conversations in one pass, forks. [`beam`]: search. [`speculation`]: guesses.
//! - [`tokenizer`] and [`sampler`]: text to ids and back, logits to a token; [`grammar`]: which tokens may come.
//! - [`chat`]: from messages to a prompt, in the well-known formats.
//! - [`Kernels`]: the same bits on every instruction set. [`workers`]: threads, if the caller has any.
//! - [`Error`]: one type for everything that can go wrong.
#![no_std]
#![deny(unsafe_code)]

#[cfg(feature = "std")]
extern crate std;

pub mod beam;
mod built;
pub mod chat;
pub mod engine;
mod error;
#[cfg(feature = "capi")]
pub mod ffi;
pub mod gguf;
pub mod grammar;
pub mod kernel;
pub mod memory;
pub mod model;
pub mod quant;
pub mod sampler;
pub mod speculation;
pub mod tokenizer;
pub mod workers;

mod hash;
mod session;
mod sort;

pub use engine::{Context, Engine, Inputs, Observer, Options, Pass, Plan, Profiler, Section, Stage, Work};
pub use error::{Error, ErrorKind, Name};
pub use gguf::Gguf;
pub use kernel::Kernels;
#[cfg(any(target_has_atomic = "8", feature = "critical-section"))]
pub use memory::Workspace;
pub use memory::{KvType, Line};
pub use model::Model;
pub use session::Session;

/// A token's number in the vocabulary: its position in `tokenizer.ggml.tokens`.
pub type TokenId = u32;

/// `?` for `const fn`, where the operator is not available.
macro_rules! tri {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return Err(error),
        }
    };
}
pub(crate) use tri;
