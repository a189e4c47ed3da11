//! The tokens of pictures in a prompt. The id of each such token is computed from the picture's hash, because caches,
//! histories and session files compare only ids: prompts with different pictures must have different ids.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, ensure};
use arenite::vision::Views;
use arenite::{Session, Span, TokenId, Work};

use super::Sight;

/// Bit that is set in the ids of picture rows. It is set in no other id, because no vocabulary has so many tokens.
const ROW: TokenId = 1 << 31;

/// Returns true if an id stands for a row of a picture.
pub fn is_row(id: TokenId) -> bool {
    id & ROW != 0
}

/// The tokens of a prompt, and the pictures among them.
#[derive(Clone, Debug, Default)]
pub struct Sights {
    /// The tokens of the prompt. In place of a picture, they have the ids of its rows (see [`is_row`]).
    pub ids: Vec<TokenId>,
    /// The positions of the pictures.
    pub shown: Shown,
}

/// The positions of pictures in a prompt. The prompt is read in pieces, and no piece ends inside a picture.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The places, in order.
    pub places: Arc<[Place]>,
    /// The id that the engine gets for each row.
    pub token: TokenId,
}

/// A piece of a prompt as the engine reads it.
pub struct Piece<'p> {
    /// The tokens.
    pub ids: Cow<'p, [TokenId]>,
    /// The rows of pictures among them.
    pub spans: Vec<Span<'p>>,
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
    /// Finds the places of pictures in a prompt: in `ids`, each occurrence of `token` becomes the next row of the
    /// pictures.
    pub(super) fn new(mut ids: Vec<TokenId>, sights: &[Arc<Sight>], token: TokenId) -> Result<Self> {
        if sights.is_empty() {
            return Ok(ids.into());
        }
        let found = ids.iter().filter(|id| **id == token).count();
        let needed: usize = sights.iter().map(|sight| sight.views.tokens()).sum();
        ensure!(found == needed, "the pictures have {needed} tokens, and the prompt has room for {found}");
        let mut tokens = ids.iter_mut().enumerate().filter(|(_, id)| **id == token);
        let mut places: Vec<Place> = Vec::new();
        for sight in sights {
            for (columns, rows) in views(&sight.views) {
                let first = rows.start;
                for row in rows {
                    let Some((at, id)) = tokens.next() else { break };
                    *id = row_id(&sight.key, row);
                    // A row is added to the last place if it follows that place directly. If there is a token between
                    // two lines of rows, such as `[IMG_BREAK]`, a new place begins.
                    match places.last_mut().filter(|last| row > first && last.range().end == at) {
                        Some(last) => last.rows.end += 1,
                        None => places.push(Place { start: at, rows: row..row + 1, columns, sight: sight.clone() }),
                    }
                }
            }
        }
        Ok(Self { ids, shown: Shown { places: places.into(), token } })
    }

    /// Puts the tokens `before` in front of these.
    #[must_use]
    pub fn after(self, mut before: Vec<TokenId>) -> Self {
        let moved = |place: &Place| Place { start: place.start + before.len(), ..place.clone() };
        let places = self.shown.places.iter().map(moved).collect();
        before.extend(self.ids);
        Self { ids: before, shown: Shown { places, ..self.shown } }
    }
}

impl From<Vec<TokenId>> for Sights {
    fn from(ids: Vec<TokenId>) -> Self {
        Self { ids, shown: Shown::default() }
    }
}

impl Shown {
    /// True if there are no pictures.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the range of a picture's tokens if the token `at` is inside of it, so that a cut before this token would
    /// divide the picture.
    fn around(&self, at: usize) -> Option<Range<usize>> {
        self.places.iter().map(Place::range).find(|range| range.start < at && at < range.end)
    }

    /// Returns `at`, or the start of the picture if the position `at` is inside a picture.
    pub fn whole(&self, at: usize) -> usize {
        self.around(at).map_or(at, |range| range.start)
    }

    /// Returns the end of a piece of about `count` tokens that starts at `from`. Each picture is in one piece as a
    /// whole. A picture at the start of a piece may have more than `count` tokens; the engine then needs several
    /// passes.
    pub fn end(&self, from: usize, count: usize) -> usize {
        let end = from + count;
        match self.around(end) {
            Some(range) if range.start > from => range.start,
            Some(range) => range.end,
            None => end,
        }
    }

    /// Returns the piece of a conversation with the tokens of `range`. `ids` has all tokens of the conversation.
    pub fn piece<'p>(&'p self, ids: &'p [TokenId], range: Range<usize>) -> Piece<'p> {
        let inside = self.places.iter().filter(|place| range.start <= place.start && place.range().end <= range.end);
        let spans: Vec<_> = inside.map(|place| place.span(range.start)).collect();
        let ids = &ids[range];
        let plain = |id: &TokenId| if is_row(*id) { self.token } else { *id };
        let ids = if spans.is_empty() { Cow::Borrowed(ids) } else { Cow::Owned(ids.iter().map(plain).collect()) };
        Piece { ids, spans }
    }
}

/// Reads a whole prompt.
///
/// # Errors
///
/// The errors of [`Engine::run`](arenite::Engine::run).
pub fn prefill(session: &mut Session<'_, '_>, sights: &Sights) -> Result<()> {
    let Piece { ids, spans } = sights.shown.piece(&sights.ids, 0..sights.ids.len());
    let (engine, context) = session.parts();
    Ok(engine.run(&mut [Work::prefill(context, &ids).pictures(&spans)])?)
}

impl Place {
    /// The tokens of the prompt.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.rows.len()
    }

    /// The rows, for a work that begins with token `from`.
    fn span(&self, from: usize) -> Span<'_> {
        let Sight { rows, row_len, is_together, .. } = &*self.sight;
        let values = rows.get(self.rows.start * row_len..self.rows.end * row_len).unwrap_or_default();
        Span::new(self.start - from, values, *row_len, self.columns).together(*is_together)
    }
}

/// Columns and rows of each view.
fn views(views: &Views) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
    (0..views.count()).filter_map(|index| views.get(index)).scan(0, |start, view| {
        let rows = *start..*start + view.tokens();
        *start = rows.end;
        Some((view.columns, rows))
    })
}

/// Returns the id of a row: 31 bits of the picture's hash, combined with the number of the row. Eight adjacent rows use
/// different bits of the hash, so their ids together depend on the whole hash.
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
