/* How well a text answers a query, by a reranker that reads both: rerank MODEL.gguf QUERY TEXT */
#include <arenite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *memory(size_t size) { return aligned_alloc(arenite_align(), (size / arenite_align() + 1) * arenite_align()); }

#define NEW(object) memory(arenite_##object##_size()), arenite_##object##_size()
#define TRY(call) \
    if ((call) != ARENITE_STATUS_OK) return arenite_error_message(&error, text, sizeof text), fprintf(stderr, "%s\n", text), 1

int main(int count, char **arguments) {
    arenite_error error = {0};
    arenite_model *model;
    arenite_plan plan;
    arenite_tokenizer *tokenizer;
    arenite_session *session;
    char text[1000];
    uint32_t ids[1024];
    FILE *file = count == 4 ? fopen(arguments[1], "rb") : NULL;
    if (!file) return fprintf(stderr, "usage: rerank MODEL.gguf QUERY TEXT\n"), 2;
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = memory(size);
    if (fread(bytes, 1, size, file) != size) return fprintf(stderr, "%s cannot be read\n", arguments[1]), 1;

    TRY(arenite_model_new(bytes, size, NEW(model), &model, &error));
    arenite_options options = arenite_options_default();
    options.context = sizeof ids / sizeof *ids;
    TRY(arenite_model_plan(model, &options, &plan, &error));
    TRY(arenite_tokenizer_new(model, memory(plan.tokenizer), plan.tokenizer, NEW(tokenizer), &tokenizer, &error));
    TRY(arenite_session_new(model, &options, memory(plan.workspace), plan.workspace, memory(plan.kv), plan.kv, NEW(session), &session, &error));

    /* [CLS] query [SEP] text [SEP]: the second text without the token that a first one begins with. */
    size_t tokens = 0, second = 0;
    for (int i = 2; i < 4; i++) {
        size_t length = strlen(arguments[i]), scratch = arenite_tokenize_scratch_size(length), made;
        TRY(arenite_tokenize(tokenizer, arguments[i], length, true, false, memory(scratch), scratch, ids + tokens,
                           sizeof ids / sizeof *ids - tokens, &made, &error));
        if (i == 3) memmove(ids + tokens, ids + tokens + 1, --made * sizeof *ids);
        second = tokens;
        tokens += made;
    }
    size_t room = arenite_session_vector_size(session);
    float *score = memory(room * sizeof(float));
    TRY(arenite_session_embed_pair(session, ids, tokens, second, score, room, &size, &error));
    printf("%.4f\n", score[0]);
    return 0;
}
