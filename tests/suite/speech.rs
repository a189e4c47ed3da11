//! Speech: features, encoders and decoders against transformers' values.

use arenite::sound::{LogMel, Rules, Sample};
use arenite::{Error, Gguf, Kernels, KvType, Line, Model, Options, Plan, Session, TokenId};
use serde_json::Value;

use crate::common::fixtures::{committed, read};
use crate::common::vectors::fixture;

/// A case of the fixtures: sounds and transformers' values for them.
struct Case {
    name: &'static str,
    json: Value,
    arrays: Vec<u8>,
}

impl Case {
    fn load(name: &'static str) -> Option<Self> {
        let json = serde_json::from_slice(&fixture(&format!("{name}/ref.json"))?).unwrap();
        Some(Self { name, json, arrays: fixture(&format!("{name}/hf.bin"))? })
    }

    fn sounds(&self) -> &[Value] {
        self.json["sounds"].as_array().unwrap()
    }

    fn size(&self, key: &str) -> usize {
        self.json["hf_config"][key].as_u64().unwrap() as usize
    }

    /// Number of samples of the fixture's window.
    fn window(&self) -> usize {
        self.size("max_source_positions") * 320
    }

    /// The 16-bit samples of a sound.
    fn samples(&self, sound: &Value) -> Vec<i16> {
        let file = fixture(&format!("{}/{}", self.name, sound["file"].as_str().unwrap())).unwrap();
        let data = file.windows(4).position(|four| four == b"data").unwrap() + 8;
        file[data..].chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    fn array(&self, place: &Value) -> Vec<f32> {
        let len: u64 = place["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product();
        let bytes = &self.arrays[place["offset"].as_u64().unwrap() as usize..][..4 * len as usize];
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    }
}

fn numbers(list: &Value) -> Vec<usize> {
    list.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}

/// Features of a sound that arrives in `pieces`.
fn features<'s, S: Sample + 's>(bins: usize, window: usize, pieces: impl Iterator<Item = &'s [S]>) -> Vec<f32> {
    let mut memory = vec![Line::ZERO; LogMel::BYTES / 64];
    let mut features = vec![f32::NAN; LogMel::frames(window) * bins];
    let mut mel = LogMel::new(bins, window, Line::bytes_mut(&mut memory)).unwrap();
    for piece in pieces {
        mel.push(piece, &mut features).unwrap();
    }
    mel.finish(&mut features).unwrap();
    features
}

#[test]
fn features_are_those_of_transformers() {
    for name in ["whisper_a", "whisper_b"] {
        let Some(case) = Case::load(name) else { continue };
        let (bins, window) = (case.size("num_mel_bins"), case.window());
        for sound in case.sounds() {
            let samples = case.samples(sound);
            let mine = features(bins, window, [&samples[..]].into_iter());
            let (right, frames) = (case.array(&sound["features"]), numbers(&sound["features"]["frames"]));
            let mut worst = 0.0f32;
            for (i, frame) in frames.iter().enumerate() {
                for bin in 0..bins {
                    worst = worst.max((mine[frame * bins + bin] - right[bin * frames.len() + i]).abs());
                }
            }
            let padding = sound["padding_value"].as_f64().unwrap() as f32;
            assert!((mine[mine.len() - 1] - padding).abs() < 1e-4, "{name}: {padding}");
            println!("{name} {}: {worst:e}", sound["file"]);
            assert!(worst < 2e-4, "{name} {}: {worst}", sound["file"]);
        }
    }
}

#[test]
fn pieces_have_the_bits_of_the_whole() {
    let sound: Vec<i16> = (0..20_000i32).map(|i| ((i * i) % 20_011 - 10_000) as i16).collect();
    let whole = features(80, 24_000, [&sound[..]].into_iter());
    for piece in [1, 7, 160, 199, 200, 401, 1024, 19_999] {
        assert!(features(80, 24_000, sound.chunks(piece)) == whole, "{piece}");
    }
    // The same samples as floats, and a sound that fills its window.
    let floats: Vec<f32> = sound.iter().map(|x| f32::from(*x) / 32768.0).collect();
    assert!(features(80, 24_000, floats.chunks(333)) == whole);
    let full = features(80, 20_000, [&sound[..]].into_iter());
    assert!(features(80, 20_000, sound.chunks(3)) == full);
    assert!(full[..110 * 80] == whole[..110 * 80]);
}

#[test]
fn invalid_sounds_are_errors() {
    let mut memory = vec![Line::ZERO; LogMel::BYTES / 64];
    let memory = Line::bytes_mut(&mut memory);
    let (len, mut features) = (LogMel::BYTES, vec![0.0; 10 * 80]);
    assert!(matches!(LogMel::new(0, 1600, memory), Err(Error::Unsupported { .. })));
    assert!(matches!(LogMel::new(257, 1600, memory), Err(Error::Unsupported { .. })));
    assert!(matches!(LogMel::new(80, 399, memory), Err(Error::Unsupported { .. })));
    assert!(matches!(LogMel::new(80, 1600, &mut memory[1..]), Err(Error::BufferTooSmall { .. })));
    let mut mel = LogMel::new(80, 1600, memory).unwrap();
    assert_eq!(len % 64, 0);
    assert_eq!(mel.push(&[0.5f32; 800], &mut features), Ok(4));
    for bad in [f32::NAN, f32::INFINITY, -f32::INFINITY, 1e30] {
        let error = mel.push(&[0.5, bad], &mut features).unwrap_err();
        assert!(matches!(error, Error::Sound { at: 801, .. }), "{error}");
    }
    let error = mel.push(&[0i16; 801], &mut features).unwrap_err();
    assert!(matches!(error, Error::Sound { at: 1600, .. }), "{error}");
    assert!(matches!(mel.push(&[0i16], &mut features[1..]), Err(Error::BufferTooSmall { .. })));
    mel.finish(&mut features).unwrap();
    assert!(features.iter().all(|x| x.is_finite()));
    // After `finish`, the next sound starts from nothing.
    let silence = -1.5;
    mel.finish(&mut features).unwrap();
    assert_eq!(features, [silence; 800]);
}

const MODELS: [&str; 3] = ["whisper_a", "whisper_b", "moonshine_a"];

/// A converted model, if it is in the repository.
fn model(name: &str) -> Option<Vec<u8>> {
    let path = committed().join(name).join("model.gguf");
    path.exists().then(|| read(&path))
}

impl Case {
    /// The encoder's input.
    fn input(&self, sound: &Value) -> Vec<f32> {
        let samples = self.samples(sound);
        match self.name {
            "moonshine_a" => samples.iter().map(|x| x.value()).collect(),
            _ => features(self.size("num_mel_bins"), self.window(), [&samples[..]].into_iter()),
        }
    }
}

/// Runs `f` with a session of exactly the planned memory.
fn with_session<T>(
    gguf: &Gguf<'_>,
    options: Options,
    kernels: &'static Kernels,
    f: impl FnOnce(Session<'_, '_>) -> T,
) -> T {
    let model = Model::new(gguf).unwrap();
    let plan = Plan::new(gguf, options).unwrap();
    let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    let (workspace, kv) =
        (&mut Line::bytes_mut(&mut workspace)[..plan.workspace], &mut Line::bytes_mut(&mut kv)[..plan.kv]);
    let session = Session::new(&model, plan, workspace, kv).unwrap();
    f(session.with_kernels(kernels))
}

fn options(batch: usize) -> Options {
    Options::new().batch(batch).kv(KvType::F32)
}

/// Largest difference, in relation to the largest value.
fn relative(mine: &[f32], right: &[f32]) -> f32 {
    assert_eq!(mine.len(), right.len());
    let largest = right.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    mine.iter().zip(right).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / largest
}

fn ids(list: &Value) -> Vec<TokenId> {
    numbers(list).into_iter().map(|id| id as TokenId).collect()
}

fn best(logits: &[f32]) -> TokenId {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a))).unwrap() as TokenId
}

