//! Files as other programs write them: keys without effect, and other layouts of the same tensors.
//!
//! The logits of each file must equal, bit for bit, those of the same model in its usual layout. The reference cases
//! check the usual layout against other programs.

use arenite::gguf::Value;
use arenite::model::{Pooling, Scaling, Spec};
use arenite::{Error, Gguf, Model, Name};

use crate::common::encoders::{ENCODERS, encoder};
use crate::common::families::{DECODERS, RECURRENT, decoder};
use crate::common::gguf::{Builder, Meta};
use crate::common::run::Run;
use crate::common::tiny::{DIM, Random};
use crate::common::variants::{FAMILIES, tiny};

/// Every family's tiny model, with its architecture.
fn all() -> Vec<(String, Builder)> {
    let decoders = DECODERS.iter().chain(&RECURRENT).map(|name| (*name, decoder(name)));
    let more =
        FAMILIES.iter().map(|name| (*name, tiny(name))).chain(ENCODERS.iter().map(|name| (*name, encoder(name))));
    decoders.chain(more).map(|(name, file)| (name.to_owned(), file)).collect()
}

fn architecture(file: &Builder) -> String {
    let file = file.build();
    Gguf::parse(&file).unwrap().architecture().unwrap().to_owned()
}

const TOKENS: [u32; 7] = [1, 5, 9, 20, 33, 47, 60];

/// The logits of some tokens, or the states of an encoder.
fn bits(file: &Builder) -> Vec<u32> {
    let file = file.build();
    let mut run = Run::new(&file, |options| options.context = 64);
    let spec = run.model.spec();
    let (alone, crossed) = (!spec.has_head(), spec.has_cross_attention());
    let mut out = vec![];
    let mut session = run.session();
    if alone || crossed {
        session.encode(&TOKENS).unwrap();
        out.extend(session.states().iter().map(|x| x.to_bits()));
    }
    if !alone {
        session.prefill_all(&TOKENS, |_, logits| out.extend(logits.iter().map(|x| x.to_bits()))).unwrap();
    }
    out
}

fn error(file: &Builder) -> Error {
    Model::new(&Gguf::parse(&file.build()).unwrap()).unwrap_err()
}

fn has(file: &Builder, key: &str) -> bool {
    file.keys.iter().any(|other| other.name == key.as_bytes())
}

/// Keys with values that have no effect in any family.
fn neutral() -> Vec<(&'static str, Meta)> {
    let mut keys: Vec<(&'static str, Meta)> = vec![
        ("use_parallel_residual", false.into()),
        ("rope.scaling.yarn_truncate", true.into()),
        ("attention.recurrent_layers", Meta::array([false; 4])),
        ("classifier.output_labels", Meta::strings(["yes"])),
        ("vision.block_count", 27u32.into()),
        ("vision.attention.layer_norm_epsilon", 1e-6f32.into()),
        ("mm.tokens_per_image", 256u32.into()),
        ("rope.dimension_sections", Meta::array([2i32, 1, 1, 0])),
        ("rope.scaling.factor", 0f32.into()),
    ];
    let zeros = ["expert_count", "expert_used_count", "leading_dense_block_count", "nextn_predict_layers"];
    keys.extend(zeros.map(|key| (key, 0u32.into())));
    for key in
        ["attention.max_alibi_bias", "attention.clamp_kqv", "attn_logit_softcapping", "attention.temperature_scale"]
    {
        keys.push((key, 0f32.into()));
    }
    for key in ["expert_group_count", "expert_gating_func", "moe_every_n_layers"] {
        keys.push((key, 1u32.into()));
    }
    for key in ["expert_weights_scale", "rope.freq_scale", "attention.output_scale"] {
        keys.push((key, 1f32.into()));
    }
    for key in ["vocab_size", "expert_shared_feed_forward_length", "expert_shared_count", "n_deepstack_layers"] {
        keys.push((key, 3u32.into()));
    }
    keys
}

