//! Parses the JSON of bodies, including some forms that clients write although the standard does not allow them.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::http::error::ApiError;

/// Parses a body. A byte order mark at its start is skipped, half of a surrogate pair becomes U+FFFD, and whole numbers
/// with a decimal point become integers.
pub fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    as_written(bytes).map(with_integers)
}

/// Parses a body like [`parse`], but does not convert whole numbers with a decimal point to integers.
pub fn as_written(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(&well_formed(bytes)).map_err(|error| not_json(&error))
}

/// Makes the error for a body that is not JSON.
pub fn not_json(error: &serde_json::Error) -> ApiError {
    ApiError::invalid(format!("the body is not JSON: {error}"))
}

/// Converts whole numbers with a decimal point to integers, because some programs write all numbers with a decimal
/// point.
fn with_integers(mut body: Value) -> Value {
    for value in body.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Some(number) =
            value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0 && number.abs() < 1e15)
        {
            *value = (number as i64).into();
        }
    }
    body
}

/// Skips a byte order mark, and replaces each escape of half a surrogate pair, which serde_json would refuse. Such an
/// escape is not an error, because programs that cut texts by UTF-16 units write such escapes, and send them again with
/// every later message.
pub fn well_formed(bytes: &[u8]) -> Cow<'_, [u8]> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut out: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|byte| *byte == b'\\') {
        let start = at + next;
        let Some(unit) = unit(&bytes[start..]) else {
            // Skip the escaped character, because it may be a backslash that would otherwise begin an escape.
            at = (start + 2).min(bytes.len());
            continue;
        };
        at = start + 6;
        match unit {
            0xd800..=0xdbff if unit_is_low(&bytes[at..]) => at += 6,
            0xd800..=0xdfff => out.get_or_insert_with(|| bytes.to_vec())[start + 2..at].copy_from_slice(b"fffd"),
            _ => {}
        }
    }
    out.map_or(Cow::Borrowed(bytes), Cow::Owned)
}

/// Returns the number of the escape `\uXXXX` with which `bytes` begin. It is a UTF-16 unit, i.e. a character or half of
/// a surrogate pair.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

fn unit_is_low(bytes: &[u8]) -> bool {
    unit(bytes).is_some_and(|unit| (0xdc00..0xe000).contains(&unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts come from JavaScript's `JSON.parse(...).toWellFormed()`.
    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        for (json, text) in [
            (r#""a \ud83d""#, "a \u{fffd}"),
            (r#""\ude00 b""#, "\u{fffd} b"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\ud83d\ude00""#, "\u{1f600}"),
            (r#""\uD83D\n\uDE00""#, "\u{fffd}\n\u{fffd}"),
            (r#""\\ud83d""#, "\\ud83d"),
            (r#""\\\ud83d""#, "\\\u{fffd}"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
        ] {
            assert_eq!(parse(json.as_bytes()).unwrap(), text, "{json}");
            assert_eq!(parse(format!("\u{feff}{json}").as_bytes()).unwrap(), text, "{json}");
        }
        for json in [r#""\uZZZZ""#, r#""\ud83""#, r#""\ud83d"#, r#""\u+123""#, "\u{feff}\u{feff}1", r#""\x""#] {
            assert!(parse(json.as_bytes()).is_err(), "{json}");
        }
    }
}
