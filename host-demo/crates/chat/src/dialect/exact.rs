//! Integers of more than 64 bits in arguments, such as amounts of a currency in its smallest unit. A JSON value holds
//! them only as rounded floats, so they are texts between noncharacters until they are written.

use serde_json::{Number, Value};

/// Noncharacter that is put before and after the digits of a long integer. It does not occur in other texts.
const MARK: char = '\u{fdd3}';
/// Minimum number of digits of an integer that has more than 64 bits.
const MANY: usize = 19;

/// Parses a number.
pub fn number(word: &str) -> Option<Value> {
    match is_large(word) {
        true => Some(Value::String(format!("{MARK}{word}{MARK}"))),
        false => word.parse::<Number>().ok().map(Value::Number),
    }
}

/// Returns true if a text may have an integer of more than 64 bits, because it has enough digits in a row.
pub fn may_have_large(text: &str) -> bool {
    let is_other = |byte: &u8| !byte.is_ascii_digit();
    text.as_bytes().split(is_other).any(|digits| digits.len() >= MANY)
}

/// Returns true for an integer of more than 64 bits.
pub fn is_large(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let is_integer = digits.bytes().all(|digit| digit.is_ascii_digit()) && !digits.starts_with('0');
    is_integer && digits.len() >= MANY && word.parse::<u64>().is_err() && word.parse::<i64>().is_err()
}

/// Returns the digits of an integer that is held as a text.
pub fn digits(text: &str) -> Option<&str> {
    text.strip_prefix(MARK)?.strip_suffix(MARK)
}

/// Removes the marks and the quotes around the large integers of a value that was written as JSON.
pub fn bare(written: &str) -> String {
    match written.contains(MARK) {
        true => written.replace(&format!("\"{MARK}"), "").replace(&format!("{MARK}\""), "").replace(MARK, ""),
        false => written.to_string(),
    }
}
