//! Errors for files that are not models, prompts that do not fit, and models that give no answer. Each message explains
//! the problem, and every command that a message names exists.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use arenite_gguf_writer::Header;
use serde_json::{Value, json};

use crate::common::{
    arenite, arenite_with, committed, error, fixtures, json as json_of, lines, npy, path, stdout, stdout_with,
};
use crate::serve::Server;

/// A directory with files that are not models.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Writes a GGUF file with these keys, and with one tensor if `has_tensor` is true.
    fn gguf(&self, name: &str, keys: &[(&str, &str)], has_tensor: bool) -> PathBuf {
        let mut header = Header::new();
        keys.iter().for_each(|(key, value)| header.set(key, *value));
        if has_tensor {
            header.tensor("blk.0.attn_q.weight.lora_a", &[4], arenite::quant::TensorType::F32).expect("a tensor");
        }
        let mut data = header.write(std::io::Cursor::new(Vec::new())).expect("a header");
        if has_tensor {
            data.write_all(&[0; 16]).expect("a tensor");
        }
        let bytes = data.finish().expect("a file").into_inner();
        self.file(name, bytes)
    }
}

/// Checks that every `arenite COMMAND` in a message has a help text.
fn commands_exist(message: &str) {
    for quoted in message.split('`').skip(1).step_by(2) {
        let mut words = quoted.split_whitespace();
        if words.next() != Some("arenite") {
            continue;
        }
        let command = words.next().expect("a command");
        let mut args = vec![command];
        args.extend(words.next().filter(|_| command == "convert"));
        args.push("--help");
        let help = arenite(&args);
        assert!(help.status.success(), "{message}");
        let help = String::from_utf8(help.stdout).expect("UTF-8");
        for flag in quoted.split_whitespace().filter(|word| word.starts_with("--")) {
            assert!(help.contains(flag), "{message}: {flag}");
        }
    }
}

#[track_caller]
fn says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    commands_exist(message);
}

/// Checks the error of `generate` with this model file.
#[track_caller]
fn of(model: &Path, words: &[&str]) {
    says(&error(&["generate", "-m", path(model), "-p", "a"]), words);
}

#[test]
fn gguf_files_that_are_no_models() {
    let files = Files::new();
    let adapter = files.gguf(
        "lora.gguf",
        &[("general.architecture", "llama"), ("general.type", "adapter"), ("adapter.type", "lora")],
        true,
    );
    of(&adapter, &["LoRA adapter", &format!("--lora {}", path(&adapter)), "arenite merge BASE.gguf"]);
    says(&error(&["chat", "-m", path(&adapter)]), &["LoRA adapter"]);
    says(&error(&["run", path(&adapter), "a"]), &["LoRA adapter"]);
    let vision = files.gguf("mmproj.gguf", &[("general.architecture", "clip"), ("general.type", "mmproj")], true);
    of(&vision, &["mmproj", "give the other GGUF file"]);
    let matrix = files.gguf("imatrix.gguf", &[("general.type", "imatrix")], true);
    of(&matrix, &["importance matrix", "--imatrix"]);
    let control = files.gguf("control.gguf", &[("general.architecture", "controlvector")], true);
    of(&control, &["control vector"]);
    let words = files.gguf("vocab.gguf", &[("general.architecture", "llama")], false);
    of(&words, &["a vocabulary and no weights", "arenite tokenize"]);
    let newer = files.gguf("newer.gguf", &[("general.architecture", "llama5")], true);
    of(&newer, &["'llama5' is not supported", "nearest supported one is 'llama4'", "arenite inspect --architectures"]);
    let index = files.gguf("notes.index", &[("general.architecture", "index")], false);
    of(&index, &["index of `arenite index`", &format!("arenite search {}", path(&index))]);
    let speech = committed("tests/fixtures/whisper_b/model.gguf");
    for command in ["generate", "translate"] {
        says(&error(&[command, "-m", path(&speech), "-p", "a"]), &["speech model", "arenite listen -m"]);
    }
    let image = files.gguf("image.gguf", &[("general.architecture", "flux")], true);
    of(&image, &["makes images"]);
    let listed = stdout(&["inspect", "--architectures"]);
    assert!(listed.lines().any(|name| name == "qwen3moe") && listed.lines().is_sorted(), "{listed}");

    of(&files.file("v1.gguf", b"GGUF\x01\0\0\0\0\0\0\0\0\0\0\0"), &["version 1 of GGUF", "arenite pull"]);
    let big = files.file("big.gguf", b"GGUF\0\0\0\x03\0\0\0\0\0\0\0\0");
    of(&big, &["big-endian", &format!("`gguf-convert-endian {} little`", path(&big))]);
    of(&files.file("short.gguf", b"GGUF\x03\0\0\0"), &["cut short or damaged"]);
}

