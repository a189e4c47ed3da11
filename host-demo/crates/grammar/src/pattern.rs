//! JSON strings: characters with their escapes, and regular expressions over them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Result, bail};
use regex_syntax::ast::{
    AssertionKind::{self, EndLine, EndText, StartLine, StartText},
    Ast, ClassPerlKind, ClassSet, ClassSetItem, ClassUnicode, ErrorKind, Group, GroupKind, RepetitionKind,
    RepetitionRange,
    parse::ParserBuilder,
};
use regex_syntax::hir::{Class, HirKind, translate::Translator};

use super::budget::Budget;
use super::expr::{Chars, Expr};
use super::short;

/// Maximum nesting of groups and repetitions.
const MAX_NESTING: u32 = 100;

/// Characters with a one-letter escape.
const SHORT: [(char, char); 7] =
    [('"', '"'), ('\\', '\\'), ('\u{8}', 'b'), ('\u{c}', 'f'), ('\n', 'n'), ('\r', 'r'), ('\t', 't')];

/// Budget steps for a character or a range. The number covers all ways in which JSON can write a character.
pub const WAYS: usize = 40;

/// Characters that need no escape in a string.
fn plain() -> Chars {
    let specials = Chars::of([(0, 0x1f), (0x22, 0x22), (0x5c, 0x5c), (0x7f, 0x7f), (0xd800, 0xdfff)]);
    specials.not()
}

/// Matches one character of a string, escaped or not.
pub fn any_char() -> Expr {
    let hex = || chars(&[(b'0', b'9'), (b'a', b'f'), (b'A', b'F')]);
    let escaped = Chars::of(SHORT.map(|(_, letter)| (letter.into(), letter.into()))).or(&Chars::one('/'));
    let d = || chars(&[(b'd', b'd'), (b'D', b'D')]);
    let other = chars(&[(b'0', b'9'), (b'a', b'c'), (b'A', b'C'), (b'e', b'f'), (b'E', b'F')]);
    let low = chars(&[(b'c', b'f'), (b'C', b'F')]);
    let high = chars(&[(b'8', b'9'), (b'a', b'b'), (b'A', b'B')]);
    Expr::alt([
        Expr::Chars(plain()),
        Expr::seq([Expr::text("\\"), Expr::Chars(escaped)]),
        Expr::seq([Expr::text("\\u"), other, hex(), hex(), hex()]),
        Expr::seq([Expr::text("\\u"), d(), chars(&[(b'0', b'7')]), hex(), hex()]),
        // A surrogate pair.
        Expr::seq([Expr::text("\\u"), d(), high, hex(), hex(), Expr::text("\\u"), d(), low, hex(), hex()]),
    ])
}

fn chars(ranges: &[(u8, u8)]) -> Expr {
    Expr::Chars(Chars::of(ranges.iter().map(|(first, last)| ((*first).into(), (*last).into()))))
}

/// Matches one of these characters in its canonical form.
pub fn one_of(set: &Chars) -> Expr {
    let mut ways = vec![Expr::Chars(set.and(&plain()))];
    let short = SHORT.iter().filter(|(char, _)| set.contains(u32::from(*char)));
    ways.extend(short.map(|(_, letter)| Expr::text(&format!("\\{letter}"))));
    let controls = (0..0x20).chain([0x7f]).filter(|c| SHORT.iter().all(|(char, _)| u32::from(*char) != *c));
    ways.extend(controls.filter(|c| set.contains(*c)).map(|c| Expr::text(&format!("\\u{c:04x}"))));
    Expr::Alt(ways)
}

/// Adds quotes around the contents of a string.
pub fn quoted(inner: Expr) -> Expr {
    Expr::seq([Expr::text("\""), inner, Expr::text("\"")])
}

/// The texts in which a regular expression finds a match.
pub struct Matching {
    /// Matches the texts as the contents of JSON strings.
    pub expr: Expr,
    /// Least and greatest number of characters of these texts.
    pub least: u32,
    pub most: Option<u32>,
    /// The expression; `None` if it has look-ahead.
    ast: Option<Ast>,
}

/// Maximum number of ways to write an alternative without a choice of lengths.
const MAX_WAYS: usize = 16;

