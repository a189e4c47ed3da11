//! Any HTTP body and any batch line is refused, or gives jobs that the engine can run: tokens of the vocabulary that
//! fit into the context, valid sampling parameters, a valid grammar table. Any generated text gives a response.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use arenite::grammar::Grammar;
use arenite::sampler::Sampler;
use arenite_run::RunOptions;
use arenite_run::generation::within;
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::service::{Choice, Endpoint, Host, Service};
use arenite_serve::faces::{Asked, responses};
use arenite_serve::{ResponseMeta, answer, embedding_inputs, prepare, read_json};
use fuzz::unwritten::unwritten;
use fuzz_host::{Edits, Words};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const CONTEXT: usize = 256;

static SERVICE: LazyLock<Service> = LazyLock::new(|| {
    let file = ModelFile::from_static("built-in", include_bytes!("../../../../host-demo/models/stories.gguf"), false);
    let options = RunOptions { context: Some(CONTEXT), threads: 1, ..RunOptions::default() };
    Host::new(OpenModel::new(file, options).expect("a correct file"), true).expect("a model of text").service
});

/// Correct requests with all possible fields.
static REQUESTS: LazyLock<[Value; 4]> = LazyLock::new(|| {
    let function = json!({ "name": "f", "description": "d", "parameters": {
        "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] } });
    let call = json!({ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1}" } });
    let sampling = json!({
        "model": "built-in", "stream": true, "stream_options": { "include_usage": true }, "max_tokens": 5, "n": 2, "stop": ["a", "b"],
        "seed": 1, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "repeat_penalty": 1.1, "frequency_penalty": 0.1,
        "presence_penalty": 0.1, "logit_bias": { "5": 1.5, "6": -100 }, "logprobs": true, "top_logprobs": 2, "ignore_eos": false,
    });
    let with = |mut more: Value| {
        for (key, value) in sampling.as_object().into_iter().flatten() {
            more[key] = value.clone();
        }
        more
    };
    [
        with(json!({
            "messages": [
                { "role": "system", "content": "a" }, { "role": "user", "content": [{ "type": "text", "text": "b" }] },
                { "role": "assistant", "content": null, "tool_calls": [call] },
                { "role": "tool", "tool_call_id": "1", "content": "c" },
            ],
            "tools": [{ "type": "function", "function": function }], "tool_choice": "required",
            "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": { "type": "boolean" } } },
        })),
        with(json!({ "prompt": ["a b", "c"], "echo": true, "grammar": "root ::= \"a\" | <s>", "logprobs": 2 })),
        json!({ "model": "built-in", "input": ["a", "b"], "encoding_format": "base64" }),
        json!({
            "model": "built-in", "instructions": "a", "max_output_tokens": 5, "temperature": 0.5,
            "input": [
                { "role": "developer", "content": "a" }, { "type": "message", "role": "user", "content": "b" },
                { "type": "function_call", "call_id": "1", "name": "f", "arguments": "{}" },
                { "type": "function_call_output", "call_id": "1", "output": "c" }, { "type": "reasoning" },
            ],
            "tools": [{ "type": "function", "name": "f", "parameters": { "type": "object" } }], "tool_choice": { "name": "f" },
            "text": { "format": { "type": "json_schema", "schema": { "type": "null" } } },
        }),
    ]
});

#[derive(Arbitrary, Debug)]
struct Case {
    request: u8,
    edits: Edits,
    /// If present, the request becomes a batch line, to which these edits are applied.
    line: Option<Edits>,
    answer: Words<20>,
}

#[rustfmt::skip]
const ANSWER: &[&str] = &[
    "a", " ", "\n", "<think>", "</think>", "<tool_call>", "</tool_call>", "{", "}", "[", "]", "\"name\": ",
    "\"arguments\": ", "\"f\"", ", ", "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "\"", "\\", "null", "é",
    "```json\n", "```",
];

impl Case {
    fn run(&self) {
        let number = usize::from(self.request) % REQUESTS.len();
        let bytes = self.edits.bytes(REQUESTS[number].clone());
        let mut endpoint = [Endpoint::Chat, Endpoint::Completions, Endpoint::Embeddings, Endpoint::Chat][number];
        let mut body = serde_json::from_slice::<Value>(&bytes).map_err(|_| ());
        if let (Some(edits), Ok(inner)) = (&self.line, &body) {
            let url = ["chat/completions", "completions", "embeddings", "responses"][number];
            let line = json!({ "custom_id": "a", "method": "POST", "url": format!("/v1/{url}"), "body": inner });
            let Ok(line) = serde_json::from_slice::<Value>(&edits.bytes(line)) else { return };
            let Some(named) = Endpoint::of(line["url"].as_str().unwrap_or_default()) else { return };
            (endpoint, body) = (named, Ok(line["body"].clone()));
        }
        match (endpoint, body) {
            (Endpoint::Embeddings, Ok(body)) => {
                let inputs = embedding_inputs(&SERVICE, &body, false).map(|(inputs, _)| inputs);
                for texts in inputs.unwrap_or_default().into_iter().flatten() {
                    check(&texts.ids);
                }
            }
            (Endpoint::Embeddings, Err(())) => {}
            (_, Ok(body)) if number == 3 && self.line.is_none() => self.generate(responses::response(&body)),
            (_, Ok(body)) => self.generate(read_json(endpoint, &body)),
            (_, Err(())) => {}
        }
    }

    fn generate<E>(&self, asked: Result<Asked, E>) {
        let prepared = asked.ok().and_then(|asked| prepare(&SERVICE, asked, 1).ok());
        let Some(prepared) = prepared else { return };
        assert!((1..=128).contains(&prepared.jobs.len()) && prepared.prompts.len() == prepared.jobs.len());
        for (prompt, settings, _) in &prepared.jobs {
            check(prompt);
            assert!(prompt.len() < CONTEXT);
            let params = within(&settings.params, CONTEXT);
            let mut scratch = vec![0; Sampler::scratch_bytes(&params, SERVICE.vocab)];
            Sampler::new(params, &settings.bias, SERVICE.vocab, unwritten(&mut scratch))
                .expect("parameters that the sampler takes");
            if let Some(table) = &settings.table {
                Grammar::new(table).expect("the core takes what the compiler makes");
            }
        }
        let text = self.answer.text(ANSWER);
        let mut choices = vec![Choice { text, ..Choice::default() }; prepared.jobs.len()];
        let answer = answer(&SERVICE, &prepared, &mut choices, &ResponseMeta::new("1".into()));
        assert_eq!(answer["choices"].as_array().map(Vec::len), Some(choices.len()));
    }
}

fn check(ids: &[u32]) {
    assert!(!ids.is_empty() && ids.len() <= CONTEXT && ids.iter().all(|id| (*id as usize) < SERVICE.vocab));
}

fuzz_target!(|case: Case| case.run());
