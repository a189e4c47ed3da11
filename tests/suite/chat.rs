//! Compares chat formats with llama.cpp's.

use arenite::chat::{Format, Message, Piece, Role};

use crate::common::fixtures::needed;

const TALK: [Message<'_>; 6] = [
    Message { role: Role::System, content: "You are a helpful assistant" },
    Message { role: Role::User, content: "Hello" },
    Message { role: Role::Assistant, content: "Hi there" },
    Message { role: Role::User, content: "Who are you" },
    Message { role: Role::Assistant, content: "   I am an assistant   " },
    Message { role: Role::User, content: "Another question" },
];

/// Expected prompts from llama.cpp's test of `llama_chat_apply_template` for this conversation.
#[rustfmt::skip]
const PROMPTS: &[(&str, &str)] = &[
    ("chatml", "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi there<|im_end|>\n<|im_start|>user\nWho are you<|im_end|>\n<|im_start|>assistant\n   I am an assistant   <|im_end|>\n<|im_start|>user\nAnother question<|im_end|>\n<|im_start|>assistant\n"),
    ("llama2", "[INST] You are a helpful assistant\nHello [/INST]Hi there</s>[INST] Who are you [/INST]   I am an assistant   </s>[INST] Another question [/INST]"),
    ("llama2-sys-bos", "[INST] <<SYS>>\nYou are a helpful assistant\n<</SYS>>\n\nHello [/INST]Hi there</s><s>[INST] Who are you [/INST]   I am an assistant   </s><s>[INST] Another question [/INST]"),
    ("llama2-sys-strip", "[INST] <<SYS>>\nYou are a helpful assistant\n<</SYS>>\n\nHello [/INST]Hi there</s>[INST] Who are you [/INST]I am an assistant</s>[INST] Another question [/INST]"),
    ("monarch", "system\nYou are a helpful assistant</s>\n<s>user\nHello</s>\n<s>assistant\nHi there</s>\n<s>user\nWho are you</s>\n<s>assistant\n   I am an assistant   </s>\n<s>user\nAnother question</s>\n<s>assistant\n"),
    ("gemma", "<start_of_turn>user\nYou are a helpful assistant\n\nHello<end_of_turn>\n<start_of_turn>model\nHi there<end_of_turn>\n<start_of_turn>user\nWho are you<end_of_turn>\n<start_of_turn>model\nI am an assistant<end_of_turn>\n<start_of_turn>user\nAnother question<end_of_turn>\n<start_of_turn>model\n"),
    ("orion", "Human: You are a helpful assistant\n\nHello\n\nAssistant: </s>Hi there</s>Human: Who are you\n\nAssistant: </s>   I am an assistant   </s>Human: Another question\n\nAssistant: </s>"),
    ("openchat", "You are a helpful assistant<|end_of_turn|>GPT4 Correct User: Hello<|end_of_turn|>GPT4 Correct Assistant: Hi there<|end_of_turn|>GPT4 Correct User: Who are you<|end_of_turn|>GPT4 Correct Assistant:    I am an assistant   <|end_of_turn|>GPT4 Correct User: Another question<|end_of_turn|>GPT4 Correct Assistant:"),
    ("deepseek", "You are a helpful assistant### Instruction:\nHello\n### Response:\nHi there\n<|EOT|>\n### Instruction:\nWho are you\n### Response:\n   I am an assistant   \n<|EOT|>\n### Instruction:\nAnother question\n### Response:\n"),
    ("vicuna", "You are a helpful assistant\n\nUSER: Hello\nASSISTANT: Hi there</s>\nUSER: Who are you\nASSISTANT:    I am an assistant   </s>\nUSER: Another question\nASSISTANT:"),
    ("vicuna-orca", "SYSTEM: You are a helpful assistant\nUSER: Hello\nASSISTANT: Hi there</s>\nUSER: Who are you\nASSISTANT:    I am an assistant   </s>\nUSER: Another question\nASSISTANT:"),
    ("command-r", "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>You are a helpful assistant<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hello<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hi there<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Who are you<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>I am an assistant<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Another question<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"),
    ("llama3", "<|start_header_id|>system<|end_header_id|>\n\nYou are a helpful assistant<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWho are you<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nI am an assistant<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnother question<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
    ("phi3", "<|system|>\nYou are a helpful assistant<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi there<|end|>\n<|user|>\nWho are you<|end|>\n<|assistant|>\n   I am an assistant   <|end|>\n<|user|>\nAnother question<|end|>\n<|assistant|>\n"),
    ("chatglm3", "[gMASK]sop<|system|>\n You are a helpful assistant<|user|>\n Hello<|assistant|>\n Hi there<|user|>\n Who are you<|assistant|>\n    I am an assistant   <|user|>\n Another question<|assistant|>"),
    ("chatglm4", "[gMASK]<sop><|system|>\nYou are a helpful assistant<|user|>\nHello<|assistant|>\nHi there<|user|>\nWho are you<|assistant|>\n   I am an assistant   <|user|>\nAnother question<|assistant|>\n"),
    ("glmedge", "<|system|>\nYou are a helpful assistant<|user|>\nHello<|assistant|>\nHi there<|user|>\nWho are you<|assistant|>\n   I am an assistant   <|user|>\nAnother question<|assistant|>"),
    ("minicpm", "You are a helpful assistant<\u{7528}\u{6237}>Hello<AI>Hi there<\u{7528}\u{6237}>Who are you<AI>I am an assistant<\u{7528}\u{6237}>Another question<AI>"),
    ("deepseek2", "You are a helpful assistant\n\nUser: Hello\n\nAssistant: Hi there<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>User: Who are you\n\nAssistant:    I am an assistant   <\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>User: Another question\n\nAssistant:"),
    ("granite", "<|start_of_role|>system<|end_of_role|>You are a helpful assistant<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Hello<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Hi there<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Who are you<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>   I am an assistant   <|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Another question<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"),
    ("mistral-v1", " [INST] You are a helpful assistant\n\nHello [/INST] Hi there</s> [INST] Who are you [/INST]    I am an assistant   </s> [INST] Another question [/INST]"),
    ("mistral-v3", "[INST] You are a helpful assistant\n\nHello[/INST] Hi there</s>[INST] Who are you[/INST] I am an assistant</s>[INST] Another question[/INST]"),
    ("mistral-v3-tekken", "[INST]You are a helpful assistant\n\nHello[/INST]Hi there</s>[INST]Who are you[/INST]   I am an assistant   </s>[INST]Another question[/INST]"),
    ("mistral-v7", "[SYSTEM_PROMPT] You are a helpful assistant[/SYSTEM_PROMPT][INST] Hello[/INST] Hi there</s>[INST] Who are you[/INST]    I am an assistant   </s>[INST] Another question[/INST]"),
    ("gigachat", "<s>You are a helpful assistant<|message_sep|>user<|role_sep|>Hello<|message_sep|>available functions<|role_sep|>[]<|message_sep|>assistant<|role_sep|>Hi there<|message_sep|>user<|role_sep|>Who are you<|message_sep|>available functions<|role_sep|>[]<|message_sep|>assistant<|role_sep|>   I am an assistant   <|message_sep|>user<|role_sep|>Another question<|message_sep|>available functions<|role_sep|>[]<|message_sep|>assistant<|role_sep|>"),
    ("megrez", "<|role_start|>system<|role_end|>You are a helpful assistant<|turn_end|><|role_start|>user<|role_end|>Hello<|turn_end|><|role_start|>assistant<|role_end|>Hi there<|turn_end|><|role_start|>user<|role_end|>Who are you<|turn_end|><|role_start|>assistant<|role_end|>   I am an assistant   <|turn_end|><|role_start|>user<|role_end|>Another question<|turn_end|><|role_start|>assistant<|role_end|>"),
    ("phi4", "<|im_start|>system<|im_sep|>You are a helpful assistant<|im_end|><|im_start|>user<|im_sep|>Hello<|im_end|><|im_start|>assistant<|im_sep|>Hi there<|im_end|><|im_start|>user<|im_sep|>Who are you<|im_end|><|im_start|>assistant<|im_sep|>   I am an assistant   <|im_end|><|im_start|>user<|im_sep|>Another question<|im_end|><|im_start|>assistant<|im_sep|>"),
];

fn written(format: Format, talk: &[Message<'_>]) -> String {
    let mut prompt = String::new();
    format.write(talk, &mut prompt).expect("a string takes everything");
    prompt
}

#[test]
fn formats_are_written_as_llama_cpp_writes_them() {
    for (name, prompt) in PROMPTS {
        let format = Format::by_name(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(written(format, &TALK), *prompt, "{name}");
    }
}

#[test]
fn templates_are_recognised() {
    for (template, name) in [
        ("{{ '<|im_start|>' + message['role'] }}", "chatml"),
        ("<|im_start|> <|im_sep|>", "phi4"),
        ("{{ bos_token + '[INST] ' + content.strip() }}", "llama2-sys-strip"),
        ("{{ bos_token + '[INST] ' }}", "llama2-sys-bos"),
        ("a [INST] [AVAILABLE_TOOLS]", "mistral-v1"),
        ("\"[INST]\" [AVAILABLE_TOOLS]", "mistral-v3-tekken"),
        ("[SYSTEM_PROMPT] [INST]", "mistral-v7"),
        ("<|user|> <|assistant|> <|end|>", "phi3"),
        ("<|user|> <|assistant|> </s>", "falcon3"),
        ("<|start|> <|channel|>", "gpt-oss"),
        ("llama3", "llama3"),
    ] {
        assert_eq!(Format::detect(template).map(Format::name), Some(name), "{template}");
    }
    assert_eq!(Format::detect("{{ messages }}"), None);
}

/// The formats recognized for the templates in the fixtures. The expected formats follow from llama.cpp's rules,
/// applied by hand.
#[test]
fn public_templates_are_recognised() {
    let Some(root) = needed("templates") else { return };
    let unpacked = std::process::Command::new("gzip")
        .args(["-dc", root.join("templates/cases.json.gz").to_str().expect("UTF-8")])
        .output();
    let Ok(unpacked) = unpacked else {
        eprintln!("SKIP: there is no gzip, so public chat templates are not recognised");
        return;
    };
    let cases: Vec<serde_json::Value> = serde_json::from_slice(&unpacked.stdout).expect("JSON");
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        let wanted = match name.split('/').next().expect("a name") {
            "CohereForAI-c4ai-command-r-plus-tool_use" => "command-r",
            "deepseek-ai-DeepSeek-R1-Distill-Llama-8B" => "deepseek3",
            "google-gemma-2-2b-it" => "gemma",
            "google-gemma-4-31B-it" => "gemma4",
            "meta-llama-Llama-3.1-8B-Instruct" => "llama3",
            "microsoft-Phi-3.5-mini-instruct" => "phi3",
            "mistralai-Mistral-Nemo-Instruct-2407" => "mistral-v3-tekken",
            _ => "chatml",
        };
        let found = Format::detect(case["template"].as_str().expect("a template"));
        assert_eq!(found.map(Format::name), Some(wanted), "{name}");
    }
}

#[test]
fn pieces_say_who_wrote_them() {
    let talk = [Message { role: Role::User, content: "a<|im_end|>" }];
    let mut pieces = Vec::new();
    let chatml = Format::by_name("chatml").expect("the format");
    let Ok(()) = chatml.pieces(&talk, |piece| -> Result<(), core::convert::Infallible> {
        pieces.push(piece);
        Ok(())
    });
    let template = Piece::Template;
    assert_eq!(
        pieces,
        [
            template("<|im_start|>user\n"),
            Piece::Content("a<|im_end|>"),
            template("<|im_end|>\n"),
            template("<|im_start|>assistant\n")
        ]
    );
    assert_eq!((chatml.stop(), Format::PLAIN.stop()), ("<|im_end|>", ""));
}

#[test]
fn system_messages_go_where_the_format_has_them() {
    let gemma = Format::by_name("gemma").expect("the format");
    let two = [TALK[0], Message { role: Role::System, content: " Be kind. " }, TALK[1]];
    let merged =
        "<start_of_turn>user\nYou are a helpful assistantBe kind.\n\nHello<end_of_turn>\n<start_of_turn>model\n";
    assert_eq!(written(gemma, &two), merged);
    assert_eq!(written(Format::PLAIN, &TALK), "Another question");
}

#[test]
fn every_format_takes_every_conversation() {
    for format in Format::all() {
        assert_eq!(Format::by_name(format.name()), Some(format));
        for talk in [&[][..], &TALK[..1], &TALK[2..3], &TALK] {
            let _ = written(format, talk);
        }
    }
}
