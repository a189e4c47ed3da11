//! Layers that predict further tokens. There are two kinds: the layer for multi-token prediction, in the model's own
//! file or in a separate file; and small models that read the keys and values of a larger model (Gemma 4's assistant).
//!
//! Such layers read two vectors for each position: the embedding of the position's token, and the final state of the
//! previous position. A matrix joins the two vectors ([DeepSeek-V3](https://arxiv.org/abs/2412.19437), 2.2).

#[cfg(feature = "drafts")]
use super::{Layer, Role, Spec};
#[cfg(feature = "drafts")]
use crate::{Error, Gguf, Name, gguf::equal, tri};

/// The part of layers in drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// Index in the file of the first of these layers.
    pub first: usize,
    /// Width of the states and embeddings that these layers read, which come from the model whose tokens they predict.
    pub width: usize,
    /// True if states are read after the final norm.
    pub normed: bool,
}

/// Architectures whose predicting layers read the model's states before the final norm. In others they read the normed
/// states.
#[cfg(feature = "drafts")]
const UNNORMED: [&str; 2] = ["step35", "mimo2"];

/// A tensor that only layers for multi-token prediction have.
#[cfg(feature = "drafts")]
pub(super) const PROJECTION: &str = "nextn.eh_proj.weight";

#[cfg(feature = "drafts")]
impl<'a> Spec<'a> {
    /// The layers that predict further tokens for the model in `gguf`, whose spec is `self`, and the file of these
    /// layers: the [separate file](Gguf::with_drafter), or the model's own. `None` if there are no such layers.
    ///
    /// # Errors
    ///
    /// Fails if the layers in the separate file are damaged, or were made for another model.
    pub(crate) const fn drafter(&self, gguf: &Gguf<'a>) -> Result<Option<(Self, Gguf<'a>)>, Error> {
        let Some(file) = gguf.drafter() else {
            return match self.predicting(gguf) {
                Some(spec) => Ok(Some((spec, *gguf))),
                None => Ok(None),
            };
        };
        let own = tri!(Self::read(file));
        let spec = match own.next {
            Some(_) => own,
            None => match own.predicting(file) {
                Some(spec) => spec,
                None => return Err(Error::NoPart { part: "layer that predicts further tokens" }),
            },
        };
        match self.fits(&spec, gguf, file) {
            Ok(()) => Ok(Some((spec, *file))),
            Err(error) => Err(error),
        }
    }

    /// Reads the first layer for multi-token prediction in the model's own file; `None` if the file has no such layer.
    const fn predicting(&self, gguf: &Gguf<'a>) -> Option<Self> {
        let tensor = Name::layered("", self.layers, PROJECTION);
        match core::str::from_utf8(tensor.bytes()) {
            Ok(name) if self.unused_layers > 0 && gguf.tensor(name).is_some() => {}
            _ => return None,
        }
        let (mut normed, mut i) = (true, 0);
        if let Ok(architecture) = gguf.architecture() {
            while i < UNNORMED.len() {
                normed &= !equal(UNNORMED[i].as_bytes(), architecture.as_bytes());
                i += 1;
            }
        }
        let next = Some(Next { first: self.layers, width: self.dim, normed });
        Some(Self { layers: 1, unused_layers: self.unused_layers - 1, next, ..*self })
    }

    /// True if the predicting layers have no keys and values of their own. They then read the model's keys and values.
    pub(crate) const fn assists(&self) -> bool {
        self.next.is_some() && !self.layer(0).owns_kv
    }

    /// Checks that the layers in `file` were made to predict tokens of this model, and not of another one.
    const fn fits(&self, other: &Self, gguf: &Gguf<'_>, file: &Gguf<'_>) -> Result<(), Error> {
        let width = match other.next {
            Some(next) => next.width,
            None => 0,
        };
        let mut fits = other.vocab == self.vocab && width == self.dim && other.dim <= self.dim;
        let mut index = 0;
        while index < other.layers {
            let layer = other.layer(index);
            fits &= layer.owns_kv || self.shares_with(&layer);
            index += 1;
        }
        if fits {
            return Ok(());
        }
        let [what, name] = [gguf.architecture(), file.architecture()];
        match (what, name) {
            (Ok(_), Ok(name)) => Err(Error::Unsupported {
                what: "file for drafts: other sizes than the model, of",
                name: Name::new(name.as_bytes()),
            }),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// True if `layer`, a layer of the drafter, can read the keys and values of this model: the model's layers of the
    /// same kind must have KV heads of the same number and width.
    const fn shares_with(&self, layer: &Layer) -> bool {
        match self.owner(layer.is_local) {
            Some(owner) => {
                let owner = self.layer(owner);
                owner.kv_heads == layer.kv_heads && owner.head.dim == layer.head.dim
            }
            None => false,
        }
    }
}

#[cfg(feature = "drafts")]
impl Role {
    /// True for tensors that occur only in layers that predict further tokens.
    pub(super) const fn is_next(self) -> bool {
        matches!(self, Self::NextProj | Self::NextTokenNorm | Self::NextStateNorm | Self::NextHeadNorm | Self::NextEmbd)
            || matches!(self, Self::NextHead | Self::NextPre | Self::NextPost)
    }
}
