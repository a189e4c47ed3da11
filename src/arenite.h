/* Arenite's C interface. Made from src/ffi.rs and src/ffi/: do not change it here.
 *
 * Nothing is allocated. Whatever lives on (a model, a session, ...) is placed in memory that the caller hands
 * over, of the size that arenite_*_size() tells and on a boundary of arenite_align(), and borrows what it is
 * made from: keep both where they are as long as it is used. There is nothing to free, but a pool of threads.
 * Define ARENITE_STD for what needs an operating system, which is in the libraries for one.
 *
 * A pointer with a length is to as many elements, or NULL where the length is 0. No object may be used by two
 * threads at once. Functions that can fail return a status and fill the arenite_error, unless that is NULL.
 */

#ifndef ARENITE_H
#define ARENITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Elements of the KV cache: 4 bytes, exact.
 */
#define ARENITE_KV_F32 0

/**
 * Elements of the KV cache: 2 bytes, the default.
 */
#define ARENITE_KV_F16 1

/**
 * Elements of the KV cache: 34 bytes for 32 of them.
 */
#define ARENITE_KV_Q8_0 2

/**
 * Who wrote a message: what says how to answer.
 */
#define ARENITE_ROLE_SYSTEM 0

/**
 * Who wrote a message: who asks.
 */
#define ARENITE_ROLE_USER 1

/**
 * Who wrote a message: the model.
 */
#define ARENITE_ROLE_ASSISTANT 2

/**
 * Who wrote a message: a function that was called.
 */
#define ARENITE_ROLE_TOOL 3

/**
 * How a call ended.
 */
typedef enum arenite_status {
  /**
   * It did what it should.
   */
  ARENITE_STATUS_OK = 0,
  /**
   * An argument is null, or a constant that does not exist.
   */
  ARENITE_STATUS_ARGUMENT = 1,
  /**
   * A buffer or a piece of memory is too small, or not aligned.
   */
  ARENITE_STATUS_MEMORY = 2,
  /**
   * The file is damaged, or of a kind that is not run.
   */
  ARENITE_STATUS_FILE = 3,
  /**
   * A token, a prompt or a position that cannot be.
   */
  ARENITE_STATUS_INPUT = 4,
  /**
   * The context is full.
   */
  ARENITE_STATUS_CONTEXT_FULL = 5,
  /**
   * Not a snapshot, a damaged one, or one of another session.
   */
  ARENITE_STATUS_SNAPSHOT = 6,
} arenite_status;

/**
 * The hypotheses that a search found.
 */
typedef struct arenite_beams arenite_beams;

/**
 * What an answer may be, and how far it is.
 */
typedef struct arenite_constraint arenite_constraint;

/**
 * What is remembered of a conversation. A session has one of its own, and null stands for it.
 */
typedef struct arenite_context arenite_context;

/**
 * Characters out of a stream of tokens.
 */
typedef struct arenite_decoder arenite_decoder;

/**
 * A model in a file, checked.
 */
typedef struct arenite_model arenite_model;

#if defined(ARENITE_STD)
/**
 * Threads of the library's own.
 */
typedef struct arenite_pool arenite_pool;
#endif

/**
 * Chooses tokens, and remembers them for the penalties.
 */
typedef struct arenite_sampler arenite_sampler;

/**
 * A model at work: a KV cache, a position in it, and the last logits.
 */
typedef struct arenite_session arenite_session;

/**
 * A vocabulary, ready to encode and decode.
 */
typedef struct arenite_tokenizer arenite_tokenizer;

/**
 * What went wrong, for `arenite_error_message`. Filled by every call that fails and is handed one.
 */
typedef struct arenite_error {
  /**
   * Whether it was filled: initialize with zeros to be able to tell.
   */
  uint32_t filled;
  uint64_t opaque[16];
} arenite_error;

/**
 * A part of a pass, to be called by each thread that takes part.
 */
typedef void (*arenite_job)(const void *argument);

/**
 * The caller's threads, or the other core of a microcontroller.
 */
typedef struct arenite_workers {
  /**
   * How many take part, the calling one included.
   */
  size_t count;
  /**
   * Handed to `run`.
   */
  void *user;
  /**
   * Calls `job(argument)` on up to `count` threads at once, at least once, and returns when every call has returned.
   * The job divides itself: a thread that is late finds nothing to do.
   */
  void (*run)(void *user, arenite_job job, const void *argument);
} arenite_workers;

