//! Errors of requests, in the format of the interface that the request used.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::http::record::Record;
use arenite_request::{Refusal, RefusalKind};
use arenite_run::service::AnswerError;
use arenite_text::shown::one_line;

/// The error code for a prompt that does not fit in the context.
const TOO_LONG: &str = "context_length_exceeded";
/// Anthropic's error code for requests that ask the server to keep a conversation, which is not supported.
const NO_THREADS: &str = "thread_unsupported_request";

/// Maximum number of characters of a message or of a field's name.
const MOST_SAID: usize = 1000;

/// The interfaces of the server, each with its own format of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    OpenAi,
    Anthropic,
    Ollama,
    /// llama.cpp's routes with its own errors.
    LlamaCpp,
}

impl Interface {
    /// Returns the interface of a request.
    fn of(request: &Request) -> Self {
        match request.uri().path() {
            path if path.starts_with("/api/") && !path.starts_with("/api/v0/") => Self::Ollama,
            path if path.ends_with("/systemone") || path.starts_with("/slots") => Self::LlamaCpp,
            path if ["/v1/messages", "/messages"].iter().any(|start| path.starts_with(start)) => Self::Anthropic,
            _ if is_of_anthropic(request.headers()) => Self::Anthropic,
            _ => Self::OpenAi,
        }
    }
}

/// True for the requests of Anthropic's clients.
pub fn is_of_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

/// An error with its HTTP status.
#[derive(Clone, Debug)]
pub struct ApiError {
    pub status: StatusCode,
    pub message: String,
    /// The invalid field of the request.
    pub param: Option<String>,
    /// The error code for programs. If it is absent, the status determines the code.
    pub code: Option<&'static str>,
}

/// A result for the client of a request.
pub type Result<T> = std::result::Result<T, ApiError>;

impl ApiError {
    /// Makes an error. Line breaks of the message become spaces and a long message is truncated, because the message
    /// may quote the request.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: short_line(message.into()), param: None, code: None }
    }

    /// Makes the error for an invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Makes the error for an invalid field. The field's name is shortened like a message, because the name may come
    /// from the request.
    pub fn about(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(short_line(param.into())), ..Self::invalid(message) }
    }

    /// Makes the error for a request that is refused because too many requests are waiting.
    pub fn busy() -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too many requests are waiting already: try again later")
    }

    /// Returns the type of the error, with OpenAI's name.
    pub fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            501 => "not_supported_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// Returns the error object of an answer in an interface's format.
    pub fn body_of(&self, interface: Interface) -> Value {
        match interface {
            Interface::OpenAi => self.body(),
            Interface::Ollama => json!({ "error": self.message }),
            Interface::LlamaCpp => {
                let kind = match self.code {
                    Some(TOO_LONG) => "exceed_context_size_error",
                    _ => self.kind(),
                };
                json!({ "error": { "code": self.status.as_u16(), "message": self.message, "type": kind } })
            }
            Interface::Anthropic => {
                let kind = match self.kind() {
                    "server_error" => "api_error",
                    kind => kind,
                };
                let mut error = json!({ "type": kind, "message": self.message });
                if self.code == Some(NO_THREADS) {
                    error["details"] = json!({ "error_code": NO_THREADS, "unsupported": [self.param] });
                }
                json!({ "type": "error", "error": error })
            }
        }
    }

    /// Returns the error object of an answer in OpenAI's format.
    pub fn body(&self) -> Value {
        let by_status = match self.status.as_u16() {
            401 => Some("invalid_api_key"),
            404 => Some("not_found"),
            413 => Some("request_too_large"),
            429 => Some("rate_limit_exceeded"),
            503 => Some("service_unavailable"),
            500.. => Some("server_error"),
            _ => None,
        };
        let (message, param) = (self.message.as_str(), self.param.as_deref());
        let error = ErrorBody { message, kind: self.kind(), param, code: self.code.or(by_status) };
        json!({ "error": error })
    }
}

impl From<AnswerError> for ApiError {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Failed(message) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message),
            AnswerError::Overflow => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "there is no memory for the rest of the answer: stream it, or ask for fewer tokens, answers or alternatives",
            ),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { field, message, kind } = refusal;
        let (status, code) = match kind {
            RefusalKind::Invalid => (StatusCode::BAD_REQUEST, None),
            RefusalKind::Unsupported => (StatusCode::BAD_REQUEST, Some("unsupported_parameter")),
            RefusalKind::TooLong => (StatusCode::BAD_REQUEST, Some(TOO_LONG)),
            RefusalKind::NoThreads => (StatusCode::BAD_REQUEST, Some(NO_THREADS)),
            RefusalKind::NotPossible => (StatusCode::NOT_IMPLEMENTED, None),
            RefusalKind::NoModel => (StatusCode::NOT_FOUND, Some("model_not_found")),
        };
        Self { param: field.map(short_line), code, ..Self::new(status, message) }
    }
}

/// Truncates a text and puts it on one line.
fn short_line(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MOST_SAID) {
        text.replace_range(end.., "...");
    }
    one_line(&text)
}

#[derive(Serialize)]
struct ErrorBody<'e> {
    message: &'e str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'e str>,
    code: Option<&'static str>,
}

impl ApiError {
    /// Returns the response to the request with the identifier `id`.
    fn response(self, interface: Interface, id: &str) -> Response {
        let mut body = self.body_of(interface);
        if interface == Interface::Anthropic {
            body["request_id"] = json!(id);
        }
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Makes a response in OpenAI's format. `in_own_format` replaces it by the format of the interface.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.response(Interface::OpenAi, "")
    }
}

/// Converts every error to the format of the interface that the request used. Anthropic's answers also get their own
/// header with the request's identifier.
pub async fn in_own_format(request: Request, next: Next) -> Response {
    let (interface, record) = (Interface::of(&request), request.extensions().get::<Arc<Record>>().cloned());
    let id = record.as_deref().map(Record::id).unwrap_or_default();
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<ApiError>()
        && interface != Interface::OpenAi
    {
        response = error.response(interface, id);
    }
    if interface == Interface::Anthropic
        && let Ok(id) = HeaderValue::from_str(id)
    {
        response.headers_mut().insert("request-id", id);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_quotes_a_request_is_one_line() {
        let error = ApiError::from(Refusal::no_model("a\r\n\nb", "built-in"));
        assert_eq!(error.message, "there is no model `a b` here; there is `built-in`");
        let error = ApiError::from(Refusal::unsupported("a\rb\u{2028}c"));
        assert_eq!(error.message, "a b c is not supported here: leave it out");
        assert_eq!(error.param.as_deref(), Some("a b c"));
    }
}
