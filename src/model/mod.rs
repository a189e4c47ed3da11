//! Models: [`Spec`] describes an architecture as data, and a table locates the model's weights in the file.
//!
//! Each family has one small file (`families/llama.rs`, ...) that reads metadata into a [`Spec`]. The forward pass runs
//! any spec; families contain no code that runs per token.

mod altup;
mod choices;
mod families;
mod front;
mod keys;
mod latent;
mod layers;
mod mixture;
mod neutral;
mod next;
mod parts;
mod recurrent;
mod roles;
mod rope;
mod spec;
mod weights;
mod windows;

pub use crate::built::{ARCHITECTURES, family_feature};
use crate::{Error, Gguf};
pub(crate) use altup::AltUp;
#[doc(hidden)] // for tests
pub use choices::Pooling;
pub(crate) use choices::{
    EncoderSizes, Gate, GroupExperts, HeadGate, Loops, Need, Norm, Placement, PooledActivation, PooledHead, QkNorm,
    Residual, Router, Scores, Scoring, SharedExperts, Temperature, Values,
};
pub use choices::{Experts, Positions, SoundSizes, Stack};
pub use front::Front;
#[cfg(feature = "sound")]
pub(crate) use front::{Convolution, MAX_STAGES};
pub(crate) use latent::Latent;
pub use layers::Layer;
pub(crate) use layers::{HeadSpec, PerLayer, Xielu};
pub(crate) use recurrent::{Recurrent, RecurrentKind, StepNorms};
pub(crate) use roles::Role;
pub use roles::{is_ignored, is_other_modality};
pub(crate) use rope::RopeStyle;
#[cfg(feature = "vision")]
pub(crate) use rope::Sections;
pub use rope::{Rope, Scaling};
pub(crate) use spec::MAX_LAYERS;
pub use spec::Spec;
pub(crate) use weights::{Entry, Weights};

/// Use of a tensor by the forward pass.
#[cfg(feature = "lora")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorUse {
    /// The weights of a linear layer, or of one linear layer per expert.
    Product,
    /// The token embedding: its rows are looked up.
    Embedding,
    /// Another use, or none.
    Other,
}

/// A model in a file. It has a [`Spec`], and is a proof that every tensor is present, with the shape that the spec
/// requires and with a type that this build runs.
///
/// # Examples
///
/// ```
/// use arenite::{Gguf, Model};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let model = Model::new(&gguf)?; // a missing, unexpected or wrongly shaped tensor is an error
/// let spec = model.spec();
/// println!("{} layers of width {}, {} tokens", spec.layers, spec.dim, spec.vocab);
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Model<'a> {
    gguf: Gguf<'a>,
    spec: Spec<'a>,
    encoder: Option<Spec<'a>>,
    #[cfg(feature = "drafts")]
    drafter: Option<(Spec<'a>, Gguf<'a>)>,
}

impl<'a> Model<'a> {
    /// Reads the metadata and checks every tensor. Does not read the weights.
    ///
    /// # Errors
    ///
    /// The errors of [`Spec::read`] for the metadata; [`Error::MissingTensor`], [`Error::UnexpectedTensor`],
    /// [`Error::TensorShape`] and [`Error::Unsupported`] for the tensors.
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub fn new(gguf: &Gguf<'a>) -> Result<Self, Error> {
        match &Spec::read(gguf) {
            Ok(spec) if spec.next().is_some() => {
                Err(Error::NoPart { part: "layers of its own: it drafts for another" })
            }
            Ok(spec) => match weights::check(gguf, spec) {
                Ok(()) => Self::with_encoder(gguf, spec),
                Err(error) => Err(error),
            },
            Err(error) => Err(*error),
        }
    }

    #[inline(never)] // keeps the model off the stack while metadata and tensors are read
    fn with_encoder(gguf: &Gguf<'a>, spec: &Spec<'a>) -> Result<Self, Error> {
        let model = Self {
            gguf: *gguf,
            spec: *spec,
            encoder: spec.encoder(),
            #[cfg(feature = "drafts")]
            drafter: Self::checked_drafter(gguf, spec)?,
        };
        if let Some(encoder) = &model.encoder {
            weights::check(gguf, encoder)?;
        }
        Ok(model)
    }

    /// The layers that predict further tokens. Layers in the model's own file are left out if this crate cannot run
    /// them.
    #[cfg(feature = "drafts")]
    #[inline(never)] // keeps two more specs off the stack of the caller
    fn checked_drafter(gguf: &Gguf<'a>, spec: &Spec<'a>) -> Result<Option<(Spec<'a>, Gguf<'a>)>, Error> {
        let Some((drafter, file)) = spec.drafter(gguf)? else { return Ok(None) };
        match weights::check(&file, &drafter) {
            #[cfg(feature = "storage")]
            Ok(()) if gguf.drafter().is_some() && file.pieces().is_head() => Err(Error::NoStorage),
            Ok(()) => Ok(Some((drafter, file))),
            Err(error) if gguf.drafter().is_some() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// True if the model has layers that predict further tokens, for [`Engine::draft`](crate::Engine::draft).
    #[cfg(feature = "drafts")]
    pub fn can_draft(&self) -> bool {
        self.drafter.is_some()
    }

    /// Returns the spec of the layers that predict further tokens, and the file that has their weights. `None` if there
    /// are no such layers.
    #[cfg(feature = "drafts")]
    pub(crate) fn drafter(&self) -> Option<(&Spec<'a>, &Gguf<'a>)> {
        self.drafter.as_ref().map(|(spec, file)| (spec, file))
    }

    /// The architecture; for an encoder-decoder, the decoder's.
    pub fn spec(&self) -> &Spec<'a> {
        &self.spec
    }

    /// The encoder's spec, for an encoder-decoder.
    pub(crate) fn encoder(&self) -> Option<&Spec<'a>> {
        self.encoder.as_ref()
    }

    #[cfg(feature = "lora")]
    pub(crate) fn use_of(&self, name: &str) -> TensorUse {
        let others = self.encoder.iter();
        #[cfg(feature = "drafts")]
        let others = others.chain(self.drafter.iter().map(|(spec, _)| spec));
        match weights::use_of(&self.spec, name) {
            TensorUse::Other => {
                let mut uses = others.map(|spec| weights::use_of(spec, name));
                uses.find(|found| *found != TensorUse::Other).unwrap_or(TensorUse::Other)
            }
            found => found,
        }
    }

    /// True if passes read the tensor called `name` row by row: as the weights of a linear layer, or as a table of
    /// embeddings. Such a tensor may be in a `Storage`; all other tensors must be in memory.
    pub fn is_matrix(&self, name: &str) -> bool {
        let specs = core::iter::once(&self.spec).chain(&self.encoder);
        #[cfg(feature = "drafts")]
        let specs = specs.chain(self.drafter.iter().map(|(spec, _)| spec));
        specs.into_iter().any(|spec| weights::is_matrix(spec, name))
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf<'a> {
        &self.gguf
    }
}
