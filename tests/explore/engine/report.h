/* report.h - failures: what is said of one, and the execution that led to it, step by step. */
#ifndef EXPLORE_REPORT_H
#define EXPLORE_REPORT_H

#include "graph.h"

/* The library that holds the code under test. */
void report_library(const char *path);

/* Two accesses of one byte, the first by the thread that runs. */
__attribute__((noreturn)) void report_race(uintptr_t address, bool write, uintptr_t code, bool other_write,
                                           uintptr_t other_code, unsigned other);

/* An event that was just executed: the trace is of these. */
void report_step(struct name event);
void report_forget_steps(void);

/* Prints the trace; and MESSAGE before it. */
void report_steps(void);
void report_failure(const char *test, uint64_t execution, const char *message);

/* A place in the code within a message. */
#define REPORT_CODE "{%lx}"

#endif
