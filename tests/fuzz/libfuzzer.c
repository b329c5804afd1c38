/* libfuzzer.c - the interpreter as a target of libFuzzer, which looks for programs that reach new code. campaign.py starts it,
 * once for each set of options: they are in force from the start of a process on.
 *
 * The allocator goes on from program to program, so what fails may be due to an earlier one. The last programs lie in the
 * file FUZZ_TRAIL, newest last, where they outlive the process. */
#define CHECK_NO_MAIN
#include "../check.h" /* first: it says _GNU_SOURCE */

#include "interpreter.h"
#include "program.h"
#include "trail.h"

#include <fcntl.h>
#include <sys/mman.h>

/* What libFuzzer calls, and what it offers. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t most);

static unsigned options;
static struct trail *trail;

static void open_trail(const char *name) {
    int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || ftruncate(file, sizeof *trail) != 0) abort();
    trail = mmap(NULL, sizeof *trail, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (trail == MAP_FAILED) abort();
    close(file);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const char *given = getenv("HAKMEM_CONF"), *name = getenv("FUZZ_TRAIL");
    (void)argc, (void)argv;
    while (options < OPTION_SETS && (given == NULL || strcmp(given, option_sets[options]) != 0)) options++;
    if (options == OPTION_SETS) {
        check_say("FAIL libfuzzer: HAKMEM_CONF is none of the sets of options of program.c");
        exit(2);
    }
    if (name != NULL) open_trail(name);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (trail != NULL && size <= PROGRAM_MOST_BYTES) {
        struct trail_program *program = &trail->programs[trail->count++ % TRAIL_PROGRAMS];
        program->size = (uint32_t)size;
        memcpy(program->bytes, bytes, size);
    }
    interpret(bytes, size);
    return 0;
}

/* Now and then a whole operation is taken out, doubled or moved, which bytes do not know of. */
static size_t mutate_operations(uint8_t *bytes, size_t size, size_t most, unsigned seed) {
    size_t length = program_length(size);
    uint8_t *from = bytes + 1 + seed / 4 % length * OPERATION_BYTES;
    uint8_t *to = bytes + 1 + seed / 1024 % length * OPERATION_BYTES, kept[OPERATION_BYTES];
    memcpy(kept, from, OPERATION_BYTES);
    if (seed % 4 == 1) {
        memmove(from, from + OPERATION_BYTES, size - (size_t)(from - bytes) - OPERATION_BYTES);
        return size - OPERATION_BYTES;
    }
    if (seed % 4 == 2 && size + OPERATION_BYTES <= most) {
        memmove(to + OPERATION_BYTES, to, size - (size_t)(to - bytes));
        memcpy(to, kept, OPERATION_BYTES);
        return size + OPERATION_BYTES;
    }
    memcpy(from, to, OPERATION_BYTES);
    memcpy(to, kept, OPERATION_BYTES);
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t most, unsigned seed) {
    bool whole = seed % 8 < 3 && program_length(size) > 1;
    size = whole ? mutate_operations(bytes, size, most, seed / 8) : LLVMFuzzerMutate(bytes, size, most);
    if (size > 0) bytes[0] = (uint8_t)options;
    return size;
}