/**
 * What the caller decides about a session's memory.
 */
typedef struct arenite_options {
  /**
   * Positions in the context; 0 for as many as the model was trained for.
   */
  size_t context;
  /**
   * Tokens that prefill takes at once, at least 1. More is faster and needs more workspace.
   */
  size_t batch;
  /**
   * One of ARENITE_KV_F32, ARENITE_KV_F16, ARENITE_KV_Q8_0.
   */
  uint32_t kv;
  /**
   * Contexts that are open at once, the session's own included; 0 for that one. A beam search takes one more than it
   * has beams.
   */
  size_t contexts;
  /**
   * Pages of 16 positions that all contexts have together; 0 for enough to fill each.
   */
  size_t pages;
  /**
   * The threads that share the work, which stay borrowed; null for the calling one alone.
   */
  const struct arenite_workers *workers;
  /**
   * The name of an instruction set, with a zero byte at its end; null for the fastest.
   */
  const char *isa;
  /**
   * Earlier states that each context can keep to go back to, of models whose layers have a state of fixed size: see
   * `arenite_context_checkpoint`.
   */
  size_t checkpoints;
} arenite_options;

/**
 * Exact bytes of memory for a model under some options: the same on every target.
 */
typedef struct arenite_plan {
  /**
   * Bytes of workspace.
   */
  size_t workspace;
  /**
   * Bytes of KV cache.
   */
  size_t kv;
  /**
   * Bytes of the tokenizer's index; 0 if it is in the file.
   */
  size_t tokenizer;
  /**
   * Positions in the context.
   */
  size_t context;
} arenite_plan;

/**
 * What is added to the logit of a token: minus infinity forbids it.
 */
typedef struct arenite_bias {
  /**
   * The token.
   */
  uint32_t token;
  /**
   * Added to its logit.
   */
  float bias;
} arenite_bias;

/**
 * How to choose a token: llama.cpp's default chain. `arenite_params_default` fills it.
 */
typedef struct arenite_params {
  /**
   * 0 takes the best token.
   */
  float temperature;
  /**
   * How many of the best tokens are considered; 0 is all.
   */
  uint32_t top_k;
  /**
   * Of these, as many of the best as together have this probability; 1 is all.
   */
  float top_p;
  /**
   * Of these, the ones that are at least this many times as likely as the best; 0 is all.
   */
  float min_p;
  /**
   * Divides the logits of recent tokens if they are positive, multiplies them if not; 1 is off.
   */
  float repeat_penalty;
  /**
   * Taken from the logit of a recent token for every time that it came up; 0 is off.
   */
  float frequency_penalty;
  /**
   * Taken from the logit of a recent token once; 0 is off.
   */
  float presence_penalty;
  /**
   * How many tokens are recent; 0 turns the penalties off.
   */
  uint32_t repeat_last_n;
  /**
   * Added to the logits of some tokens, each once; stays borrowed by a sampler. Null for nothing.
   */
  const struct arenite_bias *bias;
  /**
   * How many.
   */
  size_t bias_count;
  /**
   * Of the `top_k` best, those whose probability is nearest to what is expected, as many as together have this
   * probability; 1 is all.
   */
  float typical_p;
} arenite_params;

/**
 * Tokens to run in a context.
 */
typedef struct arenite_work {
  /**
   * The context, or null for the session's own. None is given twice.
   */
  struct arenite_context *context;
  /**
   * The tokens, at least one.
   */
  const uint32_t *tokens;
  /**
   * How many.
   */
  size_t count;
} arenite_work;

/**
 * What to search for. `arenite_search_default` fills it.
 */
typedef struct arenite_search {
  /**
   * Hypotheses to follow at once; options for a session with them have one context more than beams.
   */
  size_t beams;
  /**
   * Most tokens of a hypothesis.
   */
  size_t length;
  /**
   * Log-probabilities are divided by the length to this power: 0 does not look at lengths, 1 takes the mean.
   */
  float length_penalty;
} arenite_search;

/**
 * One message of a conversation.
 */