impl Matching {
    /// Matches those of the texts that have `min` to `max` characters. Returns `None` unless at most one part of each
    /// alternative has any length, and this part repeats single characters: its limits then take few states, where an
    /// intersection needs a copy of the automaton for each length.
    pub fn within(&self, min: u32, max: Option<u32>, budget: &Budget) -> Result<Option<Expr>> {
        let Some(ast) = &self.ast else { return Ok(None) };
        let to: (Write, &Budget) = (one_of, budget);
        let mut all = Vec::new();
        for ast in leaves(ast)? {
            let (outer, start, end) = trimmed(ast);
            let mut parts = Vec::new();
            outer.iter().try_for_each(|part| flatten(part, &mut parts))?;
            // The repeated character, its least number of repetitions, and its place in each of the ways.
            let mut repeated = None;
            let mut ways = vec![(0, Vec::new())];
            let open = |is_open: bool| is_open.then_some(None);
            for part in open(start).into_iter().chain(parts.into_iter().map(Some)).chain(open(end)) {
                let one = match part {
                    None => Some((one_of(&Chars::any()), 0)),
                    Some(Ast::Repetition(part)) if lengths(&part.ast, false) == (1, Some(1)) => {
                        match times(&part.op.kind) {
                            (least, None) => Some((whole(&part.ast, to)?, least)),
                            _ => None,
                        }
                    }
                    Some(_) => None,
                };
                let choices = match (one, part) {
                    (Some((one, least)), _) if repeated.is_none() => {
                        repeated = Some((ways[0].1.len(), one, least));
                        vec![(0, Expr::empty())]
                    }
                    (None, Some(part)) => match of_each_length(part, to)? {
                        Some(choices) => choices,
                        None => return Ok(None),
                    },
                    _ => return Ok(None),
                };
                match product(&ways, &choices) {
                    Some(longer) => ways = longer,
                    None => return Ok(None),
                }
            }
            for (len, mut way) in ways {
                let (more, room) = (min.saturating_sub(len), max.map(|max| max.checked_sub(len)));
                let fits = match &repeated {
                    Some((at, one, least)) => {
                        way[*at] = one.clone().repeat(more.max(*least), room.flatten());
                        room.is_none_or(|room| room.is_some_and(|room| room >= *least))
                    }
                    None => more == 0 && room != Some(None),
                };
                all.extend(fits.then_some(Expr::Seq(way)));
            }
        }
        Ok(Some(Expr::Alt(all)))
    }
}

/// Texts of one length, as a sequence of expressions.
type Way = (u32, Vec<Expr>);

/// Appends each choice to each way. Returns `None` if there are too many.
fn product(ways: &[Way], choices: &[(u32, Expr)]) -> Option<Vec<Way>> {
    let both = |way: &Way, (len, choice): &(u32, Expr)| {
        (way.0.saturating_add(*len), way.1.iter().chain([choice]).cloned().collect())
    };
    let count = ways.len() * choices.len();
    (count <= MAX_WAYS)
        .then(|| ways.iter().flat_map(|way| choices.iter().map(move |choice| both(way, choice))).collect())
}

/// Returns an expression for each length of the texts that `ast` matches, several for some lengths. Returns `None` if
/// there are too many.
fn of_each_length(ast: &Ast, to: (Write, &Budget)) -> Result<Option<Vec<(u32, Expr)>>> {
    if let (least, Some(most)) = lengths(ast, false)
        && least == most
    {
        return Ok(Some(vec![(least, whole(ast, to)?)]));
    }
    let mut all = Vec::new();
    match ast {
        Ast::Group(group) => return of_each_length(inner(group)?, to),
        Ast::Alternation(alternation) => {
            for ast in &alternation.asts {
                let Some(choices) = of_each_length(ast, to)? else { return Ok(None) };
                all.extend(choices);
            }
        }
        Ast::Concat(concat) => {
            let mut ways = vec![(0, Vec::new())];
            for ast in &concat.asts {
                let choices = of_each_length(ast, to)?;
                let Some(longer) = choices.and_then(|choices| product(&ways, &choices)) else { return Ok(None) };
                ways = longer;
            }
            all.extend(ways.into_iter().map(|(len, way)| (len, Expr::Seq(way))));
        }
        Ast::Repetition(repetition) => match (lengths(&repetition.ast, false), times(&repetition.op.kind)) {
            ((least, most), (min, Some(max))) if most == Some(least) && ((max - min) as usize) < MAX_WAYS => {
                let one = whole(&repetition.ast, to)?;
                all.extend((min..=max).map(|count| (least.saturating_mul(count), one.clone().repeat(count, count))));
            }
            (_, (0, Some(1))) => {
                let Some(choices) = of_each_length(&repetition.ast, to)? else { return Ok(None) };
                all.extend([(0, Expr::empty())].into_iter().chain(choices));
            }
            _ => return Ok(None),
        },
        _ => return Ok(None),
    }
    Ok((all.len() <= MAX_WAYS).then_some(all))
}

