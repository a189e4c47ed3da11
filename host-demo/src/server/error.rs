//! What goes wrong with a request, as OpenAI's error object.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Characters of a message.
const MOST_SAID: usize = 1000;

/// An error and its status.
#[derive(Clone, Debug)]
pub struct ApiError {
    pub status: StatusCode,
    pub message: String,
    /// Which part of the request it is about.
    pub param: Option<&'static str>,
}

impl ApiError {
    /// What the message repeats of the request may be long: it is cut.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MOST_SAID) {
            message.replace_range(end.., "...");
        }
        Self { status, message, param: None }
    }

    /// The request makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A part of the request makes no sense.
    pub fn about(param: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param), ..Self::invalid(message) }
    }

    /// Everything is in use.
    pub fn busy(waiting: usize) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, format!("{waiting} requests are waiting already: try again later"))
    }

    /// As in an answer.
    pub fn body(&self) -> Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.status.as_u16() } })
    }
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
