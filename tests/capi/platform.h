/* Functions that each platform implements. */
#ifndef PLATFORM_H
#define PLATFORM_H

/* Prints a text that ends with a zero byte. */
void put(const char *text);

/* Runs the program. Returns 0 on success. */
int story(void);

#endif
