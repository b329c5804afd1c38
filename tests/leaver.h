/* leaver.h - a thread that leaves a heap to the next one at its end, with few blocks in it, and the processor it ran on. */
#ifndef HAK_TESTS_LEAVER_H
#define HAK_TESTS_LEAVER_H

#include "blocks.h" /* first: it says _GNU_SOURCE */

#include "heap/alloc.h"
#include "heap/heap.h"
#include "heap/thread.h"

#include <sched.h>

static struct heap *leaver; /* the heap, by the bodies */

static void move_to(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

enum { FEW = 20, FEW_BYTES = 3000 };

static int cpu_of_leaver;

static void *leave_few(void *unused) {
    move_to(cpu_of_leaver = sched_getcpu());
    void *blocks[FEW];
    for (size_t i = 0; i < FEW; i++) CHECK((blocks[i] = heap_alloc(FEW_BYTES, NULL)) != NULL);
    for (size_t i = 1; i < FEW; i++) heap_free(blocks[i], NULL); /* one is in use: no slab is free as a whole */
    heap_free(heap_alloc(16, NULL), NULL);                       /* of another class, too */
    leaver = thread_heap();
    return unused;
}

#endif
