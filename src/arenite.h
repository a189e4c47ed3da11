/* Arenite's C interface. Generated from src/ffi.rs and src/ffi/: do not edit.
 *
 * Nothing is allocated. An object (a model, a session, ...) is created in memory that the caller provides, with
 * the size returned by arenite_*_size() and the alignment arenite_align(). It borrows what it is created from:
 * keep both unmoved while the object is in use. Only a pool of threads must be freed. Define ARENITE_STD for the
 * functions that need an operating system; libraries built for one have them.
 *
 * A pointer with a length points to that many elements, or is NULL if the length is 0. An object must not be used
 * by two threads at once. Functions that can fail return a status and fill the arenite_error, unless it is NULL.
 */

#ifndef ARENITE_H
#define ARENITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * KV cache type: 4 bytes per element, exact.
 */
#define ARENITE_KV_F32 0

/**
 * KV cache type: 2 bytes per element; the default.
 */
#define ARENITE_KV_F16 1

/**
 * KV cache type: 34 bytes per 32 elements.
 */
#define ARENITE_KV_Q8_0 2

/**
 * KV cache type: 18 bytes per 32 elements.
 */
#define ARENITE_KV_Q4_0 3

/**
 * KV cache type: keys as with ARENITE_KV_Q8_0, values as with ARENITE_KV_Q4_0.
 */
#define ARENITE_KV_Q8_0_Q4_0 4

/**
 * Role of a message: instructions for the whole conversation.
 */
#define ARENITE_ROLE_SYSTEM 0

/**
 * Role of a message: the user.
 */
#define ARENITE_ROLE_USER 1

/**
 * Role of a message: the model.
 */
#define ARENITE_ROLE_ASSISTANT 2

/**
 * Role of a message: the result of a function call.
 */
#define ARENITE_ROLE_TOOL 3

/**
 * Result of a call.
 */
typedef enum arenite_status {
  /**
   * Success.
   */
  ARENITE_STATUS_OK = 0,
  /**
   * An argument is null or not a known constant.
   */
  ARENITE_STATUS_ARGUMENT = 1,
  /**
   * A buffer is too small, or memory is too small or not aligned.
   */
  ARENITE_STATUS_MEMORY = 2,
  /**
   * The file is damaged or not supported.
   */
  ARENITE_STATUS_FILE = 3,
  /**
   * A token, prompt or position is invalid.
   */
  ARENITE_STATUS_INPUT = 4,
  /**
   * The context is full.
   */
  ARENITE_STATUS_CONTEXT_FULL = 5,
  /**
   * The snapshot is damaged or belongs to another session.
   */
  ARENITE_STATUS_SNAPSHOT = 6,
} arenite_status;

/**
 * Results of a beam search.
 */
typedef struct arenite_beams arenite_beams;

/**
 * A grammar, and the state of an answer in this grammar.
 */
typedef struct arenite_constraint arenite_constraint;

/**
 * The state of a conversation. A session has its own context, which is used if a context argument is null.
 */
typedef struct arenite_context arenite_context;

/**
 * Decodes a stream of tokens to text.
 */
typedef struct arenite_decoder arenite_decoder;

/**
 * A run of an encoder in steps. Between two steps the program can feed a watchdog or yield to other tasks.
 */
typedef struct arenite_encoding arenite_encoding;

/**
 * A checked model in a file.
 */
typedef struct arenite_model arenite_model;

/**
 * A run of tokens in steps of one layer. Between two steps the program can feed a watchdog or yield to other tasks.
 */
typedef struct arenite_pass arenite_pass;

#if defined(ARENITE_STD)
/**
 * A pool of threads owned by the library.
 */
typedef struct arenite_pool arenite_pool;
#endif

/**
 * A sampler, which selects tokens. It also stores the recent tokens, because the penalties depend on them.
 */
typedef struct arenite_sampler arenite_sampler;

/**
 * A model that runs one or more contexts, with its KV cache and the last logits.
 */
typedef struct arenite_session arenite_session;

/**
 * A tokenizer for a file's vocabulary.
 */
typedef struct arenite_tokenizer arenite_tokenizer;

/**
 * Details of an error, for `arenite_error_message`. A failing call stores the details here, unless its argument
 * `error` is null.
 */
