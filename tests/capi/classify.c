/* Names the fault in a log: some lines and an empty line in, a code out. The same program in Rust is tests/boards/decide. */
#define POOL (96 * 1024)
#include "common.h"

extern const uint8_t model_file[], model_file_end[];

/* Limits: context in tokens, bytes of a log. */
enum { CONTEXT = 80, LOG = 256, CODES = 12 };
/* The labels of the model, in the order of its file. */
static const char *const codes[CODES] = {"ok",       "overheat", "bearing", "blocked", "leak",    "dry",
                                         "overload", "supply",   "sensor",  "link",    "battery", "door"};

static arenite_session *session;
static arenite_tokenizer *tokenizer;
static void *scratch;
static float *scores;

static int open_model(void) {
    arenite_error error = {0};
    arenite_model *model;
    arenite_plan plan;
    arenite_options options = arenite_options_default();
    options.context = CONTEXT;
    options.batch = 1;
    options.kv = ARENITE_KV_F32;
    TRY(arenite_model_new(model_file, (size_t)(model_file_end - model_file), take(arenite_model_size()), arenite_model_size(),
                          &model, &error));
    TRY(arenite_model_plan(model, &options, &plan, &error));
    void *workspace = take(plan.workspace), *kv = take(plan.kv);
    TRY(arenite_session_new(model, &options, workspace, plan.workspace, kv, plan.kv, take(arenite_session_size()),
                            arenite_session_size(), &session, &error));
    /* The packed model contains the tokenizer's index, so no memory is needed for it. */
    TRY(arenite_tokenizer_new(model, NULL, 0, take(arenite_tokenizer_size()), arenite_tokenizer_size(), &tokenizer, &error));
    scratch = take(arenite_tokenize_scratch_size(LOG));
    scores = take(arenite_session_vector_size(session) * sizeof *scores);
    return scratch && scores ? 0 : 1;
}

/* Prints the code with the highest score. The softmax of the scores is their probabilities. */
static int answer(const char *log, size_t len) {
    arenite_error error = {0};
    uint32_t tokens[CONTEXT];
    size_t count, classes, best = 0;
    /* parse_special is false: text from outside cannot contain control tokens. */
    TRY(arenite_tokenize(tokenizer, log, len, true, false, scratch, arenite_tokenize_scratch_size(LOG), tokens, CONTEXT, &count,
                         &error));
    TRY(arenite_session_embed(session, tokens, count, scores, arenite_session_vector_size(session), &classes, &error));
    for (size_t i = 1; i < classes; i++)
        if (scores[i] > scores[best]) best = i;
    put(classes == CODES ? codes[best] : "the model has other classes");
    put("\n");
    return 0;
}

int classify(void) {
    if (open_model()) return 1;
    static char log[LOG];
    size_t len = 0;
    for (int byte; (byte = get()) >= 0;) {
        const bool ends = byte == '\n' && (len == 0 || log[len - 1] == '\n');
        /* The rest of a log that is too long is dropped. `answer` prints errors, and the next log is read in any case. */
        if (!ends && len < LOG) log[len++] = (char)byte;
        if (ends && len) (void)answer(log, len);
        if (ends) len = 0;
    }
    return 0;
}
