//! Expressions for decimal numbers within limits.

use super::expr::{Chars, Expr};

/// Maximum number of digits before the point, and maximum number of digits after it. An integer of 64 bits has up to 20
/// digits.
const DIGITS: u32 = 20;
/// The largest power of ten of a float.
const LAST_EXPONENT: i128 = 308;

/// A limit of a number as decimal digits: the digits before the point, without leading zeros, and the digits after the
/// point, without trailing zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decimal {
    whole: Vec<u8>,
    fraction: Vec<u8>,
}

impl Decimal {
    /// Converts a non-negative number.
    fn of(value: f64) -> Self {
        // `Display` never uses an exponent.
        Self::read(&format!("{value}"))
    }

    /// Splits a positive number into a number with a single digit before the point and a power of ten. Returns the
    /// number and the exponent of ten.
    fn scientific(value: f64) -> (Self, i128) {
        let text = format!("{value:e}");
        let (decimal, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        (Self::read(decimal), exponent.parse().unwrap_or(0))
    }

    fn read(text: &str) -> Self {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let fraction = fraction.trim_end_matches('0');
        Self { whole: whole.as_bytes().to_vec(), fraction: fraction.as_bytes().to_vec() }
    }
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    pub value: f64,
    /// True if the limit itself is excluded.
    pub is_exclusive: bool,
}

impl Limit {
    fn negated(self) -> Self {
        Self { value: -self.value, ..self }
    }
}

fn digit(first: u8, last: u8) -> Expr {
    if first > last { Expr::never() } else { Expr::Chars(Chars::of([(first.into(), last.into())])) }
}

fn digits(min: u32, max: u32) -> Expr {
    digit(b'0', b'9').repeat(min, max)
}

/// Matches any whole number.
pub fn integer() -> Expr {
    Expr::seq([Expr::text("-").optional(), whole()])
}

fn whole() -> Expr {
    Expr::alt([Expr::text("0"), Expr::seq([digit(b'1', b'9'), digits(0, DIGITS - 1)])])
}

/// Matches any number.
pub fn number() -> Expr {
    Expr::seq([integer(), fraction(DIGITS), exponent(-LAST_EXPONENT, LAST_EXPONENT).optional()])
}

/// Matches an exponent from `min` to `max`, such as `e23`, `E+5` or `e-05`.
fn exponent(min: i128, max: i128) -> Expr {
    let mark = Expr::Chars(Chars::of([(b'e'.into(), b'e'.into()), (b'E'.into(), b'E'.into())]));
    // Python writes at least two digits.
    let from_to = |from: i128, to: i128| {
        Expr::seq([Expr::text("0").optional(), whole_range(from.max(0) as u128, Some(to.max(0) as u128))])
    };
    let mut parts = Vec::new();
    if max >= 0 {
        parts.push(Expr::seq([Expr::text("+").optional(), from_to(min, max)]));
    }
    if min <= 0 {
        parts.push(Expr::seq([Expr::text("-"), from_to(-max, -min)]));
    }
    Expr::seq([mark, Expr::Alt(parts)])
}

/// Matches an optional point with up to `most` digits.
pub fn fraction(most: u32) -> Expr {
    Expr::seq([Expr::text("."), digits(1, most)]).optional()
}

/// Matches any number that has at most `most` digits after the point.
pub fn decimal(most: u32) -> Expr {
    Expr::seq([integer(), fraction(most)])
}

/// Matches a whole number followed by one of `fractions`.
pub fn with_fractions<'d>(fractions: impl Iterator<Item = &'d String>) -> Expr {
    let zero = Expr::Chars(Chars::one('0')).repeat(0, DIGITS);
    let each = fractions.map(|digits| Expr::seq([Expr::text(&format!(".{digits}")), zero.clone()]));
    Expr::seq([integer(), Expr::Alt(each.collect()).optional()])
}