/// Appends the parts of a sequence, also of those in groups.
fn flatten<'a>(ast: &'a Ast, parts: &mut Vec<&'a Ast>) -> Result<()> {
    match ast {
        Ast::Concat(concat) => return concat.asts.iter().try_for_each(|ast| flatten(ast, parts)),
        Ast::Group(group) if !matches!(*group.ast, Ast::Alternation(_)) => return flatten(inner(group)?, parts),
        _ => parts.push(ast),
    }
    Ok(())
}

/// A function that makes the expression of a set of characters, either as JSON strings contain them ([`one_of`]) or
/// unescaped.
type Write = fn(&Chars) -> Expr;

/// Parses a regular expression that must match a text as a whole. `^` and `$` around the expression or its alternatives
/// have no effect.
pub fn text(pattern: &str, budget: &Budget) -> Result<Expr> {
    let mut by_ends = ByEnds::default();
    alternatives(&parse(pattern)?, false, &mut by_ends, (|set| Expr::Chars(set.clone()), budget))?;
    Ok(Expr::Alt(by_ends.into_values().flatten().collect()))
}

/// Parses a regular expression (ECMA 262) for the contents of JSON strings.
pub fn matching(pattern: &str, budget: &Budget) -> Result<Matching> {
    let (ahead, rest) = look_ahead(pattern);
    let ast = parse(&rest)?;
    let (least, most) = lengths(&ast, true);
    let mut expr = found(&ast, true, budget)?;
    if !ahead.is_empty() && matches!(ast, Ast::Alternation(_)) {
        bail!("`{}`: look-ahead before alternatives is not supported: write the pattern without it", short(pattern));
    }
    let is_plain = ahead.is_empty();
    for (is_negative, pattern) in ahead {
        let texts = Box::new(found(&parse(pattern)?, false, budget)?);
        expr = if is_negative { Expr::Minus(Box::new(expr), texts) } else { Expr::Both(Box::new(expr), texts) };
    }
    Ok(Matching { expr, least, most, ast: is_plain.then_some(ast) })
}

fn parse(pattern: &str) -> Result<Ast> {
    match ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(&translated(pattern)) {
        Ok(ast) => Ok(ast),
        Err(error) if *error.kind() == ErrorKind::UnsupportedLookAround => bail!(
            "`{}`: look-ahead is supported only at the start, after `^`, and look-behind is not: use a pattern without it",
            short(pattern)
        ),
        Err(error) => bail!("`{}` is not a supported regular expression: {}", short(pattern), error.kind()),
    }
}

/// Rewrites what ECMA 262 reads otherwise than Rust: braces that are no quantifier, escapes, and plain characters of a class
/// that Rust takes for set operations.
fn translated(pattern: &str) -> String {
    let (mut text, mut rest) = (String::new(), pattern);
    while let Some(char) = rest.chars().next() {
        rest = match char {
            '\\' => {
                let (atom, rest) = atom(rest, false);
                text += &atom.text;
                rest
            }
            '[' => class(&rest[1..], &mut text),
            '{' if !is_quantifier(&rest[1..]) => {
                text += "\\{";
                &rest[1..]
            }
            _ => {
                text.push(char);
                &rest[char.len_utf8()..]
            }
        };
    }
    text
}

