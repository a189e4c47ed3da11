//! Checks that there are rows for all fields of the SDKs' request types and for fields that other servers document.
//! `tests/sdk/fields.py` lists these fields.

use serde_json::{Map, Value, json};

use super::{Row, Use, anthropic, audio, embeddings, infill, ollama, openai, rerank, responses};

/// Returns the names of the tables' fields. Ollama's field `options` has separate tables.
fn names<T>(tables: &[&[Row<T>]]) -> Vec<&'static str> {
    tables.iter().copied().flatten().flat_map(|Row(names, _)| names.iter().copied()).collect()
}

fn rows(path: &str) -> Vec<&'static str> {
    match path {
        "/v1/chat/completions" => names(&openai::OF_CHAT),
        "/v1/completions" | "/completion" => names(&openai::OF_COMPLETION),
        "/infill" => names(&infill::TABLES),
        "/v1/responses" => names(&responses::TABLES),
        "/v1/embeddings" | "/api/embed" | "/api/embeddings" => names(&[embeddings::ROWS]),
        "/v1/audio/transcriptions" | "/v1/audio/translations" => names(&[audio::ROWS]),
        "/v1/messages" | "/v1/messages/count_tokens" => names(&[anthropic::MESSAGES]),
        "/api/generate" | "/api/chat" => names(&[ollama::ROWS]),
        "options" => names(&ollama::OF_OPTIONS),
        "/v1/rerank" | "/v2/rerank" | "/rerank" | "/reranking" => names(&[rerank::ROWS]),
        // It reads only the model's name.
        "/api/show" => vec!["model", "name"],
        _ => panic!("{path} has no tables here"),
    }
}

#[test]
fn every_field_of_the_sdks_has_a_row() {
    let sdks: Value = serde_json::from_str(include_str!("../../../../tests/sdk/fields.json")).unwrap();
    let mut count = 0;
    for (sdk, described) in sdks.as_object().unwrap() {
        assert!(described["version"].is_string(), "{sdk}");
        for (path, fields) in described["fields"].as_object().unwrap() {
            let rows = rows(path);
            for field in fields.as_array().unwrap() {
                assert!(rows.contains(&field.as_str().unwrap()), "{sdk}: {path} has no row for {field}");
                count += 1;
            }
        }
    }
    assert!(count > 200, "{count}");
}

/// Checks that a refused field is refused with any value that would change the answer, and that the error names the
/// field. A harmless field may have any value.
fn obeys<T>(tables: &[&[Row<T>]], mut read: impl FnMut(&Map<String, Value>) -> Result<(), Option<String>>) {
    for Row(names, used) in tables.iter().copied().flatten() {
        for name in *names {
            for value in [json!("some text"), json!([{ "a": 1 }]), json!({ "a": 1 }), json!(123)] {
                let told = read(&Map::from_iter([(name.to_string(), value.clone())]));
                match used {
                    Use::Harmless => assert_eq!(told, Ok(()), "{name} {value}"),
                    Use::Refused(_) => assert_eq!(told, Err(Some(name.to_string())), "{name} {value}"),
                    Use::Reads(_) => {}
                }
                let absent = read(&Map::from_iter([(name.to_string(), Value::Null)]));
                assert_eq!(absent, Ok(()), "{name}: null");
            }
        }
    }
}

/// Calls a generic function once for the tables of each interface. It is a macro, because the tables are for targets of
/// different types.
macro_rules! for_all_tables {
    ($check:ident) => {
        $check(&openai::OF_CHAT);
        $check(&openai::OF_COMPLETION);
        $check(&infill::TABLES);
        $check(&responses::TABLES);
        $check(&[embeddings::ROWS]);
        $check(&[anthropic::MESSAGES]);
        $check(&[ollama::ROWS]);
        $check(&ollama::OF_OPTIONS);
        $check(&[rerank::ROWS]);
    };
}

#[test]
fn rows_do_what_they_say() {
    fn check<T: Default>(tables: &[&[Row<T>]]) {
        obeys(tables, |body| super::read(body, tables, &mut T::default()).map_err(|refusal| refusal.field));
    }
    for_all_tables!(check);
}

/// Values of which one suits each field.
fn values() -> Vec<Value> {
    let function = json!({ "name": "f", "description": "d", "parameters": { "type": "object" } });
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let text = json!({ "type": "text", "text": "a" });
    let mut values = vec![
        json!([{ "role": "user", "content": "a" }]),
        json!([{ "type": "message", "role": "user", "content": "a" }]),
        json!([{ "type": "function", "function": function }]),
        json!([{ "type": "function", "name": "f", "parameters": schema }]),
        json!([{ "name": "f", "input_schema": schema }]),
        json!([function]),
        json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema } }),
        json!({ "format": { "type": "json_schema", "name": "a", "schema": schema } }),
        json!({ "format": { "type": "json_schema", "schema": schema } }),
        json!({ "type": "function", "function": { "name": "f" } }),
        json!({ "type": "enabled", "budget_tokens": 2048 }),
        json!({ "type": "any", "disable_parallel_tool_use": true }),
        json!({ "include_usage": true }),
        json!({ "effort": "high" }),
        json!({ "type": "json_schema", "schema": schema }),
        json!({ "json": schema }),
        json!([{ "id": 1, "data": "AQID" }]),
        json!({ "temperature": 0.25 }),
        json!({ "5": 1.5 }),
        json!([[5, 1.5]]),
        json!([{ "id": 0, "scale": 0.5 }]),
        json!([{ "type": "word", "value": "a" }]),
        json!([{ "filename": "a", "text": "b" }]),
        json!(["message.output_text.logprobs"]),
        json!([text]),
        json!(["a", "b"]),
        json!([1, 2, 3]),
        schema,
    ];
    values.extend([0.25, 1.75, -1.0].map(|number| json!(number)));
    values.extend([0, 1, 2, 3, -1].map(|number| json!(number)));
    values.extend([true, false].map(|value| json!(value)));
    let words = [
        "a",
        "auto",
        "none",
        "required",
        "any",
        "high",
        "json",
        "base64",
        "root ::= \"a\"",
        "5m",
        "disabled",
        "deepseek",
    ];
    values.extend(words.map(|word| json!(word)));
    values
}

