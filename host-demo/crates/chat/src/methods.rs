//! Methods of Python's strings and lists, as templates call them.

use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, State};

use super::values::{invalid, string};
use super::visits;

/// Maximum width of padded text.
pub const WIDEST: usize = 1 << 16;

/// Calls the method `name` of `value`. Methods that this file does not implement are left to minijinja.
pub fn call(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    // These methods cost none of the template's fuel, because each of them reads one item or returns a view.
    if !matches!(name, "get" | "items" | "keys" | "values" | "copy") {
        visits::pay(state, value)?;
    }
    let here = match value.as_str() {
        Some(text) => of_text(text, name, args)?,
        None => of_others(value, name, args)?,
    };
    here.map_or_else(|| minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args), Ok)
}

/// Returns the arguments in the order of `names`, given by position or by name.
pub fn bind<const N: usize>(args: &[Value], names: [&str; N]) -> Result<[Option<Value>; N], Error> {
    let (places, named): (&[Value], Kwargs) = from_args(args)?;
    if places.len() > N {
        return Err(invalid(format!(
            "a method or filter was called with {} arguments, but takes at most {N} ({}): correct the chat template",
            places.len(),
            names.join(", ")
        )));
    }
    let mut bound = [const { None }; N];
    for (n, (argument, name)) in bound.iter_mut().zip(names).enumerate() {
        *argument = if named.has(name) { Some(named.get(name)?) } else { places.get(n).cloned() };
    }
    named.assert_all_used()?;
    Ok(bound)
}

/// Like [`bind`], but Python's `None` and undefined values count as missing arguments.
pub fn bind_some<const N: usize>(args: &[Value], names: [&str; N]) -> Result<[Option<Value>; N], Error> {
    Ok(bind(args, names)?.map(|value| value.filter(|value| !value.is_none() && !value.is_undefined())))
}

fn of_text(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let one = |name: &str| Ok::<_, Error>(string(&required(bind_some(args, [name])?)?));
    Ok(Some(match name {
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = bind_some(args, ["chars"])?;
            strip(text, chars.as_ref().map(string).as_deref(), name != "rstrip", name != "lstrip").into()
        }
        "removeprefix" => text.strip_prefix(&one("prefix")?).unwrap_or(text).into(),
        "removesuffix" => text.strip_suffix(&one("suffix")?).unwrap_or(text).into(),
        "split" | "rsplit" => {
            let [by, most] = bind_some(args, ["sep", "maxsplit"])?;
            let by = by.as_ref().map(string);
            if by.as_ref().is_some_and(String::is_empty) {
                return Err(invalid("empty separator"));
            }
            let most = count(most)?;
            let parts = if name == "split" { split } else { rsplit };
            list(parts(text, by.as_deref(), most))
        }
        "splitlines" => {
            let [keep] = bind_some(args, ["keepends"])?;
            list(lines(text, keep.is_some_and(|keep| keep.is_true())))
        }
        "replace" => {
            let [old, new, most] = bind_some(args, ["old", "new", "count"])?;
            let (old, new) = (string(&required([old])?), string(&required([new])?));
            text.replacen(&old, &new, count(most)?).into()
        }
        "partition" => {
            let by = one("sep")?;
            let (before, after) = text.split_once(&by).map_or((text, None), |(before, after)| (before, Some(after)));
            three(before, after.map_or("", |_| &by), after.unwrap_or(""))
        }
        "rpartition" => {
            let by = one("sep")?;
            let (before, after) = text.rsplit_once(&by).map_or((None, text), |(before, after)| (Some(before), after));
            three(before.unwrap_or(""), before.map_or("", |_| &by), after)
        }
        "find" | "rfind" | "index" | "rindex" | "count" | "startswith" | "endswith" => search(text, name, args)?,
        "center" | "ljust" | "rjust" => {
            let [width, fill] = bind_some(args, ["width", "fillchar"])?;
            pad(text, name, width_of(width)?, &fill.as_ref().map_or(" ".into(), string)).into()
        }
        "zfill" => {
            let [width] = bind_some(args, ["width"])?;
            let digits = text.trim_start_matches(['+', '-']);
            let sign = &text[..(text.len() - digits.len()).min(1)];
            let digits = &text[sign.len()..];
            format!("{sign}{}", pad(digits, "rjust", width_of(width)?.saturating_sub(sign.len()), "0")).into()
        }
        "expandtabs" => {
            let [size] = bind_some(args, ["tabsize"])?;
            expand_tabs(text, size.map_or(Ok(8), |size| width_of(Some(size)))?).into()
        }
        // Refuse wide fields here, because minijinja's implementation accepts any width and a short template could fill
        // the memory.
        "format" if has_wide_field(text) => return Err(invalid(format!("a field is wider than {WIDEST}"))),
        "title" => title(text).into(),
        "swapcase" => {
            let swap =
                |c: char| if c.is_lowercase() { c.to_uppercase().to_string() } else { c.to_lowercase().to_string() };
            text.chars().map(swap).collect::<String>().into()
        }
        "casefold" => text.to_lowercase().replace('ß', "ss").into(),
        "isspace" => is_all(text, is_space),
        "isdecimal" => is_all(text, |c| c.is_numeric() && (c.is_ascii_digit() || !c.is_ascii())),
        "isprintable" => (!text.contains(char::is_control)).into(),
        "isidentifier" => {
            let is_inner = |c: char| c.is_alphanumeric() || c == '_';
            (text.chars().all(is_inner) && !text.starts_with(|c: char| c.is_numeric()) && !text.is_empty()).into()
        }
        "istitle" => (text == title(text) && text.contains(char::is_alphabetic)).into(),
        _ => return Ok(None),
    }))
}

