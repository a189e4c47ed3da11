//! The HTTP server: routes of OpenAI, Anthropic, Ollama and llama.cpp over [`arenite_run`]'s scheduler.
//!
//! ```text
//! http        sockets, limits, shutdown     connections  open connections
//! routes      the paths of the server       app          state of all routes, open requests
//! body        JSON of clients               faces        tables of fields of each interface
//! vectors     embeddings and rankings       answer       answers in OpenAI's format
//! stream      streamed answers              responses    the Responses API
//! anthropic   chats in Anthropic's format   ollama       Ollama's interface
//! llama       llama.cpp's routes            page         the page at `/`
//! audio       speech to text                lora         scales of adapters
//! logprobs    log-probabilities             error        errors
//! decisions   llama.cpp's `/v1/systemone`
//! gate        foreign web pages
//! memory      bodies and answers            record       request ids, the log, histograms
//! models      several models, each in a process
//! proxy       the routes for several models
//! readers     threads that read requests
//! ```

#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

mod answer;
mod anthropic;
mod app;
mod audio;
mod body;
mod connections;
mod decisions;
mod error;
pub mod faces;
mod gate;
mod http;
mod llama;
mod logprobs;
mod lora;
mod memory;
mod models;
mod ollama;
mod page;
mod proxy;
mod readers;
mod record;
mod responses;
mod routes;
mod stream;
mod vectors;

pub use axum::http::HeaderValue;

pub use answer::{ResponseMeta, answer};
pub use app::{App, CacheScope, Ready, prepare};
pub use audio::{SOUNDS, Sounds, Transcription, run as transcribe};
pub use error::ApiError;
pub use faces::read_json;
pub use gate::Gate;
pub use http::{Limits, serve};
pub use lora::of_body as scales;
pub use memory::{Inbox, Meter, ProgramMemory, RequestMemory, mailbox};
pub use models::{ModelEntry, Models};
pub use proxy::Proxy;
pub use readers::{READERS, Readers};
pub use record::{Log, LogFormat, Record};
pub use routes::{Common, router, router_of_models};
pub use vectors::{embedding_inputs, embeddings};
