//! Finds weights that were quantized to integers by GPTQ, compressed-tensors or bitsandbytes, and replaces the stored
//! tensors of each weight by a single tensor. The rest of the conversion therefore reads only ordinary matrices.
//! [`awq`](super::awq), [`mlx`](super::mlx), [`hqq`](super::hqq) and [`modelopt`](super::modelopt) do the same for the
//! formats of their names.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::access::{change, ending, values};
use super::leaf::{Codes, Coding, Factors, Groups, Leaf, Nested, Order, Packed, Scale, Zeros};
use super::tensors::Checkpoint;

/// Removes one of the tensors that together store a quantized tensor, and returns it.
pub fn take<'f>(checkpoint: &mut Checkpoint<'f>, name: &str) -> Option<Arc<Leaf<'f>>> {
    checkpoint.tensors.remove(name)
}

pub fn need<'f>(checkpoint: &mut Checkpoint<'f>, name: &str) -> Result<Arc<Leaf<'f>>> {
    take(checkpoint, name).with_context(|| format!("the tensor {name} is missing"))
}

/// Returns the sizes of a matrix.
pub fn sizes(leaf: &Leaf<'_>) -> Result<[usize; 2]> {
    match leaf.shape[..] {
        [rows, columns] if leaf.coding == Coding::I32 => Ok([rows, columns]),
        _ => bail!("the tensor {} is not a matrix of 32-bit words", leaf.name),
    }
}

/// Inserts a matrix or a stack of matrices. The last two sizes of `shape` are rows and columns.
pub fn put<'f>(checkpoint: &mut Checkpoint<'f>, name: &str, shape: &[usize], packed: Packed<'f>) -> Result<()> {
    let group = match &packed.groups {
        Groups::OfColumns(size) | Groups::Flat(size) | Groups::Apart(size) => *size,
        Groups::Listed(list) => list.len(),
    };
    ensure!(!shape.contains(&0) && group > 0, "the tensor {name} has no values");
    let leaf = Leaf::of_packed(name, shape, packed);
    ensure!(checkpoint.tensors.insert(name.to_owned(), Arc::new(leaf)).is_none(), "there are two tensors {name}");
    Ok(())
}

/// Returns the number of columns of a group.
pub fn group_size(settings: &Value, columns: usize) -> usize {
    // AutoAWQ's own file has other names than config.json.
    let stated = settings["group_size"].as_u64().or(settings["q_group_size"].as_u64());
    stated.filter(|size| *size > 0).map_or(columns, |size| size as usize)
}

/// Returns the number of bits of a code, given that `words` words store `count` codes.
pub fn bits(words: usize, count: usize) -> Result<usize> {
    let bits = (words * 32).checked_div(count).filter(|bits| (2..=8).contains(bits));
    bits.with_context(|| format!("{words} words for {count} codes"))
}

