// C++ classes that own the memory that the functions of arenite.h borrow. An error is an exception. A session needs its
// model; both may be moved.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "arenite.h"

namespace arenite {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Runs a call whose last argument is a pointer to an error.
template <typename Call>
void check(Call call) {
    arenite_error error = {};
    if (call(&error) == ARENITE_STATUS_OK) return;
    std::string message(arenite_error_message(&error, nullptr, 0), '\0');
    arenite_error_message(&error, message.data(), message.size() + 1);
    throw Error(message);
}

// Memory with the alignment of every object, workspace and cache.
class Memory {
    struct Free {
        void operator()(std::uint8_t *at) const { ::operator delete(at, std::align_val_t(arenite_align())); }
    };
    std::size_t size_;
    std::unique_ptr<std::uint8_t, Free> at_;

public:
    explicit Memory(std::size_t size)
        : size_(size), at_(static_cast<std::uint8_t *>(::operator new(size + 1, std::align_val_t(arenite_align())))) {}
    std::uint8_t *data() const { return at_.get(); }
    std::size_t size() const { return size_; }
};

// A model's file, and its tokenizer.
class Model {
    std::vector<std::uint8_t> file_;
    Memory memory_{arenite_model_size()}, words_{arenite_tokenizer_size()};
    Memory index_{0};
    arenite_model *model_ = nullptr;
    arenite_tokenizer *tokenizer_ = nullptr;

    static std::vector<std::uint8_t> read(const std::string &path) {
        std::ifstream file(path, std::ios::binary);
        if (!file) throw Error("cannot read " + path);
        try {
            return {std::istreambuf_iterator<char>(file), {}};
        } catch (const std::ios_base::failure &) {  // a directory
            throw Error("cannot read " + path);
        }
    }

public:
    explicit Model(std::vector<std::uint8_t> file) : file_(std::move(file)) {
        check([&](auto error) {
            return arenite_model_new(file_.data(), file_.size(), memory_.data(), memory_.size(), &model_, error);
        });
        index_ = Memory(plan().tokenizer);
        check([&](auto error) {
            return arenite_tokenizer_new(model_, index_.data(), index_.size(), words_.data(), words_.size(), &tokenizer_, error);
        });
    }
    explicit Model(const std::string &path) : Model(read(path)) {}

    arenite_model *get() const { return model_; }
    arenite_tokenizer *tokenizer() const { return tokenizer_; }
    std::size_t vocab() const { return arenite_model_vocab(model_); }

    arenite_plan plan(arenite_options options = arenite_options_default()) const {
        arenite_plan plan;
        check([&](auto error) { return arenite_model_plan(model_, &options, &plan, error); });
        return plan;
    }

    std::vector<std::uint32_t> tokenize(std::string_view text, bool add_special = true, bool parse_special = false) const {
        Memory scratch(arenite_tokenize_scratch_size(text.size()));
        std::vector<std::uint32_t> tokens(3 * text.size() + 16); // a space may become three tokens
        std::size_t count = 0;
        check([&](auto error) {
            return arenite_tokenize(tokenizer_, text.data(), text.size(), add_special, parse_special, scratch.data(),
                                    scratch.size(), tokens.data(), tokens.size(), &count, error);
        });
        tokens.resize(count);
        return tokens;
    }
};

// A conversation: the tokens that a model has read, in memory of the planned size.
class Session {
    arenite_tokenizer *tokenizer_;
    std::size_t vocab_, context_;
    Memory memory_{arenite_session_size()}, workspace_, kv_;
    arenite_session *session_ = nullptr;

    Session(const Model &model, arenite_options options, arenite_plan plan)
        : tokenizer_(model.tokenizer()), vocab_(model.vocab()), context_(plan.context), workspace_(plan.workspace), kv_(plan.kv) {
        check([&](auto error) {
            return arenite_session_new(model.get(), &options, workspace_.data(), workspace_.size(), kv_.data(), kv_.size(),
                                       memory_.data(), memory_.size(), &session_, error);
        });
    }

public:
    explicit Session(const Model &model, arenite_options options = arenite_options_default())
        : Session(model, options, model.plan(options)) {}

    arenite_session *get() const { return session_; }
    std::size_t position() const { return arenite_session_position(session_); }

    void read(const std::vector<std::uint32_t> &tokens) {
        check([&](auto error) { return arenite_session_prefill(session_, tokens.data(), tokens.size(), error); });
    }

    // Generates at most `count` tokens after those that were read, until the context is full, and hands over their text as it
    // is completed. A further `read` goes on after them.
    void generate(std::size_t count, const std::function<void(std::string_view)> &tell,
                  arenite_params params = arenite_params_default(), std::uint64_t seed = 0) {
        Memory scratch(arenite_sampler_scratch_size(&params, vocab_));
        Memory dice(arenite_sampler_size()), words(arenite_decoder_size());
        arenite_sampler *sampler = nullptr;
        arenite_decoder *decoder = nullptr;
        check([&](auto error) {
            return arenite_sampler_new(&params, vocab_, seed, scratch.data(), scratch.size(), dice.data(), dice.size(),
                                       &sampler, error);
        });
        check([&](auto error) {
            return arenite_decoder_new(tokenizer_, true, words.data(), words.size(), &decoder, error);
        });
        std::size_t length = 0;
        char text[512];
        while (count-- && position() < context_) {
            std::uint32_t token = 0;
            check([&](auto error) {
                return arenite_sampler_sample(sampler, arenite_session_logits(session_), vocab_, &token, error);
            });
            if (arenite_is_end(tokenizer_, token)) break;
            check([&](auto error) { return arenite_decoder_push(decoder, token, text, sizeof text, &length, error); });
            if (length) tell({text, length});
            check([&](auto error) { return arenite_session_decode(session_, token, error); });
        }
        check([&](auto error) { return arenite_decoder_finish(decoder, text, sizeof text, &length, error); });
        if (length) tell({text, length});
    }
};

}  // namespace arenite