#[test]
fn keys_that_mean_nothing() {
    for (name, file) in all() {
        let (want, architecture) = (bits(&file), architecture(&file));
        let mut more = file;
        for (key, value) in neutral() {
            let key = format!("{architecture}.{key}");
            // Keys that have an effect in this family are left out.
            let own = match name.as_str() {
                "gemma2" => key.ends_with("softcapping"),
                "qwen35" | "qwen35moe" | "qwen3next" => key.ends_with("recurrent_layers"),
                "afmoe" | "dots1" => key.ends_with("gating_func") || key.ends_with("shared_feed_forward_length"),
                "nemotron_h_moe" | "lfm2moe" => key.ends_with("gating_func") || key.ends_with("weights_scale"),
                _ => false,
            };
            if !has(&more, &key) && !own {
                more.set(&key, value);
            }
        }
        assert_eq!(bits(&more), want, "{name}");
    }
}

#[test]
fn keys_that_mean_something() {
    let asks = [
        ("expert_group_count", Meta::from(4u32), "groups of experts"),
        ("attention.max_alibi_bias", Meta::from(8f32), "ALiBi"),
        ("attention.kv_lora_rank", Meta::from(512u32), "latent attention"),
        ("attention.key_length_swa", Meta::from(8u32), "local layers with other heads"),
        ("rope.freq_base_swa", Meta::from(77f32), "another rotary base in local layers"),
        ("use_parallel_residual", Meta::from(true), "attention and feed-forward side by side"),
        ("attention.causal", Meta::from(false), "attention to later tokens"),
        ("attention.recurrent_layers", Meta::array([false, true]), "recurrent layers"),
        ("moe_latent_size", Meta::from(8u32), "latent experts"),
        ("rope.scaling.yarn_truncate", Meta::from(false), "a ramp of YaRN with unrounded ends"),
    ];
    for family in FAMILIES {
        for (key, value, what) in &asks {
            let key = format!("{family}.{key}");
            let mut file = tiny(family);
            file.set(&key, value.clone());
            assert_eq!(error(&file), Error::UnsupportedKey { key: Name::new(key.as_bytes()), what });
        }
    }
    let mut file = tiny("qwen2");
    file.set("qwen2.expert_count", 4u32);
    let said = error(&file).to_string();
    assert!(said.starts_with("the metadata key qwen2.expert_count requires experts"), "{said}");
}

/// A size that is equal in all layers may be given as an array.
#[test]
fn sizes_as_arrays_of_equal_numbers() {
    for (name, file) in all() {
        let architecture = architecture(&file);
        let bytes = file.build();
        let gguf = Gguf::parse(&bytes).unwrap();
        let key = format!("{architecture}.attention.head_count");
        let heads = match gguf.get(&key) {
            Some(Value::Array(heads)) => heads.get_i32(0).unwrap() as u32,
            Some(Value::U32(heads)) => heads,
            other => panic!("{name}: {other:?}"),
        };
        let layers = Spec::read(&gguf).unwrap().layers;
        let layers = if has(&file, &format!("{architecture}.decoder_block_count")) { 2 } else { layers };
        let mut arrays = file.clone();
        arrays.set(&key, Meta::array(vec![heads; layers]));
        assert_eq!(bits(&arrays), bits(&file), "{name}");
    }
    let mut file = tiny("llama");
    file.set("llama.rope.dimension_count", Meta::array([16u32, 8]));
    let key = Name::new(b"llama.rope.dimension_count");
    assert_eq!(error(&file), Error::KeyValue { key, why: "must be the same for all layers" });
    // An encoder accepts such an array, too: all of its layers use the same tiles.
    let mut file = encoder("bert");
    let want = bits(&file);
    file.set("bert.attention.head_count_kv", Meta::array([2u32, 2]));
    assert_eq!(bits(&file), want);
}

