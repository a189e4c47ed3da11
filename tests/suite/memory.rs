//! The plan's promise: the planned bytes suffice, whatever they hold, and no byte after them changes.

use crate::common::families::{self, DECODERS, RECURRENT, decoder};
use crate::common::fixture::Case;
use crate::common::fixtures;
use crate::common::gguf::Builder;
use crate::common::peers::all_peers;
use crate::common::run::Run;
use crate::common::variants::{FAMILIES, one_layer, quantized, tiny, wide, windowed, with_heads_of};
use crate::common::workers::Scoped;
use arenite::memory::{ALIGN, Aligned};
use arenite::{Error, Gguf, KvType, Line, Model, Options, Plan, Session, Workspace};

/// Value of the bytes after the planned ones.
const POISON: u8 = 0xA5;
/// Number of poisoned bytes after the planned ones.
const BEYOND: usize = 4096;

/// Aligned memory of `bytes` bytes filled with `fill`, followed by poison.
struct Memory {
    lines: Vec<Line>,
    bytes: usize,
}

impl Memory {
    fn new(bytes: usize, fill: u8) -> Self {
        let mut lines = vec![Line::ZERO; (bytes + BEYOND).div_ceil(ALIGN)];
        let all = Line::bytes_mut(&mut lines);
        all.fill(POISON);
        all[..bytes].fill(fill);
        Self { lines, bytes }
    }

    /// Exactly the planned bytes.
    fn exact(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        &mut self.all()[..bytes]
    }

    fn all(&mut self) -> &mut [u8] {
        Line::bytes_mut(&mut self.lines)
    }

    fn is_poisoned_beyond(&mut self) -> bool {
        let bytes = self.bytes;
        self.all()[bytes..].iter().all(|&byte| byte == POISON)
    }
}

/// Names and models to test.
fn models() -> Vec<(String, Builder)> {
    let mut models: Vec<_> = FAMILIES.iter().map(|family| (String::from(*family), tiny(family))).collect();
    for kind in ["Q8_0", "Q4_0"] {
        models.push((kind.into(), quantized(tiny("llama"), kind)));
    }
    models.push(("a window of 5".into(), windowed(5)));
    models.push(("heads of 18".into(), with_heads_of(18)));
    models.push(("heads of 6, one layer".into(), one_layer(with_heads_of(6))));
    models.push(("wide".into(), wide()));
    models.extend(DECODERS.iter().chain(&RECURRENT).map(|family| ((*family).into(), decoder(family))));
    models.extend(all_peers().map(|(family, file)| (family.into(), file)));
    models
}

/// Options with three KV types, with and without batches, and with one worker or three.
fn options() -> impl Iterator<Item = Options> {
    let kv = [KvType::F32, KvType::F16, KvType::Q8_0];
    kv.into_iter().flat_map(|kv| {
        [1, 7].into_iter().flat_map(move |batch| {
            [1, 3].into_iter().map(move |workers| Options::new().context(24).batch(batch).kv(kv).workers(workers))
        })
    })
}

/// The bits of the logits after a prompt in batches and some single tokens.
fn run(model: &Model<'_>, plan: Plan, workspace: &mut [u8], kv: &mut [u8]) -> Vec<u32> {
    let workers = Scoped(plan.options.workers);
    let mut session = Session::new(model, plan, workspace, kv).unwrap().with_workers(&workers);
    let prompt: Vec<u32> = (0..19).map(|i| i * 7 % 280).collect();
    session.prefill(&prompt).unwrap();
    let mut bits: Vec<u32> = session.logits().iter().map(|x| x.to_bits()).collect();
    for token in [5, 6] {
        session.decode(token).unwrap();
        bits.extend(session.logits().iter().map(|x| x.to_bits()));
    }
    assert!(bits.iter().all(|&bits| f32::from_bits(bits).is_finite()));
    bits
}

#[test]
fn exactly_the_planned_bytes_whatever_they_hold() {
    for (name, file) in models() {
        let bytes = file.build();
        let gguf = Gguf::parse(&bytes).unwrap();
        let model = Model::new(&gguf).unwrap();
        for options in options() {
            let plan = Plan::new(&gguf, options).unwrap();
            let memory = |fill| (Memory::new(plan.workspace, fill), Memory::new(plan.kv, fill));
            let (mut workspace, mut kv) = memory(0);
            let want = run(&model, plan, workspace.exact(), kv.exact());
            // 0xFF everywhere: NaN as f32 and f16, -1 as a byte or an offset.
            let (mut workspace, mut kv) = memory(0xFF);
            assert!(run(&model, plan, workspace.exact(), kv.exact()) == want, "{name} {options:?}");
            // A larger slice than planned: the rest must not change.
            let (mut workspace, mut kv) = memory(0x7F);
            assert!(run(&model, plan, workspace.all(), kv.all()) == want, "{name} {options:?}");
            assert!(workspace.is_poisoned_beyond() && kv.is_poisoned_beyond(), "{name} {options:?}");
        }
    }
}

