//! Parses values in the syntax of Python, and in the syntax of Gemma, whose keys have no quotes and whose texts are
//! enclosed in a delimiter.

use serde_json::{Map, Value};

use super::exact;
use super::step::{Step, Unread};

/// Maximum nesting of values.
pub const MOST_NESTED: usize = 64;

/// Maximum length of a name in bytes.
pub const MOST_NAME: usize = 256;

/// Parses values from the start of a text.
pub struct Literals<'t> {
    pub text: &'t str,
    pub at: usize,
    /// The model's own delimiter around texts. Ordinary quotes are accepted, too.
    quote: &'t str,
}

/// Parses all of `text` as one value.
pub fn whole(text: &str) -> Option<Value> {
    // Add a line break, because an unquoted word has no other end.
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

    /// Returns the length of the function name before `close`. Only searches the first bytes, so that the result stays
    /// the same when more text arrives.
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
            b'"' | b'\'' => self.string(false),
            b'[' => self.list("]", depth),
            b'(' => self.list(")", depth),
            b'{' => {
                self.at += 1;
                Ok(Value::Object(self.members("}", ":", depth)?))
            }
            _ => self.word(),
        }
    }

    /// Parses a text between two delimiters.
    fn quoted(&mut self) -> Step<Value> {
        let inner = &self.rest()[self.quote.len()..];
        let Some(len) = inner.find(self.quote) else { return Err(Unread::More) };
        self.at += len + 2 * self.quote.len();
        Ok(Value::String(inner[..len].into()))
    }

    /// Parses a text in quotes, with the escapes of JSON or of Python. Unknown escapes are kept as written.
    pub fn string(&mut self, is_json: bool) -> Step<Value> {
        let rest = self.rest();
        let quote = rest.chars().next().unwrap_or('"');
        let triple = quote.to_string().repeat(3);
        if rest.starts_with(&triple) {
            let Some(len) = rest[3..].find(&triple) else { return Err(Unread::More) };
            self.at += len + 6;
            return Ok(Value::String(rest[3..3 + len].into()));
        }
        let (mut out, mut at) = (String::new(), 1);
        loop {
            let c = rest[at..].chars().next().ok_or(Unread::More)?;
            if c == quote {
                self.at += at + 1;
                return Ok(Value::String(out));
            }
            if c == '\\' {
                at += escape(&rest[at..], is_json, &mut out)?;
            } else {
                out.push(c);
                at += c.len_utf8();
            }
        }
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

    /// Parses the members of an object up to `close`. In each of them, `between` stands between the key and the value.
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

    pub fn key(&mut self, between: &str) -> Step<String> {
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
            word => match exact::number(&word.replace('_', "")) {
                Some(number) if word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => number,
                _ => Value::String(word.into()),
            },
        })
    }
}

/// Adds the character of the escape sequence at the start of `text`. Unknown sequences are kept as written. Returns the
/// length of the sequence.
fn escape(text: &str, is_json: bool, out: &mut String) -> Step<usize> {
    let escaped = text.chars().nth(1).ok_or(Unread::More)?;
    let digits = match escaped {
        'u' => 4,
        'x' if !is_json => 2,
        'U' if !is_json => 8,
        _ => 0,
    };
    if digits > 0
        && let Some(code) = code(text, digits)?
    {
        let (code, len) = match code {
            0xd800..0xdc00 => pair(code, text)?,
            code => (code, 2 + digits),
        };
        out.push(char::from_u32(code).unwrap_or('\u{fffd}'));
        return Ok(len);
    }
    match escaped {
        'n' => out.push('\n'),
        't' => out.push('\t'),
        'r' => out.push('\r'),
        'b' => out.push('\u{8}'),
        'f' => out.push('\u{c}'),
        '0' if !is_json => out.push('\0'),
        '\n' if !is_json => {}
        '\\' | '/' | '"' | '\'' => out.push(escaped),
        c => out.extend(['\\', c]),
    }
    Ok(1 + escaped.len_utf8())
}

/// Parses the digits of an escape sequence; `None` if they are not hexadecimal.
fn code(text: &str, digits: usize) -> Step<Option<u32>> {
    let given = text[2..].bytes().take(digits).take_while(u8::is_ascii_hexdigit).count();
    match given {
        given if given == digits => Ok(u32::from_str_radix(&text[2..2 + digits], 16).ok()),
        given if text.len() == 2 + given => Err(Unread::More),
        _ => Ok(None),
    }
}

/// Joins a high surrogate with the low surrogate in the next escape sequence, if there is one. Also returns the length
/// of that sequence.
fn pair(high: u32, text: &str) -> Step<(u32, usize)> {
    let next = &text[6..];
    if next.len() < 2 && "\\u".starts_with(next) {
        return Err(Unread::More);
    }
    let low = if next.starts_with("\\u") { code(next, 4)? } else { None };
    Ok(match low {
        Some(low @ 0xdc00..0xe000) => (0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), 12),
        _ => (high, 6),
    })
}
