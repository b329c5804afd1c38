/* afl.c - the interpreter as a target of AFL++, in persistent mode: one process runs some hundred programs. campaign.py starts
 * it, once for each set of options. */
#include "interpreter.h"
#include "program.h"

#include <string.h>
#include <unistd.h>

enum { PROGRAMS_PER_PROCESS = 500 };

__AFL_FUZZ_INIT();

int main(void) {
    static uint8_t program[PROGRAM_MOST_BYTES];
    __AFL_INIT();
    const uint8_t *given = __AFL_FUZZ_TESTCASE_BUF;
    while (__AFL_LOOP(PROGRAMS_PER_PROCESS)) {
        size_t size = (size_t)__AFL_FUZZ_TESTCASE_LEN;
        if (size > sizeof program) size = sizeof program;
        memcpy(program, given, size);
        interpret(program, size);
    }
    return 0;
}
