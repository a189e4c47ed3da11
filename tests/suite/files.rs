//! Files as other programs write them: keys that mean nothing, other layouts of the same tensors.
//!
//! The yardstick is the same model as it is written today, whose logits the reference cases check against other programs:
//! the bits must be equal.

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

/// Keys at values that change nothing in any family.
fn neutral() -> Vec<(&'static str, Meta)> {
    let mut keys: Vec<(&'static str, Meta)> = vec![
        ("use_parallel_residual", false.into()),
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
            // A family's own keys are tested where the family is.
            let own = match name.as_str() {
                "gemma2" => key.ends_with("softcapping"),
                "qwen35" | "qwen35moe" | "qwen3next" => key.ends_with("recurrent_layers"),
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
        ("rope.freq_base_swa", Meta::from(77f32), "a rotation of local layers"),
        ("use_parallel_residual", Meta::from(true), "attention and feed-forward side by side"),
        ("attention.causal", Meta::from(false), "attention to later tokens"),
        ("attention.recurrent_layers", Meta::array([false, true]), "recurrent layers"),
        ("moe_latent_size", Meta::from(8u32), "latent experts"),
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
    assert!(said.starts_with("the metadata key qwen2.expert_count asks for experts"), "{said}");
}

/// A size that is the same for all layers, as an array.
#[test]
fn sizes_as_arrays_of_equal_numbers() {
    for (name, file) in all() {
        let architecture = architecture(&file);
        let spec =
            |file: &Builder| Spec::read(&Gguf::parse(&file.build()).unwrap()).map(|spec| (spec.layers, spec.heads));
        let (layers, heads) = spec(&file).unwrap();
        let layers = if has(&file, &format!("{architecture}.decoder_block_count")) { 2 } else { layers };
        let mut arrays = file.clone();
        arrays.set(&format!("{architecture}.attention.head_count"), Meta::array(vec![heads as u32; layers]));
        assert_eq!(bits(&arrays), bits(&file), "{name}");
    }
    let mut file = tiny("llama");
    file.set("llama.attention.head_count", Meta::array([2u32, 4]));
    let key = Name::new(b"llama.attention.head_count");
    assert_eq!(error(&file), Error::KeyValue { key, why: "must be the same for all layers" });
    // An encoder's layers use the same tiles.
    let mut file = encoder("bert");
    let want = bits(&file);
    file.set("bert.attention.head_count_kv", Meta::array([2u32, 2]));
    assert_eq!(bits(&file), want);
}

/// A window without a pattern: only where models see it in all layers.
#[test]
fn a_window_alone() {
    for (name, file) in all() {
        let architecture = architecture(&file);
        let key = format!("{architecture}.attention.sliding_window");
        if has(&file, &key) || matches!(architecture.as_str(), "llama" | "mistral3" | "olmo2") {
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
    // A factor of attention of the file's own takes the place of all others.
    let yarn = |more: &[(&str, Meta)]| {
        let base = [("rope.scaling.type", Meta::from("yarn")), ("rope.scaling.factor", 4f32.into())];
        bits(&with(&[&base[..], more].concat()))
    };
    let usual = (0.1f64 * 4f64.ln() + 1.0) as f32;
    assert_eq!(yarn(&[("rope.scaling.yarn_attn_factor", usual.into())]), yarn(&[]));
    assert_ne!(yarn(&[("rope.scaling.yarn_attn_factor", 1.3f32.into())]), yarn(&[]));
}

/// The published gpt-oss models do not round the ends of YaRN's ramp, and their files do not say so.
#[test]
fn ramps_of_gpt_oss() {
    for (original, rounded) in [(4096u32, false), (128, true)] {
        let mut file = decoder("gpt-oss");
        for (key, value) in
            [("type", Meta::from("yarn")), ("factor", 32f32.into()), ("original_context_length", original.into())]
        {
            file.set(&format!("gpt-oss.rope.scaling.{key}"), value);
        }
        let file = file.build();
        let spec = Spec::read(&Gguf::parse(&file).unwrap()).unwrap();
        for head in [spec.global, spec.local] {
            assert!(matches!(head.rope.unwrap().scaling, Scaling::Yarn { whole_pairs, .. } if whole_pairs == rounded));
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
    // The only layer, under the name of the first of two.
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

/// The norm before the feed-forward tells whether a StableLM is sequential, not the key.
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
    // Phi 3 of spring 2024 does not say for which context it was trained before stretching: for its own.
    let mut phi3 = decoder("phi3");
    phi3.set("phi3.rope.scaling.original_context_length", 64u32);
    let early = without("phi3", &["rope.scaling.original_context_length", "attention.sliding_window"]);
    assert_eq!(bits(&early), bits(&phi3));
    // Gemma 2 of early converters has the caps of all Gemma 2, and 0 is none.
    let mut gemma2 = decoder("gemma2");
    let caps = ["attn_logit_softcapping", "final_logit_softcapping"];
    gemma2.set("gemma2.attn_logit_softcapping", 50f32).set("gemma2.final_logit_softcapping", 30f32);
    assert_eq!(bits(&without("gemma2", &caps)), bits(&gemma2));
    gemma2.set("gemma2.attn_logit_softcapping", 0f32).set("gemma2.final_logit_softcapping", 0f32);
    assert_ne!(bits(&gemma2), bits(&without("gemma2", &caps)));
    // Qwen 2 without its biases is a Qwen 2 with biases of zero; with a bias of the head it is another model.
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
    // Granite without positions.
    let mut granite = decoder("granite");
    let turned = bits(&granite);
    granite.set("granite.rope.scaling.finetuned", true);
    assert_eq!(bits(&granite), turned);
    granite.set("granite.rope.scaling.finetuned", false);
    assert_ne!(bits(&granite), turned);
}

/// Ollama's names of the rotary bases of Gemma 3, and a cap that is in its early files and not in the model.
#[test]
fn gemma_3_of_ollama() {
    let mut file = decoder("gemma3");
    let want = bits(&file);
    file.remove("gemma3.rope.freq_base").remove("gemma3.rope.freq_base_swa");
    file.set("gemma3.rope.global.freq_base", 1e6f32).set("gemma3.rope.local.freq_base", 1e4f32);
    file.set("gemma3.final_logit_softcapping", 30f32);
    assert_eq!(bits(&file), want);
}

/// Layers for guessing tokens ahead are those that have such tensors.
#[test]
fn layers_that_are_counted_as_others() {
    let mut file = decoder("qwen35");
    let want = bits(&file);
    file.set("qwen35.nextn_predict_layers", 1u32);
    assert_eq!(bits(&file), want);
    // Counted, and left out.
    file.set("qwen35.block_count", 5u32);
    assert_eq!(bits(&file), want);
    // There.
    file.set_f32("blk.4.nextn.eh_proj.weight", &[2 * DIM, DIM], &vec![0.0; 2 * (DIM * DIM) as usize]);
    file.set_f32("blk.4.attn_norm.weight", &[DIM], &[1.0; DIM as usize]);
    assert_eq!(bits(&file), want);
}
