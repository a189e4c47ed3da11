//! The settings of all classes. Each gives the same results as in transformers, or is refused with an error that names
//! the setting.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value};

use super::checkpoint;
use super::tiny::write_tiny;
use crate::common::{arenite, path};

/// For each class, each setting is changed to a value other than its default. `sweep.py` tested all of these models in
/// transformers and wrote the expected results.
#[test]
fn settings_of_all_classes_are_followed_or_refused() {
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("sweep.json")).unwrap()).unwrap();
    let ids = |name: &str| all[name].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    let (tokens, decoder) = (ids("tokens"), ids("decoder"));
    let (classes, next) = (all["classes"].as_array().unwrap(), AtomicUsize::new(0));
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let folder = directory.path().join(format!("model{thread}"));
            let (tokens, decoder, next) = (&tokens, &decoder, &next);
            scope.spawn(move || {
                fs::create_dir(&folder).unwrap();
                while let Some(case) = classes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(case, &folder, (tokens, decoder));
                }
            });
        }
    });
}

/// Checks a model class twice over: with the settings of its case, and with each of the changed settings.
fn check(case: &Value, folder: &Path, (tokens, decoder): (&str, &str)) {
    let mut tiny = case.clone();
    tiny["tensors"] = unfolded(&case["tensors"]).into();
    write_tiny(&tiny, folder);
    let class = case["config"]["architectures"][0].as_str().unwrap();
    let is_encoder = class.ends_with("Model") && !class.ends_with("LMHeadModel");
    let run: &[&str] = match class {
        _ if is_encoder || class.ends_with("Classification") => &["embed", "--no-normalize", "--ids", tokens],
        _ if class.contains("T5For") => &["logits", "--encoder-ids", tokens, "--ids", decoder],
        _ => {
            fs::remove_file(folder.join("modules.json")).unwrap();
            &["logits", "--ids", tokens]
        }
    };
    let same = |name: &str, config: &Value, wanted: &Value| {
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let result = results(folder, run);
        if wanted == "refused" {
            let error = result.expect_err(&format!("{class}: {name} is taken"));
            assert!(error.contains(name), "{class}: {name}: {error}");
            return;
        }
        let result = result.unwrap_or_else(|error| panic!("{class}: {name}: {error}"));
        let wanted = wanted.as_array().unwrap_or(case["result"].as_array().unwrap());
        assert!(result.len() >= wanted.len(), "{class}: {name}: {} values", result.len());
        for (got, want) in result.iter().zip(wanted) {
            let want = want.as_f64().unwrap();
            // The results in the file have five decimals.
            assert!((f64::from(*got) - want).abs() < 3e-5 * want.abs().max(1.0), "{class}: {name}: {got}, not {want}");
        }
    };
    same("", &case["config"], &case["result"]);
    for setting in case["settings"].as_array().unwrap() {
        let (name, mut config) = (setting[0].as_str().unwrap(), case["config"].clone());
        config[name] = setting[1].clone();
        same(name, &config, &setting[2]);
    }
}

/// Returns the shapes of all tensors by their names. In the test's file, a name with `*` stands for tensors of several
/// layers.
fn unfolded(tensors: &Value) -> Map<String, Value> {
    let mut all = Map::new();
    for tensor in tensors.as_array().unwrap() {
        for layer in tensor[1].as_array().unwrap() {
            all.insert(tensor[0].as_str().unwrap().replace('*', &layer.to_string()), tensor[2].clone());
        }
    }
    all
}

/// Converts the checkpoint and runs a command on the new file. Returns the numbers that the command writes, or the
/// error message of `convert hf`.
fn results(folder: &Path, run: &[&str]) -> Result<Vec<f32>, String> {
    let (model, out) = (folder.join("model.gguf"), folder.join("out.npy"));
    let run = [run, &["-m", path(&model), "--kv", "f32", "-t", "1", "-o", path(&out)]].concat();
    for command in [&["convert", "hf", path(folder), path(&model)][..], &run] {
        let done = arenite(command);
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
    }
    Ok(crate::common::npy(&out).1)
}
