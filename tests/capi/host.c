/* Output and exit on an operating system. */
#include "platform.h"

#include <stdio.h>

void put(const char *text) { fputs(text, stdout); }

int main(void) { return story(); }
