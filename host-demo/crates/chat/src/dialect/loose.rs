//! Parses JSON with the mistakes that models make in calls: control characters and unknown escapes in texts, a comma
//! after the last element, Python's quotes and constants, missing or surplus closing brackets.

use serde_json::{Map, Value};

use super::exact;
use super::literal::{Literals, MOST_NESTED};
use super::step::{Step, Unread};

/// The text that may follow a value, and the places where missing closing brackets are accepted.
#[derive(Clone, Copy, Debug)]
pub struct After<'m> {
    /// The delimiter after the value; empty if there is none.
    pub mark: &'m str,
    /// True if the end of the answer may replace closing brackets of the value. The arguments of a call must have
    /// theirs even then.
    pub may_be_end: bool,
}

/// Parses a value at the start of a text. Returns the value and the length of its text.
pub fn value(text: &str, after: After<'_>) -> Step<(Value, usize)> {
    // Counts the brackets that may be missing at the end: one for the call and, if the text is a list of calls, one for
    // the list.
    let outer = if text.starts_with('[') { 2 } else { 1 };
    let mut reader = Loose { input: Literals::new(text, ""), after, outer };
    let value = reader.value(0)?;
    Ok((value, reader.input.at))
}

/// Parses JSON without mistakes. Integers of more than 64 bits stay exact.
pub fn strict(text: &str) -> Option<Value> {
    let text = text.trim();
    if exact::is_large(text) {
        return exact::number(text);
    }
    let value = serde_json::from_str(text).ok()?;
    Some(if exact::may_have_large(text) { whole(text).unwrap_or(value) } else { value })
}

/// Parses all of `text` as a list or an object.
pub fn whole(text: &str) -> Option<Value> {
    let text = text.trim();
    let (value, len) = value(text, After { mark: "", may_be_end: false }).ok()?;
    (len == text.len()).then_some(value)
}

/// Skips closing brackets that belong to no opening bracket, if the delimiter `close` or the end of the answer follows
/// them.
pub fn skip_surplus(input: &mut Literals<'_>, close: &str, is_end: bool) -> Step<()> {
    let rest = input.rest().trim_start();
    let after = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '}' || c == ']');
    let is_begun = after.is_empty() || after.len() < close.len() && close.starts_with(after);
    if after.len() == rest.len() {
        Ok(())
    } else if is_begun && !is_end {
        Err(Unread::More)
    } else {
        if after.is_empty() || !close.is_empty() && after.starts_with(close) {
            input.at = input.text.len() - after.len();
        }
        Ok(())
    }
}

struct Loose<'t> {
    input: Literals<'t>,
    after: After<'t>,
    /// Number of brackets around the value that may be missing at the end of the answer.
    outer: usize,
}

impl Loose<'_> {
    fn value(&mut self, depth: usize) -> Step<Value> {
        self.input.skip_space();
        if depth > MOST_NESTED {
            return Err(Unread::No);
        }
        match self.input.rest().chars().next() {
            None => Err(Unread::More),
            Some('"') => self.input.string(true),
            Some('\'') => self.input.string(false),
            Some('[') => self.list(depth),
            Some('{') => self.members(depth),
            Some(_) => self.word(),
        }
    }

    fn list(&mut self, depth: usize) -> Step<Value> {
        self.input.at += 1;
        let mut values = Vec::new();
        while !self.input.reached("]")? {
            values.push(self.value(depth + 1)?);
            if self.is_last("]", depth)? {
                break;
            }
        }
        Ok(Value::Array(values))
    }

    fn members(&mut self, depth: usize) -> Step<Value> {
        self.input.at += 1;
        let mut members = Map::new();
        while !self.input.reached("}")? {
            let key = self.input.key(":")?;
            members.insert(key, self.value(depth + 1)?);
            if self.is_last("}", depth)? {
                break;
            }
        }
        Ok(Value::Object(members))
    }

    /// Consumes a comma or the bracket `close`. Returns true if no element can follow.
    fn is_last(&mut self, close: &str, depth: usize) -> Step<bool> {
        loop {
            self.input.skip_space();
            let (rest, mark) = (self.input.rest(), self.after.mark);
            let is_bracket = rest.starts_with(['}', ']']);
            if rest.starts_with(',') || rest.starts_with(close) {
                self.input.at += 1;
                return Ok(!rest.starts_with(','));
            } else if rest.is_empty() {
                let may_end = self.after.may_be_end && depth < self.outer;
                return if may_end { Ok(true) } else { Err(Unread::More) };
            } else if is_bracket && depth == 0 {
                self.input.at += 1;
            } else if is_bracket || !mark.is_empty() && rest.starts_with(mark) {
                // The bracket closes an outer element.
                return Ok(true);
            } else {
                return Err(if mark.starts_with(rest) { Unread::More } else { Unread::No });
            }
        }
    }

    /// Parses a number or a constant. JSON has no infinite numbers: the largest finite number replaces them, and null
    /// replaces NaN.
    fn word(&mut self) -> Step<Value> {
        let rest = self.input.rest();
        let is_part = |c: char| c.is_alphanumeric() || "+-._".contains(c);
        let len = rest.find(|c| !is_part(c)).ok_or(Unread::More)?;
        self.input.at += len;
        let word = &rest[..len];
        Ok(match word {
            "True" | "true" => Value::Bool(true),
            "False" | "false" => Value::Bool(false),
            "None" | "null" | "NaN" => Value::Null,
            "Infinity" => f64::MAX.into(),
            "-Infinity" => f64::MIN.into(),
            _ => match exact::number(word) {
                Some(number) => number,
                None => {
                    let is_number = word.contains(|c: char| c.is_ascii_digit());
                    let number = word.parse::<f64>().ok().filter(|_| is_number).ok_or(Unread::No)?;
                    number.clamp(f64::MIN, f64::MAX).into()
                }
            },
        })
    }
}
