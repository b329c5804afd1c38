/* alloc.c - the slow path of malloc: refilling a bin, and serving threads that have no heap and signal handlers. */
#include "heap/alloc.h"

#include "ace/batch.h"
#include "ace/supply.h"
#include "base/bits.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/home.h"
#include "heap/large.h"
#include "heap/medium.h"
#include "heap/purger.h"
#include "heap/stack.h"
#include "heap/thread.h"

#include <string.h>

/* From this size on, calloc has the kernel replace dirty pages instead of clearing them, although each page written
 * then faults: clearing a table that is made anew and hardly used would make all of it resident. Of 256 MiB with one
 * word in use per MiB, 2.5 MiB become resident, by 256 faults; with all of it in use there are 65,536 faults. */
#define RENEW_BYTES HAK_MIB(8)

/* From this size on, calloc asks for a block that is zero already: clearing one would fault in pages that the program
 * may never touch. */
#define SPARSE_BYTES HAK_KIB(8)

/* In this file *ZERO says whether a zero block is wanted, and on return whether the block is known to be zero. */

/* Takes up to WANT blocks from slabs with free ones, HOME's own, then those of the commons, and stores them downward
 * from END. Where the wanted zero block is there, takes that one alone: a stack does not record which of its blocks
 * are zero. HOME's lock held. */
static uint32_t gather(struct heap *home, unsigned class, void **end, uint32_t want, bool *zero) {
    if (HAK_UNLIKELY(*zero) && bin_next_is_zero(home, class)) want = 1;
    uint32_t got = bin_fill(home, class, end, want, zero);
    if (got == 0 && home != &commons && bin_adopt(home, class)) got = bin_fill(home, class, end, want, zero);
    return got;
}

/* Prefaults the first PAGES kernel pages of the slab at FRESH if it reads as zero. */
static void populate(uint32_t fresh, uint32_t pages) {
    if (pages == 0 || !slab_at(fresh)->span.zero) return;
    size_t bytes = slab_classes[slab_at(fresh)->span.class].pages * PAGE_BYTES;
    os_populate(page_address(fresh), min_size(bytes, os_page_bytes() * pages));
}

/* As gather, from the slabs that HEAP uses. Also takes in blocks freed by other threads and slabs that other heaps do
 * not need, and makes a new slab when there is nothing else. Heap's lock held; dropped meanwhile. 0: no memory. */
static uint32_t gather_or_create(struct heap *heap, unsigned class, void **end, uint32_t want, bool *zero) {
    enum { SALVAGES = 4 }; /* another thread may take what was salvaged */
    if (HAK_UNLIKELY(heap->home != heap) && remote_has_some(heap)) remote_drain_some(heap, DRAIN_SLABS); /* of slabs that it owned before */
    for (unsigned round = 0;; round++) {
        struct heap *home = home_take(heap);
        if (round == 0 && remote_has_some(home) && bin_wants_drain(home, class)) remote_drain_some(home, DRAIN_SLABS);
        const uint32_t got = gather(home, class, end, want, zero), slabs = (uint32_t)counter_read(&home->bins[class].slab_count);
        home_drop(heap);
        if (got != 0) return got;
        const struct ace_supply_decision supply = ace_supply((struct ace_supply_input){
            .slabs = slabs,
            .block_bytes = slab_classes[class].block_bytes,
            .page_bytes = (uint32_t)os_page_bytes(),
            .objective = heap_settings.objective,
        });
        if (heap != &commons) stack_give_idle(heap, class); /* that may free slabs */
        os_lock_drop(&heap->lock);
        thread_reap_forsaken();
        remote_settle();
        bool salvaged = round < SALVAGES && salvage_slab(class);
        uint32_t fresh = salvaged ? 0 : slab_create(class, supply.fill);
        if (fresh != 0 && counter_read(&heap_settings.populate) != 0) populate(fresh, supply.populate_pages);
        os_lock_take(&heap->lock);
        if (salvaged) continue;
        if (fresh == 0) return 0;
        home_place(heap, fresh, class);
    }
}

