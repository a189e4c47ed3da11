//! Grammars assembled from texts, tokens and schemas, for answers with a model's own marks.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;

use super::budget::Budget;
use super::expr::{Chars, Expr, Rules};
use super::{Table, compile, schema};

/// A piece of an answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// This text.
    Text(String),
    /// This token.
    Token(u32),
    /// Any text that does not contain this one.
    Without(String),
    /// Like [`Self::Without`], with a minimum and a maximum number of characters.
    Between(String, u32, Option<u32>),
    /// A JSON value that matches a schema.
    Schema(Value),
    /// Pieces one after the other.
    Seq(Vec<Piece>),
    /// One of these pieces.
    Alt(Vec<Piece>),
    /// A repetition, with a minimum and a maximum count.
    Repeat(Box<Piece>, u32, u32),
    /// A piece that occurs several times: it becomes one rule, so that its occurrences do not multiply the states.
    Rule(Arc<Piece>),
    /// Pieces in this order, with the piece of the second field between any two. A piece with `false` is optional.
    Members(Vec<(Piece, bool)>, Box<Piece>),
}

/// Returns the table of a grammar.
///
/// # Errors
///
/// A schema that the grammar cannot express, or a grammar that exceeds the budget.
pub fn from_pieces(piece: &Piece, budget: &Budget) -> Result<Table> {
    let (mut rules, mut known) = (Rules::default(), Known::default());
    let expr = read(piece, &mut rules, &mut known, budget)?;
    let root = rules.add("$", expr);
    Ok(Table::new(compile(rules, root, budget)?, known.differences))
}

/// The rules of schemas and of shared pieces, which lists of calls repeat. A shared piece is known by its address.
#[derive(Default)]
struct Known<'p> {
    schemas: HashMap<&'p Value, usize>,
    pieces: HashMap<*const Piece, usize>,
    differences: Vec<String>,
}

/// Converts a piece.
fn read<'p>(piece: &'p Piece, rules: &mut Rules, known: &mut Known<'p>, budget: &Budget) -> Result<Expr> {
    let mut all = |pieces: &'p [Piece], rules: &mut Rules| -> Result<Vec<Expr>> {
        pieces.iter().map(|piece| read(piece, rules, known, budget)).collect()
    };
    Ok(match piece {
        Piece::Text(text) => Expr::text(text),
        Piece::Token(id) => Expr::Token(*id),
        Piece::Without(text) => without(text),
        Piece::Between(text, least, most) => {
            let counted = Expr::Chars(Chars::any()).repeat(*least, *most);
            Expr::Both(Box::new(counted), Box::new(without(text)))
        }
        Piece::Schema(schema) => {
            if let Some(rule) = known.schemas.get(schema) {
                return Ok(Expr::Rule(*rule));
            }
            let schema::Read { rules: more, root, differences } = schema::read(schema, budget)?;
            known.differences.extend(differences);
            let first = rules.0.len();
            known.schemas.insert(schema, first + root);
            for mut rule in more.0 {
                shift(&mut rule.expr, first);
                rules.0.push(rule);
            }
            Expr::Rule(first + root)
        }
        Piece::Rule(piece) => match known.pieces.get(&Arc::as_ptr(piece)) {
            Some(rule) => Expr::Rule(*rule),
            None => {
                let expr = read(piece, rules, known, budget)?;
                let rule = rules.add("$", expr);
                known.pieces.insert(Arc::as_ptr(piece), rule);
                Expr::Rule(rule)
            }
        },
        Piece::Seq(pieces) => Expr::Seq(all(pieces, rules)?),
        Piece::Alt(pieces) => Expr::Alt(all(pieces, rules)?),
        Piece::Repeat(piece, least, most) => read(piece, rules, known, budget)?.repeat(*least, *most),
        Piece::Members(members, separator) => {
            let mut each = Vec::new();
            for (piece, is_required) in members {
                each.push((read(piece, rules, known, budget)?, *is_required));
            }
            let (members, separator) = (each, Box::new(read(separator, rules, known, budget)?));
            Expr::Members { members, rest: None, separator }
        }
    })
}

/// Any text that does not contain `text`.
fn without(text: &str) -> Expr {
    let any = || Expr::Chars(Chars::any()).repeat(0, None);
    Expr::Minus(Box::new(any()), Box::new(Expr::seq([any(), Expr::text(text), any()])))
}

/// Adds `first` to the rule numbers in an expression.
fn shift(expr: &mut Expr, first: usize) {
    match expr {
        Expr::Rule(rule) => *rule += first,
        Expr::Seq(parts) | Expr::Alt(parts) => parts.iter_mut().for_each(|part| shift(part, first)),
        Expr::Repeat(inner, ..) | Expr::At(_, inner) => shift(inner, first),
        Expr::Both(a, b) | Expr::Minus(a, b) => {
            shift(a, first);
            shift(b, first);
        }
        Expr::Members { members, rest, separator } => {
            members.iter_mut().for_each(|(member, _)| shift(member, first));
            rest.iter_mut().for_each(|rest| shift(rest, first));
            shift(separator, first);
        }
        Expr::Bytes(_) | Expr::Chars(_) | Expr::Token(_) | Expr::NotToken(_) | Expr::Multiple(_) => {}
    }
}