/// Matches whole numbers from `min` to `max`, inclusive.
pub fn integer_range(min: Option<i128>, max: Option<i128>) -> Expr {
    let mut parts = Vec::new();
    if min.is_none_or(|min| min < 0) {
        let from = max.map_or(1, |max| 1.max(-max)) as u128;
        parts.push(Expr::seq([Expr::text("-"), whole_range(from, min.map(|min| min.unsigned_abs()))]));
    }
    if max.is_none_or(|max| max >= 0) {
        let from = min.map_or(0, |min| 0.max(min)) as u128;
        parts.push(whole_range(from, max.map(|max| max as u128)));
    }
    Expr::Alt(parts)
}

/// Matches unsigned whole numbers in a range. If the range has no upper limit, the number of digits is limited.
fn whole_range(from: u128, to: Option<u128>) -> Expr {
    let lowest = from.to_string();
    let to = to.unwrap_or_else(|| 10u128.pow(DIGITS.max(lowest.len() as u32).min(38)) - 1);
    if from > to {
        return Expr::never();
    }
    let highest = to.to_string();
    let mut parts = Vec::new();
    for len in lowest.len()..=highest.len() {
        let low = if len == lowest.len() { lowest.clone() } else { format!("1{}", "0".repeat(len - 1)) };
        let high = if len == highest.len() { highest.clone() } else { "9".repeat(len) };
        parts.push(same_length(low.as_bytes(), high.as_bytes()));
    }
    Expr::Alt(parts)
}

/// Matches digits between two strings of the same length.
fn same_length(low: &[u8], high: &[u8]) -> Expr {
    let (Some((first_low, low)), Some((first_high, high))) = (low.split_first(), high.split_first()) else {
        return Expr::empty();
    };
    let len = low.len();
    if first_low == first_high {
        return Expr::seq([digit(*first_low, *first_low), same_length(low, high)]);
    }
    if low.iter().all(|digit| *digit == b'0') && high.iter().all(|digit| *digit == b'9') {
        return Expr::seq([digit(*first_low, *first_high), digits(len as u32, len as u32)]);
    }
    Expr::alt([
        Expr::seq([digit(*first_low, *first_low), same_length(low, &vec![b'9'; len])]),
        Expr::seq([digit(first_low + 1, first_high - 1), digits(len as u32, len as u32)]),
        Expr::seq([digit(*first_high, *first_high), same_length(&vec![b'0'; len], high)]),
    ])
}

/// Matches numbers within limits.
pub fn number_range(min: Option<Limit>, max: Option<Limit>) -> Expr {
    let mut parts = Vec::new();
    if min.is_none_or(|min| min.value < 0.0) {
        let from = max.filter(|max| max.value < 0.0).map(Limit::negated);
        parts.push(Expr::seq([Expr::text("-"), positive_range(from, min.map(Limit::negated))]));
    }
    if max.is_none_or(|max| max.value >= 0.0) {
        parts.push(positive_range(min.filter(|min| min.value >= 0.0), max));
    }
    Expr::Alt(parts)
}

/// Matches non-negative numbers in a range. A number may have an exponent. Then it has one digit before the point, as
/// programs write it.
fn positive_range(from: Option<Limit>, to: Option<Limit>) -> Expr {
    Expr::alt([plain_range(from, to), scientific_range(from, to)])
}

/// Matches positive numbers with an exponent in a range.
fn scientific_range(from: Option<Limit>, to: Option<Limit>) -> Expr {
    let number = |first: Expr, fraction: Expr, min: i128, max: i128| match min > max {
        true => Expr::never(),
        false => Expr::seq([first, fraction, exponent(min, max)]),
    };
    let any = |min, max| number(digit(b'1', b'9'), fraction(DIGITS), min, max);
    let above = from.filter(|from| from.value > 0.0).map(|Limit { value, is_exclusive }| {
        let (Decimal { whole, fraction: rest }, exponent) = Decimal::scientific(value);
        let first = whole.first().copied().unwrap_or(b'1');
        Expr::alt([
            any(exponent + 1, LAST_EXPONENT),
            number(digit(first + 1, b'9'), fraction(DIGITS), exponent, exponent),
            number(digit(first, first), fraction_from(&rest, is_exclusive), exponent, exponent),
        ])
    });
    let below = to.map(|Limit { value, is_exclusive }| {
        if value <= 0.0 {
            return Expr::never();
        }
        let (Decimal { whole, fraction: rest }, exponent) = Decimal::scientific(value);
        let first = whole.first().copied().unwrap_or(b'1');
        Expr::alt([
            any(-LAST_EXPONENT, exponent - 1),
            number(digit(b'1', first - 1), fraction(DIGITS), exponent, exponent),
            number(digit(first, first), fraction_to(&rest, is_exclusive), exponent, exponent),
        ])
    });
    match (above, below) {
        (None, None) => any(-LAST_EXPONENT, LAST_EXPONENT),
        (Some(one), None) | (None, Some(one)) => one,
        (Some(above), Some(below)) => Expr::Both(Box::new(above), Box::new(below)),
    }
}

