/* interpreter.h - runs a program (program.h) on hakmem, every call judged by the specification (../spec). A breach of it
 * ends the process with a line that names the rule. */
#ifndef HAK_TESTS_INTERPRETER_H
#define HAK_TESTS_INTERPRETER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Afterwards every block is freed, every thread has ended, and everything was given back: the next program finds the
 * allocator as this one did, as far as it shows. */
void interpret(const uint8_t *bytes, size_t size);

/* Whether each operation is printed to standard error before it is done. */
extern bool interpreter_traces;

#endif
