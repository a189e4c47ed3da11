//! Computes from a model file how many bytes each section of a pass reads and how many multiplications it does.

use arenite::gguf::Tensor;
use arenite::{Gguf, Model, Section};

/// Number of bytes that a section of the model reads in a run, and number of its multiplications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub bytes: u64,
    pub multiplications: u64,
}

/// Returns the traffic of `section` in `run`; `None` for sections that are not counted. A run computes the logits of
/// its last token only.
pub fn of(section: Section, gguf: &Gguf<'_>, model: &Model<'_>, run: &Run) -> Option<Traffic> {
    match section {
        Section::Qkv | Section::Output | Section::FeedForward | Section::Head => {
            Some(matrices(section, gguf, model, run, |_| true))
        }
        Section::Attention => Some(attention(model, run)),
        _ => None,
    }
}

/// Cost of a multiplication of floats, in multiplications of bytes: one instruction multiplies 16 floats or 64 bytes.
/// (With i8mm on Arm it multiplies eight times as many bytes as floats, so that shares of the peak are a little low there.)
const FLOAT_COST: u64 = 4;

/// Returns the traffic of all matrices and caches in a whole run: the number of bytes that are read, and the number of
/// multiplications. A multiplication of floats, as in attention, counts as [`FLOAT_COST`] multiplications of bytes.
pub fn total(gguf: &Gguf<'_>, model: &Model<'_>, run: &Run) -> Traffic {
    let mut sum = Traffic::default();
    for section in Section::ALL {
        let Some(all) = of(section, gguf, model, run) else { continue };
        let bytes = matrices(section, gguf, model, run, |tensor| tensor.kind.block().0 > 1).multiplications;
        sum.bytes += all.bytes;
        sum.multiplications += bytes + FLOAT_COST * (all.multiplications - bytes);
    }
    sum
}

/// What is measured: the processing of `tokens` tokens, after `before` earlier ones, in passes of at most `batch`
/// tokens.
pub struct Run {
    pub tokens: usize,
    pub before: usize,
    pub batch: usize,
    /// Size of a value in the KV cache, in units of 1/34 byte, in which it is a whole number for every type. (A q8_0
    /// value has 34/32 bytes, about 36 units.)
    pub value_34ths: u64,
}

/// Returns the traffic of those matrices of a section that `counts` accepts.
fn matrices(
    section: Section,
    gguf: &Gguf<'_>,
    model: &Model<'_>,
    run: &Run,
    counts: impl Fn(&Tensor<'_>) -> bool,
) -> Traffic {
    let tied = gguf.tensors().all(|tensor| tensor.name != "output.weight");
    let passes = run.tokens.div_ceil(run.batch.max(1)) as u64;
    let mut sum = Traffic::default();
    for tensor in gguf.tensors().filter(|tensor| section_of(tensor.name, tied) == Some(section) && counts(tensor)) {
        let [columns, rows, experts, _] = tensor.dims;
        let (tokens, passes) = if section == Section::Head { (1, 1) } else { (run.tokens as u64, passes) };
        let (all, used) = match model.spec().experts() {
            Some(chosen) if is_expert(&tensor) => (experts.max(1), (chosen.used as u64).min(experts.max(1))),
            _ => (1, 1),
        };
        // The estimate assumes that the tokens of a pass choose different experts, as far as there are enough experts.
        let read = used.saturating_mul(tokens.div_ceil(passes.max(1))).min(all);
        sum.bytes += (tensor.data.len() as u64 / all).saturating_mul(read).saturating_mul(passes);
        sum.multiplications += columns.saturating_mul(rows).saturating_mul(used).saturating_mul(tokens);
    }
    sum
}

fn is_expert(tensor: &Tensor<'_>) -> bool {
    tensor.name.contains("_exps.")
}

/// Returns the section of the run that multiplies by the tensor `name` of the decoder. `tied` is true if the embedding
/// of tokens is also the output matrix.
fn section_of(name: &str, tied: bool) -> Option<Section> {
    let part = name.split('.').rev().nth(1)?;
    if !name.ends_with(".weight") || name.starts_with("enc.") {
        return None;
    }
    match part {
        "attn_q" | "attn_k" | "attn_v" | "attn_qkv" | "attn_gate" => Some(Section::Qkv),
        "ssm_in" | "ssm_alpha" | "ssm_beta" | "ssm_ba" | "in_proj" => Some(Section::Qkv),
        "attn_output" | "attn_o" | "ssm_out" | "out_proj" => Some(Section::Output),
        "output" => Some(Section::Head),
        "token_embd" if tied => Some(Section::Head),
        _ if part.starts_with("ffn_") && !part.contains("norm") => Some(Section::FeedForward),
        _ => None,
    }
}

fn attention(model: &Model<'_>, run: &Run) -> Traffic {
    let mut sum = Traffic::default();
    for layer in (0..model.spec().layers).map(|index| model.spec().layer(index)) {
        let window = layer.window().unwrap_or(usize::MAX);
        let seen: u64 = (run.before + 1..=run.before + run.tokens).map(|n| n.min(window) as u64).sum();
        sum.multiplications += 2 * seen * layer.q_dim() as u64;
        // All tokens of a pass attend to the same keys. The keys are read once for eight tokens.
        let rows = if run.tokens == 1 { seen } else { seen / 8 };
        sum.bytes += 2 * rows * layer.kv_dim() as u64 * run.value_34ths / 34;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_belong_to_sections() {
        for (name, want) in [
            ("blk.3.attn_q.weight", Some(Section::Qkv)),
            ("blk.3.attn_q_norm.weight", None),
            ("blk.0.attn_q.bias", None),
            ("blk.0.attn_output.weight", Some(Section::Output)),
            ("blk.0.attn_norm.weight", None),
            ("blk.0.shortconv.in_proj.weight", Some(Section::Qkv)),
            ("blk.0.shortconv.conv.weight", None),
            ("blk.0.ssm_out.weight", Some(Section::Output)),
            ("blk.0.ffn_down_exps.weight", Some(Section::FeedForward)),
            ("blk.0.ffn_norm.weight", None),
            ("output.weight", Some(Section::Head)),
            ("output_norm.weight", None),
            ("token_embd.weight", None),
            ("enc.blk.0.attn_q.weight", None),
        ] {
            assert_eq!(section_of(name, false), want, "{name}");
        }
        assert_eq!(section_of("token_embd.weight", true), Some(Section::Head));
    }
}
