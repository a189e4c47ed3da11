/* Startup code, semihosting output, UART input and watchdog of Arm's board MPS2 AN386, a Cortex-M4F, without a C library. */
#include "platform.h"

#include <stdint.h>

/* Default definitions, which a program may replace. */
#define WEAK __attribute__((weak))

static int semihosting(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static int console;

WEAK void put(const char *text) {
    uint32_t len = 0;
    while (text[len]) len++;
    const uint32_t block[3] = {(uint32_t)console, (uint32_t)text, len};
    semihosting(0x05, block); /* SYS_WRITE */
}

extern uint32_t stack_top, data_start, data_end, data_in_flash, bss_start, bss_end;

void quit(int status) {
    const uint32_t block[2] = {0x20026, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
    semihosting(0x20, block);                              /* SYS_EXIT_EXTENDED */
    for (;;) {}
}

/* The board's watchdog counts down at 25 MHz. At zero it interrupts the program, and the count restarts; at the second zero it
 * resets the board. The program starts it if WATCHDOG, its time in seconds, is defined. If STARVE is defined, nothing feeds it. */
static volatile uint32_t *const watchdog = (volatile uint32_t *)0x40008000;
static volatile uint32_t *const uart = (volatile uint32_t *)0x40004000;

WEAK void feed(void) {
#ifndef STARVE
    watchdog[3] = 1; /* clears the interrupt and restarts the count */
#endif
}

WEAK int get(void) {
    while (!(uart[1] & 2)) feed();
    const uint32_t byte = uart[0];
    return byte == 4 ? -1 : (int)byte; /* Ctrl-D */
}

static void start(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* CPACR: enables the FPU */
    __asm__ volatile("dsb\n isb");
    const uint32_t *from = &data_in_flash;
    for (volatile uint32_t *to = &data_start; to < &data_end; to++) *to = *from++;
    for (volatile uint32_t *to = &bss_start; to < &bss_end; to++) *to = 0;
    const uint32_t block[3] = {(uint32_t) ":tt", 4, 3};
    console = semihosting(0x01, block); /* SYS_OPEN, for writing */
    uart[4] = 25000000 / 115200;
    uart[2] = 3; /* transmit and receive */
#ifdef WATCHDOG
    watchdog[0] = WATCHDOG * 25000000;
    watchdog[2] = 3; /* interrupt and reset */
#endif
    quit(PROGRAM());
}

static void fault(void) {
    put("fault\n");
    quit(3);
}

WEAK void on_svc(void) { fault(); }
WEAK void on_pendsv(void) { fault(); }
WEAK void on_systick(void) { fault(); }
WEAK void on_uart0(void) { fault(); }

/* Handles the watchdog's interrupt. The reset follows. */
static void starved(void) {
    put("the watchdog was not fed\n");
    for (;;) {}
}

__attribute__((section(".vectors"), used)) static const void *const vectors[17] = {
    &stack_top, (void *)start, (void *)starved, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
    [11] = (void *)on_svc, [14] = (void *)on_pendsv, [15] = (void *)on_systick, [16] = (void *)on_uart0,
};