/// Returns true if the text after a `{` makes it a quantifier, such as `2}`, `2,}` or `2,3}`.
fn is_quantifier(text: &str) -> bool {
    let Some((inner, _)) = text.split_once('}') else { return false };
    let (min, max) = inner.split_once(',').unwrap_or((inner, ""));
    !min.is_empty() && [min, max].iter().all(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Appends the class that begins with `rest`, after its `[`. Returns the text after the class.
fn class<'p>(rest: &'p str, text: &mut String) -> &'p str {
    let (is_negated, mut rest) = rest.strip_prefix('^').map_or((false, rest), |rest| (true, rest));
    if let Some(after) = rest.strip_prefix(']') {
        // An empty class matches nothing; its complement matches any character.
        *text += if is_negated { r"[\x00-\u{10ffff}]" } else { r"[^\x00-\u{10ffff}]" };
        return after;
    }
    *text += if is_negated { "[^" } else { "[" };
    while !rest.is_empty() && !rest.starts_with(']') {
        let (first, after) = atom(rest, true);
        *text += &first.text;
        rest = after;
        if let Some(after) = rest.strip_prefix('-')
            && !after.is_empty()
            && !after.starts_with(']')
        {
            let (last, after) = atom(after, true);
            // A hyphen beside a set such as `\w` stands for itself.
            *text += if first.is_set || last.is_set { r"\-" } else { "-" };
            *text += &last.text;
            rest = after;
        }
    }
    match rest.strip_prefix(']') {
        Some(after) => {
            text.push(']');
            after
        }
        None => rest,
    }
}

/// A character, an escape, or a set of characters such as `\w`.
struct Atom {
    text: String,
    is_set: bool,
}

/// Rewrites the atom at the start of `rest`, which is not empty. Returns the text after it, too.
fn atom(rest: &str, in_class: bool) -> (Atom, &str) {
    let split = |len: usize| rest.split_at_checked(len).unwrap_or((rest, ""));
    let as_is = |len: usize, is_set: bool| (Atom { text: split(len).0.into(), is_set }, split(len).1);
    let other = |text: String, len: usize| (Atom { text, is_set: false }, split(len).1);
    let char = rest.chars().next().unwrap_or_default();
    if char != '\\' {
        // Classes of POSIX stay as they are, to be refused: ECMA 262 takes them for other characters.
        let is_posix = rest
            .strip_prefix("[:")
            .and_then(|rest| rest.split_once(":]"))
            .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase()));
        return match char {
            '[' if is_posix => as_is(rest.find(":]").map_or(1, |end| end + 2), true),
            '[' | '^' | '&' | '~' | '-' => other(format!("\\{char}"), 1),
            _ => as_is(char.len_utf8(), false),
        };
    }
    let escaped = &rest[1..];
    let char = escaped.chars().next().unwrap_or_default();
    let after = &escaped[char.len_utf8().min(escaped.len())..];
    let hex = |text: &str| u32::from_str_radix(text.get(..4)?, 16).ok();
    match char {
        '0' if !after.starts_with(|next: char| next.is_ascii_digit()) => other(r"\x00".into(), 2),
        'b' if in_class => other(r"\x08".into(), 2),
        'c' if after.starts_with(|next: char| next.is_ascii_alphabetic()) => {
            other(format!("\\x{:02x}", after.as_bytes()[0] & 31), 3)
        }
        'd' | 'D' | 's' | 'S' | 'w' | 'W' => as_is(2, true),
        'p' | 'P' if after.starts_with('{') => as_is(rest.find('}').map_or(rest.len(), |end| end + 1), true),
        'p' | 'P' => as_is(3, true),
        'u' | 'x' if after.starts_with('{') => as_is(rest.find('}').map_or(rest.len(), |end| end + 1), false),
        'x' => as_is(4, false),
        'u' => match (hex(after), after.get(4..6), after.get(6..).and_then(hex)) {
            (Some(high @ 0xd800..0xdc00), Some("\\u"), Some(low @ 0xdc00..0xe000)) => {
                other(format!("\\u{{{:x}}}", 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 12)
            }
            _ => as_is(6, false),
        },
        // Rust reads these as the start and end of a word, and as a bell.
        '<' | '>' | 'a' => other(char.into(), 2),
        _ if !char.is_ascii() => other(char.into(), 1 + char.len_utf8()),
        _ => as_is(2, false),
    }
}

