//! Parses values in Python's syntax, and in Gemma's, which has keys without quotes and a mark around texts.

use serde_json::{Map, Number, Value};

use super::step::{Step, Unread};

/// Maximum nesting of values.
const MOST_NESTED: usize = 64;

/// Maximum length of a name in bytes.
pub const MOST_NAME: usize = 256;

/// Parses values from the start of a text.
pub struct Literals<'t> {
    pub text: &'t str,
    pub at: usize,
    /// The mark around texts, in addition to ordinary quotes.
    quote: &'t str,
}

/// Parses all of `text` as one value.
pub fn whole(text: &str) -> Option<Value> {
    // The line break ends an unquoted word.
    let text = format!("{text}\n");
    let mut literals = Literals::new(&text, "");
    match literals.value(0) {
        Ok(value) if literals.rest().trim().is_empty() && !matches!(value, Value::String(_)) => Some(value),
        _ => None,
    }
}

impl<'t> Literals<'t> {
    pub fn new(text: &'t str, quote: &'t str) -> Self {
        Self { text, at: 0, quote }
    }

    pub fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Skips white space, then consumes `wanted`.
    pub fn eat(&mut self, wanted: &str) -> Step<()> {
        self.skip_space();
        let rest = self.rest();
        if rest.starts_with(wanted) {
            self.at += wanted.len();
            Ok(())
        } else if wanted.starts_with(rest) {
            Err(Unread::More)
        } else {
            Err(Unread::No)
        }
    }

    /// Consumes `close` if it is next. Returns true if so.
    pub fn reached(&mut self, close: &str) -> Step<bool> {
        match self.eat(close) {
            Err(Unread::No) => Ok(false),
            step => step.map(|()| true),
        }
    }

    /// Returns the length of the name that `close` ends. Only the first bytes count, so the result is the same before and
    /// after more text has come.
    pub fn name_end(&self, close: &str) -> Step<usize> {
        match self.rest().find(close) {
            Some(len) if len <= MOST_NAME => Ok(len),
            None if self.rest().len() < MOST_NAME + close.len() => Err(Unread::More),
            _ => Err(Unread::No),
        }
    }

    /// Parses a name: letters, digits and other characters of function names.
    pub fn name(&mut self) -> &'t str {
        self.skip_space();
        let rest = self.rest();
        let len = rest.find(|c: char| !(c.is_alphanumeric() || "_-./$".contains(c))).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    pub fn value(&mut self, depth: usize) -> Step<Value> {
        self.skip_space();
        if depth > MOST_NESTED {
            return Err(Unread::No);
        }
        let rest = self.rest();
        if !self.quote.is_empty() && self.quote.starts_with(rest) || rest.is_empty() {
            return Err(Unread::More);
        }
        if !self.quote.is_empty() && rest.starts_with(self.quote) {
            return self.quoted();
        }
        match rest.as_bytes()[0] {
            b'"' | b'\'' => self.string(),
            b'[' => self.list("]", depth),
            b'(' => self.list(")", depth),
            b'{' => {
                self.at += 1;
                Ok(Value::Object(self.members("}", ":", depth)?))
            }
            _ => self.word(),
        }
    }

    /// Parses a text between two marks.
    fn quoted(&mut self) -> Step<Value> {
        let inner = &self.rest()[self.quote.len()..];
        let Some(len) = inner.find(self.quote) else { return Err(Unread::More) };
        self.at += len + 2 * self.quote.len();
        Ok(Value::String(inner[..len].into()))
    }

    fn string(&mut self) -> Step<Value> {
        let rest = self.rest();
        let quote = rest.chars().next().unwrap_or('"');
        let triple = quote.to_string().repeat(3);
        if rest.starts_with(&triple) {
            let Some(len) = rest[3..].find(&triple) else { return Err(Unread::More) };
            self.at += len + 6;
            return Ok(Value::String(rest[3..3 + len].into()));
        }
        let mut out = String::new();
        let mut chars = rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += at + 1;
                    return Ok(Value::String(out));
                }
                '\\' => {
                    let Some((_, escaped)) = chars.next() else { return Err(Unread::More) };
                    let digits = match escaped {
                        'x' => 2,
                        'u' => 4,
                        'U' => 8,
                        _ => 0,
                    };
                    if digits == 0 {
                        out.extend(escape(escaped, quote));
                        continue;
                    }
                    let hex: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
                    if hex.chars().count() < digits {
                        return Err(Unread::More);
                    }
                    out.push(u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32).unwrap_or('\u{fffd}'));
                }
                c => out.push(c),
            }
        }
        Err(Unread::More)
    }

    fn list(&mut self, close: &str, depth: usize) -> Step<Value> {
        self.at += 1;
        let mut values = Vec::new();
        loop {
            if self.reached(close)? {
                return Ok(Value::Array(values));
            }
            values.push(self.value(depth + 1)?);
            self.separator(close)?;
        }
    }

    /// Parses pairs of a key, `between` and a value, up to `close`.
    pub fn members(&mut self, close: &str, between: &str, depth: usize) -> Step<Map<String, Value>> {
        let mut members = Map::new();
        loop {
            if self.reached(close)? {
                return Ok(members);
            }
            let key = self.key(between)?;
            members.insert(key, self.value(depth + 1)?);
            self.separator(close)?;
        }
    }

    fn key(&mut self, between: &str) -> Step<String> {
        self.skip_space();
        let rest = self.rest();
        let is_quoted = rest.starts_with(['"', '\'']) || !self.quote.is_empty() && rest.starts_with(self.quote);
        let key = if is_quoted {
            match self.value(MOST_NESTED)? {
                Value::String(key) => key,
                _ => return Err(Unread::No),
            }
        } else {
            let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "_-.$ ".contains(c));
            let Some(len) = rest.find(between) else {
                let begins = is_name(rest) || !self.quote.is_empty() && self.quote.starts_with(rest);
                return if begins { Err(Unread::More) } else { Err(Unread::No) };
            };
            self.at += len;
            let key = rest[..len].trim();
            if key.is_empty() || !is_name(key) {
                return Err(Unread::No);
            }
            key.to_string()
        };
        self.eat(between)?;
        Ok(key)
    }

    /// Consumes a comma, unless `close` is next.
    fn separator(&mut self, close: &str) -> Step<()> {
        match self.eat(",") {
            Err(Unread::No) if self.rest().starts_with(close) => Ok(()),
            step => step,
        }
    }

    /// Parses a number, a constant, or an unquoted text.
    fn word(&mut self) -> Step<Value> {
        let rest = self.rest();
        let Some(len) = rest.find([',', '}', ']', ')', ':', '\n']) else { return Err(Unread::More) };
        let word = rest[..len].trim();
        self.at += len;
        Ok(match word {
            "" => return Err(Unread::No),
            "True" | "true" => Value::Bool(true),
            "False" | "false" => Value::Bool(false),
            "None" | "null" => Value::Null,
            word => match word.replace('_', "").parse::<Number>() {
                Ok(number) if word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => Value::Number(number),
                _ => Value::String(word.into()),
            },
        })
    }
}

/// Returns the text of an escape sequence. Unknown sequences keep their backslash.
fn escape(escaped: char, quote: char) -> Vec<char> {
    match escaped {
        'n' => vec!['\n'],
        't' => vec!['\t'],
        'r' => vec!['\r'],
        'b' => vec!['\u{8}'],
        'f' => vec!['\u{c}'],
        '0' => vec!['\0'],
        '\\' | '/' => vec![escaped],
        '\n' => vec![],
        c if c == quote || c == '"' || c == '\'' => vec![c],
        c => vec!['\\', c],
    }
}
