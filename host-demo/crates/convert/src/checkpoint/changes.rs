//! Changes of a tensor on its way to the new file: reordered rows, arithmetic, or a split into several tensors.

use anyhow::{Context, Result, ensure};

use super::config::Config;
use super::view::{Step, View};

/// A change of a tensor. It returns one view for each GGUF name in the tensor's row of the table. If the row has one
/// name, it may return any number of views.
pub type Change = for<'f> fn(&Config, View<'f>) -> Result<Vec<View<'f>>>;

type Changed<'f> = Result<Vec<View<'f>>>;

pub fn same<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    Ok(vec![view])
}

macro_rules! added {
    ($($(#[$doc:meta])* $function:ident $number:expr;)*) => {$(
        $(#[$doc])*
        pub fn $function<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
            Ok(vec![view.then(Step::Add($number))])
        }
    )*};
}
added! {
    /// Adds 1, for families that store the weights of norms relative to 1.
    plus_one 1.0;
    /// Adds 1/5, because PLaMo stores the weights of norms after attention relative to this number.
    plus_fifth 0.2;
    /// Adds 5^-1.5, because PLaMo stores the weights of norms after the feed-forward relative to this number.
    plus_eleventh 0.089_442_72;
}

/// Computes decays from their logarithms: A = -exp(A_log).
pub fn decay<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    Ok(vec![view.then(Step::NegativeExp)])
}

/// Computes Mamba 2's decays as a column.
pub fn decay_column<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    column(config, view.then(Step::NegativeExp))
}

/// Reshapes a vector to a column.
pub fn column<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    let len = view.len();
    Ok(vec![view.squeeze().reshape(&[len, 1])?])
}

/// Removes dimensions of size 1.
pub fn squeezed<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    Ok(vec![view.squeeze()])
}

/// Turns the weights of a convolution over time into a matrix. A row has the weights of all inputs for the first tap,
/// then the weights of all inputs for the second tap, and so on.
pub fn convolution<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    let (outputs, inputs, taps) = (view.size(0)?, view.size(1)?, view.size(2)?);
    Ok(vec![view.swap(1, 2)?.seen_as(&[outputs, taps * inputs])?])
}

pub fn transposed<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    Ok(vec![view.transpose()?])
}

/// Reorders the rows of each head. Two rows that are rotated together are half a head apart in the checkpoint, and
/// neighbours in the new file.
fn rotated<'f>(view: View<'f>, heads: usize) -> Changed<'f> {
    let dims = view.shape().to_vec();
    let rows = dims.first().copied().unwrap_or(0);
    let half = rows.checked_div(2 * heads).unwrap_or(0);
    ensure!(half * heads * 2 == rows, "the tensor {} has {rows} rows: not {heads} heads of pairs", view.name());
    let mut shape = vec![heads, 2, half];
    shape.extend(&dims[1..]);
    Ok(vec![view.reshape(&shape)?.swap(1, 2)?.seen_as(&dims)?])
}

/// Reorders the rows of queries, because GGUF's rotation pairs neighbouring rows.
pub fn rotated_q<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    rotated(view, config.heads()?)
}

/// Reorders the rows of keys for rotations of neighbours.
pub fn rotated_k<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    rotated(view, config.key_heads()?)
}

/// Splits a matrix in which each head has its q, k and v side by side into the q, the k and the v of all heads.
pub fn by_heads<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let heads = config.heads()?;
    let dims = view.shape().to_vec();
    let rows = dims.first().copied().unwrap_or(0);
    let width = rows.checked_div(3 * heads).unwrap_or(0);
    let mut shape = vec![heads, 3, width];
    shape.extend(&dims[1..]);
    let mut third = dims.clone();
    third[0] = rows / 3;
    view.reshape(&shape)?.parts(1, 3)?.into_iter().map(|part| part.seen_as(&third)).collect()
}