/// Matches the non-negative numbers in a range that are written without an exponent.
fn plain_range(from: Option<Limit>, to: Option<Limit>) -> Expr {
    // An upper limit with more digits than the grammar allows has no effect, so it is left out.
    let to = to.filter(|to| to.value < 1e20);
    let anything = || Expr::seq([whole(), fraction(DIGITS)]);
    let above = from.map_or_else(anything, |from| {
        let limit = Decimal::of(from.value);
        let next = to_integer(&limit.whole).map_or(u128::MAX, |whole| whole.saturating_add(1));
        Expr::alt([
            Expr::seq([Expr::Bytes(limit.whole.clone()), fraction_from(&limit.fraction, from.is_exclusive)]),
            Expr::seq([whole_range(next, None), fraction(DIGITS)]),
        ])
    });
    let Some(to) = to else { return above };
    let limit = Decimal::of(to.value);
    let mut below = vec![Expr::seq([Expr::Bytes(limit.whole.clone()), fraction_to(&limit.fraction, to.is_exclusive)])];
    if let Some(last) = to_integer(&limit.whole).and_then(|whole| whole.checked_sub(1)) {
        below.push(Expr::seq([whole_range(0, Some(last)), fraction(DIGITS)]));
    }
    match from {
        None => Expr::Alt(below),
        Some(_) => Expr::Both(Box::new(above), Box::new(Expr::Alt(below))),
    }
}

fn to_integer(digits: &[u8]) -> Option<u128> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Matches fractions of at least this value.
fn fraction_from(limit: &[u8], is_exclusive: bool) -> Expr {
    if limit.is_empty() && !is_exclusive {
        return fraction(DIGITS);
    }
    Expr::seq([Expr::text("."), digits_from(limit, is_exclusive)])
}

fn digits_from(limit: &[u8], is_exclusive: bool) -> Expr {
    match limit.split_first() {
        Some((first, rest)) => Expr::alt([
            Expr::seq([digit(first + 1, b'9'), digits(0, DIGITS)]),
            Expr::seq([digit(*first, *first), digits_from(rest, is_exclusive)]),
        ]),
        None if is_exclusive => Expr::seq([Expr::text("0").repeat(0, DIGITS), digit(b'1', b'9'), digits(0, DIGITS)]),
        None => digits(0, DIGITS),
    }
}

/// Matches fractions of at most this value.
fn fraction_to(limit: &[u8], is_exclusive: bool) -> Expr {
    match (limit.is_empty(), is_exclusive) {
        (true, true) => Expr::never(),
        (true, false) => Expr::seq([Expr::text("."), Expr::text("0").repeat(1, DIGITS)]).optional(),
        (false, _) => Expr::seq([Expr::text("."), digits_to(limit, is_exclusive)]).optional(),
    }
}

fn digits_to(limit: &[u8], is_exclusive: bool) -> Expr {
    match limit.split_first() {
        Some((first, rest)) => {
            // A proper prefix of the limit is below it.
            let shorter = if rest.is_empty() { Expr::never() } else { Expr::empty() };
            Expr::alt([
                Expr::seq([if *first > b'0' { digit(b'0', first - 1) } else { Expr::never() }, digits(0, DIGITS)]),
                Expr::seq([digit(*first, *first), Expr::alt([digits_to(rest, is_exclusive), shorter])]),
            ])
        }
        None if is_exclusive => Expr::never(),
        None => Expr::text("0").repeat(0, DIGITS),
    }
}
