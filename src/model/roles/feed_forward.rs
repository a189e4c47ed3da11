//! Tensors of dense feed-forwards and of experts.

use super::row::{ABSENT, Row, Shape, need_if, required_if};
use super::{Layer, Role};
#[cfg(feature = "mixtures")]
use crate::model::GroupExperts;
use crate::model::{Gate, Need, Router, SharedExperts, Spec};

pub(super) const fn row(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    use Shape::{Matrix, Vector};
    let (dim, ffn) = (spec.dim, layer.ffn);
    let dense = (!layer.has_experts || spec.has_dense_beside()) && ffn > 0;
    let gated = dense && matches!(spec.gate(), Gate::Separate);
    let is_fused = matches!(spec.gate_in(layer), Gate::Fused);
    match role {
        Role::FfnUp => (required_if(dense), Matrix(dim, if is_fused { 2 * ffn } else { ffn })),
        Role::FfnUpBias => (need_if(dense, spec.linear_bias), Vector(ffn)),
        Role::FfnGate => (required_if(gated), Matrix(dim, ffn)),
        Role::FfnGateBias => (need_if(gated, spec.linear_bias), Vector(ffn)),
        Role::FfnSubNorm => (required_if(dense && spec.sub_norms()), Vector(ffn)),
        Role::FfnDown => (required_if(dense), Matrix(ffn, dim)),
        Role::FfnDownBias => (need_if(dense, spec.linear_bias), Vector(dim)),
        _ => ABSENT,
    }
}

/// The table of the tensors of experts: their matrices, the router, and the shared experts.
pub(super) const fn experts(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    use Need::Required;
    use Shape::{Matrices, Matrix, Vector, Vectors};
    let (Some(experts), true) = (spec.experts(), layer.has_experts) else { return ABSENT };
    let (dim, width, count) = (spec.dim, layer.expert_width, experts.count);
    let biases = required_if(experts.biases);
    let (gated, fused) = (matches!(spec.gate(), Gate::Separate), spec.fused_experts());
    let beside = required_if(spec.experts_beside());
    let (shared, has_gate, has_switch) = match spec.shared_experts() {
        Some(SharedExperts { width, fused, gated: switched, .. }) => (width, gated && !fused, switched),
        None => (0, false, false),
    };
    let shared_need = required_if(spec.shared_experts().is_some());
    let shared_up = if matches!(spec.shared_experts(), Some(SharedExperts { fused: true, .. })) { 2 } else { 1 };
    #[cfg(feature = "mixtures")]
    let (grouped, group, groups) = match spec.group_experts() {
        Some(GroupExperts { size, width, .. }) => (Required, width, count.checked_div(size)),
        None => (Need::Absent, 0, None),
    };
    #[cfg(feature = "mixtures")]
    let groups = match groups {
        Some(groups) => groups,
        None => 0,
    };
    match role {
        Role::FfnGateInp => (Required, Matrix(dim, count)),
        Role::ExpProbsBias => (need_if(matches!(spec.router(), Router::Scored { .. }), Need::Optional), Vector(count)),
        Role::FfnGateInpBias => (biases, Vector(count)),
        Role::FfnGateExpsBias | Role::FfnUpExpsBias => (biases, Vectors(width, count)),
        Role::FfnDownExpsBias => (biases, Vectors(dim, count)),
        Role::FfnUpExps => (required_if(!fused), Matrices(dim, width, count)),
        Role::FfnGateExps => (required_if(gated && !fused), Matrices(dim, width, count)),
        Role::FfnGateUpExps => (required_if(fused), Matrices(dim, 2 * width, count)),
        Role::FfnDownExps => (Required, Matrices(width, dim, count)),
        Role::FfnUpShexp => (shared_need, Matrix(dim, shared_up * shared)),
        Role::FfnGateShexp => (required_if(has_gate), Matrix(dim, shared)),
        Role::FfnGateInpShexp => (required_if(has_switch), Matrix(dim, 1)),
        Role::FfnDownShexp => (shared_need, Matrix(shared, dim)),
        Role::FfnGateInpScale | Role::PreFfwNorm2 | Role::PostFfwNorm1 | Role::PostFfwNorm2 => (beside, Vector(dim)),
        #[cfg(feature = "mixtures")]
        Role::FfnNormExps => (required_if(spec.experts_of_input()), Vector(dim)),
        #[cfg(feature = "mixtures")]
        Role::FfnGateChexps | Role::FfnUpChexps => (grouped, Matrices(dim, group, groups)),
        #[cfg(feature = "mixtures")]
        Role::FfnDownChexps => (grouped, Matrices(group, dim, groups)),
        _ => ABSENT,
    }
}
