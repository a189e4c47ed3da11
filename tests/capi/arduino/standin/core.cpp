/* A stub of Arduino's serial port, and the program that runs a sketch until Ctrl-D is read. */
#include <Arduino.h>

extern "C" {
#include "platform.h"

int arduino(void) {
    setup();
    for (;;) loop();
}
}

SerialPort Serial;
static volatile uint32_t *const uart = (volatile uint32_t *)0x40004000;

int SerialPort::available() { return (uart[1] & 2) != 0; }

int SerialPort::read() {
    const int byte = (int)uart[0];
    if (byte == 4) quit(0);
    return byte;
}

size_t SerialPort::print(const char *text) {
    size_t len = 0;
    for (; text[len]; len++) {
        while (uart[1] & 1) {}
        uart[0] = (uint8_t)text[len];
    }
    return len;
}
