//! Requests as clients of llama.cpp's server send them. The expected answers follow llama.cpp's `tools/server`: its
//! README, `server-task.cpp` and `server-context.cpp`.

use serde_json::{Value, json};

use crate::scripted::CHATML;
use crate::serve::Server;
use crate::talk::{FIM, start};

/// The request that llama.vim and llama.vscode send for a completion.
fn fill_in() -> Value {
    json!({
        "id_slot": 0, "input_prefix": "ab\n", "input_suffix": "cd\n", "prompt": "x", "n_predict": 128,
        "input_extra": [{ "text": "ef", "time": 1, "filename": "a.rs" }],
        "stop": [], "n_indent": 0, "top_k": 40, "top_p": 0.9, "samplers": ["top_k", "top_p", "infill"],
        "stream": false, "cache_prompt": true, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000,
    })
}

fn with(mut body: Value, more: Value) -> Value {
    more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
    body
}

#[test]
fn editors_fill_in_code() {
    let talk = start(&["Once", " upon"], &FIM, &[], CHATML);
    // Editors first send a request without a text, which only makes the server read the other files before the user
    // types.
    let warm = json!({
        "input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "temperature": 0.0, "samplers": [],
        "response_fields": [""],
    });
    assert_eq!(talk.good("/infill", &with(fill_in(), warm)), json!({}));
    let fields = json!(["content", "timings/truncated", "truncated", "tokens_cached", "generation_settings/top_k"]);
    let answer = talk.good("/infill", &with(fill_in(), json!({ "response_fields": fields })));
    let cached = answer["tokens_cached"].clone();
    let expected = json!({ "content": "Once upon", "truncated": false, "tokens_cached": cached });
    assert_eq!(answer, with(expected, json!({ "generation_settings/top_k": 40 })));
    // The editor plugin llama.vscode asks for several completions at once. The answer to such a request is a list.
    let several = talk.good("/infill", &with(fill_in(), json!({ "n_cmpl": 3 })));
    let several: Vec<_> = several.as_array().unwrap().iter().map(|one| (&one["index"], &one["content"])).collect();
    let content = json!("Once upon");
    assert_eq!(several, [(&json!(0), &content), (&json!(1), &content), (&json!(2), &content)]);
    let error = talk.refused("/infill", &with(fill_in(), json!({ "n_cmpl": 3, "stream": true })));
    assert_eq!(error["param"], "stream");
    // The request that llama.vim sends before the user types an instruction.
    let warm = json!({
        "id_slot": 1, "messages": [{ "role": "user", "content": "hi" }], "samplers": [], "n_predict": 0,
        "stream": false, "cache_prompt": true, "response_fields": [""],
    });
    let choice = talk.good("/v1/chat/completions", &warm)["choices"][0].clone();
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(""), &json!("length")));
}

#[test]
fn indentation_and_time_end_a_completion() {
    let lines = ["a {\n", "  b;", "\n", "  c;\n", "}"];
    let talk = start(&lines, &FIM, &[], CHATML);
    for (indent, content, why) in
        [(0, "a {\n  b;\n  c;\n}", "eos"), (2, "a {\n  b;\n  c;\n", "limit"), (4, "a {\n  ", "limit")]
    {
        let answer = talk.good("/infill", &with(fill_in(), json!({ "n_indent": indent })));
        assert_eq!((&answer["content"], &answer["stop_type"]), (&json!(content), &json!(why)), "{indent}");
    }
    drop(talk);
    let lines: Vec<String> = (0..300).map(|line| format!("line{line}\n")).collect();
    let talk = start(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &FIM, &[], CHATML);
    let ask = |time: i64| {
        let answer = talk.good("/infill", &with(fill_in(), json!({ "n_predict": -1, "t_max_predict_ms": time })));
        (answer["content"].as_str().unwrap().to_string(), answer["stop_type"].clone())
    };
    for time in [-1, 0, 1_000_000] {
        assert_eq!(ask(time), (lines.concat(), json!("eos")), "{time}");
    }
    let (content, why) = ask(1);
    assert!(lines.concat().starts_with(&content) && content.ends_with('\n') && why == "limit", "{content} {why}");
}

