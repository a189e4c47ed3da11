/* What the program needs of where it runs. */
#ifndef PLATFORM_H
#define PLATFORM_H

/* Prints a text that ends with a zero byte. */
void put(const char *text);

/* The program: 0 if all went well. */
int story(void);

#endif
