//! Compiles GBNF grammars and JSON schemas to the tables that [`arenite::grammar`] reads.
//!
//! | module | |
//! |---|---|
//! | `gbnf`, `schema` | the two notations |
//! | `pattern`, `format`, `number` | regular expressions over JSON strings; patterns of formats; numbers within limits |
//! | `pieces` | grammars of answers with a model's delimiters |
//! | `expr`, `share`, `repeat` | expressions and rules; rules for repeated parts |
//! | `automaton`, `emit`, `table` | deterministic automata over bytes, and their table |
//! | `budget` | limits on the cost of a grammar, which may come from a client |
//!
//! # Examples
//!
//! ```
//! use arenite::grammar::{Grammar, State};
//! use arenite_grammar::{Budget, from_json_schema};
//!
//! let schema = serde_json::json!({ "type": "object", "properties": { "age": { "type": "integer" } }, "required": ["age"] });
//! let table = from_json_schema(&schema, &Budget::of_command())?;
//! let grammar = Grammar::new(&table)?;
//! let mut state = State::new(&grammar);
//! assert!(state.accept(&grammar, b"{\"age\": 7}".iter().copied()) && state.is_complete());
//! # Ok::<(), anyhow::Error>(())
//! ```
#![deny(unsafe_code)]

mod automaton;
mod budget;
mod emit;
mod expr;
mod format;
mod gbnf;
mod number;
mod pattern;
mod pieces;
mod repeat;
mod schema;
mod share;
mod table;

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};
use arenite::grammar::Masks;
use arenite::memory::Line;
use arenite::tokenizer::Tokenizer;

use automaton::{Letter, Nfa, Node};
pub use budget::Budget;
use expr::{Expr, Rule, Rules};
pub use pieces::{Piece, from_pieces};
use repeat::Large;
use schema::Schemas;
pub use table::Table;

/// Number of grammar states whose masks are cached.
const PLACES: usize = 64;

/// Memory for [`Masks`].
pub struct MaskMemory(Vec<Line>);

impl MaskMemory {
    /// Allocates memory for masks of this vocabulary.
    pub fn new(tokenizer: &Tokenizer<'_, '_>) -> Self {
        Self(vec![Line::ZERO; Self::bytes(tokenizer).div_ceil(arenite::memory::ALIGN)])
    }

    /// Number of bytes for this vocabulary.
    pub fn bytes(tokenizer: &Tokenizer<'_, '_>) -> usize {
        Masks::bytes(tokenizer, PLACES)
    }

    /// Creates a cache of masks in this memory.
    ///
    /// # Errors
    ///
    /// The memory is too small, because it was allocated for a different vocabulary.
    pub fn masks(&mut self, tokenizer: &Tokenizer<'_, '_>) -> Result<Masks<'_>> {
        Ok(Masks::new(tokenizer, PLACES, Line::bytes_mut(&mut self.0))?)
    }
}

/// Compiles a grammar in GBNF, llama.cpp's dialect. `token` returns the id of a token such as `<think>` by its text.
///
/// # Errors
///
/// A syntax error with its line, or a grammar that exceeds the budget.
pub fn from_gbnf(text: &str, token: &dyn Fn(&str) -> Option<u32>, budget: &Budget) -> Result<Table> {
    let (rules, root) = gbnf::parse(text, token)?;
    Ok(Table::new(compile(rules, root, budget)?, Vec::new()))
}

/// Compiles a grammar for the values that a JSON schema allows. [`Table::differences`] lists the exceptions.
///
/// # Errors
///
/// A keyword that the grammar cannot express, with its place in the schema, or a schema that exceeds the budget.
pub fn from_json_schema(schema: &serde_json::Value, budget: &Budget) -> Result<Table> {
    of_schemas(budget, |schemas| schemas.add(schema, budget))
}

/// Compiles the rules that `add` makes of schemas. If they exceed the budget, and some texts have both a pattern and a
/// maximum length, compiles them without these lengths, which a difference says.
fn of_schemas(budget: &Budget, add: impl Fn(&mut Schemas) -> Result<usize>) -> Result<Table> {
    let table = |schemas: &mut Schemas| {
        let root = add(schemas)?;
        let words = compile(std::mem::take(&mut schemas.rules), root, budget)?;
        Ok(Table::new(words, std::mem::take(&mut schemas.differences)))
    };
    let mut schemas = Schemas::default();
    let result = table(&mut schemas);
    if result.is_ok() || !schemas.has_lengths || !budget.is_used_up() {
        return result;
    }
    budget.renew();
    table(&mut Schemas::without_lengths())
}

/// Compiles a grammar for the texts that a regular expression (ECMA 262) matches as a whole.
///
/// # Errors
///
/// A part of the expression that is not supported, or an expression that exceeds the budget.
pub fn from_pattern(pattern: &str, budget: &Budget) -> Result<Table> {
    let mut rules = Rules::default();
    let root = rules.add("the pattern", pattern::text(pattern, budget)?);
    Ok(Table::new(compile(rules, root, budget)?, Vec::new()))
}

