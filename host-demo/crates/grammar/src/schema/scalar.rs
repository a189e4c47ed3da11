//! Strings and numbers: lengths, patterns, formats, limits and divisors.

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value};

use super::count;
use crate::budget::Budget;
use crate::expr::{Chars, Expr};
use crate::number::{self, Limit};
use crate::{format, pattern};

/// Maximum number of patterns for one string.
const MAX_PATTERNS: usize = 16;

/// Keywords of a text that are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loose {
    /// `maxLength`, which takes an intersection with a pattern or format.
    pub length: bool,
    /// A pattern that is not supported, beside a format.
    pub pattern: bool,
}

/// Matches the contents of a string, without the quotes. If `keeps_length`, `maxLength` is enforced although
/// [`Loose::length`] is true.
pub(super) fn string(
    schema: &Map<String, Value>,
    path: &str,
    budget: &Budget,
    keeps_length: bool,
) -> Result<(Expr, Loose)> {
    let mut loose = Loose::default();
    let (min, max) = (count(schema, "minLength", path)?.unwrap_or(0), count(schema, "maxLength", path)?);
    if max.is_some_and(|max| max < min) {
        return Ok((Expr::never(), loose));
    }
    let mut conditions = Vec::new();
    // `pattern` may be a list here, because the combination of several schemas can have several patterns.
    let patterns = match schema.get("pattern") {
        Some(Value::Array(patterns)) => patterns.iter().collect(),
        one => one.into_iter().collect::<Vec<_>>(),
    };
    let place = || format!("{path}.pattern");
    if patterns.len() > MAX_PATTERNS {
        bail!("{}: more than {MAX_PATTERNS} patterns for one text", place());
    }
    // An unknown format is ignored.
    let named = schema.get("format").and_then(Value::as_str);
    let format = named.and_then(|name| format::pattern(name, max.is_some() && keeps_length));
    for pattern in patterns {
        let Some(pattern) = pattern.as_str() else { bail!("{}: this must be a string", place()) };
        match pattern::matching(pattern, budget) {
            // Programs write a format with its pattern, which often has look-ahead.
            Err(_) if format.is_some() && !budget.is_used_up() => loose.pattern = true,
            condition => conditions.push(condition.with_context(place)?),
        }
    }
    let has_format = format.is_some();
    if let Some(pattern) = format {
        conditions.push(pattern::matching(&pattern, budget).with_context(|| format!("{path}.format"))?);
    }
    if conditions.is_empty() {
        return Ok((pattern::any_char().repeat(min, max), loose));
    }
    // A limit on the length is left out if a pattern or format already implies it, because intersecting automata takes
    // many states.
    let is_kept = conditions.iter().any(|one| one.least >= min)
        && max.is_none_or(|max| conditions.iter().any(|one| one.most.is_some_and(|most| most <= max)));
    if let ([one], false) = (&conditions[..], is_kept)
        && let Some(expr) = one.within(min, max, budget).with_context(place)?
    {
        return Ok((expr, loose));
    }
    loose.length = !is_kept && max.is_some();
    let max = max.filter(|_| keeps_length);
    let is_kept = is_kept || max.is_none() && conditions.iter().any(|one| one.least >= min);
    let mut conditions: Vec<Expr> = conditions.into_iter().map(|one| one.expr).collect();
    if !is_kept {
        // Texts of a format with a limit on the length consist of printable ASCII without quotes and backslashes,
        // because the patterns of these formats allow nothing else. An expression that counts only these characters has
        // fewer states.
        let counted = if has_format && max.is_some() {
            Chars::of([(0x21, 0x21), (0x23, 0x5b), (0x5d, 0x7e)])
        } else {
            Chars::any()
        };
        conditions.push(pattern::one_of(&counted).repeat(min, max));
    }
    let both = conditions.into_iter().reduce(|a, b| Expr::Both(Box::new(a), Box::new(b)));
    Ok((both.unwrap_or_else(Expr::empty), loose))
}