#[test]
fn one_byte_less() {
    for (name, file) in models() {
        let bytes = file.build();
        let gguf = Gguf::parse(&bytes).unwrap();
        let model = Model::new(&gguf).unwrap();
        for options in options() {
            let plan = Plan::new(&gguf, options).unwrap();
            let (mut workspace, mut kv) = (Memory::new(plan.workspace, 0), Memory::new(plan.kv, 0));
            for given in [0, 1, plan.workspace / 2, plan.workspace - 1] {
                let error = Session::new(&model, plan, &mut workspace.exact()[..given], kv.exact()).unwrap_err();
                assert_eq!(error, Error::WorkspaceTooSmall { needed: plan.workspace, given }, "{name}");
            }
            for given in [0, 1, plan.kv / 2, plan.kv - 1] {
                let error = Session::new(&model, plan, workspace.exact(), &mut kv.exact()[..given]).unwrap_err();
                assert_eq!(error, Error::KvTooSmall { needed: plan.kv, given }, "{name}");
            }
        }
    }
}

/// Static memory is aligned, zeroed, and handed out once.
#[test]
fn memory_that_is_handed_out_once() {
    for _ in 0..3 {
        let memory: &'static Workspace<200> = Box::leak(Box::new(Workspace::new()));
        let bytes = memory.take().unwrap();
        assert!(bytes.as_ptr().addr().is_multiple_of(64) && *bytes == [0; 200]);
        assert_eq!(memory.take().unwrap_err(), Error::WorkspaceTaken);
        bytes.fill(1);
    }
    for size in 1..4 {
        let aligned: Vec<_> = (0..size).map(|i| Aligned::new([i; 5])).collect();
        for (i, one) in (0..).zip(&aligned) {
            assert!(one.get().as_ptr().addr().is_multiple_of(64) && *one.get() == [i; 5]);
        }
    }
}

/// A model with an unsupported tokenizer still runs with token ids.
#[test]
fn a_model_without_a_tokenizer() {
    let plan = |file: &Builder| Plan::new(&Gguf::parse(&file.build()).unwrap(), Options::default()).unwrap();
    let (known, mut file) = (plan(&tiny("llama")), tiny("llama"));
    file.set("tokenizer.ggml.model", "no such");
    let unknown = plan(&file);
    assert!(known.tokenizer > 0 && unknown.tokenizer == 0);
    assert_eq!((unknown.workspace, unknown.kv), (known.workspace, known.kv));
}

/// In Mamba 2, earlier tokens affect the logits only through the recurrent states.
#[test]
fn a_state_tells_what_came_before() {
    let file = decoder("mamba2").build();
    let last = |ids: &[u32]| Run::new(&file, |options| options.context = 16).all(ids).pop().unwrap();
    assert_eq!(last(&[5, 7, 9]), last(&[5, 7, 9]));
    assert_ne!(last(&[5, 7, 9]), last(&[6, 7, 9]));
}

#[test]
fn memory_off_its_boundary() {
    let bytes = tiny("llama").build();
    let gguf = Gguf::parse(&bytes).unwrap();
    let model = Model::new(&gguf).unwrap();
    let plan = Plan::new(&gguf, Options::new().context(40)).unwrap();
    let (mut workspace, mut kv) = (Memory::new(plan.workspace, 0), Memory::new(plan.kv, 0));
    for off in [1, 4, 16, 32, 63] {
        let error = Session::new(&model, plan, &mut workspace.all()[off..], kv.exact()).unwrap_err();
        assert_eq!(error, Error::Misaligned { align: ALIGN });
        let error = Session::new(&model, plan, workspace.exact(), &mut kv.all()[off..]).unwrap_err();
        assert_eq!(error, Error::Misaligned { align: ALIGN });
    }
    assert!(Session::new(&model, plan, &mut workspace.all()[ALIGN..], &mut kv.all()[ALIGN..]).is_ok());
}

