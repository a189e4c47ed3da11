/* A stub of Arduino's core for the board of ../../board.c, with the functions that Commands.ino calls. */
#pragma once
#include <stddef.h>
#include <stdint.h>

void setup();
void loop();
inline void yield() {}
inline void delay(unsigned long) {}

struct SerialPort {
    void begin(unsigned long) {}
    explicit operator bool() const { return true; }
    int available();
    int read();
    size_t print(const char *text);
};
extern SerialPort Serial;