/// The request that SillyTavern sends with its default settings, and with token probabilities.
#[test]
fn sillytavern() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let body = r#"{
        "prompt": "ab", "model": "", "max_new_tokens": 200, "max_tokens": 200, "logprobs": 10, "temperature": 0.7,
        "top_p": 0.5, "typical_p": 1, "typical": 1, "sampler_seed": -1, "min_p": 0, "repetition_penalty": 1.2,
        "frequency_penalty": 0, "presence_penalty": 0, "top_k": 40, "skew": 0, "min_tokens": 0, "add_bos_token": true,
        "smoothing_factor": 0, "smoothing_curve": 1, "dry_allowed_length": 2, "dry_multiplier": 0, "dry_base": 1.75,
        "dry_sequence_breakers": ["\n", ":", "\"", "*"], "dry_penalty_last_n": 0, "max_tokens_second": 0,
        "samplers":
            ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", "adaptive_p"],
        "stopping_strings": ["\nYou:"], "stop": ["\nYou:"], "truncation_length": 8192, "ban_eos_token": false,
        "skip_special_tokens": true, "include_reasoning": true, "top_a": 0, "tfs": 1, "mirostat_mode": 0,
        "mirostat_tau": 5, "mirostat_eta": 0.1, "custom_token_bans": "", "banned_strings": [], "api_type": "llamacpp",
        "api_server": "http://127.0.0.1:8080/", "xtc_threshold": 0.1, "xtc_probability": 0, "nsigma": 0,
        "top_n_sigma": 0, "min_keep": 0, "adaptive_target": -0.01, "adaptive_decay": 0.9, "rep_pen": 1.2,
        "rep_pen_range": 0, "repetition_penalty_range": 0, "guidance_scale": 1, "negative_prompt": "",
        "repeat_penalty": 1.2, "repeat_last_n": 0, "n_predict": 200, "num_predict": 200, "num_ctx": 8192,
        "mirostat": 0, "ignore_eos": false, "n_probs": 10, "rep_pen_slope": 1, "n": 1, "logit_bias": [],
        "grammar": "", "cache_prompt": true, "stream": false
    }"#;
    let body: Value = serde_json::from_str(body).unwrap();
    let answer = talk.good("/completion", &body);
    assert_eq!((&answer["content"], &answer["stop_type"]), (&json!("Once upon"), &json!("eos")));
    assert_eq!(answer["completion_probabilities"][1]["top_logprobs"].as_array().unwrap().len(), 10);
    // Older versions of SillyTavern list sampling steps that llama.cpp has removed. Such steps are ignored.
    let old = json!({ "samplers": ["top_k", "tfs_z", "typical_p", "top_p", "min_p", "temperature"], "tfs_z": 1 });
    let events = talk.stream("/completion", &with(body.clone(), old));
    let text: String = events.iter().filter_map(|event| event["content"].as_str()).collect();
    assert_eq!(text, "Once upon");
    // The penalties have an effect only if recent tokens are counted. In this case, they must be the first step.
    let last = json!({ "samplers": ["top_k", "penalties"], "repeat_last_n": 64 });
    let error = talk.refused("/completion", &with(body.clone(), last));
    assert!(error["param"] == "samplers" && error["message"].as_str().unwrap().contains("first step"), "{error}");
    let last = json!({ "samplers": ["top_k", "penalties"] });
    assert_eq!(talk.good("/completion", &with(body, last))["content"], "Once upon");
}

/// The request that llama.cpp's web page sends, with all of its settings.
#[test]
fn page_of_llama_server() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let body = json!({
        "messages": [{ "role": "user", "content": "hi" }], "stream": true, "return_progress": true,
        "reasoning_format": "auto", "temperature": 0.8, "max_tokens": -1, "dynatemp_range": 0, "dynatemp_exponent": 1,
        "top_k": 40, "top_p": 0.95, "min_p": 0.05, "xtc_probability": 0, "xtc_threshold": 0.1, "typ_p": 1,
        "repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "dry_multiplier": 0,
        "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1,
        "samplers": ["top_k", "typ_p", "top_p", "min_p", "temperature"], "backend_sampling": false,
        "timings_per_token": true,
    });
    let events = talk.stream("/v1/chat/completions", &body);
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Once upon");
    check_timings(&events.iter().find(|event| event["choices"][0]["finish_reason"] == "stop").unwrap()["timings"]);
}

/// Checks that timings of two tokens have the fields of llama-server, and that its rates follow from its times.
fn check_timings(timings: &Value) {
    let number = |name: &str| timings[name].as_f64().unwrap_or_else(|| panic!("{name}: {timings}"));
    assert_eq!(number("predicted_n"), 2.0);
    for part in ["prompt", "predicted"] {
        let (count, time) = (number(&format!("{part}_n")), number(&format!("{part}_ms")));
        assert!(count > 0.0 && time > 0.0, "{timings}");
        assert!((number(&format!("{part}_per_token_ms")) - time / count).abs() < 1e-9);
        assert!((number(&format!("{part}_per_second")) / (1000.0 * count / time) - 1.0).abs() < 1e-9);
    }
}

