//! Each interface has its own fields for thoughts. All of them set the same variables of the template.

use serde_json::{Value, json};

use crate::common::arenite_with;
use crate::scripted::{CHATML, Scripted};
use crate::talk::{Talk, asked, start};

/// Templates that write the end of a prompt, abridged from the models' templates. DeepSeek V4 has a switch and an
/// effort. Hy3 has only efforts, and an error for unknown efforts. Kimi K3 has both. gpt-oss shows any word. Seed OSS
/// has a budget, and MiniMax M3 has a mode.
const SWITCH_AND_EFFORT: &str = "{{ messages[0].content }}{% if thinking and reasoning_effort == 'max' %}!{% endif %}<think>\
    {% if not thinking %}</think>{% endif %}";
const EFFORTS: &str = "{% if not reasoning_effort is defined %}{% set reasoning_effort = 'no_think' %}\
    {% elif reasoning_effort not in ['high', 'low', 'no_think'] %}{{ raise_exception('should be no_think/low/high') }}{% endif %}\
    {{ messages[0].content }}[{{ reasoning_effort }}]<think>{% if reasoning_effort == 'no_think' %}</think>{% endif %}";
const BOTH: &str = "{% if thinking is undefined %}{% set thinking = true %}{% endif %}{% if thinking_effort is undefined %}\
    {% set thinking_effort = 'max' %}{% endif %}{% if thinking and thinking_effort not in ['low', 'high', 'max'] %}\
    {{ raise_exception('supported values are low, high, and max') }}{% endif %}{{ messages[0].content }}\
    {% if thinking %}[{{ thinking_effort }}]<think>{% endif %}";
const ANY_WORD: &str =
    "{{ messages[0].content }}[{{ reasoning_effort if reasoning_effort is defined else 'medium' }}]<think>";
const BUDGET: &str =
    "{{ messages[0].content }}[{{ thinking_budget if thinking_budget is defined else 'thinking at will' }}]<think>";
const MODE: &str = "{{ messages[0].content }}[{{ thinking_mode if thinking_mode is defined else 'adaptive' }}]<think>";
/// A text about thinking is no switch.
const NO_THOUGHTS: &str = "{{ 'thinking' }}{{ messages[0].content }} thinking: {# thinking #}";

/// A door, and what it asks.
fn doors(ask: &str) -> Vec<(&'static str, Value)> {
    let chat = |more: Value| ("/v1/chat/completions", more);
    let anthropic = |more: Value| ("/v1/messages/count_tokens", more);
    match ask {
        "on" => vec![
            chat(json!({ "enable_thinking": true })),
            chat(json!({ "thinking": { "type": "enabled" } })),
            chat(json!({ "reasoning": { "enabled": true } })),
            chat(json!({ "reasoning_effort": "default" })),
            anthropic(json!({ "thinking": { "type": "enabled", "budget_tokens": -1 } })),
            anthropic(json!({ "thinking": { "type": "adaptive" } })),
            ("/api/chat", json!({ "think": true })),
        ],
        "off" => vec![
            chat(json!({ "enable_thinking": false })),
            chat(json!({ "thinking": { "type": "disabled" }, "reasoning_effort": "high" })),
            chat(json!({ "reasoning_effort": "none" })),
            chat(json!({ "reasoning_budget": 0 })),
            ("/v1/responses/input_tokens", json!({ "reasoning": { "effort": "none" } })),
            anthropic(json!({ "thinking": { "type": "disabled" }, "output_config": { "effort": "high" } })),
            ("/api/chat", json!({ "think": false })),
        ],
        effort => vec![
            chat(json!({ "reasoning_effort": effort })),
            chat(json!({ "reasoning": { "effort": effort } })),
            chat(json!({ "reasoning_effort": effort, "enable_thinking": true })),
            ("/v1/responses/input_tokens", json!({ "reasoning": { "effort": effort } })),
            anthropic(json!({ "thinking": { "type": "adaptive" }, "output_config": { "effort": effort } })),
            ("/api/chat", json!({ "think": effort })),
        ],
    }
}

/// The number of tokens of a request's prompt.
fn count(talk: &Talk, path: &str, more: &Value) -> Value {
    let mut body = asked(json!({ "max_tokens": 1, "input": "hi", "stream": false }));
    more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
    let answer = talk.good(path, &body);
    let counts = [answer.pointer("/usage/prompt_tokens"), answer.get("input_tokens"), answer.get("prompt_eval_count")];
    counts.into_iter().flatten().next().unwrap_or_else(|| panic!("{path}: {answer}")).clone()
}

