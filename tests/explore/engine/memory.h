/* memory.h - the model's memory: as it was at the end of the setup, again for every execution. */
#ifndef EXPLORE_MEMORY_H
#define EXPLORE_MEMORY_H

#include "../explore.h"

/* BYTES bytes at START are about to be written. */
void memory_touch(const volatile void *start, size_t bytes);

/* Memory whose writes are not all told: it is restored as a whole. */
void memory_restore_always(void *start, size_t bytes);

/* The setup is done: this is how every execution begins. */
void memory_keep(void);
void memory_restore(void);

/* The thread-local variables of THREAD, or of the setup (-1), are in place. */
void memory_switch(int thread);

/* Whether ADDRESS is a thread-local variable. */
bool memory_is_thread_local(uintptr_t address);

uint64_t memory_load(uintptr_t address, unsigned bytes);
void memory_store(uintptr_t address, unsigned bytes, uint64_t value);

#endif
