//! Models that read pictures. Each command and each interface of the server gives the same answer as transformers.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::common::{arenite, arenite_with, committed, error, fixtures, json as json_of, path, stdout, stdout_with};
use crate::serve::Server;

/// The cases with a language model, and their references.
fn cases() -> Vec<(PathBuf, Value)> {
    let Some(root) = fixtures("eyes") else { return Vec::new() };
    let mut dirs: Vec<_> = fs::read_dir(root).unwrap().map(|dir| dir.unwrap().path()).collect();
    dirs.retain(|dir| dir.join("model.gguf").exists());
    dirs.sort();
    let reference = |dir: &PathBuf| serde_json::from_slice(&fs::read(dir.join("ref.json")).unwrap()).unwrap();
    dirs.iter().map(|dir| (dir.clone(), reference(dir))).collect()
}

fn case(name: &str) -> Option<(PathBuf, Value)> {
    cases().into_iter().find(|(dir, _)| dir.ends_with(name))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn joined(ids: &Value) -> String {
    list(ids).iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

/// The prompts with pictures, and these pictures' files.
fn prompts<'r>(dir: &Path, reference: &'r Value) -> impl Iterator<Item = (&'r Value, Vec<String>)> {
    let dir = dir.to_path_buf();
    let prompts = list(&reference["prompts"]).iter().filter(|prompt| !list(&prompt["images"]).is_empty());
    prompts.map(move |prompt| {
        let file = |index: &Value| {
            let name = reference["images"][index.as_u64().unwrap() as usize]["file"].as_str().unwrap();
            path(&dir.join(name)).to_string()
        };
        (prompt, list(&prompt["images"]).iter().map(file).collect())
    })
}

fn prompt<'r>(reference: &'r Value, name: &str) -> &'r Value {
    list(&reference["prompts"]).iter().find(|prompt| prompt["name"] == name).unwrap()
}

/// Returns the text that the model answers to the prompt `name`. Checks that the prompt's tokens are the same as in
/// transformers.
fn answer(dir: &Path, reference: &Value, name: &str) -> String {
    let (prompt, files) = prompts(dir, reference).find(|(prompt, _)| prompt["name"] == name).unwrap();
    let model = dir.join("model.gguf");
    let images = files.iter().flat_map(|file| ["--image", file]);
    let args =
        ["generate", "-m", path(&model), "-p", prompt["text"].as_str().unwrap(), "--format", "json", "--kv", "f32"];
    let args = args.into_iter().chain(["-n", "16", "--temp", "0", "--ignore-eos"]).chain(images);
    let answer = json_of(&args.collect::<Vec<_>>());
    assert_eq!(answer["ids"], prompt["greedy"], "{} {name}", dir.display());
    answer["text"].as_str().unwrap().to_string()
}

#[test]
fn commands_read_pictures() {
    for (dir, reference) in cases() {
        let model = path(&dir.join("model.gguf")).to_string();
        for (prompt, files) in prompts(&dir, &reference) {
            let name = format!("{} {}", dir.display(), prompt["name"]);
            let images: Vec<&str> = files.iter().flat_map(|file| ["--image", file]).collect();
            let (text, ids) = (prompt["text"].as_str().unwrap(), joined(&prompt["ids"]));
            let run = |args: &[&str]| stdout(&[args, &["-m", &model], &images[..]].concat());
            let greedy = ["-n", "16", "--temp", "0", "--ignore-eos", "--format", "ids", "--kv", "f32"];
            let by_text = run(&[&["generate", "-p", text], &greedy[..]].concat());
            let wanted = prompt["greedy"].to_string();
            assert_eq!(by_text.trim().replace(' ', ""), wanted, "{name}");
            // Now gives the picture's tokens as ids, and reads the prompt in batches of another size. The answer must
            // stay the same.
            let by_ids = run(&[&["generate", "--ids", &ids, "-b", "16"], &greedy[..]].concat());
            assert_eq!(by_ids, by_text, "{name}");
            assert_eq!(run(&["tokenize", "-p", text]).trim(), ids, "{name}");
            let top = run(&["logits", "--ids", &ids, "--top", "1", "--kv", "f32"]);
            let first = top.lines().nth(1).unwrap().split_whitespace().next().unwrap();
            assert_eq!(first, prompt["greedy"][0].to_string(), "{name}");
        }
    }
}

