//! Detects the format of a Jinja template by texts that occur in it.

/// Returns the name of the first format whose rule fits a template: all texts of the rule occur in `template`.
pub(super) fn name(template: &str) -> Option<&'static str> {
    let fits = |texts: &[&str]| texts.iter().all(|text| contains(template, text));
    RULES.iter().find(|(_, texts)| fits(texts)).map(|(name, _)| *name)
}

/// Like `str::contains`, which can panic.
fn contains(template: &str, text: &str) -> bool {
    let (template, text) = (template.as_bytes(), text.as_bytes());
    (0..template.len()).any(|at| template.get(at..).is_some_and(|rest| rest.starts_with(text)))
}

/// The rules of llama.cpp's `llm_chat_detect_template`, in the same order.
const RULES: &[(&str, &[&str])] = &[
    ("phi4", &["<|im_start|>", "<|im_sep|>"]),
    ("smolvlm", &["<|im_start|>", "<end_of_utterance>"]),
    ("chatml", &["<|im_start|>"]),
    ("mistral-v7", &["[INST]", "[SYSTEM_PROMPT]"]),
    ("mistral-v1", &["[INST]", "' [INST] ' + system_message"]),
    ("mistral-v1", &["[INST]", "[AVAILABLE_TOOLS]", " [INST]"]),
    ("mistral-v3-tekken", &["[AVAILABLE_TOOLS]", "\"[INST]\""]),
    ("mistral-v3", &["[INST]", "[AVAILABLE_TOOLS]"]),
    ("llama2-sys-strip", &["[INST]", "content.strip()"]),
    ("llama2-sys-bos", &["[INST]", "bos_token + '[INST]"]),
    ("llama2-sys", &["[INST]", "<<SYS>>"]),
    ("llama2", &["[INST]"]),
    ("phi3", &["<|assistant|>", "<|end|>"]),
    ("chatglm4", &["[gMASK]<sop>"]),
    ("falcon3", &["<|assistant|>", "<|user|>", "</s>"]),
    ("glmedge", &["<|assistant|>", "<|user|>"]),
    ("glmedge", &["<|{{ item['role'] }}|>", "<|begin_of_image|>"]),
    ("zephyr", &["<|user|>", "<|endoftext|>"]),
    ("monarch", &["bos_token + message['role']"]),
    ("gemma", &["<start_of_turn>"]),
    ("orion", &["'\\n\\nAssistant: ' + eos_token"]),
    ("openchat", &["GPT4 Correct "]),
    ("vicuna-orca", &["USER: ", "ASSISTANT: ", "SYSTEM: "]),
    ("vicuna", &["USER: ", "ASSISTANT: "]),
    ("deepseek", &["### Instruction:", "<|EOT|>"]),
    ("command-r", &["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"]),
    ("llama3", &["<|start_header_id|>", "<|end_header_id|>"]),
    ("chatglm3", &["[gMASK]sop"]),
    ("minicpm", &["<\u{7528}\u{6237}>"]),
    ("deepseek2", &["'Assistant: ' + message['content'] + eos_token"]),
    (
        "deepseek3",
        &["<\u{ff5c}Assistant\u{ff5c}>", "<\u{ff5c}User\u{ff5c}>", "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>"],
    ),
    ("exaone4", &["[|system|]", "[|assistant|]", "[|endofturn|]", "[|tool|]"]),
    ("exaone3", &["[|system|]", "[|assistant|]", "[|endofturn|]"]),
    ("rwkv-world", &["rwkv-world"]),
    ("rwkv-world", &["{{- 'User: ' + message['content']|trim + '\\n\\n' -}}"]),
    ("granite", &["<|start_of_role|>"]),
    (
        "gigachat",
        &["message['role'] + additional_special_tokens[0] + message['content'] + additional_special_tokens[1]"],
    ),
    ("megrez", &["<|role_start|>"]),
    ("yandex", &[" \u{410}\u{441}\u{441}\u{438}\u{441}\u{442}\u{435}\u{43d}\u{442}:"]),
    ("bailing", &["<role>ASSISTANT</role>", "'HUMAN'"]),
    ("llama4", &["<|header_start|>", "<|header_end|>"]),
    ("dots1", &["<|endofuserprompt|>"]),
    ("hunyuan-moe", &["<|startoftext|>", "<|extra_4|>"]),
    ("gpt-oss", &["<|start|>", "<|channel|>"]),
    (
        "hunyuan-dense",
        &[
            "<\u{ff5c}hy_place\u{2581}holder\u{2581}no\u{2581}2\u{ff5c}>",
            "<\u{ff5c}hy_place\u{2581}holder\u{2581}no\u{2581}3\u{ff5c}>",
        ],
    ),
    ("kimi-k2", &["<|im_assistant|>assistant<|im_middle|>"]),
    ("seed_oss", &["<seed:bos>"]),
    ("grok-2", &["'Assistant: '  + message['content'] + '<|separator|>\\n\\n'"]),
    ("solar-open", &["<|begin|>", "<|content|>", "<|end|>"]),
    ("gemma4", &["<|turn>", "<turn|>"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Format;

    #[test]
    fn every_rule_names_a_format() {
        for (name, _) in RULES {
            assert!(Format::by_name(name).is_some(), "{name}");
        }
    }
}
