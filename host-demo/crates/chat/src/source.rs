//! Rewrites Jinja2 syntax that minijinja lacks or treats differently.
//!
//! - `{% generation %}` marks the text used for training. It becomes `{% with %}`, which prints its body.
//! - Adjacent strings are one string: `'a' 'b'`.
//! - A loop over `None` is an error in Python and an empty loop in minijinja: the value of a loop is passed
//!   through [`EACH`].
//! - `'\U0001F600'` is one character.
//! - `'%s' % x` becomes a [filter](PERCENT).
//! - `'a'|safe + b` escapes `b` in Python, even where nothing is escaped on output: such sums call [`ADD`].
//! - [`FLAT`] copies an operand of `+` or `*` that is a list, and counts the copied items as steps.
//! - [`VISIT`] takes fuel for each element of an operand that an operator, a filter or a call visits as a whole.

use std::collections::HashSet;
use std::ops::Range;

use super::visits::visited;
use super::words::{FLAT, VISIT, closing, may_be_list, operand_end, pair_is, string_len, words};

/// The function applied to the value of a loop.
pub const EACH: &str = "py_each";
/// The filter that formats a text.
pub const PERCENT: &str = "py_percent";
/// Name of the function that adds texts of which some are marked as safe.
pub const ADD: &str = "py_add";

/// Maximum number of words of a tag. The number is limited because minijinja parses a chain such as `a ~ b ~ c` or
/// `a.b.c` to as many levels, and compiles and drops these levels recursively, without a limit: a longer chain could
/// exhaust the stack.
const MOST_WORDS: usize = 4096;
/// Maximum number of assignments in a template. They are limited because each can nest a value by one level more.
const MOST_ASSIGNMENTS: usize = 4096;

/// Returns `source` rewritten for minijinja, or an error if an expression is too long or there are too many
/// assignments. Other faults and unknown syntax are left unchanged, so that minijinja reports the error.
pub fn translate(source: &str) -> Result<String, String> {
    let mut assignments = 0;
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len() + source.len() / 8);
    let mut rest = source.as_str();
    while let Some((before, tag, after)) = next_tag(rest) {
        out += before;
        rest = after;
        if !is_code(tag) {
            out += tag;
            continue;
        }
        let filled = filled_in(tag);
        let tag = filled.as_str();
        let words = words(tag);
        if words.len() > MOST_WORDS {
            return Err(format!("an expression has more than {MOST_WORDS} words"));
        }
        let word = |n: usize| words.get(n).map(|range| &tag[range.clone()]);
        assignments += usize::from(word(0) == Some("set"));
        if assignments > MOST_ASSIGNMENTS {
            return Err(format!("it has more than {MOST_ASSIGNMENTS} assignments"));
        }
        match word(0) {
            Some("raw") => {
                let end = raw_end(rest);
                out += tag;
                out += &rest[..end];
                rest = &rest[end..];
            }
            Some("generation") => out += &tag.replacen("generation", "with", 1),
            Some("endgeneration") => out += &tag.replacen("endgeneration", "endwith", 1),
            Some("for") => out += &for_each(tag, &words),
            Some("set") if tag.starts_with("{%") => out += &kept(tag, &words),
            _ if tag.starts_with("{{") && tag.contains("safe") => out += &added(tag, &words),
            _ => out += &joined(tag, &words),
        }
    }
    out += rest;
    Ok(out)
}

/// Splits a template's text at the next tag. Returns the text before the tag, the tag, and the text after it. Comments
/// and single braces are also treated as tags.
fn next_tag(text: &str) -> Option<(&str, &str, &str)> {
    let (before, tag) = text.split_at(text.find('{')?);
    let len = match tag.as_bytes().get(1) {
        Some(b'#') => tag.find("#}").map_or(tag.len(), |end| end + 2),
        Some(b'{') => tag_end(tag, "}}"),
        Some(b'%') => tag_end(tag, "%}"),
        _ => 1,
    };
    let (tag, after) = tag.split_at(len);
    Some((before, tag, after))
}

fn is_code(tag: &str) -> bool {
    tag.len() >= 4 && !tag.starts_with("{#")
}

/// Names and texts in the tags of a template.
#[derive(Default)]
pub struct Named<'s> {
    /// Names that are no attributes and no names of arguments.
    pub variables: HashSet<&'s str>,
    /// Texts without their quotes.
    pub texts: HashSet<&'s str>,
}

