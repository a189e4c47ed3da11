//! Decisions through `/v1/systemone` and `arenite decide`. Decision models are compared with llama.cpp's server, and
//! the probabilities of other models with `arenite score`.

use std::path::PathBuf;

use crate::common::{arenite_with, committed, error, fixtures, json, lines, path, stdout, stdout_with};
use crate::serve::Server;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Answers, Error, Gguf, KvType, Line, Model, Options, Plan, Session};
use arenite_run::RunOptions;
use arenite_run::decide::{DecisionModel, Request};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use serde_json::{Value, json};

/// The types of decision models, each with its case.
const TYPES: [&str; 7] = ["openjev", "lev", "nimble", "kev", "laya", "julia", "clef"];

/// Returns the path of the model for a type, and the expected answers and errors.
fn case(kind: &str) -> Option<(PathBuf, Value)> {
    let folder = fixtures(&format!("decisions/decision_{kind}_a"))?;
    let reference = serde_json::from_slice(&std::fs::read(folder.join("ref.json")).unwrap()).unwrap();
    Some((folder.join("model.gguf"), reference))
}

/// Returns the name of the program that computed the reference answers. llama.cpp is not used for all models, because
/// it computes the GELU of encoders with less precision than the models were trained with.
fn by(kind: &str) -> &'static str {
    if ["laya", "julia"].contains(&kind) { "python" } else { "llamacpp" }
}

/// Returns the largest difference between numbers. The difference is infinite if other values or the order of members
/// differ.
fn difference(a: &Value, b: &Value) -> f64 {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.values().zip(b.values()).map(|(a, b)| difference(a, b)).fold(0.0, f64::max)
        }
        (Value::Number(a), Value::Number(b)) => (a.as_f64().unwrap() - b.as_f64().unwrap()).abs(),
        _ if a == b => 0.0,
        _ => f64::INFINITY,
    }
}

#[test]
fn decision_models_answer_as_in_llama_cpp() {
    for kind in TYPES {
        let Some((model, reference)) = case(kind) else { continue };
        let server = Server::start_with(&["-m", path(&model), "--kv", "f32"]);
        let ask = |request: &Value| server.post("/v1/systemone", request.to_string().as_bytes());
        for want in reference["requests"].as_array().unwrap() {
            let (status, answer) = ask(&want["request"]);
            assert_eq!(status, 200, "{kind} {}: {answer}", want["name"]);
            for part in ["answers", "usage"] {
                let far = difference(&answer[part], &want[by(kind)][part]);
                assert!(far < 2e-5, "{kind} {}: {far}: {answer}", want["name"]);
            }
        }
        let models: Value = serde_json::from_str(&server.ask("GET", "/v1/models", "", b"").1).unwrap();
        assert_eq!(models["data"][0]["architecture"], reference["models"]["data"][0]["architecture"]);
        for want in reference["errors"].as_array().unwrap() {
            let (status, answer) = ask(&want["request"]);
            assert_eq!((i64::from(status), &answer), (want["status"].as_i64().unwrap(), &want["body"]), "{kind}");
        }
    }
}

#[test]
fn prompts_are_rendered_as_in_llama_cpp() {
    for kind in TYPES {
        let Some((file, reference)) = case(kind) else { continue };
        let open = OpenModel::new(ModelFile::open(&*file).unwrap(), RunOptions::default()).unwrap();
        let model = DecisionModel::new(open.gguf(), open.vocabulary().unwrap()).unwrap().unwrap();
        for want in reference["requests"].as_array().unwrap() {
            let part = |name| want["request"].get(name);
            let mut request = Request::read(part("state"), part("questions"), 255).unwrap();
            model.arrange(&mut request);
            let prompts = model.prompts(&request).unwrap();
            let rendered = want["prompts"].as_array().unwrap().iter().map(|prompt| prompt["prompt"].as_str().unwrap());
            assert_eq!(prompts, rendered.collect::<Vec<_>>(), "{kind} {}", want["name"]);
        }
    }
}

