//! The filter `tojson`: Python's `json.dumps`.

use std::fmt::Write;

use minijinja::Error;
use minijinja::value::{Rest, Value, ValueKind, ValueOrKwargs};

use super::methods::bind;
use super::values::{DEEPEST, float, invalid, is_list, string};

/// `json.dumps`, with transformers' defaults: `tojson(ensure_ascii=False, indent=None, separators=None,
/// sort_keys=False)`.
pub fn tojson(value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
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

/// Maximum length in bytes of one JSON text. The fuel for the value does not limit the length, because indentation and
/// separators can make the text much longer.
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
