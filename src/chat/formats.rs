//! The chat formats, one table row each.

/// A format as data.
pub(super) struct Row {
    pub names: &'static [&'static str],
    /// Written once at the start.
    pub start: &'static str,
    /// The text before each exchange of a user's message and an answer. The first exchange follows `start` instead.
    pub open: &'static str,
    /// Written between two messages.
    pub between: &'static str,
    /// Marks (texts before and after a message) of system, user, assistant and tool messages. Messages of roles without
    /// marks are omitted.
    pub marks: [Option<Marks>; 4],
    /// Written at the end, to request an answer.
    pub ask: &'static str,
    pub trim: Trim,
    pub systems: Systems,
    /// True if the format has no earlier turns: only the last user message and the messages after it are written.
    pub alone: bool,
}

/// The marks before and after a message.
#[derive(Clone, Copy)]
pub(super) struct Marks {
    pub before: &'static str,
    pub after: &'static str,
}

/// Roles whose content is trimmed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trim {
    None,
    Assistant,
    /// All but the assistant.
    Others,
    All,
}

/// Placement of system messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Systems {
    /// At their own position.
    Own,
    /// Only at the start.
    First,
    /// A system message is merged into the next message that is not from the assistant.
    Merged,
}

impl Row {
    pub fn marks(&self, role: super::Role) -> Option<Marks> {
        self.marks.get(role as usize).copied().flatten()
    }
}

const fn marks(before: &'static str, after: &'static str) -> Option<Marks> {
    Some(Marks { before, after })
}

const ROW: Row = Row {
    names: &[],
    start: "",
    open: "",
    between: "",
    marks: [None; 4],
    ask: "",
    trim: Trim::None,
    systems: Systems::Own,
    alone: false,
};

pub(super) const PLAIN: Row =
    Row { names: &["plain"], marks: [marks("", "\n"), marks("", ""), marks("", ""), None], alone: true, ..ROW };

/// Defines the marks around the messages of all roles, in formats whose marks contain the role's name. A message is
/// written as `$before`, the name, `$after`, the message, `$end`.
macro_rules! named {
    ($before:literal, $after:literal, $end:literal) => {
        [
            marks(concat!($before, "system", $after), $end),
            marks(concat!($before, "user", $after), $end),
            marks(concat!($before, "assistant", $after), $end),
            marks(concat!($before, "tool", $after), $end),
        ]
    };
}

const fn mistral_v7(
    names: &'static [&'static str],
    system: &'static str,
    user: &'static str,
    assistant: &'static str,
) -> Row {
    let assistant = marks(assistant, "</s>");
    Row { names, marks: [marks(system, "[/SYSTEM_PROMPT]"), marks(user, "[/INST]"), assistant, assistant], ..ROW }
}

const fn mistral(
    names: &'static [&'static str],
    open: &'static str,
    close: &'static str,
    space: &'static str,
    trim: Trim,
) -> Row {
    let assistant = marks(space, "</s>");
    Row { names, open, marks: [marks("", "\n\n"), marks("", close), assistant, assistant], trim, ..ROW }
}

const fn llama2(names: &'static [&'static str], open: &'static str, system: Option<Marks>, trim: Trim) -> Row {
    let assistant = marks("", "</s>");
    Row { names, start: "[INST] ", open, marks: [system, marks("", " [/INST]"), assistant, assistant], trim, ..ROW }
}

const SYS: Option<Marks> = marks("<<SYS>>\n", "\n<</SYS>>\n\n");

