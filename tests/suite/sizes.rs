//! Sizes of plans: exact numbers, limits of options, and plans used with the wrong model.

use crate::common::encoders::{ENCODERS, encoder};
use crate::common::families::{DECODERS, RECURRENT, decoder};
use crate::common::gguf::{Builder, Meta};
use crate::common::peers::all_peers;
use crate::common::variants::{FAMILIES, quantized, tiny, windowed};
use arenite::memory::{ALIGN, Line};
use arenite::{Error, Gguf, KvType, Model, Options, Plan, Session};

fn plan(file: &Builder, options: Options) -> Result<Plan, Error> {
    let bytes = file.build();
    Plan::new(&Gguf::parse(&bytes).unwrap(), options)
}

/// One model of each kind.
fn models() -> Vec<(String, Builder)> {
    let mut models: Vec<_> = FAMILIES.iter().map(|family| (String::from(*family), tiny(family))).collect();
    models.push(("llama Q8_0".into(), quantized(tiny("llama"), "Q8_0")));
    models.push(("llama Q4_0".into(), quantized(tiny("llama"), "Q4_0")));
    models.push(("a window of 5".into(), windowed(5)));
    models.extend(DECODERS.iter().chain(&RECURRENT).map(|family| ((*family).into(), decoder(family))));
    models.extend(ENCODERS.iter().map(|kind| ((*kind).into(), encoder(kind))));
    models.extend(all_peers().map(|(family, file)| (family.into(), file)));
    models
}

