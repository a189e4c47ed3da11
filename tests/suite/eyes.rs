//! Pictures: tiles, encoders, projectors and language models against transformers' values.

use std::path::{Path, PathBuf};

use arenite::quant::{TensorType, encode_row};
use arenite::vision::{Encoder, Options as Memory, Picture, Plan as Sight, Projector, Vision};
use arenite::{Engine, Error, Gguf, Kernels, KvType, Line, Model, Options, Plan, Span, TokenId, Work};
use serde_json::Value;

use crate::common::fixtures::{committed, needed, read};
use crate::common::run::argmax;
use crate::common::unwritten::unwritten;
use crate::common::workers::Scoped;

/// The cases with a language model.
fn cases() -> Vec<Case> {
    let Some(root) = needed("eyes") else { return Vec::new() };
    let entries = std::fs::read_dir(root.join("eyes")).unwrap().map(|entry| entry.unwrap().path());
    let mut dirs: Vec<_> = entries.filter(|path| path.join("model.gguf").exists()).collect();
    dirs.sort();
    assert!(!dirs.is_empty());
    dirs.iter().map(|dir| Case::open(dir)).collect()
}

/// A case: files, and transformers' values.
struct Case {
    dir: PathBuf,
    json: Value,
    mmproj: Vec<u8>,
    floats: Vec<u8>,
    pixels: Vec<u8>,
}

/// A decoded picture.
struct Rgb {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Rgb {
    fn picture(&self) -> Picture<'_> {
        Picture::new(&self.rgb, self.width, self.height).unwrap()
    }
}

impl Case {
    fn open(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
            json: serde_json::from_slice(&read(&dir.join("ref.json"))).unwrap(),
            mmproj: read(&dir.join("mmproj.gguf")),
            floats: read(&dir.join("hf.bin")),
            pixels: read(&dir.join("pixels.bin.gz")),
        }
    }

    fn images(&self) -> &[Value] {
        self.json["images"].as_array().unwrap()
    }

    /// A picture's pixels. Decoders of JPEG differ, so the pixels of JPEG files are those of the reference.
    fn decoded(&self, image: &Value) -> Rgb {
        let (width, height) = (number(&image["width"]), number(&image["height"]));
        let rgb = match image.get("rgb") {
            Some(rgb) => self.bytes(rgb).to_vec(),
            None => image::open(self.dir.join(image["file"].as_str().unwrap())).unwrap().into_rgb8().into_raw(),
        };
        Rgb { width, height, rgb }
    }

    fn bytes(&self, array: &Value) -> &[u8] {
        &self.pixels[number(&array["offset"])..][..elements(array)]
    }

    fn floats(&self, array: &Value) -> Vec<f32> {
        let bytes = &self.floats[number(&array["offset"])..][..4 * elements(array)];
        bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    fn name(&self, what: &Value) -> String {
        format!("{} {what}", self.dir.display())
    }
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

fn elements(array: &Value) -> usize {
    array["shape"].as_array().unwrap().iter().map(number).product()
}

/// The largest difference from transformers relative to its largest value.
const TOLERANCE: f32 = 2e-5;

/// Memory filled with NaN, so that reads of unwritten memory change the result.
fn lines(bytes: usize) -> Vec<Line> {
    let mut lines = vec![Line::ZERO; bytes.div_ceil(64)];
    Line::bytes_mut(&mut lines).fill(0xff);
    lines
}

fn same(got: &[f32], want: &[f32], what: &str) {
    let most = want.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let off = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max);
    assert!(got.len() == want.len(), "{what}: {} values, not {}", got.len(), want.len());

    assert!(off <= TOLERANCE * most, "{what}: off by {:e}", off / most);
}