/// Converts GPTQ's matrices: each word has the codes of consecutive inputs. The first version of the format stores each
/// zero minus 1. Codes of 5, 6 and 7 bits, and in `gptq_p` all codes, are stored in planes. `g_idx` has the group of
/// each input.
pub fn gptq(checkpoint: &mut Checkpoint<'_>, settings: &Value) -> Result<()> {
    let version = settings["checkpoint_format"].as_str().or(settings["format"].as_str()).unwrap_or("");
    ensure!(
        ["", "gptq", "gptq_v2", "gptq_p"].contains(&version),
        "its quantization has the checkpoint_format {version}: gptq, gptq_v2 and gptq_p are supported"
    );
    for stem in ending(checkpoint, "qweight") {
        let codes = need(checkpoint, &format!("{stem}qweight"))?;
        let scales = need(checkpoint, &format!("{stem}scales"))?;
        let zeros = need(checkpoint, &format!("{stem}qzeros"))?;
        let listed = take(checkpoint, &format!("{stem}g_idx"));
        let [words, rows] = sizes(&codes)?;
        let [groups, zero_words] = sizes(&zeros)?;
        // A layer can have bits of its own.
        let bits = bits(zero_words, rows).with_context(|| zeros.name.clone())?;
        let columns = listed.as_ref().map_or(words * 32 / bits, |list| list.shape.iter().product());
        ensure!(
            scales.shape[..] == [groups, rows]
                && zero_words * 32 == rows * bits
                && words * 32 == columns * bits
                && groups > 0,
            "the factors of {} have shape {:?}, which does not fit",
            codes.name,
            scales.shape
        );
        // A layer can have groups of a size of its own.
        let stated = group_size(settings, columns);
        let size = if columns.div_ceil(stated) == groups { stated } else { columns.div_ceil(groups) };
        let groups_of = match listed {
            // A list of groups is dropped if each group consists of consecutive columns, because decoding is faster
            // without a list.
            Some(list) => {
                let list: Vec<u32> = values(&list).into_iter().map(|group| group as u32).collect();
                ensure!(list.iter().all(|group| (*group as usize) < groups), "{stem}g_idx has a group without factors");
                let is_plain = list.iter().enumerate().all(|(at, group)| *group as usize == at / size);
                if is_plain { Groups::OfColumns(size) } else { Groups::Listed(list) }
            }
            None => Groups::OfColumns(size),
        };
        let is_planar = !32usize.is_multiple_of(bits) && (bits != 3 || version == "gptq_p");
        let (order, order_of_zeros) = match is_planar {
            true => (Order::Planes { lines: 1, words: rows }, Order::Planes { lines: zero_words, words: 1 }),
            false => (Order::Interleaved { lines: rows }, Order::Lines { words: zero_words }),
        };
        let zeros = Codes { bytes: zeros.bytes, bits, order: order_of_zeros };
        let packed = Packed {
            codes: Codes { bytes: codes.bytes, bits, order },
            columns,
            groups: groups_of,
            scales: Factors { leaf: scales, groups, rows: Some(rows), nested: None },
            zeros: if version.starts_with("gptq_") { Zeros::Packed(zeros) } else { Zeros::PackedLess(zeros) },
            biases: None,
            book: None,
        };
        put(checkpoint, &format!("{stem}weight"), &[rows, columns], packed)?;
    }
    Ok(())
}

/// Converts the packed matrices of compressed-tensors. Each word has the codes of consecutive inputs. Codes and zeros
/// are stored with an offset, so that they are not negative. Matrices stored in bytes instead of words are skipped:
/// they have 4-bit floats, which are converted elsewhere.
pub fn compressed(checkpoint: &mut Checkpoint<'_>) -> Result<()> {
    for stem in ending(checkpoint, "weight_packed") {
        if checkpoint.tensors.get(&format!("{stem}weight_packed")).is_some_and(|leaf| leaf.coding == Coding::U8) {
            continue;
        }
        let codes = need(checkpoint, &format!("{stem}weight_packed"))?;
        let scales = need(checkpoint, &format!("{stem}weight_scale"))?;
        let shape = need(checkpoint, &format!("{stem}weight_shape"))?;
        let zeros = take(checkpoint, &format!("{stem}weight_zero_point"));
        let listed = take(checkpoint, &format!("{stem}weight_g_idx"));
        let [rows, words] = sizes(&codes)?;
        let [height, columns] = values(&shape)[..] else { bail!("the tensor {} has no two sizes", shape.name) };
        let columns = columns as usize;
        let bits = bits(words, columns).with_context(|| codes.name.clone())?;
        // Older versions of the format did not let codes of 3, 5, 6 or 7 bits extend over two words. Such files have
        // unused bits in each word, and are refused.
        ensure!(
            height as usize == rows && words == (columns * bits).div_ceil(32),
            "the tensor {} has words with unused bits: not supported",
            codes.name
        );
        let groups = if scales.shape.len() == 2 { scales.shape[1] } else { 1 };
        let factors: usize = scales.shape.iter().product();
        let is_whole = factors == 1 && zeros.is_none(); // one factor for all weights
        ensure!(
            is_whole || factors == rows * groups && groups > 0 && columns.is_multiple_of(groups),
            "the factors of {} have shape {:?}, which does not fit",
            codes.name,
            scales.shape
        );
        let listed = listed.map(|list| values(&list).into_iter().map(|group| group as u32).collect::<Vec<_>>());
        // Older files have a list of groups that consists of -1 if there is nothing to list.
        let groups_of = match listed {
            Some(list)
                if list.len() == columns && list.iter().all(|group| (*group as usize) < groups) && groups > 1 =>
            {
                Groups::Listed(list)
            }
            _ if is_whole => Groups::Flat(rows * columns),
            _ => Groups::OfColumns(columns / groups),
        };
        let zeros = match zeros {
            None => Zeros::Constant((1 << (bits - 1)) as f32),
            Some(zeros) => {
                ensure!(
                    sizes(&zeros)? == [(rows * bits).div_ceil(32), groups],
                    "the tensor {} has shape {:?}, which does not fit",
                    zeros.name,
                    zeros.shape
                );
                Zeros::Packed(Codes { bytes: zeros.bytes, bits, order: Order::Interleaved { lines: groups } })
            }
        };
        let packed = Packed {
            codes: Codes { bytes: codes.bytes, bits, order: Order::Lines { words } },
            columns,
            groups: groups_of,
            scales: Factors { leaf: scales, groups, rows: None, nested: None },
            zeros,
            biases: None,
            book: None,
        };
        put(checkpoint, &format!("{stem}weight"), &[rows, columns], packed)?;
    }
    Ok(())
}

