//! All kernel tables give the same bits, on every machine, for every batch and any number of workers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::encoders::encoder;
use crate::common::families::decoder;
use crate::common::fixtures::{committed, external, read};
use crate::common::peers::all_peers;
use crate::common::run::Run;
use crate::common::variants::{quantized, tiny};
use crate::common::workers::Scoped;
use arenite::{Error, Gguf, Kernels, KvType, Model, Options, Plan};

/// Tokens of the prompt, and tokens decoded after it.
const PROMPT: usize = 90;
const DECODED: usize = 3;

/// Settings with which a prompt is run.
#[derive(Clone, Copy, Debug)]
struct Way {
    kernels: &'static Kernels,
    kv: KvType,
    batch: usize,
    workers: usize,
}

impl Way {
    /// A hash (FNV-1a) of the logits after the prompt and after each decoded token.
    fn run(self, file: &[u8]) -> u64 {
        let Self { kernels, kv, batch, workers } = self;
        let mut run =
            Run::new(file, |options| *options = Options::new().context(128).batch(batch).kv(kv).workers(workers));
        run.kernels = kernels;
        let threads = Scoped(workers);
        let mut session = run.session();
        if workers > 1 {
            session = session.with_workers(&threads);
        }
        let mut hash = 0xcbf2_9ce4_8422_2325;
        let mut add = |logits: &[f32]| {
            assert!(logits.iter().all(|x| x.is_finite()));
            for byte in logits.iter().flat_map(|x| x.to_bits().to_le_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        let ids: Vec<u32> = (0..(PROMPT + DECODED) as u32).map(|i| (i * i * 31 + 17 * i + 1) % 200).collect();
        // The encoder, if there is one, runs the prompt first. Without a decoder its states are the result.
        match session.encode(&ids[..60]) {
            Ok(()) => add(session.states()),
            Err(Error::NoPart { part: "encoder of text" }) => return hash, // the tests of speech run these
            Err(error) => assert_eq!(error, Error::NoPart { part: "encoder" }),
        }
        if session.prefill(&ids[..PROMPT]) == Err(Error::NoPart { part: "decoder" }) {
            return hash;
        }
        add(session.logits());
        for &id in &ids[PROMPT..] {
            session.decode(id).unwrap();
            add(session.logits());
        }
        hash
    }
}

fn scalar() -> &'static Kernels {
    Kernels::by_name("scalar").unwrap()
}

/// The fixtures' GGUF files, except those with only a vocabulary or an adapter.
fn files() -> Vec<PathBuf> {
    let list = |path: &Path| -> Vec<PathBuf> {
        let entries = path.read_dir().into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let directories = [Some(committed()), external()].into_iter().flatten().flat_map(|root| list(&root));
    let models = directories.filter(|path| !path.ends_with("tokenizers") && !path.ends_with("lora"));
    let files = models.flat_map(|directory| list(&directory));
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "gguf")).collect();
    files.sort();
    files
}

#[test]
fn every_fixture_every_way() {
    Kernels::request_amx();
    println!("{:?}", Kernels::available().map(|kernels| kernels.name).collect::<Vec<_>>());
    let files = files();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| every_way(&files, &next));
        }
    });
}

/// The tiny models of families without a fixture, with several kernels, batches and numbers of workers. Emulated
/// processors skip this test, because they run the same models in `built`.
#[test]
fn every_family_without_a_fixture() {
    for (name, file) in all_peers() {
        let file = quantized(file, "Q8_0").build();
        let want = Way { kernels: scalar(), kv: KvType::F16, batch: 16, workers: 1 }.run(&file);
        for kernels in Kernels::available() {
            for (batch, workers) in [(1, 1), (7, 2)] {
                let way = Way { kernels, kv: KvType::F16, batch, workers };
                assert_eq!(way.run(&file), want, "{name} {way:?}");
            }
        }
    }
}

