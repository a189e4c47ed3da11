//! Values as Python writes them, and the filters and tests whose answers differ in minijinja.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Rest, Tuple, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, filters};

/// Python's forms of what minijinja has in its own.
pub fn add_to(environment: &mut Environment<'_>) {
    minijinja_contrib::add_to_environment(environment);
    environment.set_unknown_method_callback(method);
    environment
        .set_formatter(|out, _, value| out.write_str(&string(value)).map_err(|_| Error::from(ErrorKind::WriteFailure)));
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: &Value| string(value));
    environment.add_filter("safe", |value: &Value| Value::from_safe_string(string(value)));
    // Generators in Jinja2: neither a length nor JSON.
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
    environment.add_filter("int", |value: &Value, default: Option<Value>| {
        int(value).map(Value::from).or(default).unwrap_or_else(|| Value::from(0))
    });
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment.add_test("sequence", |value: &Value| {
        is_list(value) || matches!(value.kind(), ValueKind::Map | ValueKind::String | ValueKind::Undefined)
    });
    environment
        .add_test("iterable", |value: &Value| !matches!(value.kind(), ValueKind::None) && value.try_iter().is_ok());
    environment.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    environment.add_test("integer", |value: &Value| value.is_integer());
    environment.add_test("float", |value: &Value| value.kind() == ValueKind::Number && !value.is_integer());
}

/// What a loop is over. Python has nothing to loop over in `None`; of characters minijinja does not know which is
/// the last one.
pub fn each(value: Value) -> Result<Value, Error> {
    if value.is_none() {
        return Err(invalid("'NoneType' object is not iterable"));
    }
    Ok(match value.as_str() {
        Some(text) => text.chars().map(Value::from).collect(),
        None => value,
    })
}

pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// What a filter yields item by item.
#[derive(Debug)]
struct Generator(Vec<Value>);

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Iter(Box::new(self.0.clone().into_iter()))
    }
}

fn lazy(items: Vec<Value>) -> Value {
    Value::from_object(Generator(items))
}

/// Lists, and what minijinja makes of two that are added.
fn is_list(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq => true,
        ValueKind::Iterable => value.downcast_object_ref::<Generator>().is_none(),
        _ => false,
    }
}

/// `a + b + ...` where one of them is [safe](Value::is_safe): the others are escaped, as Python's Markup
/// does it even where nothing else is.
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

/// The shortest decimal, with an exponent where Python has one.
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

/// Methods of strings, lists and dictionaries.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let text = value.as_str();
    match (name, text, args) {
        ("strip" | "lstrip" | "rstrip", Some(text), [] | [_]) => {
            let chars = args.first().filter(|chars| !chars.is_none());
            Ok(Value::from(strip(text, chars.map(string).as_deref(), name != "rstrip", name != "lstrip")))
        }
        ("removeprefix", Some(text), [prefix]) => Ok(text.strip_prefix(&string(prefix)).unwrap_or(text).into()),
        ("removesuffix", Some(text), [suffix]) => Ok(text.strip_suffix(&string(suffix)).unwrap_or(text).into()),
        ("rsplit", Some(text), [by, most]) => {
            let most = usize::try_from(most.clone()).map_err(|_| invalid("rsplit takes a number"))?;
            let mut parts: Vec<_> = text.rsplitn(most.saturating_add(1), &*string(by)).map(Value::from).collect();
            parts.reverse();
            Ok(parts.into())
        }
        ("partition", Some(text), [by]) => {
            let by = string(by);
            let (before, after) = text.split_once(&*by).map_or((text, None), |(before, after)| (before, Some(after)));
            Ok(three(before, after.map_or("", |_| &by), after.unwrap_or("")))
        }
        ("rpartition", Some(text), [by]) => {
            let by = string(by);
            let (before, after) = text.rsplit_once(&*by).map_or((None, text), |(before, after)| (Some(before), after));
            Ok(three(before.unwrap_or(""), before.map_or("", |_| &by), after))
        }
        ("zfill", Some(text), [width]) => {
            let width = usize::try_from(width.clone()).unwrap_or(0).min(1 << 12);
            Ok(format!("{}{text}", "0".repeat(width.saturating_sub(text.chars().count()))).into())
        }
        ("copy", None, []) => Ok(value.clone()),
        ("isspace", Some(text), []) => Ok((!text.is_empty() && text.chars().all(is_space)).into()),
        // A template may not change what it was given, as in transformers.
        (
            "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "update" | "setdefault" | "popitem",
            None,
            _,
        ) => Err(invalid(format!("access to attribute '{name}' of this object is unsafe"))),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// `int(value)`, if it is one.
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

fn three(a: &str, b: &str, c: &str) -> Value {
    Value::from(Tuple::from([a.into(), b.into(), c.into()]))
}

/// What Python's `str.strip` takes as white space.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

fn strip(text: &str, chars: Option<&str>, start: bool, end: bool) -> String {
    let is_cut = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if start { text.trim_start_matches(is_cut) } else { text };
    if end { text.trim_end_matches(is_cut) } else { text }.to_string()
}

fn trim(value: &Value, chars: Option<String>) -> String {
    strip(&string(value), chars.as_deref(), true, true)
}

/// `json.dumps`, with transformers' defaults: `tojson(ensure_ascii=False, indent=None, separators=None,
/// sort_keys=False)`.
fn tojson(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let argument = |place: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.get(place) {
            Some(value) => Some(value.clone()),
            None => named.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let indent = argument(1, "indent")?.map(|indent| match indent.as_str() {
        Some(text) => text.to_string(),
        None => " ".repeat(usize::try_from(indent).unwrap_or(0).min(64)),
    });
    let mut json = Json {
        out: String::new(),
        ascii: is_true(argument(0, "ensure_ascii")?),
        between: if indent.is_some() { "," } else { ", " }.to_string(),
        after_key: ": ".to_string(),
        indent,
        sorted: is_true(argument(3, "sort_keys")?),
    };
    if let Some(separators) = argument(2, "separators")? {
        json.between = string(&separators.get_item_by_index(0)?);
        json.after_key = string(&separators.get_item_by_index(1)?);
    }
    named.assert_all_used()?;
    json.value(value, 0)?;
    Ok(json.out)
}

/// Deeper values are not written: that is recursive.
const DEEPEST: usize = 200;

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
