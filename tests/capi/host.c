/* Output and exit on an operating system. */
#include "platform.h"

#include <stdio.h>

void put(const char *text) { fputs(text, stdout); }

void feed(void) {}

int get(void) { return getchar(); }

int main(void) { return PROGRAM(); }
