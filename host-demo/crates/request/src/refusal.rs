//! Reasons why a request is refused.

use std::fmt::Display;

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The invalid field of the request.
    pub field: Option<String>,
    /// One line that says what is wrong and what to do.
    pub message: String,
    /// The kind of the reason.
    pub kind: RefusalKind,
}

/// The kind of a refusal's reason. It determines the HTTP status and the error code of the answer, which client
/// programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request is invalid.
    Invalid,
    /// A field would change the answer but is not supported.
    Unsupported,
    /// The prompt does not fit in the context.
    TooLong,
    /// There is no such model.
    NoModel,
    /// The server is to keep a conversation.
    NoThreads,
    /// This model, or this server, cannot do what is asked.
    NotPossible,
}

impl Refusal {
    /// Makes a refusal of an invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { field: None, message: message.into(), kind: RefusalKind::Invalid }
    }

    /// Makes a refusal of an invalid field.
    pub fn about(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::invalid(message) }
    }

    /// Makes the refusal for a field that would change the answer but is not supported.
    pub fn unsupported(field: &str) -> Self {
        let message = format!("{field} is not supported here: leave it out");
        Self { kind: RefusalKind::Unsupported, ..Self::about(field, message) }
    }

    /// Makes the refusal for a request that this model cannot answer, or that this server cannot answer with this
    /// model.
    pub fn not_possible(message: impl Into<String>) -> Self {
        Self { kind: RefusalKind::NotPossible, ..Self::invalid(message) }
    }

    /// Makes a refusal of an unknown model.
    pub fn no_model(name: &str, known: &str) -> Self {
        let message = format!("there is no model `{name}` here; there is `{known}`");
        Self { kind: RefusalKind::NoModel, ..Self::about("model", message) }
    }

    /// Returns the refusal of a prompt that is too long for the context.
    pub fn too_long(field: &str, len: impl Display, context: usize) -> Self {
        // The first words must not be changed, because clients recognize this error by these words.
        let message = format!(
            "This model's maximum context length is {context} tokens. However, the prompt has {len} tokens, and the \
             context has room for {} with an answer: shorten it",
            context.saturating_sub(1)
        );
        Self { kind: RefusalKind::TooLong, ..Self::about(field, message) }
    }
}
