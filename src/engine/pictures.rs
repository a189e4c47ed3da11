//! Rows of pictures, which a model reads in place of the embeddings of tokens.
//!
//! A row replaces a token's embedding. Further vectors of a row are added after the first layers. In models with rotary
//! positions of several axes, each row of a picture has a time, a line and a column. The time is the picture's position
//! for all rows; the next token's position is one more than the largest of all times, lines and columns. [`Turn`]s
//! store the difference between rotary positions and positions in the cache.

use super::forward::Forward;
use super::layout::Segment;
use super::picture_turns::Turn;
use super::{Engine, Work};
use crate::{Error, TokenId};

/// Rows of a picture, computed by an [`Encoder`](crate::vision::Encoder), that a model reads in place of tokens'
/// embeddings.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Span<'r> {
    /// Index, among the tokens of a work, of the first token whose embedding is replaced by a row of this span.
    pub start: usize,
    /// `[tokens][row_len]`: for each token of the picture, an embedding, then one vector for each of the model's first
    /// layers, to be added to the layer's output. All of these vectors have the model's width.
    pub rows: &'r [f32],
    /// Elements of a row: a multiple of the model's width.
    pub row_len: usize,
    /// Number of rows of a picture that are side by side, from left to right. It is needed for models whose rotary
    /// positions have several axes.
    pub columns: usize,
    /// True if each token of the span attends to all tokens of the span, including later tokens. The span then has at
    /// most [`Options::batch`](crate::Options::batch) tokens.
    pub together: bool,
}

impl<'r> Span<'r> {
    /// Creates a span of a picture's rows that attend only to earlier tokens, as the tokens of a text do.
    pub fn new(start: usize, rows: &'r [f32], row_len: usize, columns: usize) -> Self {
        Self { start, rows, row_len, columns, together: false }
    }

    /// If `together` is true, each token of the span attends to all tokens of the span, including later ones.
    #[must_use]
    pub fn together(self, together: bool) -> Self {
        Self { together, ..self }
    }

    /// Number of tokens that the rows replace.
    pub fn tokens(&self) -> usize {
        self.rows.len().checked_div(self.row_len).unwrap_or(0)
    }

    /// Index of the first token after the span.
    pub(super) fn end(&self) -> usize {
        self.start + self.tokens()
    }

    /// Rotary positions that the picture takes.
    fn positions(&self) -> usize {
        self.columns.max(self.tokens().checked_div(self.columns).unwrap_or(0))
    }

    /// The row of token `index` consists of several vectors of `dim` elements. Returns vector number `stream`.
    fn vector(&self, index: usize, stream: usize, dim: usize) -> Option<&'r [f32]> {
        let row = self.rows.get(index.checked_sub(self.start)? * self.row_len..)?.get(..self.row_len)?;
        row.get(stream * dim..(stream + 1) * dim)
    }
}

impl<'c> Work<'c> {
    /// Replaces the embeddings of some of the tokens by rows of pictures. The spans are in order and do not overlap.
    ///
    /// Replaced tokens count like other tokens, for example in [`Context::position`](super::Context::position). The ids
    /// of replaced tokens must be in the vocabulary; usually all are the id of the model's image token.
    #[must_use]
    pub fn pictures(mut self, pictures: &'c [Span<'c>]) -> Self {
        self.pictures = pictures;
        self
    }

    /// Returns the number of tokens, at most `taken`, that the next pass should read, so that no span of tokens that
    /// attend to each other is cut.
    pub(super) fn without_cuts(&self, taken: usize) -> usize {
        let end = self.done + taken;
        let cut = self.pictures.iter().find(|span| span.together && span.start < end && end < span.end());
        cut.map_or(taken, |span| span.start.saturating_sub(self.done))
    }

    /// Returns the length of the segment that begins at token `index` and ends at token `end` or before, and whether
    /// the segment's tokens attend to each other. A picture whose tokens attend to each other is never divided between
    /// segments.
    pub(super) fn segment(&self, index: usize, end: usize) -> (usize, bool) {
        match self.pictures.iter().find(|span| span.together && span.end() > index) {
            Some(span) if span.start <= index => (span.end().min(end) - index, true),
            Some(span) => (span.start.min(end) - index, false),
            None => (end - index, false),
        }
    }
}

impl Forward<'_, '_> {
    /// Adds the next tokens of a work to the pass. The tokens are divided into segments, and a span of tokens that
    /// attend to each other is one segment. Returns the number of added tokens. It is less than the number of `tokens`
    /// if the pass has no room for further segments.
    pub(super) fn add_parts(&mut self, work: &Work<'_>, all: Segment, tokens: &[TokenId]) -> usize {
        let mut added = 0;
        while let Some(rest) = tokens.get(added..).filter(|rest| !rest.is_empty() && self.room() > 0) {
            let index = work.done + added;
            let (count, together) = work.segment(index, index + rest.len());
            let Some(part) = rest.get(..count) else { break };
            let position = all.position + added as u32;
            let segment = Segment { position, tokens: count as u32, source: all.source | u32::from(together), ..all };
            let first = self.add(segment, part);
            self.place_pictures(work, (index, count), first);
            added += count;
        }
        added
    }

