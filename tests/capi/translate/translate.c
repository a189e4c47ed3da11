/* Translates a sentence with four beams on two threads: translate MODEL.gguf "I love my mother." */
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
    arenite_pool *pool;
    arenite_plan plan;
    arenite_tokenizer *tokenizer;
    arenite_session *session;
    char text[1000];
    FILE *file = count == 3 ? fopen(arguments[1], "rb") : NULL;
    if (!file) return fprintf(stderr, "usage: translate MODEL.gguf TEXT\n"), 2;
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file), sentence = strlen(arguments[2]);
    rewind(file);
    uint8_t *bytes = memory(size);
    if (fread(bytes, 1, size, file) != size) return fprintf(stderr, "%s cannot be read\n", arguments[1]), 1;

    TRY(arenite_model_new(bytes, size, NEW(model), &model, &error));
    TRY(arenite_pool_new(2, NEW(pool), &pool, &error));
    arenite_search search = arenite_search_default();
    arenite_options options = arenite_options_default();
    options.contexts = search.beams + 1;
    options.workers = arenite_pool_workers(pool);
    TRY(arenite_model_plan(model, &options, &plan, &error));
    TRY(arenite_tokenizer_new(model, memory(plan.tokenizer), plan.tokenizer, NEW(tokenizer), &tokenizer, &error));
    TRY(arenite_session_new(model, &options, memory(plan.workspace), plan.workspace, memory(plan.kv), plan.kv, NEW(session), &session, &error));
    size_t scratch = arenite_translate_scratch_size(session, sentence);
    TRY(arenite_translate(session, tokenizer, &search, arguments[2], sentence, memory(scratch), scratch, text, sizeof text, &size, &error));
    printf("%.*s\n", (int)size, text);
    arenite_pool_free(pool);
    return 0;
}
