//! The result of a parser that may need more text.

/// The reason why nothing was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The text is incomplete.
    More,
    /// The text does not match.
    No,
}

/// The parsed value, or the reason why there is none.
pub type Step<T> = Result<T, Unread>;
