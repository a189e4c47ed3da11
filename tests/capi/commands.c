/* Turns commands in English, German and Hindi into calls: a line in, a JSON call out. The same program in Rust is
 * tests/boards/commands. A pass runs in steps of one layer, and the watchdog is fed in between. */
#define POOL (80 * 1024)
#include "common.h"

extern const uint8_t model_file[], model_file_end[], calls[], calls_end[];

/* Limits: context in tokens, bytes of a command, tokens of a call, bytes of a call. */
enum { CONTEXT = 96, LINE = 256, TOKENS = 32, CALL = 96 };
/* Drops the part of a line that was received: Ctrl-X. There is no time limit for a line. */
enum { CANCEL = 24 };

/* Objects and memory for all commands: `pass`, `constraint` and `decoder` are created again in the same memory for each
 * command. */
static struct {
    arenite_session *session;
    arenite_tokenizer *tokenizer;
    arenite_sampler *sampler;
    size_t vocab, scratch_size;
    void *scratch, *pass, *constraint, *decoder;
} state;

static int open_model(void) {
    arenite_error error = {0};
    arenite_model *model;
    arenite_plan plan;
    arenite_options options = arenite_options_default();
    options.context = CONTEXT;
    options.batch = 8;
    TRY(arenite_model_new(model_file, (size_t)(model_file_end - model_file), take(arenite_model_size()), arenite_model_size(),
                          &model, &error));
    TRY(arenite_model_plan(model, &options, &plan, &error));
    void *workspace = take(plan.workspace), *kv = take(plan.kv);
    TRY(arenite_session_new(model, &options, workspace, plan.workspace, kv, plan.kv, take(arenite_session_size()),
                            arenite_session_size(), &state.session, &error));
    /* The packed model contains the tokenizer's index, so no memory is needed for it. */
    TRY(arenite_tokenizer_new(model, NULL, 0, take(arenite_tokenizer_size()), arenite_tokenizer_size(), &state.tokenizer, &error));

    arenite_params params = arenite_params_default();
    params.temperature = 0; /* the most probable call */
    state.vocab = arenite_model_vocab(model);
    size_t size = arenite_sampler_scratch_size(&params, state.vocab);
    TRY(arenite_sampler_new(&params, state.vocab, 0, take(size), size, take(arenite_sampler_size()), arenite_sampler_size(),
                            &state.sampler, &error));
    state.scratch_size = arenite_tokenize_scratch_size(LINE);
    state.scratch = take(state.scratch_size);
    state.pass = take(arenite_pass_size());
    state.constraint = take(arenite_constraint_size());
    state.decoder = take(arenite_decoder_size());
    return state.scratch && state.pass && state.constraint && state.decoder ? 0 : 1;
}

static int run(const uint32_t *tokens, size_t count) {
    arenite_error error = {0};
    arenite_pass *pass;
    TRY(arenite_pass_new(state.session, NULL, tokens, count, state.pass, arenite_pass_size(), &pass, &error));
    while (arenite_pass_step(pass)) feed();
    return 0;
}

/* Answers a command that ends with a line feed. */
static int answer(const char *command, size_t len) {
    arenite_error error = {0};
    arenite_constraint *constraint;
    arenite_decoder *decoder;
    uint32_t tokens[CONTEXT];
    char call[CALL];
    size_t count, call_len = 0, more;
    /* parse_special is false: text of a user cannot contain control tokens. */
    TRY(arenite_tokenize(state.tokenizer, command, len, true, false, state.scratch, state.scratch_size, tokens, CONTEXT, &count,
                         &error));
    TRY(arenite_session_rewind(state.session, 0, &error));
    if (run(tokens, count)) return 1;
    TRY(arenite_constraint_new(calls, (size_t)(calls_end - calls), state.constraint, arenite_constraint_size(), &constraint, &error));
    TRY(arenite_decoder_new(state.tokenizer, false, state.decoder, arenite_decoder_size(), &decoder, &error));
    for (int made = 0; made < TOKENS && !arenite_constraint_is_complete(constraint); made++) {
        uint32_t token;
        if (made && run(tokens, 1)) return 1;
        TRY(arenite_sampler_sample_where(state.sampler, arenite_session_logits(state.session), state.vocab, constraint,
                                         state.tokenizer, &token, &error));
        TRY(arenite_decoder_push(decoder, token, call + call_len, sizeof call - 2 - call_len, &more, &error));
        call_len += more;
        tokens[0] = token;
    }
    TRY(arenite_decoder_finish(decoder, call + call_len, sizeof call - 2 - call_len, &more, &error));
    call[call_len + more] = '\n';
    call[call_len + more + 1] = 0;
    put(call);
    return 0;
}

int commands(void) {
    if (open_model()) return 1;
    static char line[LINE];
    for (;;) {
        size_t len = 0;
        int byte;
        while ((byte = get()) >= 0 && byte != '\n' && byte != '\r') {
            if (byte == CANCEL) len = 0;
            /* The rest of a line that is too long is dropped. */
            else if (len < LINE - 1) line[len++] = (char)byte;
        }
        if (byte < 0) return 0;
        line[len++] = '\n';
        /* `answer` prints errors. The next command is read in any case. */
        if (len > 1) (void)answer(line, len);
    }
}