/* Fills up to half of an empty, closed stack and takes one block. Lock held; dropped meanwhile. */
static void *refill(struct heap *heap, unsigned class, bool *zero) {
    struct bin *bin = &heap->bins[class];
    uint32_t want = ace_refill(bin->depth, heap->home != heap, counter_read(&bin->refills) + 1);
    void **end = bin->stack + want;
    uint32_t got = gather_or_create(heap, class, end, want, zero);
    if (got == 0) { /* no refill: a deeper stack would not have helped */
        if (bin->recent_refills != 0) bin->recent_refills--;
        stack_set(heap, class, bin->bottom, bin->bottom);
        return NULL;
    }
    counter_add(&bin->refills, 1);
    counter_add(&bin->refilled_blocks, got);
    bin->recent_refilled_blocks += got;
    void *block = end[-1];
    stack_set(heap, class, end - got, end - 1); /* from here on a signal handler may push where the block was */
    stack_set_keeping(heap, class, true);
    return block;
}

/* The commons have no owner whose periodic look would report their change. Their lock is held. */
static void tell_of_commons(void) { footprint_tell(&commons.in_use_change); }

/* One block for a thread that has no heap. */
static void *alloc_from_commons(unsigned class, bool *zero) {
    void *block = NULL;
    os_lock_take(&commons.lock);
    if (gather_or_create(&commons, class, &block + 1, 1, zero) == 0) block = NULL;
    tell_of_commons();
    os_lock_drop(&commons.lock);
    remote_settle();
    return block;
}

static void *alloc_small(unsigned class, bool *zero) {
    struct heap *heap = thread_heap();
    if (heap == NULL) return alloc_from_commons(class, zero);
    os_lock_take(&heap->lock);
    if (HAK_UNLIKELY(heap->raised)) stack_lower(heap);
    if (HAK_LIKELY(stack_held(heap, class) == 0)) stack_note_refill(heap, class);
    stack_close(heap, class); /* otherwise a refill would overwrite what signal handlers free */
    /* The stack may hold blocks: bounds were raised, the heap was parked until now, or a signal handler freed some
     * just now. */
    void *block;
    if (HAK_LIKELY(stack_held(heap, class) == 0)) {
        block = refill(heap, class, zero);
    } else {
        block = stack_pop(heap, class);
        *zero = false;
    }
    os_lock_drop(&heap->lock);
    remote_settle();
    return block;
}

/* ---- medium blocks --------------------------------------------------------------------------------------- */

/* Medium blocks come one at a time. What was refused is no refill: a deeper stack would not have helped. */
static void note_medium_refill(struct heap *heap, unsigned class) {
    struct bin *bin = &heap->bins[class];
    stack_note_refill(heap, class);
    counter_add(&bin->refills, 1);
    bin->recent_refilled_blocks++;
    counter_add(&bin->refilled_blocks, 1);
}

/* For a heap that ran out of medium blocks: makes what other threads returned, and what lies in idle stacks, free for the
 * next request of any thread; all the more where there was no memory. */
static void free_for_others(struct heap *heap, unsigned class) {
    stack_give_idle(heap, class);
    if (!remote_has_some(heap->home)) return;
    remote_drain_some(home_take(heap), DRAIN_SLABS);
    home_drop(heap);
}

/* The block of a new slab; NULL when there is no memory. No lock held. */
static void *alloc_medium(size_t bytes, size_t alignment, bool *zero) {
    const unsigned class = size_class_of(bytes);
    struct heap *own = thread_heap(), *heap = own != NULL ? own : &commons;
    void *block = NULL;
    thread_reap_forsaken();
    remote_settle();
    const uint32_t first = slab_create(class, large_fill(slab_classes[class].pages, bytes));
    if (first != 0) {
        *zero = slab_next_is_zero(first);
        slab_take(first, &block + 1, 1);
    }
    os_lock_take(&heap->lock);
    if (HAK_UNLIKELY(heap->raised)) stack_lower(heap);
    if (own != NULL && first != 0) note_medium_refill(heap, class);
    if (own != NULL) free_for_others(heap, class);
    if (first != 0) {
        home_place(heap, first, class);
        heap->in_use_change += slab_classes[class].block_bytes;
    }
    if (own == NULL) tell_of_commons();
    os_lock_drop(&heap->lock);
    remote_settle();
    return block == NULL ? NULL : medium_place(block, class, bytes, alignment);
}

/* ---- all sizes ------------------------------------------------------------------------------------------- */

/* For a signal handler that interrupted a slow path: it may take no lock. */
static HAK_COLD void *alloc_quietly(size_t bytes, size_t alignment, bool *zero) {
    return large_map_outside(bytes, alignment, zero);
}

