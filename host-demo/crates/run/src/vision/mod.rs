//! Pictures: the file of their encoder, the rows that it computes, and the tokens that the rows replace.
//!
//! ```no_run
//! # use arenite::tokenizer::{Encode, Tokenizer};
//! # use arenite_run::{open_model::OpenModel, vision::{Eyes, prompt}};
//! # fn see(open: &OpenModel, engine: &mut arenite::Engine<'_, '_>, rgb: &[u8]) -> anyhow::Result<()> {
//! let eyes = Eyes::open("mmproj.gguf".as_ref(), open.model())?;
//! let picture = arenite::vision::Picture::new(rgb, 640, 480)?;
//! let seen = [eyes.see(&picture, open)?];
//! // The marker is that of the model's chat template; without one the picture stands before the text.
//! let prompt = prompt(&eyes, open.vocabulary()?, "What is this?", &seen, Encode::PROMPT)?;
//! let mut context = engine.open()?;
//! engine.run(&mut [arenite::Work::prefill(&mut context, &prompt.ids).pictures(&prompt.spans)])?;
//! # Ok(())
//! # }
//! ```

mod texts;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::vision::{Encoder, Options, Picture, Plan, View, Views, Vision};
use arenite::{Line, Model, Span, TokenId};
use self_cell::self_cell;

use crate::model_file::ModelFile;
use crate::open_model::OpenModel;
use arenite_text as text;

pub use texts::{Marks, expand};

/// Patches that an encoder computes together.
const BATCH: usize = 256;

/// An encoder of pictures with its file.
pub struct Eyes {
    cell: Cell,
}

self_cell!(
    struct Cell {
        owner: ModelFile,
        #[covariant]
        dependent: Vision,
    }
);

/// The rows of a picture.
pub struct Seen {
    /// What the encoder saw.
    pub views: Views,
    /// `[tokens][row_len]`
    pub rows: Vec<f32>,
    row_len: usize,
}

/// A text with pictures.
pub struct Prompt<'r> {
    pub ids: Vec<TokenId>,
    /// The rows that replace some of the tokens.
    pub spans: Vec<Span<'r>>,
}

impl Eyes {
    /// Opens the file of an encoder of pictures (`mmproj`) that belongs to `model`. Errors name the file.
    pub fn open(path: &Path, model: &Model<'_>) -> Result<Self> {
        let file = ModelFile::open(path)?;
        let name = file.name().to_owned();
        let read = |file| -> Result<Cell> {
            let cell = Cell::try_new(file, |file: &ModelFile| anyhow::Ok(Vision::new(&file.gguf()?)?))?;
            cell.borrow_dependent().fits(model)?;
            Ok(cell)
        };
        Ok(Self { cell: read(file).with_context(|| name)? })
    }

    /// The path as the user gave it.
    pub fn name(&self) -> &str {
        self.cell.borrow_owner().name()
    }

    pub fn vision(&self) -> &Vision<'_> {
        self.cell.borrow_dependent()
    }

    /// Computes the rows of a picture with the kernels and threads of a model.
    pub fn see(&self, picture: &Picture<'_>, open: &OpenModel) -> Result<Seen> {
        let vision = self.vision();
        let options = Options::new().batch(BATCH).workers(open.workers().count());
        let plan = Plan::new(vision.gguf(), picture.width(), picture.height(), options)?;
        let mut memory = vec![Line::ZERO; plan.workspace.div_ceil(size_of::<Line>())];
        let encoder = Encoder::new(vision, plan, Line::bytes_mut(&mut memory))?;
        let mut rows = vec![0.0; plan.rows];
        encoder.with_kernels(open.options.kernels).with_workers(open.workers()).see(picture, &mut rows)?;
        Ok(Seen { views: plan.views, rows, row_len: vision.row_len() })
    }

    /// The texts around the rows of a picture.
    pub fn marks(&self) -> Marks {
        Marks::of(self.vision().projector())
    }

    /// The token that stands where a row stands.
    pub fn token(&self, tokenizer: &Tokenizer<'_, '_>) -> Result<TokenId> {
        let name = self.marks().token;
        text::token(tokenizer, name).with_context(|| format!("the model's vocabulary has no token {name} for pictures"))
    }

    /// The largest number of tokens of a picture that must fit in one pass; 0 if rows can be split.
    pub fn together(&self, seen: &[Seen]) -> usize {
        let views = seen.iter().flat_map(Seen::views).filter(|_| self.vision().is_together());
        views.map(|(view, _)| view.tokens()).max().unwrap_or(0)
    }

    /// Gives the rows of pictures the places of `token` in `ids`, in order. `ids` have as many of them as the pictures
    /// have rows.
    pub fn place<'r>(&self, ids: &[TokenId], token: TokenId, seen: &'r [Seen]) -> Result<Vec<Span<'r>>> {
        let places = ids.iter().filter(|id| **id == token).count();
        let rows: usize = seen.iter().map(Seen::tokens).sum();
        ensure!(
            places == rows,
            "the text has {places} image tokens, but the pictures have {rows} rows: give each picture its place"
        );
        let mut spans = Vec::new();
        let mut start = 0;
        for (view, rows) in seen.iter().flat_map(Seen::views) {
            let mut rest = rows;
            // A view's rows may be apart: some models have a token after each line.
            while !rest.is_empty() {
                start += ids[start..].iter().take_while(|id| **id != token).count();
                let run = ids[start..].iter().take_while(|id| **id == token).count();
                let len = run.min(rest.len() / self.vision().row_len());
                let (here, after) = rest.split_at(len * self.vision().row_len());
                spans.push(self.vision().span(start, &view, here));
                (start, rest) = (start + len, after);
            }
        }
        Ok(spans)
    }
}

impl Seen {
    /// Number of rows.
    pub fn tokens(&self) -> usize {
        self.views.tokens()
    }

    /// The views, each with its rows.
    fn views(&self) -> impl Iterator<Item = (View, &[f32])> {
        let mut rest = &self.rows[..];
        (0..self.views.count()).map_while(move |index| {
            let view = self.views.get(index)?;
            let (rows, after) = rest.split_at_checked(view.tokens() * self.row_len)?;
            rest = after;
            Some((view, rows))
        })
    }
}

/// Writes what stands for the pictures in place of the markers in `text`, tokenizes the whole, and gives the rows their
/// places.
pub fn prompt<'r>(
    eyes: &Eyes,
    tokenizer: &Tokenizer<'_, '_>,
    text: &str,
    seen: &'r [Seen],
    how: Encode,
) -> Result<Prompt<'r>> {
    let views: Vec<Views> = seen.iter().map(|seen| seen.views).collect();
    let expanded = expand(eyes.vision().projector(), text, &views)?;
    let ids = text::encode(tokenizer, expanded.as_bytes(), Encode { parse_special: true, ..how })?;
    let spans = match seen {
        [] => Vec::new(),
        seen => eyes.place(&ids, eyes.token(tokenizer)?, seen)?,
    };
    Ok(Prompt { ids, spans })
}