    /// Replaces the embeddings of those tokens that belong to pictures, and sets the rotary positions of all given
    /// tokens. The tokens are the `count` tokens of the work from index `index` on. The first of them is row `first` of
    /// the pass. The position of the work's context is still that before these tokens.
    pub(super) fn place_pictures(&mut self, work: &Work<'_>, (index, count): (usize, usize), first: usize) {
        let (slot, position) = (work.context.slot, work.context.position);
        for (index, row) in (index..index + count).zip(first..) {
            let span = work.pictures.iter().find(|span| (span.start..span.end()).contains(&index));
            if let Some(vector) = span.and_then(|span| span.vector(index, 0, self.spec.dim)) {
                self.replace(row, vector);
            }
            if self.spec.sections().is_none() {
                continue;
            }
            // `turns` has the spans that ended before this pass.
            let before = work.pictures.iter().filter(|span| span.end() > work.done && span.end() <= index);
            let less = self.turns.less(slot) + before.map(|span| span.tokens() - span.positions()).sum::<usize>();
            let place = (position + index - work.done) - less;
            match span {
                Some(span) => {
                    let (i, start) = (index - span.start, place - (index - span.start));
                    let (line, column) = (i.checked_div(span.columns), i.checked_rem(span.columns));
                    self.turn(row, [start, start + line.unwrap_or(0), start + column.unwrap_or(0)]);
                }
                None if less > 0 => self.turn(row, [place; 3]),
                None => {}
            }
        }
    }

    /// Adds the vectors that pictures have for layer `layer` to the rows of a work, for `taken` of its tokens. Row
    /// `first` is the work's first row.
    pub(super) fn add_pictures(&mut self, work: &Work<'_>, taken: usize, first: usize, layer: usize) {
        for (index, row) in (work.done..work.done + taken).zip(first..) {
            let span = work.pictures.iter().find(|span| (span.start..span.end()).contains(&index));
            if let Some(vector) = span.and_then(|span| span.vector(index, 1 + layer, self.spec.dim)) {
                self.add_to(row, vector);
            }
        }
    }

    /// Stores the positions of those pictures that end within the next `taken` tokens of a work, because later
    /// positions depend on them.
    pub(super) fn keep_pictures(&mut self, work: &Work<'_>, taken: usize) {
        if self.spec.sections().is_none() {
            return;
        }
        let (slot, position) = (work.context.slot, work.context.position);
        let ending = work.pictures.iter().filter(|span| (work.done + 1..=work.done + taken).contains(&span.end()));
        for span in ending {
            let less = self.turns.less(slot) + span.tokens() - span.positions();
            let end = position + span.end() - work.done;
            self.turns.push(slot, Turn { end: end as u32, less: less as u32 });
        }
    }
}

impl Engine<'_, '_> {
    pub(super) fn check_pictures(&self, work: &Work<'_>) -> Result<(), Error> {
        let spec = self.forward.spec;
        let mut end = 0;
        for span in work.pictures {
            let (tokens, row_len) = (span.tokens(), span.row_len);
            let streams = row_len.checked_div(spec.dim).unwrap_or(0);
            if tokens == 0 || tokens * row_len != span.rows.len() {
                return Err(Error::Picture { why: "has no rows, or a part of a row: give it all rows of the encoder" });
            }
            if streams * spec.dim != row_len || streams > spec.layers + 1 {
                return Err(Error::Picture {
                    why: "has rows of another width than the model: use the model's own mmproj",
                });
            }
            if span.start < end || tokens > work.tokens().len() - span.start.min(work.tokens().len()) {
                return Err(Error::Picture {
                    why: "overlaps another, or does not end within the tokens: give it as many tokens as it has rows",
                });
            }
            if tokens.checked_rem(span.columns) != Some(0) {
                return Err(Error::Picture { why: "has a line that is not full: give it whole lines of its columns" });
            }
            if span.together && self.forward.source.is_some() {
                return Err(Error::NoPart { part: "decoder of texts and pictures alone" });
            }
            let batch = self.plan.options.batch;
            if span.together && tokens > batch {
                let what = "planned tokens per pass (Options::batch)";
                return Err(Error::BufferTooSmall { what, needed: tokens, given: batch });
            }
            end = span.end();
        }
        let (needed, given) = (work.pictures.len(), self.forward.turns.room(work.context.slot));
        if spec.sections().is_some() && needed > given {
            let what = "further pictures (Options::pictures)";
            return Err(Error::BufferTooSmall { what, needed, given });
        }
        Ok(())
    }
}