/// Splits Falcon's layout, in which each group of heads has its queries, then its key, then its value.
pub fn by_groups<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    grouped(view, config.heads()?, falcon_groups(config)?)
}

/// Number of Falcon's key heads. Older layers with `multi_query` have one key head, even if `num_kv_heads` has a
/// different value.
pub fn falcon_groups(config: &Config) -> Result<usize> {
    let has_one = config.flag("multi_query") == Some(true) && config.flag("new_decoder_architecture") != Some(true);
    let stated = config.number(&["num_kv_heads", "n_head_kv"])?;
    Ok(stated.filter(|_| !has_one).map_or(1, |groups| groups as usize))
}

/// Splits InternLM 2's matrix, which also has Falcon's layout, and reorders queries and keys for rotations of
/// neighbours.
pub fn grouped_rotated<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let (heads, groups) = (config.heads()?, config.key_heads()?);
    let parts = grouped(view, heads, groups)?;
    let mut rotated = Vec::new();
    for (i, part) in parts.into_iter().enumerate() {
        if i == 2 {
            rotated.push(part);
            continue;
        }
        let mut shape = part.shape().to_vec();
        shape.splice(2..3, [2, shape[2] / 2]);
        rotated.push(part.reshape(&shape)?.swap(2, 3)?);
    }
    Ok(rotated)
}

fn grouped<'f>(view: View<'f>, heads: usize, groups: usize) -> Changed<'f> {
    let mut dims = view.shape().to_vec();
    let shared = heads / groups.max(1);
    let width = dims[0] / (groups * (shared + 2)).max(1);
    let mut shape = vec![groups, shared + 2, width];
    shape.extend(&dims[1..]);
    let sizes = [shared, 1, 1];
    let parts = view.reshape(&shape)?.split(1, &sizes)?.into_iter().zip(sizes);
    let seen = parts.map(|(part, heads)| {
        dims[0] = groups * heads * width;
        part.seen_as(&dims)
    });
    seen.collect()
}

/// Splits a matrix into q, k and v, which have the same size. Reorders the rows of q and k, so that rotary positions
/// rotate neighbouring rows.
pub fn thirds_rotated<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    first_two_rotated(config, view.parts(0, 3)?)
}

/// Splits q, k and v stored in one matrix, and reorders q and k for rotations of neighbours.
pub fn qkv_rotated<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let parts = qkv(config, view)?;
    first_two_rotated(config, parts)
}

fn first_two_rotated<'f>(config: &Config, parts: Vec<View<'f>>) -> Changed<'f> {
    let width = config.head_width()?;
    let part = |(i, part)| if i < 2 { heads_rotated(part, width) } else { Ok(part) };
    parts.into_iter().enumerate().map(part).collect()
}

/// Reorders the rows of each head for rotations of neighbours. The number of heads may differ between layers.
pub fn rotated_heads<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let width = config.head_width()?;
    Ok(vec![heads_rotated(view, width)?])
}

fn heads_rotated(view: View<'_>, width: usize) -> Result<View<'_>> {
    let heads = view.size(0)? / width.max(1);
    rotated(view, heads)?.pop().context("no rows")
}

/// Splits a matrix with the rows of one key head and the rows of one value head into these two parts.
pub fn keys_and_values<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let width = config.head_width()?;
    view.split(0, &[width, width])
}

/// Returns the number of key heads of a PLaMo model, and the number of query heads that share a key head.
pub fn in_groups_of_heads(config: &Config) -> Result<[usize; 2]> {
    let (heads, shared) = (config.heads()?, config.size(&["n_shared_head"])?);
    ensure!(
        shared > 0 && heads.is_multiple_of(shared),
        "config.json has {heads} heads, of which {shared} share their keys: not supported"
    );
    Ok([heads / shared, shared])
}

/// Reorders the rows of PLaMo's queries so that heads that use the same keys are consecutive.
pub fn tiled_rows<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let [keys, shared] = in_groups_of_heads(config)?;
    let (rows, columns) = (view.size(0)?, view.size(1)?);
    let shape = [shared, keys, rows / (keys * shared).max(1), columns];
    Ok(vec![view.reshape(&shape)?.swap(0, 1)?.seen_as(&[rows, columns])?])
}

