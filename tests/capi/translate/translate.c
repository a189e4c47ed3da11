/* Translates a sentence with four beams on two threads: translate MODEL.gguf "I love my mother." */
#include <arenite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY(size) aligned_alloc(arenite_align(), ((size) / arenite_align() + 1) * arenite_align()), size
#define NEW(object) MEMORY(arenite_##object##_size()), &object, &error
#define TRY(call) if ((call) != ARENITE_STATUS_OK) return arenite_error_message(&error, text, sizeof text), fprintf(stderr, "%s\n", text), 1

int main(int count, char **arguments) {
    static _Alignas(64) uint8_t file[16 << 20];
    char text[1000]; arenite_error error;
    arenite_model *model; arenite_pool *pool; arenite_plan plan; arenite_tokenizer *tokenizer; arenite_session *session;
    if (count != 3) return fprintf(stderr, "usage: translate MODEL.gguf TEXT\n"), 2;
    FILE *stream = fopen(arguments[1], "rb");
    size_t size = stream ? fread(file, 1, sizeof file, stream) : 0, sentence = strlen(arguments[2]);
    if (!size || size == sizeof file) return fprintf(stderr, "%s is no file below 16 MiB\n", arguments[1]), 1;
    arenite_search search = arenite_search_default(); /* four beams */
    arenite_options options = arenite_options_default();
    TRY(arenite_model_new(file, size, NEW(model)));
    TRY(arenite_pool_new(2, NEW(pool)));
    options.contexts = search.beams + 1, options.workers = arenite_pool_workers(pool);
    TRY(arenite_model_plan(model, &options, &plan, &error));
    TRY(arenite_tokenizer_new(model, MEMORY(plan.tokenizer), NEW(tokenizer)));
    TRY(arenite_session_new(model, &options, MEMORY(plan.workspace), MEMORY(plan.kv), NEW(session)));
    size_t scratch = arenite_translate_scratch_size(session, sentence);
    TRY(arenite_translate(session, tokenizer, &search, arguments[2], sentence, MEMORY(scratch), text, sizeof text, &size, &error));
    return printf("%.*s\n", (int)size, text), arenite_pool_free(pool), 0;
}
