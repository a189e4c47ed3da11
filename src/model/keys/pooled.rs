//! Reads the pooling, and the layers after pooling, of encoders, embedding models, classifiers and rerankers.

use super::{Keys, MAX_WIDTH};
use crate::model::layers::PerLayer;
use crate::model::roles::Role;
use crate::model::rope::RopeStyle;
use crate::model::spec::Special;
use crate::model::{PooledActivation, PooledHead, Pooling, Spec, Stack};
use crate::{Error, built, tri};

impl<'a> Keys<'_, 'a> {
    /// Reads the pooling type from the key `name`. Returns `otherwise` if the key is missing or 0, and `ranked` for a
    /// reranker's type.
    pub const fn pooling(&mut self, name: &'static str, otherwise: Pooling, ranked: Pooling) -> Result<Pooling, Error> {
        match tri!(self.nonzero(name, if built::ENCODER { 103 } else { 4 })) {
            None => Ok(otherwise),
            Some(1) => Ok(Pooling::Mean),
            Some(2) => Ok(Pooling::First),
            Some(3) => Ok(Pooling::Last),
            Some(4) => Ok(ranked),
            // llama.cpp has no numbers for the poolings that only sentence-transformers has. Numbers from 101 on are
            // this crate's.
            Some(101) if built::ENCODER => Ok(Pooling::Max),
            Some(102) if built::ENCODER => Ok(Pooling::MeanSqrtLength),
            Some(103) if built::ENCODER => Ok(Pooling::WeightedMean),
            Some(_) => Err(self.wrong(name, "is not a known pooling")),
        }
    }

    /// Turns `spec` into an encoder without a decoder.
    pub const fn encoder(&mut self, spec: Spec<'a>) -> Result<Spec<'a>, Error> {
        if let Some(true) = tri!(self.switch("attention.causal")) {
            return Err(self.wrong("attention.causal", "is true: not supported for this architecture"));
        }
        let PerLayer::All(_) = spec.kv_heads else {
            // The layers of an encoder use the same tiles of the cache, one layer after the other. So the tiles of all
            // layers must have the same size.
            return Err(self.wrong("attention.head_count_kv", "must be the same for all layers of an encoder"));
        };
        // Converters read the pooling from settings of sentence-transformers. Rerankers have no such settings, so a
        // reranker's default is the state of the first token.
        let ranks = self.rows("cls.output.weight") > 0 || self.rows("cls.weight") > 0;
        let otherwise = if ranks { Pooling::First } else { Pooling::Mean };
        let pooling = tri!(self.pooling("pooling_type", otherwise, Pooling::First));
        Ok(Spec { stack: Stack::Encoder, pooling, ..spec })
    }

    /// Reads an encoder without a decoder, and, for a reranker, [the layers that compute a score](Self::ranking).
    pub const fn ranked_encoder(&mut self, activation: PooledActivation) -> Result<Spec<'a>, Error> {
        let decoder = tri!(self.decoder(RopeStyle::Halves));
        let mut encoder = tri!(self.encoder(decoder));
        tri!(self.ranking(activation, &mut encoder));
        Ok(encoder)
    }

    /// If the file has layers that compute a score from the pooled state, adds them and the names of their tensors to
    /// the spec. `activation` is the function between these layers, unless the file names another one.
    pub const fn ranking(&mut self, activation: PooledActivation, spec: &mut Spec<'a>) -> Result<(), Error> {
        const BOTH: &[(Role, Role)] = &[
            (Role::Cls, Role::Dense2),
            (Role::ClsOutput, Role::Dense3),
            (Role::ClsBias, Role::Dense2Bias),
            (Role::ClsOutputBias, Role::Dense3Bias),
        ];
        // Jina's rerankers have only one such layer. Early converters called it `cls`, which is otherwise the name of
        // the first of two layers.
        const ONLY: &[(Role, Role)] = &[(Role::Cls, Role::Dense3), (Role::ClsBias, Role::Dense3Bias)];
        let (inner, out, renamed) = match (self.rows("cls.weight"), self.rows("cls.output.weight")) {
            (0, 0) => return Ok(()),
            (out, 0) => (0, out, ONLY),
            (inner, out) => (inner, out, BOTH),
        };
        let activation = tri!(self.pooled_activation("classifier.activation", activation));
        // The names of the scores, which programs show.
        _ = self.get("classifier.output_labels");
        let (last, scores) = (PooledActivation::None, true);
        spec.pooled_head = Some(PooledHead { inner, out, activation, last, scores });
        spec.renamed = renamed;
        Ok(())
    }

    /// Reads the activation after a linear layer.
    const fn pooled_activation(
        &mut self,
        name: &'static str,
        otherwise: PooledActivation,
    ) -> Result<PooledActivation, Error> {
        Ok(match tri!(self.text(name)) {
            None => otherwise,
            Some(b"tanh") => PooledActivation::Tanh,
            Some(b"gelu") if !built::GELU_ERF => {
                return Err(self.wrong(name, "is gelu, which this build does not have"));
            }
            Some(b"gelu") => PooledActivation::Gelu,
            Some(b"relu") => PooledActivation::Relu,
            Some(b"silu") => PooledActivation::Silu,
            Some(_) => return Err(self.wrong(name, "is not tanh, gelu, relu or silu")),
        })
    }

    /// Adds the linear layers after the pooling of an embedding model, if the file has their sizes: `dense_2` and
    /// `dense_3`, or `dense_3` alone.
    pub const fn dense(&mut self, spec: &mut Spec<'a>) -> Result<(), Error> {
        let sizes = [
            tri!(self.count("dense_2_feat_in", MAX_WIDTH)),
            tri!(self.count("dense_2_feat_out", MAX_WIDTH)),
            tri!(self.count("dense_3_feat_in", MAX_WIDTH)),
            tri!(self.count("dense_3_feat_out", MAX_WIDTH)),
        ];
        let (inner, out) = match sizes {
            [0, 0, 0, 0] => return Ok(()),
            [before, inner, after, out] if before == spec.dim && inner == after && inner > 0 && out > 0 => (inner, out),
            [0, 0, before, out] if before == spec.dim && out > 0 => (0, out),
            _ => {
                return Err(
                    self.wrong("dense_3_feat_in", "and the other sizes of the dense layers do not fit together")
                );
            }
        };
        let activation = tri!(self.pooled_activation("dense_2_activation", PooledActivation::None));
        let last = tri!(self.pooled_activation("dense_3_activation", PooledActivation::None));
        spec.pooled_head = Some(PooledHead { inner, out, activation, last, scores: false });
        Ok(())
    }

    /// Reads the keys of embedding models and classifiers, which files of any family may have: attention to later
    /// tokens, and linear layers after pooling.
    pub(super) const fn modules(&mut self, spec: &mut Spec<'a>) -> Result<(), Error> {
        const CAUSAL: &str = "attention.causal";
        if built::ENCODER
            && matches!(spec.stack, Stack::Alone)
            // A model that predicts tokens although its tokens attend to later tokens generates by diffusion, which is
            // not supported.
            && !self.has("output.weight")
            && let Some(false) = tri!(self.switch(CAUSAL))
        {
            let is_plain = matches!(spec.kv_heads, PerLayer::All(_))
                && spec.recurrent.is_none()
                && spec.global.window.is_none()
                && spec.local.window.is_none()
                && matches!(spec.special, Special::None)
                && spec.loops.is_none()
                && spec.chunk.is_none()
                && spec.kv_shared == 0;
            if !is_plain {
                return Err(self.wrong(CAUSAL, "is false: not supported for this architecture"));
            }
            spec.stack = Stack::Encoder;
        }
        if !built::POOLED_HEAD || spec.pooled_head.is_some() {
            return Ok(());
        }
        // The tensors of the pooled head have the names of other linear layers, and get their roles from the spec's
        // list of renamed roles. A spec has only one such list.
        if spec.renamed.is_empty() {
            tri!(self.ranking(PooledActivation::None, spec));
        }
        if spec.pooled_head.is_none() { self.dense(spec) } else { Ok(()) }
    }
}