/// Size of the workspace, and of the cache by element type. The numbers are fixed, so that the test finds a
/// changed size on any target. Tests that run models check that a run needs no more.
const SIZES: &[(&str, usize, [usize; 3])] = &[
    ("llama", 13952, [36864, 18432, 10368]),
    ("qwen2", 13888, [36864, 18432, 10368]),
    ("qwen3", 14016, [36864, 18432, 10368]),
    ("gpt2", 12480, [36864, 18432, 10368]),
    ("llama Q8_0", 17984, [36864, 18432, 10368]),
    ("llama Q4_0", 17984, [36864, 18432, 10368]),
    ("a window of 5", 13888, [12288, 6144, 3456]),
    ("gemma", 14016, [73728, 36864, 20736]),
    ("gemma2", 14720, [61440, 30720, 17280]),
    ("gemma3", 14848, [55296, 27648, 15552]),
    ("gemma4", 21632, [61440, 30720, 16704]),
    ("phi3", 13888, [73728, 36864, 20736]),
    ("stablelm", 14208, [73728, 36864, 20736]),
    ("smollm3", 14592, [73728, 36864, 20736]),
    ("olmo2", 14144, [73728, 36864, 20736]),
    ("granite", 14528, [73728, 36864, 20736]),
    ("mixtral", 16320, [73728, 36864, 20736]),
    ("qwen3moe", 16448, [73728, 36864, 20736]),
    ("exaone4", 14208, [55296, 27648, 15552]),
    ("gpt-oss", 17216, [61440, 30720, 17280]),
    ("hunyuan-dense", 14144, [73728, 36864, 20736]),
    ("mistral3", 14016, [73728, 36864, 20736]),
    ("deepseek2", 23104, [32256, 16128, 9216]),
    ("plm", 14976, [138240, 69120, 39168]),
    ("gemma3n", 20160, [30720, 15360, 8640]),
    ("command-r", 15488, [73728, 36864, 20736]),
    ("gptneox", 14272, [73728, 36864, 20736]),
    ("mpt", 13120, [73728, 36864, 20736]),
    ("olmo", 14336, [73728, 36864, 20736]),
    ("bitnet", 14656, [73728, 36864, 20736]),
    ("apertus", 13632, [73728, 36864, 20736]),
    ("glm4", 14528, [73728, 36864, 20736]),
    ("afmoe", 20992, [55296, 27648, 15552]),
    ("llama4", 16704, [73728, 36864, 20736]),
    ("phimoe", 16576, [73728, 36864, 20736]),
    ("smallthinker", 17344, [55296, 27648, 15552]),
    ("gemma4_moe", 19776, [55296, 27648, 15552]),
    ("dots1", 20352, [73728, 36864, 20736]),
    ("lfm2", 14400, [43776, 25344, 17280]),
    ("qwen35", 15680, [86400, 67968, 59904]),
    ("mamba2", 11520, [99072, 99072, 99072]),
    ("falcon-h1", 15040, [172800, 135936, 119808]),
    ("lfm2moe", 16704, [43776, 25344, 17280]),
    ("qwen35moe", 20672, [86400, 67968, 59904]),
    ("qwen3next", 20608, [86400, 67968, 59904]),
    ("granitehybrid", 20416, [86400, 67968, 59904]),
    ("nemotron_h_moe", 20032, [43200, 33984, 29952]),
    ("mamba", 12224, [92160, 92160, 92160]),
    ("jamba", 16576, [87552, 78336, 74304]),
    ("plamo2", 18496, [87552, 78336, 74304]),
    ("rwkv7", 17920, [82944, 82944, 82944]),
    ("rwkv6", 17472, [82944, 82944, 82944]),
    ("bert", 13952, [32768, 16384, 9216]),
    ("mpnet", 14784, [32768, 16384, 9216]),
    ("gemma-embedding", 14912, [32768, 16384, 9216]),
    ("t5", 21504, [208896, 104448, 58752]),
    ("t5_gated", 21568, [208896, 104448, 58752]),
    ("unbiased", 21056, [208896, 104448, 58752]),
    ("post", 21056, [208896, 104448, 58752]),
    ("internlm2", 14336, [110592, 55296, 32256]),
    ("xverse", 14336, [110592, 55296, 32256]),
    ("orion", 14464, [110592, 55296, 32256]),
    ("minicpm", 14336, [110592, 55296, 32256]),
    ("codeshell", 13184, [110592, 55296, 32256]),
    ("qwen", 13888, [221184, 110592, 64512]),
    ("maincoder", 14464, [110592, 55296, 32256]),
    ("chatglm", 13824, [110592, 55296, 32256]),
    ("deepseek", 14976, [110592, 55296, 32256]),
    ("bailingmoe", 14592, [110592, 55296, 32256]),
    ("bailingmoe2", 14784, [110592, 55296, 32256]),
    ("plm", 18560, [258048, 129024, 73728]),
    ("plamo", 15168, [110592, 55296, 32256]),
    ("refact", 14592, [221184, 110592, 64512]),
    ("jais", 14528, [221184, 110592, 64512]),
    ("openelm", 14208, [96768, 48384, 28224]),
    ("plamo3", 14592, [92160, 46080, 26880]),
    ("spark2_5", 14656, [82944, 41472, 24192]),
    ("maple", 14592, [82944, 41472, 24192]),
    ("step35", 15488, [82944, 41472, 24192]),
    ("mimo2", 15296, [80640, 40320, 23040]),
    ("hy_v3", 15168, [110592, 55296, 32256]),
    ("granite_swa", 14784, [92160, 46080, 26880]),
    ("cohere2moe", 15936, [92160, 46080, 26880]),
    ("laguna", 15488, [82944, 41472, 24192]),
    ("muse-glimmer", 14720, [82944, 41472, 24192]),
    ("deepseek2-ocr", 14784, [221184, 110592, 64512]),
    ("nanbeige", 14336, [221184, 110592, 64512]),
    ("deci", 14336, [27648, 13824, 8064]),
    ("talkie", 16320, [110592, 55296, 32256]),
    ("hrm_text", 15168, [331776, 165888, 96768]),
    ("arwkv7", 47552, [1198080, 1198080, 1198080]),
    ("rwkv6qwen2", 17088, [78336, 78336, 78336]),
    ("grovemoe", 14784, [110592, 55296, 32256]),
    ("arctic", 15744, [110592, 55296, 32256]),
    ("kimi-linear", 22080, [97920, 92160, 89600]),
    ("bailingmoe3", 22144, [97920, 92160, 89600]),
    ("cogvlm", 13888, [221184, 110592, 64512]),
];

#[test]
fn the_numbers_of_every_kind_of_model() {
    let options =
        Options::new().context(50).batch(7).workers(3).contexts(3).pages(9).logits(5).sources(2).checkpoints(2);
    let found: Vec<(String, usize, [usize; 3])> = models()
        .into_iter()
        .map(|(name, file)| {
            let plans = [KvType::F32, KvType::F16, KvType::Q8_0].map(|kv| plan(&file, options.kv(kv)).unwrap());
            assert!(plans.iter().all(|plan| plan.workspace == plans[0].workspace));
            (name, plans[0].workspace, plans.map(|plan| plan.kv))
        })
        .collect();
    let same = found.iter().map(|(name, workspace, kv)| (name.as_str(), *workspace, *kv)).eq(SIZES.iter().copied());
    assert!(same, "{}", found.iter().map(|row| format!("    {row:?},\n")).collect::<String>());
}

