/* calls.c - calls, and what they answer: see calls.h. */
#include "calls.h"

#include <errno.h>
#include <hakmem/hakmem.h>

/* What errno is before each call: no error. */
enum { UNTOUCHED = 4711 };

unsigned spec_busy_slot = MODEL_SLOTS;

static void begin(unsigned slot) {
    spec_busy_slot = slot;
    errno = UNTOUCHED;
}

static void end(void) { spec_busy_slot = MODEL_SLOTS; }

static void check_errno(const char *function) {
    SPEC(errno_kept, errno == UNTOUCHED, "%s set errno to %d", function, errno);
}

static size_t usable_size(const void *block) {
    errno = UNTOUCHED;
    size_t usable = hak_usable_size(block);
    check_errno("usable_size");
    return usable;
}

/* posix_memalign alone leaves errno as it was when it fails, and its result too. */
static struct answer call_posix_memalign(struct request request) {
    void *const nothing = &spec_busy_slot;
    struct answer answer = {.block = nothing};
    answer.error = hak_posix_memalign(&answer.block, request.alignment, request.bytes);
    check_errno("posix_memalign");
    if (answer.error == 0) return answer;
    SPEC(says_why, answer.block == nothing, "posix_memalign returned %d and wrote its result", answer.error);
    answer.block = NULL;
    return answer;
}

static void *call(struct request request, void *block) {
    size_t alignment = request.alignment, bytes = request.bytes;
    switch (request.call) {
    case CALL_MALLOC: return hak_malloc(bytes);
    case CALL_CALLOC: return hak_calloc(request.count, bytes);
    case CALL_REALLOC: return hak_realloc(block, bytes);
    case CALL_REALLOCARRAY: return hak_reallocarray(block, request.count, bytes);
    case CALL_ALIGNED_ALLOC: return hak_aligned_alloc(alignment, bytes);
    case CALL_MEMALIGN: return hak_memalign(alignment, bytes);
    case CALL_VALLOC: return hak_valloc(bytes);
    case CALL_PVALLOC: return hak_pvalloc(bytes);
    default: return NULL;
    }
}

/* BLOCK: what is to be resized. */
static struct answer answer_to(struct request request, unsigned slot, void *block) {
    struct answer answer;
    begin(slot);
    if (request.call == CALL_POSIX_MEMALIGN) {
        answer = call_posix_memalign(request);
    } else {
        answer = (struct answer){.block = call(request, block)};
        answer.error = errno;
        if (answer.block != NULL) check_errno(spec_call_names[request.call]);
    }
    void *left = answer.block != NULL ? answer.block : block;
    if (left != NULL) answer.usable = usable_size(left);
    return answer;
}

void spec_allocate(struct model *model, unsigned slot, struct request request) {
    struct answer answer = answer_to(request, slot, NULL);
    model_allocated(model, slot, request, answer);
    if (request.call == CALL_MALLOC && answer.block != NULL)
        model_good_enough(request.bytes, hak_good_size(request.bytes), answer.usable);
    end();
}

static void resize_to_nothing(struct model *model, unsigned slot, struct request request) {
    begin(slot);
    struct answer answer = {.block = call(request, model->blocks[slot].start)};
    check_errno("realloc to 0");
    model_resized_to_nothing(model, slot, answer);
    end();
}

void spec_resize(struct model *model, unsigned slot, struct request request) {
    void *block = model->blocks[slot].start;
    if (block == NULL) {
        struct answer answer = answer_to(request, slot, NULL);
        model_allocated(model, slot, request, answer);
    } else {
        spec_check(model, slot);
        if (request.count == 0 || request.bytes == 0) {
            resize_to_nothing(model, slot, request);
            return;
        }
        struct answer answer = answer_to(request, slot, block);
        model_resized(model, slot, request, answer);
    }
    end();
}

void spec_free(struct model *model, unsigned slot, enum spec_free how) {
    struct model_block block = model->blocks[slot];
    if (block.start == NULL) return;
    model_freed(model, slot, usable_size(block.start));
    begin(slot);
    if (how == FREE_SIZED) hak_free_sized(block.start, block.asked);
    if (how == FREE_ALIGNED_SIZED) hak_free_aligned_sized(block.start, block.alignment, block.asked);
    if (how == FREE_PLAIN) hak_free(block.start);
    check_errno("free");
    end();
}

void spec_expand(struct model *model, unsigned slot, size_t bytes) {
    void *block = model->blocks[slot].start;
    begin(slot);
    size_t got = hak_try_expand(block, bytes);
    check_errno("try_expand");
    if (block != NULL)
        model_expanded(model, slot, bytes, got, usable_size(block));
    else
        SPEC(null, got == 0, "try_expand of it gives %zu", got);
    end();
}

void spec_check(const struct model *model, unsigned slot) {
    const void *block = model->blocks[slot].start;
    if (block != NULL) model_check(model, slot, usable_size(block));
}

void spec_check_all(const struct model *model) {
    for (unsigned slot = 0; slot < MODEL_SLOTS; slot++) spec_check(model, slot);
}

void spec_good_size(size_t bytes) {
    errno = UNTOUCHED;
    size_t good = hak_good_size(bytes);
    model_good_size(bytes, good, hak_good_size(good));
    check_errno("good_size");
}

void spec_null(void) {
    errno = UNTOUCHED;
    hak_free(NULL);
    hak_free_sized(NULL, 0);
    hak_free_aligned_sized(NULL, 16, 0);
    check_errno("free of NULL");
    SPEC(null, usable_size(NULL) == 0, "its usable size is %zu", hak_usable_size(NULL));
    SPEC(null, hak_try_expand(NULL, 1) == 0, "try_expand makes it longer");
    SPEC(null, hak_memalignment(NULL) == 0, "memalignment gives %zu", hak_memalignment(NULL));
}

void spec_memalignment(const void *address) {
    size_t power = 1;
    while (((uintptr_t)address & power) == 0) power *= 2;
    SPEC(power, hak_memalignment(address) == power, "%zu for %p", hak_memalignment(address), address);
}

void spec_collect(void) {
    errno = UNTOUCHED;
    hak_collect();
    check_errno("collect");
}

void spec_trim(void) {
    errno = UNTOUCHED;
    int trimmed = hak_malloc_trim(0);
    check_errno("malloc_trim");
    SPEC(trims, trimmed == 0 || trimmed == 1, "%d", trimmed);
}
