//! Expressions and rules. GBNF grammars and JSON schemas are both converted to them, and they are compiled to tables.

use std::collections::BTreeMap;

use anyhow::Result;

use super::budget::Budget;

/// An expression, which describes a set of texts.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// Exactly these bytes.
    Bytes(Vec<u8>),
    /// One character of this set.
    Chars(Chars),
    /// This token, whatever its text is.
    Token(u32),
    /// Any token except this one.
    NotToken(u32),
    /// A sequence.
    Seq(Vec<Expr>),
    /// Alternatives. An empty list matches nothing, not even the empty text.
    Alt(Vec<Expr>),
    /// A repetition with minimum and optional maximum.
    Repeat(Box<Expr>, u32, Option<u32>),
    /// A reference to a rule.
    Rule(usize),
    /// Intersection. Its operands must not contain a recursive rule.
    Both(Box<Expr>, Box<Expr>),
    /// Difference: texts that the first expression matches and the second does not.
    Minus(Box<Expr>, Box<Expr>),
    /// A whole number in decimal digits, with an optional `-`, that is divisible by this value.
    Multiple(u32),
    /// The members of an object in this order, with a separator between any two. A member is optional if its flag is
    /// false. `rest` matches further members, any number of them, after the listed ones.
    Members { members: Vec<(Expr, bool)>, rest: Option<Box<Expr>>, separator: Box<Expr> },
    /// An expression and its place in the source, for errors.
    At(String, Box<Expr>),
}

impl Expr {
    pub fn text(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }

    /// Matches the empty text.
    pub fn empty() -> Self {
        Self::Bytes(Vec::new())
    }

    /// Matches nothing.
    pub fn never() -> Self {
        Self::Alt(Vec::new())
    }

    pub fn seq(parts: impl IntoIterator<Item = Expr>) -> Self {
        Self::Seq(parts.into_iter().collect())
    }

    pub fn alt(parts: impl IntoIterator<Item = Expr>) -> Self {
        Self::Alt(parts.into_iter().collect())
    }

    pub fn repeat(self, min: u32, max: impl Into<Option<u32>>) -> Self {
        Self::Repeat(Box::new(self), min, max.into())
    }

    pub fn optional(self) -> Self {
        self.repeat(0, 1)
    }

    /// The direct subexpressions.
    pub fn children(&self) -> Vec<&Expr> {
        match self {
            Self::Seq(parts) | Self::Alt(parts) => parts.iter().collect(),
            Self::Repeat(inner, ..) | Self::At(_, inner) => vec![inner],
            Self::Both(a, b) | Self::Minus(a, b) => vec![a, b],
            Self::Members { members, rest, separator } => {
                let members = members.iter().map(|(member, _)| member);
                members.chain(rest.as_deref()).chain([&**separator]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the size of the expression: the number of subexpressions and character ranges.
    pub fn parts(&self) -> usize {
        let (mut parts, mut left) = (0, vec![self]);
        while let Some(expr) = left.pop() {
            parts += if let Self::Chars(chars) = expr { 1 + chars.0.len() } else { 1 };
            left.extend(expr.children());
        }
        parts
    }

    /// Returns the rules that the expression refers to, in the order in which they occur. A rule that occurs several
    /// times is listed several times.
    pub fn rules(&self) -> Vec<usize> {
        let (mut rules, mut left) = (Vec::new(), vec![self]);
        while let Some(expr) = left.pop() {
            if let Self::Rule(rule) = expr {
                rules.push(*rule);
            }
            left.extend(expr.children().into_iter().rev());
        }
        rules
    }
}

/// A set of characters: sorted ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chars(Vec<(u32, u32)>);

/// The last code point.
const LAST: u32 = 0x10ffff;

impl Chars {
    pub fn of(ranges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        ranges.sort_unstable();
        let mut set = Self::default();
        for (first, last) in ranges {
            match set.0.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => set.0.push((first, last)),
            }
        }
        set
    }

    pub fn one(char: char) -> Self {
        Self::of([(char.into(), char.into())])
    }

    pub fn any() -> Self {
        Self::of([(0, LAST)])
    }

    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    pub fn contains(&self, char: u32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&char))
    }

    pub fn or(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied())
    }

    /// The complement.
    pub fn not(&self) -> Self {
        let mut next = 0;
        let mut gaps = Vec::new();
        for (first, last) in &self.0 {
            if *first > next {
                gaps.push((next, first - 1));
            }
            next = last + 1;
        }
        if next <= LAST {
            gaps.push((next, LAST));
        }
        Self(gaps)
    }

    pub fn and(&self, other: &Self) -> Self {
        self.not().or(&other.not()).not()
    }
}