/// A window without a pattern: accepted only if the model's window applies to all layers.
#[test]
fn a_window_alone() {
    for (name, file) in all() {
        let architecture = architecture(&file);
        let key = format!("{architecture}.attention.sliding_window");
        if has(&file, &key) || matches!(architecture.as_str(), "llama" | "mistral3" | "olmo2" | "phimoe") {
            continue;
        }
        let mut windowed = file.clone();
        windowed.set(&key, 3u32);
        assert_eq!(bits(&windowed), bits(&file), "{name}");
    }
    let mut file = tiny("llama");
    file.set("llama.attention.sliding_window", 3u32);
    assert_ne!(bits(&file), bits(&tiny("llama")));
    file.set("llama.attention.sliding_window_pattern", 2u32);
    assert!(matches!(error(&file), Error::UnsupportedKey { .. }));
}

#[test]
fn scaling_under_older_names() {
    let with = |keys: &[(&str, Meta)]| {
        let mut file = tiny("llama");
        keys.iter().for_each(|(key, value)| {
            file.set(&format!("llama.{key}"), value.clone());
        });
        file
    };
    let plain = bits(&with(&[]));
    assert_eq!(bits(&with(&[("rope.scale_linear", 1f32.into())])), plain);
    assert_eq!(bits(&with(&[("rope.scaling.factor", 0f32.into()), ("rope.scaling.type", "linear".into())])), plain);
    let linear = bits(&with(&[("rope.scaling.factor", 4f32.into()), ("rope.scaling.type", "linear".into())]));
    assert_ne!(linear, plain);
    assert_eq!(bits(&with(&[("rope.scale_linear", 4f32.into())])), linear);
    assert_eq!(bits(&with(&[("rope.scale_linear", 9f32.into()), ("rope.scaling.factor", 4f32.into())])), linear);
    // An attention factor in the file replaces all others.
    let yarn = |more: &[(&str, Meta)]| {
        let base = [("rope.scaling.type", Meta::from("yarn")), ("rope.scaling.factor", 4f32.into())];
        bits(&with(&[&base[..], more].concat()))
    };
    let usual = (0.1f64 * 4f64.ln() + 1.0) as f32;
    assert_eq!(yarn(&[("rope.scaling.yarn_attn_factor", usual.into())]), yarn(&[]));
    assert_ne!(yarn(&[("rope.scaling.yarn_attn_factor", 1.3f32.into())]), yarn(&[]));
}

/// The published gpt-oss models do not round the ends of YaRN's ramp, but their files have no key for it. The case
/// `gpt_oss_yarn` compares logits.
#[test]
fn ramps_of_gpt_oss() {
    for (original, key, rounded) in
        [(4096u32, None, false), (128, None, true), (4096, Some(true), true), (128, Some(false), false)]
    {
        let mut file = decoder("gpt-oss");
        for (key, value) in
            [("type", Meta::from("yarn")), ("factor", 32f32.into()), ("original_context_length", original.into())]
        {
            file.set(&format!("gpt-oss.rope.scaling.{key}"), value);
        }
        if let Some(key) = key {
            file.set("gpt-oss.rope.scaling.yarn_truncate", key);
        }
        let file = file.build();
        let spec = Spec::read(&Gguf::parse(&file).unwrap()).unwrap();
        for is_local in [false, true] {
            assert!(
                matches!(spec.rope(is_local).unwrap().scaling, Scaling::Yarn { whole_pairs, .. } if whole_pairs == rounded)
            );
        }
    }
}

/// Rerankers without `pooling_type` rank by the first token, decoders by the last.
#[test]
fn pooling_of_rerankers() {
    let mut random = Random(3);
    let mut add = |file: &mut Builder, name: &str, dims: &[u64]| {
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| random.value() * 0.3).collect();
        file.set_f32(name, dims, &values);
    };
    let pooling = |file: &Builder| Spec::read(&Gguf::parse(&file.build()).unwrap()).unwrap().pooling;
    let mut file = encoder("bert");
    assert_eq!(pooling(&file), Pooling::Mean);
    add(&mut file, "cls.output.weight", &[DIM, 1]);
    add(&mut file, "cls.output.bias", &[1]);
    assert_eq!(pooling(&file), Pooling::First);
    file.set("bert.pooling_type", 1u32);
    assert_eq!(pooling(&file), Pooling::Mean);
    file.set("bert.pooling_type", 3u32);
    assert_eq!(pooling(&file), Pooling::Last);
    // A head of one layer may have the name of the first layer or of the second.
    let score = |file: &Builder| {
        let file = file.build();
        let mut run = Run::new(&file, |options| options.context = 64);
        run.session().embed(&TOKENS, &mut [0.0; DIM as usize]).unwrap().to_vec()
    };
    let two = score(&file);
    for tensor in &mut file.tensors {
        if let Some(rest) = tensor.name.strip_prefix(b"cls.output.") {
            tensor.name = [b"cls.", rest].concat();
        }
    }
    assert_eq!(score(&file), two);
    let mut file = tiny("qwen3");
    add(&mut file, "cls.output.weight", &[DIM, 2]);
    assert_eq!(pooling(&file), Pooling::Last);
}

