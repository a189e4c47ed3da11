//! Speech: features, encoders and decoders against transformers' values.

use arenite::sound::{LogMel, Sample};
use arenite::{Error, Line};
use serde_json::Value;

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

    /// Samples of the fixture's window.
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
    // Nothing remains of a sound.
    let silence = -1.5;
    mel.finish(&mut features).unwrap();
    assert_eq!(features, [silence; 800]);
}