typedef struct arenite_error {
  /**
   * Nonzero after an error; initialize the struct with zeros.
   */
  uint32_t filled;
  uint64_t opaque[16];
} arenite_error;

/**
 * A job of a pass; called by each participating thread.
 */
typedef void (*arenite_job)(const void *argument);

/**
 * Threads of the caller, or the second core of a microcontroller.
 */
typedef struct arenite_workers {
  /**
   * Number of threads, including the calling one.
   */
  size_t count;
  /**
   * Passed to `run`.
   */
  void *user;
  /**
   * Calls `job(argument)` on up to `count` threads at once, at least once, and returns when all calls have returned.
   * The job itself divides the work among the threads, so a late thread finds nothing to do.
   */
  void (*run)(void *user, arenite_job job, const void *argument);
  /**
   * Returns true if the calling thread should return from the job, because the system will soon interrupt the
   * thread; the other threads then do that thread's work. If this is null, no thread leaves early.
   */
  bool (*should_leave)(void *user);
} arenite_workers;

/**
 * Options for the memory of a session.
 */
typedef struct arenite_options {
  /**
   * Length of the context in positions; 0 for the model's trained context.
   */
  size_t context;
  /**
   * Maximum number of tokens per pass, at least 1. A larger batch is faster and needs more workspace.
   */
  size_t batch;
  /**
   * Type of the KV cache: a constant from ARENITE_KV_F32 to ARENITE_KV_Q8_0_Q4_0.
   */
  uint32_t kv;
  /**
   * Maximum number of open contexts, including the session's own; 0 means 1. A beam search needs one context more
   * than it has beams.
   */
  size_t contexts;
  /**
   * Number of pages (16 positions each) shared by all contexts; 0 for enough to fill every context.
   */
  size_t pages;
  /**
   * Threads that share the work. The session borrows them. Null for the calling thread only.
   */
  const struct arenite_workers *workers;
  /**
   * Name of an instruction set, terminated by a zero byte; null for the fastest.
   */
  const char *isa;
  /**
   * Number of checkpoints per context, for models with recurrent layers: see `arenite_context_checkpoint`.
   */
  size_t checkpoints;
  /**
   * Number of proposed tokens that `arenite_context_verify` may verify at once; 0 for none. Needs the crate feature
   * `drafts`.
   */
  size_t drafts;
  /**
   * True if the model's own layers propose tokens: see `arenite_context_draft`.
   */
  bool own_drafts;
} arenite_options;

/**
 * The exact memory that a model needs under given options; the same on every target.
 */
typedef struct arenite_plan {
  /**
   * Workspace in bytes.
   */
  size_t workspace;
  /**
   * KV cache in bytes.
   */
  size_t kv;
  /**
   * Tokenizer index in bytes; 0 if it is in the file.
   */
  size_t tokenizer;
  /**
   * Length of the context in positions.
   */
  size_t context;
} arenite_plan;

/**
 * A bias on the logit of a token; minus infinity forbids the token.
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
 * Sampling parameters. The steps run in llama.cpp's default order. `arenite_params_default` returns the defaults.
 */
typedef struct arenite_params {
  /**
   * Divisor of the logits; 0 selects the best token.
   */
  float temperature;
  /**
   * Top-k: number of best tokens kept; 0 keeps all.
   */
  uint32_t top_k;
  /**
   * Top-p: keeps the best tokens that together have this probability; 1 keeps all tokens.
   */
  float top_p;
  /**
   * Min-p: keeps tokens that are at least this many times as probable as the best token; 0 keeps all tokens.
   */
  float min_p;
  /**
   * Divides the positive logits of recent tokens, and multiplies their negative logits; 1 is off.
   */
  float repeat_penalty;
  /**
   * Value that is subtracted from a recent token's logit for each occurrence of the token; 0 is off.
   */
  float frequency_penalty;
  /**
   * Subtracted once from a recent token's logit; 0 is off.
   */
  float presence_penalty;
  /**
   * Number of recent tokens to penalize; 0 turns penalties off.
   */
  uint32_t repeat_last_n;
  /**
   * Logit biases, at most one per token; a sampler borrows them. Null for none.
   */
  const struct arenite_bias *bias;
  /**
   * Number of biases.
   */
  size_t bias_count;
  /**
   * Typical sampling, after top-k: keeps the tokens whose log-probability is nearest to the expected
   * log-probability, until the kept tokens together have this probability; 1 keeps all tokens.
   */
  float typical_p;
} arenite_params;