/// Generates up to `count` tokens after `prompt`, with a mask on logits.
fn generate(
    session: &mut Session<'_, '_>,
    prompt: &[TokenId],
    count: usize,
    end: Option<TokenId>,
    mask: impl Fn(&mut [f32], &[TokenId]),
) -> Vec<TokenId> {
    session.rewind(0).unwrap();
    session.prefill(prompt).unwrap();
    let mut tokens = Vec::new();
    while tokens.len() < count {
        mask(session.logits_mut(), &tokens);
        let token = best(session.logits());
        tokens.push(token);
        if Some(token) == end || tokens.len() == count {
            break;
        }
        session.decode(token).unwrap();
    }
    tokens
}

#[test]
fn states_and_logits_are_those_of_transformers() {
    for name in MODELS {
        let (Some(case), Some(file)) = (Case::load(name), model(name)) else { continue };
        let gguf = Gguf::parse(&file).unwrap();
        let rules = Rules::new(&gguf).unwrap();
        let prompt = ids(&case.json["prompt_head"]);
        with_session(&gguf, options(16), Kernels::detect(), |mut session| {
            for sound in case.sounds() {
                session.listen(&case.input(sound)).unwrap();
                let dim =
                    session.states().len() / numbers(&Value::Array(vec![sound["encoder_positions_total"].clone()]))[0];
                let rows = numbers(&sound["encoder"]["positions"]);
                let mine: Vec<f32> =
                    rows.iter().flat_map(|row| &session.states()[row * dim..(row + 1) * dim]).copied().collect();
                let states = relative(&mine, &case.array(&sound["encoder"]));
                let mut mine = Vec::new();
                session.prefill_all(&ids(&sound["decoder_ids"]), |_, logits| mine.extend_from_slice(logits)).unwrap();
                let logits = relative(&mine, &case.array(&sound["logits"]));
                println!("{name} {}: states {states:e}, logits {logits:e}", sound["file"]);
                assert!(states < 1e-4 && logits < 1e-4, "{name} {}: {states} {logits}", sound["file"]);

                let greedy = ids(&sound["greedy"]);
                assert_eq!(generate(&mut session, &prompt, greedy.len(), None, |_, _| ()), greedy);
                if let Some(right) = sound.get("greedy_rules") {
                    let end = case.json["hf_config"]["eos_token_id"].as_u64().map(|end| end as TokenId);
                    let mine =
                        generate(&mut session, &prompt, 20, end, |logits, before| rules.apply(logits, before, false));
                    assert_eq!(mine, ids(right), "{name} {}", sound["file"]);
                    let head = &prompt[..prompt.len() - 1];
                    let mine =
                        generate(&mut session, head, 20, end, |logits, before| rules.apply(logits, before, true));
                    assert_eq!(mine, ids(&sound["greedy_timestamps"]), "{name} {}", sound["file"]);
                }
            }
        });
    }
}

