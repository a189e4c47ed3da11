/* Runs a model from C: reads it in place from flash, and generates text in memory of a fixed size. The text is the same
 * on the host and on a board. Also tests that wrong calls return errors. */
#define POOL (1024 * 1024)
#include "common.h"

extern const uint8_t model_file[], model_file_end[];

enum { PROMPT = 32, ANSWER = 64 };
static const char prompt[] = "One day, a little fox";

/* Generates `ANSWER` tokens and stores their ids in `ids`. */
static int tell(arenite_session *session, arenite_sampler *sampler, arenite_tokenizer *tokenizer,
                arenite_decoder *decoder, size_t vocab, uint32_t *ids) {
    arenite_error error = {0};
    for (int i = 0; i < ANSWER; i++) {
        char text[64];
        size_t len;
        TRY(arenite_sampler_sample(sampler, arenite_session_logits(session), vocab, &ids[i], &error));
        if (arenite_is_end(tokenizer, ids[i])) break;
        TRY(arenite_decoder_push(decoder, ids[i], text, sizeof text - 1, &len, &error));
        text[len] = 0;
        put(text);
        TRY(arenite_session_decode(session, ids[i], &error));
        feed();
    }
    put("\n");
    return 0;
}

/* Runs a prompt in steps of one layer, and feeds the watchdog in between. */
static int prefill(arenite_session *session, const uint32_t *ids, size_t count) {
    arenite_error error = {0};
    arenite_pass *pass;
    size_t steps = 0;
    TRY(arenite_pass_new(session, NULL, ids, count, take(arenite_pass_size()), arenite_pass_size(), &pass, &error));
    while (arenite_pass_step(pass)) {
        feed();
        steps++;
    }
    return steps > 1 && !arenite_pass_step(pass) && !arenite_pass_step(NULL) ? 0 : 1;
}

/* "Threads" that run one after the other: every call of a job takes the remaining work. */
static void run_twice(void *user, arenite_job job, const void *argument) {
    ++*(size_t *)user;
    job(argument);
    job(argument);
}

/* Tests two conversations with a common prefix in one session, workers, a token's bias, the smallest instruction set,
 * and the metadata of the file. */