/// The request is an example from the README of llama.cpp's server, with the name that TypeSafe's clients send for the
/// model. The answer has the same fields in the same order as in the README.
#[test]
fn the_example_of_the_documentation_has_its_answer() {
    let request = json!({
        "model": "jev-latest",
        "state": "Customer message: I was charged twice for my order last week and nobody has replied.",
        "questions": {
            "route": {
                "type": "choice",
                "instructions": "Which team should handle this?",
                "criteria": { "billing": null, "shipping": null, "technical": null },
            },
            "angry": { "type": "noul", "instructions": "Is the customer angry?" },
            "urgency": {
                "type": "score",
                "instructions": "How urgent is this?",
                "criteria": ["can wait", "this week", "today", "right now"],
            },
        },
    });
    let example = json!({
        "model": "openjev",
        "answers": {
            "route": {
                "type": "choice",
                "choice": "billing",
                "probabilities": { "billing": 0.9998, "shipping": 0.0001, "technical": 0.0001 },
                "confidence": 0.9997,
            },
            "angry": { "type": "noul", "noul": 0.6328 },
            "urgency": {
                "type": "score",
                "score": 2.0858,
                "legend": { "0": "can wait", "1": "this week", "2": "today", "3": "right now" },
                "probabilities": { "0": 0.0023, "1": 0.116, "2": 0.6753, "3": 0.2064 },
                "confidence": 0.673,
            },
        },
        "usage": { "input_tokens": 239, "output_tokens": 0 },
    });
    let openjev = case("openjev").map(|(model, _)| model);
    for model in openjev.into_iter().chain([committed("host-demo/models/stories.gguf")]) {
        let server = Server::start_with(&["-m", path(&model), "--decide", "any"]);
        let (status, mut answer) = server.post("/v1/systemone", request.to_string().as_bytes());
        assert_eq!(status, 200, "{answer}");
        // The answer may differ from the example's in the model's name and in the chosen team, because this test runs a
        // different model.
        answer["model"] = example["model"].clone();
        assert!(
            request["questions"]["route"]["criteria"]
                .get(answer["answers"]["route"]["choice"].as_str().unwrap())
                .is_some()
        );
        answer["answers"]["route"]["choice"] = "billing".into();
        assert!(difference(&answer, &example).is_finite(), "{answer}");
        for id in ["route", "urgency"] {
            let all = answer["answers"][id]["probabilities"].as_object().unwrap().values();
            assert!((all.map(|p| p.as_f64().unwrap()).sum::<f64>() - 1.0).abs() < 1e-9, "{answer}");
        }
        assert_eq!(answer["usage"]["output_tokens"], 0);
    }
}

/// Counts the tokens that are read for twelve questions about one state, in a model with attention only and in a model
/// with recurrent layers.
#[test]
fn a_state_is_read_once() {
    let openjev = case("openjev").map(|(model, _)| model);
    for (model, state) in [(openjev, 120), (Some(committed("host-demo/models/stories.gguf")), 70)] {
        let Some(model) = model else { continue };
        let read = |count: usize| {
            let server = Server::start_with(&["-m", path(&model), "--decide", "any", "--cache-scope", "server"]);
            let question = |at: usize| {
                let question = json!({ "type": "noul", "instructions": format!("Is {at} right?") });
                (format!("q{at}"), question)
            };
            let questions: Value = (0..count).map(question).collect::<serde_json::Map<_, _>>().into();
            let request = json!({ "state": "A dog ran home. ".repeat(state), "questions": questions }).to_string();
            let (status, answer) = server.post("/v1/systemone", request.as_bytes());
            assert_eq!(status, 200, "{answer}");
            server.metric("prompt_tokens_total")
        };
        let (one, twelve) = (read(1), read(12));
        // Each further question reads its own text only.
        assert!(one > 300 && twelve - one < 11 * 50, "{}: {one} {twelve}", model.display());
    }
}

