//! Python's formatting of values, and filters and tests that differ from minijinja's.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use super::methods::{self, bind, bind_some};
use super::visits;

/// Adds Python's versions of filters and tests that minijinja implements differently.
pub fn add_to(environment: &mut Environment<'_>) {
    minijinja_contrib::add_to_environment(environment);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, state, value| {
        visits::pay(state, value)?;
        out.write_str(&string(value)).map_err(|_| Error::from(ErrorKind::WriteFailure))
    });
    visits::add_to(environment);
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: &Value| string(value));
    environment.add_filter("safe", |value: &Value| Value::from_safe_string(string(value)));
    // Generators in Jinja2: they have neither a length nor JSON.
    environment.add_filter("map", |state: &mut State<'_, '_>, value, args| filters::map(state, value, args).map(lazy));
    environment.add_filter("select", |state: &mut State<'_, '_>, value, test: Option<Cow<'_, str>>, args| {
        filters::select(state, value, test, args).map(lazy)
    });
    environment.add_filter("reject", |state: &mut State<'_, '_>, value, test: Option<Cow<'_, str>>, args| {
        filters::reject(state, value, test, args).map(lazy)
    });
    environment.add_filter(
        "selectattr",
        |state: &mut State<'_, '_>, value, attribute: Cow<'_, str>, test: Option<Cow<'_, str>>, args| {
            filters::selectattr(state, value, attribute, test, args).map(lazy)
        },
    );
    environment.add_filter(
        "rejectattr",
        |state: &mut State<'_, '_>, value, attribute: Cow<'_, str>, test: Option<Cow<'_, str>>, args| {
            filters::rejectattr(state, value, attribute, test, args).map(lazy)
        },
    );
    environment.add_filter("trim", trim);
    environment.add_filter("pprint", |value: &Value| repr(value, 0));
    environment
        .add_filter("list", |value: Value| each(value).and_then(|value| Ok(value.try_iter()?.collect::<Vec<_>>())));
    for name in ["default", "d"] {
        environment.add_filter(name, default);
    }
    environment.add_filter("int", |value: &Value, args: Rest<ValueOrKwargs>| {
        let [default] = bind(&args.into_values(), ["default"])?;
        Ok::<_, Error>(int(value).map(Value::from).or(default).unwrap_or_else(|| Value::from(0)))
    });
    environment.add_filter("float", |value: &Value, args: Rest<ValueOrKwargs>| {
        let [default] = bind(&args.into_values(), ["default"])?;
        let number = match value.as_str() {
            Some(text) => text.trim().parse().ok(),
            None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
            None => f64::try_from(value.clone()).ok(),
        };
        Ok::<_, Error>(number.map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0)))
    });
    environment.add_filter("center", |value: &Value, args: Rest<ValueOrKwargs>| {
        let [width] = bind_some(&args.into_values(), ["width"])?;
        let width = width.map_or(Ok(80), usize::try_from)?;
        Ok::<_, Error>(methods::pad(&string(value), "center", width.min(methods::WIDEST), " "))
    });
    environment.add_filter("truncate", |state: &mut State<'_, '_>, value: &Value, args: Rest<ValueOrKwargs>| {
        minijinja_contrib::filters::truncate(state, value, named(args, ["length", "killwords", "end", "leeway"])?)
    });
    environment.add_filter("wordwrap", |value: &Value, args: Rest<ValueOrKwargs>| {
        let names = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
        minijinja_contrib::filters::wordwrap(value, named(args, names)?)
    });
    environment.add_filter("dictsort", |value: &Value, args: Rest<ValueOrKwargs>| {
        filters::dictsort(value, named(args, ["case_sensitive", "by", "reverse"])?)
    });
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment.add_test("sequence", |value: &Value| {
        is_list(value) || matches!(value.kind(), ValueKind::Map | ValueKind::String | ValueKind::Undefined)
    });
    environment
        .add_test("iterable", |value: &Value| is_generator(value) || (!value.is_none() && value.try_iter().is_ok()));
    environment.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    environment.add_test("integer", |value: &Value| value.is_integer());
    environment.add_test("float", |value: &Value| value.kind() == ValueKind::Number && !value.is_integer());
}

/// Returns the items of a loop. Looping over `None` is an error in Python. A text is split into characters, because
/// minijinja does not mark the last one (`loop.last`).
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

/// `format % value`.
pub fn percent(state: &mut State<'_, '_>, format: &Value, value: Value) -> Result<Value, Error> {
    visits::pay(state, &value)?;
    // Numbers are formatted as numbers, all other values as text.
    let argument = |value: Value| match value.kind() {
        ValueKind::Number => value,
        _ => Value::from(string(&value)),
    };
    let mut args = vec![format.clone()];
    match value.kind() {
        ValueKind::Map => {
            let pair = |key: Value| Ok((string(&key), argument(value.get_item(&key)?)));
            let pairs = value.try_iter()?.map(pair).collect::<Result<Vec<_>, Error>>()?;
            args.push(Kwargs::from_iter(pairs).into());
        }
        _ if value.is_tuple() => args.extend(value.try_iter()?.map(argument)),
        _ => args.push(argument(value)),
    }
    state.apply_filter("format", &args)
}

/// Converts positional arguments to named ones.
fn named<const N: usize>(args: Rest<ValueOrKwargs>, names: [&str; N]) -> Result<Kwargs, Error> {
    let bound = bind_some(&args.into_values(), names)?;
    Ok(names.into_iter().zip(bound).filter_map(|(name, value)| Some((name, value?))).collect())
}

