//! The words of a tag of a template, the operands that they form, and the filters that are added to operands.

use std::ops::Range;

/// The filter for the left operand of `+` and both operands of `*`. The filter is needed because minijinja concatenates
/// lists lazily and counts no steps: a list that is repeatedly added to itself would exhaust the memory.
pub const FLAT: &str = "py_flat";

/// The filter that takes fuel for a value and for everything that the value contains. It is needed because minijinja
/// counts only the direct items of a list. Visiting sixty levels of lists, each of which contains the next level twice,
/// would cost almost nothing and take forever.
pub const VISIT: &str = "py_visit";

/// Length of the string literal at the start of `text`, with its quotes.
pub fn string_len(text: &str) -> usize {
    let quote = text.as_bytes()[0];
    let mut escaped = false;
    for (at, &byte) in text.as_bytes().iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Splits a tag into names, strings and single characters, without its delimiters.
pub fn words(tag: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    // Find a character boundary, because a truncated tag may end with a character of several bytes.
    let last = tag.len().saturating_sub(2);
    let end = (0..=last).rev().find(|&at| tag.is_char_boundary(at)).unwrap_or(0);
    let mut at = 2;
    if matches!(tag.as_bytes().get(2), Some(b'-' | b'+')) {
        at = 3;
    }
    while at < end {
        let Some(c) = tag[at..].chars().next() else { break };
        let len = match c {
            '\'' | '"' => string_len(&tag[at..]),
            _ if c.is_alphanumeric() || c == '_' => {
                tag[at..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(tag.len() - at)
            }
            _ => c.len_utf8(),
        };
        if !c.is_whitespace() {
            words.push(at..(at + len).min(end));
        }
        at += len;
    }
    // The sign in `-%}` or `+%}` is not part of the expression.
    if words.last().is_some_and(|last| last.end == end && matches!(&tag[last.clone()], "-" | "+")) {
        words.pop();
    }
    words
}

/// Returns the index of the closing bracket for each word that is an opening bracket, and the word's own index for all
/// others.
pub fn closing(tag: &str, words: &[Range<usize>]) -> Vec<usize> {
    let mut places: Vec<_> = (0..words.len()).collect();
    let mut open = Vec::new();
    for (at, word) in words.iter().enumerate() {
        match &tag[word.clone()] {
            "(" | "[" | "{" => open.push(at),
            ")" | "]" | "}" => _ = open.pop().map(|start| places[start] = at),
            _ => {}
        }
    }
    places
}

/// Returns true if the operand of a template whose last word is `word` can be a list. Numbers, strings and keywords
/// cannot.
pub fn may_be_list(word: &str) -> bool {
    let operators = ["and", "or", "not", "in", "is", "if", "elif", "else", "set"];
    let is_name = word.starts_with(|c: char| c.is_alphabetic() || c == '_') && !operators.contains(&word);
    is_name || matches!(word, ")" | "]")
}

/// Returns true if the words at `at` and after it are the operator `operator`, written without a space.
pub fn pair_is(tag: &str, words: &[Range<usize>], at: usize, operator: &str) -> bool {
    let (Some(first), Some(second)) = (words.get(at), words.get(at + 1)) else { return false };
    first.end == second.start && &tag[first.start..second.end] == operator
}

/// Returns the end of the operand at the word `start`: a sign, a name, a literal or a bracketed expression, and its
/// suffixes.
pub fn operand_end(tag: &str, words: &[Range<usize>], closing: &[usize], start: usize) -> usize {
    let word = |at: usize| words.get(at).map_or("", |range| &tag[range.clone()]);
    let after = |at: usize| closing.get(at).map_or(words.len(), |end| end + 1);
    let mut end = after(start + usize::from(word(start) == "-"));
    loop {
        end = match word(end) {
            "(" | "[" => after(end),
            "." | "|" if end + 1 < words.len() => end + 2,
            _ => return end,
        };
    }
}