/// An error names an expression with more states than this, even if the expression is only a small part of the grammar.
const LARGE: usize = 400_000;
/// In a grammar with more states than this, parts that occur often become rules that are called. A call makes the masks of
/// tokens slower to compute, so smaller grammars stay as they are.
const SHARED: usize = 12_000;
/// A rule with more states than this is called, not inlined, if the rule is used more than once.
const CALLED: usize = 400;
/// A rule is also called if it is used so often that its inlined copies together would have more states than this.
const COPIES: usize = 12_000;
/// Maximum nesting of inlined rules.
const MAX_INLINED: usize = 40;

/// Compiles rules to a table.
fn compile(mut rules: Rules, root: usize, budget: &Budget) -> Result<Vec<u8>> {
    let place_of_root = rules.0[root].place.clone();
    if let Some(rule) = rules.left_recursive(budget).with_context(|| place_of_root.clone())? {
        bail!(
            "{}: this rule is left-recursive, so it never ends: put something before its reference to itself",
            rules.0[rule].place
        );
    }
    let states = rules.0.iter().map(|rule| size_of(&rule.expr, &Sizes::new()).0).fold(0, usize::saturating_add);
    let shared = match states > SHARED {
        true => share::repeated_parts(&mut rules, budget).with_context(|| place_of_root.clone())?,
        false => Vec::new(),
    };
    let (called, sizes) = called(&mut rules, root, shared, budget);
    let mut all: Vec<Node> = Vec::new();
    let mut starts: HashMap<usize, u32> = HashMap::new();
    let inlined = |rule: usize| (!called.contains(&rule)).then(|| &rules.0[rule].expr);
    let mut order: Vec<usize> = called.iter().copied().filter(|rule| *rule != root).collect();
    order.sort_unstable();
    for rule in [root].into_iter().chain(order) {
        let place = || heaviest(&rules, rule, &called, &sizes).to_string();
        let dfa = Nfa::compile(&rules.0[rule].expr, &inlined, budget).with_context(place)?;
        let start = all.len() as u32;
        starts.insert(rule, start);
        all.extend(dfa.nodes.into_iter().map(|mut node| {
            node.targets_mut().for_each(|to| *to += start);
            node
        }));
    }
    emit::table(all, starts, root, budget).context(place_of_root)
}

/// Returns the source location for an error about a rule that is too large: the innermost subexpression that makes up
/// more than half of the expression around it, or has more than [`LARGE`] states.
fn heaviest<'r>(rules: &'r Rules, rule: usize, called: &HashSet<usize>, sizes: &Sizes) -> &'r str {
    let (mut expr, mut place) = (&rules.0[rule].expr, rules.0[rule].place.as_str());
    loop {
        let weight = |expr: &Expr| size_of(expr, sizes).0.saturating_add(expr.parts());
        let (mut parts, mut left) = (Vec::new(), vec![expr]);
        while let Some(part) = left.pop() {
            match part {
                Expr::At(place, inner) => parts.push((weight(inner), place, &**inner)),
                Expr::Rule(rule) if !called.contains(rule) => {
                    let Rule { expr, place } = &rules.0[*rule];
                    parts.push((weight(part), place, expr));
                }
                _ => left.extend(part.children()),
            }
        }
        match parts.into_iter().max_by_key(|(weight, ..)| *weight) {
            Some((own, at, inner)) if own > LARGE || own > weight(expr) / 2 => {
                (expr, place) = (inner, at.as_str());
            }
            _ => return place,
        }
    }
}

/// Size and nesting of each rule when inlined.
type Sizes = HashMap<usize, (usize, usize)>;

/// Returns the rules that must be called: recursive rules, and large rules that are used several times. Large
/// repetitions become calls of separate rules.
///
/// The rules in `shared` are always called.
fn called(rules: &mut Rules, root: usize, shared: Vec<usize>, budget: &Budget) -> (HashSet<usize>, Sizes) {
    let (order, mut called) = post_order(rules, root);
    called.extend(shared);
    let mut uses: HashMap<usize, usize> = HashMap::new();
    for rule in &order {
        rules.0[*rule].expr.rules().into_iter().for_each(|named| *uses.entry(named).or_default() += 1);
    }
    // `order` has callees before their callers.
    let mut sizes = Sizes::new();
    let mut known = repeat::Known::default();
    for rule in order {
        let mut expr = std::mem::replace(&mut rules.0[rule].expr, Expr::empty());
        let inlined = |rule: usize| rules.0.get(rule).filter(|_| !called.contains(&rule)).map(|rule| &rule.expr);
        let is_counted = |expr: &Expr| repeat::is_counted(expr, &|rule| inlined(rule), budget);
        let mut large = Large::new(&mut known, rules.0.len(), &is_counted);
        let (size, depth) = measure(&mut expr, &sizes, Some(&mut large));
        for inner in large.into_rules() {
            let place = rules.0[rule].place.clone();
            called.insert(rules.add(place, inner));
        }
        rules.0[rule].expr = expr;
        let uses = uses.get(&rule).copied().unwrap_or(0);
        if depth > MAX_INLINED || (size > CALLED && uses > 1) || (uses > 1 && size.saturating_mul(uses) > COPIES) {
            called.insert(rule);
        }
        let is_called = called.contains(&rule);
        sizes.insert(rule, if is_called { (2, 0) } else { (size, depth) });
    }
    (called, sizes)
}