static int two(arenite_model *model, const uint32_t *ids, size_t count, size_t vocab) {
    arenite_error error = {0};
    arenite_session *session;
    arenite_context *fork;
    arenite_plan plan;
    size_t jobs = 0;
    arenite_workers workers = {2, &jobs, run_twice, NULL};
    arenite_options options = arenite_options_default();
    options.context = 64;
    options.contexts = 2;
    options.workers = &workers;
    options.isa = "scalar";
    TRY(arenite_model_plan(model, &options, &plan, &error));
    TRY(arenite_session_new(model, &options, take(plan.workspace), plan.workspace, take(plan.kv), plan.kv,
                            take(arenite_session_size()), arenite_session_size(), &session, &error));
    TRY(arenite_session_prefill(session, ids, count, &error));
    TRY(arenite_context_fork(session, NULL, take(arenite_context_size()), arenite_context_size(), &fork, &error));
    arenite_work works[2] = {{NULL, ids, 2}, {fork, ids, 1}};
    TRY(arenite_session_run(session, works, 2, &error));
    if (arenite_session_position(session) != count + 2 || arenite_context_position(session, fork) != count + 1) return 1;
    /* Both contexts have the same tokens, so the logits are equal. */
    works[0] = (arenite_work){NULL, ids + 2, 1};
    works[1] = (arenite_work){fork, ids + 1, 2};
    TRY(arenite_session_run(session, works, 2, &error));
    const float *logits = arenite_session_logits(session), *forked = arenite_context_logits(session, fork);
    if (!logits || !forked) return 1;
    for (size_t i = 0; i < vocab; i++)
        if (logits[i] != forked[i]) return 1;
    if (!jobs) return 1;

    /* A forbidden token is not chosen; without the bias it is the most probable one. */
    uint32_t best, other;
    arenite_params params = arenite_params_default();
    params.temperature = 0;
    size_t scratch = arenite_sampler_scratch_size(&params, vocab);
    arenite_sampler *sampler;
    void *memory = take(arenite_sampler_size()), *words = take(scratch);
    TRY(arenite_sampler_new(&params, vocab, 0, words, scratch, memory, arenite_sampler_size(), &sampler, &error));
    TRY(arenite_sampler_sample(sampler, arenite_context_logits(session, fork), vocab, &best, &error));
    arenite_bias bias = {best, -1e30f};
    params.bias = &bias;
    params.bias_count = 1;
    TRY(arenite_sampler_new(&params, vocab, 0, words, scratch, memory, arenite_sampler_size(), &sampler, &error));
    TRY(arenite_sampler_sample(sampler, arenite_context_logits(session, fork), vocab, &other, &error));
    if (best == other) return 1;

    size_t len;
    double layers;
    const char *text = arenite_model_text(model, "general.architecture", &len);
    if (!text || len != 5 || text[0] != 'l' || arenite_model_text(model, "llama.block_count", &len) || len) return 1;
    if (!arenite_model_number(model, "llama.block_count", &layers) || layers < 1) return 1;

    /* Wrong calls must only return an error. */
    works[0] = works[1];
    bias.token = (uint32_t)vocab;
    int wrong = !ok(arenite_session_run(session, works, 2, &error), &error);
    wrong += !ok(arenite_session_encode(session, ids, count, &error), &error);
    wrong += !ok(arenite_sampler_new(&params, vocab, 0, words, scratch, memory, arenite_sampler_size(), &sampler, &error), &error);
    options.isa = "none";
    memory = take(arenite_session_size());
    wrong += !ok(arenite_session_new(model, &options, take(plan.workspace), plan.workspace, take(plan.kv), plan.kv, memory,
                                     arenite_session_size(), &session, &error), &error);
    return wrong == 4 ? 0 : 1;
}

/* Output of `arenite grammar` for: root ::= "Yes" | "No" */
static const uint32_t yes_or_no[] = {
    0x01677261, 0x13,       4,          0,          0x80004000, 0x26800000, 0x27000009, 0x2c000000, 0x2c80000c, 0x80002000,
    0x37000000, 0x3780000f, 0x80002000, 0x32000000, 0x32800010, 0xc0000000, 0x80002000, 0x39000000, 0x3980000f,
};

/* Prints a piece of a prompt. A piece of the chat template is in brackets. */
static void piece(void *user, const char *text, size_t len, bool is_template) {
    ++*(size_t *)user;
    put(is_template ? "[" : "");
    for (size_t i = 0; i < len; i++) put((char[]){text[i] == '\n' ? '/' : text[i], 0});
    put(is_template ? "]" : "");
}

