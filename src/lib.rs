// The example in the README is not tested here, because it needs host-demo. The documentation tests of host-demo run
// it.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
//!
//! # The crate
//!
//! - [`Gguf`]: a parsed and checked file. [`Model`]: its architecture and tensors.
//! - [`Plan`]: exact memory sizes, computable in `const`. [`Session`]: prefill, decode, rewind, save, restore, encode.
//!   [`engine`]: several conversations per pass, forks. [`beam`]: beam search. [`speculation`]: speculative decoding.
//! - [`tokenizer`]: text to token ids and back. [`sampler`]: logits to a token. [`grammar`]: constrained output.
//! - [`Adapter`]: LoRA adapters, chosen by each context.
//! - [`chat`]: well-known chat formats, from messages to a prompt.
//! - [`Kernels`]: the arithmetic for one instruction set; the bits are the same on all instruction sets. [`workers`]:
//!   threads that the caller provides.
//! - [`Error`]: the only error type.
//!
//! The [`guide`] explains how the crate works.
//!
//! # Example
//!
//! ```rust
//! use arenite::sampler::{Params, Pcg32, Sampler};
//! use arenite::tokenizer::{Encode, Tokenizer};
//! use arenite::{Gguf, Line, Model, Options, Plan, Session};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let path = std::env::args().nth(1).unwrap_or("tests/fixtures/stories.gguf".into());
//!     let file = std::fs::read(path)?; // or flash, `include_bytes!`, an mmap
//!     let gguf = Gguf::parse(&file)?; // borrowed: nothing is copied
//!     let model = Model::new(&gguf)?; // every tensor's shape and type is checked here, once
//!     let plan = Plan::new(&gguf, Options::new().context(256))?; // exact bytes
//!     let [mut workspace, mut kv, mut index] =
//!         [plan.workspace, plan.kv, plan.tokenizer].map(|bytes| vec![Line::ZERO; bytes.div_ceil(64)]);
//!     let tokenizer = Tokenizer::new(&gguf, Line::bytes_mut(&mut index))?;
//!     let mut session = Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
//!
//!     // A `heapless::Vec` of at most 32 ids.
//!     let prompt = tokenizer.encode_list::<32>(b"One day, a little fox", Encode::PROMPT, &mut [0; 4096])?;
//!     session.prefill(&prompt)?;
//!
//!     let mut scratch = vec![0; Sampler::scratch_bytes(&Params::DEFAULT, model.spec().vocab)];
//!     let mut sampler = Sampler::new(Params::DEFAULT, &[], model.spec().vocab, &mut scratch)?;
//!     let (mut rng, mut decoder) = (Pcg32::new(7), tokenizer.decoder_after_prompt());
//!     let mut text = String::new();
//!     while session.position() < session.context() {
//!         let token = sampler.sample(session.logits_mut(), &mut rng)?;
//!         if tokenizer.is_end(token) {
//!             break;
//!         }
//!         decoder.write(token, &tokenizer, &mut text)?; // any `core::fmt::Write`
//!         session.decode(token)?;
//!     }
//!     println!("{text}");
//!     Ok(())
//! }
//! ```
//!
//! # Features
//!
//! By default all features for models are enabled. A firmware uses `default-features = false` and enables the features
//! that its model needs. If a file needs a disabled feature, the error names this feature; if the plan is a `const`,
//! the error comes at compile time. [Supported models](guide::what_works) lists the features of each family; `arenite
//! plan` lists the features that a file needs.
//!
//! | features | enable |
//! |---|---|
//! | `families` | all families of models. Each family has its own feature: see [Supported models](guide::what_works) |
//! | `experts` | mixture of experts, in families that support it |
//! | `half-floats`, `q8_groups`, and a feature for each block format with its name in lower case (`q8_0`, `q4_k`, `iq4_xs`) | types of weights (F32 is always enabled) |
//! | `lenient` | files of any converter: ignores keys without effect, and reads other layouts of the same tensors |
//! | `verify` | [`Gguf::verify`]: compares tensor data with hashes in the file |
//! | `split` | [`Gguf::parse_split`]: models in several slices |
//! | `sound` | [speech](sound): log-mel features, and the families `whisper` and `moonshine` (in `families`) |
//! | `kv-f32`, `kv-f16`, `kv-q8_0`, `kv-q4_0` | types of the KV cache |
//! | `lora` | adapters |
//! | `bpe`, `unigram`, `wordpiece`, `rwkv-world`, `plamo2`, `hybrid-dna` | tokenizers (SentencePiece's BPE is always enabled) |
//!
//! These features are off by default:
//!
//! | feature | enables |
//! |---|---|
//! | `std` | threads: [`workers`]`::Pool` |
//! | `drafts` | layers that predict further tokens, and passes whose last tokens can be undone |
//! | `storage` | weights outside of the address space (SPI flash, SD card), read through a window in RAM: `Storage` |
//! | `vision` | [pictures](vision): encoders of patches, and rows that stand where tokens stand |
//! | `critical-section` | [`Workspace`] on targets without compare-and-swap (RP2040, riscv32imc) |
//! | `helium` | kernels for Cortex-M55 and M85, compiled with `-C target-cpu=cortex-m33` |
//! | `defmt` | [`Error`] and [`ErrorKind`] as values that defmt logs |
//! | `capi` | the C interface, `src/arenite.h` |
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "lora")]
mod adapter;
pub mod beam;
mod built;
pub mod chat;
mod decide;
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
#[cfg(feature = "sound")]
pub mod sound;
pub mod speculation;
pub mod tokenizer;
#[cfg(feature = "vision")]
pub mod vision;
pub mod workers;

mod hash;
mod session;
mod sort;

#[cfg(feature = "lora")]
pub use adapter::Adapter;
pub use decide::Answers;
#[cfg(feature = "vision")]
pub use engine::Span;
pub use engine::{Context, Encoding, Engine, Inputs, Observer, Options, Pass, Plan, Profiler, Section, Stage, Work};
pub use error::{Error, ErrorKind, Name};
pub use gguf::Gguf;
pub use kernel::Kernels;
#[cfg(feature = "storage")]
pub use memory::Storage;
#[cfg(any(target_has_atomic = "8", feature = "critical-section"))]
pub use memory::Workspace;
pub use memory::{KvType, Line};
pub use model::Model;
pub use session::Session;

/// Index of a token in the vocabulary (`tokenizer.ggml.tokens`).
pub type TokenId = u32;

/// The `?` operator for `const fn`.
macro_rules! tri {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return Err(error),
        }
    };
}
pub(crate) use tri;