/// Size of one more worker's scratch: sums of attention (16 floats for each row of each of two heads, at most 8), and
/// one panel.
#[test]
fn panels_are_for_several_tokens_and_as_wide_as_what_is_multiplied() {
    let scratch = |file: &Builder, batch: usize| {
        let options = Options::new().batch(batch);
        let workspace = |workers: usize| plan(file, options.workers(workers)).unwrap().workspace;
        assert_eq!(workspace(4) - workspace(3), workspace(3) - workspace(2));
        workspace(4) - workspace(3)
    };
    let (plain, whole) = (tiny("llama"), quantized(tiny("llama"), "Q8_0"));
    assert_eq!([1, 2, 16].map(|batch| scratch(&plain, batch)), [2 * 64, 4 * 64, 8 * 64]);
    // 16 rows of two blocks, of 32 bytes and a scale each. A single token needs no panel.
    let panel = 16 * 2 * (32 + 4);
    assert_eq!([1, 2, 16].map(|batch| scratch(&whole, batch)), [2 * 64, 4 * 64 + panel, 8 * 64 + panel]);
    // The panel has rows of one block if the only matrix in blocks is narrow.
    let name = b"blk.0.attn_q.weight";
    let tensor = |file: &Builder| file.tensors.iter().find(|tensor| tensor.name == name).unwrap().clone();
    let mut narrow = plain.clone();
    *narrow.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap() = tensor(&whole);
    assert_eq!(scratch(&narrow, 2), 4 * 64 + panel / 2);
    // This tensor is wide, but no layer multiplies it, so it does not count.
    let mut others = tensor(&whole);
    (others.name, others.dims) = (b"wide".to_vec(), vec![128, 8]);
    narrow.tensors.push(others);
    assert_eq!(scratch(&narrow, 2), 4 * 64 + panel / 2);
}

/// Size of 16 positions of one head of 16 and of 8 elements, as f16: keys, and values in rows of 16.
const TILES: [usize; 2] = [16 * 2 * (16 + 16), 16 * 2 * (8 + 16)];

#[test]
fn a_window_and_a_batch_end_where_a_page_does() {
    let kv = |batch| plan(&windowed(16), Options::new().context(64).batch(batch)).unwrap().kv;
    // Two layers of one head. The first token of a batch attends to 15 positions before the batch: 15 + 17 positions
    // are two pages, 15 + 18 are three.
    assert_eq!([1, 2, 17, 18].map(kv), [1, 2, 2, 3].map(|pages| 2 * pages * TILES[0]));
}

#[test]
fn an_encoder_with_other_heads_has_pages_of_its_own() {
    // Heads and KV heads of the encoder, heads of the decoder.
    let kv = |heads: [u32; 3]| {
        let mut file = encoder("post");
        for (key, heads) in ["head_count", "head_count_kv", "decoder_head_count"].iter().zip(heads) {
            file.set(&format!("seq2seq.attention.{key}"), heads);
        }
        plan(&file, Options::new().context(16)).unwrap().kv
    };
    // The decoder has three layers, each with its own keys and values and those of the text.
    let decoder = 3 * 2 * 2 * TILES[0];
    assert_eq!(kv([2, 2, 2]), decoder);
    assert_eq!(kv([2, 1, 2]), decoder + TILES[0]); // fewer KV heads
    assert_eq!(kv([4, 2, 2]), decoder + 2 * TILES[1]); // the same number, smaller
    assert_eq!(kv([4, 4, 2]), decoder + 4 * TILES[1]); // more, smaller
}

#[test]
fn a_number_for_each_layer_or_one_for_all() {
    for heads in [1u32, 2] {
        let [one, each] = [heads.into(), Meta::array([heads; 2])].map(|value| {
            let mut file = tiny("llama");
            file.set("llama.attention.head_count_kv", value);
            plan(&file, Options::new().batch(1)).unwrap()
        });
        assert_eq!((one.workspace, one.kv), (each.workspace, each.kv));
    }
}

