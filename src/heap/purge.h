/* purge.h - giving back what nobody needs, of all heaps: blocks on their way to sleepers, holes in slabs, free spans. */
#ifndef HAK_HEAP_PURGE_H
#define HAK_HEAP_PURGE_H

#include <stdbool.h>

enum purge_pace {
    PURGE_SHORT, /* in passing: what is due, a bounded share of it */
    PURGE_DUE,   /* by a thread that has nothing else to do */
    PURGE_ALL,   /* everything, due or not */
};

/* One step. The purging lock is held and no other. False: nothing is left to be given back. */
bool purge_step(enum purge_pace pace);

/* Whether, when heaps were last looked at, a thread had taken slow paths since the time before. */
bool purge_saw_work(void);

#endif