/* Tests a chat prompt, an answer constrained to Yes or No, and rewinding. */
static int answer(arenite_session *session, const arenite_tokenizer *tokenizer, size_t vocab) {
    arenite_error error = {0};
    arenite_message messages[2] = {{ARENITE_ROLE_SYSTEM, "Be brief.", 9}, {ARENITE_ROLE_USER, "Shall we?", 9}};
    size_t pieces = 0, len, text_len = 0, scratch = arenite_sampler_scratch_size(NULL, vocab);
    TRY(arenite_chat("chatml", 6, messages, 2, piece, &pieces, &error));
    put("\n");
    if (arenite_chat("chatml", 6, messages, 2, NULL, &pieces, NULL) != ARENITE_STATUS_ARGUMENT || pieces < 5) return 1;

    arenite_constraint *constraint;
    arenite_sampler *sampler;
    arenite_decoder *decoder;
    char text[16];
    TRY(arenite_constraint_new((const uint8_t *)yes_or_no, sizeof yes_or_no, take(arenite_constraint_size()),
                               arenite_constraint_size(), &constraint, &error));
    TRY(arenite_sampler_new(NULL, vocab, 3, take(scratch), scratch, take(arenite_sampler_size()), arenite_sampler_size(),
                            &sampler, &error));
    TRY(arenite_decoder_new(tokenizer, true, take(arenite_decoder_size()), arenite_decoder_size(), &decoder, &error));
    size_t start = arenite_session_position(session);
    TRY(arenite_context_checkpoint(session, NULL, &error));
    while (!arenite_constraint_is_complete(constraint)) {
        uint32_t token;
        TRY(arenite_sampler_sample_where(sampler, arenite_session_logits(session), vocab, constraint, tokenizer, &token, &error));
        TRY(arenite_decoder_push(decoder, token, text + text_len, sizeof text - 1 - text_len, &len, &error));
        text_len += len;
        TRY(arenite_session_decode(session, token, &error));
    }
    TRY(arenite_decoder_finish(decoder, text + text_len, sizeof text - 1 - text_len, &len, &error));
    text[text_len + len] = 0;
    put(text);
    put("\n");
    arenite_sampler_reset(sampler);
    if (arenite_context_nearest(session, NULL, start) != start) return 1;
    TRY(arenite_session_rewind(session, start, &error));
    return text[0] == 'Y' || text[0] == 'N' ? 0 : 1;
}