/// A StableLM with a norm before the feed-forward is sequential, even if the key `use_parallel_residual` is true.
#[test]
fn stablelm_by_its_norms() {
    let mut file = decoder("stablelm");
    let want = bits(&file);
    file.set("stablelm.use_parallel_residual", true);
    assert_eq!(bits(&file), want);
}

#[test]
fn what_other_programs_leave_out() {
    let without = |family: &str, keys: &[&str]| {
        let mut file = decoder(family);
        let architecture = architecture(&file);
        for key in keys {
            file.remove(&format!("{architecture}.{key}"));
        }
        file
    };
    // Phi 3 of spring 2024 lacks the original context length: the trained context is used.
    let mut phi3 = decoder("phi3");
    phi3.set("phi3.rope.scaling.original_context_length", 64u32);
    let early = without("phi3", &["rope.scaling.original_context_length", "attention.sliding_window"]);
    assert_eq!(bits(&early), bits(&phi3));
    // Gemma 2 files of early converters lack the caps, which then have Gemma 2's values; 0 means no cap.
    let mut gemma2 = decoder("gemma2");
    let caps = ["attn_logit_softcapping", "final_logit_softcapping"];
    gemma2.set("gemma2.attn_logit_softcapping", 50f32).set("gemma2.final_logit_softcapping", 30f32);
    assert_eq!(bits(&without("gemma2", &caps)), bits(&gemma2));
    gemma2.set("gemma2.attn_logit_softcapping", 0f32).set("gemma2.final_logit_softcapping", 0f32);
    assert_ne!(bits(&gemma2), bits(&without("gemma2", &caps)));
    // A Qwen 2 file without biases runs as if all biases were zero. A bias of the head changes the logits.
    let mut zeros = tiny("qwen2");
    let mut none = zeros.clone();
    for tensor in &mut zeros.tensors {
        if tensor.name.ends_with(b".bias") {
            tensor.data.fill(0);
        }
    }
    none.tensors.retain(|tensor| !tensor.name.ends_with(b".bias"));
    assert_eq!(bits(&none), bits(&zeros));
    none.set_f32("output.bias", &[288], &[0.5; 288]);
    assert_ne!(bits(&none), bits(&zeros));
    // Granite has no rotary positions if `finetuned` is false.
    let mut granite = decoder("granite");
    let turned = bits(&granite);
    granite.set("granite.rope.scaling.finetuned", true);
    assert_eq!(bits(&granite), turned);
    granite.set("granite.rope.scaling.finetuned", false);
    assert_ne!(bits(&granite), turned);
}

/// Gemma 3 in files of Ollama: other names of the rotary bases, and in early files a cap that has no effect.
#[test]
fn gemma_3_of_ollama() {
    let mut file = decoder("gemma3");
    let want = bits(&file);
    file.remove("gemma3.rope.freq_base").remove("gemma3.rope.freq_base_swa");
    file.set("gemma3.rope.global.freq_base", 1e6f32).set("gemma3.rope.local.freq_base", 1e4f32);
    file.set("gemma3.final_logit_softcapping", 30f32);
    assert_eq!(bits(&file), want);
}

