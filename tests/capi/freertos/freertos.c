/* Turns commands into calls in a task of FreeRTOS. A task of higher priority blinks an LED, and feeds the watchdog while the
 * model makes progress or waits for a command. All memory is static. */
#include "FreeRTOS.h"
#include "stream_buffer.h"
#include "task.h"

#include "../platform.h"

#include <stdbool.h>

/* Time between two changes of the LED, and maximum time for a layer of the model, in ticks. */
enum { BLINK = pdMS_TO_TICKS(50), LIMIT = pdMS_TO_TICKS(1000) };
/* Stack sizes in words. The model needs at most 10.5 KB. */
enum { ASSISTANT_STACK = 4096, LIGHT_STACK = 256 };

/* Registers of the board MPS2 AN386. Replace them by those of your chip. */
static volatile uint32_t *const watchdog = (volatile uint32_t *)0x40008000;
static volatile uint32_t *const uart = (volatile uint32_t *)0x40004000;
static volatile uint32_t *const leds = (volatile uint32_t *)0x40028000;
static volatile uint32_t *const cycles = (volatile uint32_t *)0x40028018;
static volatile uint8_t *const priorities = (volatile uint8_t *)0xE000E400;
static volatile uint32_t *const enable_interrupts = (volatile uint32_t *)0xE000E100;
static volatile uint32_t *const pend_interrupts = (volatile uint32_t *)0xE000E200;

/* Tick of the latest progress of the model, and whether the model's task waits for a command. */
static volatile TickType_t alive;
static volatile bool is_waiting;
/* Number of changes of the LED, and the maximum delay of a change in cycles. */
static volatile uint32_t changes, latest;

static StreamBufferHandle_t received;

/* Called after each layer of the model. */
void feed(void) {
#ifdef STARVE
    for (;;) {} /* the model hangs */
#endif
    alive = xTaskGetTickCount();
}

/* Handles the interrupt for received bytes: moves them into the stream buffer. If the buffer is full, the byte stays in the UART
 * until `get` has made room and pends the interrupt again. */
void on_uart0(void) {
    BaseType_t is_woken = pdFALSE;
    uart[3] = 2; /* clears the interrupt */
    while ((uart[1] & 2) && xStreamBufferSpacesAvailable(received)) {
        const uint8_t byte = (uint8_t)uart[0];
        (void)xStreamBufferSendFromISR(received, &byte, 1, &is_woken);
    }
    portYIELD_FROM_ISR(is_woken);
}

/* Waits for a byte without using the processor. */
int get(void) {
    uint8_t byte;
    is_waiting = true;
    while (!xStreamBufferReceive(received, &byte, 1, portMAX_DELAY)) {}
    pend_interrupts[0] = 1;
    alive = xTaskGetTickCount();
    is_waiting = false;
    return byte == 4 ? -1 : byte; /* Ctrl-D */
}

static void light(void *unused) {
    (void)unused;
    TickType_t next = xTaskGetTickCount();
    uint32_t due = *cycles;
    for (;;) {
        (void)xTaskDelayUntil(&next, BLINK);
        leds[0] ^= 1;
        /* The time of the first change is the reference for the others. */
        if (changes++) {
            due += BLINK * (configCPU_CLOCK_HZ / configTICK_RATE_HZ);
            const uint32_t late = *cycles - due;
            if ((int32_t)late > (int32_t)latest) latest = late;
        } else {
            due = *cycles;
        }
        if (is_waiting || xTaskGetTickCount() - alive < LIMIT) watchdog[3] = 1;
    }
}

static void put_number(const char *before, uint32_t number, const char *after) {
    char digits[12];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    put(before);
    put(digits + at);
    put(after);
}

static void assistant(void *unused) {
    (void)unused;
    const uint32_t start = *cycles, before = changes;
    const TickType_t first = xTaskGetTickCount();
    const int status = commands();
    const uint32_t per_tick = configCPU_CLOCK_HZ / configTICK_RATE_HZ;
    const uint32_t elapsed = *cycles - start, ticks = xTaskGetTickCount() - first;
    put_number("# blinked ", changes - before, "");
    put_number(" times of ", elapsed / (BLINK * per_tick), "");
    put_number(", at most ", (latest + 24) / 25, " us late; ");
    put_number("", ticks, "");
    put_number(" ticks of ", elapsed / per_tick, "");
    put_number("; ", (ASSISTANT_STACK - uxTaskGetStackHighWaterMark(NULL)) * 4, " bytes of stack\n");
    quit(status);
}

int freertos(void) {
    static StaticTask_t tasks[2];
    static StackType_t assistant_stack[ASSISTANT_STACK], light_stack[LIGHT_STACK];
    static StaticStreamBuffer_t buffer;
    static uint8_t bytes[256 + 1];
    received = xStreamBufferCreateStatic(sizeof bytes, 1, bytes, &buffer);
    (void)xTaskCreateStatic(assistant, "model", ASSISTANT_STACK, NULL, 1, assistant_stack, &tasks[0]);
    (void)xTaskCreateStatic(light, "light", LIGHT_STACK, NULL, 2, light_stack, &tasks[1]);
    priorities[0] = configMAX_SYSCALL_INTERRUPT_PRIORITY;
#ifdef EARLY_BYTE
    while (!(uart[1] & 2)) watchdog[3] = 1; /* a byte arrives before the interrupt is enabled */
#endif
    uart[2] |= 8; /* interrupt for received bytes */
    enable_interrupts[0] = 1;
    pend_interrupts[0] = 1; /* a byte that arrived earlier has caused no interrupt */
    vTaskStartScheduler();
    return 1;
}

void vApplicationStackOverflowHook(TaskHandle_t task, char *name) {
    (void)task;
    put("stack overflow: ");
    put(name);
    put("\n");
    quit(3);
}

void failed_assertion(const char *file, int line) {
    put(file);
    put_number(":", (uint32_t)line, ": an assertion failed\n");
    quit(3);
}
