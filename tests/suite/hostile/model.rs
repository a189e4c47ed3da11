//! Correct GGUF files that are not valid models, and prompts that cannot be run.

use arenite::gguf::Tensor;
use arenite::quant::TensorType;
use arenite::{Error, Gguf, KvType, Model, Options, Plan};

use super::name;
use crate::common::families::{DECODERS, decoder};
use crate::common::gguf::{Builder, Meta};
use crate::common::run::Run;
use crate::common::tiny::{CONTEXT, DIM, FFN, LAYERS, VOCAB};
use crate::common::variants::{FAMILIES, tiny};

/// Returns the error of `Model::new`. If it concerns metadata, planning must fail with the same one.
#[track_caller]
fn refused(file: &Builder) -> Error {
    let bytes = file.build();
    let gguf = Gguf::parse(&bytes).expect("correct as GGUF");
    let error = Model::new(&gguf).expect_err("the model is wrong");
    assert!(error.to_string().len() > 20, "{error}");
    if let Err(planned) = Plan::new(&gguf, Options::new().context(16)) {
        assert_eq!(planned, error);
    }
    error
}

/// Returns the error for a tiny model of this family after one change.
#[track_caller]
fn wrong(family: &str, change: impl FnOnce(&mut Builder)) -> Error {
    let mut file = tiny(family);
    change(&mut file);
    refused(&file)
}

#[test]
fn the_tiny_models_are_right() {
    for family in FAMILIES {
        let bytes = tiny(family).build();
        Model::new(&Gguf::parse(&bytes).unwrap()).unwrap();
        Run::new(&bytes, |options| options.context = 16).session().prefill(&[1, 2, 3]).unwrap();
    }
}

// --- required keys ------------------------------------------------------------------------------

