//! Grammars of answers that contain a model's own delimiters. They are assembled from texts, tokens and schemas.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;

use super::budget::Budget;
use super::expr::{Chars, Expr};
use super::schema::Schemas;
use super::{Table, of_schemas};

/// A piece of an answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// This text.
    Text(String),
    /// This token.
    Token(u32),
    /// Any text that does not contain this one.
    Without(String),
    /// Any text that does not contain this one, with a minimum and a maximum number of characters.
    Between(String, u32, Option<u32>),
    /// A JSON value that matches a schema.
    Schema(Value),
    /// Pieces one after the other.
    Seq(Vec<Piece>),
    /// One of these pieces.
    Alt(Vec<Piece>),
    /// A repetition, with a minimum and a maximum count.
    Repeat(Box<Piece>, u32, u32),
    /// A piece that occurs several times: the piece becomes one rule, so that the states are not repeated for each
    /// occurrence.
    Rule(Arc<Piece>),
    /// The pieces of the list in this order, with the piece in the second field between any two. A piece whose flag is
    /// false is optional.
    Members(Vec<(Piece, bool)>, Box<Piece>),
}

/// Returns the table of a grammar.
///
/// # Errors
///
/// A schema that the grammar cannot express, or a grammar that exceeds the budget.
pub fn from_pieces(piece: &Piece, budget: &Budget) -> Result<Table> {
    of_schemas(budget, |all| {
        let expr = Known { all, schemas: HashMap::new(), pieces: HashMap::new() }.read(piece, budget)?;
        Ok(all.rules.add("$", expr))
    })
}

/// The rules made so far of schemas and of shared pieces, so that a schema or piece that occurs again, as in lists of
/// calls, is compiled only once. A shared piece is identified by its address.
struct Known<'p, 's> {
    all: &'s mut Schemas,
    schemas: HashMap<&'p Value, usize>,
    pieces: HashMap<*const Piece, usize>,
}

impl<'p> Known<'p, '_> {
    /// Converts a piece.
    fn read(&mut self, piece: &'p Piece, budget: &Budget) -> Result<Expr> {
        let mut each = |pieces: &'p [Piece]| pieces.iter().map(|piece| self.read(piece, budget)).collect::<Result<_>>();
        Ok(match piece {
            Piece::Text(text) => Expr::text(text),
            Piece::Token(id) => Expr::Token(*id),
            Piece::Without(text) => without(text),
            Piece::Between(text, least, most) => {
                let counted = Expr::Chars(Chars::any()).repeat(*least, *most);
                Expr::Both(Box::new(counted), Box::new(without(text)))
            }
            Piece::Schema(schema) => {
                if let Some(rule) = self.schemas.get(schema) {
                    return Ok(Expr::Rule(*rule));
                }
                let rule = self.all.add(schema, budget)?;
                self.schemas.insert(schema, rule);
                Expr::Rule(rule)
            }
            Piece::Rule(piece) => {
                if let Some(rule) = self.pieces.get(&Arc::as_ptr(piece)) {
                    return Ok(Expr::Rule(*rule));
                }
                let expr = self.read(piece, budget)?;
                let rule = self.all.rules.add("$", expr);
                self.pieces.insert(Arc::as_ptr(piece), rule);
                Expr::Rule(rule)
            }
            Piece::Seq(pieces) => Expr::Seq(each(pieces)?),
            Piece::Alt(pieces) => Expr::Alt(each(pieces)?),
            Piece::Repeat(piece, least, most) => self.read(piece, budget)?.repeat(*least, *most),
            Piece::Members(members, separator) => {
                let each = members.iter().map(|(piece, is_required)| Ok((self.read(piece, budget)?, *is_required)));
                let members = each.collect::<Result<_>>()?;
                let separator = Box::new(self.read(separator, budget)?);
                Expr::Members { members, rest: None, separator }
            }
        })
    }
}

/// Any text that does not contain `text`.
fn without(text: &str) -> Expr {
    let any = || Expr::Chars(Chars::any()).repeat(0, None);
    Expr::Minus(Box::new(any()), Box::new(Expr::seq([any(), Expr::text(text), any()])))
}
