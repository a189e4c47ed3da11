/* A story on ESP-IDF's console: the model in flash, 240 KiB of RAM. */
#include <stdio.h>
#include <string.h>

#include "arenite.h"
#include "freertos/FreeRTOS.h"
#include "freertos/task.h"

extern const uint8_t model_file[], model_file_end[];

/* All memory for the model. */
static _Alignas(64) uint8_t pool[240 * 1024];
static size_t used;

static void *take(size_t size) {
    size_t align = arenite_align(), start = (used + align - 1) / align * align;
    if (start + size > sizeof pool) return NULL; /* reported by the next call */
    used = start + size;
    return pool + start;
}

#define TRY(call) \
    do \
        if ((call) != ARENITE_STATUS_OK) return; \
    while (0)

static void tell(const char *prompt, arenite_error *error) {
    arenite_model *model;
    size_t size = arenite_model_size();
    TRY(arenite_model_new(model_file, (size_t)(model_file_end - model_file), take(size), size, &model, error));
    arenite_options options = arenite_options_default();
    options.context = 128;
    options.batch = 4;
    arenite_plan plan;
    TRY(arenite_model_plan(model, &options, &plan, error));

    arenite_tokenizer *tokenizer;
    size = arenite_tokenizer_size();
    TRY(arenite_tokenizer_new(model, take(plan.tokenizer), plan.tokenizer, take(size), size, &tokenizer, error));
    arenite_session *session;
    void *workspace = take(plan.workspace), *kv = take(plan.kv);
    size = arenite_session_size();
    TRY(arenite_session_new(model, &options, workspace, plan.workspace, kv, plan.kv, take(size), size, &session, error));

    uint32_t ids[32];
    size_t count, scratch = arenite_tokenize_scratch_size(strlen(prompt));
    TRY(arenite_tokenize(tokenizer, prompt, strlen(prompt), true, false, take(scratch), scratch, ids, 32, &count, error));
    TRY(arenite_session_prefill(session, ids, count, error));

    size_t vocab = arenite_model_vocab(model);
    arenite_params params = arenite_params_default();
    params.temperature = 0; /* greedy decoding: the same story as on the host */
    arenite_sampler *sampler;
    scratch = arenite_sampler_scratch_size(&params, vocab);
    size = arenite_sampler_size();
    TRY(arenite_sampler_new(&params, vocab, 0, take(scratch), scratch, take(size), size, &sampler, error));
    arenite_decoder *decoder;
    size = arenite_decoder_size();
    TRY(arenite_decoder_new(tokenizer, true, take(size), size, &decoder, error));

    fputs(prompt, stdout);
    for (int i = 0; i < 64; i++) {
        char text[64];
        size_t len;
        uint32_t token;
        TRY(arenite_sampler_sample(sampler, arenite_session_logits(session), vocab, &token, error));
        if (arenite_is_end(tokenizer, token)) break;
        TRY(arenite_decoder_push(decoder, token, text, sizeof text, &len, error));
        printf("%.*s", (int)len, text);
        fflush(stdout);
        TRY(arenite_session_decode(session, token, error));
        vTaskDelay(1); /* lets the idle task feed its watchdog */
    }
    puts("");
}

void app_main(void) {
    arenite_error error = {0};
    char message[160];
    tell("One day, a little fox", &error);
    arenite_error_message(&error, message, sizeof message);
    printf("%s; %u of %u bytes used\n", message, (unsigned)used, (unsigned)sizeof pool);
}