/// llama-server's answer has the prompt and its times.
#[test]
fn completions_have_prompt_and_times() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let body = json!({ "prompt": "hi", "temperature": 0 });
    let answer = talk.good("/completion", &body);
    assert_eq!(answer["prompt"], "hi");
    check_timings(&answer["timings"]);
    let last = talk.stream("/completion", &body).pop().unwrap();
    assert_eq!(last["prompt"], "hi");
    check_timings(&last["timings"]);
    let several = talk.good("/completion", &json!({ "prompt": ["a", "b"], "response_fields": ["prompt"] }));
    assert_eq!(several, json!([{ "prompt": "a" }, { "prompt": "b" }]));
    // Other chats have no timings.
    assert_eq!(
        talk.good("/v1/chat/completions", &json!({ "messages": [{ "role": "user", "content": "a" }] }))["timings"],
        Value::Null
    );
}

/// The requests that KoboldLite and Open WebUI send to a server with OpenAI's interface.
#[test]
fn clients_of_openais_interface() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let body = json!({
        "max_tokens": 256, "model": "m", "temperature": 0.75, "top_p": 0.92, "logprobs": 5, "stop": ["### Instruction:"],
        "presence_penalty": 0.07, "logit_bias": { "2": -10 }, "prompt": "ab", "n": 1, "dynatemp_range": 0,
        "smoothing_factor": 0, "nsigma": 0, "xtc_probability": 0, "adaptive_target": -1, "guidance_scale": 1,
    });
    let choice = talk.good("/v1/completions", &with(body, json!({ "max_tokens": 2 })))["choices"][0].clone();
    assert_eq!((&choice["text"], &choice["logprobs"]["tokens"]), (&json!("Once upon"), &json!(["Once", " upon"])));
    let body = json!({
        "stream": true, "model": "m", "messages": [{ "role": "user", "content": "hi" }], "session_id": "a",
        "chat_id": "b", "id": "c", "features": { "web_search": false }, "variables": {}, "tool_servers": [],
        "background_tasks": { "title_generation": true }, "stream_options": { "include_usage": true },
    });
    let events = talk.stream("/v1/chat/completions", &body);
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Once upon");
}

#[test]
fn completions_report_tokens_and_probabilities() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let body = json!({ "prompt": "ab", "temperature": 0, "n_probs": 2, "return_tokens": true });
    let answer = talk.good("/completion", &body);
    assert_eq!(talk.good("/detokenize", &json!({ "tokens": answer["tokens"] }))["content"], "Once upon");
    let probabilities = answer["completion_probabilities"].as_array().unwrap();
    let names: Vec<_> = probabilities.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(names, ["Once", " upon"]);
    for (token, id) in probabilities.iter().zip(answer["tokens"].as_array().unwrap()) {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((&token["id"], &top[0]["id"], &top[1]["id"]), (id, id, &json!(0)));
        assert_eq!(token["bytes"], json!(token["token"].as_str().unwrap().as_bytes()));
        assert_eq!((&top[0]["token"], &top[0]["bytes"]), (&token["token"], &token["bytes"]));
        // The expected log-probability follows from the test model. All values of its state are 0, except for one of
        // 320 values. After the norm, this value is sqrt(320), and the head multiplies it by 4.
        let logprob = |token: &Value| token["logprob"].as_f64().unwrap();
        assert!(logprob(token).abs() < 1e-6 && logprob(&top[0]).abs() < 1e-6, "{token}");
        assert!((logprob(&top[1]) + 4.0 * 320f64.sqrt()).abs() < 0.5, "{token}");
    }
    // In a stream, each event has the tokens and probabilities of its text.
    let events = talk.stream("/completion", &body);
    let of = |key: &str| -> Vec<_> { events.iter().filter_map(|event| event[key].as_array()).flatten().collect() };
    assert_eq!(of("tokens"), answer["tokens"].as_array().unwrap().iter().collect::<Vec<_>>());
    assert_eq!(of("completion_probabilities"), probabilities.iter().collect::<Vec<_>>());
    let many = talk.good("/completion", &with(body.clone(), json!({ "n_probs": 50 })));
    assert_eq!(many["completion_probabilities"][0]["top_logprobs"].as_array().unwrap().len(), 50);
    // llama.cpp's README asks for these fields.
    let fields = json!({ "response_fields": ["content", "generation_settings/n_predict"], "n_predict": 2 });
    let wanted = json!({ "content": "Once upon", "generation_settings/n_predict": 2 });
    assert_eq!(talk.good("/completion", &with(body.clone(), fields)), wanted);
    // Without these fields the answer has neither.
    let plain = talk.good("/completion", &json!({ "prompt": "ab", "temperature": 0, "n_probs": 0 }));
    assert_eq!((&plain["tokens"], plain.get("completion_probabilities")), (&json!([]), None));
    for (field, value) in [("post_sampling_probs", json!(true)), ("n_probs", json!(1001)), ("top_a", json!(0.2))] {
        assert_eq!(talk.refused("/completion", &with(body.clone(), json!({ field: value })))["param"], field);
    }
}