/// Runs `each` with an encoder for a picture.
fn with_encoder(file: &[u8], picture: &Picture<'_>, memory: Memory, each: impl FnOnce(&mut Encoder<'_, '_>)) {
    let gguf = Gguf::parse(file).unwrap();
    let plan = Sight::new(&gguf, picture.width(), picture.height(), memory).unwrap();
    let vision = Vision::new(&gguf).unwrap();
    let mut workspace = lines(plan.workspace);
    let workspace = unwritten(Line::bytes_mut(&mut workspace));
    each(&mut Encoder::new(&vision, plan, workspace).unwrap());
}

/// A plan whose public fields were changed is refused, also if two of them were.
#[test]
fn a_forged_plan_is_refused() {
    type Change = fn(&mut Sight, &Sight);
    const CHANGES: [Change; 6] = [
        |plan, _| plan.workspace += 64,
        |plan, _| plan.workspace -= 64,
        |plan, _| plan.rows -= 1,
        |plan, _| plan.options.batch += 1,
        |plan, _| plan.options.workers += 1,
        |plan, other| plan.views = other.views,
    ];
    let file = read(&committed().join("pixtral.gguf"));
    let gguf = Gguf::parse(&file).unwrap();
    let vision = Vision::new(&gguf).unwrap();
    let plan = |width, height| Sight::new(&gguf, width, height, Memory::new()).unwrap();
    let (good, mut workspace) = (plan(64, 48), lines(1 << 20));
    for other in [plan(48, 64), plan(64, 47), plan(640, 480)] {
        for (at, change) in CHANGES.iter().enumerate() {
            for second in std::iter::once(None).chain(CHANGES[at + 1..].iter().map(Some)) {
                let mut plan = good;
                change(&mut plan, &other);
                second.into_iter().for_each(|change| change(&mut plan, &other));
                let made = Encoder::new(&vision, plan, Line::bytes_mut(&mut workspace)).map(|_| ());
                assert_eq!(made, if plan == good { Ok(()) } else { Err(Error::PlanMismatch) }, "change {at}");
            }
        }
    }
}

#[test]
fn tiles_are_those_of_transformers() {
    for case in cases() {
        for image in case.images() {
            let (rgb, name) = (case.decoded(image), case.name(&image["file"]));
            let tiles = image["tiles"].as_array().unwrap();
            with_encoder(&case.mmproj, &rgb.picture(), Memory::new(), |encoder| {
                encoder.load(&rgb.picture()).unwrap();
                assert_eq!(encoder.plan().views.count(), tiles.len(), "{name}");
                for (index, tile) in tiles.iter().enumerate() {
                    let (width, height, rows) = encoder.pixels(index).unwrap();
                    assert_eq!((width, height), (number(&tile["width"]), number(&tile["height"])), "{name}");
                    let mine: Vec<u8> = rows.flatten().copied().collect();
                    if let Some(pixels) = image["pixels"].get(index) {
                        assert!(mine == case.bytes(pixels), "{name}: tile {index}");
                    }
                }
            });
        }
    }
}

#[test]
fn encoders_and_projectors_are_those_of_transformers() {
    for case in cases() {
        for image in case.images() {
            let (rgb, name) = (case.decoded(image), case.name(&image["file"]));
            with_encoder(&case.mmproj, &rgb.picture(), Memory::new(), |encoder| {
                encoder.load(&rgb.picture()).unwrap();
                let views = encoder.plan().views;
                let mut all = Vec::new();
                let vision = Gguf::parse(&case.mmproj).unwrap();
                let vision = Vision::new(&vision).unwrap();
                for index in 0..views.count() {
                    let view = views.get(index).unwrap();
                    let mut rows = vec![f32::NAN; view.tokens() * vision.row_len()];
                    encoder.encode(index, &mut rows).unwrap();
                    if let Some(want) = image["encoder"].get(index) {
                        let states = in_order(encoder, vision.projector(), vision.width());
                        let states: Vec<f32> = states.into_iter().step_by(number(&want["step"])).flatten().collect();
                        same(&states, &case.floats(want), &format!("{name}: states of view {index}"));
                    }
                    all.extend(rows);
                }
                let stream = |number: usize| {
                    let rows = all.chunks(vision.row_len());
                    rows.flat_map(|row| row[number * vision.dim()..][..vision.dim()].to_vec()).collect::<Vec<_>>()
                };
                let rows = |want: &Value, got: Vec<f32>| match want["positions"].as_array() {
                    None => got,
                    Some(at) => {
                        at.iter().flat_map(|at| got[number(at) * vision.dim()..][..vision.dim()].to_vec()).collect()
                    }
                };
                let want = &image["projector"];
                same(&rows(want, stream(0)), &case.floats(want), &format!("{name}: projector"));
                let deep = image["deepstack"].as_array().map_or(&[][..], |deep| deep);
                assert_eq!(vision.row_len(), (1 + deep.len()) * vision.dim());
                for (i, want) in deep.iter().enumerate() {
                    let got = rows(want, stream(1 + i));
                    same(&got, &case.floats(want), &format!("{name}: deepstack {i}"));
                }
            });
        }
    }
}

