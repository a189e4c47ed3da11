/* A stand-in for Arduino's core on the board of ../../board.c: what Commands.ino uses. */
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