impl<'s> Named<'s> {
    pub fn of(source: &'s str) -> Self {
        let (mut named, mut rest) = (Self::default(), source);
        while let Some((_, tag, after)) = next_tag(rest) {
            rest = after;
            if is_code(tag) {
                named.add(tag);
            }
        }
        named
    }

    fn add(&mut self, tag: &'s str) {
        let words = words(tag);
        let word = |at: usize| words.get(at).map_or("", |range| &tag[range.clone()]);
        for at in 0..words.len() {
            let before = at.checked_sub(1).map_or("", word);
            let is_argument = matches!(before, "(" | ",") && word(at + 1) == "=" && !pair_is(tag, &words, at + 1, "==");
            let text = word(at);
            match text.as_bytes()[0] {
                quote @ (b'\'' | b'"') => _ = self.texts.insert(text.trim_matches(char::from(quote))),
                _ if before == "." || is_argument => {}
                _ => _ = self.variables.insert(text),
            }
        }
    }
}

/// Returns the end of the tag at the start of `tag`: the position after the first `end` outside of strings.
fn tag_end(tag: &str, end: &str) -> usize {
    let mut at = 2;
    let mut open = 0usize;
    while let Some(c) = tag.as_bytes().get(at) {
        // Count braces, because the braces of dictionaries are closed before the tag: `{{ {"a": {}} }}`.
        if open == 0 && tag[at..].starts_with(end) {
            return at + end.len();
        }
        match c {
            b'{' => open += 1,
            b'}' => open = open.saturating_sub(1),
            b'\'' | b'"' => at += string_len(&tag[at..]) - 1,
            _ => {}
        }
        at += 1;
        while !tag.is_char_boundary(at) {
            at += 1;
        }
    }
    tag.len()
}

/// Replaces the escapes `\UXXXXXXXX` of a string, which minijinja lacks, by their characters; `None` if the string has
/// no such escapes.
fn unescaped(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let (mut out, mut rest, mut is_changed) = (String::new(), text, false);
    while let Some(at) = rest.find('\\') {
        out += &rest[..at];
        rest = &rest[at..];
        let digits = rest.strip_prefix("\\U").and_then(|digits| digits.get(..8));
        let code = digits.and_then(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?));
        let len = match code {
            Some(c) => {
                out.extend((c == quote || c == '\\').then_some('\\'));
                out.push(c);
                is_changed = true;
                10
            }
            None => {
                let len = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
                out += &rest[..len];
                len
            }
        };
        rest = &rest[len..];
    }
    is_changed.then(|| out + rest)
}

/// Returns the position after `{% endraw %}`, counted from the start of a raw block.
fn raw_end(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%") {
        let tag = &text[from + at..];
        let len = tag.find("%}").map_or(tag.len(), |end| end + 2);
        from += at + len;
        if tag[2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw") {
            return from;
        }
    }
    text.len()
}

/// Rewrites the head of a loop, `{% for x in EXPRESSION if ... %}`, so that the value of `EXPRESSION` passes through
/// the filter [`EACH`].
fn for_each(tag: &str, words: &[Range<usize>]) -> String {
    let mut depth = 0;
    let (mut start, mut end) = (None, words.last().map_or(tag.len(), |last| last.end));
    for word in words {
        match &tag[word.clone()] {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "in" if depth == 0 && start.is_none() => start = Some(word.end),
            "if" | "recursive" if depth == 0 && start.is_some() => {
                end = word.start;
                break;
            }
            _ => {}
        }
    }
    let Some(start) = start.filter(|start| *start < end) else { return tag.to_string() };
    format!(
        "{} {EACH}(({})) {}",
        &tag[..start],
        joined_in(tag, words, start..end),
        joined_in(tag, words, end..tag.len())
    )
}

/// Rewrites `{% set a.b = EXPRESSION %}` so that `EXPRESSION` passes through [`VISIT`], which limits the nesting of its
/// value. Other assignments are left unchanged: only values in namespaces remain after a round of a loop, so only these
/// can grow with each round.
fn kept(tag: &str, words: &[Range<usize>]) -> String {
    let is = |at: usize, text: &str| words.get(at).is_some_and(|word| &tag[word.clone()] == text);
    let (Some(equals), Some(last)) = (words.get(4).filter(|_| is(2, ".") && is(4, "=")), words.last()) else {
        return joined(tag, words);
    };
    let value = joined_in(tag, words, equals.end..last.end);
    format!("{}({value})|{VISIT}{}", &tag[..equals.end], &tag[last.end..])
}

