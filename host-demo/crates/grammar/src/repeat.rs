//! Compiles large repetitions to calls of rules that repeat in powers of a base, instead of one copy per repetition.
//!
//! `x{0,65536}` becomes calls of `u ::= x{50}`, of `v ::= u{32}`, and of a rule for fewer than 50 repetitions. The
//! number of states grows with the logarithm of the number of repetitions, and all repetitions of an expression share
//! the rules.

use super::automaton::Nfa;
use super::budget::Budget;
use super::expr::Expr;

/// A [counted](is_counted) repetition is written out if it has at most this many states.
const COUNTED: usize = 2_000;
/// A repetition that is not [counted](is_counted) is written out if it has at most this many states. The limit is
/// higher than for a counted one, because calls cost more here: at run time, a separate stack is needed for each count
/// that a text can have.
const WRITTEN_OUT: usize = 20_000;
/// Budget for repetitions that are written out although they exceed [`WRITTEN_OUT`]: the maximum number of states of
/// all such repetitions in a grammar.
const LARGE_WRITTEN_OUT: usize = 400_000;
/// The maximum number of states in a rule that is made for a repetition. The number is large, so that a text needs few
/// calls of the rule: a token whose text continues after the end of a call must be tested by itself.
const CALL: usize = 2_000;
/// Number of times that the rule of each level repeats the rule of the level below.
const BASE: u64 = 32;

/// Number of states of a repetition that is written out. An expression without states counts as one state, because even
/// repeating such an expression takes time.
pub fn written_out(size: usize, min: u32, max: Option<u32>) -> usize {
    let times = max.unwrap_or(min.saturating_add(1)).max(1);
    size.max(1).saturating_mul(times as usize)
}

/// Returns true if each text that consists of repetitions of `expr` determines the number of the repetitions. The test
/// is stricter than that: `expr` must not match the empty text, and no character can both extend a match and begin the
/// next one.
pub fn is_counted<'r>(expr: &'r Expr, inlined: &'r dyn Fn(usize) -> Option<&'r Expr>, budget: &'r Budget) -> bool {
    let Ok(automaton) = Nfa::compile(expr, inlined, budget) else { return false };
    let [first, ..] = automaton.nodes.as_slice() else { return false };
    let is_apart = |(start, end, _): &(u8, u8, u32)| first.ranges.iter().all(|(a, b, _)| b < start || end < a);
    let calls_last = |node: &super::Node| node.letters.iter().any(|(_, to)| automaton.nodes[*to as usize].is_final);
    !first.is_final
        && automaton.nodes.iter().all(|node| {
            let is_clear = node.letters.is_empty() && node.ranges.iter().all(is_apart);
            !calls_last(node) && (!node.is_final || is_clear && (first.letters.is_empty() || node.ranges.is_empty()))
        })
}

/// The rules made so far, which all repetitions share. The number is the sum of the states of those large repetitions
/// that were written out instead of becoming rules.
#[derive(Default)]
pub struct Known(Vec<(Expr, usize)>, usize);

/// Makes rules for the large repetitions of a rule.
pub struct Large<'a> {
    known: &'a mut Known,
    /// Number of the next rule.
    next: usize,
    rules: Vec<Expr>,
    /// Innermost location in the grammar, for error messages.
    pub place: Option<String>,
    is_counted: &'a dyn Fn(&Expr) -> bool,
}

impl<'a> Large<'a> {
    pub fn new(known: &'a mut Known, next: usize, is_counted: &'a dyn Fn(&Expr) -> bool) -> Self {
        Self { known, next, rules: Vec::new(), place: None, is_counted }
    }

    /// The rules in the order of their numbers.
    pub fn into_rules(self) -> Vec<Expr> {
        self.rules
    }

    /// Compiles a repetition of `inner` as calls of rules, if writing it out would take too many states. Returns the
    /// expression and its number of states; `None` if the repetition is written out instead. `size` is the number of
    /// states of `inner`.
    pub fn repeat(&mut self, inner: &Expr, (min, max): (u32, Option<u32>), size: usize) -> Option<(Expr, usize)> {
        let written_out = written_out(size, min, max);
        if max.unwrap_or(min) < 2 || written_out <= COUNTED {
            return None;
        }
        if size > CALL || !(self.is_counted)(inner) {
            let is_small = size <= 12 || written_out <= WRITTEN_OUT;
            let fits = self.known.1 + written_out <= LARGE_WRITTEN_OUT;
            if is_small || fits {
                self.known.1 += if is_small { 0 } else { written_out };
                return None;
            }
        }
        let unit = (CALL / size.max(1)).max(1) as u32;
        Some((self.calls(inner, unit, min, max), 1000))
    }