/// Layers for multi-token prediction are recognized by their tensors.
#[test]
fn layers_that_are_counted_as_others() {
    let mut file = decoder("qwen35");
    let want = bits(&file);
    file.set("qwen35.nextn_predict_layers", 1u32);
    assert_eq!(bits(&file), want);
    // `block_count` includes the layer, but its tensors are missing.
    file.set("qwen35.block_count", 5u32);
    assert_eq!(bits(&file), want);
    // The layer's tensors are present and have no effect.
    file.set_f32("blk.4.nextn.eh_proj.weight", &[2 * DIM, DIM], &vec![0.0; 2 * (DIM * DIM) as usize]);
    file.set_f32("blk.4.attn_norm.weight", &[DIM], &[1.0; DIM as usize]);
    assert_eq!(bits(&file), want);
}

/// Removes a tensor from the file and returns its dimensions, type and bytes.
fn take(file: &mut Builder, name: &str) -> Option<(Vec<u64>, u32, Vec<u8>)> {
    let at = file.tensors.iter().position(|tensor| tensor.name == name.as_bytes())?;
    let tensor = file.tensors.remove(at);
    Some((tensor.dims, tensor.kind, tensor.data))
}

/// Concatenates the rows of several tensors, in every layer that has them.
fn fuse(file: &mut Builder, parts: &[&str], whole: &str) -> bool {
    let mut any = false;
    for layer in 0..8 {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let there = |file: &Builder, part: &str| file.tensors.iter().any(|tensor| tensor.name == name(part).as_bytes());
        if !parts.iter().all(|part| there(file, part)) {
            continue;
        }
        let taken: Vec<_> = parts.iter().map(|part| take(file, &name(part)).unwrap()).collect();
        let last = taken[0].0.len() - 1;
        let mut dims = taken[0].0.clone();
        dims[last] = taken.iter().map(|(dims, ..)| dims[last]).sum();
        let data = taken.iter().flat_map(|(_, _, data)| data.clone()).collect();
        file.set_tensor(&name(whole), &dims, taken[0].1, data);
        any = true;
    }
    any
}

/// q, k and v as one tensor, for models that store three.
#[test]
fn fused_queries_keys_and_values() {
    let mut count = 0;
    for (name, file) in all() {
        let mut fused = file.clone();
        // Gemma 4 has layers without v; queries of Qwen 3.5 models include gates; seq2seq uses prefixes.
        if matches!(name.as_str(), "gemma4" | "qwen35" | "qwen35moe" | "qwen3next") {
            continue;
        }
        if fuse(&mut fused, &["attn_q.weight", "attn_k.weight", "attn_v.weight"], "attn_qkv.weight") {
            fuse(&mut fused, &["attn_q.bias", "attn_k.bias", "attn_v.bias"], "attn_qkv.bias");
            assert_eq!(bits(&fused), bits(&file), "{name}");
            count += 1;
        }
    }
    assert!(count >= 20, "{count} families");
}

/// q, k and v as three tensors, for GPT-2 and Phi 3, which store one; Phi 3 also gets a separate gate.
#[test]
fn separate_queries_keys_and_values() {
    for name in ["gpt2", "phi3"] {
        let file = if name == "gpt2" { tiny(name) } else { decoder(name) };
        let mut apart = file.clone();
        for layer in 0..4 {
            for end in ["weight", "bias"] {
                let Some((dims, kind, data)) = take(&mut apart, &format!("blk.{layer}.attn_qkv.{end}")) else {
                    continue;
                };
                let last = dims.len() - 1;
                let row = data.len() / dims[last] as usize;
                let mut rest = &data[..];
                for (part, rows) in [("attn_q", DIM), ("attn_k", DIM / 2), ("attn_v", DIM / 2)] {
                    let (rows_of, after) = rest.split_at(rows as usize * row);
                    let mut dims = dims.clone();
                    dims[last] = rows;
                    apart.set_tensor(&format!("blk.{layer}.{part}.{end}"), &dims, kind, rows_of.to_vec());
                    rest = after;
                }
            }
            let up = format!("blk.{layer}.ffn_up.weight");
            if name == "phi3" {
                let (dims, kind, data) = take(&mut apart, &up).unwrap();
                let (first, second) = data.split_at(data.len() / 2);
                let dims = [dims[0], dims[1] / 2];
                apart.set_tensor(&format!("blk.{layer}.ffn_gate.weight"), &dims, kind, first.to_vec());
                apart.set_tensor(&up, &dims, kind, second.to_vec());
            }
        }
        assert_eq!(bits(&apart), bits(&file), "{name}");
    }
}

