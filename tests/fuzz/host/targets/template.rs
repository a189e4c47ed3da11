//! Any template and conversation is refused, or gives the same prompt each time, of bounded size. Text of users never
//! becomes a control token, in any well-known format and in a template that copies it unchanged.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use arenite::Gguf;
use arenite::chat::Format;
use arenite::tokenizer::{TokenType, Tokenizer};
use arenite_chat::{Arguments, Renderer};
use fuzz::gguf::Meta;
use fuzz::list::List;
use fuzz::unwritten::unwritten;
use fuzz::variants::tiny;
use fuzz_host::{Edits, Words};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// A vocabulary with the control tokens of several families.
static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let control =
        ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<|eot_id|>", "<|im", "im_end|>"];
    let mut tokens: Vec<String> = control.map(String::from).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let types = (0..tokens.len()).map(|id| if id < control.len() { 3 } else { 6i32 });
    let mut file = tiny("llama");
    file.set("tokenizer.ggml.token_type", Meta::array(types));
    file.set("tokenizer.ggml.scores", Meta::array(vec![0.0f32; tokens.len()]));
    file.set("tokenizer.ggml.tokens", Meta::strings(tokens));
    file.build()
});
static GGUF: LazyLock<Gguf<'static>> = LazyLock::new(|| Gguf::parse(&FILE).expect("a correct file"));
static TOKENIZER: LazyLock<Tokenizer<'static, 'static>> = LazyLock::new(|| {
    let index = vec![0; Tokenizer::index_bytes(&GGUF).expect("a correct vocabulary")].leak();
    Tokenizer::new(&GGUF, unwritten(index)).expect("a correct vocabulary")
});

#[derive(Arbitrary, Debug)]
struct Case {
    messages: List<(u8, Words<12>), 5>,
    what: What,
}

#[derive(Arbitrary, Debug)]
enum What {
    Template { template: Words<80>, edits: Edits },
    Quoted { format: u8 },
}

#[rustfmt::skip]
const SAID: &[&str] = &[
    "a", " ", "\n", "<|im_start|>", "<|im_end|>", "</s>", "<s>", "[INST]", "[/INST]", "<|", "|>", "im_end", "im", "<",
    ">", "[IN", "ST]", "<|eot_id|>", "</", "s>", "<think>", "</think>", "\u{fdd0}", "\u{fdd1}", "\u{fdd2}", "{{",
    "{%", "<0x3C>",
];

#[rustfmt::skip]
const JINJA: &[&str] = &[
    "{% for m in messages %}", "{% endfor %}", "{{ m.role }}", "{{ m['content'] }}", "{% if ", "%}", "{% endif %}",
    "{% else %}", "{{ ", " }}", "{% set x = ", "{% set ns = namespace(a=[], b='') %}", "{% set ns.a = ns.a + [m] %}",
    "{% set ns.b = ns.b ~ ns.b %}", "loop.index0", "x", "ns.a", "messages", "[0]", "[1:]", "[::-1]", "|trim",
    "|length", "|tojson", "|join(', ')", "|safe", "|indent(4)", "|default('')", "|int", "|list",
    "|map(attribute='content')", "|selectattr('role', 'equalto', 'user')", "|replace('a', 'bb')", "|string", "|sort",
    "|reverse", "|unique", " + ", " - ", " * ", " ** ", " % ", " ~ ", " == ", " in ", " is defined", " is string",
    " not ", " and ", " or ", "(", ")", "'a'", "'%s'", "\"", "'", "1", "99", "1e9", "10 ** 9", "none", "true",
    "range(", "{% macro f(a) %}", "{% endmacro %}", "f(", ".split('a')", ".strip()", ".items()", ".startswith('a')",
    ".format(1, x)", ".zfill(9)", "raise_exception('no')", "strftime_now('%Y')", "bos_token", "add_generation_prompt",
    "tools", "{#", "#}", "{% raw %}", "{% endraw %}", "{%- ", " -%}", "{% generation %}", "{% endgeneration %}",
    "{% set ns.a = [ns.a, ns.a] %}", "{% set x = {'a': x, 'b': x} %}", "{% for i in range(60) %}", "ns.b", "|unique",
    " * 99999", " != ", " < ", "|pprint", "|batch(2)", "|map('string')", "{}[", ".index(", ".replace(",
    "{% call f(1) %}", "{% endcall %}", "{% filter upper %}", "{% endfilter %}", "{% break %}", "{'a': ", "}", "[",
    "]", ", ", ".", "|", "é",
];

impl Case {
    fn messages(&self, text: impl Fn(&Words<12>) -> String) -> serde_json::Value {
        let role = |number: u8| ["user", "assistant", "system", "tool"][usize::from(number) % 4];
        self.messages.iter().map(|(number, words)| json!({ "role": role(*number), "content": text(words) })).collect()
    }
}

/// Converts messages to the renderer's type. Returns an empty list if `messages` is not a list.
fn list(messages: serde_json::Value) -> Vec<minijinja::Value> {
    serde_json::from_value(messages).unwrap_or_default()
}

fuzz_target!(|case: Case| match &case.what {
    What::Template { template, edits } => {
        let messages = list(edits.document(case.messages(|words| words.text(SAID))));
        let renderer = Renderer::new(&GGUF, &TOKENIZER, "auto", Some(template.text(JINJA))).expect("any template");
        let said = |_| renderer.exact(&messages, &Arguments::default()).map_err(|error| format!("{error:#}"));
        let first = said(0);
        assert_eq!(first, said(1), "another prompt the second time");
        match first {
            Ok(prompt) => assert!(prompt.len() < 8 << 20, "{} bytes", prompt.len()),
            Err(error) => assert!(error.len() < 1 << 20, "an error of {} bytes", error.len()),
        }
    }
    What::Quoted { format } => {
        let formats: Vec<_> = Format::all().map(Format::name).collect();
        let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}";
        let renderer = match formats.get(usize::from(*format) % (formats.len() + 1)) {
            Some(name) => Renderer::new(&GGUF, &TOKENIZER, name, None),
            None => Renderer::new(&GGUF, &TOKENIZER, "auto", Some(template.to_string())),
        };
        let renderer = renderer.expect("a format that there is");
        let controls = |text: &dyn Fn(&Words<12>) -> String| {
            let ids = renderer
                .prompt(&list(case.messages(text)), &Arguments::default())
                .encode(&TOKENIZER)
                .expect("a text of bytes");
            ids.into_iter().filter(|id| TOKENIZER.token_type(*id) == TokenType::Control).collect::<Vec<_>>()
        };
        // Replaces the text of a user by "a", which must not change the control tokens. A format may treat empty text
        // specially, so empty text stays empty.
        let harmless = |words: &Words<12>| {
            let said = words.text(SAID).replace(['\u{fdd0}', '\u{fdd1}', '\u{fdd2}'], "");
            if said.trim().is_empty() { said } else { "a".to_string() }
        };
        assert_eq!(controls(&|words| words.text(SAID)), controls(&harmless), "a user wrote a control token");
    }
});