fn of_others(value: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match (name, args) {
        ("copy", []) => Ok(Some(value.clone())),
        ("index", [wanted, ..]) if value.kind() == ValueKind::Seq => {
            let at = value.try_iter()?.position(|item| item == *wanted);
            at.map(|at| Some(at.into())).ok_or_else(|| invalid(format!("{wanted:?} is not in list")))
        }
        // Methods that change their value are refused because a template must not change its inputs. transformers
        // refuses them with the same message.
        ("append" | "extend" | "insert" | "pop" | "remove" | "clear" | "update" | "setdefault" | "popitem", _) => {
            Err(invalid(format!("access to attribute '{name}' of this object is unsafe")))
        }
        _ => Ok(None),
    }
}

fn required([value]: [Option<Value>; 1]) -> Result<Value, Error> {
    value.ok_or_else(|| invalid("an argument is missing"))
}

/// Converts the argument that limits the number of splits or replacements. If it is negative or missing, there is no
/// limit.
fn count(most: Option<Value>) -> Result<usize, Error> {
    let most = most.map_or(Ok(-1), i64::try_from)?;
    Ok(usize::try_from(most).unwrap_or(usize::MAX))
}

fn width_of(width: Option<Value>) -> Result<usize, Error> {
    let width = i64::try_from(required([width])?)?;
    Ok(usize::try_from(width).unwrap_or(0).min(WIDEST))
}

/// Returns true if a format field has a width or precision of more than five digits.
fn has_wide_field(format: &str) -> bool {
    format.split('{').skip(1).any(|field| {
        let field = field.split('}').next().unwrap_or_default();
        field.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 5)
    })
}

fn is_all(text: &str, is: impl Fn(char) -> bool) -> Value {
    (!text.is_empty() && text.chars().all(is)).into()
}

/// Returns true for the white space that Python's `str.strip` removes.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub fn strip(text: &str, chars: Option<&str>, start: bool, end: bool) -> String {
    let is_cut = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if start { text.trim_start_matches(is_cut) } else { text };
    if end { text.trim_end_matches(is_cut) } else { text }.to_string()
}

/// Splits the text at `by`, at most `most` times. Without `by`, splits at runs of white space, which are removed.
fn split<'t>(text: &'t str, by: Option<&str>, most: usize) -> Vec<&'t str> {
    let Some(by) = by else {
        let (mut parts, mut rest) = (Vec::new(), text.trim_start_matches(is_space));
        while !rest.is_empty() {
            let end = rest.find(is_space).filter(|_| parts.len() < most).unwrap_or(rest.len());
            parts.push(&rest[..end]);
            rest = rest[end..].trim_start_matches(is_space);
        }
        return parts;
    };
    text.splitn(most.saturating_add(1), by).collect()
}

/// Like [`split`], from the end.
fn rsplit<'t>(text: &'t str, by: Option<&str>, most: usize) -> Vec<&'t str> {
    let mut parts = match by {
        Some(by) => text.rsplitn(most.saturating_add(1), by).collect(),
        None => {
            let (mut parts, mut rest) = (Vec::new(), text.trim_end_matches(is_space));
            while !rest.is_empty() {
                let space = rest.char_indices().rfind(|(_, c)| is_space(*c)).filter(|_| parts.len() < most);
                let start = space.map_or(0, |(at, c)| at + c.len_utf8());
                parts.push(&rest[start..]);
                rest = rest[..start].trim_end_matches(is_space);
            }
            parts
        }
    };
    parts.reverse();
    parts
}