/// Gate and up of all experts in one tensor: for each expert the rows of the gate, then those of up.
#[test]
fn fused_experts() {
    for name in ["mixtral", "qwen3moe", "qwen35moe", "qwen3next", "lfm2moe", "granitehybrid"] {
        let file = decoder(name);
        let mut fused = file.clone();
        for layer in 0..4 {
            let of = |part: &str| format!("blk.{layer}.{part}.weight");
            let Some((dims, kind, gate)) = take(&mut fused, &of("ffn_gate_exps")) else { continue };
            let (_, _, up) = take(&mut fused, &of("ffn_up_exps")).unwrap();
            let each = gate.len() / dims[2] as usize;
            let both = gate.chunks(each).zip(up.chunks(each)).flat_map(|(gate, up)| [gate, up].concat()).collect();
            fused.set_tensor(&of("ffn_gate_up_exps"), &[dims[0], 2 * dims[1], dims[2]], kind, both);
        }
        assert_eq!(bits(&fused), bits(&file), "{name}");
    }
}

/// One tensor per expert, as in Mixtral's first files.
#[test]
fn a_tensor_for_each_expert() {
    for name in ["mixtral", "qwen3moe", "lfm2moe", "nemotron_h_moe"] {
        let file = decoder(name);
        let mut apart = file.clone();
        for layer in 0..4 {
            for part in ["ffn_gate", "ffn_up", "ffn_down"] {
                let Some((dims, kind, data)) = take(&mut apart, &format!("blk.{layer}.{part}_exps.weight")) else {
                    continue;
                };
                for (expert, data) in data.chunks(data.len() / dims[2] as usize).enumerate() {
                    let name = format!("blk.{layer}.{part}.{expert}.weight");
                    apart.set_tensor(&name, &dims[..2], kind, data.to_vec());
                }
            }
        }
        assert_eq!(bits(&apart), bits(&file), "{name}");
        let missing = apart.tensors.iter().rposition(|tensor| tensor.name.ends_with(b"ffn_up.3.weight")).unwrap();
        let tensor = apart.tensors.remove(missing);
        assert_eq!(error(&apart), Error::MissingTensor { tensor: Name::new(&tensor.name) });
    }
    let mut file = decoder("mixtral");
    file.set_f32("blk.0.ffn_up.0.weight", &[DIM, 64], &[0.0; 64 * DIM as usize]);
    assert_eq!(error(&file), Error::UnexpectedTensor { tensor: Name::new(b"blk.0.ffn_up.0.weight") });
}

/// Weights times four, and a factor of a quarter on the products: powers of two do not change bits.
#[test]
fn factors_of_matrices() {
    for (name, file) in all() {
        if name.starts_with("rwkv") {
            continue; // Many tensors of RWKV with two dimensions are not matrices.
        }
        let mut scaled = file.clone();
        let mut factors = vec![];
        for tensor in &mut scaled.tensors {
            let name = String::from_utf8(tensor.name.clone()).unwrap();
            let vectors = ["norm", "conv", "rel_b", "embd", "types", "dense", "scale", "gate_inp"];
            if tensor.dims.len() < 2 || tensor.dims[1] < 2 || vectors.iter().any(|part| name.contains(part)) {
                continue;
            }
            let Some(base) = name.strip_suffix(".weight") else { continue };
            if base.starts_with("enc.") || base.starts_with("dec.") {
                continue; // In encoder-decoders, the output matrix of attention has another name.
            }
            for value in tensor.data.chunks_exact_mut(4) {
                let number = f32::from_le_bytes(value.try_into().unwrap());
                value.copy_from_slice(&(number * 4.0).to_le_bytes());
            }
            factors.push((base.to_owned(), tensor.dims.get(2).copied().unwrap_or(1)));
        }
        for (base, count) in factors {
            scaled.set_f32(&format!("{base}.scale"), &[count], &vec![0.25; count as usize]);
            scaled.set_f32(&format!("{base}.input_scale"), &[1], &[1.0]);
        }
        assert_eq!(bits(&scaled), bits(&file), "{name}");
    }
    let mut file = tiny("llama");
    file.set_f32("token_embd.scale", &[1], &[1.0]);
    assert_eq!(error(&file), Error::UnexpectedTensor { tensor: Name::new(b"token_embd.scale") });
    let mut file = tiny("llama");
    file.set_f32("blk.0.ffn_up.scale", &[2], &[1.0; 2]);
    assert!(matches!(error(&file), Error::TensorShape { .. }));
}

