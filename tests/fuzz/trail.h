/* trail.h - a file that holds the last programs of a process, whatever became of it. campaign.py reads it. */
#ifndef HAK_TESTS_TRAIL_H
#define HAK_TESTS_TRAIL_H

#include "program.h"

enum { TRAIL_PROGRAMS = 64 };

struct trail {
    uint64_t count; /* of all programs so far: program N lies at N % TRAIL_PROGRAMS */
    struct trail_program {
        uint32_t size;
        uint8_t bytes[PROGRAM_MOST_BYTES + 3];
    } programs[TRAIL_PROGRAMS];
};

#endif