#[test]
fn a_file_of_any_alignment() {
    let file = quantized(tiny("llama"), "Q8_0").build();
    let run_at = |offset: usize| {
        let mut shifted = vec![0; offset];
        shifted.extend_from_slice(&file);
        let gguf = Gguf::parse(&shifted[offset..]).unwrap();
        let model = Model::new(&gguf).unwrap();
        let plan = Plan::new(&gguf, Options::new().context(40)).unwrap();
        run(&model, plan, Memory::new(plan.workspace, 0).exact(), Memory::new(plan.kv, 0).exact())
    };
    let want = run_at(0);
    for offset in [1, 2, 3, 5, 31] {
        assert!(run_at(offset) == want, "{offset}");
    }
}

#[test]
fn a_plan_of_another_model() {
    let (one, other) = (tiny("llama").build(), tiny("qwen3").build());
    let (one, other) = (Gguf::parse(&one).unwrap(), Gguf::parse(&other).unwrap());
    let mut plan = Plan::new(&one, Options::new().context(33).batch(5)).unwrap();
    let mut memory = Memory::new(1 << 20, 0);
    let mut kv = Memory::new(1 << 20, 0);
    assert!(Session::new(&Model::new(&one).unwrap(), plan, memory.exact(), kv.exact()).is_ok());
    // The other model has the same shapes, and two more tensors per layer.
    let error = Session::new(&Model::new(&other).unwrap(), plan, memory.exact(), kv.exact()).unwrap_err();
    assert_eq!(error, Error::PlanMismatch);
    let wider = with_heads_of(18).build();
    let model = Model::new(&Gguf::parse(&wider).unwrap()).unwrap();
    let error = Session::new(&model, plan, memory.exact(), kv.exact()).unwrap_err();
    assert_eq!(error, Error::PlanMismatch);
    plan.workspace -= ALIGN;
    let error = Session::new(&Model::new(&one).unwrap(), plan, memory.exact(), kv.exact()).unwrap_err();
    assert_eq!(error, Error::PlanMismatch);
}

/// A step of the hash in a plan, as someone who forges one would write it.
fn step(hash: u64, word: usize) -> u64 {
    let product = (hash ^ word as u64).wrapping_mul(0x100_0000_01b3);
    product ^ product >> 32
}

/// A plan whose public numbers were changed is refused, also if another number is changed so that a hash over them, in the
/// order of the fields and from the usual start, would be the same.
#[test]
fn a_forged_plan_is_refused() {
    type Change = fn(&mut Plan, usize);
    const CHANGES: [Change; 9] = [
        |plan, by| plan.workspace = plan.workspace.wrapping_add(by),
        |plan, by| plan.kv = plan.kv.wrapping_add(by),
        |plan, by| plan.tokenizer = plan.tokenizer.wrapping_add(by),
        |plan, by| plan.options.context = plan.options.context.wrapping_add(by),
        |plan, by| plan.options.batch = plan.options.batch.wrapping_add(by),
        |plan, by| plan.options.workers = plan.options.workers.wrapping_add(by),
        |plan, by| plan.options.contexts = plan.options.contexts.wrapping_add(by),
        |plan, by| plan.options.pages = plan.options.pages.wrapping_add(by),
        |plan, by| plan.options.checkpoints = plan.options.checkpoints.wrapping_add(by),
    ];
    let file = tiny("llama").build();
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let good = Plan::new(&gguf, Options::new().context(33).batch(5)).unwrap();
    let mut memory = [Memory::new(1 << 20, 0), Memory::new(1 << 20, 0)];
    let [workspace, kv] = memory.each_mut();
    let mut refused = |plan: Plan, what: &str| {
        let made = Session::new(&model, plan, workspace.exact(), kv.exact()).map(|_| ());
        assert_eq!(made, Err(Error::PlanMismatch), "{what}");
    };
    for (at, change) in CHANGES.iter().enumerate() {
        for by in [1, ALIGN, 0usize.wrapping_sub(ALIGN), usize::MAX / 2] {
            let mut plan = good;
            change(&mut plan, by);
            refused(plan, &format!("number {at} plus {by}"));
            for other in &CHANGES[at + 1..] {
                for by in [by, 0usize.wrapping_sub(by)] {
                    let mut plan = plan;
                    other(&mut plan, by);
                    refused(plan, &format!("number {at}, and another one, plus {by}"));
                }
            }
        }
    }
    let before = |plan: &Plan| step(step(0xcbf2_9ce4_8422_2325, plan.workspace), plan.kv);
    for by in [0usize.wrapping_sub(good.kv), 0usize.wrapping_sub(ALIGN), ALIGN] {
        let mut plan = good;
        plan.kv = plan.kv.wrapping_add(by);
        plan.tokenizer ^= (before(&good) ^ before(&plan)) as usize;
        refused(plan, &format!("a cache plus {by}, made good by the tokenizer"));
    }
}