/// Takes files until none is left. Files of the repository run in every way, others in those that differ most, with the
/// scalar kernels only once. On an emulated processor, for which `ARENITE_SCHEDULES` is set, each file runs in few ways,
/// which differ from file to file.
fn every_way(files: &[PathBuf], next: &AtomicUsize) {
    let committed = committed();
    let is_emulated = std::env::var_os("ARENITE_SCHEDULES").is_some();
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(path) = files.get(at) else { return };
        let all = path.starts_with(&committed);
        let file = read(path);
        let gguf = Gguf::parse(&file).unwrap();
        if let Err(error) = Model::new(&gguf).and_then(|_| Plan::new(&gguf, Options::DEFAULT)) {
            println!("SKIP {}: {error}", path.display()); // a build with fewer features
            continue;
        }
        let types = [KvType::Q8_0Q4_0, KvType::F32, KvType::Q8_0, KvType::Q4_0];
        for kv in [KvType::F16].into_iter().chain(types) {
            if !all && !matches!(kv, KvType::F16 | KvType::Q8_0Q4_0)
                || is_emulated && kv != KvType::F16 && kv != types[at % types.len()]
            {
                continue;
            }
            let want = Way { kernels: scalar(), kv, batch: 16, workers: 1 }.run(&file);
            for kernels in Kernels::available().filter(|kernels| kernels.name != "scalar" || all && !is_emulated) {
                let ways = [(1, 1), (1, 2), (7, 1), (7, 2), (64, 1), (64, 2), (512, 1), (512, 2)];
                for (i, (batch, workers)) in ways.into_iter().enumerate() {
                    if kv != KvType::F16 && batch != 7 || !all && (workers == 1) != (batch == 512) {
                        continue;
                    }
                    // An emulated machine runs a file in two ways with F16, and in one with another type. The ways
                    // differ from file to file.
                    let few = if kv == KvType::F16 { [at % 4, 4 + at / 4 % 4] } else { [2 + at % 2; 2] };
                    if is_emulated && !few.contains(&i) {
                        continue;
                    }
                    let way = Way { kernels, kv, batch, workers };
                    assert_eq!(way.run(&file), want, "{} {way:?}", path.display());
                }
            }
        }
    }
}

/// The bits that every target must give, computed by the scalar kernels on x86-64.
///
/// They change when the arithmetic of all kernels is changed on purpose.
#[test]
fn the_bits_of_all_machines() {
    let fixture = |path: &str| read(&committed().join(path));
    let cases = [
        ("F16", fixture("llama_mha/F16.gguf"), 0x9911_9c26_dabc_3599),
        ("qwen3", fixture("qwen3/model.gguf"), 0x48c2_c559_30b8_6ec3),
        ("gpt2", fixture("gpt2/model.gguf"), 0x2605_1f25_24ba_eab8),
        ("Q8_0", quantized(tiny("llama"), "Q8_0").build(), 0x0a01_166c_4d17_5c1d),
        ("Q4_0", quantized(tiny("qwen2"), "Q4_0").build(), 0xc66f_d4ba_4852_c257),
        ("gemma2", decoder("gemma2").build(), 0x9e70_5451_08f9_1b5a),
        ("gemma4", decoder("gemma4").build(), 0x289a_cecf_77c3_a889),
        ("phi3", decoder("phi3").build(), 0xd172_3372_b387_8e30),
        ("stablelm", decoder("stablelm").build(), 0x0a7f_aa41_ddec_bbc1),
        ("bert", encoder("bert").build(), 0x9ab8_63fb_61c2_cb87),
        ("t5", encoder("t5").build(), 0xf3dd_7402_cf5e_a80f),
        ("seq2seq", quantized(encoder("unbiased"), "Q8_0").build(), 0x1064_7b23_cb60_bd57),
        ("experts", quantized(decoder("mixtral"), "Q8_0").build(), 0xd87a_2045_c73d_8f13),
    ];
    for (name, file, want) in cases {
        for kernels in Kernels::available() {
            let got = Way { kernels, kv: KvType::F16, batch: 64, workers: 1 }.run(&file);
            assert_eq!(got, want, "{name}, {}: {got:#018x}", kernels.name);
        }
    }
}

/// Reports another number of threads with each call, and calls each job once.
struct Changing(&'static [usize], AtomicUsize);

impl arenite::workers::Workers for Changing {
    fn count(&self) -> usize {
        self.0[self.1.fetch_add(1, Ordering::Relaxed) % self.0.len()]
    }

    fn run(&self, job: &(dyn Fn() + Sync)) {
        job();
    }
}

#[test]
fn workers_that_change_their_count_give_the_same_bits() {
    for path in ["llama_mha/F16.gguf", "qwen3/model.gguf"] {
        let file = read(&committed().join(path));
        let logits = |workers: &dyn arenite::workers::Workers| {
            let mut run = Run::new(&file, |options| *options = Options::new().context(128).batch(32).workers(3));
            let mut session = run.session().with_workers(workers);
            session.prefill(&(0..40).map(|i| i * 7 % 200).collect::<Vec<u32>>()).unwrap();
            session.decode(5).unwrap();
            session.logits().iter().map(|logit| logit.to_bits()).collect::<Vec<_>>()
        };
        let want = logits(&arenite::workers::Serial);
        for counts in [&[2, 0][..], &[3, 3, 0], &[0], &[1, 2, 3, 16, 100, 0, usize::MAX]] {
            assert!(logits(&Changing(counts, AtomicUsize::new(0))) == want, "{path} {counts:?}");
        }
    }
}
