//! Compares rows and models with llama.cpp's results, which are in tables made by `tests/quantize/make.py`.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use arenite::Gguf;
use arenite::quant::TensorType;

use super::importance::Importance;
use super::mix::{self, Mix, TypeOptions};
use super::{changes, encode};
use arenite_gguf_writer::Header;

const VECTORS: &str = include_str!("../../../tests/quantize/vectors.txt");
const TYPES: &str = include_str!("../../../tests/quantize/types.txt");

/// Returns a row of weights and their importances. `make.py`, which made the expected results, computes them by the
/// same formula.
fn row() -> (Vec<f32>, Vec<f32>) {
    let mut state = 1u32;
    let mut byte = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 24) as f32
    };
    let mut x: Vec<f32> =
        (0..512).map(|i| ((0..4).map(|_| byte()).sum::<f32>() - 510.0) * 2f32.powi(i / 32 % 4 - 8)).collect();
    x[480..].fill(0.0);
    let importance = (0..512).map(|_| byte() + 1.0).collect();
    (x, importance)
}

#[test]
fn every_encoder_writes_the_bytes_of_llama_cpp() {
    let (x, importance) = row();
    let mut encoded = 0;
    for line in VECTORS.lines() {
        let [name, weighted, hex] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let kind = mix::kind(name).unwrap();
        let mut bytes = vec![0xaa; kind.row_bytes(512).unwrap()];
        let importance = (weighted == "weighted").then_some(&importance[..]);
        assert!(encode::encode(kind, &x, importance, &mut bytes), "{line}");
        let hexed: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hexed, hex, "{name} {weighted}");
        encoded += 1;
    }
    assert_eq!(encoded, 51, "the table has changed");
}

#[test]
fn encoders_that_need_importance_say_so() {
    let (x, _) = row();
    for kind in [TensorType::IQ2_XXS, TensorType::IQ2_XS, TensorType::IQ1_S] {
        assert!(!encode::encode(kind, &x, None, &mut vec![0; kind.row_bytes(512).unwrap()]));
    }
}