typedef struct arenite_message {
  /**
   * One of ARENITE_ROLE_SYSTEM, ARENITE_ROLE_USER, ARENITE_ROLE_ASSISTANT, ARENITE_ROLE_TOOL.
   */
  uint32_t role;
  /**
   * What it says, in UTF-8.
   */
  const char *content;
  /**
   * Bytes of it.
   */
  size_t len;
} arenite_message;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Writes what went wrong to `out`, as one sentence that ends with a zero byte, cut to `capacity` bytes. Returns
 * the length of the whole sentence, without the zero.
 */
size_t arenite_error_message(const struct arenite_error *error, char *out, size_t capacity);

/**
 * The boundary in bytes that fits every object, workspace and KV cache.
 */
size_t arenite_align(void);

/**
 * Bytes of a model.
 */
size_t arenite_model_size(void);

/**
 * Bytes of a session, without workspace and KV cache.
 */
size_t arenite_session_size(void);

/**
 * Reads and checks the GGUF file of `len` bytes at `file`, which stays borrowed and may have any
 * alignment, and places a model in `memory`.
 */
enum arenite_status arenite_model_new(const uint8_t *file,
                                      size_t len,
                                      void *memory,
                                      size_t capacity,
                                      struct arenite_model **out,
                                      struct arenite_error *error);

/**
 * Words in the vocabulary: how many logits there are. 0 for null.
 */
size_t arenite_model_vocab(const struct arenite_model *model);

/**
 * The text under a key of the file's metadata, which has no zero byte at its end, and its length. Null if there is no
 * such key or no text.
 */
const char *arenite_model_text(const struct arenite_model *model, const char *key, size_t *len);

/**
 * Writes the number under a key of the file's metadata to `out`; true and false are 1 and 0. Whether there is one.
 */
bool arenite_model_number(const struct arenite_model *model, const char *key, double *out);

/**
 * The model's own context, 16 tokens at once, an f16 cache, one context, one thread.
 */
struct arenite_options arenite_options_default(void);

/**
 * How many bytes the model needs. `options` may be null, for the default ones.
 */
enum arenite_status arenite_model_plan(const struct arenite_model *model,
                                       const struct arenite_options *options,
                                       struct arenite_plan *out,
                                       struct arenite_error *error);

/**
 * Places a session in `memory`. `workspace` and `kv` have at least the planned bytes and start on a boundary
 * of `arenite_align`; they, and the model, stay borrowed.
 */
enum arenite_status arenite_session_new(const struct arenite_model *model,
                                        const struct arenite_options *options,
                                        uint8_t *workspace,
                                        size_t workspace_len,
                                        uint8_t *kv,
                                        size_t kv_len,
                                        void *memory,
                                        size_t capacity,
                                        struct arenite_session **out,
                                        struct arenite_error *error);

/**
 * Runs `count` tokens after what is in the context. The logits are then those of the last one.
 */
enum arenite_status arenite_session_prefill(struct arenite_session *session,
                                            const uint32_t *tokens,
                                            size_t count,
                                            struct arenite_error *error);

/**
 * Runs one token.
 */
enum arenite_status arenite_session_decode(struct arenite_session *session,
                                           uint32_t token,
                                           struct arenite_error *error);

/**
 * The logits of the last token, one for each word of the vocabulary, which may be changed. Null for null.
 */
float *arenite_session_logits(struct arenite_session *session);

/**
 * Tokens in the context. 0 for null.
 */
size_t arenite_session_position(const struct arenite_session *session);

/**
 * Forgets everything from `position` on; the logits stay as they are.
 */
enum arenite_status arenite_session_rewind(struct arenite_session *session,
                                           size_t position,
                                           struct arenite_error *error);

/**
 * Bytes that `arenite_session_save` writes now. 0 for null.
 */
size_t arenite_session_snapshot_size(const struct arenite_session *session);

/**
 * Writes the context and the logits to `out`, and the number of bytes to `written`, which may be null.
 */
enum arenite_status arenite_session_save(struct arenite_session *session,
                                         uint8_t *out,
                                         size_t capacity,
                                         size_t *written,
                                         struct arenite_error *error);

/**
 * Puts the session where the one was that was saved. If it fails, the session is as it was before.
 */
enum arenite_status arenite_session_restore(struct arenite_session *session,
                                            const uint8_t *snapshot,
                                            size_t len,
                                            struct arenite_error *error);

/**
 * Bytes of a tokenizer.
 */
size_t arenite_tokenizer_size(void);

/**
 * Bytes of a decoder.
 */
size_t arenite_decoder_size(void);

/**
 * Bytes of a sampler, without its scratch memory.
 */