#[test]
fn templates_show_pictures_as_transformers_does() {
    for (dir, reference) in cases() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("talk.json");
        for template in list(&reference["templates"]).iter().filter(|case| case["add_generation_prompt"] == true) {
            fs::write(&file, template["messages"].to_string()).unwrap();
            let model = dir.join("model.gguf");
            let args = ["chat", "-m", path(&model), "--messages", path(&file), "--print-prompt"];
            match template["want"].as_str() {
                Some(wanted) => assert_eq!(stdout(&args), wanted, "{} {template}", dir.display()),
                None => assert!(!arenite(&args).status.success(), "{} {template}", dir.display()),
            }
        }
    }
}

/// Lists the tensors and keys of a projector, without the name of the model. The token between the lines of Pixtral's
/// pictures is left out: it is a copy of an embedding, which is not needed.
fn listing(file: &[u8]) -> Vec<String> {
    let gguf = arenite::Gguf::parse(file).unwrap();
    let tensors = gguf.tensors().map(|tensor| {
        let hash = tensor.data.iter().fold(0u64, |hash, byte| hash.wrapping_mul(31) + u64::from(*byte));
        format!("{} {:?} {:?} {hash:x}", tensor.name, tensor.kind, tensor.dims)
    });
    let keys = gguf.keys().map(|(key, value)| format!("{key} {value:?}"));
    let mut all: Vec<String> = tensors.chain(keys).collect();
    all.retain(|line| {
        // llama.cpp has limits of its own for the pixels.
        ![
            "arenite.",
            "general.name",
            "general.size_label",
            "v.token_embd.img_break",
            "clip.vision.image_min_pixels",
            "clip.vision.image_max_pixels",
        ]
        .iter()
        .any(|own| line.starts_with(own))
    });
    all.sort();
    all
}

#[test]
fn checkpoints_become_a_model_and_a_projector() {
    for (dir, _) in cases() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("m.gguf");
        let output = arenite(&["convert", "hf", path(&dir), path(&model), "--type", "f32"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && told.contains("mmproj-m.gguf: the projector"), "{}: {told}", dir.display());
        let made = listing(&fs::read(folder.path().join("mmproj-m.gguf")).unwrap());
        let wanted = listing(&fs::read(dir.join("mmproj.gguf")).unwrap());
        let differs =
            |a: &[String], b: &[String]| a.iter().filter(|line| !b.contains(line)).cloned().collect::<Vec<_>>();
        assert_eq!((differs(&made, &wanted), differs(&wanted, &made)), (vec![], vec![]), "{}", dir.display());
    }
}

/// Copies the checkpoint of a case, and changes the settings of the image processor.
fn with_processor(dir: &Path, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        fs::copy(dir.join(name), folder.path().join(name)).unwrap();
    }
    let mut json: Value = serde_json::from_slice(&fs::read(dir.join("processor_config.json")).unwrap()).unwrap();
    change(&mut json["image_processor"]);
    fs::write(folder.path().join("processor_config.json"), json.to_string()).unwrap();
    folder
}

#[test]
fn pictures_have_the_sizes_of_the_image_processor() {
    // Numbers of tokens in transformers 5.24.
    let marked = "<|vision_start|><|image_pad|><|vision_end|> hello";
    for (name, prompt, values, count) in [
        ("qwen3vl_a", marked, json!({ "size": { "shortest_edge": 65536, "longest_edge": 16_777_216 } }), 83),
        ("qwen25vl_a", marked, json!({ "size": null, "min_pixels": 3136, "max_pixels": 4704 }), 9),
        ("lfm2vl_a", "<image> hello", json!({ "min_image_tokens": 16, "max_image_tokens": 64 }), 31),
        ("mistral3_a", "[IMG] hello", json!({ "size": { "longest_edge": 70 } }), 12),
    ] {
        let Some((dir, _)) = case(name) else { return };
        let folder = with_processor(&dir, |processor| {
            values.as_object().unwrap().iter().for_each(|(key, value)| processor[key] = value.clone());
        });
        let model = folder.path().join("m.gguf");
        stdout(&["convert", "hf", path(folder.path()), path(&model)]);
        let picture = dir.join("img2.png");
        let ids = json_of(&["tokenize", "-m", path(&model), "-p", prompt, "--image", path(&picture), "--json"]);
        assert_eq!(list(&ids).len(), count, "{name} {values}");
    }
}

