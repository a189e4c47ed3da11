//! Reads the sizes of layers that mix tokens by other means than plain attention: by attention to latent vectors, or by
//! recurrent states.

use super::{Keys, MAX_WIDTH};
use crate::kernel::MAX_TAPS;
use crate::model::layers::{HeadSpec, PerLayer};
use crate::model::rope::{Rope, RopeStyle, Scaling};
use crate::model::spec::Special;
use crate::model::{Latent, Recurrent, RecurrentKind, Spec, StepNorms};
use crate::{Error, tri};

impl<'a> Keys<'_, 'a> {
    /// Like [`decoder`](Self::decoder), for a family in which a layer may lack attention or a feed-forward. The size of
    /// the missing part is then 0 in the file.
    pub const fn hybrid(&mut self, style: RopeStyle) -> Result<Spec<'a>, Error> {
        self.partial_layers = true;
        self.decoder(style)
    }

    /// Like [`decoder`](Self::decoder), for a family with attention over latent vectors.
    pub const fn latent(&mut self, style: RopeStyle) -> Result<Spec<'a>, Error> {
        self.is_latent = true;
        let spec = tri!(self.decoder(style));
        let rank = tri!(self.size("attention.kv_lora_rank", MAX_WIDTH));
        let q_rank = tri!(self.count("attention.q_lora_rank", MAX_WIDTH));
        let heads = spec.heads.most(spec.layers);
        let (Some(rope), Some(width)) = (spec.global.rope, spec.dim.checked_div(heads)) else {
            return Err(self.wrong("attention.head_count", "is 0, which no model can have"));
        };
        let own = tri!(self.size_or("attention.value_length", MAX_WIDTH, width));
        let key = tri!(self.optional_size("attention.key_length_mla", MAX_WIDTH));
        let value = tri!(self.optional_size("attention.value_length_mla", MAX_WIDTH));
        let (key, value, absorbed) = match (key, value) {
            (Some(key), Some(value)) => (key, value, true),
            _ => (spec.global.dim, own, false),
        };
        if key <= rope.dim {
            return Err(self.wrong("rope.dimension_count", "leaves nothing of a key that is not rotated"));
        }
        let widest = heads as u64 * (key as u64 + value as u64);
        if widest > MAX_WIDTH as u64 || rank as u64 + rope.dim as u64 > MAX_WIDTH as u64 {
            return Err(self.wrong("attention.head_count", "is too large"));
        }
        let dim = match absorbed {
            true => rank + rope.dim,
            false if value > key => value,
            false => key,
        };
        // YaRN's factor applies to whole queries and keys, not only to the rotated part.
        let (scaling, yarn) = match rope.scaling {
            Scaling::Yarn { log_multiplier, .. } if log_multiplier > 0.0 => {
                // A multiplier of 1 leaves cosines and sines unscaled.
                (rope.scaling.with_log_multiplier(1.0), log_multiplier)
            }
            scaling => (scaling, 0.0),
        };
        let shared = if absorbed { rank } else { 0 };
        let head = HeadSpec { dim, rope: Some(Rope { scaling, ..rope }), shared, ..spec.global };
        let nope = key - rope.dim;
        Ok(Spec {
            kv_heads: if absorbed { PerLayer::All(1) } else { spec.heads },
            global: head,
            local: head,
            special: Special::Latent(Latent { q_rank, rank, nope, rope: rope.dim, value, absorbed, yarn }),
            ..spec
        })
    }

    /// Reads the sizes of Mamba-1.
    pub const fn selective(&mut self) -> Result<Recurrent, Error> {
        let taps = tri!(self.size("ssm.conv_kernel", MAX_TAPS));
        let width = tri!(self.size("ssm.inner_size", MAX_WIDTH));
        let keys = tri!(self.size("ssm.state_size", MAX_WIDTH));
        let rank = tri!(self.size("ssm.time_step_rank", MAX_WIDTH));
        let step_norms = match tri!(self.switch("ssm.dt_b_c_rms")) {
            Some(true) => StepNorms::Bare,
            _ => StepNorms::None,
        };
        let step_eps = tri!(self.unless_zero("ssm.dt_b_c_rms_epsilon"));
        let (kind, ranks) = (RecurrentKind::Mamba, [rank, 0, 0, 0]);
        Ok(Recurrent { kind, taps, heads: 1, keys, width, ranks, step_norms, step_eps, ..Recurrent::NONE })
    }

    /// Reads the sizes of Mamba-2 or of gated delta nets, which have the same metadata keys.
    pub const fn recurrent(&mut self, kind: RecurrentKind) -> Result<Recurrent, Error> {
        let taps = tri!(self.size("ssm.conv_kernel", MAX_TAPS));
        let inner = tri!(self.size("ssm.inner_size", MAX_WIDTH));
        let heads = tri!(self.size("ssm.time_step_rank", MAX_WIDTH));
        let groups = tri!(self.size("ssm.group_count", MAX_WIDTH));
        let keys = tri!(self.size("ssm.state_size", MAX_WIDTH));
        match inner.checked_div(heads) {
            Some(width) if width > 0 && inner == width * heads => {
                if !heads.is_multiple_of(groups) || !inner.is_multiple_of(groups) {
                    return Err(self.wrong("ssm.group_count", "does not divide ssm.time_step_rank"));
                }
                if 2 * groups as u64 * keys as u64 > MAX_WIDTH as u64 {
                    return Err(self.wrong("ssm.state_size", "is too large"));
                }
                Ok(Recurrent {
                    kind,
                    taps,
                    heads,
                    groups,
                    keys,
                    width,
                    in_turns: matches!(kind, RecurrentKind::DeltaNet),
                    ..Recurrent::NONE
                })
            }
            _ => Err(self.wrong("ssm.time_step_rank", "does not divide ssm.inner_size")),
        }
    }
}
