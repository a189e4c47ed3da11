//! Answers in every form, as written in the public templates and model cards of these families.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn tools() -> Arc<Tools> {
    let weather = json!({ "type": "object", "properties": {
        "city": { "type": "string" }, "days": { "type": "integer" }, "exact": { "type": "boolean" },
        "at": { "type": "object" }, "tags": { "type": "array", "items": { "type": "string" } },
        "unit": { "anyOf": [{ "type": "string" }, { "type": "null" }] } } });
    let tool = |name: &str, parameters: &Value| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    let time = json!({ "type": "object", "properties": {} });
    Arc::new(Tools::of(&[tool("get_weather", &weather), tool("get_time", &time)]))
}

pub fn reader(prompt: &str) -> Reader {
    Reader::new(Arc::new(Dialect::all(&Marks::default())), tools(), prompt)
}

/// Returns content, thought and calls of an answer. Checks that the result does not depend on the size of the pieces.
pub fn read_after(prompt: &str, text: &str) -> (String, String, Vec<(String, Value)>) {
    let chars: Vec<char> = text.chars().collect();
    let mut results = [usize::MAX, 1, 2, 3, 7].map(|size| {
        let mut reader = reader(prompt);
        let (mut parts, mut result) = (Vec::new(), (String::new(), String::new(), Vec::new()));
        for piece in chars.chunks(size.min(chars.len().max(1))) {
            reader.push(&piece.iter().collect::<String>(), &mut parts);
        }
        reader.finish(&mut parts, false);
        for part in parts {
            match part {
                Part::Content(text) => result.0 += &text,
                Part::Thought(text) => result.1 += &text,
                Part::Call(call) => result.2.push((call.name, serde_json::from_str(&call.arguments).unwrap())),
            }
        }
        result
    });
    assert!(results.iter().all(|result| *result == results[0]), "{text:?}: {results:#?}");
    std::mem::take(&mut results[0])
}

pub fn read(text: &str) -> (String, String, Vec<(String, Value)>) {
    read_after("", text)
}

