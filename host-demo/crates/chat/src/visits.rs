//! Fuel for everything that a template visits.
//!
//! Values share their items, so a short template can make a value that takes extremely long to walk, for example by
//! assigning `[x, x]` to `x` again and again. Each operand that is walked as a whole goes through the filter
//! [`VISIT`](super::words::VISIT), which first takes fuel for all elements. The filter also limits the nesting of
//! values, because dropping a nested value is recursive.

use std::ops::Range;

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, State};

use super::values::{DEEPEST, flat, generated, invalid};
use super::words::{self, may_be_list, operand_end, pair_is};

/// Number of visited elements that cost one unit of fuel.
const ELEMENTS: u64 = 2;
/// Bytes of text that count as one element.
const BYTES: usize = 1024;
/// Maximum number of elements of a value that a template may visit. An element that is shared by several lists counts
/// once for each of them.
const MOST_ELEMENTS: u64 = 1_000_000;

/// Filters whose operand needs no fuel, because they read at most one item or take the fuel themselves.
const CHEAP: [&str; 8] = ["length", "count", "first", "last", "default", "d", words::VISIT, words::FLAT];
/// Tags whose words get no [`VISIT`](words::VISIT), because most of these words are names.
const BINDING: [&str; 9] = ["macro", "call", "block", "import", "from", "include", "extends", "filter", "endblock"];

/// Registers the filter [`VISIT`](words::VISIT), and replaces the tests that compare values, so that they take fuel for
/// the left value. `in` takes fuel for both values.
pub fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter(words::VISIT, |state: &mut State<'_, '_>, value: Value| visit(state, value));
    type Compare = fn(&Value, &Value) -> bool;
    let tests: [(&[&str], Compare); 6] = [
        (&["eq", "equalto", "=="], |a, b| a == b),
        (&["ne", "!="], |a, b| a != b),
        (&["lt", "lessthan", "<"], |a, b| a < b),
        (&["le", "<="], |a, b| a <= b),
        (&["gt", "greaterthan", ">"], |a, b| a > b),
        (&["ge", ">="], |a, b| a >= b),
    ];
    for (names, compare) in tests {
        for name in names {
            environment.add_test(*name, move |state: &State<'_, '_>, a: &Value, b: &Value| {
                pay(state, a)?;
                Ok::<_, Error>(compare(a, b))
            });
        }
    }
    environment.add_test("in", |state: &State<'_, '_>, value: &Value, list: &Value| {
        pay(state, value)?;
        pay(state, list)?;
        minijinja::tests::is_in(state, value, list)
    });
}

/// Takes fuel for all of `value` and returns it. An iterator becomes a list, because some iterators can run only once.
fn visit(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    let value = if value.kind() == ValueKind::Iterable { flat(state, &value)? } else { value };
    pay(state, &value)?;
    Ok(value)
}

/// Takes fuel for `value` and all elements in it. A single number or short text is free.
pub fn pay(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let mut open = vec![];
    let (mut next, mut total, mut unpaid) = (Some(value.clone()), 0, 0);
    loop {
        let Some(value) = next.take() else {
            let Some(items) = open.last_mut() else { break };
            next = Iterator::next(items);
            if next.is_none() {
                open.pop();
            }
            continue;
        };
        unpaid += u64::from(!open.is_empty());
        if open.len() > DEEPEST {
            return Err(invalid(format!("a value has more than {DEEPEST} levels")));
        }
        match value.kind() {
            ValueKind::String => unpaid += (value.as_str().map_or(0, str::len) / BYTES) as u64,
            ValueKind::Map => {
                let keys = value.try_iter()?;
                let of = value.clone();
                let pairs = keys.flat_map(move |key| {
                    let item = of.get_item(&key).unwrap_or_default();
                    [key, item]
                });
                open.push(Box::new(pairs) as Box<dyn Iterator<Item = Value>>);
            }
            ValueKind::Seq => open.push(Box::new(value.try_iter()?)),
            ValueKind::Iterable => match generated(&value) {
                Some(items) => open.push(Box::new(items.into_iter())),
                None if value.len().is_some() => open.push(Box::new(value.try_iter()?)),
                None => {}
            },
            _ => {}
        }
        if unpaid >= 1024 {
            total += unpaid;
            state.consume_fuel(unpaid / ELEMENTS)?;
            unpaid = 0;
            if total > MOST_ELEMENTS {
                return Err(invalid(format!("a value has more than {MOST_ELEMENTS} elements")));
            }
        }
    }
    state.consume_fuel(unpaid / ELEMENTS)
}

