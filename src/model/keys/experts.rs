//! Reads experts and their routers.

use super::{Keys, MAX_EXPERTS, MAX_WIDTH};
use crate::model::layers::Pattern;
use crate::model::{Experts, Router, Scores, SharedExperts};
use crate::{Error, tri};

impl<'a> Keys<'_, 'a> {
    /// Reads the sizes of the feed-forward's experts; `None` without experts. `normed` is the default for
    /// [`Experts::normed`].
    pub const fn experts(&mut self, normed: bool) -> Result<Option<Experts>, Error> {
        let Some(count) = tri!(self.nonzero("expert_count", MAX_EXPERTS)) else { return Ok(None) };
        let normed = match tri!(self.switch("expert_weights_norm")) {
            Some(normed) => normed,
            None => normed,
        };
        let used = tri!(self.size("expert_used_count", MAX_EXPERTS));
        if used > count {
            return Err(self.wrong("expert_used_count", "is more than expert_count"));
        }
        let width = tri!(self.nonzero("expert_feed_forward_length", MAX_WIDTH));
        Ok(Some(Experts { count, used, width, normed, biases: false }))
    }

    /// Returns [the layers with experts](Self::layers_with_experts), and accepts the keys with which files describe
    /// these layers.
    pub const fn expert_layers(&mut self) -> Pattern<'a> {
        self.known("leading_dense_block_count");
        self.known("interleave_moe_layer_step");
        self.known("moe_every_n_layers");
        self.layers_with_experts()
    }

    /// Reads the sizes of the shared expert, which processes every token.
    pub const fn shared_experts(&mut self, gated: bool) -> Result<Option<SharedExperts>, Error> {
        match tri!(self.nonzero("expert_shared_feed_forward_length", MAX_WIDTH)) {
            Some(width) => Ok(Some(SharedExperts { gated, ..SharedExperts::new(width) })),
            None => Ok(None),
        }
    }

    /// Reads how the router computes the weights of experts. `scores` is the function to use if the file does not name
    /// one.
    pub const fn router(&mut self, scores: Scores) -> Result<Router, Error> {
        let scale = match tri!(self.float("expert_weights_scale")) {
            Some(0.0) => 1.0, // some converters write 0 for none
            _ => tri!(self.or("expert_weights_scale", 1.0)),
        };
        let scores = match tri!(self.nonzero("expert_gating_func", 8)) {
            None => scores,
            // 1 stands for a softmax over all experts, 3 for a softmax over the chosen experts. The result is the same,
            // because the weights of the chosen experts are divided by their sum.
            Some(1 | 3) => Scores::Softmax,
            Some(2) => Scores::Sigmoid,
            Some(_) => return Err(self.wrong("expert_gating_func", "has an unknown value")),
        };
        let groups = match tri!(self.nonzero("expert_group_count", MAX_EXPERTS)) {
            Some(groups) => groups,
            None => 1,
        };
        let used_groups = match tri!(self.nonzero("expert_group_used_count", MAX_EXPERTS)) {
            Some(used) if used <= groups => used,
            Some(_) => return Err(self.wrong("expert_group_used_count", "is more than expert_group_count")),
            None => groups,
        };
        match scores {
            Scores::Softmax if scale == 1.0 && groups == 1 => Ok(Router::Softmax),
            _ => Ok(Router::Scored { scores, scale, groups, used_groups }),
        }
    }
}