/**
 * Tokens to run in a context.
 */
typedef struct arenite_work {
  /**
   * The context that reads the tokens, or null for the session's own. A context may be given only once.
   */
  struct arenite_context *context;
  /**
   * The tokens; at least one.
   */
  const uint32_t *tokens;
  /**
   * Number of tokens.
   */
  size_t count;
} arenite_work;

/**
 * Parameters of a beam search. `arenite_search_default` returns the defaults.
 */
typedef struct arenite_search {
  /**
   * Number of beams; `arenite_options.contexts` must be at least one more.
   */
  size_t beams;
  /**
   * Maximum number of tokens in a result.
   */
  size_t length;
  /**
   * Exponent of the length penalty: the score of a result is the result's log-probability divided by its length to
   * this power. With 0 the length has no influence, with 1 the score is the mean per token.
   */
  float length_penalty;
} arenite_search;

/**
 * A message of a conversation.
 */
typedef struct arenite_message {
  /**
   * Author: ARENITE_ROLE_SYSTEM, ARENITE_ROLE_USER, ARENITE_ROLE_ASSISTANT or ARENITE_ROLE_TOOL.
   */
  uint32_t role;
  /**
   * Text in UTF-8.
   */
  const char *content;
  /**
   * Length of the text in bytes.
   */
  size_t len;
} arenite_message;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Writes the error message to `out`: one sentence, terminated by a zero byte and cut to `capacity` bytes. Returns the
 * length of the whole sentence, without the zero byte.
 */
size_t arenite_error_message(const struct arenite_error *error, char *out, size_t capacity);

/**
 * Returns the number of the error, or 0 without an error. The number is the same in all builds; it is for logs that
 * have no room for a message. The guide lists the numbers.
 */
uint32_t arenite_error_number(const struct arenite_error *error);

/**
 * Alignment in bytes that suffices for every object, workspace and KV cache.
 */
size_t arenite_align(void);

/**
 * Size of a model in bytes.
 */
size_t arenite_model_size(void);

/**
 * Size of a session in bytes, without workspace and KV cache.
 */
size_t arenite_session_size(void);

/**
 * Parses and checks the GGUF file of `len` bytes at `file`, and creates a model in `memory`. The file stays borrowed
 * and may have any alignment.
 */
enum arenite_status arenite_model_new(const uint8_t *file,
                                      size_t len,
                                      void *memory,
                                      size_t capacity,
                                      struct arenite_model **out,
                                      struct arenite_error *error);

/**
 * Size of the vocabulary, which is also the number of logits; 0 if `model` is null.
 */
size_t arenite_model_vocab(const struct arenite_model *model);

/**
 * Compares the data of all tensors with the hashes that `arenite pack` wrote. Calls `pause(user)` after each `step`
 * bytes and at the end of each tensor, unless `pause` is null, so that a program can feed a watchdog. Fails if a
 * tensor is damaged, or if the file has no hashes. A device verifies a model once, before it trusts it.
 */
enum arenite_status arenite_model_verify(const struct arenite_model *model,
                                         size_t step,
                                         void (*pause)(void *user),
                                         void *user,
                                         struct arenite_error *error);

/**
 * Returns the string under a metadata key, without a terminating zero, and stores the string's length in `len`.
 * Returns null if the key is missing or its value is not a string.
 */
const char *arenite_model_text(const struct arenite_model *model, const char *key, size_t *len);

/**
 * Writes the number under a metadata key to `out`; for a boolean, writes 1 or 0. Returns false if the key is missing,
 * or if its value is neither a number nor a boolean.
 */
bool arenite_model_number(const struct arenite_model *model, const char *key, double *out);

/**
 * Returns the default options: the model's trained context, 16 tokens per pass, an f16 cache, one context, one thread.
 */
struct arenite_options arenite_options_default(void);

/**
 * Computes the memory that the model needs. `options` may be null for the defaults.
 */
enum arenite_status arenite_model_plan(const struct arenite_model *model,
                                       const struct arenite_options *options,
                                       struct arenite_plan *out,
                                       struct arenite_error *error);

