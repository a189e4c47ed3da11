//! Pictures from files: texts with markers become the tokens of transformers' processors, and logits are those of its
//! models.

use std::fs;
use std::path::{Path, PathBuf};

use arenite::TokenId;
use arenite::tokenizer::Encode;
use arenite::vision::Picture;
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::RunOptions;
use arenite_run::vision::{Eyes, prompt};
use serde_json::Value;

use crate::common::{error, fixtures, path, stdout};

/// The cases with a language model, and their references.
fn cases() -> Vec<(PathBuf, Value)> {
    let Some(root) = fixtures("eyes") else { return Vec::new() };
    let mut dirs: Vec<_> = fs::read_dir(root).unwrap().map(|dir| dir.unwrap().path()).collect();
    dirs.retain(|dir| dir.join("model.gguf").exists());
    dirs.sort();
    let reference = |dir: &PathBuf| serde_json::from_slice(&fs::read(dir.join("ref.json")).unwrap()).unwrap();
    dirs.iter().map(|dir| (dir.clone(), reference(dir))).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn numbers(value: &Value) -> Vec<usize> {
    list(value).iter().map(|number| number.as_u64().unwrap() as usize).collect()
}

#[test]
fn texts_with_pictures_have_the_tokens_of_the_processors() {
    for (dir, reference) in cases() {
        let file = ModelFile::open(&*dir.join("model.gguf")).unwrap();
        let open = OpenModel::new(file, RunOptions { threads: 1, ..RunOptions::default() }).unwrap();
        let eyes = Eyes::open(&dir.join("mmproj.gguf"), open.model()).unwrap();
        let images = list(&reference["images"]);
        for wanted in list(&reference["prompts"]) {
            let seen: Vec<_> = numbers(&wanted["images"])
                .into_iter()
                .map(|index| {
                    let (width, height) = (images[index]["width"].as_u64().unwrap(), images[index]["height"].as_u64().unwrap());
                    let rgb = vec![90; 3 * (width * height) as usize]; // the tokens do not depend on the pixels
                    eyes.see(&Picture::new(&rgb, width as usize, height as usize).unwrap(), &open).unwrap()
                })
                .collect();
            let how = Encode { add_special: false, parse_special: true };
            let text = wanted["text"].as_str().unwrap();
            let got = prompt(&eyes, open.vocabulary().unwrap(), text, &seen, how).unwrap();
            let name = format!("{} {}", dir.display(), wanted["name"]);
            let ids: Vec<_> = numbers(&wanted["ids"]).into_iter().map(|id| id as TokenId).collect();
            assert_eq!(got.ids, ids, "{name}");
            // Adjacent tiles are one span of the reference.
            let mut spans: Vec<Vec<usize>> = Vec::new();
            for span in &got.spans {
                match spans.last_mut() {
                    Some(last) if last[0] + last[1] == span.start => last[1] += span.tokens(),
                    _ => spans.push(vec![span.start, span.tokens()]),
                }
            }
            let wanted: Vec<_> = list(&wanted["image_spans"]).iter().map(numbers).collect();
            assert_eq!(spans, wanted, "{name}");
        }
    }
}

/// Arguments for a prompt of a case.
fn logits(dir: &Path, reference: &Value, wanted: &Value) -> Vec<String> {
    let file = |name: &str| path(&dir.join(name)).to_string();
    let ids: Vec<_> = numbers(&wanted["ids"]).iter().map(usize::to_string).collect();
    let mut args = vec!["logits".into(), "-m".into(), file("model.gguf"), "--kv".into(), "f32".into()];
    args.extend(["--top".into(), "1".into(), "--ids".into(), ids.join(","), "--mmproj".into(), file("mmproj.gguf")]);
    for index in numbers(&wanted["images"]) {
        args.extend(["--image".into(), file(reference["images"][index]["file"].as_str().unwrap())]);
    }
    args
}

#[test]
fn the_most_likely_token_is_that_of_transformers() {
    for (dir, reference) in cases() {
        for wanted in list(&reference["prompts"]).iter().filter(|prompt| !list(&prompt["images"]).is_empty()) {
            let args = logits(&dir, &reference, wanted);
            let out = stdout(&args.iter().map(String::as_str).collect::<Vec<_>>());
            let first = out.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_string();
            assert_eq!(first, wanted["greedy"][0].to_string(), "{} {}", dir.display(), wanted["name"]);
        }
    }
}

#[test]
fn pictures_without_places_are_refused() {
    let Some((dir, _)) = cases().into_iter().next() else { return };
    let file = |name: &str| path(&dir.join(name)).to_string();
    let (model, mmproj, image) = (file("model.gguf"), file("mmproj.gguf"), file("img0.png"));
    let run = |more: &[&str]| error(&[&["logits", "-m", &model, "--top", "1", "--image", &image], more].concat());
    assert!(run(&["--mmproj", &mmproj, "--ids", "1,2"]).contains("0 image tokens, but the pictures have"));
    assert!(run(&["--mmproj", &model, "--ids", "1,2"]).contains("architecture of an encoder of pictures"));
    assert!(run(&["-p", "a"]).contains("--mmproj"));
}
