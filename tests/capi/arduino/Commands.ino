// Turns commands in English, German and Hindi into JSON calls: reads a line from the serial port and prints a call. Try "turn on
// the light in the hall". The model takes 285 KB of flash, and the program less than 128 KB of RAM.
//
// commands.c runs the model and calls the functions below.
#include <Arduino.h>

extern "C" {
#include "platform.h"

void put(const char *text) { Serial.print(text); }

// Called after each layer of the model: feed a watchdog here.
void feed(void) { yield(); }

int get(void) {
    while (!Serial.available()) yield();
    return Serial.read();
}
}

void setup() {
    Serial.begin(115200);
    while (!Serial) yield();
}

// `commands` returns only if the model cannot be run.
void loop() {
    commands();
    delay(1000);
}
