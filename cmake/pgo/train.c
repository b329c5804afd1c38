/* train.c - what the profile-guided build learns from: the mixes of operations of a general program, in the
 * proportions that decide which branch is the common one. Not a benchmark: nothing is timed.
 *
 * Preloaded with the instrumented library. Deterministic but for the threads' interleaving. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 4096,
    MIX_ROUNDS = 2000000,
    BURSTS = 200,
    BURST_BLOCKS = 4000,
    QUEUE = 1024,
    MESSAGES = 400000
};

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Mostly small, sometimes a page, rarely a large block: sizes as programs ask for them. */
static size_t random_size(uint64_t *state) {
    uint64_t r = next_random(state);
    if (r % 4096 == 0) return 100000 + r % 900000;
    if (r % 64 == 0) return 1024 + r % 31000;
    return 8 + (r >> 32) % 1016;
}

static void *touched(void *block) {
    if (block == NULL) abort();
    *(volatile char *)block = 1;
    return block;
}

static void train_mix(uint64_t seed) {
    static _Thread_local void *slots[SLOTS];
    for (int i = 0; i < MIX_ROUNDS; i++) {
        uint64_t r = next_random(&seed);
        void **slot = &slots[r % SLOTS];
        size_t size = random_size(&seed);
        if (*slot != NULL && r >> 60 == 0) {
            *slot = touched(realloc(*slot, size));
            continue;
        }
        free(*slot);
        *slot = r >> 60 == 1 ? touched(calloc(1, size)) : touched(malloc(size));
    }
    for (int i = 0; i < SLOTS; i++) {
        free(slots[i]);
        slots[i] = NULL;
    }
}

static void train_bursts(void) {
    static _Thread_local void *blocks[BURST_BLOCKS];
    for (int burst = 0; burst < BURSTS; burst++) {
        for (int i = 0; i < BURST_BLOCKS; i++) blocks[i] = touched(malloc(16 + (size_t)(burst % 16) * 16));
        for (int i = BURST_BLOCKS; i-- > 0;) free(blocks[i]);
    }
}

static void *train_thread(void *seed) {
    train_mix((uintptr_t)seed * 0x9e3779b97f4a7c15u);
    train_bursts();
    return NULL;
}

/* One thread allocates, the other frees. */
static void *_Atomic queue[QUEUE];

static void *consume(void *unused) {
    for (int i = 0; i < MESSAGES; i++) {
        void *block;
        while ((block = atomic_exchange(&queue[i % QUEUE], NULL)) == NULL) sched_yield();
        free(block);
    }
    return unused;
}

static void train_hand_over(void) {
    uint64_t seed = 7;
    pthread_t consumer;
    if (pthread_create(&consumer, NULL, consume, NULL) != 0) abort();
    for (int i = 0; i < MESSAGES; i++) {
        void *block = touched(malloc(16 + next_random(&seed) % 500));
        while (atomic_load(&queue[i % QUEUE]) != NULL) sched_yield();
        atomic_store(&queue[i % QUEUE], block);
    }
    pthread_join(consumer, NULL);
}

int main(void) {
    pthread_t thread;
    train_thread((void *)(uintptr_t)1);
    if (pthread_create(&thread, NULL, train_thread, (void *)(uintptr_t)2) != 0) abort();
    train_thread((void *)(uintptr_t)3);
    pthread_join(thread, NULL);
    train_hand_over();
    return 0;
}
