"""Writes models that answer with a script: one-hot embeddings, attention without effect, and a head that maps each token
to the next one of its answer. The chat template chooses the answer."""

import gguf
import numpy

ROLES = ("<|im_start|>", "<|im_end|>")
# Teaches the server the form of calls, and ends with the token of an answer: `<|answer:NAME|>`. The vocabulary has only
# bytes, so long instructions are cut.
CHATML = """{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ (m.content or '')[:2000] }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% CHOICE %}{% endif %}"""


def write(path, answers, choice):
    """Writes a model. `answers` maps names to texts, and `choice` is the Jinja text that writes `<|answer:NAME|>`."""
    starts = {name: f"<|answer:{name}|>" for name in answers}
    control = ["<s>", "</s>", *ROLES, *starts.values()]
    pieces = list(answers.values())
    assert len(set(pieces)) == len(pieces), "two answers have the same text"
    tokens = ["<unk>", *control, *(f"<0x{byte:02X}>" for byte in range(256)), *(text.replace(" ", "\u2581") for text in pieces)]
    kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * len(control)
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * len(pieces)
    end, first = tokens.index("</s>"), len(tokens) - len(pieces)
    next_token = [end] * len(tokens)
    for at, start in enumerate(starts.values()):
        next_token[tokens.index(start)] = first + at
    dim = -(-len(tokens) // 64) * 64

    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(1 << 17)
    out.add_embedding_length(dim)
    out.add_block_count(1)
    out.add_feed_forward_length(32)
    out.add_head_count(dim // 64)
    out.add_head_count_kv(1)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    # The texts of answers are never read from a prompt: the scores of these tokens are the least.
    out.add_token_scores([-float(at) for at in range(len(tokens))])
    out.add_token_types(kinds)
    out.add_bos_token_id(tokens.index("<s>"))
    out.add_eos_token_id(end)
    out.add_add_bos_token(False)
    out.add_add_space_prefix(False)
    out.add_chat_template(CHATML.replace("{% CHOICE %}", choice))
    head = numpy.zeros((len(tokens), dim), numpy.float16)
    for at, following in enumerate(next_token):
        head[following, at] = 4
    out.add_tensor("token_embd.weight", numpy.eye(len(tokens), dim, dtype=numpy.float16))
    out.add_tensor("output.weight", head)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        out.add_tensor(f"{name}.weight", numpy.ones(dim, numpy.float32))
    shapes = {"attn_q": (dim, dim), "attn_k": (64, dim), "attn_v": (64, dim), "attn_output": (dim, dim),
              "ffn_gate": (32, dim), "ffn_up": (32, dim), "ffn_down": (dim, 32)}
    for name, shape in shapes.items():
        out.add_tensor(f"blk.0.{name}.weight", numpy.zeros(shape, numpy.float16))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