/**
 * Creates a session in `memory`. `workspace` and `kv` have at least the planned sizes and are aligned to
 * `arenite_align`; both stay borrowed, as does the model.
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
 * Appends `count` tokens to the context, runs them, and computes the logits of the last token.
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
 * Logits of the last token, one per token of the vocabulary, which may be modified. Returns null if `session` is null.
 */
float *arenite_session_logits(struct arenite_session *session);

/**
 * Number of tokens in the context; 0 if `session` is null.
 */
size_t arenite_session_position(const struct arenite_session *session);

/**
 * Removes all tokens from `position` on from the session's context. The logits do not change.
 */
enum arenite_status arenite_session_rewind(struct arenite_session *session,
                                           size_t position,
                                           struct arenite_error *error);

/**
 * Number of bytes that `arenite_session_save` would write now; 0 if `session` is null.
 */
size_t arenite_session_snapshot_size(const struct arenite_session *session);

/**
 * Writes a snapshot of the context and the logits to `out`. Stores the size of the snapshot in `written`, unless
 * `written` is null.
 */
enum arenite_status arenite_session_save(struct arenite_session *session,
                                         uint8_t *out,
                                         size_t capacity,
                                         size_t *written,
                                         struct arenite_error *error);

/**
 * Restores the context and the logits from a snapshot. On error the session is unchanged.
 */
enum arenite_status arenite_session_restore(struct arenite_session *session,
                                            const uint8_t *snapshot,
                                            size_t len,
                                            struct arenite_error *error);

/**
 * Size of a tokenizer in bytes.
 */
size_t arenite_tokenizer_size(void);

/**
 * Size of a decoder in bytes.
 */
size_t arenite_decoder_size(void);

/**
 * Size of a sampler in bytes, without its scratch memory.
 */
size_t arenite_sampler_size(void);

/**
 * Creates a tokenizer in `memory`. `index` has at least the planned size (0 if the file was packed) and stays
 * borrowed, as the model's file does.
 */
enum arenite_status arenite_tokenizer_new(const struct arenite_model *model,
                                          uint8_t *index,
                                          size_t index_len,
                                          void *memory,
                                          size_t capacity,
                                          struct arenite_tokenizer **out,
                                          struct arenite_error *error);

/**
 * Number of bytes of scratch memory that `arenite_tokenize` needs for any text of `text_len` bytes.
 */
size_t arenite_tokenize_scratch_size(size_t text_len);

/**
 * Writes the tokens of a text to `tokens`, and their number to `count`. `add_special` adds BOS and EOS if the model
 * requires them; `parse_special` parses control tokens in the text.
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
 * Writes the text of `count` tokens to `out`, without a zero byte, and the text's length to `len`. Control tokens are
 * omitted unless `show_special`.
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
 * True if generation ends with this token; false if `tokenizer` is null.
 */
bool arenite_is_end(const struct arenite_tokenizer *tokenizer, uint32_t token);

/**
 * Creates a decoder in `memory`: for the continuation of a prompt if `after_prompt` is true, else for a complete text.
 * The tokenizer stays borrowed.
 */
enum arenite_status arenite_decoder_new(const struct arenite_tokenizer *tokenizer,
                                        bool after_prompt,
                                        void *memory,
                                        size_t capacity,
                                        struct arenite_decoder **out,
                                        struct arenite_error *error);

/**
 * Decodes the next token: writes completed text to `out`, without a zero byte, and the text's length to `len`. A
 * character that is split between tokens is held back. If `out` is too small, the decoder is unchanged.
 */
enum arenite_status arenite_decoder_push(struct arenite_decoder *decoder,
                                         uint32_t token,
                                         char *out,
                                         size_t capacity,
                                         size_t *len,
                                         struct arenite_error *error);

/**
 * Ends a text: writes all bytes that the decoder still holds back to `out`, and their number to `len`. If `out` is too
 * small, the decoder is unchanged.
 */
enum arenite_status arenite_decoder_finish(struct arenite_decoder *decoder,
                                           char *out,
                                           size_t capacity,
                                           size_t *len,
                                           struct arenite_error *error);

/**
 * Returns llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties.
 */
struct arenite_params arenite_params_default(void);

/**
 * Number of bytes of scratch memory that a sampler needs for a vocabulary. `params` may be null for the defaults.
 */
