//! Compiles GBNF grammars and JSON schemas to the tables that [`arenite::grammar`] reads.

mod automaton;
mod budget;
mod emit;
mod expr;
mod gbnf;
mod number;
mod pattern;
mod pieces;
mod schema;

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};
use arenite::grammar::Masks;
use arenite::memory::Line;
use arenite::tokenizer::Tokenizer;

use automaton::{Letter, Nfa, Node};
use budget::Budget;
use expr::{Expr, Rule, Rules};
pub use pieces::{Piece, from_pieces};

/// Number of grammar states whose masks are cached.
const PLACES: usize = 64;

/// Memory for [`Masks`].
pub struct MaskMemory(Vec<Line>);

impl MaskMemory {
    /// Allocates memory for masks of this vocabulary.
    pub fn new(tokenizer: &Tokenizer<'_, '_>) -> Self {
        Self(vec![Line::ZERO; Self::bytes(tokenizer).div_ceil(arenite::memory::ALIGN)])
    }

    pub fn bytes(tokenizer: &Tokenizer<'_, '_>) -> usize {
        Masks::bytes(tokenizer, PLACES)
    }

    pub fn masks(&mut self, tokenizer: &Tokenizer<'_, '_>) -> Result<Masks<'_>> {
        Ok(Masks::new(tokenizer, PLACES, Line::bytes_mut(&mut self.0))?)
    }
}

/// Compiles a grammar in GBNF, llama.cpp's dialect. `token` returns the id of a token such as `<think>` by its text.
pub fn from_gbnf(text: &str, token: &dyn Fn(&str) -> Option<u32>) -> Result<Vec<u8>> {
    let (rules, root) = gbnf::parse(text, token)?;
    compile(rules, root, &Budget::new())
}

/// Compiles a grammar for the values that a JSON schema allows.
pub fn from_json_schema(schema: &serde_json::Value) -> Result<Vec<u8>> {
    let budget = Budget::new();
    let (rules, root) = schema::read(schema, &budget)?;
    compile(rules, root, &budget)
}

/// A repetition of up to this many states is always expanded. Calling it instead would mean checking, one by one, all
/// tokens that leave a single call.
const WRITTEN_OUT: usize = 20_000;
/// Total number of states that larger repetitions may take by expansion.
const LARGE_WRITTEN_OUT: usize = 400_000;
/// A rule of more states than this is called if it is used more than once.
const CALLED: usize = 400;
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
    let (called, sizes) = called(&mut rules, root);
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

/// Finds the place to name in the error about a too large expression: the part that makes up most of it or is too
/// large alone.
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
            Some((own, at, inner)) if own > LARGE_WRITTEN_OUT || own > weight(expr) / 2 => {
                (expr, place) = (inner, at.as_str());
            }
            _ => return place,
        }
    }
}

/// Size and nesting of each rule when inlined.
type Sizes = HashMap<usize, (usize, usize)>;

/// Returns the rules that must be called: recursive ones, and large ones that are used several times. Large
/// repetitions become rules of their own.
fn called(rules: &mut Rules, root: usize) -> (HashSet<usize>, Sizes) {
    let (order, mut called) = post_order(rules, root);
    let mut uses: HashMap<usize, usize> = HashMap::new();
    for rule in &order {
        rules.0[*rule].expr.rules().into_iter().for_each(|named| *uses.entry(named).or_default() += 1);
    }
    // In the order of calls, callees first.
    let mut sizes = Sizes::new();
    let mut room = LARGE_WRITTEN_OUT;
    for rule in order {
        let mut expr = std::mem::replace(&mut rules.0[rule].expr, Expr::empty());
        let place = rules.0[rule].place.clone();
        let mut own = Vec::new();
        let (size, depth) = measure(&mut expr, &sizes, &mut room, &mut |inner| {
            own.push(inner);
            rules.0.len() + own.len() - 1
        });
        for inner in own {
            called.insert(rules.add(place.clone(), inner));
        }
        rules.0[rule].expr = expr;
        if depth > MAX_INLINED || (size > CALLED && uses.get(&rule).is_some_and(|uses| *uses > 1)) {
            called.insert(rule);
        }
        let is_called = called.contains(&rule);
        sizes.insert(rule, if is_called { (2, 0) } else { (size, depth) });
    }
    (called, sizes)
}

/// Returns the rules reachable from the root, callees first, and the recursive ones.
fn post_order(rules: &Rules, root: usize) -> (Vec<usize>, HashSet<usize>) {
    let (mut order, mut recursive) = (Vec::new(), HashSet::new());
    // True while the rule is on the current path, false when it is done.
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

/// Estimates the number of states of an expression, and its nesting. A repetition that is too large to be expanded in
/// `room` is passed to `hoist`, which makes it a rule.
fn measure(expr: &mut Expr, rules: &Sizes, room: &mut usize, hoist: &mut dyn FnMut(Expr) -> usize) -> (usize, usize) {
    let mut sum = |parts: &mut dyn Iterator<Item = &mut Expr>| {
        parts.fold((1usize, 0), |(size, depth), part| {
            let (more, deeper) = measure(part, rules, room, hoist);
            (size.saturating_add(more), depth.max(deeper + 1))
        })
    };
    match expr {
        Expr::Bytes(bytes) => (bytes.len(), 0),
        Expr::Chars(chars) if chars.ranges().last().is_some_and(|(_, last)| *last > 0x7f) => (20, 0),
        Expr::Chars(_) | Expr::Token(_) | Expr::NotToken(_) => (1, 0),
        Expr::Multiple(of) => (*of as usize + 1, 0),
        Expr::Rule(rule) => rules.get(rule).map_or((2, 0), |(size, depth)| (*size, depth + 1)),
        Expr::Seq(parts) | Expr::Alt(parts) => sum(&mut parts.iter_mut()),
        // A hoisted part keeps its place.
        Expr::At(place, inner) => {
            measure(inner, rules, room, &mut |inner| hoist(Expr::At(place.clone(), Box::new(inner))))
        }
        Expr::Members { members, rest, separator } => {
            let separators = members.len() + 2;
            let (each, _) = size_of(separator, rules);
            let (size, depth) = sum(&mut members.iter_mut().map(|(member, _)| member).chain(rest.as_deref_mut()));
            (size.saturating_add(separators * each), depth)
        }
        Expr::Both(a, b) | Expr::Minus(a, b) => {
            // Operands of these may not contain calls.
            let ((a, _), (b, _)) = (size_of(a, rules), size_of(b, rules));
            (a.saturating_mul(b).min(a + b + 10_000), 1)
        }
        Expr::Repeat(inner, min, max) => {
            let times = max.unwrap_or(*min + 1).max(1) as usize;
            let (size, depth) = measure(inner, rules, room, hoist);
            // Even repeating an expression without states takes time.
            let written_out = size.max(1).saturating_mul(times);
            if size > 12 && written_out > WRITTEN_OUT && written_out <= *room {
                *room -= written_out;
            } else if size > 12 && written_out > WRITTEN_OUT {
                let rule = hoist(std::mem::replace(&mut **inner, Expr::empty()));
                **inner = Expr::Rule(rule);
                return (times.saturating_mul(2), 1);
            }
            (written_out.saturating_add(1), depth + 1)
        }
    }
}

fn size_of(expr: &Expr, rules: &Sizes) -> (usize, usize) {
    // Measures a copy, because `measure` may change the expression.
    measure(&mut expr.clone(), rules, &mut { usize::MAX }, &mut |_| 0)
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
