//! The HTTP server: routes of OpenAI, Anthropic, Ollama and llama.cpp over [`arenite_run`]'s scheduler.
//!
//! ```text
//! app      the state of all routes, open requests       faces    tables of fields of each interface
//! routes   paths of the server, a file per interface    http     sockets, limits, bodies, errors, the log
//! models   several models, each in a process            sounds   transcriptions, and the turns of clients
//! items    items of earlier responses, by their ids
//! ```
//!
//! A program plans a model with [`Host`](arenite_run::service::Host), makes an [`App`] and gives its [`router`] to
//! [`serve`], as `arenite serve` does. Formats of requests can be read without a server:
//!
//! ```
//! use arenite_run::service::Endpoint;
//! use arenite_serve::read_json;
//! use serde_json::json;
//!
//! let mut body = json!({ "messages": [{ "role": "user", "content": "Hello" }], "temperature": 0.2 });
//! let asked = read_json(Endpoint::Chat, &body).unwrap();
//! assert_eq!(asked.request.sampling.temperature, Some(0.2));
//! body["top_a"] = json!(0.2); // would change the answer, and is not supported
//! assert_eq!(read_json(Endpoint::Chat, &body).err().unwrap().field.as_deref(), Some("top_a"));
//! ```

#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

mod app;
pub mod faces;
mod http;
mod identity;
mod items;
mod models;
mod routes;
mod sounds;

pub use axum::http::HeaderValue;

pub use app::{App, CacheScope, Ready, prepare};
pub use faces::decisions::decisions;
pub use faces::read_json;
pub use faces::responses::response as read_response;
pub use http::error::ApiError;
pub use http::gate::Gate;
pub use http::memory::{Inbox, Meter, ProgramMemory, RequestMemory, mailbox};
pub use http::readers::{READERS, Readers};
pub use http::record::{Log, LogFormat, Record};
pub use http::{Limits, serve};
pub use identity::ClientKey;
pub use models::proxy::Proxy;
pub use models::{ModelEntry, Models};
pub use routes::answer::{ResponseMeta, answer};
pub use routes::lora::of_body as scales;
pub use routes::responses::whole_response;
pub use routes::vectors::{VectorFormat, embedding_inputs, embeddings};
pub use routes::{Common, router, router_of_models};
pub use sounds::{SOUNDS, Transcription, run as transcribe};