#[test]
fn every_door_asks_for_the_same_thoughts() {
    // Each template has the expected ends of its prompts: for a request without a setting, with thoughts, without
    // thoughts, and with each effort.
    for (template, [usual, on, off, minimal, low, medium, high, xhigh, max]) in [
        (
            SWITCH_AND_EFFORT,
            [
                "hi<think></think>",
                "hi<think>",
                "hi<think></think>",
                "hi<think>",
                "hi<think>",
                "hi<think>",
                "hi<think>",
                "hi!<think>",
                "hi!<think>",
            ],
        ),
        (
            EFFORTS,
            [
                "hi[no_think]<think></think>",
                "hi[high]<think>",
                "hi[no_think]<think></think>",
                "hi[low]<think>",
                "hi[low]<think>",
                "hi[high]<think>",
                "hi[high]<think>",
                "hi[high]<think>",
                "hi[high]<think>",
            ],
        ),
        (
            BOTH,
            [
                "hi[max]<think>",
                "hi[max]<think>",
                "hi",
                "hi[low]<think>",
                "hi[low]<think>",
                "hi[high]<think>",
                "hi[high]<think>",
                "hi[max]<think>",
                "hi[max]<think>",
            ],
        ),
        (
            ANY_WORD,
            [
                "hi[medium]<think>",
                "hi[medium]<think>",
                "hi[medium]<think>",
                "hi[low]<think>",
                "hi[low]<think>",
                "hi[medium]<think>",
                "hi[high]<think>",
                "hi[high]<think>",
                "hi[high]<think>",
            ],
        ),
        (BUDGET, ["hi[thinking at will]<think>"; 9]),
        (
            MODE,
            [
                "hi[adaptive]<think>",
                "hi[enabled]<think>",
                "hi[disabled]<think>",
                "hi[enabled]<think>",
                "hi[enabled]<think>",
                "hi[enabled]<think>",
                "hi[enabled]<think>",
                "hi[enabled]<think>",
                "hi[enabled]<think>",
            ],
        ),
    ] {
        let talk = start(&["x"], &[], &[], template);
        let off = if template == BUDGET { "hi[0]<think>" } else { off };
        let plain = |more: Value| talk.good("/apply-template", &asked(more))["prompt"].as_str().unwrap().to_string();
        assert_eq!(plain(json!({})), usual, "{template}");
        let efforts = [("minimal", minimal), ("low", low), ("medium", medium), ("high", high), ("xhigh", xhigh)];
        for (ask, wanted) in [("on", on), ("off", off), ("max", max)].into_iter().chain(efforts) {
            let tokens = talk.good("/tokenize", &json!({ "content": wanted }))["tokens"].as_array().unwrap().len();
            for (path, more) in doors(ask) {
                assert_eq!(count(&talk, path, &more), tokens, "{template}\n{path} {more}: {wanted}");
                if path == "/v1/chat/completions" {
                    assert_eq!(plain(more.clone()), wanted, "{template}\n{more}");
                }
            }
        }
    }
    let talk = start(&["x"], &[], &[], BUDGET);
    let prompt = talk.good("/apply-template", &asked(json!({ "thinking_budget": 64 })))["prompt"].clone();
    assert_eq!(prompt, "hi[64]<think>");
}

#[test]
fn an_unknown_effort_is_refused() {
    for (template, says) in [(EFFORTS, "should be no_think/low/high"), (ANY_WORD, "give none, low, medium, high")] {
        let talk = start(&["x"], &[], &[], template);
        let error = talk.refused("/v1/chat/completions", &asked(json!({ "reasoning_effort": "bogus" })));
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
        assert_eq!(count(&talk, "/v1/chat/completions", &json!({ "reasoning_effort": "" })), {
            count(&talk, "/v1/chat/completions", &json!({}))
        });
    }
    // A word of the template itself.
    let talk = start(&["x"], &[], &[], EFFORTS);
    let prompt = talk.good("/apply-template", &asked(json!({ "reasoning_effort": "no_think" })))["prompt"].clone();
    assert_eq!(prompt, "hi[no_think]<think></think>");
}