#[test]
fn the_same_bits_with_all_kernels_and_batches() {
    for name in MODELS {
        let (Some(case), Some(file)) = (Case::load(name), model(name)) else { continue };
        let gguf = Gguf::parse(&file).unwrap();
        // Half a second of the sound.
        let mut input = case.input(&case.sounds()[1]);
        input.truncate(if name == "moonshine_a" { 8000 } else { 50 * case.size("num_mel_bins") });
        let run = |batch, kernels| {
            with_session(&gguf, options(batch).sound(25), kernels, |mut session| {
                session.listen(&input).unwrap();
                session.prefill(&[3, 7, 100]).unwrap();
                (session.states().to_vec(), session.logits().to_vec())
            })
        };
        let right = run(1, Kernels::by_name("scalar").unwrap());
        for kernels in Kernels::available() {
            for batch in [5, 64] {
                assert!(run(batch, kernels) == right, "{name} {} {batch}", kernels.name);
            }
        }
    }
}

#[test]
fn encoders_of_sounds_refuse_texts_and_invalid_sounds() {
    for name in MODELS {
        let (Some(case), Some(file)) = (Case::load(name), model(name)) else { continue };
        let gguf = Gguf::parse(&file).unwrap();
        let mut input = case.input(&case.sounds()[1]);
        with_session(&gguf, options(16), Kernels::detect(), |mut session| {
            assert!(matches!(session.encode(&[1, 2]), Err(Error::NoPart { .. })));
            assert!(matches!(session.prefill(&[1]), Err(Error::NoSource)));
            for invalid in [&[][..], &[0.5; 17], &[f32::NAN; 8000]] {
                assert!(matches!(session.listen(invalid), Err(Error::Sound { .. })), "{name} {}", invalid.len());
            }
            assert!(matches!(session.listen(&vec![0.0; 16_000 * 40]), Err(Error::ContextFull { .. })));
            session.listen(&input).unwrap();
        });
        // A plan for shorter sounds.
        let short = options(16).sound(10);
        with_session(&gguf, short, Kernels::detect(), |mut session| {
            assert!(matches!(session.listen(&input), Err(Error::ContextFull { context: 10, .. })));
            input.truncate(match name {
                "moonshine_a" => 4000,
                _ => 20 * case.size("num_mel_bins"),
            });
            session.listen(&input).unwrap();
            session.prefill(&[5]).unwrap();
        });
    }
    let file = fixture("stories.gguf").unwrap();
    with_session(&Gguf::parse(&file).unwrap(), options(1), Kernels::detect(), |mut session| {
        assert!(matches!(session.listen(&[0.0; 16_000]), Err(Error::NoPart { .. })));
    });
}