#[test]
fn a_limit_of_zero_tokens_only_reads_the_prompt() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let body = json!({ "prompt": "abcdefgh", "n_predict": 0, "max_tokens": 5 });
    let answer = talk.good("/completion", &body);
    assert_eq!(
        (&answer["content"], &answer["stop"], &answer["stop_type"]),
        (&json!(""), &json!(true), &json!("limit"))
    );
    assert_eq!((&answer["tokens_predicted"], &answer["tokens_evaluated"]), (&json!(0), &json!(8)));
    let answer = talk.good("/completion", &json!({ "prompt": "abcdefghij", "n_predict": 1, "temperature": 0 }));
    assert_eq!((&answer["content"], &answer["timings"]["cache_n"]), (&json!("Once"), &json!(8)));
    for body in
        [json!({ "prompt": "ab", "max_tokens": 0 }), json!({ "prompt": "ab", "n_predict": null, "max_tokens": 0 })]
    {
        let choice = talk.good("/v1/completions", &body)["choices"][0].clone();
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(""), &json!("length")));
    }
}

/// A request can list sampling steps. Steps that are not listed are off, and the others run in the order of the list.
#[test]
fn requests_order_the_sampling_steps() {
    let server = Server::start(&[]);
    let body = json!({ "prompt": "The sun", "max_tokens": 48, "seed": 3 });
    let text = |more: Value| server.text(&with(body.clone(), more));
    let greedy = text(json!({ "temperature": 0 }));
    let hot = json!({ "temperature": 2.5, "top_k": 1, "top_p": 0.5, "min_p": 0.3 });
    let hot = |more: Value| text(with(hot.clone(), more));
    assert_eq!(hot(json!({ "samplers": ["top_k"] })), greedy);
    assert_eq!(hot(json!({ "samplers": "kt" })), greedy);
    // A request that lists only the step `temperature` gives the same text as a request that turns all other steps off.
    let free = text(json!({ "temperature": 2.5, "top_k": 0, "top_p": 1, "min_p": 0 }));
    assert_ne!(free, greedy);
    for samplers in [json!(["temperature"]), json!("t"), json!(["dry", "temperature", "xtc", "no_such_step"])] {
        assert_eq!(hot(json!({ "samplers": samplers })), free, "{samplers}");
    }
    // If the list of steps is empty, tokens are drawn from the model's own distribution.
    let own = text(json!({ "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0 }));
    assert_eq!(hot(json!({ "samplers": [] })), own);
    assert_eq!(text(json!({ "temperature": 0, "samplers": [] })), own);
    // The further steps are those of the command line.
    let steps = json!({ "temperature": 1.5, "min_p": 0 });
    let usual = text(steps.clone());
    for on in [
        json!({ "top_n_sigma": 0.5 }),
        json!({ "xtc_probability": 1, "xtc_threshold": 0.05 }),
        json!({ "dry_multiplier": 5, "dry_allowed_length": 1, "dry_sequence_breakers": ["\n"] }),
        json!({ "dynatemp_range": 1, "dynatemp_exponent": 2 }),
        json!({ "mirostat": 1, "mirostat_tau": 1 }),
        json!({ "mirostat": 2, "mirostat_tau": 1, "mirostat_eta": 0.5 }),
        json!({ "adaptive_target": 0.3, "adaptive_decay": 0.5 }),
    ] {
        assert_ne!(text(with(steps.clone(), on.clone())), usual, "{on}");
        assert_eq!(
            text(with(
                steps.clone(),
                with(on.clone(), json!({ "samplers": "ekypmt", "mirostat": 0, "dynatemp_range": 0 }))
            )),
            usual,
            "{on}"
        );
    }
    // The order is that of the command line.
    let order = json!({ "temperature": 2.5, "top_k": 0, "top_p": 0.8, "min_p": 0 });
    let (early, late) =
        (json!({ "samplers": ["temperature", "top_p"] }), json!({ "samplers": ["top_p", "temperature"] }));
    let (early, late) = (text(with(order.clone(), early)), text(with(order.clone(), late)));
    assert_ne!(early, late);
    // Penalties that are not listed are off.
    let penalty = |more: Value| text(with(json!({ "temperature": 0, "repeat_penalty": 100 }), more));
    assert_eq!(penalty(json!({ "samplers": ["temperature"] })), greedy);
    assert_ne!(penalty(json!({ "samplers": ["penalties", "temperature"] })), greedy);
    for wrong in [json!(["top_k", "top_k"]), json!([1]), json!({ "top_k": 1 })] {
        let (status, answer) =
            server.post("/completion", with(body.clone(), json!({ "samplers": wrong })).to_string().as_bytes());
        assert!(status == 400 && answer["error"]["param"] == "samplers", "{answer}");
    }
    drop(server);
    let server = Server::start(&["--samplers", "temperature;top_p"]);
    assert_eq!(server.text(&with(body, order)), early);
}
