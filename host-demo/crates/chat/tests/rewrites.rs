//! Conversations that a template refuses, or does not show completely, are rewritten. The templates have the same
//! conditions as the public templates that the comments name.

use arenite::Gguf;
use arenite_chat::{Ending, Renderer, Style};
use arenite_request::Message;
use arenite_text as text;
use serde_json::{Map, Value, json};

/// Renders a conversation. Returns the warning, too.
fn rendered(template: &str, messages: &Value) -> (String, Option<&'static str>) {
    rendered_with(template, messages, &[])
}

fn rendered_with(template: &str, messages: &Value, tools: &[Value]) -> (String, Option<&'static str>) {
    let gguf = Gguf::parse(include_bytes!("../../../models/stories.gguf")).unwrap();
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).unwrap();
    let renderer = Renderer::new(&gguf, &tokenizer, "auto", Some(template.to_string())).unwrap();
    let style = Style::of(&renderer, &tokenizer);
    let messages: Vec<Message> =
        messages.as_array().unwrap().iter().map(|message| Message::of(message).unwrap()).collect();
    let conversation = style.conversation(&messages, tools);
    let (prompt, warning) = style.prompt(&renderer, conversation, &Map::new(), Ending::Answer).unwrap();
    (prompt.text, warning)
}

fn call(id: &str, city: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": { "city": city } } })
}

/// Shows every message in brackets.
const ALL: &str = "{% for message in messages %}{% if message.tool_calls %}\
    {% for call in message.tool_calls %}<tool_call>{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}\
    {% else %}[{{ message.role }}|{{ message.content }}]{% endif %}{% endfor %}";

#[test]
fn each_call_is_in_a_message_of_its_own() {
    // Llama 3.1 and 3.2.
    let single = format!(
        "{{% for message in messages %}}{{% if message.tool_calls and message.tool_calls | length != 1 %}}\
         {{{{ raise_exception('This model only supports single tool-calls at once!') }}}}{{% endif %}}{{% endfor %}}{ALL}"
    );
    let result = |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
    let messages = json!([
        { "role": "user", "content": "Q" },
        { "role": "assistant", "content": null, "tool_calls": [call("a", "Oslo"), call("b", "Rome")] },
        result("b", "second"), result("a", "first"),
    ]);
    let (prompt, warning) = rendered(&single, &messages);
    let wanted = "[user|Q]<tool_call>{\"name\": \"f\", \"arguments\": {\"city\": \"Oslo\"}}</tool_call>[tool|first]\
                  <tool_call>{\"name\": \"f\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>[tool|second]";
    assert_eq!(prompt, wanted);
    assert!(warning.is_some_and(|warning| warning.contains("one call in a message")));
    assert_eq!(rendered(ALL, &messages).1, None);
}

#[test]
fn an_answer_may_begin_the_conversation() {
    let alternating = format!(
        "{{% for message in messages %}}{{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}}\
         {{{{ raise_exception('roles must alternate') }}}}{{% endif %}}{{% endfor %}}{ALL}"
    );
    let messages = json!([{ "role": "assistant", "content": "Hello." }, { "role": "user", "content": "Q" }]);
    let (prompt, warning) = rendered(&alternating, &messages);
    assert_eq!(prompt, "[user|][assistant|Hello.][user|Q]");
    assert!(warning.is_some_and(|warning| warning.contains("user message first")));
    assert_eq!(rendered(ALL, &messages).1, None);
}

#[test]
fn no_text_of_the_system_or_of_a_function_is_hidden() {
    let question = json!({ "role": "user", "content": "Q" });
    let system = |text: &str| json!({ "role": "system", "content": text });
    // Granite 3.0's template shows the results of functions only in messages with the role `tool_response`, and other
    // templates only in messages of the user.
    let roles = |known: &str| ALL.replace("{% else %}", &format!("{{% elif message.role in {known} %}}"));
    let loops = json!([
        question, { "role": "assistant", "content": null, "tool_calls": [call("a", "Oslo")] },
        { "role": "tool", "tool_call_id": "a", "content": "7" },
    ]);
    let before = "[user|Q]<tool_call>{\"name\": \"f\", \"arguments\": {\"city\": \"Oslo\"}}</tool_call>";
    for (known, wanted) in [
        ("['user', 'tool']", "[tool|7]"),
        ("['user', 'tool_response']", "[tool_response|7]"),
        ("['user']", "[user|<tool_response>\n7\n</tool_response>]"),
    ] {
        let (prompt, warning) = rendered(&roles(known), &loops);
        assert_eq!((prompt, warning.is_some()), (format!("{before}{wanted}"), !known.contains("'tool'")), "{known}");
    }
    // Gemma 3 and Llama 2 put the system message before the first message, DeepSeek R1's distilled models show the last
    // system message, SmolLM 3 shows the first system message.
    let first = "{% set system = messages[0].content if messages[0].role == 'system' else '' %}{% for message in messages %}\
                 {% if message.role != 'system' %}[{{ message.role }}|{{ system if loop.index0 == 1 }} {{ message.content }}]{% endif %}{% endfor %}";
    let last = "{% set ns = namespace(system='') %}{% for message in messages %}{% if message.role == 'system' %}\
                {% set ns.system = message.content %}{% endif %}{% endfor %}{{ ns.system }}{% for message in messages %}\
                {% if message.role != 'system' %}[{{ message.role }}|{{ message.content }}]{% endif %}{% endfor %}";
    assert_eq!(rendered(first, &json!([system("S"), question])), ("[user|S Q]".into(), None));
    assert_eq!(rendered(first, &json!([system("Say a haiku.")])).0, "[user| Say a haiku.]");
    assert_eq!(rendered(first, &json!([system("S"), system("T"), question])).0, "[user|S\n\nT Q]");
    let (prompt, warning) = rendered(last, &json!([system("S"), system("T"), question]));
    assert_eq!(prompt, "S\n\nT[user|Q]");
    assert!(warning.is_some_and(|warning| warning.contains("one system message")));
    // If a template shows no text at all, as the templates of scripted tests do, the conversation is not rewritten.
    let silent = "{{ tools | length if tools else '' }}{% for message in messages %}[{{ message.role }}]{% endfor %}";
    assert_eq!(rendered(silent, &loops), ("[user][assistant][tool]".into(), None));
}