/// The rows of the states in the order of the reference.
fn in_order(encoder: &Encoder<'_, '_>, projector: Projector, width: usize) -> Vec<Vec<f32>> {
    let states = encoder.states().chunks(width).enumerate();
    let mut rows: Vec<_> = states.map(|(row, x)| (encoder.place(row), x.to_vec())).collect();
    if !matches!(projector, Projector::Qwen25Vl | Projector::Qwen3Vl) {
        rows.sort_by_key(|(place, _)| place.map(|(column, line)| (line, column)));
    }
    rows.into_iter().map(|(_, x)| x).collect()
}

/// Texts with pictures: the tokens, and the rows of each span.
struct Prompt {
    name: String,
    ids: Vec<TokenId>,
    spans: Vec<(usize, usize, Vec<f32>)>,
}

impl Case {
    /// A prompt of the reference, with the rows that the encoder computes.
    fn prompt(&self, prompt: &Value) -> Prompt {
        let numbers = |value: &Value| value.as_array().unwrap().iter().map(number).collect::<Vec<_>>();
        let mut rows = Vec::new(); // one per token: the columns of its view, and its values
        let gguf = Gguf::parse(&self.mmproj).unwrap();
        let vision = Vision::new(&gguf).unwrap();
        for image in numbers(&prompt["images"]) {
            let rgb = self.decoded(&self.images()[image]);
            with_encoder(&self.mmproj, &rgb.picture(), Memory::new(), |encoder| {
                let views = encoder.plan().views;
                let mut all = vec![f32::NAN; encoder.plan().rows];
                encoder.see(&rgb.picture(), &mut all).unwrap();
                let columns = (0..views.count()).map(|i| views.get(i).unwrap());
                let columns = columns.flat_map(|view| vec![view.columns; view.tokens()]);
                rows.extend(columns.zip(all.chunks(vision.row_len()).map(<[f32]>::to_vec)));
            });
        }
        let mut rows = rows.into_iter();
        let spans = prompt["image_spans"].as_array().unwrap().iter().map(|span| {
            let (start, len) = (number(&span[0]), number(&span[1]));
            let (columns, values): (Vec<_>, Vec<_>) = rows.by_ref().take(len).unzip();
            (start, columns[0].min(len), values.concat())
        });
        let spans = spans.collect();
        assert!(rows.next().is_none());
        Prompt {
            name: format!("{} {}", self.dir.display(), prompt["name"]),
            ids: numbers(&prompt["ids"]).into_iter().map(|id| id as TokenId).collect(),
            spans,
        }
    }

    fn prompts(&self) -> impl Iterator<Item = &Value> {
        self.json["prompts"].as_array().unwrap().iter().filter(|prompt| prompt.get("logits").is_some())
    }
}

impl Prompt {
    fn spans<'r>(&'r self, vision: &Vision<'_>) -> Vec<Span<'r>> {
        let span = |(start, columns, rows): &'r (usize, usize, Vec<f32>)| {
            Span::new(*start, rows, vision.row_len(), *columns).together(vision.is_together())
        };
        self.spans.iter().map(span).collect()
    }
}

