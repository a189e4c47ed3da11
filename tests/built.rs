//! Tests which files a build with fewer features opens, and the errors for other files. `.ci/firmware` runs
//! this test with the fewest features, and `.ci/firmware sizes` with each feature alone. With all features nothing is
//! refused.

mod common;

use arenite::model::family_feature;
use arenite::tokenizer::Tokenizer;
use arenite::{Error, Gguf, KvType, Model, Options, Plan};
use common::encoders::{ENCODERS, encoder};
use common::families::{DECODERS, RECURRENT, decoder};
use common::gguf::{Builder, Meta};
use common::peers::all_peers;
use common::run::Run;
use common::tiny::tiny_llama;
use common::variants::{FAMILIES, quantized, tiny};

/// True if this test was built with a feature.
fn has(feature: &str) -> bool {
    macro_rules! any {
        ($($name:literal)*) => { match feature { $($name => cfg!(feature = $name),)* _ => panic!("{feature}?") } };
    }
    any!("llama" "qwen" "gpt2" "gemma" "phi3" "stablelm" "smollm3" "olmo2" "granite" "exaone4" "gpt-oss" "hunyuan" "mistral3" "lfm2" "qwen35" "mamba2" "rwkv" "mla" "nemotron-h" "llama-like" "gpt-like" "mixtures" "bitnet" "bert" "nomic-bert" "gemma-embedding" "t5" "seq2seq" "sound" "experts"
        "half-floats" "q8_0" "q4_0" "q6_k" "kv-f32" "kv-f16" "kv-q8_0" "bpe" "unigram" "wordpiece" "rwkv-world" "plamo2" "hybrid-dna")
}

/// A model of every family, and the features that it needs.
fn models() -> Vec<(&'static str, Builder, Vec<&'static str>)> {
    let needs = |family: &'static str| match family {
        "mixtral" => vec!["llama", "experts"],
        "qwen2" | "qwen3" => vec!["qwen"],
        "qwen3moe" => vec!["qwen", "experts"],
        "gemma-embedding" => vec![family],
        "gemma4_moe" => vec!["gemma", "experts"],
        _ if family.starts_with("gemma") => vec!["gemma"],
        "command-r" | "gptneox" | "mpt" | "olmo" => vec!["gpt-like"],
        "apertus" | "glm4" => vec!["llama-like"],
        "afmoe" | "llama4" | "phimoe" | "smallthinker" | "dots1" => vec!["mixtures", "experts"],
        "t5_gated" => vec!["t5"],
        "falcon-h1" | "mamba" | "plamo2" => vec!["mamba2"],
        "jamba" => vec!["mamba2", "experts"],
        "rwkv6" | "rwkv7" => vec!["rwkv"],
        "deepseek2" => vec!["mla", "experts"],
        "plm" => vec!["mla"],
        "granitehybrid" => vec!["mamba2", "experts"],
        "lfm2moe" => vec!["lfm2", "experts"],
        "qwen35moe" | "qwen3next" => vec!["qwen35", "experts"],
        "nemotron_h_moe" => vec!["nemotron-h", "experts"],
        "nomic-bert" | "modern-bert" | "jina-bert-v2" | "mpnet" => vec!["nomic-bert"],
        "hunyuan-dense" => vec!["hunyuan"],
        "gpt-oss" => vec!["gpt-oss", "experts"],
        "unbiased" | "post" => vec!["seq2seq"],
        _ => vec![family],
    };
    let mut models: Vec<_> = FAMILIES.iter().map(|family| (*family, tiny(family), needs(family))).collect();
    models.extend(DECODERS.iter().chain(&RECURRENT).map(|family| (*family, decoder(family), needs(family))));
    models.extend(ENCODERS.map(|kind| (kind, encoder(kind), needs(kind))));
    models.extend(all_peers().map(|(family, file)| {
        let has_experts = file.tensors.iter().any(|tensor| tensor.name.ends_with(b"exps.weight"));
        let experts = has_experts.then_some("experts");
        (family, file, family_feature(family).into_iter().chain(experts).collect())
    }));
    models
}

#[test]
fn families() {
    for (name, file, needs) in models() {
        let file = file.build();
        let gguf = Gguf::parse(&file).unwrap();
        let missing: Vec<_> = needs.iter().filter(|feature| !has(feature)).collect();
        match Model::new(&gguf) {
            Ok(_) => assert!(missing.is_empty(), "{name} opens without {missing:?}"),
            Err(error) => {
                assert!(!missing.is_empty(), "{name}: {error}");
                assert!(matches!(error, Error::Unsupported { .. }), "{name}: {error}");
                assert!(missing.iter().any(|feature| error.missing_feature() == Some(feature)), "{name}: {error}");
            }
        }
    }
}

#[test]
fn experts() {
    if has("llama") && !has("experts") {
        let file = decoder("mixtral").build();
        let error = Model::new(&Gguf::parse(&file).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "the model part 'experts' is not supported");
    }
}