/// If a request has a list of states, each of them gets the answer that it would get alone. This is tested with models
/// whose prompts begin with the state.
#[test]
fn states_in_a_list_are_answered_as_alone() {
    for kind in TYPES {
        let Some((model, reference)) = case(kind) else { continue };
        let server = Server::start_with(&["-m", path(&model), "--kv", "f32"]);
        let request = &reference["requests"][0]["request"];
        let states = json!([request["state"], "A dog ran home.", { "town": "Oslo" }]);
        let answer = |body: Value| {
            let (status, answer) = server.post("/v1/systemone", body.to_string().as_bytes());
            assert_eq!(status, 200, "{kind}: {answer}");
            answer["answers"].clone()
        };
        let each = |state| answer(json!({ "state": state, "questions": request["questions"] }));
        let alone: Vec<Value> = states.as_array().unwrap().iter().map(each).collect();
        assert_eq!(answer(json!({ "states": states, "questions": request["questions"] })), json!(alone), "{kind}");
    }
}

/// A model whose file has no keys for decisions answers by the probabilities of the options. Its prompt begins with the
/// question, which is then read only once for all states.
#[test]
fn states_share_the_question() {
    let states: Vec<String> = (0..40).map(|at| format!("Tim had {at} dogs.")).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states.txt");
    std::fs::write(&file, format!("{}\n\n", states.join("\n"))).unwrap();
    let asked = ["--choice", "who: Who ran?: dog|cat", "--yes", "big: Is it big?"];
    let args = ["decide", "--kv", "f32", "--states", path(&file), "--json"];
    let answers = lines(&stdout(&[&args[..], &asked].concat()));
    assert_eq!(answers.len(), states.len());
    for (state, answer) in states.iter().zip(&answers) {
        assert_eq!(answer["state"], json!(state));
    }
    let last = states.last().unwrap();
    let prompt = format!("Options:\n- dog\n- cat\n\nWho ran?\n\n{last}\n\nAnswer:");
    let rows = [" dog", " cat"].map(|told| json!({ "prompt": prompt, "continuation": told }).to_string());
    let scores = lines(&stdout_with(&["score", "--jsonl", "--kv", "f32"], rows.join("\n").as_bytes()));
    let weights: Vec<f64> = scores.iter().map(|score| score["logprob"].as_f64().unwrap().exp()).collect();
    let p = answers.last().unwrap()["answers"]["who"]["probabilities"]["dog"].as_f64().unwrap();
    assert!((p - weights[0] / (weights[0] + weights[1])).abs() < 1e-5, "{p} {weights:?}");
    // What a person reads.
    let shown = stdout(&["decide", "--kv", "f32", "--states", path(&file), asked[0], asked[1]]);
    assert!(
        shown.lines().zip(&states).all(|(line, state)| line.starts_with("who: ") && line.ends_with(state)),
        "{shown}"
    );

    let read = |questions: Value, count: usize| {
        let server = Server::start(&["--decide", "any", "--cache-scope", "server"]);
        let body = json!({ "states": &states[..count], "questions": questions }).to_string();
        let (status, answer) = server.post("/v1/systemone", body.as_bytes());
        assert!(status == 200 && answer["answers"].as_array().is_some_and(|all| all.len() == count), "{answer}");
        server.metric("prompt_tokens_total")
    };
    let yes = |text: &str| json!({ "type": "noul", "instructions": text });
    let long = json!({ "a": yes(&"Is it big? ".repeat(20)), "b": yes(&"Is it red? ".repeat(20)) });
    let (two, forty) = (read(long.clone(), 2), read(long, 40));
    assert!(two > 200 && forty - two < 2 * 38 * 16, "{two} {forty}");

    let server = Server::start(&["--decide", "any"]);
    for (body, why) in [
        (json!({ "states": [], "questions": { "a": yes("x") } }), "at least one state"),
        (json!({ "states": ["x"], "state": "x", "questions": { "a": yes("x") } }), "not both"),
        (json!({ "states": vec!["x"; 129], "questions": { "a": yes("x"), "b": yes("y") } }), "258 questions"),
    ] {
        let (status, answer) = server.post("/v1/systemone", body.to_string().as_bytes());
        assert!(
            status == 400 && answer["error"]["message"].as_str().is_some_and(|said| said.contains(why)),
            "{answer}"
        );
    }
}

