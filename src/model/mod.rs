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
mod parts;
mod recurrent;
mod roles;
mod rope;
mod spec;
mod weights;
mod windows;

pub use crate::built::{ARCHITECTURES, family_feature};
use crate::{Error, Gguf};
pub use altup::AltUp;
pub use choices::{
    EncoderSizes, Experts, Gate, GroupExperts, HeadGate, Loops, Need, Norm, Placement, PooledActivation, PooledHead,
    Pooling, Positions, QkNorm, Residual, Router, Scores, Scoring, SharedExperts, SoundSizes, Stack, Temperature,
    Values,
};
pub use front::Front;
#[cfg(feature = "sound")]
pub(crate) use front::{Convolution, MAX_STAGES};
pub use latent::Latent;
pub use layers::{HeadSpec, Layer, Limits, Mixer, Numbers, Pattern, PerLayer, Xielu};
pub use recurrent::{Recurrent, RecurrentKind, StepNorms};
pub(crate) use roles::Role;
pub use roles::{is_ignored, is_other_modality};
pub use rope::{Rope, RopeStyle, Scaling};
pub use spec::{MAX_LAYERS, Spec};
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

/// A model in a file: its [`Spec`], and proof that every tensor is present with the shape that the spec requires and a
/// type that this build runs.
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
            Ok(spec) => match weights::check(gguf, spec) {
                Ok(()) => Self::with_encoder(gguf, spec),
                Err(error) => Err(error),
            },
            Err(error) => Err(*error),
        }
    }

    #[inline(never)] // keeps the model off the stack while metadata and tensors are read
    fn with_encoder(gguf: &Gguf<'a>, spec: &Spec<'a>) -> Result<Self, Error> {
        let model = Self { gguf: *gguf, spec: *spec, encoder: spec.encoder() };
        if let Some(encoder) = &model.encoder {
            weights::check(gguf, encoder)?;
        }
        Ok(model)
    }

    /// The architecture; for an encoder-decoder, the decoder's.
    pub fn spec(&self) -> &Spec<'a> {
        &self.spec
    }

    /// The encoder's spec, for an encoder-decoder.
    pub(crate) fn encoder(&self) -> Option<&Spec<'a>> {
        self.encoder.as_ref()
    }

    /// Use of the tensor called `name`.
    #[cfg(feature = "lora")]
    pub(crate) fn use_of(&self, name: &str) -> TensorUse {
        match weights::use_of(&self.spec, name) {
            TensorUse::Other => self.encoder.as_ref().map_or(TensorUse::Other, |spec| weights::use_of(spec, name)),
            found => found,
        }
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf<'a> {
        &self.gguf
    }
}
