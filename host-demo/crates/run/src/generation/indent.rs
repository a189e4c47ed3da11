//! Ends an answer at the first line with too little indentation, as llama-server does for `n_indent`.

/// Finds the first line, after the line where the answer begins, that has too little indentation.
#[derive(Debug, Default)]
pub struct IndentFilter {
    /// Minimum number of spaces and tabs at the beginning of a line; 0 accepts all lines.
    least: usize,
    /// Number of spaces and tabs at the beginning of the current line so far. `None` after the indentation of a line,
    /// and in the first line.
    indent: Option<usize>,
}

impl IndentFilter {
    pub fn new(least: usize) -> Self {
        Self { least, indent: None }
    }

    /// Adds output. Returns the text that may be shown, and true if a line has too little indentation. The text ends
    /// after the indentation of that line.
    pub fn push<'p>(&mut self, piece: &'p str) -> (&'p str, bool) {
        for (at, byte) in piece.bytes().enumerate() {
            self.indent = match (self.indent, byte) {
                (Some(indent), b' ' | b'\t') => Some(indent + 1),
                (Some(indent), _) if indent < self.least => return (piece.get(..at).unwrap_or_default(), true),
                (_, b'\n') => Some(0),
                _ => None,
            };
        }
        (piece, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts come from `process_token` of llama.cpp's server.
    #[test]
    fn text_ends_before_a_line_that_is_indented_too_little() {
        let cut = |least: usize, text: &str| {
            let (mut filter, mut shown) = (IndentFilter::new(least), String::new());
            // The text is added one character at a time, because it may be split at any character.
            for char in text.chars() {
                let piece = char.to_string();
                let (part, is_end) = filter.push(&piece);
                shown += part;
                if is_end {
                    break;
                }
            }
            assert_eq!(IndentFilter::new(least).push(text).0, shown);
            shown
        };
        assert_eq!(cut(2, "a\n  b\n\t\tc\n d\n"), "a\n  b\n\t\tc\n ");
        assert_eq!(cut(2, "a\n  b\n\n  c"), "a\n  b\n");
        assert_eq!(cut(1, "a\n\u{e9}"), "a\n");
        assert_eq!(cut(0, "a\nb\n\nc"), "a\nb\n\nc");
    }
}
