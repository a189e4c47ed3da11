"""Runs llama.cpp on one file through the low-level interface of its Python package, and writes the files that
comparisons need."""

import ctypes

import gguf
import llama_cpp
import numpy

QUIET = llama_cpp.llama_log_callback(lambda *_: None)
llama_cpp.llama_log_set(QUIET, None)

TYPES = {name: int(gguf.GGMLQuantizationType[name.upper()]) for name in ("f32", "f16", "q8_0", "q4_0")}


def as_f32(source, path):
    """Writes a copy of the file with its weights decoded to F32."""
    file = gguf.GGUFReader(source)
    out = gguf.GGUFWriter(path, file.fields["general.architecture"].contents())
    for name, field in file.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            out.add_key_value(name, field.contents(), kind, sub_type=field.types[-1])
        else:
            out.add_key_value(name, field.contents(), kind)
    for tensor in file.tensors:
        out.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


class Llama:
    """A model in llama.cpp."""

    def __init__(self, path):
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise ValueError(f"llama.cpp cannot load {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.words = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def close(self):
        llama_cpp.llama_model_free(self.model)

    def tokenize(self, text, add_special=False, parse_special=False):
        text = text.encode()
        ids = (llama_cpp.llama_token * (len(text) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, text, len(text), ids, len(ids), add_special, parse_special)
        assert count >= 0, text
        return ids[:count]

    def text(self, ids):
        """The text of these tokens, special ones included."""
        buffer, found = ctypes.create_string_buffer(512), b""
        for token in ids:
            found += buffer.raw[:llama_cpp.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, True)]
        return found.decode(errors="replace")

    def is_end(self, token):
        return llama_cpp.llama_vocab_is_eog(self.vocab, token)

    def context(self, length, kv="f16", threads=1):
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = length
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_threads = parameters.n_threads_batch = threads
        # Quantized values need flash attention. An f16 cache is more accurate without flash attention.
        parameters.flash_attn_type = 1 if kv.startswith("q") else 0
        parameters.type_k = parameters.type_v = TYPES[kv]
        context = llama_cpp.llama_init_from_model(self.model, parameters)
        assert context, f"llama.cpp has no cache of type {kv} for this model"
        return context

    def decode(self, context, ids, position, every):
        """Runs the tokens `ids`. Returns the logits of every token if `every` is true, otherwise those of the last."""
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position + i, 1
            batch.logits[i] = every or i + 1 == len(ids)
            batch.seq_id[i][0] = 0
        assert llama_cpp.llama_decode(context, batch) == 0
        rows = range(len(ids)) if every else [len(ids) - 1]
        found = [numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (self.words,)).copy() for i in rows]
        llama_cpp.llama_batch_free(batch)
        return numpy.array(found)

    def logits(self, ids, kv="f32"):
        """The logits of all positions."""
        context = self.context(max(len(ids), 512), kv)
        found = [self.decode(context, ids[start:start + 512], start, True) for start in range(0, len(ids), 512)]
        llama_cpp.llama_free(context)
        return numpy.concatenate(found)

    def greedy(self, ids, count, kv="f16"):
        """The most likely continuation of `ids`, up to `count` tokens or the end."""
        context, found = self.context(len(ids) + count, kv), []
        for start in range(0, len(ids), 512):
            last = self.decode(context, ids[start:start + 512], start, False)
        while len(found) < count:
            token = int(last[0].argmax())
            if self.is_end(token):
                break
            found.append(token)
            last = self.decode(context, [token], len(ids) + len(found) - 1, False)
        llama_cpp.llama_free(context)
        return found