/// Python's `str.splitlines`.
pub fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_end =
        |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let (mut lines, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let end = rest.find(is_end).unwrap_or(rest.len());
        let after = &rest[end..];
        let len = if after.starts_with("\r\n") { 2 } else { after.chars().next().map_or(0, char::len_utf8) };
        lines.push(&rest[..if keep_ends { end + len } else { end }]);
        rest = &after[len..];
    }
    lines
}

/// Methods that search for a text in `text[start:end]`.
fn search(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let [wanted, start, end] = bind_some(args, ["sub", "start", "end"])?;
    let wanted = required([wanted])?;
    let total = text.chars().count();
    let place = |place: Option<Value>, default: usize| -> Result<usize, Error> {
        let Some(place) = place else { return Ok(default) };
        let place = i64::try_from(place)?;
        Ok(usize::try_from(if place < 0 { place + total as i64 } else { place }).unwrap_or(0).min(total))
    };
    let (start, end) = (place(start, 0)?, place(end, total)?);
    let byte = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    let part = text.get(byte(start)..byte(end)).unwrap_or_default();
    let any = |is: &dyn Fn(&str) -> bool| match wanted.kind() {
        ValueKind::Seq => wanted.try_iter().is_ok_and(|mut wanted| wanted.any(|wanted| is(&string(&wanted)))),
        _ => is(&string(&wanted)),
    };
    let at = |found: Option<usize>| found.map(|at| start + part[..at].chars().count());
    let text = string(&wanted);
    Ok(match name {
        "startswith" => any(&|wanted| part.starts_with(wanted)).into(),
        "endswith" => any(&|wanted| part.ends_with(wanted)).into(),
        "count" => part.matches(&text).count().into(),
        "find" => at(part.find(&text)).map_or(Value::from(-1), Value::from),
        "rfind" => at(part.rfind(&text)).map_or(Value::from(-1), Value::from),
        _ => {
            let found = at(if name == "index" { part.find(&text) } else { part.rfind(&text) });
            found.map(Value::from).ok_or_else(|| invalid("substring not found"))?
        }
    })
}

/// `str.center`, `ljust` or `rjust`.
pub fn pad(text: &str, how: &str, width: usize, fill: &str) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let before = match how {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width & 1),
    };
    format!("{}{text}{}", fill.repeat(before), fill.repeat(missing - before))
}

fn expand_tabs(text: &str, size: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' => {
                let spaces = size.saturating_sub(column % size.max(1));
                out += &" ".repeat(spaces);
                column += spaces;
            }
            _ => {
                out.push(c);
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    out
}

/// Capitalizes every letter that does not follow a letter.
fn title(text: &str) -> String {
    let mut after_letter = false;
    let mut out = String::new();
    for c in text.chars() {
        if after_letter {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        after_letter = c.is_lowercase() || c.is_uppercase();
    }
    out
}

fn list(parts: Vec<&str>) -> Value {
    parts.into_iter().map(Value::from).collect()
}

fn three(a: &str, b: &str, c: &str) -> Value {
    Value::from(Tuple::from([a.into(), b.into(), c.into()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected results come from CPython.
    #[test]
    fn texts_are_split_as_in_python() {
        assert_eq!(split(" a  b c ", None, usize::MAX), ["a", "b", "c"]);
        assert_eq!(split(" a  b c ", None, 1), ["a", "b c "]);
        assert_eq!(split("a,b,c", Some(","), 1), ["a", "b,c"]);
        assert_eq!(rsplit(" a  b c ", None, 1), [" a  b", "c"]);
        assert_eq!(rsplit("a,b,c", Some(","), 1), ["a,b", "c"]);
        assert_eq!(lines("a\r\nb\n\nc", false), ["a", "b", "", "c"]);
        assert_eq!(lines("a\r\nb\n", true), ["a\r\n", "b\n"]);
    }

    /// The expected results come from CPython.
    #[test]
    fn texts_are_filled_up_as_in_python() {
        assert_eq!(pad("ab", "center", 5, "*"), "**ab*");
        assert_eq!(pad("abc", "center", 6, "*"), "*abc**");
        assert_eq!(pad("ab", "ljust", 3, "*"), "ab*");
        assert_eq!(expand_tabs("a\tb\nc\td", 4), "a   b\nc   d");
        assert_eq!(title("they're x1y"), "They'Re X1Y");
    }
}