/// Runs `each` with an engine for the language model of a case.
fn with_engine(case: &Case, options: Options, each: impl FnOnce(&mut Engine<'_, '_>, &Vision<'_>)) {
    let file = read(&case.dir.join("model.gguf"));
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let mmproj = Gguf::parse(&case.mmproj).unwrap();
    let vision = Vision::new(&mmproj).unwrap();
    vision.fits(&model).unwrap();
    let plan = Plan::new(&gguf, options.context(1024).kv(KvType::F32).pictures(4)).unwrap();
    let (mut workspace, mut kv) = (lines(plan.workspace), lines(plan.kv));
    let workspace = unwritten(Line::bytes_mut(&mut workspace));
    each(&mut Engine::new(&model, plan, workspace, Line::bytes_mut(&mut kv)).unwrap(), &vision);
}

#[test]
fn logits_are_those_of_transformers() {
    for case in cases() {
        with_engine(&case, Options::new().batch(512), |engine, vision| {
            for value in case.prompts() {
                let prompt = case.prompt(value);
                let spans = prompt.spans(vision);
                let mut context = engine.open().unwrap();
                let mut all = Vec::new();
                let work = Work::prefill(&mut context, &prompt.ids).pictures(&spans);
                engine.read_all(work, |_, logits| all.push(logits.to_vec())).unwrap();
                let want = &value["logits"];
                let got = match want["positions"].as_array() {
                    None => all.concat(),
                    Some(positions) => positions.iter().flat_map(|at| all[number(at)].clone()).collect(),
                };
                same(&got, &case.floats(want), &prompt.name);

                let mut last = all.pop().unwrap();
                let mut greedy = Vec::new();
                let wanted: Vec<_> =
                    value["greedy"].as_array().unwrap().iter().map(|id| number(id) as TokenId).collect();
                for _ in 0..wanted.len() {
                    let token = argmax(&last);
                    greedy.push(token);
                    engine.run(&mut [Work::decode(&mut context, token)]).unwrap();
                    last = engine.logits(&context).to_vec();
                }
                assert_eq!(greedy, wanted, "{}", prompt.name);
                engine.close(context);
            }
        });
    }
}

/// The rows of a picture.
fn rows(file: &[u8], rgb: &Rgb, memory: Memory, kernels: &'static Kernels) -> Vec<f32> {
    let gguf = Gguf::parse(file).unwrap();
    let plan = Sight::new(&gguf, rgb.width, rgb.height, memory).unwrap();
    let vision = Vision::new(&gguf).unwrap();
    let (mut workspace, threads) = (lines(plan.workspace), Scoped(memory.workers));
    let workspace = unwritten(Line::bytes_mut(&mut workspace));
    let encoder = Encoder::new(&vision, plan, workspace).unwrap();
    let mut rows = vec![f32::NAN; plan.rows];
    encoder.with_kernels(kernels).with_workers(&threads).see(&rgb.picture(), &mut rows).unwrap();
    rows
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn rows_have_the_same_bits_on_all_kernels_and_workers() {
    for case in cases() {
        for image in &case.images()[1..2] {
            let rgb = case.decoded(image);
            let want = bits(&rows(&case.mmproj, &rgb, Memory::new().batch(512), Kernels::by_name("scalar").unwrap()));
            for kernels in Kernels::available() {
                for (batch, workers) in [(1, 1), (48, 2), (7, 3), (1 << 20, 1)] {
                    let memory = Memory::new().batch(batch).workers(workers);
                    let mine = bits(&rows(&case.mmproj, &rgb, memory, kernels));
                    assert!(mine == want, "{} {} {batch} {workers}", case.dir.display(), kernels.name);
                }
            }
        }
    }
}

#[test]
fn pictures_are_the_same_in_rows_with_padding() {
    let Some(case) = cases().into_iter().next() else { return };
    let rgb = case.decoded(&case.images()[1]);
    let want = rows(&case.mmproj, &rgb, Memory::new(), Kernels::detect());
    let padded: Vec<u8> = rgb.rgb.chunks(3 * rgb.width).flat_map(|row| [row, &[7; 5][..]].concat()).collect();
    let picture = Picture::with_stride(&padded, rgb.width, rgb.height, 3 * rgb.width + 5).unwrap();
    with_encoder(&case.mmproj, &picture, Memory::new(), |encoder| {
        let mut mine = vec![0.0; encoder.plan().rows];
        encoder.see(&picture, &mut mine).unwrap();
        assert_eq!(bits(&mine), bits(&want));
        let other = Picture::new(&padded, rgb.width, rgb.height - 1).unwrap();
        assert!(matches!(encoder.see(&other, &mut mine), Err(Error::Picture { .. })));
        let short = encoder.see(&picture, &mut mine[1..]).unwrap_err();
        assert!(matches!(short, Error::BufferTooSmall { .. }), "{short}");
    });
}

#[test]
fn half_floats_are_the_same_numbers() {
    for case in cases() {
        let half = case.dir.join("mmproj-f16.gguf");
        for image in case.images().iter().take(if half.exists() { 2 } else { 0 }) {
            let rgb = case.decoded(image);
            let [full, half] =
                [&case.mmproj, &read(&half)].map(|file| rows(file, &rgb, Memory::new(), Kernels::detect()));
            same(&half, &full, &case.name(&image["file"]));
        }
    }
}

/// The same file with its matrices in Q8_0, as far as their rows consist of whole blocks.
fn quantized(file: &[u8]) -> Vec<u8> {
    let gguf = Gguf::parse(file).unwrap();
    let named = |name: &str| [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
    let first = named(gguf.tensors().next().unwrap().name);
    let directory = file.windows(first.len()).position(|bytes| bytes == first).unwrap();
    let (mut out, mut data) = (file[..directory].to_vec(), Vec::new());
    for tensor in gguf.tensors() {
        let [cols, rows, ..] = tensor.dims.map(|dim| dim as usize);
        let is_matrix = rows > 1 && tensor.dim_count == 2 && cols % 32 == 0 && tensor.kind == TensorType::F32;
        let (kind, bytes) = if is_matrix {
            let values: Vec<f32> = tensor.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            let mut blocks = vec![0; 34 * values.len() / 32];
            let rows = values.chunks(cols).zip(blocks.chunks_mut(34 * cols / 32));
            rows.for_each(|(row, to)| assert!(encode_row(TensorType::Q8_0, row, to)));
            (TensorType::Q8_0, blocks)
        } else {
            (tensor.kind, tensor.data.to_vec())
        };
        out.extend(named(tensor.name));
        out.extend(tensor.dim_count.to_le_bytes());
        tensor.dims.iter().take(tensor.dim_count as usize).for_each(|dim| out.extend(dim.to_le_bytes()));
        out.extend((kind as u32).to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(bytes);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    out.resize(out.len().next_multiple_of(32), 0);
    [out, data].concat()
}

#[test]
fn matrices_may_be_quantized() {
    for case in cases() {
        let (file, rgb) = (quantized(&case.mmproj), case.decoded(&case.images()[1]));
        let kinds = Gguf::parse(&file).unwrap().tensors().filter(|tensor| tensor.kind == TensorType::Q8_0).count();
        let scalar = rows(&file, &rgb, Memory::new(), Kernels::by_name("scalar").unwrap());
        let full = rows(&case.mmproj, &rgb, Memory::new(), Kernels::detect());
        let most = full.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let off = full.iter().zip(&scalar).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max) / most;
        assert!(off < 0.05 && (off > 0.0) == (kinds > 0), "{}: off by {off}", case.dir.display());
        for kernels in Kernels::available() {
            let mine = rows(&file, &rgb, Memory::new().batch(33).workers(2), kernels);
            assert!(bits(&mine) == bits(&scalar), "{} {}", case.dir.display(), kernels.name);
        }
    }
}

#[test]
fn old_files_have_exchanged_names() {
    let Some(root) = needed("eyes") else { return };
    for case in cases() {
        let name = case.dir.file_name().unwrap().to_str().unwrap().replace("gemma3_", "gemma3_old_");
        let old = root.join("eyes").join(name).join("mmproj.gguf");
        if case.json["projector"] != "gemma3" || !old.exists() {
            continue;
        }
        let rgb = case.decoded(&case.images()[0]);
        let [new, old] = [&case.mmproj, &read(&old)].map(|file| rows(file, &rgb, Memory::new(), Kernels::detect()));
        assert_eq!(bits(&new), bits(&old));
    }
}

/// The span among the tokens from `cut` on.
fn shifted<'r>(span: &Span<'r>, cut: usize) -> Span<'r> {
    Span::new(span.start - cut, span.rows, span.row_len, span.columns).together(span.together)
}

/// One prompt with two pictures, and its logits at all positions as bits.
fn two(case: &Case, engine: &mut Engine<'_, '_>, vision: &Vision<'_>) -> (Prompt, Vec<Vec<u32>>) {
    let prompt = case.prompt(case.prompts().find(|prompt| prompt["name"] == "two").unwrap());
    let mut context = engine.open().unwrap();
    let mut all = Vec::new();
    let spans = prompt.spans(vision);
    let work = Work::prefill(&mut context, &prompt.ids).pictures(&spans);
    engine.read_all(work, |_, logits| all.push(bits(logits))).unwrap();
    engine.close(context);
    (prompt, all)
}

#[test]
fn batches_forks_and_snapshots_have_the_bits_of_one_pass() {
    for case in cases() {
        let mut want = Vec::new();
        with_engine(&case, Options::new().batch(512), |engine, vision| want = two(&case, engine, vision).1);
        let together = Vision::new(&Gguf::parse(&case.mmproj).unwrap()).unwrap().is_together();
        for batch in if together { [36, 64] } else { [1, 7] } {
            let options = Options::new().batch(batch).contexts(3).logits(2).checkpoints(4);
            with_engine(&case, options, |engine, vision| {
                let (prompt, all) = two(&case, engine, vision);
                assert!(all == want, "{} in batches of {batch}", prompt.name);
                let spans = prompt.spans(vision);
                // The first span, and then the rest of the prompt in a fork, beside another text.
                let cut = spans[0].start + spans[0].tokens();
                let mut context = engine.open().unwrap();
                let work = Work::prefill(&mut context, &prompt.ids[..cut]).pictures(&spans[..1]);
                engine.run(&mut [work]).unwrap();
                assert_eq!(bits(engine.logits(&context)), want[cut - 1], "{}", prompt.name);
                engine.checkpoint(&context).unwrap();
                let mut snapshot = vec![0; engine.snapshot_bytes(&context)];
                engine.save(&context, &mut snapshot).unwrap();
                let later = |span| shifted(span, cut);
                let rest: Vec<_> = spans[1..].iter().map(later).collect();
                let mut fork = engine.fork(&context).unwrap();
                let mut other = engine.open().unwrap();
                engine
                    .run(&mut [
                        Work::prefill(&mut other, &prompt.ids[cut..]).no_logits(),
                        Work::prefill(&mut fork, &prompt.ids[cut..]).pictures(&rest),
                    ])
                    .unwrap();
                assert_eq!(&bits(engine.logits(&fork)), want.last().unwrap(), "{}", prompt.name);
                // Back to the end of the first picture, from a rewind and from a snapshot.
                engine.rewind(&mut context, 0).unwrap();
                engine.restore(&mut context, &snapshot).unwrap();
                let mut contexts = vec![context];
                if engine.rewind(&mut fork, cut).is_ok() {
                    contexts.push(fork);
                }
                for mut context in contexts {
                    let work = Work::prefill(&mut context, &prompt.ids[cut..]).pictures(&rest);
                    engine.run(&mut [work]).unwrap();
                    assert_eq!(&bits(engine.logits(&context)), want.last().unwrap(), "{}", prompt.name);
                }
            });
        }
    }
}

/// A generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Opens a file that may be damaged, and runs it on a picture if that takes little memory.
fn survive(file: &[u8], picture: &Picture<'_>) {
    let Ok(gguf) = Gguf::parse(file) else { return };
    let (vision, plan) = (Vision::new(&gguf), Sight::new(&gguf, picture.width(), picture.height(), Memory::new()));
    let (Ok(vision), Ok(plan)) = (vision, plan) else { return };
    if plan.workspace < 1 << 23 {
        let mut workspace = lines(plan.workspace);
        let mut encoder = Encoder::new(&vision, plan, Line::bytes_mut(&mut workspace)).unwrap();
        encoder.see(picture, &mut vec![0.0; plan.rows]).unwrap();
    }
}

#[test]
fn damaged_files_are_refused_or_run() {
    let mut random = Random(77);
    for case in cases() {
        let rgb: Vec<u8> = (0..3 * 70 * 40).map(|_| random.below(256) as u8).collect();
        let data = Gguf::parse(&case.mmproj).unwrap().tensors().next().unwrap().offset as usize;
        for i in 0..400 {
            let mut file = case.mmproj.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(if i % 8 == 0 { file.len() } else { data });
                let byte = random.below(256) as u8;
                file[at] = if random.below(2) == 0 { byte } else { file[at] ^ 1 << (byte % 8) };
            }
            if i % 16 == 0 {
                file.truncate(random.below(file.len()));
            }
            let (width, height) = ([70, 40, 1, 3][random.below(4)], [40, 1, 7][random.below(3)]);
            survive(&file, &Picture::new(&rgb, width, height).unwrap());
        }
    }
}

#[test]
fn sizes_of_pictures_have_limits() {
    let short = Picture::new(&[0; 3 * 20], 4, 6);
    let errors = [
        short,
        Picture::new(&[], 0, 1),
        Picture::new(&[0; 30], 20_000, 20_000),
        Picture::with_stride(&[0; 99], 5, 2, 14),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::Picture { .. })), "{error:?}");
    }
    for case in cases() {
        let gguf = Gguf::parse(&case.mmproj).unwrap();
        for (width, height) in [(0, 5), (5, 0), (40_000, 40_000), (usize::MAX, usize::MAX)] {
            let error = Sight::new(&gguf, width, height, Memory::new()).unwrap_err();
            assert!(matches!(error, Error::Picture { .. }), "{error}");
        }
        // Plans of the largest and of thin pictures are numbers, or are refused.
        for (width, height) in [(32_768, 32_768), (1, 32_768), (32_768, 1), (1, 1)] {
            match Sight::new(&gguf, width, height, Memory::new().batch(usize::MAX / 2)) {
                Ok(plan) => assert!(plan.views.count() > 0 && plan.views.tokens() > 0),
                Err(error) => assert!(matches!(error, Error::Picture { .. } | Error::PlanTooLarge), "{error}"),
            }
        }
    }
}