#[test]
fn a_projector_that_cannot_be_written_is_an_error_if_it_is_described() {
    let Some((dir, _)) = case("gemma3_a") else { return };
    let folder = with_processor(&dir, |processor| processor["resample"] = 0.into());
    let model = folder.path().join("m.gguf");
    let told = error(&["convert", "hf", path(folder.path()), path(&model)]);
    assert!(told.contains("without its projector") && told.contains("resample is 0"), "{told}");
    for name in ["processor_config.json", "preprocessor_config.json"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    stdout(&["convert", "hf", path(folder.path()), path(&model)]);
}

fn serve(dir: &Path, more: &[&str]) -> Server {
    let model = dir.join("model.gguf");
    Server::start(&[&["-m", path(&model), "--kv", "f32", "-c", "2048", "--parallel", "2"], more].concat())
}

fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    server.post(path, body.to_string().as_bytes())
}

fn get(server: &Server, path: &str) -> Value {
    serde_json::from_str(&server.ask("GET", path, "", b"").1).unwrap()
}

fn good(server: &Server, path: &str, body: &Value) -> Value {
    let (status, answer) = post(server, path, body);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

#[test]
fn every_interface_of_the_server_takes_pictures() {
    for name in ["idefics3_a", "gemma3_a", "qwen3vl_a", "lfm2vl_a"] {
        let Some((dir, reference)) = case(name) else { return };
        let server = serve(&dir, &[]);
        let chat = prompt(&reference, "chat");
        let image = &reference["images"][chat["images"][0].as_u64().unwrap() as usize];
        let data = BASE64_STANDARD.encode(fs::read(dir.join(image["file"].as_str().unwrap())).unwrap());
        let url = format!("data:image/jpeg;base64,{data}");
        let wanted = answer(&dir, &reference, "chat");
        let said = chat["messages"][0]["content"][1]["text"].clone();
        let (text, input) = (json!({ "type": "text", "text": said }), json!({ "type": "input_text", "text": said }));
        let user = |content: Value| json!([{ "role": "user", "content": content }]);
        let body = |more: Value| {
            let mut body = json!({ "temperature": 0, "ignore_eos": true, "max_tokens": 16 });
            more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
            body
        };
        let options = json!({ "temperature": 0, "ignore_eos": true, "num_predict": 16 });
        for (path, request, answer) in [
            (
                "/v1/chat/completions",
                json!({ "messages": user(json!([{ "type": "image_url", "image_url": { "url": url } }, text])) }),
                "/choices/0/message/content",
            ),
            (
                "/v1/responses",
                json!({ "input": user(json!([{ "type": "input_image", "image_url": url }, input])), "max_output_tokens": 16 }),
                "/output/0/content/0/text",
            ),
            (
                "/v1/messages",
                json!({ "messages": user(json!([
                    { "type": "image", "source": { "type": "base64", "media_type": "image/jpeg", "data": data } }, text,
                ])) }),
                "/content/0/text",
            ),
            (
                "/api/chat",
                json!({ "messages": [{ "role": "user", "content": said, "images": [data] }], "stream": false, "options": options }),
                "/message/content",
            ),
            (
                "/api/generate",
                json!({ "prompt": said, "images": [data], "stream": false, "options": options }),
                "/response",
            ),
            (
                "/completion",
                json!({ "prompt": { "prompt_string": chat["text"], "multimodal_data": [data] }, "n_predict": 16 }),
                "/content",
            ),
        ] {
            let answer = good(&server, path, &body(request)).pointer(answer).cloned();
            assert_eq!(answer, Some(json!(wanted)), "{name} {path}");
        }
        let count = json!({ "messages": user(json!([{ "type": "image", "source": { "data": data } }, text])) });
        let count = good(&server, "/v1/messages/count_tokens", &body(count));
        assert_eq!(count["input_tokens"], list(&chat["ids"]).len(), "{name}");
        assert_eq!(get(&server, "/props")["modalities"]["vision"], true, "{name}");
        let card = get(&server, "/v1/models")["data"][0]["capabilities"].clone();
        assert!(list(&card).contains(&json!("vision")), "{name}: {card}");
    }
}

#[test]
fn two_pictures_never_share_a_prefix() {
    for name in ["idefics3_a", "qwen3vl_a", "lfm2vl_a"] {
        let Some((dir, reference)) = case(name) else { return };
        let server = serve(&dir, &[]);
        let one = prompt(&reference, "one");
        let asked = |index: usize| {
            let file = dir.join(reference["images"][index]["file"].as_str().unwrap());
            let data = BASE64_STANDARD.encode(fs::read(file).unwrap());
            let prompt = json!({ "prompt_string": one["text"], "multimodal_data": [data] });
            let body = json!({ "prompt": prompt, "n_predict": 16, "temperature": 0, "ignore_eos": true, "return_tokens": true });
            good(&server, "/completion", &body)
        };
        let right = one["images"][0].as_u64().unwrap() as usize;
        let first = asked(right);
        assert_eq!(first["tokens"], one["greedy"], "{name}");
        for other in (0..3).filter(|other| *other != right) {
            assert_ne!(asked(other)["tokens"], one["greedy"], "{name} {other}");
            let again = asked(right);
            assert_eq!(again["tokens"], one["greedy"], "{name} after {other}");
            // The same picture is not read again.
            assert!(again["timings"]["prompt_n"].as_u64() < first["timings"]["prompt_n"].as_u64(), "{name}: {again}");
        }
    }
}

#[test]
fn a_conversation_keeps_its_pictures() {
    let Some((dir, _)) = case("idefics3_a") else { return };
    let (model, image) = (dir.join("model.gguf"), dir.join("img0.png"));
    let args = ["chat", "-m", path(&model), "--image", path(&image), "--temp", "0", "-n", "6", "--kv", "f32"];
    let talk = arenite_with(&args, b"What is it?\nAnd now?\n").stdout;
    let server = serve(&dir, &[]);
    let url = format!("data:image/png;base64,{}", BASE64_STANDARD.encode(fs::read(&image).unwrap()));
    let question =
        json!([{ "type": "image_url", "image_url": { "url": url } }, { "type": "text", "text": "What is it?" }]);
    let body = json!({ "messages": [{ "role": "user", "content": question }], "temperature": 0, "max_tokens": 6 });
    let answer = good(&server, "/v1/chat/completions", &body)["choices"][0]["message"]["content"].clone();
    let talk = String::from_utf8_lossy(&talk).into_owned();
    assert!(talk.starts_with(answer.as_str().unwrap()), "{talk}: {answer}");
    // A picture that the conversation already contains is not read again.
    let mut messages = body["messages"].clone();
    let next = [json!({ "role": "assistant", "content": answer }), json!({ "role": "user", "content": "And now?" })];
    messages.as_array_mut().unwrap().extend(next);
    let answer =
        good(&server, "/v1/chat/completions", &json!({ "messages": messages, "temperature": 0, "max_tokens": 6 }));
    let usage = &answer["usage"];
    assert!(usage["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(60), "{usage}");
}

#[test]
fn lines_of_a_batch_have_pictures() {
    let Some((dir, reference)) = case("qwen3vl_a") else { return };
    let chat = prompt(&reference, "chat");
    let image = &reference["images"][chat["images"][0].as_u64().unwrap() as usize]["file"];
    let data = BASE64_STANDARD.encode(fs::read(dir.join(image.as_str().unwrap())).unwrap());
    let picture = json!({ "type": "image_url", "image_url": { "url": format!("data:image/jpeg;base64,{data}") } });
    let content = [picture, chat["messages"][0]["content"][1].clone()];
    let body = json!({
        "messages": [{ "role": "user", "content": content }], "temperature": 0, "max_tokens": 16, "ignore_eos": true,
    });
    let line = json!({ "custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body });
    let model = dir.join("model.gguf");
    let args = ["batch", "-m", path(&model), "--kv", "f32", "-i", "-", "-o", "-"];
    let answer: Value = serde_json::from_str(&stdout_with(&args, format!("{line}\n").as_bytes())).unwrap();
    let said = &answer["response"]["body"]["choices"][0]["message"]["content"];
    assert_eq!(said, &self::answer(&dir, &reference, "chat"), "{answer}");
}

#[test]
fn programs_show_pictures() {
    use arenite_run::{Loaded, Message, Request, RunOptions};

    let Some((dir, reference)) = case("idefics3_a") else { return };
    let model = dir.join("model.gguf");
    let options = RunOptions { kv: Some(arenite::KvType::F32), threads: 1, ..RunOptions::default() };
    let loaded = Loaded::open(&*model, options).unwrap();
    let one = prompt(&reference, "one");
    let image = &reference["images"][one["images"][0].as_u64().unwrap() as usize]["file"];
    let picture = fs::read(dir.join(image.as_str().unwrap())).unwrap();
    let request = Request::from(one["text"].as_str().unwrap()).picture(picture.clone()).temperature(0.0).max_tokens(16);
    let said = loaded.generate(request).unwrap().text().unwrap();
    assert_eq!(said, answer(&dir, &reference, "one"));
    let messages = [Message::user("What is it?").picture(picture)];
    assert!(!loaded.chat(Request::from(&messages[..]).max_tokens(3)).unwrap().text().unwrap().is_empty());
}

#[test]
fn pictures_that_cannot_be_read_are_refused() {
    let Some((dir, _)) = case("idefics3_a") else { return };
    let file = |name: &str| path(&dir.join(name)).to_string();
    let (model, mmproj, image) = (file("model.gguf"), file("mmproj.gguf"), file("img0.png"));
    let run = |more: &[&str]| error(&[&["logits", "-m", &model, "--top", "1", "--image", &image], more].concat());
    assert!(run(&["--mmproj", &mmproj, "--ids", "1,2"]).contains("room for 0"));
    assert!(run(&["--mmproj", &model, "--ids", "1,2"]).contains("encoder of pictures"));
    assert!(run(&["-p", "a", "--no-mmproj"]).contains("--mmproj"));
    assert!(run(&["-p", "a", "--image", &model]).contains("picture 2: this is no picture"));
    let blind = path(&committed("tests/fixtures/stories.gguf")).to_string();
    assert!(error(&["generate", "-m", &blind, "-p", "a", "--image", &image]).contains("--mmproj"));

    let server = serve(&dir, &[]);
    let data = BASE64_STANDARD.encode(fs::read(&image).unwrap());
    let chat = |content: Value| {
        post(&server, "/v1/chat/completions", &json!({ "messages": [{ "role": "user", "content": content }] }))
    };
    let url = |url: &str| json!([{ "type": "image_url", "image_url": { "url": url } }]);
    for (content, words) in [
        (url("https://a.example/b.png"), "--allow-image-url"),
        (url("/etc/passwd"), "data URL"),
        (url("data:image/png;base64,AAAA"), "no picture"),
        (json!(vec![url(&format!("data:image/png;base64,{data}"))[0].clone(); 65]), "at most 64"),
    ] {
        let (status, answer) = chat(content);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(words) && !message.contains('\n'), "{answer}");
    }
    let server = Server::start(&[]);
    let body = json!({ "messages": [{ "role": "user", "content": url(&format!("data:image/png;base64,{data}")) }] });
    let (status, answer) = post(&server, "/v1/chat/completions", &body);
    assert!(status == 400 && answer["error"]["message"].as_str().unwrap().contains("--mmproj"), "{answer}");
    let fetching = Server::start(&["--allow-image-url", "-m", &model]);
    let body = json!({ "messages": [{ "role": "user", "content": url("http://127.0.0.1:9/a.png") }] });
    let (status, answer) = post(&fetching, "/v1/chat/completions", &body);
    assert!(status == 400 && answer["error"]["message"].as_str().unwrap().contains("public internet"), "{answer}");
}
