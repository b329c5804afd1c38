/* sharing.h - which cache lines an allocator moves between processors, counted on a machine that is only simulated.
 *
 * The allocator's real sources are compiled with -fsanitize=thread, so that the compiler calls a function at each
 * load, store and atomic, and linked to this instead of ThreadSanitizer's run time. Up to 256 cores, each with one
 * thread of the workload, run as fibres of one thread of the kernel, in turn, a few accesses each. Each access finds
 * its line in some state (lines.c). What it would have needed from other cores is counted by the operation that it
 * belongs to, the code that made it and the object that it touched.
 *
 *   main.c       the command line, and the counts as one line of JSON
 *   workloads.c  what the threads do
 *   fibres.c     the threads, whose turn it is, and what they ask of the kernel and of libc
 *   lines.c      the lines and their counts
 *   libc.c       linked into the allocator: its calls to libc that must come here
 *   names.c      linked into the allocator: what lies at an address of hakmem's
 *
 * tests/explore/engine/hooks.c, which takes the compiler's calls, is the same as the explorer's.
 */
#ifndef SHARING_H
#define SHARING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CORES_MAX = 256,
    CORES_ALL = CORES_MAX + 8, /* and those of the allocator's own threads */
};

/* What an access belongs to. */
enum entry {
    ENTRY_MALLOC,
    ENTRY_FREE,
    ENTRY_THREAD_END, /* destructors of thread-specific values */
    ENTRY_USER,       /* the workload's own accesses to blocks */
    ENTRY_OWN_THREAD, /* of the allocator */
    ENTRIES
};
extern const char *const entry_names[ENTRIES];

/* ---- fibres.c ------------------------------------------------------------------------------------- */

struct schedule {
    unsigned cores;
    uint64_t seed;
    unsigned turn;        /* accesses of a turn, on average */
    uint64_t access_ns; /* how far the clock advances while each core makes one access */
};

/* Runs BODY on each core, and returns when all have ended. False when all of them wait. */
bool fibres_run(const struct schedule *schedule, void (*body)(unsigned core));

/* For the body of a thread: */

/* Lets the others run. */
void fibre_yield(void);

/* Waits until all threads of the workload are here. */
void fibre_barrier(void);

/* Ends this thread, and goes on as a new one on the same core. */
void fibre_renew(void);

/* Sets what the next accesses belong to; returns what they belonged to before. */
enum entry fibre_enter(enum entry entry);

/* An access of the workload's own. */
void fibre_touch(const void *address, size_t bytes, bool write);

/* The thread-local variables of the library that holds ADDRESS: each thread gets its own, as they are now. */
void fibres_find_thread_local(const void *address);

/* ---- lines.c -------------------------------------------------------------------------------------- */

enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC }; /* the last: a read-modify-write */

enum { PARTITIONS = 3 }; /* of all cores into 2, 4 and 8 nodes */

struct counts {
    uint64_t calls;
    uint64_t accesses;
    uint64_t atomics;
    uint64_t contended;     /* of these, another core had the line */
    uint64_t fences;
    uint64_t transfers;     /* the line came from another core */
    uint64_t dirty;         /* of these, written by that core */
    uint64_t remote[PARTITIONS]; /* and from another node */
    uint64_t upgrades;      /* the line was there, but others had it, too, and it was to be written */
    uint64_t invalidations; /* copies in other cores that a write took away */
    uint64_t cold;          /* no core had the line */
    uint64_t sleeps;        /* waits in the kernel */
};

/* NAME says what lies at an address, NULL where it does not know; may be NULL itself. */
void lines_open(unsigned line_bytes, unsigned cores, const char *(*name)(uintptr_t address));

/* Whether NAME runs now; its own accesses do not count. */
bool lines_is_naming(void);

/* One access, in one line or over several; ADDRESS is not private to a thread. */
void lines_access(unsigned core, enum entry entry, uintptr_t address, size_t bytes, enum access access,
                  uintptr_t code);

/* Counts are kept between the two calls. The first discards earlier counts, but not the state of the lines. */
void lines_measure(void);
void lines_stop(void);

extern struct counts counts[ENTRIES];   /* until now */
extern struct counts measured[ENTRIES]; /* between the two */

/* For each object and piece of code that took a line from another core. */
struct place {
    enum entry entry;
    const char *object; /* NULL: unknown; then ADDRESS is */
    uintptr_t address;
    uintptr_t code;
    uint64_t transfers, dirty, upgrades, invalidations, contended;
    uint64_t remote[PARTITIONS];
};
void lines_visit(void (*visit)(const struct place *place, void *context), void *context);

/* ---- workloads.c ---------------------------------------------------------------------------------- */

struct allocator {
    void *(*malloc)(size_t bytes);
    void (*free)(void *block);
};

struct workload {
    const char *name;
    void (*thread)(unsigned core);
    const char *about;
};
extern const struct workload workloads[];
extern const unsigned workload_count;

struct task {
    const struct allocator *allocator;
    unsigned cores;
    uint64_t ops;  /* of each core, after as many that only warm up */
    uint64_t seed;
};
extern struct task task;
extern uint64_t operations; /* done in all, while counts were kept */

/* ---- for libc.c: what the allocator asks of libc -------------------------------------------------- */

long sharing_syscall(long number, long a, long b, long c, long d, long e, long f);
uint64_t sharing_clock_ns(void);
void sharing_sleep(uint64_t ns);
void sharing_yield(void);
bool sharing_thread(void *(*body)(void *), void *argument);
int sharing_key(void (*destroy)(void *));
void *sharing_value(unsigned key);
void sharing_value_set(unsigned key, uintptr_t value);

#endif