/// Replaces the operator in `'%s' % x` by the filter [`PERCENT`] if the left operand is a string literal. Adds [`FLAT`]
/// to operands of `+` and `*`, and [`VISIT`] to operands that are visited as a whole.
fn filled_in(tag: &str) -> String {
    let words = words(tag);
    let closing = closing(tag, &words);
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        if tag[pair[0].clone()].starts_with(['\'', '"']) && &tag[pair[1].clone()] == "%" {
            let operand = &words[at + 2..operand_end(tag, &words, &closing, at + 2)];
            if let Some(last) = operand.last() {
                edits.push((pair[1].clone(), format!("|{PERCENT}(")));
                edits.push((last.end..last.end, ")".to_string()));
            }
        }
        let sums = matches!(&tag[pair[1].clone()], "+" | "*") && !pair_is(tag, &words, at + 1, "**");
        if sums && may_be_list(&tag[pair[0].clone()]) {
            edits.push((pair[0].end..pair[0].end, format!("|{FLAT}")));
        }
        if sums && &tag[pair[1].clone()] == "*" && !pair_is(tag, &words, at, "**") {
            let end = words.get(operand_end(tag, &words, &closing, at + 2).saturating_sub(1));
            edits.extend(
                end.filter(|end| may_be_list(&tag[(*end).clone()])).map(|end| (end.end..end.end, format!("|{FLAT}"))),
            );
        }
    }
    for word in &words {
        edits.extend(unescaped(&tag[word.clone()]).map(|text| (word.clone(), text)));
    }
    let visited = visited(tag, &words, &closing);
    edits.extend(visited.into_iter().map(|at| (at..at, format!("|{VISIT}"))));
    edits.sort_by_key(|(range, _)| range.start);
    let (mut out, mut at) = (String::new(), 0);
    for (range, text) in edits {
        out += &tag[at..range.start];
        out += &text;
        at = range.end;
    }
    out + &tag[at..]
}

/// Rewrites `{{ a|safe + b }}` as a call, if `+` is the only operator between filtered operands.
fn added(tag: &str, words: &[Range<usize>]) -> String {
    let mut depth = 0;
    let mut parts = Vec::new();
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return tag.to_string() };
    let mut start = first.start;
    for word in words {
        match &tag[word.clone()] {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "+" if depth == 0 => {
                parts.push(start..word.start);
                start = word.end;
            }
            "if" | "else" | "and" | "or" | "not" | "in" | "is" | "~" | "-" | "*" | "/" | "%" | "=" | "<" | ">"
            | "!"
                if depth == 0 =>
            {
                return joined(tag, words);
            }
            _ => {}
        }
    }
    if parts.is_empty() {
        return joined(tag, words);
    }
    parts.push(start..last.end);
    let parts: Vec<_> = parts.into_iter().map(|part| joined_in(tag, words, part)).collect();
    format!("{}{ADD}({}){}", &tag[..first.start], parts.join(", "), &tag[last.end..])
}

/// Joins adjacent strings of `tag`.
fn joined(tag: &str, words: &[Range<usize>]) -> String {
    joined_in(tag, words, 0..tag.len())
}

fn joined_in(tag: &str, words: &[Range<usize>], part: Range<usize>) -> String {
    let is_string = |word: &Range<usize>| tag[word.clone()].starts_with(['\'', '"']);
    let inside: Vec<_> = words.iter().filter(|word| part.contains(&word.start)).cloned().collect();
    let mut out = String::new();
    let mut at = part.start;
    for strings in inside.chunk_by(|a, b| is_string(a) && is_string(b)).filter(|run| run.len() > 1) {
        let (Some(first), Some(last)) = (strings.first(), strings.last()) else { continue };
        let literals: Vec<_> = strings.iter().map(|word| &tag[word.clone()]).collect();
        out += &format!("{}({})", &tag[at..first.start], literals.join(" ~ "));
        at = last.end;
    }
    out + &tag[at..part.end]
}

#[cfg(test)]
mod tests {
    /// Rewrites a template for minijinja and returns the result. The expressions of the template must be short enough.
    fn translate(source: &str) -> String {
        super::translate(source).unwrap()
    }

    #[test]
    fn text_stays_as_it_is() {
        for text in ["", "a { b } c", "{# {% for x in y %} #}", "{% raw %}{% for x in y %}{% endraw %}b", "{{ '}}' }}"]
        {
            assert_eq!(translate(text), text);
        }
        assert_eq!(translate("{{ \"open"), "{{ \"open");
        assert_eq!(translate("{{ a 😀"), "{{ a 😀");
        assert_eq!(translate("a\r\nb"), "a\nb");
    }

