/* Output, exit and entry point on Zephyr. */
#include "platform.h"

#include <zephyr/kernel.h>

void put(const char *text) { printk("%s", text); }

void feed(void) {}

int main(void) {
    size_t unused;
    int status = story();
    k_thread_stack_space_get(k_current_get(), &unused);
    printk("status %d, %zu of %d bytes of stack used\n", status, CONFIG_MAIN_STACK_SIZE - unused, CONFIG_MAIN_STACK_SIZE);
    return 0;
}
