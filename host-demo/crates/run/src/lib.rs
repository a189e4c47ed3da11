//! A model that owns its file, memory and threads.
//!
//! | module | |
//! |---|---|
//! | [`model_file`], [`split`] | model files: mapped or copied, in one piece or several |
//! | [`check_tensors`] | hashes of tensors, and weights that are not finite |
//! | [`adapters`] | LoRA adapters |
//! | [`open_model`] | a model with its file, tokenizer, adapters and threads |
//! | [`runtime`], [`workers`] | options for running a model; memory; threads |
//! | [`generation`], [`drafts`], [`stop`] | logits to tokens, text and the end of an answer; drafts; stop strings |
//! | [`eyes`] | pictures: rows that the model reads in place of tokens |
//! | [`reuse`] | tokens of an earlier conversation at other positions |
//! | [`session_file`] | conversations kept in files |
//! | [`ranking`] | scores of documents for a query |
//! | [`decide`] | questions with a probability for each answer |
//! | [`rng`] | random number generators |
#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

pub mod adapters;
#[cfg(target_os = "linux")]
mod available_memory;
pub mod check_tensors;
mod classes;
pub mod decide;
mod draft_file;
pub mod drafts;
pub mod eyes;
pub mod generation;
#[cfg(target_os = "linux")]
mod large_pages;
mod loaded;
pub mod model_file;
pub mod open_model;
pub mod ranking;
pub mod reuse;
pub mod rng;
pub mod runtime;
pub mod scheduler;
pub mod service;
pub mod session_file;
pub mod split;
pub mod stop;
pub mod workers;

pub use anyhow::{Error, Result};
pub use classes::{Class, Labels};
pub use loaded::{Answer, AnswerEnd, Loaded, Message, Request, Role};
pub use model_file::{Load, Projector, Source};
pub use runtime::RunOptions;
pub use serde_json::Value;