/// Returns the offsets in `tag` where the filter [`VISIT`](words::VISIT) is to be inserted. These are the ends of all
/// operands that the template visits as a whole: arguments, items, left operands of comparisons and filters, right
/// operands of `in`, and both operands of `~`.
pub fn visited(tag: &str, words: &[Range<usize>], closing: &[usize]) -> Vec<usize> {
    let word = |at: usize| words.get(at).map_or("", |range| &tag[range.clone()]);
    let first = word(0);
    if BINDING.contains(&first) {
        return Vec::new();
    }
    let starts = starts(&word, closing);
    let bound = bound(first, tag, words, closing);
    let mut places = Vec::new();
    for at in bound..words.len() {
        let follows = match word(at + 1) {
            "," | ")" | "]" | "}" | "~" | "in" | "<" | ">" => true,
            "=" | "!" => pair_is(tag, words, at + 1, "==") || pair_is(tag, words, at + 1, "!="),
            "not" => word(at + 2) == "in",
            "|" => !CHEAP.contains(&word(at + 2)),
            _ => false,
        };
        if follows && is_operand(word(at)) && !is_test(&word, starts[at]) {
            places.push(words[at].end);
        }
        if matches!(word(at), "in" | "~") {
            let end = operand_end(tag, words, closing, at + 1);
            if end > at + 1 && end <= words.len() && is_operand(word(end - 1)) {
                places.push(words[end - 1].end);
            }
        }
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// Returns the index of the first word after the names that a tag binds: in `for`, the word after `in`; in `set`, the
/// word after `=`. All other tags bind no names.
fn bound(first: &str, tag: &str, words: &[Range<usize>], closing: &[usize]) -> usize {
    let until = match first {
        "for" if tag.starts_with("{%") => "in",
        "set" if tag.starts_with("{%") => "=",
        _ => return 0,
    };
    let mut at = 1;
    while at < words.len() && &tag[words[at].clone()] != until {
        at = closing[at].max(at) + 1;
    }
    at + 1
}

/// Returns true if the operand that ends with `word` may be a value that contains other values, such as a list.
fn is_operand(word: &str) -> bool {
    let constant = matches!(word, "true" | "false" | "none" | "True" | "False" | "None" | "recursive");
    word == "}" || (may_be_list(word) && !constant)
}

/// Returns, for each word that ends an operand, the index of the operand's first word, which is `a` in `a.b(c)|d`.
fn starts<'t>(word: &dyn Fn(usize) -> &'t str, closing: &[usize]) -> Vec<usize> {
    let mut starts: Vec<usize> = (0..closing.len()).collect();
    let mut opening = starts.clone();
    for (at, &end) in closing.iter().enumerate() {
        opening[end] = opening[end].min(at);
    }
    for at in 0..starts.len() {
        let first = opening[at];
        starts[at] = match first.checked_sub(1) {
            // Continue with the operand before the bracket, because a call or a subscript belongs to that operand.
            Some(before) if first < at && may_be_list(word(before)) => starts[before],
            Some(before) if before > 0 && first == at && matches!(word(before), "." | "|") => starts[before - 1],
            _ => first,
        };
    }
    starts
}

/// Returns true if the operand that starts at `start` is a test or its argument: `x is string`, `x is not eq y`, `x is
/// divisibleby(3)`.
fn is_test<'t>(word: &dyn Fn(usize) -> &'t str, start: usize) -> bool {
    let is = |at: Option<usize>| {
        at.is_some_and(|at| word(at) == "is" || (word(at) == "not" && at > 0 && word(at - 1) == "is"))
    };
    is(start.checked_sub(1)) || (start >= 2 && may_be_list(word(start - 1)) && is(start.checked_sub(2)))
}
