/* Memory and messages of a program. Include it once, after defining POOL, the size of the memory in bytes. */
#include "arenite.h"
#include "platform.h"

/* All memory of the program. */
static _Alignas(64) uint8_t pool[POOL];
static size_t used;

static void *take(size_t size) {
    size_t align = arenite_align(), start = (used + align - 1) / align * align;
    if (start + size > sizeof pool) {
        put("the pool is too small\n");
        return NULL;
    }
    used = start + size;
    return pool + start;
}

static void put_number(size_t number) {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    put(digits + at);
}

/* Returns true if the status is OK. Otherwise prints the error. */
static bool ok(arenite_status status, const arenite_error *error) {
    char text[160];
    if (status == ARENITE_STATUS_OK) return true;
    arenite_error_message(error, text, sizeof text);
    put("status ");
    put_number(status);
    put(": ");
    put(text);
    put("\n");
    return false;
}

#define TRY(call) \
    do \
        if (!ok(call, &error)) return 1; \
    while (0)
