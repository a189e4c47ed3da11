//! Makes rules of the parts that a large grammar repeats many times, such as the texts and spaces in the schemas of a
//! hundred functions. Each copy of a part would take several states; a call takes one state.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use anyhow::Result;

use super::budget::Budget;
use super::expr::{Expr, Rules};

/// Number of occurrences from which on a part is shared.
const MANY: usize = 32;
/// Minimum size of a shared part.
const LEAST: usize = 6;

/// Finds parts of rules that occur often, and replaces each of them by the call of a new rule. Returns the numbers of
/// the new rules.
pub fn repeated_parts(rules: &mut Rules, budget: &Budget) -> Result<Vec<usize>> {
    let parts: usize = rules.0.iter().map(|rule| rule.expr.parts()).sum();
    budget.steps(parts)?;
    let mut known = Vec::with_capacity(parts);
    rules.0.iter().for_each(|rule| _ = describe(&rule.expr, &mut known));
    let mut times: HashMap<u64, usize> = HashMap::new();
    known.iter().filter(|part| part.may_be_rule).for_each(|part| *times.entry(part.hash).or_default() += 1);
    times.retain(|_, times| *times >= MANY);
    let first = rules.0.len();
    let mut shared = Shared { known: known.into_iter(), times, rules: HashMap::new(), made: Vec::new(), first };
    rules.0.iter_mut().for_each(|rule| shared.replace(&mut rule.expr));
    let made = shared.made;
    let last = first + made.len();
    made.into_iter().for_each(|expr| _ = rules.add("$", expr));
    Ok((first..last).collect())
}

/// A part of an expression.
struct Known {
    hash: u64,
    /// The descriptions of the expression's parts follow this description. This is their number.
    inner: usize,
    may_be_rule: bool,
}

/// Describes an expression and then its parts, in order. Expressions that differ only in their place in the source have
/// the same hash. Returns the hash and the size.
fn describe(expr: &Expr, known: &mut Vec<Known>) -> (u64, usize) {
    if let Expr::At(_, inner) = expr {
        return describe(inner, known);
    }
    let at = known.len();
    known.push(Known { hash: 0, inner: 0, may_be_rule: false });
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(expr).hash(&mut hasher);
    let mut size = 1;
    match expr {
        Expr::Bytes(bytes) => bytes.hash(&mut hasher),
        Expr::Chars(chars) => {
            chars.ranges().hash(&mut hasher);
            size += chars.ranges().len();
        }
        Expr::Token(number) | Expr::NotToken(number) | Expr::Multiple(number) => number.hash(&mut hasher),
        Expr::Rule(rule) => rule.hash(&mut hasher),
        Expr::Repeat(_, min, max) => (min, max).hash(&mut hasher),
        Expr::Members { members, rest, .. } => {
            members.iter().for_each(|(_, is_required)| is_required.hash(&mut hasher));
            rest.is_some().hash(&mut hasher);
        }
        Expr::Seq(_) | Expr::Alt(_) | Expr::Both(..) | Expr::Minus(..) | Expr::At(..) => {}
    }
    for child in expr.children() {
        let (hash, part) = describe(child, known);
        hash.hash(&mut hasher);
        size += part;
    }
    if matches!(expr, Expr::Both(..) | Expr::Minus(..) | Expr::Repeat(..)) {
        // These parts must not contain calls. Operands of an intersection or a difference cannot contain calls, and in
        // a repetition each count could take a separate stack at run time.
        known.truncate(at + 1);
    }
    let hash = hasher.finish();
    known[at] = Known { hash, inner: known.len() - at - 1, may_be_rule: size >= LEAST };
    (hash, size)
}

/// The parts that become rules.
struct Shared {
    /// Descriptions of all parts that are still to be visited.
    known: std::vec::IntoIter<Known>,
    /// Number of occurrences of each part that occurs often. The key is the hash of the part.
    times: HashMap<u64, usize>,
    /// The index in `made` by the part's hash.
    rules: HashMap<u64, usize>,
    made: Vec<Expr>,
    /// The number of the first new rule.
    first: usize,
}

impl Shared {
    /// Replaces the parts of an expression that occur often, the largest parts first.
    fn replace(&mut self, expr: &mut Expr) {
        if let Expr::At(_, inner) = expr {
            return self.replace(inner);
        }
        let Some(Known { hash, inner, may_be_rule }) = self.known.next() else { return };
        if may_be_rule && self.times.contains_key(&hash) {
            let at = *self.rules.entry(hash).or_insert_with(|| {
                self.made.push(plain(expr));
                self.made.len() - 1
            });
            *expr = Expr::Rule(self.first + at);
            self.known.by_ref().take(inner).for_each(drop);
            return;
        }
        match expr {
            Expr::Seq(parts) | Expr::Alt(parts) => parts.iter_mut().for_each(|part| self.replace(part)),
            Expr::Members { members, rest, separator } => {
                members.iter_mut().for_each(|(member, _)| self.replace(member));
                rest.iter_mut().for_each(|rest| self.replace(rest));
                self.replace(separator);
            }
            _ => {}
        }
    }
}

/// Returns an expression without places in the source.
fn plain(expr: &Expr) -> Expr {
    let boxed = |expr: &Expr| Box::new(plain(expr));
    match expr {
        Expr::At(_, inner) => plain(inner),
        Expr::Seq(parts) => Expr::Seq(parts.iter().map(plain).collect()),
        Expr::Alt(parts) => Expr::Alt(parts.iter().map(plain).collect()),
        Expr::Repeat(inner, min, max) => Expr::Repeat(boxed(inner), *min, *max),
        Expr::Both(a, b) => Expr::Both(boxed(a), boxed(b)),
        Expr::Minus(a, b) => Expr::Minus(boxed(a), boxed(b)),
        Expr::Members { members, rest, separator } => Expr::Members {
            members: members.iter().map(|(member, is_required)| (plain(member), *is_required)).collect(),
            rest: rest.as_deref().map(boxed),
            separator: boxed(separator),
        },
        expr => expr.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_occur_often_become_one_rule() {
        let letters =
            || Expr::alt([Expr::text("a"), Expr::text("b"), Expr::text("c"), Expr::text("d"), Expr::text("e")]);
        for (copies, rules_made) in [(MANY - 1, 0), (MANY, 1)] {
            let place = |at: usize| Expr::At(format!("$.{at}"), Box::new(letters()));
            let mut rules = Rules::default();
            rules.add("$", Expr::Seq((0..copies).map(place).collect()));
            let made = repeated_parts(&mut rules, &Budget::of_command()).unwrap();
            assert_eq!((made.len(), rules.0.len()), (rules_made, 1 + rules_made));
            if let [made] = made[..] {
                assert!(rules.0[0].expr.rules().iter().all(|rule| *rule == made) && rules.0[made].expr == letters());
            }
        }
    }
}