    #[test]
    fn loops_are_looked_at() {
        assert_eq!(translate("{%- for a, b in d.items() -%}"), "{%- for a, b in py_each(( d.items()))  -%}");
        assert!(
            translate("{% for x in (y if z else []) if x %}").contains("py_each(( (y if z else []|py_visit) )) if x")
        );
        assert!(translate("{% for x in y recursive %}").contains("py_each(( y )) recursive"));
    }

    #[test]
    fn generation_prints_its_body() {
        assert_eq!(translate("{%- generation -%}a{% endgeneration %}"), "{%- with -%}a{% endwith %}");
    }

    #[test]
    fn texts_are_filled_in() {
        assert_eq!(translate("{{ '%s' % x }}"), "{{ '%s' |py_percent( x) }}");
        assert_eq!(
            translate("{{ '%d%%' % (a, b)|f(1) ~ 'c' }}"),
            "{{ '%d%%' |py_percent( (a|py_visit, b|py_visit)|py_visit|f(1))|py_visit ~ 'c' }}"
        );
        assert_eq!(
            translate("{% if '%s' % a.b['c'] == \"%\" %}"),
            "{% if '%s' |py_percent( a.b['c'])|py_visit == \"%\" %}"
        );
        assert_eq!(translate("{{ 'a' % 'b' % c }}"), "{{ 'a' |py_percent( 'b') |py_percent( c) }}");
        assert_eq!(translate("{{ 'a' % ('b' % c) }}"), "{{ 'a' |py_percent( ('b' |py_percent( c)|py_visit)) }}");
        // Large templates take time in proportion to their size.
        for long in ["'a' % (", "'a' % b.c ~ ", "1~", "a.", "a|f|", "not "] {
            assert!(super::translate(&format!("{{{{ {} }}}}", long.repeat(100_000))).is_err());
            translate(&format!("{{{{ {} }}}}", long.repeat(200)));
        }
        for same in ["{{ 7 % 3 }}", "{{ '%' }}", "{{ '%s' % }}", "{%- if 'a' %}", "{{ 'a' % (b }}"] {
            assert!(translate(same).len() >= same.len());
        }
        assert_eq!(translate("{{ 7 % 3 }}{%- if 'a' %}"), "{{ 7 % 3 }}{%- if 'a' %}");
        assert_eq!(translate("{{ '%s' % a.b + 'c' }}"), "{{ '%s' |py_percent( a.b)|py_flat + 'c' }}");
    }

    #[test]
    fn lists_are_made_before_they_are_added_to() {
        assert_eq!(
            translate("{%+ set x = a + [b] + c(d) + e +%}"),
            "{%+ set x = a|py_flat + [b|py_visit]|py_flat + c(d|py_visit)|py_flat + e +%}"
        );
        for same in ["{{ 1 + x }}", "{{ 'a' + x }}", "{{ +x }}", "{{ a if +b else +c }}"] {
            assert_eq!(translate(same), same);
        }
    }

    #[test]
    fn visited_operands_cost_fuel() {
        for (tag, wanted) in [
            ("{{ a.b == c }}", "{{ a.b|py_visit == c }}"),
            ("{{ a in b.c }}", "{{ a|py_visit in b.c|py_visit }}"),
            ("{{ a not in b }}", "{{ a|py_visit not in b|py_visit }}"),
            ("{{ a|unique|length }}", "{{ a|py_visit|unique|length }}"),
            ("{{ a ~ b }}", "{{ a|py_visit ~ b|py_visit }}"),
            ("{{ f(a, b=c) }}", "{{ f(a|py_visit, b=c|py_visit) }}"),
            ("{% set x = {'a': [b, 1]} %}", "{% set x = {'a': [b|py_visit, 1]|py_visit} %}"),
            ("{% if (a is string) or (b is not eq c) %}", "{% if (a is string) or (b is not eq c) %}"),
            ("{% if (a is divisibleby(3)) %}", "{% if (a is divisibleby(3)) %}"),
            ("{% macro m(a, b=none) %}", "{% macro m(a, b=none) %}"),
            ("{% set a, b = c, d %}", "{% set a, b = c|py_visit, d %}"),
        ] {
            assert_eq!(translate(tag), wanted);
        }
    }

    #[test]
    fn strings_side_by_side_are_one() {
        assert_eq!(translate("{{ 'a' \"b\" }}"), "{{ ('a' ~ \"b\") }}");
        assert_eq!(translate("{{ f('a', 'b') }}"), "{{ f('a', 'b') }}");
    }
}
