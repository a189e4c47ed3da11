//! `arenite listen` and the server's speech to text, with models of random weights.

use std::process::Output;

use crate::common::{arenite, committed, error, fixtures, json, lines, path, stdout, stdout_with};
use crate::serve::Server;
use serde_json::{Value, json};

const MODELS: [&str; 2] = ["whisper_b", "moonshine_a"];

fn file(case: &str, name: &str) -> String {
    path(&committed("tests/fixtures").join(case).join(name)).to_owned()
}

fn transcript(case: &str, sound: &str) -> Value {
    json(&["listen", "-m", &file(case, "model.gguf"), &file(case, sound), "--format", "json", "--kv", "f32"])
}

#[test]
fn checkpoints_are_converted() {
    let directory = tempfile::tempdir().unwrap();
    for case in MODELS {
        let Some(checkpoint) = fixtures(case) else { return };
        let model = directory.path().join("model.gguf");
        stdout(&["convert", "hf", path(&checkpoint), path(&model)]);
        let sound = file(case, "sound1.wav");
        let heard = json(&["listen", "-m", path(&model), &sound, "--format", "json", "--kv", "f32"]);
        assert_eq!(heard, transcript(case, "sound1.wav"), "{case}");
    }
}

#[test]
fn a_request_without_a_language_gets_those_of_the_checkpoint() {
    let Some(checkpoint) = fixtures("whisper_b") else { return };
    let sound = file("whisper_b", "sound0.wav");
    // The expected language and task are among the first tokens that transformers 5.24 generates.
    for (settings, language, task) in [
        (json!({}), "fr", "transcribe"),
        (json!({ "language": "<|de|>" }), "de", "transcribe"),
        (json!({ "language": "spanish", "task": "transcribe" }), "es", "transcribe"),
        (json!({ "task": "translate" }), "fr", "translate"),
        (json!({ "forced_decoder_ids": [[1, 513], [2, 519]] }), "en", "transcribe"),
        (json!({ "forced_decoder_ids": [[1, null], [2, 519]] }), "fr", "transcribe"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(&checkpoint).unwrap() {
            let from = entry.unwrap().path();
            if from.extension().is_some_and(|kind| kind == "json" || kind == "safetensors") {
                std::fs::copy(&from, folder.path().join(from.file_name().unwrap())).unwrap();
            }
        }
        let path_of = folder.path().join("generation_config.json");
        let mut all: Value = serde_json::from_slice(&std::fs::read(&path_of).unwrap()).unwrap();
        settings.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
        std::fs::remove_file(&path_of).unwrap();
        std::fs::write(&path_of, all.to_string()).unwrap();
        let model = folder.path().join("m.gguf");
        stdout(&["convert", "hf", path(folder.path()), path(&model)]);
        let heard = |more: &[&str]| {
            json(&[&["listen", "-m", path(&model), &sound, "--format", "json", "--kv", "f32"], more].concat())
        };
        let found = heard(&[]);
        assert_eq!((&found["language"], &found["task"]), (&json!(language), &json!(task)), "{settings}");
        let task: &[&str] = if task == "translate" { &["--translate"] } else { &[] };
        assert_eq!(heard(&[&["--language", language], task].concat()), found, "{settings}");
        if settings["task"].is_null() {
            assert_eq!(heard(&["--language", "auto"])["language"], "fr", "{settings}");
        }
    }
}

#[test]
fn all_formats_and_streams_have_the_same_parts() {
    for case in MODELS {
        let (model, sound) = (file(case, "model.gguf"), file(case, "sound0.wav"));
        let whole = transcript(case, "sound0.wav");
        let parts = whole["segments"].as_array().unwrap();
        let texts: Vec<&str> = parts.iter().map(|part| part["text"].as_str().unwrap().trim()).collect();
        assert!(!texts.is_empty() && texts.iter().all(|text| !text.is_empty()), "{whole}");
        assert_eq!(whole["text"], parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<String>());
        let run = |format| stdout(&["listen", "-m", &model, &sound, "--format", format, "--kv", "f32"]);
        assert_eq!(run("text"), texts.iter().map(|text| format!("{text}\n")).collect::<String>());
        assert_eq!(run("srt").matches(" --> ").count(), texts.len());
        assert!(run("srt").starts_with("1\n00:00:0"));
        let vtt = run("vtt");
        assert!(vtt.starts_with("WEBVTT\n\n00:0") && vtt.matches(" --> ").count() == texts.len(), "{vtt}");
        // The same samples from a pipe.
        let wav = std::fs::read(&sound).unwrap();
        let data = wav.windows(4).position(|four| four == b"data").unwrap() + 8;
        assert_eq!(stdout_with(&["listen", "-m", &model, "--stream", "--kv", "f32"], &wav[data..]), run("text"));
    }
}

#[test]
fn several_sounds_are_transcribed_one_after_the_other() {
    let model = file("whisper_b", "model.gguf");
    let [one, two] = ["sound0.wav", "sound1.wav"].map(|name| file("whisper_b", name));
    let run = |args: &[&str]| arenite(&[&["listen", "-m", &model, "--kv", "f32"], args].concat());
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let both = run(&[&one, &two]);
    assert_eq!(text(&both), text(&run(&[&one])) + &text(&run(&[&two])));
    let objects = lines(&text(&run(&[&one, &two, "--format", "json"])));
    for (mut object, (name, path)) in objects.into_iter().zip([("sound0.wav", &one), ("sound1.wav", &two)]) {
        assert_eq!(object["file"], **path);
        object.as_object_mut().unwrap().remove("file");
        assert_eq!(object, transcript("whisper_b", name));
    }
    // A file that is missing does not stop the others.
    let output = run(&["no-such-file.wav", &two]);
    assert_eq!((text(&output), output.status.code()), (text(&run(&[&two])), Some(1)));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read no-such-file.wav"));
    assert!(error(&["listen", "-m", &model, &one, &two, "--format", "srt"]).contains("one sound, or --format json"));
}

/// The expected number of samples comes from libsndfile 1.2.2, which cuts off the encoder's delay and padding.
#[test]
fn the_silence_of_an_mp3_encoder_is_cut_off() {
    let seconds = |sound: &str| {
        json(&["listen", "-m", &file("whisper_b", "model.gguf"), sound, "--format", "json"])["duration"]
            .as_f64()
            .unwrap()
    };
    let sound = file("whisper_b", "sound0.mp3");
    assert_eq!(seconds(&sound) * 8000.0, 5832.0);
    // Two files that are joined keep all their samples.
    let directory = tempfile::tempdir().unwrap();
    let joined = directory.path().join("joined.mp3");
    std::fs::write(&joined, std::fs::read(&sound).unwrap().repeat(2)).unwrap();
    assert!(seconds(path(&joined)) * 8000.0 > 2.0 * 5832.0);
}

#[test]
fn what_cannot_be_heard_is_refused() {
    let (whisper, moonshine) = (file("whisper_b", "model.gguf"), file("moonshine_a", "model.gguf"));
    let sound = file("whisper_b", "sound0.wav");
    for (args, says) in [
        (vec!["listen", "-m", &whisper, &whisper], "this is not a WAV, FLAC or MP3 file"),
        (vec!["listen", "-m", &whisper, "no-such-file.wav"], "cannot read no-such-file.wav"),
        (vec!["listen", &sound], "this is not a speech model"),
        (vec!["listen", "-m", &whisper, &sound, "--language", "xx"], "give one of: en, de, es, fr, it"),
        (vec!["listen", "-m", &moonshine, &sound, "--translate"], "the model cannot translate"),
        (vec!["listen", "-m", &moonshine, &sound, "--language", "de"], "the model is for one language"),
        #[cfg(not(feature = "microphone"))]
        (vec!["listen", "-m", &whisper, "--mic"], "without the feature `microphone`"),
        (vec!["generate", "-m", &whisper, "-p", "a"], ""),
    ] {
        let message = error(&args);
        assert!(message.contains(says), "{args:?}: {message}");
    }
    stdout(&["listen", "-m", &whisper, &sound, "--language", "DE", "--translate"]);
}

#[test]
fn the_server_transcribes() {
    let server = Server::start_with(&["-m", &file("whisper_b", "model.gguf"), "--kv", "f32"]);
    let sound = std::fs::read(file("whisper_b", "sound0.wav")).unwrap();
    let ask = |path: &str, fields: &[(&str, &str)], sound: &[u8]| {
        let mut body = Vec::new();
        for (name, value) in fields {
            let head = format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            body.extend(head.as_bytes());
        }
        body.extend(b"--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n");
        body.extend(sound);
        body.extend(b"\r\n--edge--\r\n");
        server.ask("POST", path, "Content-Type: multipart/form-data; boundary=edge\r\n", &body)
    };
    let right = transcript("whisper_b", "sound0.wav");
    let (head, body) = ask("/v1/audio/transcriptions", &[], &sound);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["text"].as_str(), Some(right["text"].as_str().unwrap().trim()));
    let (_, body) = ask("/v1/audio/transcriptions", &[("response_format", "verbose_json")], &sound);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["segments"], right["segments"]);
    let (head, body) = ask("/v1/audio/translations", &[("response_format", "vtt")], &sound);
    assert!(head.starts_with("HTTP/1.1 200") && body.starts_with("WEBVTT"), "{head}\n{body}");
    for (fields, param) in [
        (&[("response_format", "mp4")][..], "response_format"),
        (&[("temperature", "7")], "temperature"),
        (&[("timestamp_granularities[]", "word")], "timestamp_granularities"),
        (&[("stream", "true")], "stream"),
    ] {
        let (head, body) = ask("/v1/audio/transcriptions", fields, &sound);
        assert!(head.starts_with("HTTP/1.1 400") && body.contains(param), "{head}\n{body}");
    }
    let (head, _) = ask("/v1/audio/transcriptions", &[], b"no sound");
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    let (head, _) = server.ask("POST", "/v1/embeddings", "", br#"{"input": "a"}"#);
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
}