static void *alloc_once(size_t bytes, size_t alignment, bool *zero) {
    void *block = NULL;
    if (bytes <= MEDIUM_MAX_BYTES && alignment <= PAGE_BYTES && window.pages != 0)
        block = bytes <= SMALL_MAX_BYTES ? alloc_small(small_class_of(bytes, alignment), zero) : alloc_medium(bytes, alignment, zero);
    /* Where there is no room for a slab there may be room for a single block, of the length that heap_good_bytes
     * promises. */
    return block != NULL ? block : large_alloc(alignment <= PAGE_BYTES ? max_size(bytes, heap_good_bytes(bytes)) : bytes, alignment, zero);
}

/* Whether memory that threads keep could make room for the request: not if it exceeds what there may ever be. */
static bool may_be_revealed(size_t bytes, size_t alignment) {
    const uint64_t limit = span_limit_bytes(), most = limit != 0 ? limit : os_address_limit();
    return bytes <= PTRDIFF_MAX && bytes <= most && alignment <= most;
}

/* Retries with memory that threads keep, first with what can be had without disturbing other threads. */
static HAK_COLD void *alloc_revealed(size_t bytes, size_t alignment, bool wanted_zero, bool *zero) {
    reveal_own();
    *zero = wanted_zero;
    void *block = alloc_once(bytes, alignment, zero);
    if (block != NULL) return block;
    *zero = wanted_zero;
    reveal_others(bytes + alignment);
    block = alloc_once(bytes, alignment, zero);
    if (block != NULL) reveal_helped();
    return block;
}

static HAK_NOINLINE void *alloc_slowly(size_t bytes, size_t alignment, bool *zero, const void *caller) {
    thread_ensure_heap();
    if (HAK_UNLIKELY(!slow_enter())) return alloc_quietly(bytes, alignment, zero); /* what was refused is the interrupted path's to know */
    os_refusal_forget();
    const bool wanted_zero = *zero;
    void *block = alloc_once(bytes, alignment, zero);
    if (HAK_UNLIKELY(block == NULL) && may_be_revealed(bytes, alignment)) block = alloc_revealed(bytes, alignment, wanted_zero, zero);
    slow_leave();
    purger_tick_for_alloc(caller);
    return block;
}

/* The slow path of every allocation. */
static HAK_NOINLINE void *alloc_any(size_t bytes, size_t alignment, bool *zero, const void *caller) {
    void *block;
    if (!medium_pop(bytes, alignment, &block)) return alloc_slowly(bytes, alignment, zero, caller);
    *zero = false;
    return block;
}

static HAK_NOINLINE void *alloc_slowly_of_any_contents(size_t bytes, const void *caller) {
    bool zero = false;
    return alloc_slowly(bytes, SMALLEST_BLOCK_BYTES, &zero, caller);
}

HAK_NOINLINE void *heap_alloc(size_t bytes, const void *caller) {
    void *block;
    return medium_pop(bytes, SMALLEST_BLOCK_BYTES, &block) ? block : alloc_slowly_of_any_contents(bytes, caller);
}

/* Has the kernel replace the whole kernel pages of the block, and clears the rest; false when the kernel refuses. */
static HAK_NOINLINE bool renew(char *block, size_t bytes) {
    const size_t page = os_page_bytes();
    char *const from = (char *)round_up((uintptr_t)block, page), *const to = (char *)round_down((uintptr_t)block + bytes, page);
    if (!os_purge(from, (size_t)(to - from))) return false;
    memset(block, 0, (size_t)(from - block));
    memset(to, 0, (size_t)(block + bytes - to));
    return true;
}

void *heap_alloc_zero(size_t bytes, const void *caller) {
    bool zero = bytes >= SPARSE_BYTES;
    void *block = alloc_any(bytes, SMALLEST_BLOCK_BYTES, &zero, caller);
    if (block == NULL || zero) return block;
    /* Clearing a very large block costs more than having its pages replaced. */
    if (bytes >= RENEW_BYTES && renew(block, bytes)) return block;
    return memset(block, 0, bytes);
}

void *heap_alloc_aligned(size_t bytes, size_t alignment) {
    if (bytes > PTRDIFF_MAX) return NULL;
    const size_t rounded = bytes == 0 ? alignment : ((alignment - 1) | (bytes - 1)) + 1;
    bool zero = false;
    return alloc_any(rounded > SMALL_MAX_BYTES ? bytes : rounded, alignment, &zero, NULL);
}