#[test]
fn earlier_calls_are_in_the_form_of_the_model() {
    // LFM2: the template contains the delimiter of calls in a comment, but it does not write calls.
    let plain =
        "{# <|tool_call_start|> #}{% for message in messages %}[{{ message.role }}|{{ message.content }}]{% endfor %}";
    // Kimi K2 Thinking: the template writes the identifiers of calls instead of the functions' names.
    let numbered = "{% for message in messages %}[{{ message.role }}|{{ message.content or '' }}]{% if message.tool_calls %}\
        <|tool_calls_section_begin|>{% for call in message.tool_calls %}<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>\
        {{ call.function.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}\
        {% if message.tool_call_id %}## {{ message.tool_call_id }}{% endif %}{% endfor %}";
    let messages = json!([
        { "role": "user", "content": "Q" },
        { "role": "assistant", "content": null, "tool_calls": [call("call_a", "Oslo"), call("call_b", "Rome")] },
        { "role": "tool", "tool_call_id": "call_b", "content": "7" },
    ]);
    let calls = "<|tool_call_start|>[f(city=\"Oslo\"), f(city=\"Rome\")]<|tool_call_end|>";
    let result = "[user|<tool_response>\n7\n</tool_response>]";
    assert_eq!(rendered(plain, &messages).0, format!("[user|Q][assistant|{calls}]{result}"));
    let call = |number: usize, city: &str| {
        format!(
            "<|tool_call_begin|>functions.f:{number}<|tool_call_argument_begin|>{{\"city\": \"{city}\"}}<|tool_call_end|>"
        )
    };
    let calls = format!("<|tool_calls_section_begin|>{}{}<|tool_calls_section_end|>", call(0, "Oslo"), call(1, "Rome"));
    assert_eq!(rendered(numbered, &messages).0, format!("[user|Q][assistant|]{calls}[tool|7]## functions.f:1"));
}

/// DeepSeek's templates write earlier calls, but do not read `tools`. As in transformers, the prompt is unchanged; the
/// client learns that the model cannot know the functions.
#[test]
fn functions_that_a_template_does_not_show_are_a_warning() {
    let tools = [json!({ "type": "function", "function": { "name": "get_time", "parameters": { "type": "object" } } })];
    let question = json!({ "role": "user", "content": "Q" });
    let (prompt, warning) = rendered_with(ALL, &json!([question]), &tools);
    assert_eq!(prompt, "[user|Q]");
    assert!(warning.is_some_and(|warning| warning.contains("describe them")), "{warning:?}");
    let described = json!([{ "role": "system", "content": "Call get_time." }, question]);
    assert_eq!(rendered_with(ALL, &described, &tools), ("[system|Call get_time.][user|Q]".into(), None));
    assert_eq!(rendered(ALL, &json!([question])).1, None);
}

/// Integers of more than 64 bits, as in Python.
#[test]
fn earlier_calls_keep_large_integers() {
    let call =
        json!({ "function": { "name": "f", "arguments": "{\"a\": [123456789012345678901234567890], \"b\": 1.5}" } });
    let messages = json!([{ "role": "user", "content": "Q" }, { "role": "assistant", "tool_calls": [call] }]);
    let arguments = "{\"a\": [123456789012345678901234567890], \"b\": 1.5}";
    let wanted = format!("[user|Q]<tool_call>{{\"name\": \"f\", \"arguments\": {arguments}}}</tool_call>");
    assert_eq!(rendered(ALL, &messages).0, wanted);
    // A template without calls gets them as text.
    let plain = "{% for message in messages %}[{{ message.role }}|{{ message.content }}]{% endfor %}";
    let (prompt, _) = rendered(plain, &messages);
    assert!(prompt.contains(arguments), "{prompt}");
}