/// Prints a checksum of each model's logits. `.ci/firmware` compares the checksums of a build with few features with
/// those of a build with all features.
#[test]
fn runs() {
    println!(); // ends the line with the test's name
    for (kv, feature) in [(KvType::F16, "kv-f16"), (KvType::F32, "kv-f32"), (KvType::Q8_0, "kv-q8_0")] {
        if !has(feature) {
            continue;
        }
        for (name, file, needs) in models() {
            if !needs.iter().all(|feature| has(feature)) {
                continue;
            }
            let file = file.build();
            let mut run = Run::new(&file, |options| *options = options.context(64).batch(4).kv(kv));
            let mut session = run.session();
            let ids = [1, 40, 7, 100, 30, 9];
            let _ = session.encode(&ids);
            let mut bits: Vec<u32> = session.states().iter().map(|x| x.to_bits()).collect();
            if session.prefill(&ids).is_ok() {
                bits.extend(session.logits().iter().map(|x| x.to_bits()));
            }
            assert!(!bits.is_empty(), "{name}");
            let sum = bits.iter().fold(0u64, |sum, bits| (sum ^ u64::from(*bits)).wrapping_mul(0x100_0000_01b3));
            println!("sum {name} {kv:?} {sum:016x}");
        }
    }
}

/// Returns the message with which `Plan::of` panics for a file it refuses. In a `const` this is a compile error.
fn refusal(file: &[u8]) -> Option<String> {
    let planned = std::panic::catch_unwind(|| Plan::of(file, Options::new()));
    planned.err().and_then(|words| words.downcast::<String>().ok()).map(|words| *words)
}

#[test]
fn tokenizers() {
    for (model, feature) in [
        ("llama", None),
        ("gpt2", Some("bpe")),
        ("gemma4", Some("bpe")),
        ("t5", Some("unigram")),
        ("bert", Some("wordpiece")),
        ("rwkv", Some("rwkv-world")),
        ("plamo2", Some("plamo2")),
        ("hybriddna", Some("hybrid-dna")),
    ] {
        let mut file = tiny_llama();
        file.set("tokenizer.ggml.model", model).set("tokenizer.ggml.pre", "gpt-2");
        file.set("tokenizer.ggml.merges", Meta::strings(["h e"]));
        let file = file.build();
        let gguf = Gguf::parse(&file).unwrap();
        let built = feature.is_none_or(has);
        match Tokenizer::index_bytes(&gguf) {
            Ok(_) => assert!(built, "{model}"),
            Err(error) => {
                assert!(!built, "{model}: {error}");
                assert_eq!(error.to_string(), format!("the tokenizer model '{model}' is not supported"));
                assert_eq!(error.missing_feature(), feature);
            }
        }
        if let (false, Err(error)) = (built, Tokenizer::new(&gguf, &mut [])) {
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        }
        // `Plan::of` refuses the file and names the feature. `Plan::try_of` accepts it: a program may pass token ids.
        if has("llama") && has("kv-f16") {
            let words = refusal(&file);
            let named = feature.map(|feature| {
                format!("the tokenizer model '{model}' is not supported (arenite's feature `{feature}` runs it)")
            });
            assert_eq!(words, named.filter(|_| !built), "{model}");
            assert!(Plan::try_of(&file, Options::new()).is_ok(), "{model}");
        }
    }
}

#[test]
fn types() {
    if !has("llama") {
        return;
    }
    for (kind, feature) in [("Q8_0", "q8_0"), ("Q4_0", "q4_0")] {
        let file = quantized(tiny("llama"), kind).build();
        match Model::new(&Gguf::parse(&file).unwrap()) {
            Ok(_) => assert!(has(feature), "{kind}"),
            Err(error) => assert!(!has(feature) && matches!(error, Error::TensorType { .. }), "{kind}: {error}"),
        }
        // `Plan::new` and `Plan::of` refuse the file and name the feature.
        match Plan::new(&Gguf::parse(&file).unwrap(), Options::new()) {
            Ok(_) => assert!(has(feature), "{kind}"),
            Err(error) => assert_eq!((has(feature), error.missing_feature()), (false, Some(feature)), "{error}"),
        }
        let named = |words: String| words.ends_with(&format!(" (arenite's feature `{feature}` runs it)"));
        assert_eq!(refusal(&file).is_some_and(named), !has(feature), "{kind}");
    }
    let file = tiny("llama").build();
    let gguf = Gguf::parse(&file).unwrap();
    for (kv, feature) in [(KvType::F32, "kv-f32"), (KvType::F16, "kv-f16"), (KvType::Q8_0, "kv-q8_0")] {
        let missing = Plan::new(&gguf, Options::new().kv(kv)).err().and_then(|error| error.missing_feature());
        assert_eq!(missing, (!has(feature)).then_some(feature));
    }
}
