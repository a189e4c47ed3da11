//! Converts checkpoints and vocabularies to GGUF.
//!
//! - [`checkpoint`]: folders of Hugging Face, files of torch, whisper.cpp, nanoGPT and OpenAI, and LoRA adapters.
//! - [`seq2seq`]: encoder-decoder models of Marian and torch.
//! - [`llama2c`]: checkpoints of llama2.c.
//! - [`tokenizer_file`]: `tokenizer.json`, `tokenizer.model` and other files with a vocabulary.
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