#[test]
fn what_options_become() {
    let llama = tiny("llama");
    let resolved = |options: Options| plan(&llama, options.context(24)).unwrap().options;
    let batch = |batch, contexts| resolved(Options::new().batch(batch).contexts(contexts)).batch;
    // A batch has at least one token per context, and at most as many tokens as all contexts hold.
    let cases = [(0, 1, 1), (1, 1, 1), (23, 1, 23), (24, 1, 24), (25, 1, 24), (1, 3, 3), (72, 3, 72), (73, 3, 72)];
    for (asked, contexts, given) in cases {
        assert_eq!(batch(asked, contexts), given, "{asked} for {contexts} contexts");
    }
    let pages = |pages| resolved(Options::new().pages(pages).contexts(3)).pages;
    assert_eq!([0, 1, 5, 6, 7].map(pages), [6, 1, 5, 6, 6]);
    let sources = |sources| resolved(Options::new().sources(sources).contexts(3)).sources;
    assert_eq!([0, 1, 3, 4].map(sources), [1, 1, 3, 3]);
    let logits = |logits| resolved(Options::new().logits(logits).contexts(3)).logits;
    assert_eq!([0, 1, 7].map(logits), [3, 1, 7]);
    let few = resolved(Options::new().workers(0).contexts(0));
    assert_eq!((few.workers, few.contexts), (1, 1));
    assert_eq!([0, 1, 2, 5].map(|beams| Options::new().beams(beams).contexts), [2, 2, 3, 6]);
    // A context longer than the trained one is allowed, except for a model with learned positions.
    let context = |family, context| plan(&tiny(family), Options::new().context(context)).unwrap().options.context;
    assert_eq!([0, 63, 65].map(|asked| context("llama", asked)), [64, 63, 65]);
    assert_eq!([0, 63, 65].map(|asked| context("gpt2", asked)), [64, 63, 64]);
}

#[test]
fn the_most_that_can_be_asked_for() {
    let llama = tiny("llama");
    let long = i32::MAX as usize;
    for (most, more) in [
        (Options::new().workers(1 << 16), Options::new().workers((1 << 16) + 1)),
        (Options::new().contexts(1 << 12), Options::new().contexts((1 << 12) + 1)),
        (Options::new().checkpoints(1 << 12), Options::new().checkpoints((1 << 12) + 1)),
        (Options::new().pages(1 << 30), Options::new().pages((1 << 30) + 1)),
        (Options::new().context(long), Options::new().context(long + 1)),
        // 2^30 pages in total.
        (Options::new().context(long).contexts(8), Options::new().context(long).contexts(9)),
    ] {
        // 32-bit targets cannot hold so many bytes.
        if cfg!(target_pointer_width = "64") {
            assert!(plan(&llama, most).is_ok(), "{most:?}");
        }
        assert_eq!(plan(&llama, more), Err(Error::PlanTooLarge), "{more:?}");
    }
}

#[test]
fn a_budget_is_kept_to_the_byte() {
    let plan = plan(&tiny("llama"), Options::new().context(33)).unwrap();
    let all = plan.workspace + plan.kv + plan.tokenizer;
    assert!(plan.workspace > 0 && plan.kv > 0 && plan.tokenizer > 0);
    assert_eq!(plan.within(all), plan);
    let panic = std::panic::catch_unwind(|| plan.within(all - 1)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains(&format!("{all} bytes of RAM, more than the budget of {}", all - 1)), "{text}");
}

/// A plan fits only its own model: another model with the same planned sizes, and tensors of the same names and shapes,
/// is refused.
#[test]
fn a_plan_is_its_models() {
    let session = |model: &Builder, plan: Plan| {
        let bytes = model.build();
        let gguf = Gguf::parse(&bytes).unwrap();
        let model = Model::new(&gguf).unwrap();
        let memory = |bytes: usize| vec![Line::ZERO; bytes.div_ceil(ALIGN)];
        let (mut workspace, mut kv) = (memory(plan.workspace), memory(plan.kv));
        Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv)).map(|_| ())
    };
    // Every third or every second layer attends to all positions. In a context no longer than the window, both cost
    // the same.
    let models = [3u32, 2].map(|pattern| {
        let mut file = decoder("gemma3");
        file.set("gemma3.attention.sliding_window_pattern", pattern);
        file
    });
    let plans = models.each_ref().map(|model| plan(model, Options::new().context(16)).unwrap());
    let sizes = |plan: Plan| (plan.workspace, plan.kv, plan.tokenizer, plan.options);
    assert_eq!(sizes(plans[0]), sizes(plans[1]));
    for (i, model) in models.iter().enumerate() {
        assert_eq!(session(model, plans[i]), Ok(()));
        assert_eq!(session(model, plans[1 - i]), Err(Error::PlanMismatch));
    }
}
