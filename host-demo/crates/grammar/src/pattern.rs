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
    for (is_negative, pattern) in ahead {
        let texts = Box::new(found(&parse(pattern)?, false, budget)?);
        expr = if is_negative { Expr::Minus(Box::new(expr), texts) } else { Expr::Both(Box::new(expr), texts) };
    }
    Ok(Matching { expr, least, most })
}

fn parse(pattern: &str) -> Result<Ast> {
    match ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(pattern) {
        Ok(ast) => Ok(ast),
        Err(error) if *error.kind() == ErrorKind::UnsupportedLookAround => bail!(
            "`{}`: look-ahead is supported only at the start, after `^`, and look-behind is not: use a pattern without it",
            short(pattern)
        ),
        Err(error) => bail!("`{}` is not a supported regular expression: {}", short(pattern), error.kind()),
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
    to.1.steps(WAYS)?;
    let (inner, start, end) = match ast {
        Ast::Alternation(alternation) => {
            return alternation.asts.iter().try_for_each(|ast| alternatives(ast, anywhere, by_ends, to));
        }
        Ast::Group(group) => return alternatives(inner(group)?, anywhere, by_ends, to),
        Ast::Concat(concat) => {
            let (mut parts, mut start, mut end) = (concat.asts.as_slice(), anywhere, true);
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
            let inner = parts.iter().map(|ast| whole(ast, to)).collect::<Result<Vec<_>>>()?;
            (Expr::Seq(inner), start, end)
        }
        Ast::Assertion(_) if is_anchor(ast, &ANCHORS) => (Expr::empty(), false, true),
        _ => (whole(ast, to)?, anywhere, true),
    };
    by_ends.entry((start, end)).or_default().push(inner);
    Ok(())
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

/// Syntax that Rust would read as set operations.
const NOT_SETS: &str =
    "`[`, `&&`, `--` and `~~` within a class are not supported: ECMA 262 reads them as plain characters";

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
