//! Compares logits with independent programs: Hugging Face transformers in fp32, and llama.cpp.
//!
//! Every family has a case in `tests/fixtures`. `ARENITE_FIXTURES` names a directory with larger ones.

use crate::common::fixture::{Case, DECODERS, relative_error};
use crate::common::fixtures::external;
use crate::common::run::{Run, argmax};
use arenite::KvType;

/// With f32 weights and f32 cache, only sums are rounded: 1e-5 is some hundred times the unit roundoff, for some
/// hundred roundings in a row.
const F32_TOLERANCE: f64 = 1e-5;

/// The tolerance for gated delta nets, whose states add up the roundings of all earlier tokens, and for deep models.
const DELTA_TOLERANCE: f64 = 2e-5;

#[test]
fn f32_models_equal_transformers() {
    for case in DECODERS.iter().flat_map(|name| Case::all(name, "model.gguf")) {
        let (name, file) = (&*case.name, case.file("model.gguf"));
        let mut worst = 0.0f64;
        for (i, prompt) in case.prompts().iter().enumerate() {
            let mut run = Run::new(&file, |options| {
                options.kv = KvType::F32;
                options.context = 128;
            });
            let logits = run.all(&prompt.ids);
            let tolerance = if is_delta(name) || is_deep(name) { DELTA_TOLERANCE } else { F32_TOLERANCE };
            for (position, want) in prompt.positions() {
                let got = &logits[position];
                let error = relative_error(got, &want);
                worst = worst.max(error);
                assert!(error <= tolerance, "{} prompt {i} position {position}: {error:e}", case.name);
                assert_eq!(argmax(got), argmax(&want), "{} prompt {i} position {position}", case.name);
            }
            assert_eq!(run.greedy(&prompt.ids, prompt.greedy.len()), prompt.greedy, "{} prompt {i}", case.name);
        }
        println!("{}: {worst:.1e}", case.name);
    }
}

/// True if a case has gated delta nets.
fn is_delta(name: &str) -> bool {
    matches!(name, "qwen35moe" | "qwen3next")
}

/// True if llama.cpp also deviates by more than 1e-5, or if a case has many thin layers.
fn is_deep(name: &str) -> bool {
    matches!(name, "jamba" | "deepseek2_lite")
}

/// Compares with llama.cpp on the same quantized file. Since both programs quantize activations, neither gives the
/// exact logits of the stored weights. Arenite's logits may deviate from these a tenth more than llama.cpp's. The
/// matrices of `mixed` have many different types.
#[test]
fn quantized_models_are_as_near_as_llama_cpp() {
    let larger = [
        ("llama_mha", "BF16"),
        (
            "q_llama",
            "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K_M Q4_K_M Q5_K_M Q6_K IQ4_NL IQ4_XS TQ1_0 TQ2_0 IQ1_S IQ1_M IQ2_XXS IQ2_XS \
             IQ2_S IQ3_XXS IQ3_S",
        ),
        ("q_qwen3", "Q4_0 Q5_1 Q2_K Q3_K_M Q6_K IQ4_NL TQ1_0"),
        ("q_gpt2", "Q8_0 Q4_0 Q2_K Q4_K_M Q6_K"),
        ("q_gemma3", "Q8_0 Q4_1 Q5_0 Q3_K_M Q4_K_M Q5_K_M IQ4_XS TQ2_0"),
        ("q_qwen3moe", "MXFP4_MOE Q4_K_M"),
    ];
    let larger = if external().is_some() { &larger[..] } else { &[] };
    for (name, kinds) in [("llama_mha", "F16"), ("mixed", "first second")].iter().chain(larger) {
        kinds.split_ascii_whitespace().for_each(|kind| near(name, kind));
    }
}

fn near(name: &str, kind: &str) {
    let name_of_file = format!("{kind}.gguf");
    let Some(case) = Case::find(name, &name_of_file) else { return };
    let file = case.file(&name_of_file);
    let (mut ours, mut theirs, mut exact) = (vec![], vec![], vec![]);
    for (prompt, quant) in case.prompts().iter().zip(case.quant(kind)) {
        let mut run = Run::new(&file, |options| {
            options.kv = KvType::F32;
            options.context = 128;
        });
        let logits = run.all(&prompt.ids);
        ours.extend_from_slice(logits.last().unwrap());
        theirs.extend(quant.llama_cpp);
        exact.extend(quant.exact);
    }
    let (us, them) = (relative_error(&ours, &exact), relative_error(&theirs, &exact));
    println!("{name} {kind}: {us:.5}, llama.cpp {them:.5}");
    assert!(us <= them * 1.1, "{name} {kind}: {us} from the exact logits, llama.cpp {them}");
}
