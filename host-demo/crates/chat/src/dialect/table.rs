//! The table of dialects: the syntax of thoughts and function calls for each family of models.

use super::{CallForm, Channels, Syntax, Tag, ThoughtForm};

/// A row of [`CALLS`].
const fn form(
    family: &'static str,
    open: &'static str,
    close: &'static str,
    syntax: Syntax<&'static str>,
) -> CallForm<&'static str> {
    CallForm { family, open, close, syntax }
}

const fn named(before: &'static str, between: &'static str, after: &'static str) -> Syntax<&'static str> {
    Syntax::Named { lead: "", before, id: "", between, after }
}

const PLAMO_OPEN: &str = "<|plamo:begin_tool_requests:plamo|>";
const PLAMO_CLOSE: &str = "<|plamo:end_tool_requests:plamo|>";
const PLAMO_JSON: &str =
    "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>";
const PLAMO_MESSAGE: &str = "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:msg|>";

const fn plamo(between: &'static str) -> Syntax<&'static str> {
    named(
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
        between,
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
    )
}

const fn tag(open: &'static str, head: &'static str, close: &'static str) -> Tag<&'static str> {
    Tag { open, head, close }
}

/// `<function=NAME>` containing `<parameter=NAME>`.
const FUNCTION: Syntax<&str> = Syntax::Tagged {
    call: tag("<function=", ">", "</function>"),
    parameter: tag("<parameter=", ">", "</parameter>"),
    pad: "\n",
};
/// [`FUNCTION`] without line breaks around values.
const FUNCTION_TIGHT: Syntax<&str> = Syntax::Tagged {
    call: tag("<function=", ">", "</function>"),
    parameter: tag("<parameter=", ">", "</parameter>"),
    pad: "",
};
/// The syntax of calls as elements: `<invoke name="NAME">`, which contains `<parameter name="NAME">` elements.
const INVOKE: Syntax<&str> = Syntax::Tagged {
    call: tag("<invoke name=\"", "\">", "</invoke>"),
    parameter: tag("<parameter name=\"", "\">", "</parameter>"),
    pad: "",
};
const DSML: Syntax<&str> = Syntax::Tagged {
    call: tag("<\u{ff5c}DSML\u{ff5c}invoke name=\"", "\">", "</\u{ff5c}DSML\u{ff5c}invoke>"),
    parameter: tag("<\u{ff5c}DSML\u{ff5c}parameter name=\"", "\">", "</\u{ff5c}DSML\u{ff5c}parameter>"),
    pad: "",
};
/// DSML of DeepSeek V4.1, with spaces in its tags.
const DSML_SPACED: Syntax<&str> = Syntax::Tagged {
    call: tag("<\u{ff5c}DSML\u{ff5c} invoke name=\"", "\">", "</\u{ff5c}DSML\u{ff5c} invoke>"),
    parameter: tag("<\u{ff5c}DSML\u{ff5c} parameter name=\"", "\">", "</\u{ff5c}DSML\u{ff5c} parameter>"),
    pad: "",
};
const GCML: Syntax<&str> = Syntax::Tagged {
    call: tag("<\u{ff5c}GCML\u{ff5c}invoke name=\"", "\">", "</\u{ff5c}GCML\u{ff5c}invoke>"),
    parameter: tag("<\u{ff5c}GCML\u{ff5c}parameter name=\"", "\">", "</\u{ff5c}GCML\u{ff5c}parameter>"),
    pad: "",
};
const XTML: Syntax<&str> = Syntax::Tagged {
    call: tag("<|open|>call tool=\"", "\"<|sep|>", "<|close|>call<|sep|>"),
    parameter: tag("<|open|>argument key=\"", "\"<|sep|>", "<|close|>argument<|sep|>"),
    pad: "",
};

/// The syntax of calls as elements: `<function name="NAME">`, which contains `<param name="NAME">` elements.
const PARAM: Syntax<&str> = Syntax::Tagged {
    call: tag("<function name=\"", "\">", "</function>"),
    parameter: tag("<param name=\"", "\">", "</param>"),
    pad: "",
};
const ATEM: Syntax<&str> = Syntax::Tagged {
    call: tag("<atem:invoke name=\"", "\">", "</atem:invoke>"),
    parameter: tag("<atem:parameter name=\"", "\">", "</atem:parameter>"),
    pad: "",
};
const STEPTML: Syntax<&str> = Syntax::Tagged {
    call: tag(
        "<\u{ff5c}tool_call_begin\u{ff5c}>function<\u{ff5c}tool_sep\u{ff5c}><steptml:invoke name=\"",
        "\">",
        "</steptml:invoke><\u{ff5c}tool_call_end\u{ff5c}>",
    ),
    parameter: tag("<steptml:parameter name=\"", "\">", "</steptml:parameter>"),
    pad: "",
};

const fn json(name: &'static str, arguments: &'static str, is_list: bool) -> Syntax<&'static str> {
    Syntax::Json { name, arguments, is_list }
}

const JSON: Syntax<&str> = json("name", "arguments", false);
const LIST: Syntax<&str> = json("name", "arguments", true);
const PARAMETERS: Syntax<&str> = json("name", "parameters", false);
const COHERE: Syntax<&str> = json("tool_name", "parameters", true);

/// The forms of calls that models write. If several forms begin with the same delimiter, the first one that fits the
/// text is used.
pub const CALLS: &[CallForm<&str>] = &[
    form("Hermes, Qwen 2.5 and 3, Granite 4, EXAONE 4, Ling", "<tool_call>", "</tool_call>", JSON),
    form("Qwen 3.5, Qwen3-Coder, Nemotron 3, Step 3.5", "<tool_call>", "</tool_call>", FUNCTION),
    form(
        "GLM 4.x",
        "<tool_call>",
        "</tool_call>",
        Syntax::Keyed { call: [""; 3], key: ("<arg_key>", "</arg_key>"), value: ("<arg_value>", "</arg_value>") },
    ),
    form(
        "Hunyuan 3",
        "<tool_calls:opensource>",
        "</tool_calls:opensource>",
        Syntax::Keyed {
            call: ["<tool_call:opensource>", "<tool_sep:opensource>", "</tool_call:opensource>"],
            key: ("<arg_key:opensource>", "</arg_key:opensource>"),
            value: ("<arg_value:opensource>", "</arg_value:opensource>"),
        },
    ),
    form(
        "LongCat",
        "<longcat_tool_call>",
        "</longcat_tool_call>",
        Syntax::Keyed {
            call: [""; 3],
            key: ("<longcat_arg_key>", "</longcat_arg_key>"),
            value: ("<longcat_arg_value>", "</longcat_arg_value>"),
        },
    ),
    form("Hunyuan, Apriel, Jamba", "<tool_calls>", "</tool_calls>", LIST),
    form("Hunyuan (dense)", "<tool_calls>", "</tool_calls>", named("<tool_call>", "```json", "```</tool_call>")),
    form("Nemotron Nano 2", "<TOOLCALL>", "</TOOLCALL>", LIST),
    form("Seed-OSS", "<seed:tool_call>", "</seed:tool_call>", FUNCTION_TIGHT),
    form("MiniMax M2", "<minimax:tool_call>", "</minimax:tool_call>", INVOKE),
    form("MiniMax M1", "<tool_calls>", "</tool_calls>", INVOKE),
    form(
        "MiniMax M3",
        "]<]minimax[>[<tool_call>",
        "]<]minimax[>[</tool_call>",
        Syntax::Nested { lead: "]<]minimax[>[", call: tag("<invoke name=\"", "\">", "</invoke>") },
    ),
    form("MiniCPM 5", "", "", PARAM),
    form("Muse Glimmer", "<atem:function_calls>", "</atem:function_calls>", ATEM),
    form("Step 3", "<\u{ff5c}tool_calls_begin\u{ff5c}>", "<\u{ff5c}tool_calls_end\u{ff5c}>", STEPTML),
    form("Olmo 3", "<function_calls>", "</function_calls>", Syntax::Python),
    form("calls as elements", "<function_calls>", "</function_calls>", INVOKE),
    form("DeepSeek V3.2", "<\u{ff5c}DSML\u{ff5c}function_calls>", "</\u{ff5c}DSML\u{ff5c}function_calls>", DSML),
    form("DeepSeek V4", "<\u{ff5c}DSML\u{ff5c}tool_calls>", "</\u{ff5c}DSML\u{ff5c}tool_calls>", DSML),
    form("DeepSeek V4.1", "<\u{ff5c}DSML\u{ff5c} calls>", "</\u{ff5c}DSML\u{ff5c} calls>", DSML_SPACED),
    form("GigaChat 3.5", "<\u{ff5c}GCML\u{ff5c}tool_calls>", "</\u{ff5c}GCML\u{ff5c}tool_calls>", GCML),
    form("dots", "<dots_function_call>", "</dots_function_call>", INVOKE),
    form("dots with JSON", "<dots_function_call>", "</dots_function_call>", JSON),
    form("PLaMo 3", PLAMO_OPEN, PLAMO_CLOSE, plamo(PLAMO_JSON)),
    form("PLaMo 3 without a type", PLAMO_OPEN, PLAMO_CLOSE, plamo(PLAMO_MESSAGE)),
    form(
        "MiroThinker",
        "<use_mcp_tool>",
        "</use_mcp_tool>",
        Syntax::Named {
            lead: "<server_name>",
            before: "<tool_name>",
            id: "",
            between: "</tool_name>\n<arguments>\n",
            after: "\n</arguments>",
        },
    ),
    form(
        "DeepSeek V3 and R1",
        "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>",
        "<\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>",
        named(
            "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>function<\u{ff5c}tool\u{2581}sep\u{ff5c}>",
            "\n```json\n",
            "\n```<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>",
        ),
    ),
    form(
        "DeepSeek V3.1",
        "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>",
        "<\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>",
        named(
            "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>",
            "<\u{ff5c}tool\u{2581}sep\u{ff5c}>",
            "<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>",
        ),
    ),
    form(
        "Kimi K2",
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        named("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    form("Kimi K3", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>", XTML),
    form("Cohere Command R7B and A", "<|START_ACTION|>", "<|END_ACTION|>", COHERE),
    form("Cohere Command R", "Action:", "", COHERE),
    form("Mistral 7B to Nemo", "[TOOL_CALLS]", "", LIST),
    form(
        "Mistral Small 3.2, Magistral, Ministral 3",
        "",
        "",
        Syntax::Named { lead: "", before: "[TOOL_CALLS]", id: "[CALL_ID]", between: "[ARGS]", after: "" },
    ),
    form("Mistral without a mark before the arguments", "", "", named("[TOOL_CALLS]", "", "")),
    form("Phi-4-mini, Granite 3.0", "<|tool_call|>", "<|/tool_call|>", LIST),
    form("FireFunction 2, Phi-3.5", "functools", "", LIST),
    form("FireFunction 1", "<functioncall>", "", JSON),
    form("Nemotron-Mini", "<toolcall>", "</toolcall>", JSON),
    form("Granite 20B", "<function_call>", "", JSON),
    form("openPangu", "[unused11]", "[unused12]", LIST),
    form("HyperCLOVA X", "-> tool/function_call\n", "", LIST),
    form("GigaChat 3", "<|function_call|>", "", JSON),
    form("GigaChat 3, older", "function call<|role_sep|>\n", "", JSON),
    form("GigaChat 3, after the end of a message", "<|message_sep|>\n\nfunction call<|role_sep|>\n", "", JSON),
    form("InternLM 2", "<|action_start|><|plugin|>", "<|action_end|>", PARAMETERS),
    form("Apertus", "<|tools_prefix|>", "<|tools_suffix|>", json("", "", true)),
    form(
        "Solar Open",
        "<|tool_calls|>",
        "",
        Syntax::Named {
            lead: "<|tool_call:begin|>",
            before: "<|tool_call:name|>",
            id: "",
            between: "<|tool_call:args|>",
            after: "<|tool_call:end|>",
        },
    ),
    form("Gemma 4", "<|tool_call>", "<tool_call|>", Syntax::Braces { quote: "<|\"|>" }),
    form("FunctionGemma", "<start_function_call>", "<end_function_call>", Syntax::Braces { quote: "<escape>" }),
    form("MiniCPM 3", "<|tool_call_start|>\n```python", "```\n<|tool_call_end|>", Syntax::Python),
    form("LFM2", "<|tool_call_start|>", "<|tool_call_end|>", Syntax::Python),
    form("LFM2 with JSON", "<|tool_call_start|>", "<|tool_call_end|>", LIST),
    form("Llama 4", "<|python_start|>", "<|python_end|>", Syntax::Python),
    form("Llama 4, JSON after the marks", "<|python_start|><|python_end|>", "", PARAMETERS),
    form("Llama 4, JSON after a text between the marks", "<|python_end|>", "", PARAMETERS),
    form("Llama 3.1", "<|python_tag|>", "", PARAMETERS),
    form("Llama 3.1, built-in functions", "<|python_tag|>", "", Syntax::Python),
    form(
        "DeepSeek R1 without the outer mark",
        "",
        "",
        named(
            "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>function<\u{ff5c}tool\u{2581}sep\u{ff5c}>",
            "\n```json\n",
            "\n```<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>",
        ),
    ),
    form(
        "Kimi K2 without the outer mark",
        "",
        "",
        named("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    form("Functionary 3.1, Llama 3", "", "", named("<function=", ">", "</function>")),
    form("Functionary 3.2", "", "", named(">>>", "\n", "")),
    form("Functionary 2.2 and 2.4", "", "", named("<|recipient|>", "\n<|content|>", "")),
    form(
        "Functionary 2.2 and 2.4 after a message",
        "",
        "",
        named("<|from|>assistant\n<|recipient|>", "\n<|content|>", ""),
    ),
    form("Qwen3-Coder without the outer tag", "", "", FUNCTION),
    // The forms without a delimiter. They count only if the whole answer consists of calls.
    form("Llama 3.1 to 3.3, xLAM", "", "", PARAMETERS),
    form("Llama 3.2", "", "", Syntax::Python),
    form("GLM-4-9B", "", "", named("", "\n", "")),
];

const fn thought(open: &'static str, close: &'static str) -> ThoughtForm<&'static str> {
    ThoughtForm { open, close, end: "" }
}

/// Forms of thoughts. A thought begins at the start of an answer, or at the end of the prompt.
pub const THOUGHTS: &[ThoughtForm<&str>] = &[
    thought("<think>", "</think>"),
    thought("<seed:think>", "</seed:think>"),
    thought("[THINK]", "[/THINK]"),
    thought("<|channel>thought", "<channel|>"),
    thought("<|START_THINKING|>", "<|END_THINKING|>"),
    thought("<|inner_prefix|>", "<|inner_suffix|>"),
    thought("<|thought_start|>", "<|thought_end|>"),
    thought("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    thought("<|think|>", "<|end|>"),
    thought("<longcat_think>", "</longcat_think>"),
    thought("<thinking>", "</thinking>"),
    thought("<thought>", "</thought>"),
    thought("<Thought>", "</Thought>"),
    thought("<mm:think>", "</mm:think>"),
    thought("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    thought("<think:opensource>", "</think:opensource>"),
    thought("[unused16]", "[unused17]"),
    thought("\u{25c1}think\u{25b7}", "\u{25c1}/think\u{25b7}"),
    thought("Here is my thought process:", "Here is my response:"),
    ThoughtForm { open: "Here are my reasoning steps:", close: "[BEGIN FINAL RESPONSE]", end: "[END FINAL RESPONSE]" },
];

/// Pairs of delimiters around the content of an answer. The opening delimiter is dropped before the content, the
/// closing delimiter after the content.
pub const WRAPPERS: &[(&str, &str)] = &[
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
    ("<Output>", "</Output>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|START_TEXT|>", "<|END_TEXT|>"),
    ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    ("<|begin|>assistant", ""),
    ("<|content|>", ""),
    (">>>all\n", ""),
    ("<|recipient|>all\n<|content|>", "<|from|>"),
    ("<plain>", ""),
    ("<|python_start|>", ""),
];

/// The delimiters of messages in channels.
pub const CHANNELS: Channels<&str> = Channels {
    start: "<|start|>",
    channel: "<|channel|>",
    message: "<|message|>",
    ends: ["<|end|>", "<|call|>", "<|return|>", "<|eom|>", "<|eot|>"],
};