/// A rule and its place in the source.
#[derive(Clone, Debug)]
pub struct Rule {
    pub expr: Expr,
    /// Place for errors: `line 3:1` or `$.properties.when`.
    pub place: String,
}

/// Rules by number.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    pub fn add(&mut self, place: impl Into<String>, expr: Expr) -> usize {
        self.0.push(Rule { expr, place: place.into() });
        self.0.len() - 1
    }

    /// Finds the rules that match the empty text.
    fn nullable(&self, budget: &Budget) -> Result<Vec<bool>> {
        let mut nullable = vec![false; self.0.len()];
        let parts = self.0.iter().map(|rule| rule.expr.parts()).sum();
        loop {
            budget.steps(parts)?;
            let mut changed = false;
            for (rule, Rule { expr, .. }) in self.0.iter().enumerate() {
                if !nullable[rule] && is_nullable(expr, &nullable) {
                    (nullable[rule], changed) = (true, true);
                }
            }
            if !changed {
                return Ok(nullable);
            }
        }
    }

    /// Finds a rule that is left-recursive.
    pub fn left_recursive(&self, budget: &Budget) -> Result<Option<usize>> {
        let nullable = self.nullable(budget)?;
        let mut first = BTreeMap::new();
        for (rule, Rule { expr, .. }) in self.0.iter().enumerate() {
            let mut begins = Vec::new();
            beginnings(expr, &nullable, &mut begins);
            first.insert(rule, begins);
        }
        Ok(circle(self.0.len(), |rule| &first[&rule]))
    }
}

/// Finds a node of a graph that is on a cycle.
fn circle<'e>(count: usize, edges: impl Fn(usize) -> &'e Vec<usize>) -> Option<usize> {
    // 0: not visited, 1: on the current path, 2: done
    let mut state = vec![0; count];
    for start in 0..count {
        let mut way = vec![(start, 0)];
        while let Some((node, at)) = way.last_mut() {
            let node = *node;
            if *at == 0 {
                if state[node] == 2 {
                    way.pop();
                    continue;
                }
                state[node] = 1;
            }
            match edges(node).get(*at) {
                Some(next) => {
                    *at += 1;
                    match state[*next] {
                        0 => way.push((*next, 0)),
                        1 => return Some(*next),
                        _ => {}
                    }
                }
                None => {
                    state[node] = 2;
                    way.pop();
                }
            }
        }
    }
    None
}

fn is_nullable(expr: &Expr, rules: &[bool]) -> bool {
    match expr {
        Expr::Bytes(bytes) => bytes.is_empty(),
        Expr::Chars(_) | Expr::Token(_) | Expr::NotToken(_) | Expr::Multiple(_) => false,
        Expr::Seq(parts) => parts.iter().all(|part| is_nullable(part, rules)),
        Expr::Alt(parts) => parts.iter().any(|part| is_nullable(part, rules)),
        Expr::Repeat(inner, min, _) => *min == 0 || is_nullable(inner, rules),
        Expr::Rule(rule) => rules[*rule],
        Expr::Both(a, b) => is_nullable(a, rules) && is_nullable(b, rules),
        Expr::At(_, inner) | Expr::Minus(inner, _) => is_nullable(inner, rules),
        Expr::Members { members, .. } => members.iter().all(|(_, required)| !required),
    }
}

/// Collects the rules that a text of `expr` can start with.
fn beginnings(expr: &Expr, nullable: &[bool], out: &mut Vec<usize>) {
    match expr {
        Expr::Rule(rule) => out.push(*rule),
        Expr::Seq(parts) => {
            for part in parts {
                beginnings(part, nullable, out);
                if !is_nullable(part, nullable) {
                    break;
                }
            }
        }
        _ => expr.children().into_iter().for_each(|child| beginnings(child, nullable, out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_can_be_empty_where_none_is_required() {
        let members = |members: &[bool]| Expr::Members {
            members: members.iter().map(|is_required| (Expr::text("a"), *is_required)).collect(),
            rest: Some(Box::new(Expr::text("b"))),
            separator: Box::new(Expr::text(",")),
        };
        assert!(is_nullable(&members(&[]), &[]) && is_nullable(&members(&[false, false]), &[]));
        assert!(!is_nullable(&members(&[false, true]), &[]));
    }

    #[test]
    fn sets_of_characters() {
        let set = Chars::of([(5, 9), (1, 3), (4, 4), (20, 30)]);
        assert_eq!(set.ranges(), [(1, 9), (20, 30)]);
        assert_eq!(set.not().ranges(), [(0, 0), (10, 19), (31, LAST)]);
        assert_eq!(set.and(&Chars::of([(8, 22)])).ranges(), [(8, 9), (20, 22)]);
        assert_eq!(Chars::any().not().ranges(), []);
    }
}