#[test]
fn the_command_answers_like_the_server() {
    for kind in TYPES {
        let Some((model, reference)) = case(kind) else { continue };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("request.json");
        for want in reference["requests"].as_array().unwrap() {
            std::fs::write(&file, want["request"].to_string()).unwrap();
            let args = ["decide", "-m", path(&model), "--kv", "f32", "--questions", path(&file), "--json"];
            let far = difference(&json(&args)["answers"], &want[by(kind)]["answers"]);
            assert!(far < 2e-5, "{kind} {}: {far}", want["name"]);
        }
    }
}

/// In this test, the prompts are longer than a batch. The states of recurrent layers are saved where a prompt differs
/// from the next one, and are restored there.
#[test]
fn answers_do_not_depend_on_batches() {
    let Some((model, reference)) = case("nimble") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("request.json");
    std::fs::write(&file, reference["requests"][6]["request"].to_string()).unwrap();
    let args = ["decide", "-m", path(&model), "--kv", "f32", "--questions", path(&file), "--json"];
    let whole = stdout(&args);
    for batch in ["1", "7", "64"] {
        assert_eq!(stdout(&[&args[..], &["-b", batch]].concat()), whole, "-b {batch}");
    }
}

#[test]
fn other_types_are_refused_by_name() {
    let Some((model, _)) = case("openjev") else { return };
    let mut file = std::fs::read(model).unwrap();
    let at = file.windows(7).position(|here| here == b"openjev").unwrap();
    file[at..at + 7].copy_from_slice(b"unknown");
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    std::fs::write(&model, file).unwrap();
    let said = error(&["decide", "-m", path(&model), "--state", "x", "--yes", "a: b?"]);
    assert!(said.contains("decision models of the type unknown are not supported"), "{said}");
}

/// The probabilities of options, from a model whose file has no keys for decisions, are in the same proportion as those
/// from `arenite score`.
#[test]
fn other_models_answer_by_their_own_probabilities() {
    let state = "Tim had a dog. The dog ran to the park.";
    let ask = |more: &[&str]| json(&[&["decide", "--state", state, "--json", "--kv", "f32"], more].concat());
    let prompt = format!("{state}\n\nOptions:\n- the dog\n- the dog and the cat\n- Tim\n\nWho ran?\n\nAnswer:");
    let options = ["the dog", "the dog and the cat", "Tim"];
    // An option is scored by its tokens up to the first token that distinguishes it from all other options.
    let told = [" the dog\n", " the dog and", " Tim"];
    let rows = told.map(|told| json!({ "prompt": prompt, "continuation": told }).to_string());
    let scores = lines(&stdout_with(&["score", "--jsonl", "--kv", "f32"], rows.join("\n").as_bytes()));
    let weights: Vec<f64> = scores.iter().map(|score| score["logprob"].as_f64().unwrap().exp()).collect();
    let answer = ask(&["--choice", "who: Who ran?: the dog|the dog and the cat|Tim"]);
    for (option, weight) in options.iter().zip(&weights) {
        let p = answer["answers"]["who"]["probabilities"][option].as_f64().unwrap();
        assert!((p - weight / weights.iter().sum::<f64>()).abs() < 1e-5, "{option}: {answer}");
    }
    // Other questions about the same state change nothing.
    let more = ["--yes", "big: Is it big?", "--scale", "speed: How fast?: slow|fast"];
    let several = ask(&[&["--choice", "who: Who ran?: the dog|the dog and the cat|Tim"], &more[..]].concat());
    assert_eq!(several["answers"]["who"], answer["answers"]["who"]);
    assert_eq!(several["answers"].as_object().unwrap().keys().collect::<Vec<_>>(), ["who", "big", "speed"]);
    assert!(several["answers"]["big"]["noul"].as_f64().is_some_and(|p| p > 0.0 && p < 1.0));
}