/// Facts about a test model: the architecture; the numbers of layers, heads, key heads, experts and columns; and true
/// if the output is the embedding.
type Model = (&'static str, u32, u32, u32, u32, u64, bool);

fn model(name: &str) -> Model {
    match name {
        "llama" => ("llama", 16, 8, 2, 0, 256, false),
        "tied" => ("llama", 9, 4, 4, 0, 256, true),
        "narrow" => ("llama", 4, 4, 4, 0, 288, false),
        "odd" => ("llama", 2, 4, 4, 0, 40, true),
        "70b" => ("llama", 80, 8, 1, 0, 256, false),
        "mixtral" => ("llama", 16, 8, 4, 8, 256, false),
        "qwen3moe" => ("qwen3moe", 8, 8, 2, 16, 256, true),
        "gpt2" => ("gpt2", 16, 4, 4, 0, 256, true),
        "falcon" => ("falcon", 32, 4, 4, 0, 256, false),
        other => panic!("no model {other}"),
    }
}

/// Makes the tensors of a test model: their names and dimensions. The first dimension is the number of columns.
fn tensors((architecture, layers, _, _, experts, columns, tied): Model) -> Vec<(String, Vec<u64>)> {
    let matrix = vec![columns, 2];
    let joined = matches!(architecture, "gpt2" | "falcon");
    let mut all =
        vec![("token_embd.weight".to_owned(), matrix.clone()), ("output_norm.weight".to_owned(), vec![columns])];
    if !tied {
        all.push(("output.weight".to_owned(), matrix.clone()));
    }
    if architecture == "gpt2" {
        all.push(("position_embd.weight".to_owned(), matrix.clone()));
    }
    let attention: &[&str] = if joined { &["attn_qkv"] } else { &["attn_q", "attn_k", "attn_v"] };
    let ffn: &[&str] = if joined { &["ffn_up", "ffn_down"] } else { &["ffn_gate", "ffn_up", "ffn_down"] };
    for i in 0..layers {
        all.push((format!("blk.{i}.attn_norm.weight"), vec![columns]));
        for name in attention.iter().chain(&["attn_output"]) {
            all.push((format!("blk.{i}.{name}.weight"), matrix.clone()));
        }
        if experts > 0 {
            all.push((format!("blk.{i}.ffn_gate_inp.weight"), vec![columns, experts.into()]));
        }
        for name in ffn {
            all.push(match experts {
                0 => (format!("blk.{i}.{name}.weight"), matrix.clone()),
                _ => (format!("blk.{i}.{name}_exps.weight"), vec![columns, 2, experts.into()]),
            });
        }
    }
    all
}

fn write(model: Model) -> Vec<u8> {
    let (architecture, layers, heads, key_heads, experts, ..) = model;
    let mut header = Header::new();
    header.set("general.architecture", architecture);
    header.set(&format!("{architecture}.block_count"), layers);
    header.set(&format!("{architecture}.attention.head_count"), heads);
    header.set(&format!("{architecture}.attention.head_count_kv"), key_heads);
    if experts > 0 {
        header.set(&format!("{architecture}.expert_count"), experts);
    }
    let mut bytes = 0;
    for (name, dims) in tensors(model) {
        bytes += header.tensor(&name, &dims, TensorType::F32).unwrap();
    }
    let mut data = header.write(Cursor::new(Vec::new())).unwrap();
    data.write_all(&vec![0; bytes as usize]).unwrap();
    data.finish().unwrap().into_inner()
}

/// The types of all tensors in the table's notation.
fn types(gguf: &Gguf<'_>, mix: Mix, importance: Option<&Importance>) -> String {
    let Ok(changes) = changes(gguf, mix, &TypeOptions::default(), importance, false) else {
        return "refused".to_owned();
    };
    let mut roles: Vec<(&str, Vec<TensorType>)> = Vec::new();
    for change in &changes {
        let name = change.tensor.name;
        let role = name.strip_prefix("blk.").and_then(|rest| Some(rest.split_once('.')?.1)).unwrap_or(name);
        let role = role.strip_suffix(".weight").unwrap_or(role);
        match roles.iter_mut().find(|(other, _)| *other == role) {
            Some((_, kinds)) => kinds.push(change.to),
            None => roles.push((role, vec![change.to])),
        }
    }
    let changed = roles.iter().filter(|(_, kinds)| kinds.iter().any(|kind| *kind != TensorType::F32));
    let role = |(role, kinds): &(&str, Vec<TensorType>)| {
        let runs = kinds.chunk_by(|a, b| a == b).map(|run| match run.len() {
            1 => format!("{:?}", run[0]),
            n => format!("{:?}*{n}", run[0]),
        });
        format!("{role}={}", runs.collect::<Vec<_>>().join(","))
    };
    changed.map(role).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_mix_has_the_types_of_llama_cpp() {
    let mut compared = 0;
    let mut made: BTreeMap<&str, (Vec<u8>, Importance)> = BTreeMap::new();
    for line in TYPES.lines() {
        let [name, mix, weighted, want] = line.splitn(4, ' ').collect::<Vec<_>>().try_into().unwrap();
        let (file, importance) = made.entry(name).or_insert_with(|| {
            let all = tensors(model(name)).into_iter().filter(|(_, dims)| dims.len() > 1);
            let columns = all.map(|(name, dims)| (name, vec![1.0; (dims[0] * dims.get(2).unwrap_or(&1)) as usize]));
            (write(model(name)), Importance { columns: columns.collect(), dataset: None, chunks: 1 })
        });
        let gguf = Gguf::parse(file).unwrap();
        let mix: Mix = mix.parse().unwrap();
        let both = [("plain", None), ("weighted", Some(&*importance))];
        for (_, importance) in both.into_iter().filter(|(which, _)| [which, "both"].contains(&weighted)) {
            assert_eq!(types(&gguf, mix, importance), want, "{name} {mix:?} {weighted}");
            compared += 1;
        }
    }
    assert!(compared > 297, "{compared}");
}

#[test]
fn options_override_the_mix() {
    let file = write(model("llama"));
    let gguf = Gguf::parse(&file).unwrap();
    let overrides = ["ffn_down=q8_0", r"blk\.3\.attn_v=F16", "ffn_.*=q5_1"].map(|rule| rule.parse().unwrap()).to_vec();
    let (output, embedding) = (Some(TensorType::Q4_0), Some(TensorType::BF16));
    let options = TypeOptions { overrides, output, embedding, ..TypeOptions::default() };
    let changes = changes(&gguf, Mix::Q4_K_M, &options, None, false).unwrap();
    let kind = |name: &str| changes.iter().find(|change| change.tensor.name == name).unwrap().to;
    assert_eq!(kind("output.weight"), TensorType::Q4_0);
    assert_eq!(kind("token_embd.weight"), TensorType::BF16);
    assert_eq!(kind("blk.3.ffn_down.weight"), TensorType::Q8_0);
    assert_eq!(kind("blk.3.attn_v.weight"), TensorType::F16);
    assert_eq!(kind("blk.3.ffn_up.weight"), TensorType::Q5_1);
    assert_eq!(kind("blk.3.attn_q.weight"), TensorType::Q4_K);
    assert_eq!(kind("blk.3.attn_norm.weight"), TensorType::F32);
    for wrong in ["ffn_down", "=q8_0", "ffn_down=q9", "(=q8_0"] {
        assert!(wrong.parse::<mix::Override>().is_err(), "{wrong}");
    }
}

#[test]
fn types_of_llama_quantize_have_names_and_numbers() {
    for (text, want) in
        [("15", Mix::Q4_K_M), ("7", Mix::Q8_0), ("0", Mix::F32), ("32", Mix::BF16), ("q4_k", Mix::Q4_K_M)]
    {
        assert_eq!(text.parse(), Ok(want), "{text}");
    }
    for text in ["4", "99", "-1", "q9", ""] {
        assert!(text.parse::<Mix>().is_err(), "{text}");
    }
}

#[test]
fn flags_choose_types() {
    let file = write(model("llama"));
    let gguf = Gguf::parse(&file).unwrap();
    let types = |mix: Mix, options: &TypeOptions| -> BTreeMap<String, TensorType> {
        let changes = changes(&gguf, mix, options, None, false).unwrap();
        changes.into_iter().map(|change| (change.name, change.to)).collect()
    };
    let pure = types(Mix::Q4_K_M, &TypeOptions { pure: true, ..TypeOptions::default() });
    let matrices = pure.iter().filter(|(name, _)| !name.contains("norm"));
    assert!(matrices.clone().count() > 100 && matrices.clone().all(|(_, kind)| *kind == TensorType::Q4_K), "{pure:?}");
    let kept = types(Mix::Q4_K_M, &TypeOptions { keep_output: true, ..TypeOptions::default() });
    assert_eq!((kept["output.weight"], kept["token_embd.weight"]), (TensorType::F32, TensorType::Q4_K));
    let copied = types(Mix::F32, &TypeOptions { copy: true, ..TypeOptions::default() });
    assert!(copied.values().all(|kind| *kind == TensorType::F32) && copied.len() == pure.len());
    // The layers after a pruned layer get lower numbers, and the mix depends on the new numbers.
    let options = TypeOptions { pruned: "0,5".parse().unwrap(), ..TypeOptions::default() };
    let pruned = types(Mix::Q4_K_M, &options);
    assert_eq!(pruned.len(), pure.len() / 16 * 14 + pure.len() % 16);
    assert!(pruned.contains_key("blk.13.attn_q.weight") && !pruned.contains_key("blk.14.attn_q.weight"));
}

#[test]
fn rows_that_a_type_cannot_hold_have_a_substitute() {
    let file = write(model("narrow"));
    let gguf = Gguf::parse(&file).unwrap();
    let changes = changes(&gguf, Mix::TQ2_0, &TypeOptions::default(), None, false).unwrap();
    let query = changes.iter().find(|change| change.name == "blk.0.attn_q.weight").unwrap();
    assert_eq!((query.wanted, query.to), (TensorType::TQ2_0, TensorType::Q4_0));
    let norm = changes.iter().find(|change| change.name == "blk.0.attn_norm.weight").unwrap();
    assert_eq!(norm.wanted, norm.to);
    for (kind, columns, want) in [
        (TensorType::TQ2_0, 64, TensorType::IQ4_NL),
        (TensorType::Q4_K, 576, TensorType::IQ4_NL),
        (TensorType::Q5_K, 576, TensorType::Q5_0),
        (TensorType::Q6_K, 576, TensorType::Q8_0),
        (TensorType::Q4_0, 40, TensorType::F16),
    ] {
        assert_eq!(mix::alternative(kind, columns), want, "{kind:?} {columns}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let file = write(model("llama"));
    let gguf = Gguf::parse(&file).unwrap();
    let error = |mix: Mix, importance: Option<&Importance>| {
        changes(&gguf, mix, &TypeOptions::default(), importance, false)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert!(error(Mix::IQ2_XS, None).contains("without an importance matrix"));
    let other = [("blk.0.attn_q.weight".to_owned(), vec![1.0; 128])].into_iter().collect();
    let other = Importance { columns: other, dataset: None, chunks: 1 };
    assert!(error(Mix::Q4_K_M, Some(&other)).contains("it belongs to another model"));
    let foreign = [("blk.0.other.weight".to_owned(), vec![1.0; 256])].into_iter().collect();
    let foreign = Importance { columns: foreign, dataset: None, chunks: 1 };
    assert!(error(Mix::Q4_K_M, Some(&foreign)).contains("names no weights of this model"));
}

#[test]
fn weights_that_are_too_large_for_a_type_are_said() {
    let mut header = Header::new();
    header.set("general.architecture", "llama");
    header.tensor("blk.0.ffn_up.weight", &[256, 2], TensorType::F32).unwrap();
    let mut file = header.write(Cursor::new(Vec::new())).unwrap();
    (0..512).for_each(|i| file.write_all(&if i == 300 { 3e38f32 } else { 0.5 }.to_le_bytes()).unwrap());
    let file = file.finish().unwrap().into_inner();
    let gguf = Gguf::parse(&file).unwrap();
    for mix in [Mix::F16, Mix::Q8_0, Mix::Q4_1, Mix::Q3_K_M, Mix::Q4_K_M, Mix::Q6_K, Mix::IQ4_NL, Mix::IQ4_XS] {
        let changes = changes(&gguf, mix, &TypeOptions::default(), None, false).unwrap();
        let error = changes[0].write(1, &mut Vec::new(), |_| Ok(())).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains("row 1, too large for")), "{mix:?}: {error:?}");
    }
    let changes = changes(&gguf, Mix::BF16, &TypeOptions::default(), None, false).unwrap();
    changes[0].write(1, &mut Vec::new(), |_| Ok(())).unwrap();
}