#[test]
fn spans_that_do_not_fit_are_refused() {
    let Some(case) = cases().into_iter().find(|case| case.json["projector"] == "gemma3") else { return };
    with_engine(&case, Options::new().batch(4), |engine, vision| {
        let (dim, rows) = (vision.dim(), vec![0.5; 8 * vision.dim()]);
        let mut context = engine.open().unwrap();
        let mut refused = |spans: &[Span<'_>]| {
            let work = Work::prefill(&mut context, &[5; 9]).pictures(spans);
            engine.run(&mut [work]).unwrap_err()
        };
        let span = |start, tokens: usize| Span::new(start, &rows[..tokens * dim], dim, 1);
        for spans in [
            vec![span(2, 8)], // ends after the last token
            vec![span(usize::MAX, 1)],
            vec![span(3, 2), span(4, 1)], // overlaps the one before
            vec![span(4, 1), span(3, 1)],
            vec![span(0, 0)],
            vec![Span::new(0, &rows[1..dim], dim, 1)],    // a part of a row
            vec![Span::new(0, &rows[..dim], dim / 2, 1)], // another width
            vec![Span::new(0, &rows, 8 * dim, 1)],        // more vectors than layers
            vec![Span::new(0, &rows[..3 * dim], dim, 2)], // a line and a half
            vec![Span::new(0, &rows[..3 * dim], dim, 0)],
        ] {
            assert!(matches!(refused(&spans), Error::Picture { .. }), "{spans:?}");
        }
        let error = refused(&[span(1, 5).together(true)]);
        assert!(matches!(error, Error::BufferTooSmall { needed: 5, given: 4, .. }), "{error}");
    });
}

