//! Wraps words at the width of a terminal while a text arrives in pieces. Code blocks are not changed.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Characters that may not begin a line.
const CLOSING: &str =
    "\u{3001}\u{3002}\u{ff0c}\u{ff0e}\u{ff01}\u{ff1f}\u{ff1a}\u{ff1b}\u{ff09}\u{300d}\u{300f}\u{3011}\u{300b}";

/// Wraps a whole text.
pub fn wrapped(text: &str, width: usize) -> String {
    let (mut wrap, mut out) = (Wrap::default(), String::new());
    wrap.push(text, width, &mut out);
    wrap.flush(width, &mut out);
    out
}

/// The state of the wrapping: the position in the text, and the current word, which is not printed yet.
#[derive(Default)]
pub struct Wrap {
    /// The column after the printed text.
    column: usize,
    /// Spaces before the word.
    spaces: usize,
    word: String,
    /// The beginning of the current line's text, after the indentation, to recognize lines that open or close a code
    /// block.
    start: String,
    /// The fence of the open code block; empty outside of one.
    fence: String,
}

impl Wrap {
    /// Adds `text` to `out`, wrapped for a terminal with `width` columns. The last word is held back until the end of
    /// the word is known.
    pub fn push(&mut self, text: &str, width: usize, out: &mut String) {
        for c in text.chars() {
            match c {
                '\n' => {
                    self.flush(width, out);
                    out.push('\n');
                    self.column = 0;
                    self.end_line();
                }
                _ if !self.fence.is_empty() => {
                    self.note(c);
                    out.push(c);
                }
                ' ' => {
                    self.end_word(width, out);
                    self.spaces += 1;
                }
                '\t' => {
                    self.flush(width, out);
                    out.push('\t');
                    self.column = self.column / 8 * 8 + 8;
                }
                _ => {
                    self.note(c);
                    let last = self.word.chars().next_back();
                    if last.is_some_and(|last| is_wide(last) || is_wide(c)) && !CLOSING.contains(c) {
                        self.end_word(width, out);
                    }
                    self.word.push(c);
                }
            }
        }
    }

    /// Adds the text that was held back to `out`.
    pub fn flush(&mut self, width: usize, out: &mut String) {
        self.end_word(width, out);
        out.extend(std::iter::repeat_n(' ', std::mem::take(&mut self.spaces)));
    }

    fn end_word(&mut self, width: usize, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let len = self.word.width();
        let spaces = std::mem::take(&mut self.spaces);
        if self.column > 0 && self.column + spaces + len > width && len <= width {
            out.push('\n');
            self.column = 0;
        } else {
            out.extend(std::iter::repeat_n(' ', spaces));
            self.column += spaces;
        }
        out.push_str(&self.word);
        self.column += len;
        if self.column > width {
            // The terminal breaks a word that is longer than a line.
            self.column = (self.column - 1) % width.max(1) + 1;
        }
        self.word.clear();
    }

    fn note(&mut self, c: char) {
        if self.start.len() < 80 && !(self.start.is_empty() && c.is_whitespace()) {
            self.start.push(c);
        }
    }

    /// Ends a line. If the line is a fence, such as three backticks, a code block begins or ends with it.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.start);
        let Some(mark @ ('`' | '~')) = line.chars().next() else { return };
        let marks = line.len() - line.trim_start_matches(mark).len();
        if self.fence.is_empty() {
            if marks >= 3 && !line[marks..].contains('`') {
                self.fence = line[..marks].into();
            }
        } else if line.starts_with(&self.fence) && line.trim_end().len() == marks {
            self.fence.clear();
        }
    }
}

fn is_wide(c: char) -> bool {
    c.width() == Some(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps a text that arrives in pieces of `size` characters.
    fn in_pieces(text: &str, width: usize, size: usize) -> String {
        let (mut wrap, mut out) = (Wrap::default(), String::new());
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(size) {
            wrap.push(&String::from_iter(piece), width, &mut out);
        }
        wrap.flush(width, &mut out);
        out
    }

    #[test]
    fn words_move_to_the_next_line_and_code_stays() {
        for (text, wanted) in [
            ("the quick brown fox", "the quick\nbrown fox"),
            ("ten chars  and", "ten chars\nand"),
            ("0123456789 1", "0123456789\n1"),
            ("a\nb c\n\n  d ", "a\nb c\n\n  d "),
            ("abc 0123456789abcdef gh", "abc 0123456789abcdef\ngh"),
            (
                "```sh\nthe quick brown fox jumps\n```\nthe quick brown",
                "```sh\nthe quick brown fox jumps\n```\nthe quick\nbrown",
            ),
            ("~~~\nthe quick brown\n```\nthe quick brown\n~~~", "~~~\nthe quick brown\n```\nthe quick brown\n~~~"),
            // Chinese has no spaces; its characters take two columns.
            ("\u{4f60}\u{597d}\u{4e16}\u{754c}\u{4f60}\u{597d}", "\u{4f60}\u{597d}\u{4e16}\u{754c}\u{4f60}\n\u{597d}"),
            ("\u{4f60}\u{597d}\u{4e16}\u{754c}\u{4f60}\u{3002}", "\u{4f60}\u{597d}\u{4e16}\u{754c}\n\u{4f60}\u{3002}"),
            ("cafe\u{301} cafe\u{301} x", "cafe\u{301} cafe\u{301}\nx"),
        ] {
            for size in [1, 2, 3, 100] {
                assert_eq!(in_pieces(text, 10, size), wanted, "{text} in pieces of {size}");
            }
        }
    }

    #[test]
    fn nothing_is_lost() {
        let text = "Once upon  a time,\tthere ```was``` a fox.\n\n- one\n- two\n```\n code \n```";
        let bare = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        for width in 1..40 {
            assert_eq!(bare(&in_pieces(text, width, 3)), bare(text));
        }
    }
}