#[test]
fn a_model_that_does_not_think_says_so_and_answers() {
    for template in [CHATML, NO_THOUGHTS] {
        let talk = start(&["Once", " upon"], &[], &[], template);
        for (path, more) in doors("on").into_iter().chain(doors("medium")) {
            let mut body = asked(json!({ "stream": false, "input": "hi" }));
            more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
            if path == "/api/chat" {
                // As Ollama does.
                let error = talk.refused(path, &body);
                assert!(error.as_str().unwrap().contains("think is not supported here"), "{error}");
                continue;
            }
            let path = path.trim_end_matches("/count_tokens").trim_end_matches("/input_tokens");
            let (head, text) = talk.server.ask("POST", path, "", body.to_string().as_bytes());
            assert!(head.contains(" 200 ") && text.contains("Once upon"), "{path} {more}: {head} {text}");
            assert!(head.contains(": the model does not think"), "{path} {more}: {head}");
        }
        for (path, more) in doors("off") {
            count(&talk, path, &more);
        }
    }
}

/// Qwen3's template closes the thought, but the model begins a second thought.
#[test]
fn thoughts_that_come_although_they_are_off_are_thoughts() {
    let template = format!(
        "{CHATML}{{% if enable_thinking is defined and not enable_thinking %}}<think>\n\n</think>\n\n{{% endif %}}"
    );
    let script = ["<think>", "alpha", " beta", "</think>", "gamma", " delta"];
    let talk = start(&script, &[], &["<think>"], &template);
    let fields = [json!({ "chat_template_kwargs": { "enable_thinking": false } }), json!({ "enable_thinking": false })];
    for more in fields.into_iter().chain([json!({ "reasoning_effort": "none" })]) {
        let message = talk.chat(more.clone())["message"].clone();
        let parts = (&message["reasoning_content"], &message["content"]);
        assert_eq!(parts, (&json!("alpha beta"), &json!("gamma delta")), "{more}");
        let (mut thought, mut content) = (String::new(), String::new());
        for event in talk.stream("/v1/chat/completions", &asked(more.clone())) {
            let delta = &event["choices"][0]["delta"];
            thought += delta["reasoning_content"].as_str().unwrap_or_default();
            content += delta["content"].as_str().unwrap_or_default();
        }
        assert_eq!((thought.as_str(), content.as_str()), ("alpha beta", "gamma delta"), "{more}");
    }
}

#[test]
fn thoughts_may_be_left_out() {
    let talk = start(&["<think>", "Hm.", "</think>", "Hello", "."], &[], &["<think>", "</think>"], CHATML);
    let hidden = |path: &str, more: Value| {
        for is_streamed in [false, true] {
            let mut body = asked(json!({ "input": "hi", "stream": is_streamed }));
            more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
            let (head, text) = talk.server.ask("POST", path, "", body.to_string().as_bytes());
            assert!(head.contains(" 200 ") && text.contains("Hello"), "{path} {more}: {text}");
            assert!(!text.contains("Hm."), "{path} {more}: {text}");
        }
    };
    hidden("/v1/chat/completions", json!({ "include_reasoning": false }));
    hidden("/v1/chat/completions", json!({ "reasoning": { "exclude": true } }));
    hidden("/v1/responses", json!({ "reasoning": { "exclude": true } }));
    hidden("/v1/messages", json!({ "thinking": { "type": "adaptive", "display": "omitted" } }));
    let shown = talk.chat(json!({ "include_reasoning": true }));
    assert_eq!(shown["message"]["reasoning_content"], "Hm.");
}

#[test]
fn the_command_line_asks_for_the_same_thoughts() {
    let directory = tempfile::tempdir().unwrap();
    let (model, messages) = (directory.path().join("m.gguf"), directory.path().join("m.json"));
    std::fs::write(&messages, r#"[{"role": "user", "content": "hi"}]"#).unwrap();
    for (template, switch, wanted) in [
        (EFFORTS, "on", "hi[high]<think>"),
        (EFFORTS, "off", "hi[no_think]<think></think>"),
        (SWITCH_AND_EFFORT, "on", "hi<think>"),
        (NO_THOUGHTS, "on", "error: the model does not think; leave out --think\n"),
    ] {
        Scripted { script: &["x"], control: &[], user: &[], template }.write(&model);
        let (model, messages) = (model.to_str().unwrap(), messages.to_str().unwrap());
        let output =
            arenite_with(&["chat", "-m", model, "--messages", messages, "--print-prompt", "--think", switch], b"");
        let told = if output.stdout.is_empty() { output.stderr } else { output.stdout };
        assert_eq!(String::from_utf8(told).unwrap(), wanted, "{template} {switch}");
    }
}
