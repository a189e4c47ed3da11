//! Values with Python's behavior: their text, lists, and generators.

use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Maximum nesting of values that are converted to text. The limit bounds the depth of the recursion.
pub const DEEPEST: usize = 200;

/// An error with this message.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Returns the items of a loop. A loop over `None` is an error, as in Python. A text is split into characters, because
/// minijinja does not set `loop.last` for the last character of a text.
pub fn each(value: Value) -> Result<Value, Error> {
    if value.is_none() {
        return Err(invalid("'NoneType' object is not iterable"));
    }
    Ok(match value.as_str() {
        Some(text) => text.chars().map(Value::from).collect(),
        None if is_generator(&value) => value.try_iter()?.collect(),
        None => value,
    })
}

/// The items that a filter returns. As in Jinja, they can be iterated only once.
#[derive(Debug)]
struct Generator(Mutex<Vec<Value>>);

impl Generator {
    fn items(&self) -> std::sync::MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Iter(Box::new(std::mem::take(&mut *self.items()).into_iter()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items().len())
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// Makes a generator of `items`.
pub fn lazy(items: Vec<Value>) -> Value {
    Value::from_object(Generator(Mutex::new(items)))
}

/// Returns true if the value is the result of a filter that, as in Python, can be iterated only once.
pub fn is_generator(value: &Value) -> bool {
    value.downcast_object_ref::<Generator>().is_some()
}

/// Returns the items of a generator without consuming them.
pub fn generated(value: &Value) -> Option<Vec<Value>> {
    value.downcast_object_ref::<Generator>().map(|generator| generator.items().clone())
}

/// Returns true if a value is a list. The result of adding two lists is a value of another kind in minijinja, but it
/// also counts.
pub fn is_list(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq => true,
        ValueKind::Iterable => !is_generator(value),
        _ => false,
    }
}

/// Returns a list's items as a new list, and any other value unchanged. Generators are not consumed.
pub fn flat(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let Some(len) = value.len().filter(|_| is_list(value) && !value.is_tuple()) else { return Ok(value.clone()) };
    state.consume_fuel(len as u64)?;
    Ok(Value::from(value.try_iter()?.collect::<Vec<_>>()))
}

/// Computes `a + b + ...` as Python's `Markup` does: text added to a [safe](Value::is_safe) operand is escaped, even if
/// the template's output is not.
pub fn add_markup(parts: Rest<Value>) -> Result<Value, Error> {
    let mut parts = parts.iter().cloned();
    let mut sum = parts.next().unwrap_or_default();
    for part in parts {
        let (Some(left), Some(right)) = (sum.as_str(), part.as_str()) else {
            return Err(invalid(format!("cannot add {} and {}", sum.kind(), part.kind())));
        };
        sum = match (sum.is_safe(), part.is_safe()) {
            (false, false) => Value::from(format!("{left}{right}")),
            (true, true) => Value::from_safe_string(format!("{left}{right}")),
            (true, false) => Value::from_safe_string(format!("{left}{}", escape(right))),
            (false, true) => Value::from_safe_string(format!("{}{right}", escape(left))),
        };
    }
    Ok(sum)
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('\'', "&#39;").replace('"', "&#34;")
}

/// Python's `str(value)`.
pub fn string(value: &Value) -> String {
    match value.kind() {
        ValueKind::Number | ValueKind::Map => repr(value, 0),
        _ if is_list(value) => repr(value, 0),
        _ => value.to_string(),
    }
}

/// Python's `repr(value)`.
pub fn repr(value: &Value, depth: usize) -> String {
    let inner = |value: &Value| repr(value, depth + 1);
    let items = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::Number => float(value).map_or_else(|| value.to_string(), float_text),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map if depth > DEEPEST => "...".to_string(),
        _ if is_list(value) => {
            let list = items().map(|item| inner(&item)).collect::<Vec<_>>().join(", ");
            match (value.is_tuple(), value.len()) {
                (true, Some(1)) => format!("({list},)"),
                (true, _) => format!("({list})"),
                (false, _) => format!("[{list}]"),
            }
        }
        ValueKind::Map => {
            let pair = |key: Value| format!("{}: {}", inner(&key), inner(&value.get_item(&key).unwrap_or_default()));
            format!("{{{}}}", items().map(pair).collect::<Vec<_>>().join(", "))
        }
        ValueKind::Undefined => "Undefined".to_string(),
        _ => format!("{value:?}"),
    }
}

/// Returns the number if the value is a float; `None` for integers and other values.
pub fn float(value: &Value) -> Option<f64> {
    (value.kind() == ValueKind::Number && !value.is_integer()).then(|| f64::try_from(value.clone()).ok()).flatten()
}

/// Returns the shortest decimal that stands for this number, with an exponent where Python writes one.
fn float_text(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "nan".into()
        } else if number < 0.0 {
            "-inf".into()
        } else {
            "inf".into()
        };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse().unwrap_or(0) {
        -4..16 => format!("{number:?}"),
        exponent => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, i32::abs(exponent)),
    }
}

/// Converts a value to an integer as Jinja2's filter `int` does; `None` if this is impossible.
pub fn int(value: &Value) -> Option<i64> {
    match value.kind() {
        ValueKind::Number => i64::try_from(value.clone()).ok().or_else(|| Some(float(value)?.trunc() as i64)),
        ValueKind::Bool => Some(i64::from(value.is_true())),
        ValueKind::String => {
            let text = value.as_str()?.trim();
            text.parse().ok().or_else(|| Some(text.parse::<f64>().ok()?.trunc() as i64))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_pythons() {
        // The expected texts come from CPython's `repr`.
        for (number, text) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e22, "1.5e+22"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(float_text(number), text);
        }
    }
}