/// The same call of `get_weather` in the form of each family. `city` is a text, and `days` is a number.
pub const FORMS: &[&str] = &[
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n</tool_call>",
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
    "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>",
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call>",
    "<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Oslo</longcat_arg_value>\n<longcat_arg_key>days</longcat_arg_key>\n<longcat_arg_value>2</longcat_arg_value>\n</longcat_tool_call>",
    "<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]</tool_calls>",
    "<tool_calls>\n<tool_call>get_weather\n```json\n{\"city\": \"Oslo\", \"days\": 2}\n```\n</tool_call>\n</tool_calls>",
    "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]</TOOLCALL>",
    "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n<parameter=days>2</parameter>\n</function>\n</seed:tool_call>",
    "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n</minimax:tool_call>",
    "<function_calls>\nget_weather(city=\"Oslo\", days=2)\n</function_calls>",
    "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n<｜DSML｜ parameter name=\"city\" string=\"true\">Oslo</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"days\" string=\"false\">2</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>",
    "<｜GCML｜tool_calls>\n<｜GCML｜invoke name=\"get_weather\">\n<｜GCML｜parameter name=\"city\" string=\"true\">Oslo</｜GCML｜parameter>\n<｜GCML｜parameter name=\"days\" string=\"false\">2</｜GCML｜parameter>\n</｜GCML｜invoke>\n</｜GCML｜tool_calls>",
    "<dots_function_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n</dots_function_call>",
    "<dots_function_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n</dots_function_call>",
    "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>get_weather<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{\"city\": \"Oslo\", \"days\": 2}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>",
    "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>get_weather<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:msg|>{\"city\": \"Oslo\", \"days\": 2}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>",
    "<use_mcp_tool>\n<server_name>generic-extras</server_name>\n<tool_name>get_weather</tool_name>\n<arguments>\n{\"city\": \"Oslo\", \"days\": 2}\n</arguments>\n</use_mcp_tool>",
    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Oslo\", \"days\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Oslo\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Oslo\", \"days\": 2}<|tool_call_end|><|tool_calls_section_end|>",
    "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>Oslo<|close|>argument<|sep|><|open|>argument key=\"days\" type=\"number\"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}\n]<|END_ACTION|>",
    "Action: ```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": {\n            \"city\": \"Oslo\", \"days\": 2\n        }\n    }\n]```",
    "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}, \"id\": \"abc12def1\"}]",
    "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Oslo\", \"days\": 2}",
    "[TOOL_CALLS]get_weather[CALL_ID]abc12def1[ARGS]{\"city\": \"Oslo\", \"days\": 2}",
    "[TOOL_CALLS]get_weather{\"city\": \"Oslo\", \"days\": 2}",
    "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]<|/tool_call|>",
    "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]",
    "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]",
    "<|function_call|>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}",
    "<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}<|action_end|>",
    "<|tools_prefix|>[{\"get_weather\": {\"city\": \"Oslo\", \"days\": 2}}]<|tools_suffix|>",
    "<|tool_calls|><|tool_call:begin|>x1<|tool_call:name|>get_weather<|tool_call:args|>{\"city\": \"Oslo\", \"days\": 2}<|tool_call:end|>",
    "<|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>,days:2}<tool_call|>",
    "<start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:2}<end_function_call>",
    "<|tool_call_start|>[get_weather(city=\"Oslo\", days=2)]<|tool_call_end|>",
    "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Oslo</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>2</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
    "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>Oslo]<]minimax[>[</city>]<]minimax[>[<days>2]<]minimax[>[</days>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    "<function name=\"get_weather\"><param name=\"city\"><![CDATA[Oslo]]></param><param name=\"days\">2</param></function>",
    "<atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter name=\"city\">Oslo</atem:parameter>\n<atem:parameter name=\"days\">2</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
    "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"get_weather\"><steptml:parameter name=\"city\">Oslo</steptml:parameter><steptml:parameter name=\"days\">2</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
    "<function_call> {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}",
    "[unused11][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}][unused12]",
    "-> tool/function_call\n[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]",
    "<|tool_call_start|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]<|tool_call_end|>",
    "<|python_start|>[get_weather(city='Oslo', days=2)]<|python_end|>",
    "<|python_start|><|python_end|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}",
    "<functioncall>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}",
    "<toolcall> {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}} </toolcall>",
    "<|recipient|>get_weather\n<|content|>{\"city\": \"Oslo\", \"days\": 2}",
    "<|from|>assistant\n<|recipient|>get_weather\n<|content|>{\"city\": \"Oslo\", \"days\": 2}",
    "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}",
    "<|python_tag|>get_weather.call(city=\"Oslo\", days=2)",
    "<function=get_weather>{\"city\": \"Oslo\", \"days\": 2}</function>",
    ">>>get_weather\n{\"city\": \"Oslo\", \"days\": 2}",
    "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}",
    "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]",
    "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\":\\\"Oslo\\\",\\\"days\\\":2}\"}}",
    "```\n[\n    {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n]\n```",
    "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n```",
    "get_weather\n{\"city\": \"Oslo\", \"days\": 2}",
    "[get_weather(city='Oslo', days=2)]",
    "[get_weather(city=\"Oslo\", days=\"2\")]",
];

/// Returns true if calls in `form` have no delimiter: such a call must be the whole answer.
fn is_bare(form: &str) -> bool {
    form.starts_with(['{', '[', '`', 'g']) && !form.starts_with("[TOOL_CALLS]") && !form.starts_with("[unused")
}

#[test]
fn every_form_is_read() {
    let wanted = ("get_weather".to_string(), json!({ "city": "Oslo", "days": 2 }));
    for form in FORMS {
        assert_eq!(read(form), (String::new(), String::new(), vec![wanted.clone()]), "{form}");
        assert_eq!(read(&format!("\n{form}\n")), (String::new(), String::new(), vec![wanted.clone()]), "{form}");
        if is_bare(form) {
            continue;
        }
        assert_eq!(
            read(&format!("Let me see.\n\n{form}")),
            ("Let me see.".into(), String::new(), vec![wanted.clone()]),
            "{form}"
        );
        let two = read(&format!("{form}\n{form}"));
        assert_eq!(two, (String::new(), String::new(), vec![wanted.clone(), wanted.clone()]), "{form}");
        let thought = read_after("<think>\n", &format!("Hm.\n</think>\n\n{form}"));
        assert_eq!(thought, (String::new(), "Hm.".into(), vec![wanted.clone()]), "{form}");
    }
}

/// Checks two dialects with special rules: an answer of Functionary 2 begins after `<|recipient|>`, and an answer of
/// Llama 4 may have text between the delimiters of its calls.
#[test]
fn text_and_calls_of_functionary_2_and_llama_4() {
    let oslo = ("get_weather".to_string(), json!({ "city": "Oslo" }));
    let time = ("get_time".to_string(), json!({}));
    let prompt = "<|from|>user\n<|recipient|>all\n<|content|>Q\n<|from|>assistant\n<|recipient|>";
    for (prompt, text, content, calls) in [
        (prompt, "all\n<|content|>Hello.", "Hello.", vec![]),
        (prompt, "get_weather\n<|content|>{\"city\": \"Oslo\"}", "", vec![oslo.clone()]),
        (
            prompt,
            "all\n<|content|>Let me see.\n<|from|>assistant\n<|recipient|>get_weather\n<|content|>{\"city\": \"Oslo\"}\n\
             <|from|>assistant\n<|recipient|>get_time\n<|content|>{}",
            "Let me see.",
            vec![oslo.clone(), time.clone()],
        ),
        (
            "<|header_start|>assistant<|header_end|>\n\n",
            "<|python_start|>Let me see.<|python_end|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}\
             {\"name\": \"get_time\", \"parameters\": {}}",
            "Let me see.",
            vec![oslo.clone(), time],
        ),
        ("<|im_start|>assistant\n", "get_weather\nis a function.", "get_weather\nis a function.", vec![]),
        ("", "```json\n{\"name\": \"Oslo\"}\n```", "```json\n{\"name\": \"Oslo\"}\n```", vec![]),
        ("ASSISTANT: ", "<plain>Hello.", "Hello.", vec![]),
    ] {
        assert_eq!(read_after(prompt, text), (content.into(), String::new(), calls), "{text}");
    }
    let thought = read("<Thought>\nHm.\n</Thought>\n<Output>\n42\n</Output>");
    assert_eq!(thought, ("42".into(), "Hm.".into(), vec![]));
}

#[test]
fn several_calls_between_one_pair_of_marks() {
    let wanted = vec![("get_weather".to_string(), json!({ "city": "Oslo" })), ("get_time".to_string(), json!({}))];
    for text in [
        "<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}, {\"name\": \"get_time\", \"arguments\": {}}]</tool_calls>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\"}\n</tool_call>",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>\n<tool_call>get_time\n</tool_call>",
        "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]get_time[ARGS]{}",
        "<|tool_call_start|>[get_weather(city=\"Oslo\"), get_time()]<|tool_call_end|>",
        "<function_calls>\nget_weather(city=\"Oslo\")\nget_time()\n</function_calls>",
        "<|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>}<tool_call|><|tool_call>call:get_time{}<tool_call|>",
        "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo</parameter>\n</invoke>\n<invoke name=\"get_time\">\n</invoke>\n</minimax:tool_call>",
        "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}; {\"name\": \"get_time\", \"parameters\": {}}",
        ">>>get_weather\n{\"city\": \"Oslo\"}>>>get_time\n{}",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|><|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
    ] {
        assert_eq!(read(text).2, wanted, "{text}");
        assert_eq!(read(text).0, "", "{text}");
    }
}

#[test]
fn arguments_of_every_kind() {
    let wanted = json!({ "city": "Öl \"og\" {brød}\n2", "days": -3, "exact": true, "at": { "a": [1, { "b": null }] }, "tags": ["x, y", "नमस्ते"] });
    for text in [
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Öl \\\"og\\\" {brød}\\n2\", \"days\": -3, \"exact\": true, \"at\": {\"a\": [1, {\"b\": null}]}, \"tags\": [\"x, y\", \"नमस्ते\"]}}\n</tool_call>",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nÖl \"og\" {brød}\n2\n</parameter>\n<parameter=days>\n-3\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=at>\n{\"a\": [1, {\"b\": null}]}\n</parameter>\n<parameter=tags>\n[\"x, y\", \"नमस्ते\"]\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Öl \"og\" {brød}\n2</arg_value>\n<arg_key>days</arg_key>\n<arg_value>-3</arg_value>\n<arg_key>exact</arg_key>\n<arg_value>true</arg_value>\n<arg_key>at</arg_key>\n<arg_value>{\"a\": [1, {\"b\": null}]}</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>[\"x, y\", \"नमस्ते\"]</arg_value>\n</tool_call>",
        "<|tool_call_start|>[get_weather(city=\"Öl \\\"og\\\" {brød}\\n2\", days=-3, exact=True, at={\"a\": [1, {\"b\": None}]}, tags=[\"x, y\", 'नमस्ते'])]<|tool_call_end|>",
        "<|tool_call>call:get_weather{city:<|\"|>Öl \"og\" {brød}\n2<|\"|>,days:-3,exact:true,at:{a:[1,{b:null}]},tags:[<|\"|>x, y<|\"|>,<|\"|>नमस्ते<|\"|>]}<tool_call|>",
    ] {
        assert_eq!(read(text).2, [("get_weather".to_string(), wanted.clone())], "{text}");
    }
    // Texts remain texts, even if they look like other values.
    let zip = "<tool_call><function=get_weather><parameter=city>0042</parameter><parameter=unit>null</parameter></function></tool_call>";
    assert_eq!(read(zip).2[0].1, json!({ "city": "0042", "unit": null }));
}

#[test]
fn content_that_is_no_call() {
    for text in [
        "hello",
        "",
        "{\"name\": 1}",
        "{\"name\": \"Bingo\", \"parameters\": {\"age\": 30}}",
        "{\"city\": \"Oslo\"}",
        "{\"name\": \"get_weather\"}",
        "<tool_call>soon</tool_call> x",
        "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>",
        "[1, 2]",
        "[x](y)",
        "[get_other()]",
        "Use `<tool_call>` around it.",
        "[TOOL_CALLS]",
        "{\"name\": \"get_weather\", \"arguments\": {}} is how to call it.",
        "<function=",
        "Use `<think>` to start.",
        "{\"tag\": \"<think>\"}",
        ">>> 1 + 1\n2",
    ] {
        assert_eq!(read(text), (text.to_string(), String::new(), vec![]), "{text}");
    }
}

#[test]
fn thoughts_in_every_form() {
    for (open, close) in [
        ("<think>\n", "\n</think>\n\n"),
        ("<seed:think>", "</seed:think>\n"),
        ("[THINK]", "[/THINK]"),
        ("<|channel>thought\n", "\n<channel|>"),
        ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
        ("<|inner_prefix|>", "<|inner_suffix|>"),
        ("<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>response<|sep|>"),
        ("<think>\n", "\n</think>\n<answer>\n"),
        ("<mm:think>", "</mm:think>"),
        ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
        ("<thought>\n", "\n</thought>\n"),
    ] {
        let wanted = ("Hello there.".to_string(), "Hm, <b> well.".to_string(), vec![]);
        assert_eq!(read(&format!("{open}Hm, <b> well.{close}Hello there.")), wanted, "{open}");
        assert_eq!(
            read_after(&format!("<|assistant|>{open}"), &format!("Hm, <b> well.{close}Hello there.")),
            wanted,
            "{open}"
        );
        // After an unfinished thought there is no content.
        assert_eq!(read(&format!("{open}Hm, <b> well.")), (String::new(), wanted.1, vec![]), "{open}");
    }
    assert_eq!(read("<think>\nHm.\n</think>\n<answer>\nHello.\n</answer>").0, "Hello.");
    let steps = read_after(
        "<|assistant|>\nHere are my reasoning steps:\n",
        "Hm.\n[BEGIN FINAL RESPONSE]\nHello.\n[END FINAL RESPONSE]",
    );
    assert_eq!(steps, ("Hello.".into(), "Hm.".into(), vec![]));
}

#[test]
fn messages_in_channels() {
    let weather = vec![("get_weather".to_string(), json!({ "city": "Oslo" }))];
    for (prompt, text, wanted) in [
        ("<|start|>assistant", "<|channel|>final<|message|>Hello.", ("Hello.", "", vec![])),
        (
            "<|start|>assistant",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
            ("Hello.", "Hm.", vec![]),
        ),
        (
            "<|start|>assistant",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>",
            ("", "Hm.", weather.clone()),
        ),
        (
            "<|start|>assistant",
            "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"Oslo\"}<|call|>",
            ("Let me see.", "", weather.clone()),
        ),
        (
            "<|start|>assistant<|channel|>analysis<|message|>",
            "Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.",
            ("Hello.", "Hm.", vec![]),
        ),
    ] {
        let (content, thought, calls): (&str, &str, _) = wanted;
        assert_eq!(read_after(prompt, text), (content.into(), thought.into(), calls), "{text}");
    }
}

#[test]
fn functionary_begins_in_the_prompt() {
    let prompt = "<|start_header_id|>assistant<|end_header_id|>\n\n>>>";
    assert_eq!(read_after(prompt, "all\nHello.").0, "Hello.");
    assert_eq!(read_after(prompt, "get_weather\n{\"city\": \"Oslo\"}").2.len(), 1);
    assert_eq!(read_after(prompt, "all\nLet me see.>>>get_weather\n{\"city\": \"Oslo\"}").0, "Let me see.");
}

/// Makes a vocabulary with these tokens.
fn with_tokens(tokens: &[&str]) -> Marks {
    Marks::from_spellings(tokens)
}

#[test]
fn marks_that_are_tokens_are_taken_from_tokens() {
    let marks = with_tokens(&["<tool_call>", "</tool_call>", "<think>", "</think>"]);
    let dialect = Arc::new(Dialect::all(&marks));
    let read = |text: &str| {
        let (mut reader, mut parts) = (Reader::new(dialect.clone(), tools(), ""), Vec::new());
        reader.push(text, &mut parts);
        reader.finish(&mut parts, false);
        parts
    };
    let call = "{\"name\": \"get_time\", \"arguments\": {}}";
    let text = format!("<tool_call>{call}</tool_call>");
    assert_eq!(read(&text), [Part::Content(text.clone())]);
    assert!(matches!(read(&marks.resolve(&text))[..], [Part::Call(_)]));
    assert_eq!(read("<think>a</think>b"), [Part::Content("<think>a</think>b".into())]);
    let thought = [Part::Thought("a".into()), Part::Content("b".into())];
    assert_eq!(read(&marks.resolve("<think>a</think>b")), thought);
    // A delimiter spelled out inside a call is text.
    let inside = format!(
        "{}{}{}",
        marks.resolve("<tool_call>"),
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"</tool_call>\"}}",
        marks.resolve("</tool_call>")
    );
    assert!(matches!(&read(&inside)[..], [Part::Call(call)] if call.arguments.contains("</tool_call>")));
    // Text that is not a call is shown with its delimiters.
    let soon = "<tool_call>soon</tool_call>";
    assert_eq!(read(&marks.resolve(soon)), [Part::Content(soon.into())]);
}

#[test]
fn every_form_is_read_with_tokens_as_marks() {
    for form in FORMS {
        // All bracketed delimiters without a name.
        let mut tokens: Vec<&str> =
            form.split_inclusive('>').filter_map(|piece| Some(&piece[piece.rfind('<')?..])).collect();
        tokens.extend(["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"]);
        let patterns = super::marks::patterns();
        tokens.retain(|token| !token.contains(['=', '"']) && patterns.iter().any(|pattern| pattern.contains(token)));
        tokens.sort_unstable_by_key(|token| usize::MAX - token.len());
        tokens.dedup();
        let marks = with_tokens(&tokens);
        let mut reader = Reader::new(Arc::new(Dialect::all(&marks)), tools(), "");
        let mut parts = Vec::new();
        reader.push(&marks.resolve(form), &mut parts);
        reader.finish(&mut parts, false);
        let [Part::Call(call)] = &parts[..] else { panic!("{form}: {parts:?}") };
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        assert_eq!((call.name.as_str(), arguments), ("get_weather", json!({ "city": "Oslo", "days": 2 })), "{form}");
    }
}

#[test]
fn a_call_that_the_limit_cut_is_no_call() {
    let calls = |text: &str, is_cut: bool| {
        let (mut reader, mut parts) = (reader(""), Vec::new());
        reader.push(text, &mut parts);
        reader.finish(&mut parts, is_cut);
        parts.iter().filter(|part| matches!(part, Part::Call(_))).count()
    };
    for text in [
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n",
    ] {
        assert_eq!((calls(text, false), calls(text, true)), (1, 0), "{text}");
    }
    // A call with complete arguments counts, even without its closing delimiter.
    assert_eq!(calls("<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n", true), 1);
}

#[test]
fn a_thought_is_closed_without_being_opened() {
    assert_eq!(read("</think>\n\nHello.").0, "Hello.");
    assert_eq!(read("</mm:think>Hello.").0, "Hello.");
}

#[test]
fn types_of_other_languages_have_names_in_json() {
    let given = json!({ "name": "f", "parameters": { "type": "dict", "required": null, "properties": {
        "type": { "type": "float" }, "b": { "type": "List[str]" }, "c": { "type": "int, optional" }, "d": { "type": "STRING" },
        "e": { "type": "tuple", "items": { "type": "bool" } }, "f": { "type": "Any", "enum": [{ "type": "str" }] } } } });
    let wanted = json!({ "type": "object", "properties": {
        "type": { "type": "number" }, "b": { "type": "array" }, "c": { "type": "integer" }, "d": { "type": "string" },
        "e": { "type": "array", "items": { "type": "boolean" } }, "f": { "enum": [{ "type": "str" }] } } });
    assert_eq!(Tools::of(&[given]).0[0].parameters, wanted);
}

#[test]
fn only_what_may_become_a_call_is_held_back() {
    let deltas = |pieces: &[&str]| {
        let mut reader = reader("");
        let count = |piece: &&str| {
            let mut parts = Vec::new();
            reader.push(piece, &mut parts);
            parts.len()
        };
        pieces.iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!(deltas(&["Once", " upon", " a", " time"]), [1, 1, 1, 1]);
    assert_eq!(deltas(&["a <", "b", " <tool", "s>"]), [1, 1, 0, 1]);
    assert_eq!(deltas(&["{\"ci", "ty\"", ": 1", "}"]), [1, 1, 1, 1]);
    assert_eq!(deltas(&["{\"name\": \"Bin", "go\"", "}"]), [1, 1, 1]);
}

#[test]
fn a_call_that_the_limit_cut_after_another_is_not_content() {
    for form in FORMS.iter().filter(|form| read(&form.repeat(2)).2.len() == 2) {
        let chars: Vec<char> = form.chars().collect();
        let cut: String = chars[..chars.len() * 3 / 5].iter().collect();
        let (content, _, calls) = read(&format!("{form}{cut}"));
        assert!(content.is_empty() && !calls.is_empty(), "{form}{cut}: {content:?}");
    }
}

/// If a vocabulary cannot encode the text that closes a thought, the thought cannot be ended, so the result is an
/// error.
#[test]
fn a_budget_reports_errors_of_the_vocabulary() {
    use arenite_gguf_writer::{Header, Meta};
    let mut header = Header::new();
    header.set("tokenizer.ggml.model", "llama");
    header.set("tokenizer.ggml.tokens", Meta::strings(["<unk>", "a"]));
    header.set("tokenizer.ggml.scores", Meta::array([0.0f32, 0.0]));
    header.set("tokenizer.ggml.token_type", Meta::array([2i32, 1]));
    header.set(arenite_text::normalizer::KEY, "Upside");
    let file = header.write(std::io::Cursor::new(Vec::new())).unwrap().finish().unwrap().into_inner();
    let (gguf, mut memory) = (arenite::Gguf::parse(&file).unwrap(), Vec::new());
    let tokenizer = arenite_text::tokenizer(&gguf, &mut memory).unwrap();
    let mut budget = ThoughtBudget::new(reader("<think>\n"), 1);
    assert_eq!(budget.forced(&tokenizer, None).unwrap(), None);
    assert!(budget.push("Hm."));
    let error = format!("{:#}", budget.forced(&tokenizer, None).unwrap_err());
    assert!(error.contains("cannot close the thought") && error.contains("Upside"), "{error}");
}

/// Declares as many functions as an agent with several servers of tools. The grammar of a forced call stays within the
/// budget of a request, in each form in which a call can be forced.
#[test]
fn many_functions_are_within_the_budget_of_a_request() {
    // In MiniMax M3's form, each argument has delimiters that contain the argument's name. Its grammars are larger than
    // those of other forms.
    const LARGE: [&str; 1] = ["MiniMax M3"];
    let schemas = |at: usize| {
        let (path, list) = (format!("path{at}"), json!({ "type": "array", "items": { "type": "string" } }));
        let text = json!({ "type": "string", "description": "A path" });
        let options = json!({
            "type": "object", "additionalProperties": false, "required": ["depth", "hidden"],
            "properties": { "depth": { "type": "number" }, "hidden": { "type": ["boolean", "null"] } },
        });
        let kind = json!({ "type": "string", "enum": ["file", "folder"] });
        [
            json!({ "type": "object", "properties": {} }),
            json!({ "type": "object", "properties": { path.as_str(): text, "limit": { "type": "integer" } }, "required": [path] }),
            json!({
                "type": "object", "additionalProperties": false, "required": [path, "kind", "tags", "options"],
                "properties": { path.as_str(): text, "kind": kind, "tags": list, "options": options },
            }),
        ]
    };
    let marks = Marks::default();
    let mut dialect = Dialect::all(&marks);
    let mut large = Vec::new();
    for kind in 0..3 {
        let name = |at: usize| format!("mcp__server_{}__tool_{at}", at % 9);
        let function = |at: usize| json!({ "name": name(at), "parameters": schemas(at)[kind] });
        let tools = Tools::of(&(0..130).map(function).collect::<Vec<_>>());
        let tools: Vec<_> = tools.0.iter().collect();
        for own in (0..dialect.calls.len()).map(Own::Form).chain([Own::Channels]) {
            if matches!(own, Own::Form(at) if LARGE.contains(&dialect.calls[at].family)) {
                continue;
            }
            dialect.own = own;
            let constraint = Constraint { dialect: &dialect, marks: &marks };
            let after = constraint.after_mark(&tools, true).map(|(_, calls)| calls);
            for piece in [constraint.calls(&tools, true)].iter().chain(&after) {
                if let Err(error) = arenite_grammar::from_pieces(piece, &arenite_grammar::Budget::of_request()) {
                    large.push(format!("{kind} {own:?}: {error:#}"));
                }
            }
        }
    }
    assert!(large.is_empty(), "{large:#?}");
}

#[test]
fn an_answer_in_pieces_is_read_as_the_whole_answer_when_the_limit_cuts_it() {
    let long = "x".repeat(300);
    for text in [
        "<|tool_call_start|>all\n".to_string(),
        "<|tool_call_start|>functions.get_weather(city=\"Oslo\", days=2)<|tool_call_end|>".into(),
        "<start_function_call>call:get_weather{/call:get_weather".into(),
        format!("<function=get_weather><parameter={long}></function>"),
        format!("<function={long}></function>"),
        format!("<tool_call>{long}\n<arg_key>"),
        format!("[TOOL_CALLS]{long}[ARGS]{{}}"),
    ] {
        let read = |size: usize| {
            let (mut reader, mut parts) = (reader(""), Vec::new());
            let chars: Vec<char> = text.chars().collect();
            chars.chunks(size).for_each(|piece| reader.push(&piece.iter().collect::<String>(), &mut parts));
            reader.finish(&mut parts, true);
            let text = |part: &Part| if let Part::Content(text) = part { text.clone() } else { String::new() };
            (
                parts.iter().map(text).collect::<String>(),
                parts.iter().filter(|part| matches!(part, Part::Call(_))).count(),
            )
        };
        assert_eq!(read(1), read(usize::MAX), "{text}");
    }
}
