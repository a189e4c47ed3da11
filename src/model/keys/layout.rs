//! Detects how a file lays out its tensors, and which layers have experts or attention.

use super::Keys;
use crate::gguf::{Value, equal};
use crate::model::layers::Pattern;
use crate::model::{Gate, MAX_LAYERS, Spec, Stack};
use crate::quant::TensorType;
use crate::{Error, Name, built};

impl<'a> Keys<'_, 'a> {
    /// True if the file has a tensor with this name.
    pub const fn has(&self, tensor: &str) -> bool {
        self.gguf.tensor(tensor).is_some()
    }

    /// True if the first or the last layer has a tensor of this name. The last layer is tested because a file may
    /// contain only the layers for multi-token prediction.
    pub const fn has_in_layers(&self, tensor: &str) -> bool {
        self.has_in_layer(0, tensor) || built::DRAFTS && self.has_in_layer(self.layers.saturating_sub(1), tensor)
    }

    /// True if a layer has a tensor of this name.
    pub const fn has_in_layer(&self, layer: usize, tensor: &str) -> bool {
        match core::str::from_utf8(Name::layered("", layer, tensor).bytes()) {
            Ok(name) => self.has(name),
            Err(_) => false,
        }
    }

    /// Number of rows of the matrix called `tensor` in layer `layer`. 0 if the file does not have this matrix.
    const fn rows_in_layer(&self, layer: usize, tensor: &str) -> usize {
        match core::str::from_utf8(Name::layered("", layer, tensor).bytes()) {
            Ok(name) => self.rows(name),
            Err(_) => 0,
        }
    }

    /// Rows of a matrix; 0 if the file does not have it.
    pub const fn rows(&self, tensor: &str) -> usize {
        match self.gguf.tensor(tensor) {
            Some(tensor) if tensor.dims[1] <= i32::MAX as u64 => tensor.dims[1] as usize,
            _ => 0,
        }
    }

    /// Rows of a matrix that the file must have.
    pub const fn needed_rows(&self, tensor: &str) -> Result<usize, Error> {
        match self.rows(tensor) {
            0 => Err(Error::MissingTensor { tensor: Name::new(tensor.as_bytes()) }),
            rows => Ok(rows),
        }
    }

    /// Returns the layers that have a router or experts: all layers, or a set among the first 128. A layer with a
    /// router but no experts counts, as does a layer with experts but no router, so that the missing tensor is
    /// reported.
    pub const fn layers_with_experts(&self) -> Pattern<'a> {
        let (mut words, mut routers, mut experts) = ([0; 4], 0, 0);
        let mut tensors = self.gguf.tensors();
        while let Some(tensor) = tensors.next_tensor() {
            let name = tensor.name.as_bytes();
            let layer = match (layer_of(name, b".ffn_gate_inp.weight"), layer_of(name, b".ffn_down_exps.weight")) {
                (Some(layer), _) => {
                    routers += 1;
                    layer
                }
                (None, Some(layer)) => {
                    experts += 1;
                    layer
                }
                (None, None) => continue,
            };
            if layer < 128 {
                words[layer / 32] |= 1 << (layer % 32);
            }
        }
        match (routers, experts) {
            (0, 0) => Pattern::Never,
            _ if routers >= self.layers || experts >= self.layers => Pattern::Always,
            _ => Pattern::Set(words),
        }
    }

    /// Returns which layers have no attention: the layers for which `attention.head_count_kv` is 0.
    pub const fn layers_without_attention(&self) -> Pattern<'a> {
        match self.gguf.get2(self.architecture, "attention.head_count_kv") {
            Some(Value::Array(heads)) => Pattern::Zero(heads),
            Some(Value::U32(0)) => Pattern::Always,
            _ => Pattern::Never,
        }
    }

    /// Removes a sliding window of all layers unless the family has called `window_everywhere`. Then detects the layout
    /// of the file's tensors.
    #[inline(never)] // keeps its temporaries off the stack while the family reads its keys
    pub const fn settle(&self, spec: &mut Spec<'a>) {
        if spec.global.window.is_some() && !self.window_everywhere {
            spec.global.window = None;
            spec.local.window = None;
        }
        self.conventions(spec);
        if !built::LENIENT || !matches!(spec.stack, Stack::Alone | Stack::Encoder) {
            return;
        }
        let (mut attention, mut dense, mut experts, mut index) = (true, true, true, 0);
        while index < spec.layers && (attention || dense || experts) {
            let layer = spec.layer(index);
            if attention && layer.has_attention() && layer.owns_kv {
                attention = false;
                self.qkv_layout(spec, index);
            }
            if dense && !layer.has_experts && layer.ffn > 0 {
                dense = false;
                self.gate_layout(spec, index, layer.ffn);
            }
            if built::EXPERTS && experts && layer.has_experts {
                experts = false;
                spec.fused_experts = self.has_in_layer(index, "ffn_gate_up_exps.weight");
                spec.separate_experts = self.has_in_layer(index, "ffn_down.0.weight");
                if let Some(shared) = &mut spec.shared_experts {
                    shared.fused = !matches!(spec.gate, Gate::None)
                        && !self.has_in_layer(index, "ffn_gate_shexp.weight")
                        && self.rows_in_layer(index, "ffn_up_shexp.weight") == 2 * shared.width;
                }
            }
            index += 1;
        }
    }

    /// Sets `spec.fused_qkv` according to how the file stores a layer's q, k and v: in one tensor or in three.
    const fn qkv_layout(&self, spec: &mut Spec<'a>, index: usize) {
        if spec.gated_query {
            return;
        }
        if self.has_in_layer(index, "attn_qkv.weight") {
            spec.fused_qkv = true;
        } else if self.has_in_layer(index, "attn_q.weight") {
            spec.fused_qkv = false;
        }
    }

    /// Sets `spec.gate` according to how the file stores a layer's gate and up matrices, which have `width` rows each:
    /// in two tensors or in one.
    const fn gate_layout(&self, spec: &mut Spec<'a>, index: usize, width: usize) {
        if spec.experts.is_some() || matches!(spec.gate, Gate::None) {
            return;
        }
        if self.has_in_layer(index, "ffn_gate.weight") {
            spec.gate = Gate::Separate;
        } else if self.rows_in_layer(index, "ffn_up.weight") == 2 * width {
            spec.gate = Gate::Fused;
        }
    }

    /// Sets `scaled` if the file has factors of matrices (tensors `.scale`), and counts the elements of tensors in F16
    /// or BF16 that may be vectors, in `half_vectors`.
    const fn conventions(&self, spec: &mut Spec<'a>) {
        let mut tensors = self.gguf.tensors();
        while let (true, Some(tensor)) = (built::SCALES || built::HALF_VECTORS, tensors.next_tensor()) {
            let name = tensor.name.as_bytes();
            spec.scaled |= built::SCALES && ends_with(name, b".scale");
            if built::HALF_VECTORS && matches!(tensor.kind, TensorType::F16 | TensorType::BF16) {
                let [columns, rows, ..] = tensor.dims;
                // True for tensors that are vectors, although their names end in `.weight` and they have two
                // dimensions.
                let is_vectors = ends_with(name, b"norm.weight")
                    || ends_with(name, b"conv1d.weight")
                    || ends_with(name, b"shortconv.conv.weight")
                    || ends_with(name, b"attn_rel_b.weight");
                if rows == 1 || is_vectors || !ends_with(name, b".weight") {
                    let elements =
                        columns.saturating_mul(rows).saturating_mul(tensor.dims[2].saturating_mul(tensor.dims[3]));
                    spec.half_vectors =
                        spec.half_vectors.saturating_add(if elements < 1 << 32 { elements as usize } else { 0 });
                }
            }
        }
    }
}

/// Returns the number `N` of the layer if a tensor is called `blk.N` followed by `part`. `None` for other names.
const fn layer_of(name: &[u8], part: &[u8]) -> Option<usize> {
    let [b'b', b'l', b'k', b'.', rest @ ..] = name else { return None };
    let (mut rest, mut layer) = (rest, 0);
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        layer = 10 * layer + (*digit - b'0') as usize;
        if layer > MAX_LAYERS {
            return None;
        }
        rest = after;
    }
    if equal(rest, part) { Some(layer) } else { None }
}

const fn ends_with(name: &[u8], end: &[u8]) -> bool {
    match name.split_at_checked(name.len().saturating_sub(end.len())) {
        Some((_, last)) => equal(last, end),
        None => false,
    }
}
