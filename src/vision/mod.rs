//! Pictures for language models that see: an encoder of patches, and a projector whose output rows replace token
//! embeddings.
//!
//! The encoder's file (`mmproj`, `general.architecture = clip`) is a second GGUF file in addition to the language
//! model's. [`Vision::new`] checks this file. A [`Picture`] is borrowed RGB; the [`Encoder`] resizes it, cuts it into
//! [`Views`] as the model's processor does, and computes a row for each token that stands for a part of the picture.
//! [`Work::pictures`](crate::Work::pictures) lets a language model read the rows.
//!
//! ```
//! use arenite::vision::{Encoder, Options, Picture, Plan, Vision};
//! use arenite::{Gguf, Line};
//!
//! # let file = std::fs::read("tests/fixtures/pixtral.gguf").unwrap();
//! # let (rgb, width, height) = (vec![200; 3 * 90 * 50], 90, 50);
//! let gguf = Gguf::parse(&file)?;
//! let vision = Vision::new(&gguf)?;
//! let plan = Plan::new(&gguf, width, height, Options::new())?; // exact bytes for this size of picture
//! let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
//! let mut encoder = Encoder::new(&vision, plan, Line::bytes_mut(&mut workspace))?;
//!
//! let mut rows = vec![0.0; plan.rows];
//! encoder.see(&Picture::new(&rgb, width, height)?, &mut rows)?;
//! assert_eq!(rows.len(), plan.views.tokens() * vision.row_len());
//! # Ok::<(), arenite::Error>(())
//! ```

mod blocks;
mod encoder;
mod head;
mod patches;
mod picture;
mod plan;
mod positions;
mod projector;
mod resize;
mod roles;
mod spec;
mod tensors;
mod views;

use crate::{Error, Gguf, Model, Span};
pub use encoder::Encoder;
pub use picture::{MAX_SIDE, Picture};
pub use plan::{Options, Plan};
pub use projector::Projector;
use spec::Spec;
pub use views::{View, Views};

/// An encoder of pictures in a file. It is a proof that every tensor is present, with the right shape and with a type
/// that this build runs.
#[derive(Clone, Copy, Debug)]
pub struct Vision<'a> {
    gguf: Gguf<'a>,
    spec: Spec<'a>,
}

impl<'a> Vision<'a> {
    /// Reads the metadata and checks every tensor. Does not read the weights.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a projector that this crate does not run; [`Error::MissingKey`], [`Error::KeyType`],
    /// [`Error::KeyValue`], [`Error::UnexpectedKey`] and [`Error::UnsupportedKey`] for the metadata;
    /// [`Error::MissingTensor`], [`Error::UnexpectedTensor`], [`Error::TensorShape`] and [`Error::TensorType`] for the
    /// tensors.
    pub fn new(gguf: &Gguf<'a>) -> Result<Self, Error> {
        let spec = Spec::read(gguf)?;
        tensors::check(gguf, &spec)?;
        Ok(Self { gguf: *gguf, spec })
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf<'a> {
        &self.gguf
    }

    fn spec(&self) -> &Spec<'a> {
        &self.spec
    }

    /// The kind of the projector.
    pub fn projector(&self) -> Projector {
        self.spec.projector
    }

    /// Width of the encoder's own states.
    pub fn width(&self) -> usize {
        self.spec.dim
    }

    /// Width of an embedding of the language model.
    pub fn dim(&self) -> usize {
        self.spec.tensors.out
    }

    /// Number of elements of a row: an embedding, and vectors that are added after the first layers of the language
    /// model ([DeepStack](https://arxiv.org/abs/2406.04334)).
    pub fn row_len(&self) -> usize {
        self.spec.row_len()
    }

    /// True if each token of a view attends, in the language model, to all tokens of the view, including later tokens.
    pub fn is_together(&self) -> bool {
        self.spec.rules.together
    }

    /// Computes into which views the encoder cuts a picture of `width` by `height` pixels.
    ///
    /// # Errors
    ///
    /// [`Error::Picture`] for sizes that the encoder does not take.
    pub fn views(&self, width: usize, height: usize) -> Result<Views, Error> {
        self.spec.views(width, height)
    }

    /// Creates a span for the works of an engine: the rows of a view replace the tokens from index `start` on, one
    /// token per row.
    pub fn span<'r>(&self, start: usize, view: &View, rows: &'r [f32]) -> Span<'r> {
        Span::new(start, rows, self.row_len(), view.columns).together(self.is_together())
    }

    /// Checks that a language model can read this encoder's rows.
    ///
    /// # Errors
    ///
    /// [`Error::Picture`] if the model's embeddings have a different width, or if the rows have vectors for more layers
    /// than the model has.
    pub fn fits(&self, model: &Model<'_>) -> Result<(), Error> {
        if model.spec().dim != self.dim() || self.spec.deep_layers > model.spec().layers {
            return Err(Error::Picture {
                why: "cannot be shown to this model, whose embeddings have another width: use the model's own mmproj",
            });
        }
        Ok(())
    }
}