#[test]
fn weights_in_other_formats() {
    let files = Files::new();
    let safetensors = |name: &str, header: &str| {
        files.file(name, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat())
    };
    let weights =
        safetensors("my model/model.safetensors", r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#);
    of(&weights, &["safetensors", &format!("`arenite convert hf '{}' OUT.gguf`", path(&weights))]);
    let adapter = safetensors("peft/adapter_model.safetensors", r#"{"a.lora_A.weight":{}}"#);
    of(&adapter, &["LoRA adapter of PEFT", "arenite convert lora", "peft OUT.gguf"]);
    let whisper = [&b"lmgg"[..], &51865u32.to_le_bytes(), &[0; 40]].concat();
    of(&files.file("ggml-tiny.bin", whisper), &["it ends after 48 bytes", "fetch it again"]);
    of(&files.file("old.bin", [&b"lmgg"[..], &32000u32.to_le_bytes(), &[0; 40]].concat()), &["before GGUF"]);
    of(&files.file("old.bin", b"tjgg\x03\0\0\0"), &["before GGUF", "arenite pull"]);
    let torch = b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pklFB".as_slice();
    for name in ["pytorch_model.bin", "consolidated.00.pth", "ckpt.pt"] {
        of(&files.file(name, torch), &["checkpoint of PyTorch", "arenite convert hf", name]);
    }
    of(
        &files.file("legacy.bin", b"\x80\x02\x8a\nl\xfc\x9c"),
        &["this is a pickle", "torch.save", "arenite convert hf"],
    );
    let old = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.";
    of(&files.file("old.pt", old), &["checkpoint of PyTorch", "arenite convert hf", "old.pt"]);
    of(&files.file("model.h5", b"\x89HDF\r\n\x1a\n"), &["Keras", "save_pretrained"]);
    of(&files.file("m.tflite", b"\x1c\0\0\0TFL3"), &["TensorFlow Lite"]);
    of(&files.file("a.mp3", b"ID3\x04\0\0\xff\xfb"), &["this is sound", "arenite listen"]);
    of(&files.file("m.onnx", b"\x08\x07\x12\x07pytorch"), &["ONNX"]);
    of(&files.file("model.bin", b"\x01\x02\x03\xff\xff\xfe"), &["neither GGUF nor", "arenite convert hf"]);
    of(&files.file("tokenizer.model", b"\n\x0e\n\x05<unk>\x15"), &["vocabulary", "--tokenizer", "convert tokenizer"]);
}

#[test]
fn texts_under_the_name_of_a_model() {
    let files = Files::new();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1321079200\n";
    of(&files.file("a.gguf", pointer), &["git-lfs pointer", "1.23 GiB", "git lfs pull", "arenite pull"]);
    for page in ["<!DOCTYPE html><html></html>", "\n<html lang=en>", "<?xml version=\"1.0\"?><Error>"] {
        of(&files.file("a.gguf", page), &["web page", "arenite pull", "/resolve/"]);
    }
    for message in ["Entry not found", "Invalid username or password.", "{\"error\":\"gated\"}"] {
        of(&files.file("a.gguf", message), &["error message of a server", "HF_TOKEN"]);
    }
    let model = files.file("m.gguf", fs::read(committed("tests/fixtures/stories.gguf")).expect("a model"));
    of(&files.file("Modelfile", "# mine\nFROM ./m.gguf\nPARAMETER temperature 1\n"), &["Modelfile", path(&model)]);
    of(&files.file("Modelfile", "from llama3.2:1b\n"), &["Modelfile", "`llama3.2:1b`", "-hf USER/REPO"]);
    let vocabulary = r#"{"version": "1.0", "added_tokens": [], "model": {"type": "BPE"}}"#;
    of(&files.file("tokenizer.json", vocabulary), &["vocabulary (tokenizer.json)", "--tokenizer", "convert tokenizer"]);
    of(&files.file("b/config.json", r#"{"model_type": "llama"}"#), &["checkpoint of Hugging Face", "b OUT.gguf`"]);
    of(&files.file("c/adapter_config.json", r#"{"peft_type": "LORA"}"#), &["arenite convert lora"]);
    of(&files.file("d/model.safetensors.index.json", r#"{"weight_map": {}}"#), &["arenite convert hf"]);
    of(&files.file("talk.json", r#"[{"role": "user", "content": "a"}]"#), &["arenite chat --messages"]);
    of(&files.file("g.gbnf", "root ::= \"a\"\n"), &["grammar", "--grammar"]);
    of(&files.file("t.jinja", "{% for m in messages %}{% endfor %}"), &["arenite chat --chat-template"]);
    of(&files.file("prompt.txt", "Once upon a time"), &["-f "]);
    of(&files.file("zeros.gguf", [0; 8192]), &["begins with zeros", "arenite pull"]);
    of(&files.file("m.gguf.part", [7, 1, 2, 3, 200, 0]), &["part of a download"]);
    let second = files.file("p/m.gguf.part2of2", [7; 9]);
    let first = fs::read(&model).expect("a model");
    for part in [&files.file("p/m.gguf.part1of2", &first[..first.len() / 2]), &second] {
        of(part, &["byte part of m.gguf", "`cat m.gguf.part1of2 m.gguf.part2of2 > m.gguf`"]);
    }
}

#[test]
fn archives() {
    let files = Files::new();
    for (name, start, command) in [
        ("m.gguf.gz", &b"\x1f\x8b\x08\0"[..], "gunzip "),
        ("m.tar.gz", b"\x1f\x8b\x08\0", "tar -xf "),
        ("m.zip", b"PK\x03\x04\x14\0\0\0", "unzip "),
        ("m.xz", b"\xfd7zXZ\0", "unxz "),
        ("m.zst", b"\x28\xb5\x2f\xfd", "unzstd "),
        ("m.7z", b"7z\xbc\xaf\x27\x1c", "7z x "),
        ("m.llamafile", b"MZqFpD='", "unzip "),
    ] {
        let file = files.file(name, start);
        of(&file, &[&format!("`{command}{}", path(&file))]);
    }
    of(&files.file("m", b"\x7fELF\x02\x01"), &["a program"]);
}

#[test]
fn folders_and_names_of_models_elsewhere() {
    let files = Files::new();
    files.file("hf/config.json", r#"{"model_type": "llama"}"#);
    of(
        &files.at("hf"),
        &["checkpoint of Hugging Face", &format!("`arenite convert hf {} OUT.gguf`", path(&files.at("hf")))],
    );
    files.file("marian/config.json", r#"{"model_type": "marian"}"#);
    of(&files.at("marian"), &["arenite convert seq2seq"]);
    files.file("peft/adapter_config.json", "{}");
    of(&files.at("peft"), &["arenite convert lora"]);
    let inside = files.file("two/b.gguf", "");
    files.file("two/c.gguf", "");
    files.file("two/mmproj.gguf", "");
    of(&files.at("two"), &["give a file in it", path(&inside), "2 models"]);
    files.file("weights/model.safetensors", "");
    of(&files.at("weights"), &["no config.json"]);
    files.file("models--me--small/refs/main", "");
    files.file("models--me--small/snapshots/a/x", "");
    of(&files.at("models--me--small"), &["-hf me/small"]);
    fs::create_dir(files.at("empty")).expect("a folder");
    of(&files.at("empty"), &["a directory without a model", "arenite pull"]);

    of(Path::new("Qwen/Qwen3-0.6B-GGUF:Q8_0"), &["no such file", "-hf Qwen/Qwen3-0.6B-GGUF:Q8_0"]);
    of(Path::new("hf.co/a/b"), &["-hf a/b"]);
    of(Path::new("llama3.2"), &["Ollama", "`ollama show llama3.2 --modelfile`", "-hf USER/REPO"]);
    of(Path::new("no/such/file.gguf"), &["no such file", "check the path"]);
    of(&files.at("two/bb.gguf"), &["check the path", path(&inside)]);

    // Ollama's files, with the digest of the model in a list.
    let list = json!({ "schemaVersion": 2, "layers": [
        { "mediaType": "application/vnd.ollama.image.template", "digest": "sha256:11" },
        { "mediaType": "application/vnd.ollama.image.model", "digest": "sha256:22" },
    ] });
    let list = files.file("models/manifests/registry.ollama.ai/library/tiny/latest", list.to_string());
    of(&list, &["Ollama's list", "ollama pull"]);
    let blob = files.file("models/blobs/sha256-22", "");
    of(&list, &["Ollama's list", "models/blobs/sha256-22"]);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_arenite"))
        .args(["-m", "tiny", "-p", "a"])
        .env("OLLAMA_MODELS", files.at("models"))
        .output()
        .expect("the binary runs");
    says(&String::from_utf8_lossy(&output.stderr), &["name of Ollama's", path(&blob)]);
}

#[test]
fn all_tokens_of_a_prompt_are_counted() {
    let prompt = "The sun is warm. ".repeat(90);
    let ids = stdout(&["tokenize", "-p", &prompt, "--add-special", "--json"]);
    let count = serde_json::from_str::<Vec<u32>>(&ids).expect("ids").len();
    let whole = format!("{count} tokens");
    for command in [&["generate", "-n", "1"][..], &["logits", "--top", "1"], &["probe", "-o", "x.npy"]] {
        let args = |size: &'static str| [command, &["-p", &prompt, "-c", size, "-b", "16"]].concat();
        says(&error(&args("64")), &[&whole, "only 64 positions", &format!("give -c {count} or more")]);
    }
    let size = count.to_string();
    assert!(arenite(&["generate", "-n", "1", "-p", &prompt, "-c", &size]).status.success());
    let line = json!({ "prompt": prompt, "continuation": " warm" }).to_string();
    let output = arenite_with(&["score", "--jsonl", "-c", "64"], line.as_bytes());
    says(&String::from_utf8_lossy(&output.stderr), &["only 64 positions", "give -c "]);
    let output = arenite_with(&["chat", "-c", "64", "--template", "chatml"], prompt.as_bytes());
    says(&String::from_utf8_lossy(&output.stderr), &["of 64 positions", "or more gives a larger context"]);
    // Learned positions cannot be exceeded.
    let gpt2 = committed("tests/fixtures/gpt2/model.gguf");
    let long = "1,".repeat(2000) + "1";
    says(&error(&["logits", "-m", path(&gpt2), "--ids", &long, "--top", "1"]), &["2001 tokens", "shorten the text"]);
}

/// Returns a reranker with 512 learned positions. Each character is a token.
fn reranker() -> PathBuf {
    committed("tests/fixtures/bert_reranker/model.gguf")
}

#[test]
fn a_long_text_of_an_encoder_is_cut_or_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (model, file) = (reranker(), directory.path().join("x.npy"));
    let text = "the clocks ".repeat(80);
    fn with<'a>(model: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        [&["embed", "-m", model, "--no-normalize", "--kv", "f32"], args].concat()
    }
    macro_rules! embed {
        ($args:expr) => {
            with(path(&model), $args)
        };
    }
    let error = error(&embed!(&["-p", &text]));
    says(&error, &["only 512 positions", "--truncate"]);
    says(&crate::common::error(&embed!(&["-p", &text, "-c", "9000"])), &["only 512 positions", "--truncate"]);
    // The vector of a cut text is that of a text with only the first tokens and the end token.
    let ids: Vec<u32> =
        serde_json::from_str(&stdout(&["tokenize", "-m", path(&model), "-p", &text, "--add-special", "--json"]))
            .expect("ids");
    let vector = |args: &[&str]| {
        stdout(&[&embed!(args)[..], &["-o", path(&file)]].concat());
        npy(&file).1
    };
    let by_ids = |count: usize| {
        let kept = ids[..count - 1].iter().chain(ids.last()).map(u32::to_string).collect::<Vec<_>>().join(",");
        vector(&["--ids", &kept])
    };
    assert_eq!(vector(&["-p", &text, "--truncate"]), by_ids(512));
    assert_eq!(vector(&["-p", &text, "--truncate", "-c", "40"]), by_ids(40));
    // The second of three texts is too long.
    let input = format!("\"a\"\n{}\n\"b\"\n", Value::from(text.as_str()));
    let output = arenite_with(&embed!(&["--jsonl"]), input.as_bytes());
    let answers = lines(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert!(output.status.code() == Some(1) && answers.len() == 3, "{answers:?}");
    assert!(answers[0]["embedding"].is_array() && answers[2]["embedding"].is_array(), "{answers:?}");
    says(answers[1]["error"].as_str().expect("an error"), &["only 512 positions", "--truncate"]);
    let answers = lines(&stdout_with(&embed!(&["--jsonl", "--truncate"]), input.as_bytes()));
    assert!(answers.iter().all(|answer| answer["embedding"].is_array()) && answers[1]["tokens"] == 512, "{answers:?}");
}

#[test]
fn one_long_document_does_not_stop_a_ranking() {
    let model = reranker();
    let reference: Value =
        serde_json::from_slice(&fs::read(model.with_file_name("ref.json")).expect("a file")).expect("JSON");
    let pair = &reference["prompts"][0];
    let (query, document) = (pair["query"].as_str().expect("a text"), pair["document"].as_str().expect("a text"));
    let score = pair["score"].as_f64().expect("a score");
    let long = "striking ".repeat(100);
    let input = format!("{long}\n{document}\n");
    let args = ["rerank", "-m", path(&model), "-p", query, "--kv", "f32"];
    let output = arenite_with(&args, input.as_bytes());
    let answers = lines(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert!(output.status.code() == Some(1) && answers.len() == 2, "{answers:?}");
    let is_score = |answer: &Value| (answer["relevance_score"].as_f64().expect("a score") - score).abs() < 2e-5;
    assert!(answers[0]["index"] == 1 && is_score(&answers[0]), "{answers:?}");
    assert_eq!(answers[1]["index"], 0);
    says(answers[1]["error"].as_str().expect("an error"), &["only 512 positions", "--truncate"]);

    let cut = lines(&stdout_with(&[&args[..], &["--truncate"]].concat(), input.as_bytes()));
    assert!(cut.len() == 2 && is_score(cut.iter().find(|answer| answer["index"] == 1).expect("an answer")), "{cut:?}");
    // A document of `room` characters has the same tokens.
    let room = 512 - pair["second"].as_u64().expect("a number") as usize - 1;
    let shorter = json_of(&["tokenize", "-m", path(&model), "-p", &long, "--json"]);
    let kept = shorter.as_array().expect("ids")[..room].iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    let shorter = stdout(&["detokenize", "-m", path(&model), "--ids", &kept]);
    let same = lines(&stdout_with(&args, format!("{}\n", shorter.trim_end()).as_bytes()));
    let of_long = cut.iter().find(|answer| answer["index"] == 0).expect("an answer");
    let difference =
        of_long["relevance_score"].as_f64().expect("a score") - same[0]["relevance_score"].as_f64().expect("a score");
    assert!(difference.abs() < 0.05, "{of_long} {same:?}");
}

#[test]
fn the_server_cuts_or_refuses_one_text() {
    let model = committed("tests/fixtures/nomic_bert/model.gguf");
    let server = Server::start_with(&["-m", path(&model), "-c", "512"]);
    let post = |path: &str, body: &Value| server.post(path, body.to_string().as_bytes());
    let long = "striking ".repeat(600);
    let (status, answer) = post("/v1/embeddings", &json!({ "input": ["a", long, "b"] }));
    assert!(status == 400 && answer["error"]["code"] == "context_length_exceeded", "{answer}");
    let message = answer["error"]["message"].as_str().expect("a text");
    says(message, &["input[1]: a text has", "1 to 512 are possible", "truncate_prompt_tokens"]);
    let several = json!({ "input": ["a", long], "truncate": false });
    let (status, answer) = post("/api/embed", &several);
    assert!(status == 400 && answer["error"].as_str().is_some_and(|why| why.contains("input[1]")), "{answer}");
    assert_eq!(post("/embedding", &json!({ "content": ["a", long] })).0, 400);
    assert_eq!(post("/v1/embeddings", &json!({ "input": long })).0, 400);
    for limit in [json!(-1), json!(100)] {
        let (status, answer) =
            post("/v1/embeddings", &json!({ "input": ["a", long], "truncate_prompt_tokens": limit }));
        assert!(status == 200 && answer["data"][1]["embedding"][0].is_f64(), "{answer}");
    }
    let (_, answer) = post("/v1/embeddings", &json!({ "input": long, "truncate_prompt_tokens": 100 }));
    assert_eq!(answer["usage"]["prompt_tokens"], 100);
    assert_eq!(post("/v1/embeddings", &json!({ "input": "a", "truncate_prompt_tokens": 0 })).0, 400);
    drop(server);
    let model = reranker();
    let server = Server::start_with(&["-m", path(&model), "--kv", "f32", "-c", "512"]);
    let post = |path: &str, body: &Value| server.post(path, body.to_string().as_bytes());
    let long = "striking ".repeat(100);
    let documents = json!({ "query": "clocks in April", "documents": [long, "The clocks were striking thirteen."] });
    let with = |key: &str, value: Value| {
        let mut body = documents.clone();
        body[key] = value;
        body
    };
    // Cohere cuts long documents; llama.cpp refuses them.
    for (path, body) in [
        ("/v1/rerank", documents.clone()),
        ("/v2/rerank", with("raw_scores", json!(true))),
        ("/rerank", with("max_tokens_per_doc", json!(4096))),
        ("/rerank", with("truncate_prompt_tokens", json!(-1))),
        ("/rerank", with("truncate", json!("END"))),
    ] {
        let (status, answer) = post(path, &body);
        let results = answer["results"].as_array().unwrap_or_else(|| panic!("{path} {body}: {answer}"));
        assert!(status == 200 && results.iter().all(|result| result["relevance_score"].is_f64()), "{answer}");
        let short = results.iter().find(|result| result["index"] == 1).expect("the second document");
        assert!((short["relevance_score"].as_f64().expect("a score") + 1.4804152250289917).abs() < 2e-5, "{answer}");
    }
    for (path, body) in [
        ("/rerank", documents.clone()),
        ("/v1/reranking", documents.clone()),
        ("/v2/rerank", with("truncate", json!("NONE"))),
        ("/rerank", json!({ "query": "clocks in April", "texts": documents["documents"] })),
    ] {
        let (status, answer) = post(path, &body);
        assert!(status == 400 && answer.to_string().contains("[0]: a pair of query and document has"), "{answer}");
    }
    drop(server);
    let server = Server::start_with(&["-c", "64"]);
    let body = json!({ "prompt": "The sun is warm. ".repeat(40), "max_tokens": 1, "truncate_prompt_tokens": 20 });
    let (status, answer) = server.post("/v1/completions", body.to_string().as_bytes());
    assert!(status == 200 && answer["usage"]["prompt_tokens"] == 20, "{answer}");
}

#[test]
fn files_in_the_wrong_place() {
    let files = Files::new();
    let model = committed("tests/fixtures/stories.gguf");
    let (model, out) = (path(&model), files.at("out.gguf"));
    let out = path(&out);
    says(&error(&["generate", "--lora", model, "-p", "a"]), &["no LoRA adapter", "arenite convert lora"]);
    says(&error(&["merge", model, model, out]), &["no LoRA adapter"]);
    says(&error(&["convert", "hf", model, out]), &["this is GGUF already", &format!("-m {model}")]);
    let legacy = files.file("pytorch_model.bin", b"\x80\x02\x8a\nl\xfc\x9c");
    says(&error(&["convert", "hf", path(&legacy), out]), &["this is a pickle", "torch.save"]);
    let pointer = files.file("model.safetensors", "version https://git-lfs.github.com/spec/v1\nsize 5\n");
    says(&error(&["convert", "hf", path(&pointer), out]), &["git-lfs pointer"]);
    let output = arenite(&["quantize", model, out]);
    says(&String::from_utf8_lossy(&output.stderr), &["give a type after", "Q4_K_M"]);
    let output = arenite_with(&["score", "--jsonl"], b"{\"text\": \"a\"}\n");
    says(&String::from_utf8_lossy(&output.stderr), &["`prompt` and `continuation`"]);
    assert!(!files.at("out.gguf").exists());
    // Importance matrices in the older format, which is not GGUF, can be read, too.
    let name = "blk.0.ffn_up.weight";
    let mut old = [&1i32.to_le_bytes()[..], &(name.len() as i32).to_le_bytes(), name.as_bytes()].concat();
    old.extend([1i32.to_le_bytes(), 4i32.to_le_bytes()].concat());
    (0..4).for_each(|_| old.extend(1f32.to_le_bytes()));
    let old = files.file("old.dat", old);
    let said = error(&["quantize", "--allow-requantize", "--imatrix", path(&old), model, out, "Q4_1"]);
    says(&said, &["the importance matrix has 4 columns for blk.0.ffn_up.weight"]);
}

/// Errors name types that llama.cpp has withdrawn, and types of ik_llama.cpp.
#[test]
fn unknown_types_of_tensors() {
    let files = Files::new();
    let model = fs::read(committed("tests/fixtures/stories.gguf")).expect("a model");
    let name = b"blk.0.attn_q.weight";
    let at = model.windows(name.len()).position(|part| part == name).expect("a tensor") + name.len() + 4 + 2 * 8;
    for (id, words) in [
        (31u32, ["repacked Q4_0", "such as Q4_0"]),
        (37, ["repacked IQ4_NL", "such as IQ4_NL"]),
        (144, ["a type of ik_llama.cpp", "such as Q4_K_M"]),
        (900, ["unknown", "another type"]),
    ] {
        let mut other = model.clone();
        other[at..at + 4].copy_from_slice(&id.to_le_bytes());
        let other = files.file("other.gguf", other);
        says(&error(&["generate", "-m", path(&other), "-p", "a"]), &words);
        says(&error(&["inspect", path(&other)]), &words);
    }
}

/// Files of byte-level vocabularies from before May 2024 do not name their rules for splitting texts. Such a file still
/// works, with a warning.
#[test]
fn a_vocabulary_without_its_pre_tokenizer() {
    let files = Files::new();
    let said = |model: &Path| {
        let output = arenite(&["tokenize", "-m", path(model), "-p", "I can't"]);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let without = |mut model: Vec<u8>| {
        let key = b"tokenizer.ggml.pre";
        let at = model.windows(key.len()).position(|part| part == key).expect("the key");
        model[at + key.len() - 1] = b'x';
        files.file("old.gguf", model)
    };
    let qwen = committed("tests/fixtures/qwen3/model.gguf");
    assert_eq!(said(&qwen), "");
    let old = without(fs::read(qwen).expect("a model"));
    says(&said(&old), &["does not name its pre-tokenizer", "tokenizer.ggml.pre=str:NAME IN OUT COPY`"]);
    let Some(llama) = fixtures("tokenizers/ggml-vocab-llama-bpe.gguf.gz") else { return };
    let output = std::process::Command::new("gzip").arg("-dc").arg(llama).output().expect("gzip runs");
    says(&said(&without(output.stdout)), &["not those of Llama 3", "tokenizer.ggml.pre=str:llama-bpe"]);
}

/// The part of a download that is not there yet is zeros.
#[test]
fn a_file_that_ends_in_zeros() {
    let files = Files::new();
    let said = |model: &Path| {
        let output = arenite(&["generate", "-m", path(model), "-p", "a", "-n", "1"]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let stories = committed("tests/fixtures/stories.gguf");
    assert!(!said(&stories).contains("zeros"));
    let mut model = fs::read(&stories).expect("a model");
    let half = model.len() / 2;
    model[half..].fill(0);
    says(&said(&files.file("half.gguf", model)), &["norm.weight are all zeros", "its download is not complete"]);
}

/// Folders of checkpoints that lack files, or whose weights are somewhere else.
#[test]
fn folders_without_weights() {
    const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    const PAGE: &str = "<!DOCTYPE html><html>Access denied</html>";
    let files = Files::new();
    let own = committed("tests/fixtures/convert/own_commands");
    let whole = |folder: &str| {
        for entry in fs::read_dir(&own).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = format!("{folder}/{}", entry.file_name().display());
            files.file(&name, fs::read(entry.path()).expect("a file"));
        }
    };
    let out = files.at("out.gguf");
    let of = |folder: &str, words: &[&str]| {
        says(&error(&["convert", "hf", path(&files.at(folder)), path(&out)]), words);
    };
    for (name, text, words) in [
        (
            "model.safetensors",
            POINTER,
            &["model.safetensors: this is a git-lfs pointer", "12.1 KiB", "git lfs pull"][..],
        ),
        ("tokenizer.json", POINTER, &["tokenizer.json: this is a git-lfs pointer"]),
        ("tokenizer_config.json", PAGE, &["tokenizer_config.json: this is a web page", "/resolve/"]),
        ("config.json", PAGE, &["config.json: this is a web page"]),
        ("model.safetensors", PAGE, &["model.safetensors: this is a web page"]),
    ] {
        whole("stand_in");
        files.file(&format!("stand_in/{name}"), text);
        of("stand_in", words);
    }
    whole("tiktoken");
    fs::remove_file(files.at("tiktoken/tokenizer.json")).expect("a file");
    files.file("tiktoken/tokenizer.model", "IQ== 0\nIg== 1\nIw== 2\n");
    of("tiktoken", &["a list of tiktoken", "tokenizer.json"]);
    for name in ["optimizer.pt", "scheduler.pt", "rng_state_0.pth", "training_args.bin"] {
        files.file(&format!("trainer/{name}"), b"x");
        files.file(&format!("deep/{name}"), b"x");
    }
    of("trainer", &["no model.safetensors"]);
    files.file("deep/global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", b"x");
    of("deep", &["no model.safetensors", "DeepSpeed", "zero_to_fp32.py"]);
    for number in [1, 3] {
        files.file(&format!("shards/model-0000{number}-of-00003.safetensors"), b"x");
    }
    of("shards", &["model-00002-of-00003.safetensors is missing"]);
    files.file("run/checkpoint-500/model.safetensors", b"x");
    files.file("run/checkpoint-1500/model.safetensors", b"x");
    of("run", &[&format!("give the folder {}", files.at("run/checkpoint-1500").display())]);
    files.file("models--A--B/refs/main", b"0123abcd");
    files.file("models--A--B/snapshots/0123abcd/model.safetensors", b"x");
    of("models--A--B", &[&format!("give the folder {}", files.at("models--A--B/snapshots/0123abcd").display())]);
    files.file("static/model.safetensors", fs::read(own.join("model.safetensors")).expect("a file"));
    files.file("static/modules.json", r#"[{"type": "sentence_transformers.models.StaticEmbedding", "path": ""}]"#);
    of("static", &["modules.json has a module StaticEmbedding"]);
    files.file("marian/model.safetensors", fs::read(own.join("model.safetensors")).expect("a file"));
    files.file("marian/config.json", r#"{"architectures": ["MarianMTModel"], "model_type": "marian"}"#);
    of("marian", &[&format!("`arenite convert seq2seq {} OUT.gguf`", path(&files.at("marian")))]);
}

/// The built-in model with other keys.
fn renamed(files: &Files, keys: &[(&str, &str)]) -> PathBuf {
    let bytes = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories.gguf")).expect("a model");
    let gguf = arenite::Gguf::parse(&bytes).expect("a model");
    let mut header = Header::new();
    gguf.keys().for_each(|(key, value)| header.set(key, value));
    keys.iter().for_each(|(key, value)| header.set(key, *value));
    for tensor in gguf.tensors() {
        header.tensor(tensor.name, &tensor.dims[..tensor.dim_count as usize], tensor.kind).expect("a tensor");
    }
    let mut data = header.write(std::io::Cursor::new(Vec::new())).expect("a header");
    gguf.tensors().for_each(|tensor| data.write_all(tensor.data).expect("a tensor"));
    files.file("renamed.gguf", data.finish().expect("a file").into_inner())
}

#[test]
fn models_for_texts_and_models_for_conversations() {
    let files = Files::new();
    let base = renamed(&files, &[("general.name", "A base model")]);
    let chat = |args: &[&str]| {
        let output = arenite_with(&[&["chat", "-m", path(&base), "-n", "2"], args].concat(), b"Hello\n");
        assert!(output.status.success());
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    says(&chat(&[]), &["has no chat template", "base model", "`arenite generate`", "--template"]);
    assert!(!chat(&["--template", "chatml"]).contains("no chat template"));
    let output = arenite(&["run", path(&base), "Hello", "-n", "2"]);
    says(&String::from_utf8_lossy(&output.stderr), &["has no chat template", "`arenite chat --template NAME`"]);
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let instruct = renamed(&files, &[("general.name", "B"), ("tokenizer.chat_template", template)]);
    let end = json_of(&["inspect", path(&instruct), "--json"])["metadata"]["tokenizer.ggml.eos_token_id"].to_string();
    let output = arenite(&["generate", "-m", path(&instruct), "-p", "Hello", "--logit-bias", &format!("{end}=1000")]);
    says(&String::from_utf8_lossy(&output.stderr), &["ended at once", &format!("arenite chat -m {}", path(&instruct))]);
    let output = arenite(&["generate", "-m", path(&instruct), "-p", "Once upon", "-n", "5"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("ended at once"));
}