pub(super) fn number(mut is_integer: bool, schema: &Map<String, Value>, path: &str) -> Result<Expr> {
    let limit = |key: &str, exclusive_key: &str, is_tighter: fn(f64, f64) -> bool| -> Result<Option<Limit>> {
        let value = |key: &str| match schema.get(key) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|value| value.is_finite()) {
                Some(value) => Ok(Some(value)),
                None => Err(anyhow!("{path}.{key}: this must be a number")),
            },
        };
        let inclusive = value(key)?.map(|value| Limit { value, is_exclusive: false });
        let exclusive = value(exclusive_key)?.map(|value| Limit { value, is_exclusive: true });
        Ok(match (inclusive, exclusive) {
            (Some(a), Some(b)) => Some(if is_tighter(a.value, b.value) { a } else { b }),
            (a, b) => a.or(b),
        })
    };
    let min = limit("minimum", "exclusiveMinimum", |a, b| a > b)?;
    let max = limit("maximum", "exclusiveMaximum", |a, b| a < b)?;

    let mut divisor = None;
    let mut digits = None;
    let mut fractions = None;
    if let Some(multiple) = schema.get("multipleOf") {
        let value = multiple.as_f64().unwrap_or_default();
        let places = (0..=10).find(|places| (value * 10f64.powi(*places) - 1.0).abs() < 1e-9);
        if value >= 1.0 && value.fract() == 0.0 && value <= 10_000.0 {
            is_integer = true;
            divisor = Some(value as u32).filter(|value| *value > 1);
        } else if let Some(places) = places.filter(|_| !is_integer) {
            digits = Some(places as u32);
        } else if let Some(parts) = parts_of_one(value).filter(|_| !is_integer) {
            fractions = Some(number::with_fractions(parts.iter()));
        } else {
            bail!(
                "{path}.multipleOf: {multiple} is not supported: use a whole number up to 10000 or a divisor of 1, such as 0.25 or 0.01"
            );
        }
    }
    let expr = if is_integer {
        let whole = |limit: Option<Limit>, round: fn(f64) -> f64, step: i128| -> Result<Option<i128>> {
            let Some(Limit { value, is_exclusive }) = limit else { return Ok(None) };
            // A limit beyond 1e20 has no effect, because whole numbers without a limit have up to 20 digits.
            if value.abs() > 1e20 && (value > 0.0) == (step < 0) {
                return Ok(None);
            }
            if value.abs() > 1e20 {
                bail!("{path}: whole numbers beyond {value} are not supported: they have up to 20 digits");
            }
            let rounded = round(value);
            Ok(Some(rounded as i128 + if is_exclusive && rounded == value { step } else { 0 }))
        };
        match (exact(schema, "minimum", min), exact(schema, "maximum", max)) {
            (None, None) if min.is_none() && max.is_none() => number::integer(),
            (exact_min, exact_max) => number::integer_range(
                exact_min.map_or_else(|| whole(min, f64::ceil, 1), |min| Ok(Some(min)))?,
                exact_max.map_or_else(|| whole(max, f64::floor, -1), |max| Ok(Some(max)))?,
            ),
        }
    } else if min.is_some() || max.is_some() {
        number::number_range(min, max)
    } else if let Some(digits) = digits {
        return Ok(number::decimal(digits.max(1)));
    } else if let Some(fractions) = fractions {
        return Ok(fractions);
    } else {
        number::number()
    };
    let both = |a, b| Expr::Both(Box::new(a), Box::new(b));
    Ok(match (divisor, digits, fractions) {
        (Some(divisor), ..) => both(expr, Expr::Multiple(divisor)),
        (None, Some(digits), _) => both(expr, number::decimal(digits.max(1))),
        (None, None, Some(fractions)) => both(expr, fractions),
        (None, None, None) => expr,
    })
}

/// If 1 is a multiple of `value`, returns the digits after the point of the multiples of `value` up to 1. For example,
/// 0.25 gives 25, 5, 75 and 0.
fn parts_of_one(value: f64) -> Option<Vec<String>> {
    const MAX: u64 = 1000;
    let text = format!("{value}");
    let digits = text.strip_prefix("0.").filter(|digits| digits.len() <= 10)?;
    let (step, one) = (digits.parse::<u64>().ok()?, 10u64.pow(digits.len() as u32));
    let part = |part| {
        let padded = format!("{:0len$}", part * step % one, len = digits.len());
        let digits = padded.trim_end_matches('0');
        if digits.is_empty() { "0".into() } else { digits.to_string() }
    };
    (step > 0 && one.is_multiple_of(step) && one / step <= MAX).then(|| (1..=one / step).map(part).collect())
}

/// Returns the limit `key` as an exact integer, because the `f64` in `limit` may be rounded. Returns `None` if the
/// limit is not written as a whole number, or if another limit is tighter.
fn exact(schema: &Map<String, Value>, key: &str, limit: Option<Limit>) -> Option<i128> {
    let limit = limit.filter(|limit| !limit.is_exclusive)?;
    let value = schema.get(key)?;
    let written = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from))?;
    (written as f64 == limit.value).then_some(written)
}