/// The keys that a family requires, besides `general.architecture`.
fn required(family: &str) -> Vec<String> {
    let eps = if family == "gpt2" { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
    ["block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"]
        .iter()
        .map(|key| format!("{family}.{key}"))
        .chain([format!("{family}.attention.{eps}")])
        .collect()
}

#[test]
fn required_keys_missing() {
    for family in FAMILIES {
        for key in required(family) {
            let error = wrong(family, |file| {
                file.remove(&key);
            });
            assert_eq!(error, Error::MissingKey { key: name(&key) });
        }
    }
    let error = wrong("llama", |file| {
        file.remove("general.architecture");
    });
    assert_eq!(error, Error::MissingKey { key: name("general.architecture") });
}

#[test]
fn required_keys_of_another_type() {
    for family in FAMILIES {
        for key in required(family) {
            let expected = if key.ends_with("epsilon") { "a float" } else { "an integer" };
            let per_layer = key.ends_with("feed_forward_length") || key.ends_with("head_count");
            let others: [Meta; 3] = ["2".into(), true.into(), Meta::array([2u32])];
            for value in others {
                let is_array = matches!(value, Meta::Array(..));
                let error = wrong(family, |file| {
                    file.set(&key, value);
                });
                if per_layer && is_array {
                    let why = "must have one element per layer";
                    assert_eq!(error, Error::KeyValue { key: name(&key), why });
                } else {
                    assert_eq!(error, Error::KeyType { key: name(&key), expected });
                }
            }
        }
    }
}

#[test]
fn unknown_keys() {
    for family in FAMILIES {
        for key in ["color", "attention.sink", "rope.scaling", "", "block_count."] {
            let key = format!("{family}.{key}");
            let error = wrong(family, |file| {
                file.set(&key, 1u32);
            });
            assert_eq!(error, Error::UnexpectedKey { key: name(&key) });
        }
        // Neutral values, and keys that are not the architecture's.
        let mut file = tiny(family);
        for key in ["rope.scaling.finetuned", "vocab_size", "pooling_type"] {
            file.set(&format!("{family}.{key}"), 1u32);
        }
        file.set("llamas.color", "white").set("quantize.imatrix.file", "x");
        Model::new(&Gguf::parse(&file.build()).unwrap()).unwrap();
    }
}

#[test]
fn sizes_of_each_layer() {
    for key in ["feed_forward_length", "attention.head_count_kv"] {
        let element = "has an element that is 0, too large or not an integer";
        itself(key, Meta::array([1u32, 0]), element);
        itself(key, Meta::array([-1i32, 1]), element);
        itself(key, Meta::array([1u32, u32::MAX]), element);
        itself(key, Meta::array([0.5f32, 1.0]), element);
        itself(key, Meta::strings(["1", "2"].map(|s| s.as_bytes().to_vec())), element);
        itself(key, Meta::array([1u32; 3]), "must have one element per layer");
    }
    itself("attention.head_count_kv", Meta::array([1u32, 3]), "does not divide attention.head_count");
    let mut file = tiny("llama");
    file.set("llama.feed_forward_length", Meta::array([FFN as u32; LAYERS as usize]));
    Model::new(&Gguf::parse(&file.build()).unwrap()).unwrap();
}

#[test]
fn wrong_architectures() {
    let key = name("general.architecture");
    let set = |value: Meta| {
        wrong("llama", |file| {
            file.set("general.architecture", value);
        })
    };
    assert_eq!(set(5u32.into()), Error::KeyType { key, expected: "a string" });
    assert_eq!(set(Meta::Str(b"ll\xffma".into())), Error::KeyValue { key, why: "is not UTF-8" });
    assert_eq!(set("perceptron".into()), Error::Unsupported { what: "architecture", name: name("perceptron") });
    assert_eq!(set("".into()), Error::Unsupported { what: "architecture", name: name("") });
}

#[test]
fn optional_keys_of_another_type() {
    for (key, value, expected) in [
        ("llama.attention.head_count_kv", Meta::from("1"), "an integer"),
        ("llama.attention.key_length", Meta::from(16.0f32), "an integer"),
        ("llama.attention.sliding_window", Meta::from("all"), "an integer"),
        ("llama.rope.dimension_count", Meta::from(false), "an integer"),
        ("llama.rope.freq_base", Meta::from(10000u32), "a float"),
        ("llama.rope.scaling.type", Meta::from(1u32), "a string"),
        ("llama.rope.scaling.factor", Meta::from("2"), "a float"),
    ] {
        let error = wrong("llama", |file| {
            file.set(key, value);
        });
        assert_eq!(error, Error::KeyType { key: name(key), expected });
    }
}

// --- hyperparameters ----------------------------------------------------------------------------

/// Checks that setting `llama.{key}` to this value gives an error about `llama.{at}`, with the reason `why`.
#[track_caller]
fn hyperparameter(key: &str, value: impl Into<Meta>, at: &str, why: &'static str) {
    let error = wrong("llama", |file| {
        file.set(&format!("llama.{key}"), value);
    });
    assert_eq!(error, Error::KeyValue { key: name(&format!("llama.{at}")), why });
}

/// Checks that setting `llama.{key}` to this value gives an error about the same key.
#[track_caller]
fn itself(key: &str, value: impl Into<Meta>, why: &'static str) {
    hyperparameter(key, value, key, why);
}

const ZERO: &str = "is 0, which no model can have";
const LARGE: &str = "is too large";

#[test]
fn sizes_that_are_zero() {
    for key in [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
    ] {
        itself(key, 0u32, ZERO);
        itself(key, 0u64, ZERO);
        itself(key, -1i32, "must be from 0 to 4294967295");
        itself(key, 1u64 << 32, "must be from 0 to 4294967295");
        itself(key, u64::MAX, "must be from 0 to 4294967295");
    }
}

#[test]
fn sizes_that_are_too_large() {
    for key in ["embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv"] {
        itself(key, u32::MAX, LARGE);
        itself(key, (1u32 << 22) + 1, LARGE);
    }
    for key in ["context_length", "attention.sliding_window"] {
        itself(key, u32::MAX, LARGE);
        itself(key, 1u32 << 31, LARGE);
    }
    // The key length and the number of heads are within their limits, but their product is not.
    hyperparameter("attention.key_length", 1u32 << 22, "attention.head_count", LARGE);
}

#[test]
fn wrong_numbers_of_layers() {
    for layers in [513, 1 << 31, u32::MAX] {
        itself("block_count", layers, LARGE);
    }
    // These numbers of layers are within the limit, but the file has tensors for two layers.
    let error = wrong("llama", |file| {
        file.set("llama.block_count", 512u32);
    });
    assert_eq!(error, Error::MissingTensor { tensor: name("blk.2.attn_norm.weight") });
    let error = wrong("llama", |file| {
        file.set("llama.block_count", 1u32);
    });
    assert_eq!(error, Error::UnexpectedTensor { tensor: name("blk.1.attn_q.weight") });
}

#[test]
fn wrong_numbers_of_heads() {
    itself("attention.head_count", 3u32, "does not divide embedding_length");
    itself("attention.head_count", 64u32, "does not divide embedding_length");
    for more in [3u32, 4, 1 << 22] {
        itself("attention.head_count_kv", more, "does not divide attention.head_count");
    }
    itself("attention.value_length", 8u32, "differs from the length of keys: not supported");
}

#[test]
fn wrong_rotary_positions() {
    itself("rope.dimension_count", 15u32, "is odd: rotary positions rotate pairs");
    itself("rope.dimension_count", 18u32, "is larger than a head");
    let error = wrong("llama", |file| {
        file.remove("llama.rope.dimension_count").set("llama.attention.key_length", 15u32);
    });
    let why = "is odd: rotary positions rotate pairs";
    assert_eq!(error, Error::KeyValue { key: name("llama.rope.dimension_count"), why });
    for base in [0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        itself("rope.freq_base", base, "must be a positive number");
        if base != 0.0 {
            itself("rope.scaling.factor", base, "must be a positive number"); // 0 means no scaling
        }
        itself("rope.freq_base", f64::from(base), "must be a positive number");
    }
    itself("rope.freq_base", f64::MAX, "must be a positive number"); // infinite as f32
    let error = wrong("llama", |file| {
        file.set("llama.rope.scaling.type", "imagined");
    });
    assert_eq!(error, Error::Unsupported { what: "rope scaling", name: name("imagined") });
}

#[test]
fn wrong_epsilons() {
    for eps in [0.0, -1e-5, f32::NAN, f32::INFINITY] {
        itself("attention.layer_norm_rms_epsilon", eps, "must be a positive number");
    }
}

#[test]
fn needed_tensors_without_elements() {
    for tensor in ["token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"] {
        for dim in 0..2 {
            let error = wrong("llama", |file| {
                let spec = file.tensor_mut(tensor);
                spec.dims.resize(2, 1);
                spec.dims[dim] = 0;
                spec.data.clear();
            });
            assert_eq!(error, Error::MissingTensor { tensor: name(tensor) });
        }
        let error = wrong("llama", |file| {
            file.remove_tensor(tensor);
        });
        assert_eq!(error, Error::MissingTensor { tensor: name(tensor) });
    }
}

/// gguf-py writes scalars with 0 dimensions, and llama.cpp's files may have empty tensors as marks.
#[test]
fn tensors_without_elements_and_scalars() {
    let mut file = tiny("llama");
    let names = ["empty.vector", "blk.0.empty", "scalar"];
    file.push_tensor(names[0], &[0], 0, vec![]).push_tensor(names[1], &[1, 0], 0, vec![]);
    let bytes = file.build();
    Run::new(&bytes, |options| options.context = 16).session().prefill(&[1, 2, 3]).unwrap();
    file.push_tensor(names[2], &[], 0, 1f32.to_le_bytes().to_vec());
    assert_eq!(refused(&file), Error::UnexpectedTensor { tensor: name(names[2]) });
    let bytes = file.build();
    let gguf = Gguf::parse(&bytes).unwrap();
    let listed: Vec<_> = gguf.tensors().filter(|tensor| names.contains(&tensor.name)).collect();
    let listed: Vec<_> = listed.iter().map(|tensor| (tensor.dim_count, tensor.dims, tensor.data)).collect();
    let one = 1f32.to_le_bytes();
    assert_eq!(listed, [(1, [0, 1, 1, 1], &[][..]), (2, [1, 0, 1, 1], &[]), (0, [1; 4], &one)]);
    assert_eq!(names.map(|name| gguf.tensor(name).is_some()), [false, false, true]);
}

#[test]
fn extreme_numbers_that_are_allowed() {
    // Everything that passes the checks must run: angles, scalings and windows at the ends of their ranges.
    for (key, value) in [
        ("rope.freq_base", Meta::from(f32::MIN_POSITIVE)),
        ("rope.freq_base", Meta::from(f32::from_bits(1))),
        ("rope.freq_base", Meta::from(f32::MAX)),
        ("rope.freq_base", Meta::from(1.0f32)),
        ("rope.scaling.factor", Meta::from(f32::from_bits(1))),
        ("rope.scaling.factor", Meta::from(f32::MAX)),
        ("rope.scaling.original_context_length", Meta::from(1u32)),
        ("rope.scaling.yarn_beta_fast", Meta::from(f32::from_bits(1))),
        ("rope.scaling.yarn_beta_slow", Meta::from(f32::MAX)),
        ("rope.scaling.attn_factor", Meta::from(f32::MAX)),
        ("attention.layer_norm_rms_epsilon", Meta::from(f32::MAX)),
        ("attention.sliding_window", Meta::from(1u32)),
        ("attention.sliding_window", Meta::from(i32::MAX as u32)),
        ("context_length", Meta::from(i32::MAX as u32)),
        ("context_length", Meta::from(1u32)),
    ] {
        for scaling in ["none", "linear", "yarn"] {
            let mut file = tiny("llama");
            file.set("llama.rope.scaling.type", scaling).set(&format!("llama.{key}"), value.clone());
            let bytes = file.build();
            let mut run = Run::new(&bytes, |options| options.context = 40);
            assert_eq!(run.all(&[1; 40]).len(), 40);
        }
    }
}

#[test]
fn any_two_numbers() {
    // Checks that no two values cause a panic or an overflow.
    let keys = [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.sliding_window",
        "rope.dimension_count",
    ];
    let values = [0u32, 1, 2, 31, 512, 513, 65536, (1 << 22) - 1, 1 << 22, i32::MAX as u32, u32::MAX];
    let option = [0, 1, 7, 1 << 16, 1 << 31, u32::MAX as usize, usize::MAX];
    for (i, first) in keys.iter().enumerate() {
        for second in &keys[i + 1..] {
            for a in values {
                for b in values {
                    let mut file = tiny("llama");
                    file.tensors.retain(|tensor| tensor.name == b"token_embd.weight");
                    file.set(&format!("llama.{first}"), a).set(&format!("llama.{second}"), b);
                    let bytes = file.build();
                    let gguf = Gguf::parse(&bytes).unwrap();
                    assert!(Model::new(&gguf).is_err());
                    for context in option {
                        let _ = Plan::new(&gguf, Options::new().context(context).batch(context));
                    }
                }
            }
        }
    }
}

#[test]
fn extreme_options() {
    let all = [0, 1, 2, 15, 16, 17, 63, 64, 65, 4096, 1 << 16, 1 << 20, i32::MAX as usize, 1 << 31, usize::MAX];
    // Emulators and sanitizers run fewer cases; 32-bit targets skip sizes that they cannot represent.
    let few = cfg!(any(target_pointer_width = "32", memory_sanitizer));
    let values = if few { &all[9..] } else { &all[..] };
    let models = FAMILIES.map(tiny).into_iter().chain(DECODERS.map(decoder));
    for (shift, bytes) in models.map(|file| file.build()).enumerate() {
        let gguf = Gguf::parse(&bytes).unwrap();
        for kv in KvType::ALL {
            for (i, &context) in values.iter().enumerate() {
                for (j, &batch) in values.iter().enumerate() {
                    // Each model is planned with all pairs of context and batch. All combinations with the number of
                    // workers would take fifteen times as long, so each combination is tried with every fifteenth
                    // model.
                    let workers = values[(i + j + shift) % values.len()];
                    let options = Options::new().context(context).batch(batch).kv(kv).workers(workers);
                    match Plan::new(&gguf, options) {
                        Ok(plan) => {
                            // A plan made from a plan's resolved options is the same.
                            assert_eq!(Plan::new(&gguf, plan.options), Ok(plan));
                            assert!((1..=plan.options.context).contains(&plan.options.batch));
                            assert!(plan.options.workers >= 1);
                        }
                        Err(error) => assert_eq!(error, Error::PlanTooLarge),
                    }
                }
            }
        }
    }
}

#[test]
fn layers_that_share_keys_of_another_shape() {
    // The last two of four layers share the keys of the first two, and must have the same shape.
    for kv_heads in [[2u32, 1, 1, 1], [2, 1, 2, 2], [1, 1, 2, 1], [2, 2, 2, 1]] {
        let mut file = decoder("gemma4");
        file.set("gemma4.attention.head_count_kv", Meta::array(kv_heads));
        let error = refused(&file);
        let why = "differs between layers that share their keys";
        assert_eq!(error, Error::KeyValue { key: name("gemma4.attention.head_count_kv"), why }, "{kv_heads:?}");
    }
    let mut file = decoder("gemma4");
    file.set("gemma4.attention.shared_kv_layers", 3u32);
    let error = refused(&file);
    let why = "leaves a layer without keys to share";
    assert_eq!(error, Error::KeyValue { key: name("gemma4.attention.shared_kv_layers"), why });
}

// --- tensors ------------------------------------------------------------------------------------

/// Every tensor of a tiny model, with its dimensions.
fn tensors(family: &str) -> Vec<(String, Vec<u64>)> {
    let file = tiny(family);
    file.tensors.iter().map(|t| (String::from_utf8(t.name.clone()).unwrap(), t.dims.clone())).collect()
}

/// Dimensions as errors give them.
fn four(dims: &[u64]) -> [u64; 4] {
    let mut four = [1; 4];
    four[..dims.len()].copy_from_slice(dims);
    four
}

#[test]
fn every_tensor_in_another_shape() {
    for family in FAMILIES {
        for (tensor, dims) in tensors(family) {
            let mut others: Vec<Vec<u64>> = vec![
                [&[1][..], &dims].concat(),
                [&dims[..], &[2]].concat(),
                [&dims[..], &[1, 2]].concat(),
                dims.iter().rev().copied().collect(),
            ];
            for i in 0..dims.len() {
                for len in [1, dims[i] - 1, dims[i] + 1, 2 * dims[i]] {
                    others.push(dims.clone());
                    others.last_mut().unwrap()[i] = len;
                }
            }
            for other in others.into_iter().filter(|other| four(other) != four(&dims)) {
                let mut file = tiny(family);
                file.set_f32(&tensor, &other, &vec![0.0; other.iter().product::<u64>() as usize]);
                let error = refused(&file);
                let (found, expected) = (four(&other), four(&dims));
                // The vocabulary size comes from the embedding, so the head is the one that disagrees.
                let rows_of_embedding =
                    tensor == "token_embd.weight" && found[0] == DIM && found[2..] == [1, 1] && found[1] != VOCAB;
                if rows_of_embedding {
                    let head = Error::TensorShape {
                        tensor: name("output.weight"),
                        found: [DIM, VOCAB, 1, 1],
                        expected: [DIM, found[1], 1, 1],
                    };
                    assert_eq!(error, head);
                } else {
                    let Error::TensorShape { tensor: at, found: f, expected: e } = error else {
                        panic!("{family} {tensor} {other:?}: {error}")
                    };
                    assert_eq!((at, f), (name(&tensor), found), "{family}");
                    if tensor != "token_embd.weight" {
                        assert_eq!(e, expected, "{family} {tensor}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_tensor_missing() {
    for family in FAMILIES {
        for (tensor, _) in tensors(family).into_iter() {
            if tensor == "output.weight" || family == "qwen2" && tensor.ends_with(".bias") {
                continue;
            }
            let error = wrong(family, |file| {
                file.remove_tensor(&tensor);
            });
            assert_eq!(error, Error::MissingTensor { tensor: name(&tensor) }, "{family}");
        }
    }
    // Without a head of its own the embedding is the head.
    let mut file = tiny("llama");
    file.remove_tensor("output.weight");
    assert!(Model::new(&Gguf::parse(&file.build()).unwrap()).is_ok());
}

/// Returns whether a model runs without this tensor.
fn is_optional(family: &str, tensor: &str) -> bool {
    let part = tensor.splitn(3, '.').nth(2).unwrap_or(tensor);
    match part {
        "output.weight" | "rope_freqs.weight" | "rope_factors_short.weight" | "rope_factors_long.weight" => true,
        "layer_output_scale.weight" | "attn_v.weight" => family.starts_with("gemma4"),
        "attn_q.bias" | "attn_k.bias" | "attn_v.bias" | "attn_q_norm.weight" | "attn_k_norm.weight" => {
            matches!(family, "stablelm" | "command-r")
        }
        "attn_qkv.bias" | "attn_output.bias" | "ffn_up.bias" | "ffn_down.bias" => family == "gptneox",
        "exp_probs_b.bias" => matches!(family, "afmoe" | "dots1" | "deepseek2"),
        _ => false,
    }
}

#[test]
fn other_decoders() {
    for family in DECODERS {
        let whole = decoder(family);
        Model::new(&Gguf::parse(&whole.build()).unwrap()).unwrap();
        for tensor in &whole.tensors {
            let at = String::from_utf8(tensor.name.clone()).unwrap();
            let mut file = decoder(family);
            file.remove_tensor(&at);
            let bytes = file.build();
            match Model::new(&Gguf::parse(&bytes).unwrap()) {
                // A layer without a router is one without experts.
                Err(Error::UnexpectedTensor { tensor })
                    if family == "qwen3moe" && at.ends_with("ffn_gate_inp.weight") =>
                {
                    assert_eq!(tensor, name(&at.replace("_inp", "_exps")), "{family}");
                }
                Err(error) => assert_eq!(error, Error::MissingTensor { tensor: name(&at) }, "{family}"),
                Ok(_) => assert!(is_optional(family, &at), "{family} runs without {at}"),
            }
            let mut dims = tensor.dims.clone();
            dims[0] += 2;
            if at != "token_embd.weight" {
                let mut file = decoder(family);
                file.set_f32(&at, &dims, &vec![0.0; dims.iter().product::<u64>() as usize]);
                let (found, expected) = (four(&dims), four(&tensor.dims));
                assert_eq!(refused(&file), Error::TensorShape { tensor: name(&at), found, expected }, "{family}");
            }
        }
    }
}

#[test]
fn tensors_that_do_not_belong() {
    for tensor in [
        "blk.0.attn_q_norm.weight",
        "blk.2.attn_q.weight",
        "blk.00.attn_q.weight",
        "blk.+1.attn_q.weight",
        "blk.-1.attn_q.weight",
        "blk.18446744073709551616.attn_q.weight",
        "blk.4294967296.attn_q.weight",
        "blk.attn_q.weight",
        "blk..attn_q.weight",
        "blk.0.output_norm.weight",
        "attn_q.weight",
        "position_embd.weight",
        "output_norm.bias",
        "token_embd.weight.",
        "Token_embd.weight",
        "blk.0.ffn_gate_exps.weight",
        "сюрприз",
    ] {
        let error = wrong("llama", |file| {
            file.set_f32(tensor, &[4], &[0.0; 4]);
        });
        assert_eq!(error, Error::UnexpectedTensor { tensor: name(tensor) });
    }
    // A file with q, k and v in one matrix must not have a separate matrix of q.
    let both = wrong("llama", |file| {
        file.set_f32("blk.0.attn_qkv.weight", &[4], &[0.0; 4]);
    });
    assert_eq!(both, Error::UnexpectedTensor { tensor: name("blk.0.attn_q.weight") });
    for (family, tensor) in
        [("qwen2", "blk.0.attn_output.bias"), ("qwen3", "blk.0.attn_norm.bias"), ("gpt2", "rope_freqs.weight")]
    {
        let error = wrong(family, |file| {
            file.set_f32(tensor, &[4], &[0.0; 4]);
        });
        assert_eq!(error, Error::UnexpectedTensor { tensor: name(tensor) });
    }
}

#[test]
fn every_tensor_of_another_type() {
    for family in FAMILIES {
        for (tensor, dims) in tensors(family) {
            // Vectors may be F16, but I8 is never supported.
            let kinds: &[(u32, TensorType, u64)] = match dims.len() {
                1 => &[(24, TensorType::I8, 1)],
                _ => &[(24, TensorType::I8, 1), (28, TensorType::F64, 8)],
            };
            for &(id, kind, bytes) in kinds {
                let error = wrong(family, |file| {
                    let tensor = file.tensor_mut(&tensor);
                    tensor.kind = id;
                    tensor.data = vec![0; (dims.iter().product::<u64>() * bytes) as usize];
                });
                assert_eq!(error, Error::TensorType { tensor: name(&tensor), kind }, "{family}");
            }
        }
    }
}

#[test]
fn a_tensor_twice_behind_thousands() {
    // The parser finds duplicates of the first 4096 names only. `Model::new` finds a later duplicate of a tensor that
    // it reads.
    let mut file = tiny("llama");
    let twice = file.tensor_mut("blk.1.ffn_down.weight").clone();
    let mut padding: Vec<_> = (0..4200)
        .map(|i| {
            let mut tensor = twice.clone();
            (tensor.name, tensor.dims) = (format!("{i}.attn.rotary_emb.inv_freq").into(), vec![1]);
            tensor.data.truncate(4);
            tensor
        })
        .collect();
    std::mem::swap(&mut file.tensors, &mut padding);
    file.tensors.append(&mut padding);
    file.tensors.push(twice);
    let bytes = file.build();
    let gguf = Gguf::parse(&bytes).unwrap();
    assert_eq!(gguf.tensors().filter(|t: &Tensor<'_>| t.name == "blk.1.ffn_down.weight").count(), 2);
    assert_eq!(Model::new(&gguf).unwrap_err(), Error::DuplicateTensor { tensor: name("blk.1.ffn_down.weight") });
}

// --- prompts ------------------------------------------------------------------------------------

#[test]
fn token_ids_outside_the_vocabulary() {
    let bytes = tiny("llama").build();
    let mut run = Run::new(&bytes, |options| options.context = 32);
    let mut session = run.session();
    session.prefill(&[1, 2]).unwrap();
    let before = session.logits().to_vec();
    let vocab = VOCAB as u32;
    for token in [vocab, vocab + 1, 1 << 31, u32::MAX] {
        let expected = Err(Error::TokenOutOfRange { token, vocab });
        assert_eq!(session.decode(token), expected);
        assert_eq!(session.prefill(&[1, 2, token]), expected);
        assert_eq!(session.prefill_all(&[token, 1], |_, _| panic!("ran")), expected);
    }
    // The session is unchanged.
    assert_eq!((session.position(), session.logits()), (2, &before[..]));
    session.decode(vocab - 1).unwrap();
}

#[test]
fn an_empty_prompt() {
    let bytes = tiny("llama").build();
    let mut run = Run::new(&bytes, |options| options.context = 32);
    let mut session = run.session();
    assert_eq!(session.prefill(&[]), Err(Error::EmptyPrompt));
    assert_eq!(session.prefill_all(&[], |_, _| panic!("ran")), Err(Error::EmptyPrompt));
    session.prefill(&[1]).unwrap();
    assert_eq!(session.prefill(&[]), Err(Error::EmptyPrompt));
    assert_eq!(session.position(), 1);
}

#[test]
fn a_prompt_longer_than_the_context() {
    let bytes = tiny("llama").build();
    let mut run = Run::new(&bytes, |options| (options.context, options.batch) = (32, 8));
    let mut session = run.session();
    assert_eq!(session.prefill(&[1; 33]), Err(Error::ContextFull { context: 32, needed: 33 }));
    assert_eq!(session.position(), 0);
    session.prefill(&[1; 32]).unwrap();
    assert_eq!(session.decode(1), Err(Error::ContextFull { context: 32, needed: 33 }));
    assert_eq!(session.prefill(&[1; 100]), Err(Error::ContextFull { context: 32, needed: 132 }));
    session.rewind(31).unwrap();
    session.decode(1).unwrap();
}

#[test]
fn learned_positions_end() {
    // A context longer than the position embeddings is not planned.
    let bytes = tiny("gpt2").build();
    let mut run = Run::new(&bytes, |options| options.context = 1000);
    assert_eq!(run.plan.options.context, CONTEXT as usize);
    let needed = CONTEXT as usize + 1;
    let expected = Err(Error::ContextFull { context: CONTEXT as usize, needed });
    assert_eq!(run.session().prefill(&vec![1; needed]), expected);
}