/// Like [`tiled_rows`], for columns.
pub fn tiled_columns<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let [keys, shared] = in_groups_of_heads(config)?;
    let (rows, columns) = (view.size(0)?, view.size(1)?);
    let shape = [rows, shared, keys, columns / (keys * shared).max(1)];
    Ok(vec![view.reshape(&shape)?.swap(1, 2)?.seen_as(&[rows, columns])?])
}

/// Splits the rows of a matrix into four equal parts.
pub fn quarters<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    view.parts(0, 4)
}

/// Splits each matrix into the first half and the second half of its rows.
pub fn halves<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    let rows = view.shape().len().saturating_sub(2);
    view.parts(rows, 2)
}

/// Splits the columns into two halves, each transposed.
pub fn halves_transposed<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    halves(config, view.transpose()?)
}

/// Transposes a matrix whose columns belong to gate and up alternately, and splits it into the matrix of gate and the
/// matrix of up.
pub fn in_turns_transposed<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    in_turns(view.transpose()?, 1)
}

/// Splits alternating biases into gate and up.
pub fn in_turns_last<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    in_turns(view, 1)
}

fn in_turns<'f>(view: View<'f>, dim: usize) -> Changed<'f> {
    let half = view.size(dim)? / 2;
    Ok(vec![view.clone().every(dim, 0, 2, half)?, view.every(dim, 1, 2, half)?])
}

/// Splits gate and up of experts stored in one matrix: columns in transformers before 5, rows since then.
pub fn experts_gate_up<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let (width, ff) = (config.width()?, config.size(&["moe_intermediate_size"])?);
    halves(config, oriented(config, view, 2 * ff, width)?)
}

/// Converts the down matrices of experts like [`experts_gate_up`], but does not split these matrices.
pub fn experts_down<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let (width, ff) = (config.width()?, config.size(&["moe_intermediate_size"])?);
    Ok(vec![oriented(config, view, width, ff)?])
}

fn oriented<'f>(config: &Config, view: View<'f>, rows: usize, columns: usize) -> Result<View<'f>> {
    let newer = config.text("transformers_version").and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    match *view.shape() {
        [_, r, c] if (r, c) == (rows, columns) && (rows != columns || newer.is_none_or(|version| version >= 5)) => {
            Ok(view)
        }
        [_, r, c] if (r, c) == (columns, rows) => view.transpose(),
        ref other => anyhow::bail!("the tensor {} has shape {other:?}: not experts of {rows} x {columns}", view.name()),
    }
}

/// Splits q, k and v stored in one matrix.
pub fn qkv<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let width = config.head_width()?;
    let (q, k) = (config.heads()? * width, config.key_heads()? * width);
    view.split(0, &[q, k, k])
}

/// Splits DeepSeek's matrix, which computes keys and values from the latent vector, into the part for keys (transposed)
/// and the part for values.
pub fn latent<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let (key, value) = (config.size(&["qk_nope_head_dim"])?, config.size(&["v_head_dim"])?);
    let (rows, columns) = (view.size(0)?, view.size(1)?);
    let heads = rows / (key + value).max(1);
    let mut parts = view.reshape(&[heads, key + value, columns])?.split(1, &[key, value])?;
    let value = parts.pop().context("no values")?;
    let key = parts.pop().context("no keys")?;
    Ok(vec![key.transpose()?, value])
}

/// Reshapes the norm of a state-space mixer to one row per group.
pub fn by_ssm_groups<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let groups = config.number(&["n_groups", "mamba_n_groups", "num_groups"])?.unwrap_or(1) as usize;
    let len = view.len();
    ensure!(groups > 0 && len.is_multiple_of(groups), "the tensor {} is not of {groups} groups", view.name());
    Ok(vec![view.reshape(&[groups, len / groups])?])
}