/// Fields whose values are only checked: some values are refused, and all others change nothing.
const CHECKED: &[&str] = &[
    "modalities",
    "best_of",
    "functions",
    "function_call",
    "reasoning_format",
    "previous_response_id",
    "conversation",
    "thread",
    "images",
    "encoding_format",
    "embd_normalize",
    "embedding_types",
    "raw_scores",
    "truncation_direction",
];

/// Each field that a table claims to read has an effect: there is a value that changes the request, either by itself or
/// together with a conversation or a prompt.
#[test]
fn fields_that_are_read_have_an_effect() {
    fn check<T: Default + std::fmt::Debug>(tables: &[&[Row<T>]]) {
        let read = |body: &Map<String, Value>| {
            let mut target = T::default();
            super::read(body, tables, &mut target).map(|()| format!("{target:?}")).map_err(|refusal| refusal.field)
        };
        let turns = json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }]);
        let beside = [json!({}), json!({ "messages": turns }), json!({ "prompt": "a[img-1]" })];
        for Row(names, used) in tables.iter().copied().flatten() {
            for name in names.iter().filter(|_| matches!(used, Use::Reads(_))) {
                let told = beside.iter().flat_map(|beside| {
                    let beside = beside.as_object().unwrap();
                    let usual = read(beside);
                    values().into_iter().map(move |value| {
                        let mut body = beside.clone();
                        body.insert(name.to_string(), value);
                        (read(&body), usual.clone())
                    })
                });
                let told: Vec<_> = told.collect();
                let is_right = match CHECKED.contains(name) {
                    true => told.iter().any(|(told, _)| *told == Err(Some(name.to_string()))),
                    false => told.iter().any(|(told, usual)| told.is_ok() && told != usual),
                };
                assert!(is_right, "{name}");
            }
        }
    }
    for_all_tables!(check);
}

/// In the requests of every interface, pictures can stand between texts. Checks that each picture gets the right place
/// in the prompt.
#[test]
fn pictures_have_their_places() {
    use arenite_request::{Input, Prompt};

    let url = "data:image/png;base64,AQID";
    let user = |content: Value| json!([{ "role": "user", "content": content }]);
    let part = json!({ "type": "image_url", "image_url": { "url": url } });
    let text = |text: &str| json!({ "type": "text", "text": text });
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "AQID" });
    let block = json!({ "type": "image", "source": source });
    let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": [text("ab"), block] });
    for (asked, wanted) in [
        (openai::chat(&json!({ "messages": user(json!([text("ab"), part, text("c")])) })), vec![("abc", vec![2])]),
        (
            responses::response(&json!({ "input": user(json!([
                { "type": "input_image", "image_url": url }, { "type": "input_text", "text": "ab" },
            ])) })),
            vec![("ab", vec![0])],
        ),
        (
            anthropic::messages(&json!({ "messages": user(json!([text("ab"), block, block])) })),
            vec![("ab", vec![2, 2])],
        ),
        (
            anthropic::messages(&json!({ "messages": user(json!([result, block])) })),
            vec![("ab", vec![2]), ("", vec![0])],
        ),
        (
            ollama::asked(&json!({ "messages": [{ "role": "user", "content": "ab", "images": ["AQID", url] }] }), true)
                .map(|read| read.asked),
            vec![("ab", vec![0, 0])],
        ),
        (
            ollama::asked(&json!({ "prompt": "ab", "images": ["AQID"] }), false).map(|read| read.asked),
            vec![("ab", vec![0])],
        ),
    ] {
        let request = asked.unwrap().request;
        let places = |message: &arenite_request::Message| message.pictures.iter().map(|picture| picture.at).collect();
        let read: Vec<(&str, Vec<usize>)> =
            request.messages().iter().map(|message| (message.text.as_deref().unwrap(), places(message))).collect();
        assert_eq!(read, wanted);
    }
    let marks = json!({ "prompt_string": "a<__media__>b<__media__>", "multimodal_data": ["AQID", "AQID"] });
    let old = json!([{ "id": 2, "data": "AQID" }, { "id": 1, "data": "AQID" }]);
    for body in [json!({ "prompt": marks }), json!({ "prompt": "a[img-1]b[img-2]", "image_data": old })] {
        let Input::Texts(prompts) = openai::completion(&body).unwrap().request.input else { panic!("{body}") };
        let [Prompt::Seen(content)] = &prompts[..] else { panic!("{body}") };
        let places: Vec<usize> = content.pictures.iter().map(|picture| picture.at).collect();
        assert_eq!((content.text.as_str(), places), ("ab", vec![1, 2]), "{body}");
    }
    for body in [
        json!({ "prompt": { "prompt_string": "a<__media__>", "multimodal_data": [] } }),
        json!({ "prompt": { "prompt_string": "a", "multimodal_data": ["!"] } }),
        json!({ "prompt": "a", "image_data": [{ "id": 1, "data": "AQID" }] }),
    ] {
        assert!(openai::completion(&body).is_err(), "{body}");
    }
}