    /// Returns a call of a rule with this expression.
    fn rule(&mut self, expr: Expr) -> Expr {
        if let Expr::Repeat(inner, min, Some(0..=1)) = &expr
            && (*min == 0 || matches!(**inner, Expr::Rule(_)))
        {
            return expr;
        }
        if let Some((_, rule)) = self.known.0.iter().find(|(known, _)| *known == expr) {
            return Expr::Rule(*rule);
        }
        let number = self.next + self.rules.len();
        self.known.0.push((expr.clone(), number));
        self.rules.push(match &self.place {
            Some(place) => Expr::At(place.clone(), Box::new(expr)),
            None => expr,
        });
        Expr::Rule(number)
    }

    fn calls(&mut self, inner: &Expr, unit: u32, min: u32, max: Option<u32>) -> Expr {
        let exactly = |expr: &Expr, times: u64| expr.clone().repeat(times as u32, times as u32);
        let most = u64::from(max.unwrap_or(min));
        let call = self.rule(if unit == 1 { inner.clone() } else { exactly(inner, unit.into()) });
        let inner = if unit == 1 { &call.clone() } else { inner };
        // For each level: the call of the level's rule, and the number of times that this call repeats `inner`.
        let mut levels = vec![(call, u64::from(unit))];
        while let Some((call, times)) = levels.last()
            && times * BASE <= most
        {
            let next = exactly(call, BASE);
            let times = times * BASE;
            levels.push((self.rule(next), times));
        }
        levels.reverse();
        let (mut parts, mut left) = (Vec::new(), u64::from(min));
        for (call, times) in &levels {
            parts.push(exactly(call, left / times));
            left %= times;
        }
        parts.push(self.rule(exactly(inner, left)));
        parts.push(match max {
            None => inner.clone().repeat(0, None),
            Some(max) => self.at_most(inner, &levels, u64::from(max - min)),
        });
        Expr::Seq(parts)
    }

    /// Matches `inner` up to `left` times.
    fn at_most(&mut self, inner: &Expr, levels: &[(Expr, u64)], mut left: u64) -> Expr {
        let up_to = |expr: &Expr, most: u64| expr.clone().repeat(0, most as u32);
        let mut before: Vec<Expr> = Vec::new();
        // Alternatives for fewer than `left` repetitions, one for each level: as many calls of each larger level as
        // `left` contains, then fewer calls of this level than `left` contains, then any number of calls of the smaller
        // levels. After each alternative follow fewer repetitions than one call of the smallest level has.
        let mut fewer: Vec<Expr> = Vec::new();
        for (at, (call, times)) in levels.iter().enumerate() {
            let calls = left / times;
            if calls > 0 {
                let after = levels[at + 1..].iter().map(|(call, _)| up_to(call, BASE - 1));
                let here = up_to(call, calls - 1);
                fewer.push(Expr::seq(before.iter().cloned().chain([here]).chain(after)));
            }
            before.push(call.clone().repeat(calls as u32, calls as u32));
            left %= times;
        }
        let all = Expr::seq(before.into_iter().chain([self.rule(up_to(inner, left))]));
        if fewer.is_empty() {
            return all;
        }
        let unit = levels.last().map_or(1, |(_, times)| *times);
        Expr::alt([Expr::seq([Expr::alt(fewer), self.rule(up_to(inner, unit - 1))]), all])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the lengths in bytes of the texts that an expression matches.
    fn lengths(expr: &Expr, rules: &[Expr]) -> BTreeSet<u64> {
        let sums = |a: &BTreeSet<u64>, b: &BTreeSet<u64>| a.iter().flat_map(|a| b.iter().map(move |b| a + b)).collect();
        let none = BTreeSet::from([0]);
        match expr {
            Expr::Bytes(bytes) => BTreeSet::from([bytes.len() as u64]),
            Expr::Seq(parts) => parts.iter().fold(none, |all, part| sums(&all, &lengths(part, rules))),
            Expr::Alt(parts) => parts.iter().flat_map(|part| lengths(part, rules)).collect(),
            Expr::Rule(rule) => lengths(&rules[*rule], rules),
            Expr::Repeat(inner, min, max) => {
                let inner = lengths(inner, rules);
                let mut all = BTreeSet::new();
                let mut these = none;
                for times in 0..=max.unwrap() {
                    if times >= *min {
                        all.extend(&these);
                    }
                    these = sums(&these, &inner);
                }
                all
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn calls_repeat_as_often_as_the_repetition() {
        let x = Expr::text("x");
        for (unit, min, max) in
            [(1, 0, 40), (1, 32, 33), (1, 0, 1025), (2, 3, 64), (2, 0, 65), (3, 95, 96), (3, 7, 500)]
        {
            let mut known = Known::default();
            let mut large = Large::new(&mut known, 0, &|_| true);
            let calls = large.calls(&x, unit, min, Some(max));
            let wanted: BTreeSet<u64> = (min.into()..=max.into()).collect();
            assert_eq!(lengths(&calls, &large.into_rules()), wanted, "{unit} {min} {max}");
        }
    }
}