/// Norms, biases and other vectors in F16 and BF16 give the same result as equal numbers in F32.
#[test]
fn vectors_in_half_floats() {
    for (name, file) in all() {
        for (kind, keep) in [(1u32, 10), (30, 7)] {
            let (mut rounded, mut half) = (file.clone(), file.clone());
            for (rounded, half) in rounded.tensors.iter_mut().zip(&mut half.tensors) {
                let is_vector = rounded.dims.len() == 1
                    || [
                        &b"norm.weight"[..],
                        b"conv1d.weight",
                        b"conv.weight",
                        b"rel_b.weight",
                        b"ssm_a",
                        b"ssm_d",
                        b".bias",
                    ]
                    .iter()
                    .any(|end| rounded.name.ends_with(end));
                if !is_vector {
                    continue;
                }
                // Numbers that both types represent exactly: few bits, and not too small.
                let values: Vec<f32> =
                    rounded.data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                let values: Vec<f32> =
                    values.iter().map(|x| f32::from_bits((x.to_bits() >> (23 - keep)) << (23 - keep))).collect();
                let values: Vec<f32> = values.iter().map(|&x| if x.abs() < 1e-3 { 0.0 } else { x }).collect();
                rounded.data = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                half.kind = kind;
                half.data = values
                    .iter()
                    .flat_map(|x| if kind == 30 { (x.to_bits() >> 16) as u16 } else { to_f16(*x) }.to_le_bytes())
                    .collect();
            }
            assert_eq!(bits(&half), bits(&rounded), "{name} type {kind}");
        }
    }
}

/// Converts a number that F16 represents exactly.
fn to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    if x == 0.0 { sign } else { sign | (((bits >> 23 & 255) - 112) << 10) as u16 | (bits >> 13 & 0x3ff) as u16 }
}

/// Tensors for vision and audio next to the language model have no effect.
#[test]
fn tensors_of_other_modalities() {
    for (name, file) in all() {
        let mut more = file.clone();
        for tensor in
            ["v.blk.0.attn_q.weight", "mm.mm_input_projection.weight", "a.conv1d.1.weight", "v.patch_embd.weight"]
        {
            more.set_f32(tensor, &[8, 2], &[1.0; 16]);
        }
        assert_eq!(bits(&more), bits(&file), "{name}");
    }
}

/// A T5 with separate relative positions in each layer (UMT5). If all layers have the same ones, it equals T5.
#[test]
fn relative_positions_of_each_layer() {
    let file = encoder("t5_gated");
    let mut own = file.clone();
    for stack in ["enc", "dec"] {
        let first = own.tensor_mut(&format!("{stack}.blk.0.attn_rel_b.weight")).clone();
        for layer in 1..if stack == "enc" { 2 } else { 3 } {
            own.set_tensor(
                &format!("{stack}.blk.{layer}.attn_rel_b.weight"),
                &first.dims,
                first.kind,
                first.data.clone(),
            );
        }
    }
    assert_eq!(bits(&own), bits(&file));
    own.tensor_mut("enc.blk.1.attn_rel_b.weight").data.reverse();
    assert_ne!(bits(&own), bits(&file));
}