/// Splits off the groups `(?!...)` and `(?=...)` after the `^` of an expression. Returns the groups and the expression
/// without the groups. A group is its contents and a flag, which is true for `(?!...)`.
fn look_ahead(pattern: &str) -> (Vec<(bool, &str)>, Cow<'_, str>) {
    let (mut ahead, mut rest) = (Vec::new(), pattern.strip_prefix('^').unwrap_or_default());
    while let Some((is_negative, inner)) =
        rest.strip_prefix("(?!").map(|inner| (true, inner)).or(rest.strip_prefix("(?=").map(|inner| (false, inner)))
        && let Some(end) = end_of_group(inner)
    {
        ahead.push((is_negative, &inner[..end]));
        rest = &inner[end + 1..];
    }
    let rest = if ahead.is_empty() { Cow::Borrowed(pattern) } else { Cow::Owned(format!("^{rest}")) };
    (ahead, rest)
}

/// Returns the offset of the `)` that ends a group.
fn end_of_group(text: &str) -> Option<usize> {
    let (mut open, mut in_class, mut is_escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'[' => in_class = true,
            b']' => in_class = false,
            _ if in_class => {}
            b'(' => open += 1,
            b')' if open == 0 => return Some(at),
            b')' => open -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the least and the greatest number of characters of the texts that an expression matches. With `is_found`,
/// the numbers include the text around the match.
fn lengths(ast: &Ast, is_found: bool) -> (u32, Option<u32>) {
    let open = |(least, most): (u32, Option<u32>)| (least, most.filter(|_| !is_found));
    match ast {
        Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => open((0, Some(0))),
        Ast::Literal(_) | Ast::Dot(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) | Ast::ClassUnicode(_) => {
            open((1, Some(1)))
        }
        Ast::Group(group) => lengths(&group.ast, is_found),
        Ast::Alternation(alternation) => {
            let each = || alternation.asts.iter().map(|ast| lengths(ast, is_found));
            let most = each().map(|(_, most)| most).try_fold(0, |most, other| Some(most.max(other?)));
            (each().map(|(least, _)| least).min().unwrap_or(0), most)
        }
        Ast::Concat(concat) => {
            let anchors = |ast: Option<&Ast>, kinds: &[AssertionKind]| ast.is_some_and(|ast| is_anchor(ast, kinds));
            let is_whole = anchors(concat.asts.first(), &[StartLine, StartText])
                && anchors(concat.asts.last(), &[EndLine, EndText]);
            let sum = concat.asts.iter().map(|ast| lengths(ast, false)).fold((0u32, Some(0u32)), |(a, b), (c, d)| {
                (a.saturating_add(c), b.zip(d).and_then(|(b, d)| b.checked_add(d)))
            });
            if is_whole { sum } else { open(sum) }
        }
        Ast::Repetition(repetition) => {
            let (least, most) = lengths(&repetition.ast, false);
            let (min, max) = times(&repetition.op.kind);
            open((least.saturating_mul(min), most.zip(max).and_then(|(most, max)| most.checked_mul(max))))
        }
    }
}

fn anything() -> Expr {
    one_of(&Chars::any()).repeat(0, None)
}

/// Matches every text that contains a match of the expression. Unless the expression ends with an anchor, any text may
/// follow the match. With `anywhere`, any text may also precede it, unless the expression begins with an anchor.
fn found(ast: &Ast, anywhere: bool, budget: &Budget) -> Result<Expr> {
    let mut by_ends = ByEnds::new();
    alternatives(ast, anywhere, &mut by_ends, (one_of, budget))?;
    let ways = by_ends.into_iter().map(|((start, end), each)| Expr::seq([open(start), Expr::Alt(each), open(end)]));
    Ok(Expr::Alt(ways.collect()))
}

/// Groups alternatives, without their anchors, by two flags: whether any text may precede the alternative, and whether
/// any text may follow it. Alternatives of a group share the states for the text around them, because otherwise a
/// deterministic automaton would have a node for every set of alternatives that a text may contain.
type ByEnds = BTreeMap<(bool, bool), Vec<Expr>>;

fn alternatives(ast: &Ast, anywhere: bool, by_ends: &mut ByEnds, to: (Write, &Budget)) -> Result<()> {
    for ast in leaves(ast)? {
        to.1.steps(WAYS)?;
        let (parts, start, end) = trimmed(ast);
        let parts = parts.iter().map(|ast| whole(ast, to)).collect::<Result<_>>()?;
        by_ends.entry((start && anywhere, end)).or_default().push(Expr::Seq(parts));
    }
    Ok(())
}

/// Returns the alternatives of an expression, also of those in groups.
fn leaves(ast: &Ast) -> Result<Vec<&Ast>> {
    let (mut leaves, mut left) = (Vec::new(), vec![ast]);
    while let Some(ast) = left.pop() {
        match ast {
            Ast::Alternation(alternation) => left.extend(alternation.asts.iter().rev()),
            Ast::Group(group) => left.push(inner(group)?),
            _ => leaves.push(ast),
        }
    }
    Ok(leaves)
}

/// Returns the parts of an alternative without its anchors, and whether any text may precede them, and follow them.
fn trimmed(ast: &Ast) -> (&[Ast], bool, bool) {
    match ast {
        Ast::Concat(concat) => {
            let (mut parts, mut start, mut end) = (concat.asts.as_slice(), true, true);
            while let [first, rest @ ..] = parts
                && is_anchor(first, &[StartLine, StartText])
            {
                (parts, start) = (rest, false);
            }
            while let [rest @ .., last] = parts
                && is_anchor(last, &[EndLine, EndText])
            {
                (parts, end) = (rest, false);
            }
            (parts, start, end)
        }
        Ast::Assertion(_) if is_anchor(ast, &ANCHORS) => (&[], false, true),
        _ => (std::slice::from_ref(ast), true, true),
    }
}

fn open(is_open: bool) -> Expr {
    if is_open { anything() } else { Expr::empty() }
}

const ANCHORS: [AssertionKind; 4] = [StartLine, EndLine, StartText, EndText];

fn is_anchor(ast: &Ast, kinds: &[AssertionKind]) -> bool {
    matches!(ast, Ast::Assertion(assertion) if kinds.contains(&assertion.kind))
}

/// Matches the expression without text around it.
fn whole(ast: &Ast, to: (Write, &Budget)) -> Result<Expr> {
    let (write, budget) = to;
    budget.steps(1)?;
    let one_of = |set: Chars| {
        budget.steps(WAYS * (1 + set.ranges().len()))?;
        anyhow::Ok(write(&set))
    };
    Ok(match ast {
        Ast::Empty(_) => Expr::empty(),
        Ast::Literal(literal) => one_of(Chars::one(literal.c))?,
        Ast::Dot(_) => one_of(Chars::of([(10, 10), (13, 13), (0x2028, 0x2029)]).not())?,
        Ast::ClassPerl(class) => one_of(negated_if(class.negated, perl(&class.kind)))?,
        Ast::ClassBracketed(class) => one_of(negated_if(class.negated, set(&class.kind, budget)?))?,
        Ast::Repetition(repetition) => {
            let (min, max) = times(&repetition.op.kind);
            whole(&repetition.ast, to)?.repeat(min, max)
        }
        Ast::Group(group) => whole(inner(group)?, to)?,
        Ast::Alternation(alternation) => {
            Expr::Alt(alternation.asts.iter().map(|ast| whole(ast, to)).collect::<Result<_>>()?)
        }
        Ast::Concat(concat) => Expr::Seq(concat.asts.iter().map(|ast| whole(ast, to)).collect::<Result<_>>()?),
        Ast::Assertion(_) if is_anchor(ast, &ANCHORS) => {
            bail!("`^` and `$` are supported only at the ends of the expression or of its alternatives")
        }
        Ast::Assertion(_) => bail!("word boundaries (`\\b`) are not supported: leave them out"),
        Ast::Flags(_) => bail!(NO_FLAGS),
        Ast::ClassUnicode(class) => one_of(unicode(class)?)?,
    })
}

fn times(kind: &RepetitionKind) -> (u32, Option<u32>) {
    match kind {
        RepetitionKind::ZeroOrOne => (0, Some(1)),
        RepetitionKind::ZeroOrMore => (0, None),
        RepetitionKind::OneOrMore => (1, None),
        RepetitionKind::Range(RepetitionRange::Exactly(n)) => (*n, Some(*n)),
        RepetitionKind::Range(RepetitionRange::AtLeast(n)) => (*n, None),
        RepetitionKind::Range(RepetitionRange::Bounded(min, max)) => (*min, Some(*max)),
    }
}

/// The contents of a group.
fn inner(group: &Group) -> Result<&Ast> {
    match &group.kind {
        GroupKind::NonCapturing(flags) if !flags.items.is_empty() => bail!(NO_FLAGS),
        _ => Ok(&group.ast),
    }
}

const NO_FLAGS: &str = "flags are not supported: write `[aA]` for `(?i)a`";

fn negated_if(is_negated: bool, set: Chars) -> Chars {
    if is_negated { set.not() } else { set }
}

/// `\d`, `\s` and `\w` as in ECMA 262.
fn perl(kind: &ClassPerlKind) -> Chars {
    match kind {
        ClassPerlKind::Digit => Chars::of([(0x30, 0x39)]),
        ClassPerlKind::Word => Chars::of([(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)]),
        ClassPerlKind::Space => Chars::of([
            (9, 13),
            (0x20, 0x20),
            (0xa0, 0xa0),
            (0x1680, 0x1680),
            (0x2000, 0x200a),
            (0x2028, 0x2029),
            (0x202f, 0x202f),
            (0x205f, 0x205f),
            (0x3000, 0x3000),
            (0xfeff, 0xfeff),
        ]),
    }
}

/// `\p{...}`: a general category, a script or another property of characters.
fn unicode(class: &ClassUnicode) -> Result<Chars> {
    let hir = Translator::new().translate("", &Ast::class_unicode(class.clone()));
    match hir.as_ref().map(regex_syntax::hir::Hir::kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => {
            Ok(Chars::of(class.ranges().iter().map(|range| (range.start().into(), range.end().into()))))
        }
        // A class of one character becomes a literal.
        Ok(HirKind::Literal(literal)) => {
            let text = std::str::from_utf8(&literal.0)?;
            Ok(text.chars().next().map(Chars::one).unwrap_or_default())
        }
        Ok(_) => Ok(Chars::default()),
        Err(error) => bail!("`\\p`: {}", error.kind()),
    }
}

/// The error about a class such as `[[:alpha:]]`. Set operations of Rust do not occur, because their characters are escaped.
const NOT_SETS: &str =
    "classes of POSIX, such as `[:alpha:]`, are not supported: write the characters, such as `a-zA-Z`";

fn set(class: &ClassSet, budget: &Budget) -> Result<Chars> {
    match class {
        ClassSet::Item(item) => set_item(item, budget),
        ClassSet::BinaryOp(_) => bail!(NOT_SETS),
    }
}

fn set_item(item: &ClassSetItem, budget: &Budget) -> Result<Chars> {
    let set = match item {
        ClassSetItem::Literal(literal) => Chars::one(literal.c),
        ClassSetItem::Range(range) => Chars::of([(range.start.c.into(), range.end.c.into())]),
        ClassSetItem::Perl(class) => negated_if(class.negated, perl(&class.kind)),
        // (An empty operand comes only with `&&`.)
        ClassSetItem::Bracketed(_) | ClassSetItem::Ascii(_) | ClassSetItem::Empty(_) => bail!(NOT_SETS),
        ClassSetItem::Union(union) => {
            let sets = union.items.iter().map(|item| set_item(item, budget)).collect::<Result<Vec<_>>>()?;
            Chars::of(sets.iter().flat_map(Chars::ranges).copied())
        }
        ClassSetItem::Unicode(class) => unicode(class)?,
    };
    budget.steps(8 * (1 + set.ranges().len()))?;
    Ok(set)
}

/// Matches exactly this text as the contents of a string.
pub fn literal(text: &str) -> Expr {
    let mut written = String::new();
    for char in text.chars() {
        match SHORT.iter().find(|(short, _)| *short == char) {
            Some((_, letter)) => written.extend(['\\', *letter]),
            None if char.is_ascii_control() => written += &format!("\\u{:04x}", u32::from(char)),
            None => written.push(char),
        }
    }
    Expr::text(&written)
}