pub(super) static FORMATS: &[Row] = &[
    PLAIN,
    Row {
        names: &["chatml", "smollm", "smollm2", "smollm3", "qwen"],
        marks: named!("<|im_start|>", "\n", "<|im_end|>\n"),
        ask: "<|im_start|>assistant\n",
        ..ROW
    },
    llama2(&["llama2"], "[INST] ", marks("", "\n"), Trim::None),
    llama2(&["llama2-sys"], "[INST] ", SYS, Trim::None),
    llama2(&["llama2-sys-bos"], "<s>[INST] ", SYS, Trim::None),
    llama2(&["llama2-sys-strip"], "[INST] ", SYS, Trim::All),
    mistral(&["mistral-v1"], " [INST] ", " [/INST]", " ", Trim::None),
    mistral(&["mistral-v3"], "[INST] ", "[/INST]", " ", Trim::Assistant),
    mistral(&["mistral-v3-tekken"], "[INST]", "[/INST]", "", Trim::None),
    mistral_v7(&["mistral-v7"], "[SYSTEM_PROMPT] ", "[INST] ", " "),
    mistral_v7(&["mistral-v7-tekken"], "[SYSTEM_PROMPT]", "[INST]", ""),
    Row { names: &["phi3"], marks: named!("<|", "|>\n", "<|end|>\n"), ask: "<|assistant|>\n", ..ROW },
    Row {
        names: &["phi4"],
        marks: named!("<|im_start|>", "<|im_sep|>", "<|im_end|>"),
        ask: "<|im_start|>assistant<|im_sep|>",
        ..ROW
    },
    Row { names: &["falcon3"], marks: named!("<|", "|>\n", "\n"), ask: "<|assistant|>\n", ..ROW },
    Row { names: &["zephyr"], marks: named!("<|", "|>\n", "<|endoftext|>\n"), ask: "<|assistant|>\n", ..ROW },
    Row { names: &["monarch"], between: "<s>", marks: named!("", "\n", "</s>\n"), ask: "<s>assistant\n", ..ROW },
    Row {
        names: &["gemma"],
        marks: [
            None,
            marks("<start_of_turn>user\n", "<end_of_turn>\n"),
            marks("<start_of_turn>model\n", "<end_of_turn>\n"),
            marks("<start_of_turn>tool\n", "<end_of_turn>\n"),
        ],
        ask: "<start_of_turn>model\n",
        trim: Trim::All,
        systems: Systems::Merged,
        ..ROW
    },
    Row {
        names: &["gemma4"],
        marks: [
            marks("<|turn>system\n", "<turn|>\n"),
            marks("<|turn>user\n", "<turn|>\n"),
            marks("<|turn>model\n", "<turn|>\n"),
            marks("<|turn>tool\n", "<turn|>\n"),
        ],
        ask: "<|turn>model\n",
        trim: Trim::All,
        ..ROW
    },
    Row {
        names: &["orion"],
        marks: [None, marks("Human: ", "\n\nAssistant: </s>"), marks("", "</s>"), marks("", "</s>")],
        systems: Systems::Merged,
        ..ROW
    },
    Row {
        names: &["openchat"],
        marks: [
            marks("", "<|end_of_turn|>"),
            marks("GPT4 Correct User: ", "<|end_of_turn|>"),
            marks("GPT4 Correct Assistant: ", "<|end_of_turn|>"),
            marks("GPT4 Correct Tool: ", "<|end_of_turn|>"),
        ],
        ask: "GPT4 Correct Assistant:",
        ..ROW
    },
    Row {
        names: &["vicuna"],
        marks: [marks("", "\n\n"), marks("USER: ", "\n"), marks("ASSISTANT: ", "</s>\n"), None],
        ask: "ASSISTANT:",
        ..ROW
    },
    Row {
        names: &["vicuna-orca"],
        marks: [marks("SYSTEM: ", "\n"), marks("USER: ", "\n"), marks("ASSISTANT: ", "</s>\n"), None],
        ask: "ASSISTANT:",
        ..ROW
    },
    Row {
        names: &["deepseek"],
        marks: [marks("", ""), marks("### Instruction:\n", "\n"), marks("### Response:\n", "\n<|EOT|>\n"), None],
        ask: "### Response:\n",
        ..ROW
    },
    Row {
        names: &["deepseek2"],
        marks: [
            marks("", "\n\n"),
            marks("User: ", "\n\n"),
            marks("Assistant: ", "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>"),
            None,
        ],
        ask: "Assistant:",
        ..ROW
    },
    Row {
        names: &["deepseek3"],
        marks: [
            marks("", "\n\n"),
            marks("<\u{ff5c}User\u{ff5c}>", ""),
            marks("<\u{ff5c}Assistant\u{ff5c}>", "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>"),
            None,
        ],
        ask: "<\u{ff5c}Assistant\u{ff5c}>",
        ..ROW
    },
    Row {
        names: &["command-r"],
        marks: [
            marks("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            marks("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            marks("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            None,
        ],
        ask: "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        trim: Trim::All,
        ..ROW
    },
    Row {
        names: &["llama3"],
        marks: named!("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
        ask: "<|start_header_id|>assistant<|end_header_id|>\n\n",
        trim: Trim::All,
        ..ROW
    },
    Row {
        names: &["llama4"],
        marks: named!("<|header_start|>", "<|header_end|>\n\n", "<|eot|>"),
        ask: "<|header_start|>assistant<|header_end|>\n\n",
        trim: Trim::All,
        ..ROW
    },
    Row { names: &["chatglm3"], start: "[gMASK]sop", marks: named!("<|", "|>\n ", ""), ask: "<|assistant|>", ..ROW },
    Row { names: &["chatglm4"], start: "[gMASK]<sop>", marks: named!("<|", "|>\n", ""), ask: "<|assistant|>\n", ..ROW },
    Row { names: &["glmedge"], marks: named!("<|", "|>\n", ""), ask: "<|assistant|>", ..ROW },
    Row {
        names: &["minicpm"],
        marks: [marks("", ""), marks("<\u{7528}\u{6237}>", "<AI>"), marks("", ""), marks("", "")],
        trim: Trim::All,
        ..ROW
    },
    Row {
        names: &["exaone3"],
        marks: [
            marks("[|system|]", "[|endofturn|]\n"),
            marks("[|user|]", "\n"),
            marks("[|assistant|]", "[|endofturn|]\n"),
            None,
        ],
        ask: "[|assistant|]",
        trim: Trim::All,
        ..ROW
    },
    Row {
        names: &["exaone4"],
        marks: [
            marks("[|system|]", "[|endofturn|]\n"),
            marks("[|user|]", "\n"),
            marks("[|assistant|]", "[|endofturn|]\n"),
            marks("[|tool|]", "[|endofturn|]\n"),
        ],
        ask: "[|assistant|]",
        trim: Trim::All,
        ..ROW
    },
    Row {
        names: &["rwkv-world"],
        marks: [marks("System: ", "\n\n"), marks("User: ", "\n\n"), marks("Assistant: ", "\n\n"), None],
        ask: "Assistant:",
        trim: Trim::All,
        ..ROW
    },
    Row {
        names: &["granite"],
        marks: named!("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n"),
        ask: "<|start_of_role|>assistant<|end_of_role|>",
        ..ROW
    },
    Row {
        names: &["gigachat"],
        start: "<s>",
        marks: [
            marks("", "<|message_sep|>"),
            marks("user<|role_sep|>", "<|message_sep|>available functions<|role_sep|>[]<|message_sep|>"),
            marks("assistant<|role_sep|>", "<|message_sep|>"),
            None,
        ],
        ask: "assistant<|role_sep|>",
        systems: Systems::First,
        ..ROW
    },
    Row {
        names: &["megrez"],
        marks: named!("<|role_start|>", "<|role_end|>", "<|turn_end|>"),
        ask: "<|role_start|>assistant<|role_end|>",
        ..ROW
    },
    Row {
        names: &["yandex"],
        start: "<s>",
        marks: [
            None,
            marks(" \u{41f}\u{43e}\u{43b}\u{44c}\u{437}\u{43e}\u{432}\u{430}\u{442}\u{435}\u{43b}\u{44c}: ", "\n\n"),
            marks(" \u{410}\u{441}\u{441}\u{438}\u{441}\u{442}\u{435}\u{43d}\u{442}: ", "\n\n"),
            None,
        ],
        ask: " \u{410}\u{441}\u{441}\u{438}\u{441}\u{442}\u{435}\u{43d}\u{442}:[SEP]",
        ..ROW
    },
    Row {
        names: &["bailing"],
        marks: [
            marks("<role>SYSTEM</role>", ""),
            marks("<role>HUMAN</role>", ""),
            marks("<role>ASSISTANT</role>", ""),
            marks("<role>TOOL</role>", ""),
        ],
        ask: "<role>ASSISTANT</role>",
        ..ROW
    },
    Row {
        names: &["smolvlm"],
        start: "<|im_start|>",
        marks: [
            marks("", "\n\n"),
            marks("User: ", "<end_of_utterance>\n"),
            marks("Assistant: ", "<end_of_utterance>\n"),
            marks("Assistant: ", "<end_of_utterance>\n"),
        ],
        ask: "Assistant:",
        ..ROW
    },
    Row {
        names: &["dots1"],
        marks: [
            marks("<|system|>", "<|endofsystem|>"),
            marks("<|userprompt|>", "<|endofuserprompt|>"),
            marks("<|response|>", "<|endofresponse|>"),
            marks("<|response|>", "<|endofresponse|>"),
        ],
        ask: "<|response|>",
        ..ROW
    },
    Row {
        names: &["hunyuan-moe"],
        marks: [
            marks("<|startoftext|>", "<|extra_4|>"),
            marks("<|startoftext|>", "<|extra_0|>"),
            marks("", "<|eos|>"),
            marks("<|startoftext|>", "<|extra_0|>"),
        ],
        ..ROW
    },
    Row {
        names: &["hunyuan-dense"],
        start: "<\u{ff5c}hy_begin\u{2581}of\u{2581}sentence\u{ff5c}>",
        marks: [
            marks("", "<\u{ff5c}hy_place\u{2581}holder\u{2581}no\u{2581}3\u{ff5c}>"),
            marks("<\u{ff5c}hy_User\u{ff5c}>", ""),
            marks("<\u{ff5c}hy_Assistant\u{ff5c}>", "<\u{ff5c}hy_place\u{2581}holder\u{2581}no\u{2581}2\u{ff5c}>"),
            None,
        ],
        ask: "<\u{ff5c}hy_Assistant\u{ff5c}>",
        systems: Systems::First,
        ..ROW
    },
    Row {
        names: &["gpt-oss"],
        marks: [
            marks("<|start|>system<|message|>", "<|end|>"),
            marks("<|start|>user<|message|>", "<|end|>"),
            marks("<|start|>assistant<|message|>", "<|return|>"),
            marks("<|start|>tool<|message|>", "<|end|>"),
        ],
        ask: "<|start|>assistant",
        ..ROW
    },
    Row {
        names: &["kimi-k2"],
        marks: [
            marks("<|im_system|>system<|im_middle|>", "<|im_end|>"),
            marks("<|im_user|>user<|im_middle|>", "<|im_end|>"),
            marks("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
            marks("<|im_system|>tool<|im_middle|>", "<|im_end|>"),
        ],
        ask: "<|im_assistant|>assistant<|im_middle|>",
        ..ROW
    },
    Row {
        names: &["seed_oss", "seed-oss"],
        marks: named!("<seed:bos>", "\n", "<seed:eos>"),
        ask: "<seed:bos>assistant\n",
        trim: Trim::Assistant,
        ..ROW
    },
    Row {
        names: &["grok-2"],
        marks: [
            marks("System: ", "<|separator|>\n\n"),
            marks("Human: ", "<|separator|>\n\n"),
            marks("Assistant: ", "<|separator|>\n\n"),
            None,
        ],
        ask: "Assistant:",
        trim: Trim::Others,
        ..ROW
    },
    Row {
        names: &["solar-open"],
        marks: named!("<|begin|>", "<|content|>", "<|end|>"),
        ask: "<|begin|>assistant",
        ..ROW
    },
];