size_t arenite_sampler_size(void);

/**
 * Places a tokenizer in `memory`. `index` has at least the planned bytes (none if the file was packed) and
 * stays borrowed, as the model's file does.
 */
enum arenite_status arenite_tokenizer_new(const struct arenite_model *model,
                                          uint8_t *index,
                                          size_t index_len,
                                          void *memory,
                                          size_t capacity,
                                          struct arenite_tokenizer **out,
                                          struct arenite_error *error);

/**
 * Bytes of scratch memory with which `arenite_tokenize` takes any text of `text_len` bytes.
 */
size_t arenite_tokenize_scratch_size(size_t text_len);

/**
 * Writes the tokens of a text to `tokens`, and how many they are to `count`. `add_special` adds what the model
 * wants before and after a text (BOS, EOS); `parse_special` reads control tokens that are spelled out.
 */
enum arenite_status arenite_tokenize(const struct arenite_tokenizer *tokenizer,
                                     const char *text,
                                     size_t text_len,
                                     bool add_special,
                                     bool parse_special,
                                     uint8_t *scratch,
                                     size_t scratch_len,
                                     uint32_t *tokens,
                                     size_t capacity,
                                     size_t *count,
                                     struct arenite_error *error);

/**
 * Writes the text of `count` tokens to `out`, without a zero byte, and its length to `len`. Control tokens are
 * left out unless `show_special`.
 */
enum arenite_status arenite_detokenize(const struct arenite_tokenizer *tokenizer,
                                       const uint32_t *tokens,
                                       size_t count,
                                       bool show_special,
                                       char *out,
                                       size_t capacity,
                                       size_t *len,
                                       struct arenite_error *error);

/**
 * Whether generation ends with this token. No for null.
 */
bool arenite_is_end(const struct arenite_tokenizer *tokenizer, uint32_t token);

/**
 * Places a decoder in `memory`, for text that comes token by token: after a prompt, or from its beginning. The
 * tokenizer stays borrowed.
 */
enum arenite_status arenite_decoder_new(const struct arenite_tokenizer *tokenizer,
                                        bool after_prompt,
                                        void *memory,
                                        size_t capacity,
                                        struct arenite_decoder **out,
                                        struct arenite_error *error);

/**
 * Takes the next token, writes the text that is complete to `out`, without a zero byte, and its length to
 * `len`. A character that is cut between tokens is held back. If `out` is too small, nothing was taken.
 */
enum arenite_status arenite_decoder_push(struct arenite_decoder *decoder,
                                         uint32_t token,
                                         char *out,
                                         size_t capacity,
                                         size_t *len,
                                         struct arenite_error *error);

/**
 * Writes what is held back to `out`, at the end of a text, and its length to `len`: it will not become a character any
 * more. If `out` is too small, it is still held back.
 */
enum arenite_status arenite_decoder_finish(struct arenite_decoder *decoder,
                                           char *out,
                                           size_t capacity,
                                           size_t *len,
                                           struct arenite_error *error);

/**
 * llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties.
 */
struct arenite_params arenite_params_default(void);

/**
 * Bytes of scratch memory that a sampler needs for a vocabulary. `params` may be null, for the default ones.
 */
size_t arenite_sampler_scratch_size(const struct arenite_params *params, size_t vocab);

/**
 * Places a sampler in `memory`. `params` may be null, for the default ones; a seed gives the same tokens
 * everywhere. `scratch` stays borrowed.
 */
enum arenite_status arenite_sampler_new(const struct arenite_params *params,
                                        size_t vocab,
                                        uint64_t seed,
                                        uint8_t *scratch,
                                        size_t scratch_len,
                                        void *memory,
                                        size_t capacity,
                                        struct arenite_sampler **out,
                                        struct arenite_error *error);

/**
 * Chooses a token by `count` logits, into which bias and penalties are worked, and remembers it.
 */
enum arenite_status arenite_sampler_sample(struct arenite_sampler *sampler,
                                           float *logits,
                                           size_t count,
                                           uint32_t *token,
                                           struct arenite_error *error);

/**
 * Forgets all tokens.
 */
void arenite_sampler_reset(struct arenite_sampler *sampler);

/**
 * Remembers a token for the penalties, such as one of the prompt.
 */
void arenite_sampler_accept(struct arenite_sampler *sampler, uint32_t token);