fn default(value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let [default, falsy] = bind(&args.into_values(), ["default_value", "boolean"])?;
    let is_missing = value.is_undefined() || falsy.is_some_and(|falsy| falsy.is_true()) && !value.is_true();
    Ok(if is_missing { default.unwrap_or_else(|| "".into()) } else { value.clone() })
}

pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// The items of a filter that can be iterated once.
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

fn lazy(items: Vec<Value>) -> Value {
    Value::from_object(Generator(Mutex::new(items)))
}

pub fn is_generator(value: &Value) -> bool {
    value.downcast_object_ref::<Generator>().is_some()
}

/// Returns true for lists and for minijinja's result of adding two lists.
fn is_list(value: &Value) -> bool {
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

/// `a + b + ...` with at least one [safe](Value::is_safe) operand: the others are escaped, as Python's Markup does even
/// if output is not escaped.
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

/// `str(value)`.
pub fn string(value: &Value) -> String {
    match value.kind() {
        ValueKind::Number | ValueKind::Map => repr(value, 0),
        _ if is_list(value) => repr(value, 0),
        _ => value.to_string(),
    }
}

/// `repr(value)`.
fn repr(value: &Value, depth: usize) -> String {
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
        _ => format!("{value:?}"),
    }
}

fn float(value: &Value) -> Option<f64> {
    (value.kind() == ValueKind::Number && !value.is_integer()).then(|| f64::try_from(value.clone()).ok()).flatten()
}

/// The shortest decimal, with an exponent where Python writes one.
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

/// `int(value)`, if it is an integer.
fn int(value: &Value) -> Option<i64> {
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

fn trim(value: &Value, chars: Option<String>) -> String {
    methods::strip(&string(value), chars.as_deref(), true, true)
}

/// `json.dumps`, with transformers' defaults: `tojson(ensure_ascii=False, indent=None, separators=None,
/// sort_keys=False)`.
fn tojson(value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let [ascii, indent, separators, sorted] =
        bind(&args.into_values(), ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let indent = indent.map(|indent| match indent.as_str() {
        Some(text) => text.to_string(),
        None => " ".repeat(usize::try_from(indent).unwrap_or(0).min(64)),
    });
    let mut json = Json {
        out: String::new(),
        ascii: is_true(ascii),
        between: if indent.is_some() { "," } else { ", " }.to_string(),
        after_key: ": ".to_string(),
        indent,
        sorted: is_true(sorted),
    };
    if let Some(separators) = separators {
        json.between = string(&separators.get_item_by_index(0)?);
        json.after_key = string(&separators.get_item_by_index(1)?);
    }
    json.value(value, 0)?;
    Ok(json.out)
}

/// Maximum depth of written values, because writing is recursive.
const DEEPEST: usize = 200;

/// Bytes of one JSON, which indentation and separators make longer than the value.
const MOST_JSON: usize = 1 << 24;

struct Json {
    out: String,
    ascii: bool,
    between: String,
    after_key: String,
    indent: Option<String>,
    sorted: bool,
}

impl Json {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(invalid("this value is nested too deeply for JSON"));
        }
        match value.kind() {
            ValueKind::None => self.out += "null",
            ValueKind::Bool => self.out += if value.is_true() { "true" } else { "false" },
            ValueKind::Number => match float(value) {
                Some(number) if number.is_nan() => self.out += "NaN",
                Some(f64::INFINITY) => self.out += "Infinity",
                Some(f64::NEG_INFINITY) => self.out += "-Infinity",
                _ => self.out += &string(value),
            },
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            _ if is_list(value) => {
                let items = value.try_iter()?.collect::<Vec<_>>();
                self.items('[', ']', &items, depth, |json, item| json.value(item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut keys = value.try_iter()?.collect::<Vec<_>>();
                if self.sorted {
                    keys.sort();
                }
                self.items('{', '}', &keys, depth, |json, key| {
                    match key.kind() {
                        ValueKind::String => json.string(key.as_str().unwrap_or_default()),
                        ValueKind::None => json.out += "\"null\"",
                        ValueKind::Bool => json.out += if key.is_true() { "\"true\"" } else { "\"false\"" },
                        _ => json.string(&string(key)),
                    }
                    json.out += &json.after_key.clone();
                    json.value(&value.get_item(key)?, depth + 1)
                })?;
            }
            ValueKind::Undefined => return Err(invalid("Object of type Undefined is not JSON serializable")),
            kind => return Err(invalid(format!("Object of type {kind} is not JSON serializable"))),
        }
        if self.out.len() > MOST_JSON {
            return Err(invalid(format!("this value has more than {MOST_JSON} bytes of JSON")));
        }
        Ok(())
    }

    fn items(
        &mut self,
        open: char,
        close: char,
        items: &[Value],
        depth: usize,
        mut write: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (n, item) in items.iter().enumerate() {
            if n > 0 {
                self.out += &self.between.clone();
            }
            self.line(depth + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out += &indent.repeat(depth);
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out += "\\\"",
                '\\' => self.out += "\\\\",
                '\n' => self.out += "\\n",
                '\r' => self.out += "\\r",
                '\t' => self.out += "\\t",
                '\x08' => self.out += "\\b",
                '\x0c' => self.out += "\\f",
                '\0'..' ' => _ = write!(self.out, "\\u{:04x}", u32::from(c)),
                '\x7f'.. if self.ascii && c != '\x7f' => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_pythons() {
        // From CPython's `repr`.
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