/// Returns the rules that are reachable from the root, each after the rules that it calls, and the set of recursive
/// rules.
fn post_order(rules: &Rules, root: usize) -> (Vec<usize>, HashSet<usize>) {
    let (mut order, mut recursive) = (Vec::new(), HashSet::new());
    // True for a rule that is on the path from the root to the current rule, false for a rule that is finished.
    let mut on_way: HashMap<usize, bool> = HashMap::from([(root, true)]);
    let mut way = vec![(root, rules.0[root].expr.rules(), 0)];
    while let Some((rule, named, at)) = way.last_mut() {
        match named.get(*at) {
            Some(&next) => {
                *at += 1;
                match on_way.get(&next) {
                    None => {
                        on_way.insert(next, true);
                        way.push((next, rules.0[next].expr.rules(), 0));
                    }
                    Some(true) => {
                        recursive.insert(next);
                    }
                    Some(false) => {}
                }
            }
            None => {
                on_way.insert(*rule, false);
                order.push(*rule);
                way.pop();
            }
        }
    }
    (order, recursive)
}

/// Estimates the number of states of an expression, and its nesting. If `large` is given, large repetitions become
/// calls.
fn measure(expr: &mut Expr, rules: &Sizes, mut large: Option<&mut Large<'_>>) -> (usize, usize) {
    let mut sum = |parts: &mut dyn Iterator<Item = &mut Expr>| {
        parts.fold((1usize, 0), |(size, depth), part| {
            let (more, deeper) = measure(part, rules, large.as_deref_mut());
            (size.saturating_add(more), depth.max(deeper + 1))
        })
    };
    match expr {
        Expr::Bytes(bytes) => (bytes.len(), 0),
        Expr::Chars(chars) if chars.ranges().last().is_some_and(|(_, last)| *last > 0x7f) => {
            (20.max(chars.ranges().len()), 0)
        }
        Expr::Chars(_) | Expr::Token(_) | Expr::NotToken(_) => (1, 0),
        Expr::Multiple(of) => (*of as usize + 1, 0),
        Expr::Rule(rule) => rules.get(rule).map_or((2, 0), |(size, depth)| (*size, depth + 1)),
        Expr::Seq(parts) | Expr::Alt(parts) => sum(&mut parts.iter_mut()),
        Expr::At(place, inner) => {
            let before = large.as_deref_mut().map(|large| large.place.replace(place.clone()));
            let measured = measure(inner, rules, large.as_deref_mut());
            if let (Some(large), Some(before)) = (large, before) {
                large.place = before;
            }
            measured
        }
        Expr::Members { members, rest, separator } => {
            let separators = members.len() + 2;
            let (each, _) = size_of(separator, rules);
            let (size, depth) = sum(&mut members.iter_mut().map(|(member, _)| member).chain(rest.as_deref_mut()));
            (size.saturating_add(separators * each), depth)
        }
        Expr::Both(a, b) | Expr::Minus(a, b) => {
            // Repetitions in these operands are not replaced by calls of rules, because the operands must not contain
            // calls.
            let ((a, _), (b, _)) = (size_of(a, rules), size_of(b, rules));
            (a.saturating_mul(b).min(a + b + 10_000), 1)
        }
        Expr::Repeat(inner, min, max) => {
            let (size, depth) = measure(inner, rules, large.as_deref_mut());
            match large.and_then(|large| large.repeat(inner, (*min, *max), size)) {
                Some((calls, size)) => {
                    *expr = calls;
                    (size, depth + 1)
                }
                None => (repeat::written_out(size, *min, *max).saturating_add(1), depth + 1),
            }
        }
    }
}

fn size_of(expr: &Expr, rules: &Sizes) -> (usize, usize) {
    // A copy, because `measure` may change the expression.
    measure(&mut expr.clone(), rules, None)
}

/// Shortens a long name for errors.
fn short(text: &str) -> String {
    const MAX: usize = 60;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

/// The rule that this transition calls.
fn callee(letter: Letter) -> Option<usize> {
    match letter {
        Letter::Call(rule) => Some(rule),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