/**
 * Writes the name of an instruction set that this machine has to `out`, with a zero byte after it and cut to
 * `capacity`: number 0 is the fastest. Returns its length; 0 if there are fewer.
 */
size_t arenite_isa(size_t number, char *out, size_t capacity);

#if defined(ARENITE_STD)
/**
 * Bytes of a pool.
 */
size_t arenite_pool_size(void);
#endif

#if defined(ARENITE_STD)
/**
 * Starts `count - 1` threads, and places a pool of them and the calling one in `memory`. This is the only object
 * that has to be freed, after the sessions that use it.
 */
enum arenite_status arenite_pool_new(size_t count,
                                     void *memory,
                                     size_t capacity,
                                     struct arenite_pool **out,
                                     struct arenite_error *error);
#endif

#if defined(ARENITE_STD)
/**
 * The pool as a session's workers. Null for null.
 */
const struct arenite_workers *arenite_pool_workers(const struct arenite_pool *pool);
#endif

#if defined(ARENITE_STD)
/**
 * Ends the threads of a pool.
 */
void arenite_pool_free(struct arenite_pool *pool);
#endif

/**
 * Bytes of a context.
 */
size_t arenite_context_size(void);

/**
 * Places a new, empty context of a session in `memory`. The options of the session say how many there may be.
 */
enum arenite_status arenite_context_new(struct arenite_session *session,
                                        void *memory,
                                        size_t capacity,
                                        struct arenite_context **out,
                                        struct arenite_error *error);

/**
 * Places a context that has read what `context` has read; they share memory until they go different ways.
 */
enum arenite_status arenite_context_fork(struct arenite_session *session,
                                         const struct arenite_context *context,
                                         void *memory,
                                         size_t capacity,
                                         struct arenite_context **out,
                                         struct arenite_error *error);

/**
 * Gives back what a context holds; it is no object any more. Of null nothing.
 */
void arenite_context_close(struct arenite_session *session, struct arenite_context *context);

/**
 * Tokens in a context, or in the session's own for null.
 */
size_t arenite_context_position(const struct arenite_session *session, const struct arenite_context *context);

/**
 * Forgets everything of a context from `position` on.
 */
enum arenite_status arenite_context_rewind(struct arenite_session *session,
                                           struct arenite_context *context,
                                           size_t position,
                                           struct arenite_error *error);

/**
 * Keeps the states of a context's layers as they are now, so that it can be rewound to this position: as many as the
 * options planned, the latest ones. Models whose layers have no state of fixed size can go back anyway.
 */
enum arenite_status arenite_context_checkpoint(struct arenite_session *session,
                                               const struct arenite_context *context,
                                               struct arenite_error *error);

/**
 * The last position, up to `position`, that a context can be rewound to. 0 for a null session.
 */
size_t arenite_context_nearest(struct arenite_session *session, const struct arenite_context *context, size_t position);

/**
 * The logits of the last token of a context, which may be changed. Null for a null session.
 */
float *arenite_context_logits(struct arenite_session *session, const struct arenite_context *context);

/**
 * Runs tokens of up to 64 contexts, every weight read once for all of them. If it fails, nothing was run.
 */
enum arenite_status arenite_session_run(struct arenite_session *session,
                                        const struct arenite_work *works,
                                        size_t count,
                                        struct arenite_error *error);

/**
 * Four beams, 128 tokens, the mean.
 */
struct arenite_search arenite_search_default(void);

/**
 * Bytes of a search's result. Its scratch memory is not counted.
 */
size_t arenite_beams_size(void);

/**
 * Runs the encoder on `count` tokens. A decoder that follows it begins anew and attends to this text from now on.
 */
enum arenite_status arenite_session_encode(struct arenite_session *session,
                                           const uint32_t *tokens,
                                           size_t count,
                                           struct arenite_error *error);

/**
 * What the encoder made of the last text: `count` numbers, as many for each token as a hidden state is wide. Null
 * for null.
 */
const float *arenite_session_states(const struct arenite_session *session, size_t *count);

/**
 * Makes one vector of `count` tokens, as the model means it (the mean of all states, if it does not say), in
 * `out`, and tells its `len`. `capacity` is at least `arenite_session_vector_size`.
 */
enum arenite_status arenite_session_embed(struct arenite_session *session,
                                          const uint32_t *tokens,
                                          size_t count,
                                          float *out,
                                          size_t capacity,
                                          size_t *len,
                                          struct arenite_error *error);