/// The encoder of `tests/boards/eye`, which names one of eight signs.
#[test]
fn pictures_of_the_right_size_are_read_by_rows_and_named() {
    let file = read(&committed().join("eye.gguf"));
    let gguf = Gguf::parse(&file).unwrap();
    let vision = Vision::new(&gguf).unwrap();
    let rgb = Rgb { width: 96, height: 96, rgb: (0..3 * 96 * 96u32).map(|i| (i * i / 7 % 251) as u8).collect() };
    let scores = rows(&file, &rgb, Memory::new().batch(64), Kernels::by_name("scalar").unwrap());
    assert_eq!(scores.len(), 8);
    let mut first = Vec::new();
    for kernels in Kernels::available() {
        for (batch, workers) in [(1, 1), (4, 1), (7, 2), (64, 3)] {
            let memory = Memory::new().batch(batch).workers(workers);
            assert_eq!(bits(&rows(&file, &rgb, memory, kernels)), bits(&scores), "{} {batch}", kernels.name);
            let (plan, threads) = (Sight::new(&gguf, 96, 96, memory).unwrap(), Scoped(workers));
            let mut workspace = lines(plan.workspace);
            let workspace = unwritten(Line::bytes_mut(&mut workspace));
            let encoder = Encoder::new(&vision, plan, workspace).unwrap();
            let mut encoder = encoder.with_kernels(kernels).with_workers(&threads);
            encoder.load_rows(|y, row| row.copy_from_slice(&rgb.rgb[3 * 96 * y..][..3 * 96])).unwrap();
            let mut probabilities = [0.0; 8];
            let best = encoder.decide(1.0, &mut probabilities).unwrap();
            assert_eq!(best as u32, argmax(&scores));
            assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            if first.is_empty() {
                first = bits(&probabilities);
            }
            assert_eq!(bits(&probabilities), first);
            let short = encoder.decide(1.0, &mut probabilities[1..]).unwrap_err();
            assert!(matches!(short, Error::BufferTooSmall { needed: 8, given: 7, .. }), "{short}");
        }
    }
}

#[test]
fn pictures_of_another_size_are_not_read_by_rows() {
    let file = read(&committed().join("eye.gguf"));
    let gguf = Gguf::parse(&file).unwrap();
    let needed = |width, height| Sight::new(&gguf, width, height, Memory::new()).unwrap().workspace;
    // Memory for each pass of resizing, and for the picture between both.
    assert!(needed(96, 96) < needed(97, 96) && needed(96, 97) < needed(97, 97));
    let picture = [0; 3 * 97 * 96];
    with_encoder(&file, &Picture::new(&picture, 97, 96).unwrap(), Memory::new(), |encoder| {
        let error = encoder.load_rows(|_, _| ()).unwrap_err();
        assert!(matches!(error, Error::Picture { .. }), "{error}");
    });
    // A picture with several rows has no scores.
    let file = read(&committed().join("pixtral.gguf"));
    let picture = [0; 3 * 90 * 50];
    with_encoder(&file, &Picture::new(&picture, 90, 50).unwrap(), Memory::new(), |encoder| {
        let error = encoder.decide(1.0, &mut [0.0; 9999]).unwrap_err();
        assert!(matches!(error, Error::NoPart { .. }), "{error}");
    });
}