size_t arenite_sampler_scratch_size(const struct arenite_params *params, size_t vocab);

/**
 * Creates a sampler in `memory`. `params` may be null for the defaults. A seed gives the same tokens on every target.
 * `scratch` stays borrowed.
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
 * Selects a token from `count` logits, after applying bias and penalties to these logits. Stores the selected token
 * for the penalties.
 */
enum arenite_status arenite_sampler_sample(struct arenite_sampler *sampler,
                                           float *logits,
                                           size_t count,
                                           uint32_t *token,
                                           struct arenite_error *error);

/**
 * Clears the stored tokens.
 */
void arenite_sampler_reset(struct arenite_sampler *sampler);

/**
 * Stores a token for the penalties, for example a token of the prompt.
 */
void arenite_sampler_accept(struct arenite_sampler *sampler, uint32_t token);

/**
 * Writes the name of one of this machine's instruction sets to `out`, terminated by a zero byte and cut to `capacity`
 * bytes. `number` selects the instruction set; 0 is the fastest. Returns the length of the name, or 0 if there is no
 * such instruction set.
 */
size_t arenite_isa(size_t number, char *out, size_t capacity);

#if defined(ARENITE_STD)
/**
 * Size of a pool in bytes.
 */
size_t arenite_pool_size(void);
#endif

#if defined(ARENITE_STD)
/**
 * Starts `count - 1` threads, and creates a pool in `memory`. The pool consists of these threads and the calling
 * thread. A pool is the only object that must be freed. Free it with `arenite_pool_free` after the last use of the
 * sessions that use the pool.
 */
enum arenite_status arenite_pool_new(size_t count,
                                     void *memory,
                                     size_t capacity,
                                     struct arenite_pool **out,
                                     struct arenite_error *error);
#endif

#if defined(ARENITE_STD)
/**
 * Returns the pool as workers for a session, or null if `pool` is null.
 */
const struct arenite_workers *arenite_pool_workers(const struct arenite_pool *pool);
#endif

#if defined(ARENITE_STD)
/**
 * Stops the threads of a pool.
 */
void arenite_pool_free(struct arenite_pool *pool);
#endif

/**
 * Size of a context in bytes.
 */
size_t arenite_context_size(void);

/**
 * Creates a new, empty context of a session in `memory`. The session's options limit the number of contexts.
 */
enum arenite_status arenite_context_new(struct arenite_session *session,
                                        void *memory,
                                        size_t capacity,
                                        struct arenite_context **out,
                                        struct arenite_error *error);

/**
 * Creates a copy of `context` in `memory`; the two contexts share cache memory until their tokens differ.
 */
enum arenite_status arenite_context_fork(struct arenite_session *session,
                                         const struct arenite_context *context,
                                         void *memory,
                                         size_t capacity,
                                         struct arenite_context **out,
                                         struct arenite_error *error);

/**
 * Closes a context and frees its cache memory; the object is then invalid. Does nothing for null.
 */
void arenite_context_close(struct arenite_session *session, struct arenite_context *context);

/**
 * Number of tokens that a context has read. If `context` is null, this is the session's own context.
 */
size_t arenite_context_position(const struct arenite_session *session, const struct arenite_context *context);

/**
 * Removes all tokens of a context from `position` on.
 */
enum arenite_status arenite_context_rewind(struct arenite_session *session,
                                           struct arenite_context *context,
                                           size_t position,
                                           struct arenite_error *error);

/**
 * Saves the recurrent states of a context, so that it can be rewound to its current position. At most
 * `arenite_options.checkpoints` saved states are kept: a further state replaces the oldest. Models without recurrent
 * layers do not need this call.
 */
enum arenite_status arenite_context_checkpoint(struct arenite_session *session,
                                               const struct arenite_context *context,
                                               struct arenite_error *error);

/**
 * The last position at or before `position` that a context can be rewound to; 0 if `session` is null.
 */
size_t arenite_context_nearest(struct arenite_session *session, const struct arenite_context *context, size_t position);

/**
 * Logits of the last token of a context, which may be modified. Returns null if `session` is null.
 */
float *arenite_context_logits(struct arenite_session *session, const struct arenite_context *context);