/**
 * As `arenite_session_embed`, of two texts, of which the second begins at token `second`: what a model that ranks makes of
 * a question and an answer.
 */
enum arenite_status arenite_session_embed_pair(struct arenite_session *session,
                                               const uint32_t *tokens,
                                               size_t count,
                                               size_t second,
                                               float *out,
                                               size_t capacity,
                                               size_t *len,
                                               struct arenite_error *error);

/**
 * Numbers that `arenite_session_embed` needs room for. 0 for null.
 */
size_t arenite_session_vector_size(struct arenite_session *session);

/**
 * Bytes of scratch memory for a beam search. 0 for null.
 */
size_t arenite_beams_scratch_size(struct arenite_session *session);

/**
 * Searches for continuations in the text of the last `arenite_session_encode`, and places what was found in
 * `memory`. `search` may be null, for the default one. `scratch` starts on a boundary of `arenite_align` and
 * stays borrowed.
 */
enum arenite_status arenite_beams_new(struct arenite_session *session,
                                      const struct arenite_tokenizer *tokenizer,
                                      const struct arenite_search *search,
                                      uint8_t *scratch,
                                      size_t scratch_len,
                                      void *memory,
                                      size_t capacity,
                                      struct arenite_beams **out,
                                      struct arenite_error *error);

/**
 * How many hypotheses were found. 0 for null.
 */
size_t arenite_beams_count(const struct arenite_beams *beams);

/**
 * The tokens of the hypothesis of this rank, 0 for the best, how many they are, and its score; they are there until the
 * next call. Null if fewer were found.
 */
const uint32_t *arenite_beams_tokens(struct arenite_beams *beams, size_t rank, size_t *count, float *score);

/**
 * Bytes of scratch memory for the translation of a text of `text_len` bytes. 0 for null.
 */
size_t arenite_translate_scratch_size(struct arenite_session *session, size_t text_len);

/**
 * Translates a text, one sentence for most models: writes the best translation to `out`, without a zero byte, and its
 * length to `len`. `search` may be null, for the default one. `scratch` starts on a boundary of `arenite_align`.
 */
enum arenite_status arenite_translate(struct arenite_session *session,
                                      const struct arenite_tokenizer *tokenizer,
                                      const struct arenite_search *search,
                                      const char *text,
                                      size_t text_len,
                                      uint8_t *scratch,
                                      size_t scratch_len,
                                      char *out,
                                      size_t capacity,
                                      size_t *len,
                                      struct arenite_error *error);

/**
 * Bytes of a constraint.
 */
size_t arenite_constraint_size(void);

/**
 * Places a constraint in `memory`, before the first token of an answer. `table` is what `arenite grammar` made of a grammar
 * or a JSON schema; it is checked here, and stays borrowed.
 */
enum arenite_status arenite_constraint_new(const uint8_t *table,
                                           size_t len,
                                           void *memory,
                                           size_t capacity,
                                           struct arenite_constraint **out,
                                           struct arenite_error *error);

/**
 * Whether the answer is whole: it may end here. No for null.
 */
bool arenite_constraint_is_complete(const struct arenite_constraint *constraint);

/**
 * As `arenite_sampler_sample`, among the tokens that may come next; the constraint goes on by the one that is chosen.
 */
enum arenite_status arenite_sampler_sample_where(struct arenite_sampler *sampler,
                                                 float *logits,
                                                 size_t count,
                                                 struct arenite_constraint *constraint,
                                                 const struct arenite_tokenizer *tokenizer,
                                                 uint32_t *token,
                                                 struct arenite_error *error);

/**
 * Gives a conversation of at most 64 messages, and what asks the model for an answer, to `piece`, part by part, each to be
 * tokenized by itself: one of the format's own (`is_template`) with its control tokens, one of a message without, so that
 * nobody who writes one can make them.
 *
 * `format` is one of llama.cpp's names (such as "chatml"), or the model's own template, which is in its metadata as
 * `tokenizer.chat_template` and is recognised if it is a well-known one.
 */
enum arenite_status arenite_chat(const char *format,
                                 size_t format_len,
                                 const struct arenite_message *messages,
                                 size_t count,
                                 void (*piece)(void *user, const char *text, size_t len, bool is_template),
                                 void *user,
                                 struct arenite_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ARENITE_H */
