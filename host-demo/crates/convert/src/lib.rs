//! Converts checkpoints and vocabularies to GGUF.
//!
//! - [`checkpoint`]: folders of Hugging Face, files of torch, whisper.cpp, nanoGPT and OpenAI, and LoRA adapters.
//! - [`seq2seq`]: encoder-decoder models of Marian and torch.
//! - [`llama2c`]: checkpoints of llama2.c.
//! - [`tokenizer_file`]: `tokenizer.json`, `tokenizer.model` and other files with a vocabulary.
//!
//! [`write_model`] writes a new file if Arenite can open the model.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use arenite_convert::checkpoint::{Request, convert};
//! use arenite_quantize::mix::Mix;
//!
//! let (from, to) = (Path::new("SmolLM2-135M"), Path::new("smollm2.gguf"));
//! let request = Request { from, to, mix: Some(Mix::Q8_0), tokenizer: None };
//! let report = convert(&request, &mut |_progress| true)?; // false stops the conversion
//! println!("{}: {:?}", report.architecture, report.notes);
//! # Ok::<(), anyhow::Error>(())
//! ```
#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

pub mod checkpoint;
pub mod llama2c;
mod model_name;
pub mod seq2seq;
mod tensor;
pub mod tokenizer_file;
mod written;

pub use written::write_model;
