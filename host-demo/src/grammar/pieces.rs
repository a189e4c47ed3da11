//! Grammars put together from texts, tokens and schemas: answers around which a model writes marks of its own.

use anyhow::Result;
use serde_json::Value;

use super::budget::Budget;
use super::expr::{Chars, Expr, Rules};
use super::{compile, schema};

/// What a stretch of an answer may be.
#[derive(Clone, Debug)]
pub enum Piece {
    Text(String),
    /// This token.
    Token(u32),
    /// Any number of tokens other than this.
    NotToken(u32),
    /// Any text in which this one does not occur.
    Without(String),
    /// The same, with a least and a greatest number of characters.
    Between(String, u32, Option<u32>),
    /// A value that a schema describes, as JSON.
    Schema(Value),
    Seq(Vec<Piece>),
    Alt(Vec<Piece>),
    /// A number of times, at least the first and at most the second.
    Repeat(Box<Piece>, u32, u32),
    /// These in order, those that are not required as one likes, with the second between any two.
    Members(Vec<(Piece, bool)>, Box<Piece>),
}

/// The table of a grammar.
pub fn from_pieces(piece: &Piece) -> Result<Vec<u8>> {
    let budget = Budget::new();
    let mut rules = Rules::default();
    let expr = read(piece, &mut rules, &budget)?;
    let root = rules.add("$", expr);
    compile(rules, root, &budget)
}

fn read(piece: &Piece, rules: &mut Rules, budget: &Budget) -> Result<Expr> {
    let all = |pieces: &[Piece], rules: &mut Rules| -> Result<Vec<Expr>> {
        pieces.iter().map(|piece| read(piece, rules, budget)).collect()
    };
    Ok(match piece {
        Piece::Text(text) => Expr::text(text),
        Piece::Token(id) => Expr::Token(*id),
        Piece::NotToken(id) => Expr::NotToken(*id).repeat(0, None),
        Piece::Without(text) => without(text),
        Piece::Between(text, least, most) => {
            let counted = Expr::Chars(Chars::any()).repeat(*least, *most);
            Expr::Both(Box::new(counted), Box::new(without(text)))
        }
        Piece::Schema(schema) => {
            let (more, root) = schema::read(schema, budget)?;
            let first = rules.0.len();
            for mut rule in more.0 {
                shift(&mut rule.expr, first);
                rules.0.push(rule);
            }
            Expr::Rule(first + root)
        }
        Piece::Seq(pieces) => Expr::Seq(all(pieces, rules)?),
        Piece::Alt(pieces) => Expr::Alt(all(pieces, rules)?),
        Piece::Repeat(piece, least, most) => read(piece, rules, budget)?.repeat(*least, *most),
        Piece::Members(members, separator) => {
            let read_member = |(piece, is_required): &(Piece, bool)| Ok((read(piece, rules, budget)?, *is_required));
            let members = members.iter().map(read_member).collect::<Result<Vec<_>>>()?;
            let separator = Box::new(read(separator, rules, budget)?);
            Expr::Members { members, rest: None, separator }
        }
    })
}

/// Any text in which `text` does not occur.
fn without(text: &str) -> Expr {
    let any = || Expr::Chars(Chars::any()).repeat(0, None);
    Expr::Minus(Box::new(any()), Box::new(Expr::seq([any(), Expr::text(text), any()])))
}

/// Numbers the rules that an expression names from `first` on.
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
