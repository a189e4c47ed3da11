//! Filters and tests of Python's Jinja2 that differ in minijinja.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use super::methods::{self, bind, bind_some};
use super::to_json::tojson;
use super::values::{each, int, is_generator, is_list, lazy, repr, string};
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
    // The next five filters return generators, as in Jinja2. A generator has no length and cannot be converted to JSON.
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
    environment.add_filter("indent", indent);
    environment.add_filter("pprint", |value: &Value| repr(value, 0));
    environment
        .add_filter("list", |value: Value| each(value).and_then(|value| Ok(value.try_iter()?.collect::<Vec<_>>())));
    for name in ["default", "d"] {
        environment.add_filter(name, default);
    }
    environment.add_filter("int", |value: &Value, args: Rest<ValueOrKwargs>| {
        let [default, base] = bind(&args.into_values(), ["default", "base"])?;
        let base = base.map_or(Ok(10), u32::try_from)?;
        let number = value.as_str().filter(|_| base != 10).and_then(|text| based(text, base)).or_else(|| int(value));
        Ok::<_, Error>(number.map(Value::from).or(default).unwrap_or_else(|| Value::from(0)))
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
    environment.add_filter("urlencode", urlencode);
    environment.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.to_vec()));
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

/// Python's `format % value`.
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

/// Python's `int(text, base)`; base 0 follows the prefix.
fn based(text: &str, base: u32) -> Option<i64> {
    let text = text.trim().replace('_', "");
    let digits = text.trim_start_matches(['-', '+']);
    let prefix = digits.get(..2).unwrap_or_default().to_ascii_lowercase();
    let of_prefix = [("0x", 16), ("0o", 8), ("0b", 2)].iter().find(|(name, _)| *name == prefix).map(|(_, base)| *base);
    let (digits, base) = match (of_prefix, base) {
        (Some(given), base) if base == 0 || base == given => (&digits[2..], given),
        (_, 0) => (digits, 10),
        (_, base @ 2..=36) => (digits, base),
        _ => return None,
    };
    let number = i64::from_str_radix(digits, base).ok().filter(|_| !digits.starts_with(['-', '+']))?;
    Some(if text.starts_with('-') { -number } else { number })
}

/// Python's `urllib.parse.quote`, or `key=value&...` of a mapping or of pairs, in which spaces are `+`.
fn urlencode(value: &Value) -> Result<String, Error> {
    let quote = |value: &Value, safe: &str| -> String {
        let byte = |byte: u8| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            byte if safe.as_bytes().contains(&byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        string(value).bytes().map(byte).collect()
    };
    let in_query = |value: &Value| quote(value, "").replace("%20", "+");
    let pair = |key: &Value, value: &Value| format!("{}={}", in_query(key), in_query(value));
    Ok(match value.kind() {
        ValueKind::Map => {
            let pairs = value.try_iter()?.map(|key| Ok(pair(&key, &value.get_item(&key)?)));
            pairs.collect::<Result<Vec<_>, Error>>()?.join("&")
        }
        _ if is_list(value) => {
            let pairs = value.try_iter()?;
            let pairs = pairs.map(|item| Ok(pair(&item.get_item_by_index(0)?, &item.get_item_by_index(1)?)));
            pairs.collect::<Result<Vec<_>, Error>>()?.join("&")
        }
        _ => quote(value, "/"),
    })
}

/// Maximum number of bytes that indentation adds to a text.
const MOST_INDENTATION: usize = 1 << 22;

/// `indent(width=4, first=False, blank=False)`: the width is a number of spaces or a text. A line break at the end stays.
fn indent(value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let [width, first, blank] = bind(&args.into_values(), ["width", "first", "blank"])?;
    let is = |switch: Option<Value>| switch.is_some_and(|switch| switch.is_true());
    let (first, blank) = (is(first), is(blank));
    let space = match width {
        Some(width) if width.as_str().is_some() => string(&width),
        Some(width) => " ".repeat(usize::try_from(i64::try_from(width)?).unwrap_or(0).min(methods::WIDEST)),
        None => " ".repeat(4),
    };
    let text = string(value) + "\n";
    let lines = methods::lines(&text, false);
    // Refuses too much indentation. Otherwise a short template could fill the memory with the indentation of many empty
    // lines.
    if space.len().saturating_mul(lines.len()) > MOST_INDENTATION {
        return Err(Error::new(ErrorKind::InvalidOperation, "the indentation of a text is too long"));
    }
    let mut out = if first { space.clone() } else { String::new() };
    for (at, line) in lines.into_iter().enumerate() {
        if at > 0 {
            out.push('\n');
            out += if blank || !line.is_empty() { &space } else { "" };
        }
        out += line;
    }
    Ok(out)
}

fn trim(value: &Value, chars: Option<String>) -> String {
    methods::strip(&string(value), chars.as_deref(), true, true)
}