#[test]
fn a_server_of_another_model_decides_if_asked_to() {
    let request =
        json!({ "state": "x", "questions": { "q": { "type": "noul", "instructions": "Is it?" } } }).to_string();
    let (status, answer) = Server::start(&[]).post("/v1/systemone", request.as_bytes());
    let body = json!({ "code": 501, "message": "This model is not a decision model", "type": "not_supported_error" });
    assert_eq!((status, &answer["error"]), (501, &body));
    let server = Server::start(&["--decide", "any"]);
    let (status, answer) = server.post("/v1/systemone", request.as_bytes());
    assert!(status == 200 && answer["answers"]["q"]["noul"].is_f64(), "{answer}");
    let long =
        json!({ "state": "word ".repeat(300), "questions": { "q": { "type": "noul", "instructions": "Is it?" } } });
    let (status, answer) = server.post("/v1/systemone", long.to_string().as_bytes());
    assert!(status == 400 && answer["error"]["type"] == "exceed_context_size_error", "{answer}");
    // A conversation beside it keeps its answer.
    assert_eq!(server.post("/v1/completions", br#"{"prompt": "A", "max_tokens": 3}"#).0, 200);
    let encoder = committed("tests/fixtures/bert_reranker/model.gguf");
    let said = error(&["decide", "-m", path(&encoder), "--state", "x", "--yes", "a: b?"]);
    assert!(said.contains("generates no text"), "{said}");
}

/// A line of a batch gets the answer of the server.
#[test]
fn a_batch_has_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let question = |text: &str| json!({ "type": "noul", "instructions": text });
    let body = json!({ "state": "Tim had a dog.", "questions": { "a": question("Is it big?"), "b": question("Is it a dog?") } });
    let line =
        |id: &str, body: &Value| json!({ "custom_id": id, "method": "POST", "url": "/v1/systemone", "body": body });
    let wrong = json!({ "state": "x", "questions": {} });
    std::fs::write(&input, format!("{}\n{}\n", line("1", &body), line("2", &wrong))).unwrap();
    arenite_with(&["batch", "-i", path(&input), "-o", path(&output), "--kv", "f32"], b"");
    let answers = lines(&std::fs::read_to_string(&output).unwrap());
    let args =
        ["decide", "--kv", "f32", "--state", "Tim had a dog.", "--yes", "a: Is it big?", "--yes", "b: Is it a dog?"];
    assert_eq!(answers[0]["response"]["body"]["answers"], json(&[&args[..], &["--json"]].concat())["answers"]);
    assert_eq!(answers[1]["response"]["status_code"], 400);
}

/// The core decides among the classes of a classifier. The probabilities are the same as from `arenite classify`.
#[test]
fn a_classifier_decides_among_its_classes() {
    let model = committed("host-demo/models/faults.gguf");
    let logs = ["flow: 31 l/min\nlink lost\n", "motor is at 104 C\ncurrent 4.4 A\n"];
    let input = logs.map(|log| json!(log).to_string()).join("\n");
    let classes = lines(&stdout_with(&["classify", "-m", path(&model), "--jsonl"], input.as_bytes()));

    let file = std::fs::read(&model).unwrap();
    let gguf = Gguf::parse(&file).unwrap();
    let model = Model::new(&gguf).unwrap();
    let plan = Plan::new(&gguf, Options::new().context(80).kv(KvType::F32)).unwrap();
    let mut memory = [plan.workspace, plan.kv].map(|bytes| vec![Line::ZERO; bytes.div_ceil(64)]);
    let [workspace, kv] = memory.each_mut().map(|lines| Line::bytes_mut(lines));
    let mut session = Session::new(&model, plan, workspace, kv).unwrap();
    let tokenizer = Tokenizer::packed(&gguf).unwrap();
    for ((log, classes), best) in logs.iter().zip(classes).zip(["link", "overheat"]) {
        let mut scratch = vec![0; Tokenizer::scratch_bytes(log.len())];
        let ids = tokenizer.encode_list::<80>(log.as_bytes(), Encode::PROMPT, &mut scratch).unwrap();
        let (mut out, mut buffer) = ([0.0; 12], [0.0; 64]);
        let index = session.decide(&ids, Answers::Classes, 1.0, &mut out, &mut buffer).unwrap();
        assert_eq!(classes["classes"][0]["label"], best);
        assert!((f64::from(out[index]) - classes["classes"][0]["score"].as_f64().unwrap()).abs() < 1e-6, "{classes}");
        assert!((out.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        let short = session.decide(&ids, Answers::Classes, 1.0, &mut out[..11], &mut buffer);
        assert_eq!(short, Err(Error::BufferTooSmall { what: "probabilities", needed: 12, given: 11 }));
    }
}