/**
 * Guesses the token after `token` with the model's own layers, planned by `arenite_options.own_drafts`. In the first
 * call, `token` was chosen after the last token of the context; in each further call, `token` is the previous guess.
 * `arenite_context_logits` then returns the logits of the guess. The context does not change: `arenite_context_verify`
 * reads the tokens.
 */
enum arenite_status arenite_context_draft(struct arenite_session *session,
                                          struct arenite_context *context,
                                          uint32_t token,
                                          struct arenite_error *error);

/**
 * Reads a chosen token and up to `arenite_options.drafts` proposed tokens, and computes the logits after each of them:
 * `arenite_context_logits_at` returns these logits. If a proposed token is not the token chosen from the logits before
 * it, remove it and all later tokens with `arenite_context_rewind`. This also works for models with recurrent layers.
 */
enum arenite_status arenite_context_verify(struct arenite_session *session,
                                           struct arenite_context *context,
                                           const uint32_t *tokens,
                                           size_t count,
                                           struct arenite_error *error);

/**
 * Logits of the token at `position` of a context, after `arenite_context_verify`. Returns null if there are no such
 * logits.
 */
const float *arenite_context_logits_at(struct arenite_session *session,
                                       const struct arenite_context *context,
                                       size_t position);

/**
 * Runs tokens of up to 64 contexts and reads every weight once for all of them. On error nothing was run.
 */
enum arenite_status arenite_session_run(struct arenite_session *session,
                                        const struct arenite_work *works,
                                        size_t count,
                                        struct arenite_error *error);

/**
 * Size of a pass in bytes.
 */
size_t arenite_pass_size(void);

/**
 * Creates a pass in `memory` that runs `count` tokens in a context, or in the session's own if `context` is null. Each
 * call of `arenite_pass_step` runs one step of the pass. Do not use the session, the context or the tokens until the
 * last step, or until you abandon the pass. On error nothing was run.
 */
enum arenite_status arenite_pass_new(struct arenite_session *session,
                                     struct arenite_context *context,
                                     const uint32_t *tokens,
                                     size_t count,
                                     void *memory,
                                     size_t capacity,
                                     struct arenite_pass **out,
                                     struct arenite_error *error);

/**
 * Runs one step. Returns true if more steps remain; false if `pass` is null.
 */
bool arenite_pass_step(struct arenite_pass *pass);

/**
 * Returns the default parameters: four beams, 128 tokens, length penalty 1.
 */
struct arenite_search arenite_search_default(void);

/**
 * Size of the results of a beam search in bytes, without scratch memory.
 */
size_t arenite_beams_size(void);

/**
 * Runs the encoder on `count` tokens. A decoder restarts and attends to this text from now on.
 */
enum arenite_status arenite_session_encode(struct arenite_session *session,
                                           const uint32_t *tokens,
                                           size_t count,
                                           struct arenite_error *error);

/**
 * Size of an encoding in bytes.
 */
size_t arenite_encoding_size(void);

/**
 * Creates an encoding in `memory`: like `arenite_session_encode`, in steps of one half of a layer for a batch of
 * tokens. The encoding runs until `arenite_encoding_step` returns false; then the caller may reuse `memory`. To stop
 * earlier, call `arenite_encoding_abandon`. Until then, use neither the session nor the tokens.
 */
enum arenite_status arenite_encoding_new(struct arenite_session *session,
                                         const uint32_t *tokens,
                                         size_t count,
                                         void *memory,
                                         size_t capacity,
                                         struct arenite_encoding **out,
                                         struct arenite_error *error);

/**
 * Runs the encoder's next step. Returns true if more steps remain. Returns false if there are none, or if `encoding`
 * is null.
 */
bool arenite_encoding_step(struct arenite_encoding *encoding);

/**
 * Abandons an encoding before its last step. The session then has no text. The encoding must not be used again. Does
 * nothing after the last step, or if `encoding` is null.
 */
void arenite_encoding_abandon(struct arenite_encoding *encoding);

/**
 * Returns the encoder's output for the last text, `[tokens][dim]`, and stores the number of floats in `count`. Returns
 * null if `session` is null.
 */
const float *arenite_session_states(const struct arenite_session *session, size_t *count);

/**
 * Computes the embedding of the last text from the states that the encoder has already computed. Stores the embedding
 * in `out` and its length in `len`. `capacity` is at least `arenite_session_vector_size`.
 */
