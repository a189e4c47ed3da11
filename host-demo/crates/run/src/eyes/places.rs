//! The tokens of pictures in a prompt. Each has an id of its own, made from the picture's hash, so that two prompts have the
//! same ids only as far as they have the same pictures: caches, histories and session files compare nothing else.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, ensure};
use arenite::TokenId;
use arenite::vision::Views;

use super::Sight;

/// Set in the ids that stand for rows of pictures. No vocabulary has so many tokens.
const ROW: TokenId = 1 << 31;

/// Returns true if an id stands for a row of a picture.
pub fn is_row(id: TokenId) -> bool {
    id & ROW != 0
}

/// The tokens of a prompt, and the pictures among them.
#[derive(Clone, Debug, Default)]
pub struct Sights {
    /// The tokens; those of pictures have ids of their own (see [`is_row`]).
    pub ids: Vec<TokenId>,
    /// The pictures' places, in order.
    pub places: Arc<[Place]>,
    /// The token that the model reads in the place of each row.
    pub token: TokenId,
}

/// Adjacent tokens of a view of a picture.
#[derive(Clone, Debug)]
pub struct Place {
    /// Index of the first token in the prompt.
    pub start: usize,
    /// The rows of the picture that stand there.
    pub rows: Range<usize>,
    /// Rows from left to right in the view.
    pub columns: usize,
    pub sight: Arc<Sight>,
}

impl Sights {
    /// Finds the tokens of pictures: each `token` takes the next row.
    pub(super) fn new(mut ids: Vec<TokenId>, sights: Vec<Arc<Sight>>, token: TokenId) -> Result<Self> {
        if sights.is_empty() {
            return Ok(Self { ids, places: Arc::default(), token });
        }
        let found = ids.iter().filter(|id| **id == token).count();
        let needed: usize = sights.iter().map(|sight| sight.views.tokens()).sum();
        ensure!(found == needed, "the pictures have {needed} tokens, and the prompt has room for {found}");
        let mut rows = sights.iter().flat_map(|sight| {
            let views = each(&sight.views).flat_map(|(columns, rows)| rows.map(move |row| (columns, row)));
            views.map(move |(columns, row)| (sight, columns, row))
        });
        let mut places: Vec<Place> = Vec::new();
        for (at, id) in ids.iter_mut().enumerate().filter(|(_, id)| **id == token) {
            let Some((sight, columns, row)) = rows.next() else { break };
            *id = row_id(&sight.key, row);
            let is_next = |last: &&mut Place| {
                last.start + last.rows.len() == at
                    && last.rows.end == row
                    && Arc::ptr_eq(&last.sight, sight)
                    && !begins_view(&sight.views, row)
            };
            match places.last_mut().filter(is_next) {
                Some(last) => last.rows.end += 1,
                None => places.push(Place { start: at, rows: row..row + 1, columns, sight: sight.clone() }),
            }
        }
        Ok(Self { ids, places: places.into(), token })
    }
}

impl Place {
    /// The tokens of the prompt.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.rows.len()
    }
}

/// Columns and rows of each view.
fn each(views: &Views) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
    (0..views.count()).filter_map(|index| views.get(index)).scan(0, |start, view| {
        let rows = *start..*start + view.tokens();
        *start = rows.end;
        Some((view.columns, rows))
    })
}

fn begins_view(views: &Views, row: usize) -> bool {
    each(views).any(|(_, rows)| rows.start == row)
}

/// The id of a row: 31 bits of the picture's hash, others for each of eight rows, and the row.
fn row_id(key: &[u8; 32], row: usize) -> TokenId {
    let word = key.as_chunks::<4>().0[row % 8];
    (u32::from_le_bytes(word) ^ (row as u32).wrapping_mul(0x9e37_79b1)) | ROW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_rows_differ() {
        let (mut one, mut other) = ([7; 32], [7; 32]);
        (one[0], other[31]) = (8, 8);
        assert!((0..100).all(|row| is_row(row_id(&one, row))));
        let common = (0..8).filter(|row| row_id(&one, *row) == row_id(&other, *row)).count();
        assert_eq!(common, 6);
        assert_ne!(row_id(&one, 1), row_id(&one, 9));
    }
}
