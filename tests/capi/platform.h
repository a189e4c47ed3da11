/* Functions that each platform implements. */
#ifndef PLATFORM_H
#define PLATFORM_H

/* Prints a text that ends with a zero byte. */
void put(const char *text);

/* Restarts the watchdog, if there is one. */
void feed(void);

/* Waits for a byte of the input. Returns -1 at the end of the input. */
int get(void);

/* Ends a program on a board. */
void quit(int status);

/* Programs. They return 0 on success. */
int story(void);
int commands(void);
int classify(void);
int freertos(void);
int arduino(void);

/* The program to run: one of the functions above. */
#ifndef PROGRAM
#define PROGRAM story
#endif

#endif
