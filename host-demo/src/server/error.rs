//! Errors of requests, in OpenAI's format.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

/// Maximum length of a message in characters.
const MOST_SAID: usize = 1000;

/// An error with its HTTP status.
#[derive(Clone, Debug)]
pub struct ApiError {
    pub status: StatusCode,
    pub message: String,
    /// The invalid field of the request.
    pub param: Option<String>,
    /// The error code for programs; if absent, the status determines it.
    pub code: Option<&'static str>,
}

impl ApiError {
    /// Makes an error. Long messages are truncated, because they may quote the request.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MOST_SAID) {
            message.replace_range(end.., "...");
        }
        Self { status, message, param: None, code: None }
    }

    /// The request is invalid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field of the request is invalid.
    pub fn about(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::invalid(message) }
    }

    /// A field is not supported with this value and would change the answer.
    pub fn unsupported(param: &str) -> Self {
        Self {
            code: Some("unsupported_parameter"),
            ..Self::about(param, format!("{param} is not supported here: leave it out"))
        }
    }

    /// There is no model of this name.
    pub fn no_model(name: &str, known: &str) -> Self {
        let message = format!("there is no model `{name}` here; there is `{known}`");
        Self { param: Some("model".into()), code: Some("model_not_found"), ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// A prompt does not fit in the context.
    pub fn too_long(param: &'static str, len: usize, context: usize) -> Self {
        // Clients recognise this error by its first words.
        let message = format!(
            "This model's maximum context length is {context} tokens. However, the prompt has {len} tokens, and the \
             context has room for {} with an answer: shorten it",
            context.saturating_sub(1)
        );
        Self { code: Some("context_length_exceeded"), ..Self::about(param, message) }
    }

    /// Too many requests are waiting.
    pub fn busy(waiting: usize) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, format!("{waiting} requests are waiting already: try again later"))
    }

    /// Returns the type of the error, with OpenAI's name.
    pub fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// Returns the error object of an answer.
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

#[derive(Serialize)]
struct ErrorBody<'e> {
    message: &'e str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'e str>,
    code: Option<&'static str>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
