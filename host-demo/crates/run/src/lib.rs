//! A model that owns its file, memory and threads.
//!
//! | module | |
//! |---|---|
//! | [`model_file`], [`split`] | model files: mapped or copied, in one piece or several |
//! | [`check_tensors`] | hashes of tensors, and weights that are not finite |
//! | [`adapters`] | LoRA adapters |
//! | [`open_model`] | a model with its file, tokenizer, adapters and threads |
//! | [`runtime`], [`workers`] | options for running a model; memory; threads |
//! | [`session_file`] | conversations kept in files |
//! | [`ranking`] | scores of documents for a query |
//! | [`rng`] | random number generators |
#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

pub mod adapters;
pub mod check_tensors;
#[cfg(target_os = "linux")]
mod large_pages;
pub mod model_file;
pub mod open_model;
pub mod ranking;
pub mod rng;
pub mod runtime;
pub mod session_file;
pub mod split;
pub mod workers;