/// Returns the sizes of a gated delta net: the number of key heads, the number of value heads for each key head, the
/// width of a key, and the width of a value.
fn delta(config: &Config) -> Result<[usize; 4]> {
    let size = |name: &str| config.size(&[name]);
    let (keys, values) = (size("linear_num_key_heads")?, size("linear_num_value_heads")?);
    ensure!(keys > 0 && values.is_multiple_of(keys), "config.json has {values} value heads for {keys} key heads");
    Ok([keys, values / keys, size("linear_key_head_dim")?, size("linear_value_head_dim")?])
}

/// Reorders value heads that are grouped by key head, so that they alternate between the key heads. A head has `width`
/// rows.
fn heads_in_turns<'f>(config: &Config, view: View<'f>, width: usize) -> Result<View<'f>> {
    let [keys, shared, ..] = delta(config)?;
    let dims = view.shape().to_vec();
    let mut shape = vec![keys, shared, width];
    shape.extend(dims.get(1..).unwrap_or_default());
    view.reshape(&shape)?.swap(0, 1)?.seen_as(&dims)
}

/// Reorders the value heads of a matrix in which each row belongs to an element of a value head.
pub fn delta_values<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let width = delta(config)?[3];
    Ok(vec![heads_in_turns(config, view, width)?])
}

/// Reorders a tensor with one row or number per value head.
pub fn delta_heads<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    Ok(vec![heads_in_turns(config, view, 1)?])
}

pub fn delta_decay<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    delta_heads(config, view.then(Step::NegativeExp))
}

/// Reorders the value heads in a matrix whose rows compute queries, keys and values.
pub fn delta_qkv<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let [keys, shared, key, value] = delta(config)?;
    let mut parts = view.squeeze().split(0, &[2 * keys * key, keys * shared * value])?;
    let values = parts.pop().context("no values")?;
    parts.push(heads_in_turns(config, values, value)?);
    Ok(parts)
}

/// Reorders the value heads of a matrix in which each column belongs to an element of a value head.
pub fn delta_columns<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let [keys, shared, _, value] = delta(config)?;
    let dims = view.shape().to_vec();
    let shape = [view.size(0)?, keys, shared, value];
    Ok(vec![view.reshape(&shape)?.swap(1, 2)?.seen_as(&dims)?])
}

/// Splits Qwen 3 Next's layout, in which each key head has its q, its k, its values, and their gates.
pub fn delta_groups<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let [keys, shared, key, value] = delta(config)?;
    let columns = view.size(1)?;
    let sizes = [key, key, shared * value, shared * value];
    let parts = view.reshape(&[keys, sizes.iter().sum(), columns])?.split(1, &sizes)?.into_iter().zip(sizes);
    parts.map(|(part, rows)| part.seen_as(&[keys * rows, columns])).collect()
}

/// Drops the unused rows at the start of the learned positions.
pub fn used_positions<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let unused = config.size(&["pad_token_id"])? + 1;
    let rows = view.size(0)?;
    Ok(vec![view.slice(0, unused, rows.saturating_sub(unused))?])
}

/// Drops the first two rows of MPNet's table of positions, which no token uses.
pub fn third_row_on<'f>(_: &Config, view: View<'f>) -> Changed<'f> {
    let rows = view.size(0)?;
    Ok(vec![view.slice(0, 2, rows.saturating_sub(2))?])
}

/// Reshapes Nomic's experts, which are stored in one matrix, to one matrix per expert.
pub fn stacked_rows<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    let (experts, rows, columns) = (config.experts()?, config.size(&["n_inner"])?, config.size(&["n_embd"])?);
    Ok(vec![view.reshape(&[experts, rows, columns])?])
}

pub fn stacked_columns<'f>(config: &Config, view: View<'f>) -> Changed<'f> {
    stacked_rows(config, view)?.into_iter().map(View::transpose).collect()
}
