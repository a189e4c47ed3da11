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
//!
//! The [`guide`] explains how it works, page by page.
//!
//! # Features
//!
//! The default is everything that a file may ask for. A firmware starts at `default-features = false` and names what
//! its model needs: a file that asks for more is an error with the feature's name, from the compiler if the plan is
//! a `const`. [What works](guide::what_works) says which family has which feature, `arenite plan` what a file needs.
//!
//! | features | bring |
//! |---|---|
//! | `llama`, `qwen`, `gpt2`, `gemma`, `phi3`, `stablelm`, `smollm3`, `olmo2`, `granite`, `exaone4`, `gpt-oss`, `hunyuan`, `mistral3`, `lfm2`, `qwen35`, `mamba2`, `nemotron-h` | families of decoders |
//! | `bert`, `nomic-bert`, `gemma-embedding`, `t5`, `seq2seq` | encoders, and decoders that attend to them |
//! | `experts` | feed-forwards of experts, in the families that have them |
//! | `half-floats`, `q8_0`, `q4_0`, `q4_1`, `q5_0`, `q5_1`, `q2_k`, `q3_k`, `q4_k`, `q5_k`, `q6_k`, `iq1_s`, `iq1_m`, `iq2_xxs`, `iq2_xs`, `iq2_s`, `iq3_xxs`, `iq3_s`, `iq4_nl`, `iq4_xs`, `tq1_0`, `tq2_0`, `mxfp4`, `nvfp4`, `q1_0`, `q2_0`, `q8_groups` | types of weights (F32 is always there) |
//! | `kv-f32`, `kv-f16`, `kv-q8_0` | types of the KV cache |
//! | `bpe`, `unigram`, `wordpiece` | tokenizers (SentencePiece's BPE is always there) |
//!
//! These are not in the default:
//!
//! | feature | brings |
//! |---|---|
//! | `std` | threads: [`workers`]`::Pool` |
//! | `critical-section` | [`Workspace`] on targets without compare-and-swap (RP2040, riscv32imc) |
//! | `defmt` | [`Error`] and [`ErrorKind`] as values that defmt logs |
//! | `capi` | the C interface, `src/arenite.h` |
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
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
pub mod guide;
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