int story(void) {
    arenite_error error = {0};
    size_t file_size = (size_t)(model_file_end - model_file);

    arenite_model *model;
    TRY(arenite_model_new(model_file, file_size, take(arenite_model_size()), arenite_model_size(), &model, &error));
    size_t vocab = arenite_model_vocab(model);

    arenite_options options = arenite_options_default();
    options.context = 256;
    options.batch = 8;
    arenite_plan plan;
    TRY(arenite_model_plan(model, &options, &plan, &error));

    arenite_tokenizer *tokenizer;
    TRY(arenite_tokenizer_new(model, take(plan.tokenizer), plan.tokenizer, take(arenite_tokenizer_size()),
                              arenite_tokenizer_size(), &tokenizer, &error));

    uint8_t *workspace = take(plan.workspace), *kv = take(plan.kv);
    void *memory = take(arenite_session_size());
    arenite_session *session;
    TRY(arenite_session_new(model, &options, workspace, plan.workspace, kv, plan.kv, memory, arenite_session_size(),
                            &session, &error));

    uint32_t ids[PROMPT];
    size_t count, scratch = arenite_tokenize_scratch_size(sizeof prompt - 1);
    TRY(arenite_tokenize(tokenizer, prompt, sizeof prompt - 1, true, false, take(scratch), scratch, ids, PROMPT, &count,
                         &error));
    if (prefill(session, ids, count)) {
        put("the steps went wrong\n");
        return 1;
    }

    /* A snapshot of the session after the prompt. */
    size_t snapshot_size = arenite_session_snapshot_size(session), written;
    uint8_t *snapshot = take(snapshot_size);
    TRY(arenite_session_save(session, snapshot, snapshot_size, &written, &error));

    arenite_params params = arenite_params_default();
    params.temperature = 0;
    arenite_sampler *greedy, *random;
    arenite_decoder *decoder;
    scratch = arenite_sampler_scratch_size(&params, vocab);
    TRY(arenite_sampler_new(&params, vocab, 0, take(scratch), scratch, take(arenite_sampler_size()),
                            arenite_sampler_size(), &greedy, &error));
    scratch = arenite_sampler_scratch_size(NULL, vocab);
    TRY(arenite_sampler_new(NULL, vocab, 17, take(scratch), scratch, take(arenite_sampler_size()),
                            arenite_sampler_size(), &random, &error));
    memory = take(arenite_decoder_size());

    /* Tells three stories from the snapshot: two by greedy decoding, which must be equal, and a random one. */
    static uint32_t told[3][ANSWER];
    arenite_sampler *samplers[3] = {greedy, greedy, random};
    for (int i = 0; i < 3; i++) {
        put(prompt);
        TRY(arenite_session_restore(session, snapshot, written, &error));
        TRY(arenite_decoder_new(tokenizer, true, memory, arenite_decoder_size(), &decoder, &error));
        if (tell(session, samplers[i], tokenizer, decoder, vocab, told[i])) return 1;
    }
    for (int i = 0; i < ANSWER; i++)
        if (told[0][i] != told[1][i]) {
            put("the snapshot gave other tokens\n");
            return 1;
        }
    char text[64];
    size_t len;
    TRY(arenite_detokenize(tokenizer, ids, count, false, text, sizeof text - 1, &len, &error));
    text[len] = 0;
    put(text);
    put("\n");
    put_number(plan.workspace);
    put(" and ");
    put_number(plan.kv);
    put(" bytes planned, ");
    put_number(written);
    put(" saved, at position ");
    put_number(arenite_session_position(session));
    put("\n");

    TRY(arenite_session_restore(session, snapshot, written, &error));
    if (answer(session, tokenizer, vocab)) {
        put("the answer went wrong\n");
        return 1;
    }
    if (two(model, ids, count, vocab)) {
        put("two conversations went wrong\n");
        return 1;
    }

    if (arenite_model_verify(NULL, 4096, NULL, NULL, &error) != ARENITE_STATUS_ARGUMENT || !arenite_error_number(&error)) return 1;

    /* All following calls are wrong and must only return an error. */
    arenite_session *none;
    void *spare = take(arenite_session_size());
    size_t size = arenite_session_size();
    int wrong = 0;
    snapshot[written - 1] ^= 1;
    wrong += !ok(arenite_session_restore(session, snapshot, written, &error), &error);
    wrong += !ok(arenite_session_restore(session, snapshot, 20, &error), &error);
    wrong += !ok(arenite_session_decode(session, (uint32_t)vocab, &error), &error);
    wrong += !ok(arenite_session_rewind(session, 300, &error), &error);
    wrong += !ok(arenite_session_prefill(session, NULL, 5, &error), &error);
    wrong += !ok(arenite_session_prefill(NULL, ids, count, &error), &error);
    arenite_pass *no_pass;
    wrong += !ok(arenite_pass_new(session, NULL, ids, 0, spare, arenite_pass_size(), &no_pass, &error), &error);
    wrong += !ok(arenite_session_save(session, snapshot, 10, &written, &error), &error);
    wrong += !ok(arenite_sampler_sample(greedy, arenite_session_logits(session), vocab - 1, ids, &error), &error);
    wrong += !ok(arenite_tokenize(tokenizer, prompt, sizeof prompt - 1, true, false, NULL, 0, ids, PROMPT, &count, &error),
                 &error);
    wrong += !ok(arenite_session_new(model, &options, workspace, plan.workspace - 1, kv, plan.kv, spare, size, &none, &error),
                 &error);
    wrong += !ok(arenite_session_new(model, &options, workspace, plan.workspace, kv + 1, plan.kv, spare, size, &none, &error),
                 &error);
    wrong += !ok(arenite_session_new(NULL, &options, workspace, plan.workspace, kv, plan.kv, spare, size, &none, &error),
                 &error);
    options.kv = 7;
    wrong += !ok(arenite_model_plan(model, &options, &plan, &error), &error);
    wrong += !ok(arenite_model_new(model_file, 100, spare, arenite_model_size(), &model, &error), &error);
    wrong += !ok(arenite_model_new(NULL, 100, spare, arenite_model_size(), &model, &error), &error);
    wrong += !ok(arenite_model_new((const uint8_t *)prompt, 10, spare, arenite_model_size(), &model, NULL), NULL);
    if (wrong != 17 || none || model || no_pass) {
        put("something wrong was taken\n");
        return 1;
    }
    /* A message is truncated to its buffer; the full length is returned. */
    len = arenite_error_message(&error, text, 9);
    put(text);
    put("... ");
    put_number(len);
    put("\n");
    return 0;
}