/// Converts the matrices of bitsandbytes: NF4 and FP4 with a code book, and 8-bit integers with a factor for each row.
pub fn bitsandbytes(checkpoint: &mut Checkpoint<'_>) -> Result<()> {
    const STATE: &str = ".quant_state.bitsandbytes__";
    let states: Vec<String> = checkpoint.tensors.keys().filter(|name| name.contains(STATE)).cloned().collect();
    for state in states {
        let (name, _) = state.split_once(STATE).unwrap_or_default();
        let facts = need(checkpoint, &state)?;
        let facts: Value = serde_json::from_slice(facts.bytes).with_context(|| format!("{state} is not JSON"))?;
        let part = |checkpoint: &mut Checkpoint<'_>, end: &str| -> Result<Vec<f32>> {
            Ok(values(&need(checkpoint, &format!("{name}.{end}"))?))
        };
        let absmax = need(checkpoint, &format!("{name}.absmax"))?;
        let book = part(checkpoint, "quant_map")?;
        let nested = match facts["nested_blocksize"].as_u64() {
            Some(block) => Some(Nested {
                book: part(checkpoint, "nested_quant_map")?,
                scales: part(checkpoint, "nested_absmax")?,
                block: block.max(1) as usize,
                offset: facts["nested_offset"].as_f64().unwrap_or(0.0) as f32,
            }),
            None => None,
        };
        let codes = need(checkpoint, name)?;
        let shape: Option<Vec<usize>> = facts["shape"]
            .as_array()
            .and_then(|sizes| sizes.iter().map(|size| Some(size.as_u64()? as usize)).collect());
        let (Some([rows, columns]), Some(block)) =
            (shape.as_deref(), facts["blocksize"].as_u64().filter(|size| *size > 0))
        else {
            bail!("{state} has no two sizes and a blocksize")
        };
        let (rows, columns, block) = (*rows, *columns, block as usize);
        ensure!(
            // The bytes of the codes are counted, not the stored numbers, because these may be wider than bytes
            // (`bnb_4bit_quant_storage`).
            codes.bytes.len() == (rows * columns).div_ceil(2) && book.len() == 16,
            "the tensor {name} does not have the {rows} x {columns} weights that {state} names"
        );
        let groups = (rows * columns).div_ceil(block);
        let packed = Packed {
            codes: Codes { bytes: codes.bytes, bits: 4, order: Order::Halves { codes: columns } },
            columns,
            groups: Groups::Flat(block),
            scales: Factors { leaf: absmax, groups, rows: None, nested },
            zeros: Zeros::Constant(0.0),
            biases: None,
            book: Some(book),
        };
        put(checkpoint, name, &[rows, columns], packed)?;
    }
    for stem in ending(checkpoint, "SCB") {
        let factors = need(checkpoint, &format!("{stem}SCB"))?;
        take(checkpoint, &format!("{stem}weight_format"));
        change(checkpoint, &format!("{stem}weight"), |leaf| {
            let [rows, columns] = leaf.shape[..] else { bail!("it has factors but is not a matrix") };
            let values: Vec<f32> = values(&factors).into_iter().map(|most| most / 127.0).collect();
            ensure!(values.len() == rows && leaf.coding == Coding::I8, "its factors do not fit");
            leaf.scale = Some(Scale { values, zeros: Vec::new(), columns, block: [1, columns], across: 1 });
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::super::view::View;
    use super::super::{awq, hqq, mlx, modelopt};
    use super::*;
    use arenite::quant::{TensorType, decode_row};

    fn bytes(text: &Value) -> Vec<u8> {
        BASE64.decode(text.as_str().unwrap()).unwrap()
    }

    /// `integers.py` wrote the matrices, and computed their weights with the libraries that define the formats.
    #[test]
    fn weights_are_those_of_the_libraries() {
        let text = include_str!("../../../../../tests/fixtures/convert/integers.json");
        let cases: Vec<Value> = serde_json::from_str(text).unwrap();
        let mut grids = Vec::new();
        for case in &cases {
            let settings = &case["settings"];
            let parts: Vec<(String, Vec<u8>)> = case["tensors"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, part)| (format!("x.{name}"), bytes(&part[2])))
                .collect();
            let mut checkpoint = Checkpoint::default();
            for ((name, data), part) in parts.iter().zip(case["tensors"].as_object().unwrap().values()) {
                let coding = match part[0].as_str().unwrap() {
                    "int32" => Coding::I32,
                    "int64" => Coding::I64,
                    "int16" => Coding::I16,
                    "float16" => Coding::F16,
                    "float32" => Coding::F32,
                    // The test writes U8 values of bitsandbytes as BF16 with the same bytes, because bitsandbytes can
                    // store codes as any type.
                    "uint8" if settings["quant_method"] == "bitsandbytes" && name == "x.weight" => Coding::BF16,
                    "uint8" => Coding::U8,
                    other => panic!("{other}"),
                };
                let shape: Vec<usize> =
                    part[1].as_array().unwrap().iter().map(|size| size.as_u64().unwrap() as usize).collect();
                checkpoint.tensors.insert(name.clone(), Arc::new(Leaf::new(name, data, coding, &shape)));
            }
            match settings["quant_method"].as_str() {
                Some("gptq") => gptq(&mut checkpoint, settings),
                Some("awq") => awq::prepare(&mut checkpoint, settings),
                Some("compressed-tensors") => compressed(&mut checkpoint),
                Some("bitsandbytes") => bitsandbytes(&mut checkpoint),
                Some("hqq") => hqq::prepare(&mut checkpoint),
                Some("modelopt") => modelopt::integers(&mut checkpoint),
                _ => mlx::prepare(&mut checkpoint, settings),
            }
            .unwrap();
            let names: Vec<&String> = checkpoint.tensors.keys().collect();
            assert_eq!(names, ["x.weight"], "{settings}");
            let (got, want) = (values(&checkpoint.tensors["x.weight"]), bytes(&case["weights"]));
            let want: Vec<f32> = want.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            assert_eq!(got.len(), 4 * want.len());
            let rows = got.chunks(64).step_by(4).flatten();
            // The bound on the error allows for rounding: some libraries round the product before they add the bias,
            // others only the sum.
            let error = rows.zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error < 1e-6, "{settings}: {error:e}");
            // Single columns, as from a transposed view.
            let mut column = vec![0.0; 32];
            checkpoint.tensors["x.weight"].decode(5, 64, &mut column);
            assert!(column.iter().eq(got.iter().skip(5).step_by(64)), "{settings}");
            grids.push(in_blocks(&View::new(checkpoint.tensors["x.weight"].clone()), &got));
        }
        let mut counts = std::collections::BTreeMap::new();
        grids.iter().flatten().for_each(|kind| *counts.entry(format!("{kind:?}")).or_insert(0) += 1);
        let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        assert_eq!(counts, ["Q4_0 6", "Q4_1 3", "Q5_0 4", "Q5_1 1", "Q8_0 4"], "{grids:?}");
    }

    /// Returns the type in which GGUF can store these weights without loss, and checks that the blocks of this type
    /// have the same weights.
    fn in_blocks(view: &View<'_>, weights: &[f32]) -> Option<TensorType> {
        let kind = view.grid()?;
        let mut blocks = vec![0; kind.row_bytes(weights.len()).unwrap()];
        view.write_grid(kind, 0, &mut blocks);
        let mut decoded = vec![0.0; weights.len()];
        decode_row(kind, &blocks, &mut decoded);
        assert_eq!(decoded, weights, "{kind:?}");
        Some(kind)
    }
}