enum arenite_status arenite_session_pooled(struct arenite_session *session,
                                           float *out,
                                           size_t capacity,
                                           size_t *len,
                                           struct arenite_error *error);

/**
 * Computes the embedding of `count` tokens with the model's pooling (by default the mean). Stores the embedding in
 * `out` and its length in `len`. `capacity` is at least `arenite_session_vector_size`.
 */
enum arenite_status arenite_session_embed(struct arenite_session *session,
                                          const uint32_t *tokens,
                                          size_t count,
                                          float *out,
                                          size_t capacity,
                                          size_t *len,
                                          struct arenite_error *error);

/**
 * Like `arenite_session_embed`, for a pair of texts; the second text starts at token `second`. A reranker computes the
 * score of a query and a document.
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
 * Reads a prompt of `count` tokens, and writes the probability of each of `answer_count` answers to `out`. An answer
 * is a token that may follow the prompt. The probabilities are the softmax of the answers' logits divided by
 * `temperature`. Stores the index of the most probable answer in `best`. The session restarts.
 */
enum arenite_status arenite_session_decide(struct arenite_session *session,
                                           const uint32_t *prompt,
                                           size_t count,
                                           const uint32_t *answers,
                                           size_t answer_count,
                                           float temperature,
                                           float *out,
                                           size_t capacity,
                                           size_t *best,
                                           struct arenite_error *error);

/**
 * Number of floats that `arenite_session_embed` needs in `out`; 0 if `session` is null.
 */
size_t arenite_session_vector_size(struct arenite_session *session);

/**
 * Number of bytes of scratch memory for a beam search; 0 if `session` is null.
 */
size_t arenite_beams_scratch_size(struct arenite_session *session);

/**
 * Searches for outputs for the text of the last `arenite_session_encode`, and creates an object with the results in
 * `memory`. `search` may be null for the defaults. `scratch` is aligned to `arenite_align` and stays borrowed.
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
 * Number of results; 0 if `beams` is null.
 */
size_t arenite_beams_count(const struct arenite_beams *beams);

/**
 * Returns the tokens of result `rank` (0 is the best), and stores their number in `count` and the result's score in
 * `score`. The tokens are valid until the next call with `beams`. Returns null if there is no such result.
 */
const uint32_t *arenite_beams_tokens(struct arenite_beams *beams, size_t rank, size_t *count, float *score);

/**
 * Number of bytes of scratch memory that the translation of a text of `text_len` bytes needs. 0 if `session` is null.
 */
size_t arenite_translate_scratch_size(struct arenite_session *session, size_t text_len);

/**
 * Translates a text (for most models one sentence): writes the best translation to `out`, without a zero byte, and the
 * translation's length to `len`. `search` may be null for the defaults. `scratch` is aligned to `arenite_align`.
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
 * Size of a constraint in bytes.
 */
size_t arenite_constraint_size(void);

/**
 * Creates a constraint in `memory`, for an answer that has no tokens yet. `table` is the output of `arenite grammar`
 * for a grammar or a JSON schema. The function checks the table, which stays borrowed.
 */
enum arenite_status arenite_constraint_new(const uint8_t *table,
                                           size_t len,
                                           void *memory,
                                           size_t capacity,
                                           struct arenite_constraint **out,
                                           struct arenite_error *error);

/**
 * True if the answer is complete and may end here; false if `constraint` is null.
 */
bool arenite_constraint_is_complete(const struct arenite_constraint *constraint);

/**
 * Like `arenite_sampler_sample`, but only chooses tokens that the constraint allows. Then advances the constraint by
 * the chosen token.
 */
enum arenite_status arenite_sampler_sample_where(struct arenite_sampler *sampler,
                                                 float *logits,
                                                 size_t count,
                                                 struct arenite_constraint *constraint,
                                                 const struct arenite_tokenizer *tokenizer,
                                                 uint32_t *token,
                                                 struct arenite_error *error);

/**
 * Renders a conversation of at most 64 messages and the request for an answer, and passes the prompt to `piece` in
 * parts. Tokenize each part separately. Parse control tokens only if the part comes from the format (`is_template`),
 * so that a message cannot contain control tokens.
 *
 * `format` is one of llama.cpp's names (such as "chatml"), or a template from a model's metadata
 * (`tokenizer.chat_template`), if it is well-known.
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
