//! Reads the experts of DeepSeek and related families.

use super::keys::Keys;
use super::layers::{Limits, Numbers};
use super::{Experts, MAX_LAYERS, PerLayer, Router, Scores, SharedExperts, Spec};
use crate::{Error, tri};

/// A rule for the width of the shared expert.
#[derive(Clone, Copy)]
pub(super) enum SharedWidth {
    /// The width is in the file. If it is not, the width is the width of a routed expert times the number of shared
    /// experts.
    Key,
    /// The width is not in the file. It is the width of a routed expert times the number of shared experts.
    Count,
    /// The width is the number under this key times the number of shared experts.
    KeyTimesCount,
}

impl<'a> Keys<'_, 'a> {
    /// Adds the experts to a decoder: the router (with the function `scores`, unless the file names a different one),
    /// the shared expert, and the layers without experts. Skips the layers for multi-token prediction. `normed` is the
    /// default for whether weights are divided by their sum.
    pub const fn mixture(&mut self, spec: Spec<'a>, scores: Scores, normed: bool) -> Result<Spec<'a>, Error> {
        self.mixture_with(spec, scores, normed, SharedWidth::Key)
    }

    /// Like [`mixture`](Self::mixture), but with `rule` for the width of shared experts.
    pub const fn mixture_with(
        &mut self,
        spec: Spec<'a>,
        scores: Scores,
        normed: bool,
        rule: SharedWidth,
    ) -> Result<Spec<'a>, Error> {
        let spec = tri!(self.without_next(spec));
        let (router, expert_layers) = (tri!(self.router(scores)), self.expert_layers());
        let shared_count = tri!(self.nonzero("expert_shared_count", 1 << 10));
        let shared_width = tri!(self.nonzero("expert_shared_feed_forward_length", Self::MAX_WIDTH));
        let Some(experts) = tri!(self.experts(normed)) else { return Ok(spec) };
        if let Router::Scored { groups, used_groups, .. } = router {
            let left = match experts.count.checked_div(groups) {
                Some(each) if each * groups == experts.count => each * used_groups,
                _ => 0,
            };
            if experts.used > left {
                return Err(self.wrong("expert_group_count", "does not divide expert_count, or leaves too few experts"));
            }
        }
        let shared_width = match (rule, shared_count) {
            (SharedWidth::Key, _) => shared_width,
            (SharedWidth::Count, Some(_)) if experts.width.is_none() => {
                return Err(self.missing("expert_feed_forward_length"));
            }
            (SharedWidth::Count, _) => None,
            (SharedWidth::KeyTimesCount, count) => match (shared_width, count) {
                (Some(width), Some(count)) => Some(width.saturating_mul(count)),
                (width, _) => width,
            },
        };
        let width = match (shared_width, shared_count, experts, spec.ffn) {
            (Some(width), ..) => Some(width),
            (None, Some(count), Experts { width: Some(width), .. }, _)
            | (None, Some(count), _, PerLayer::All(width)) => Some(count.saturating_mul(width)),
            _ => None,
        };
        let shared_experts = match width {
            Some(width) if width <= Self::MAX_WIDTH => Some(SharedExperts::new(width)),
            Some(_) => return Err(self.wrong("expert_shared_count", "is too large")),
            None => None,
        };
        Ok(Spec { experts: Some(experts), router, shared_experts, expert_layers, ..spec })
    }

    /// Reads the limits of the feed-forwards' gates: one limit for each layer, or one for all layers. `before` is true
    /// if a gate is limited before its activation function, too.
    pub const fn limits(&mut self, before: bool, layers: usize) -> Result<Option<Limits<'a>>, Error> {
        if !self.has_key("swiglu_clamp_exp") && !self.has_key("swiglu_clamp_shexp") {
            return Ok(None);
        }
        let experts = tri!(self.limits_of("swiglu_clamp_exp", layers));
        let shared = tri!(self.limits_of("swiglu_clamp_shexp", layers));
        Ok(Some(Limits { experts, shared, before }))
    }

    const fn limits_of(&mut self, name: &'static str, layers: usize) -> Result<Numbers<'a>, Error> {
        if let Some(numbers) = tri!(self.floats(name, layers)) {
            return Ok(Numbers::Each(numbers));
        }
        match tri!(self.unless_zero(name)) {
            Some(number) => Ok(Numbers::All(number)),
            None => Ok(Numbers::All(0.0)),
        }
    }

    /// Reads a period of layers, or returns `default` if the file has no such key.
    pub const fn period(&mut self, name: &'static str, default: usize) -> Result<usize, Error> {
        match tri!(self.nonzero(name, MAX_LAYERS)) {
            Some(period) => Ok(period),
            None => Ok(default),
        }
    }
}