/// Size of an f16 cache for `positions`: keys, and values in rows of a multiple of 16.
fn f16_bytes(kv_heads: usize, head_dim: usize, positions: usize) -> usize {
    kv_heads * positions.next_multiple_of(16) * 2 * (head_dim + head_dim.next_multiple_of(16))
}

#[test]
fn keys_and_values_of_owning_layers_only_and_local_ones_by_window() {
    const CONTEXT: usize = 8192;
    const BATCH: usize = 64;
    let options = Options::new().context(CONTEXT).batch(BATCH);
    let planned = |file: &[u8]| Plan::new(&Gguf::parse(file).unwrap(), options).unwrap().kv;

    let positions = |local, window: u64| if local { window as usize + BATCH - 1 } else { CONTEXT };
    let owning = families::GEMMA4.iter().filter(|(.., owns)| *owns);
    let want = owning.map(|&(local, head_dim, kv_heads, _)| {
        f16_bytes(kv_heads as usize, head_dim as usize, positions(local, families::WINDOW))
    });
    assert_eq!(planned(&decoder("gemma4").build()), want.sum::<usize>());

    // Layer types and sizes from the configuration of the original model.
    for name in ["gemma4_e2b", "gemma4_dense"] {
        let Some(case) = Case::find(name, "model.gguf") else { continue };
        let config = &case.json()["hf_config"];
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let layers = config["layer_types"].as_array().unwrap();
        let owning = layers.len() - number(&config["num_kv_shared_layers"]) as usize;
        let want = layers.iter().take(owning).enumerate().map(|(layer, kind)| {
            let local = kind == "sliding_attention";
            let size = |key: &str| {
                let own = &config["per_layer_config"][layer.to_string()][key];
                number(if own.is_null() { &config[key] } else { own }) as usize
            };
            let positions = positions(local, number(&config["sliding_window"]));
            f16_bytes(size("num_key_value_heads"), size("head_dim"), positions)
        });
        assert_eq!(planned(&case.file("model.gguf")), want.sum::<usize>(), "{name}");
    }
}

// --- planning at compile time --------------------------------------------------------------------

static STORY: &[u8] = include_bytes!("../fixtures/llama_mha/F16.gguf");
const PLAN: Plan = Plan::of(STORY, Options::new().context(64).batch(8));
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();

#[test]
fn a_plan_that_the_compiler_made() {
    let gguf = Gguf::parse(STORY).unwrap();
    assert_eq!(Plan::new(&gguf, Options::new().context(64).batch(8)), Ok(PLAN));
    let model = Model::new(&gguf).unwrap();
    let mut session = Session::new(&model, PLAN, WORKSPACE.take().unwrap(), KV.take().unwrap()).unwrap();
    session.prefill(&[1, 2, 3]).unwrap();
    assert!(session.logits().iter().all(|logit| logit.is_finite()));
}

/// At compile time an error is a panic with the same message.
#[test]
fn a_plan_that_the_compiler_refuses() {
    let panic = |plan: &(dyn Fn() -> Plan + std::panic::RefUnwindSafe)| {
        let panic = std::panic::catch_unwind(plan).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    };
    let error = Plan::try_of(b"no model", Options::new()).unwrap_err();
    assert_eq!(panic(&|| Plan::of(b"no model", Options::new())), error.to_string());
    let bytes = PLAN.workspace + PLAN.kv + PLAN.tokenizer;
    assert_eq!(PLAN.within(bytes), PLAN);
    let budget = bytes - 1;
    let message = format!(
        "the model needs {bytes} bytes of RAM, more than the budget of {budget}: plan a smaller context or batch"
    );
    assert_eq!(panic(&|| PLAN.within(budget)), message);
}

#[test]
fn the_numbers_are_the_same_on_every_target() {
    // The numbers are fixed, so that the test fails on a target with other sizes. They must be updated when the
    // workspace's contents change.
    let file = std::fs::read(fixtures::committed().join("qwen3/model.gguf")).unwrap();
    let gguf = Gguf::parse(&file).unwrap();
    let bytes = |kv, batch, workers| {
        let plan = Plan::new(&gguf, Options::new().context(128).batch(batch).kv(kv).workers(workers)).unwrap();
        (plan.workspace, plan.kv)
    };
    let found = [bytes(KvType::F32, 1, 1), bytes(KvType::F16, 16, 1), bytes(KvType::Q8_0, 64, 2)];
    assert_eq!(found, [(5504, 131072), (39808, 65536), (148352, 34816)]);
}
