//! Texts cut into passages of limited length.

use anyhow::Result;
use serde::Serialize;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Passage {
    /// Path of the file, relative to the folder, with `/` between its parts.
    pub file: String,
    /// Number of the first line, from 1.
    pub line: usize,
    /// The text, without white space around it.
    pub text: String,
}

/// Separators at which a text is cut, the best first: between paragraphs, lines, sentences and words.
const ENDS: [&[&str]; 4] = [&["\n\n"], &["\n"], &[". ", "! ", "? ", "。", "！", "？"], &[" "]];

/// Cuts a text into passages of at most `most` tokens, where `tokens` counts the tokens of a text. A passage ends at
/// the best separator that the limit allows.
pub fn cut(text: &str, most: usize, tokens: &mut dyn FnMut(&str) -> Result<usize>) -> Result<Vec<(usize, String)>> {
    let mut parts = Vec::new();
    split(text, 0, most, tokens, &mut parts)?;
    let mut passages: Vec<(usize, &str)> = Vec::new();
    let (mut at, mut count) = (0, usize::MAX);
    for (part, len) in parts {
        count = count.saturating_add(len);
        match passages.last_mut().filter(|_| count <= most) {
            Some((start, passage)) => *passage = &text[*start..at + part.len()],
            None => {
                passages.push((at, part));
                count = len;
            }
        }
        at += part.len();
    }
    let mut line = Lines { text, at: 0, line: 1 };
    let trimmed = passages.into_iter().filter_map(|(at, passage)| {
        let inner = passage.trim();
        let start = at + (passage.len() - passage.trim_start().len());
        (!inner.is_empty()).then(|| (line.of(start), inner.to_string()))
    });
    Ok(trimmed.collect())
}

/// Divides a text into parts of at most `most` tokens. Returns the parts, and the number of tokens of each part. All
/// parts together are the whole text.
fn split<'t>(
    text: &'t str,
    level: usize,
    most: usize,
    tokens: &mut dyn FnMut(&str) -> Result<usize>,
    parts: &mut Vec<(&'t str, usize)>,
) -> Result<()> {
    // Counting the tokens of a long text takes time, and a text of more than 64 bytes per allowed token almost always
    // exceeds the limit. If it does not, `cut` joins its parts again.
    let len = if text.len() > 64 * most { usize::MAX } else { tokens(text)? };
    if len <= most {
        parts.push((text, len));
        return Ok(());
    }
    let Some(ends) = ENDS.get(level) else {
        let half = text.char_indices().map(|(at, _)| at).nth(text.chars().count() / 2).unwrap_or(0);
        if half == 0 {
            parts.push((text, len));
            return Ok(());
        }
        let (first, second) = text.split_at(half);
        split(first, level, most, tokens, parts)?;
        return split(second, level, most, tokens, parts);
    };
    let mut rest = text;
    while !rest.is_empty() {
        let end = ends.iter().filter_map(|end| rest.find(end).map(|at| at + end.len())).min().unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        split(part, level + 1, most, tokens, parts)?;
        rest = after;
    }
    Ok(())
}

/// Computes the line numbers of ascending offsets.
struct Lines<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn of(&mut self, at: usize) -> usize {
        self.line += self.text[self.at..at].matches('\n').count();
        self.at = at;
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, most: usize) -> Vec<(usize, String)> {
        cut(text, most, &mut |text| Ok(text.split_whitespace().count())).unwrap()
    }

    fn passages(list: &[(usize, &str)]) -> Vec<(usize, String)> {
        list.iter().map(|(line, text)| (*line, text.to_string())).collect()
    }

    #[test]
    fn passages_end_at_the_best_place() {
        let text = "# Title\n\nOne two three.\n\nFour five. Six seven eight\nnine ten eleven\n";
        assert_eq!(words(text, 100), passages(&[(1, text.trim())]));
        assert_eq!(
            words(text, 5),
            passages(&[(1, "# Title\n\nOne two three."), (5, "Four five. Six seven eight"), (6, "nine ten eleven")])
        );
        assert_eq!(words("a b c. d e f g", 4), passages(&[(1, "a b c."), (1, "d e f g")]));
        assert_eq!(words(" \n \n", 4), passages(&[]));
    }

    #[test]
    fn words_without_an_end_are_halved() {
        let text = "x".repeat(100) + "é";
        let cut = cut(&text, 30, &mut |text| Ok(text.chars().count())).unwrap();
        assert_eq!(cut.iter().map(|(_, text)| &**text).collect::<String>(), text);
        assert!(cut.len() == 4 && cut.iter().all(|(line, text)| *line == 1 && text.chars().count() <= 30));
    }
}
