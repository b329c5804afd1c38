/* calls_test.c - what is judged of a call beside its answer, judged: an allocator of one block answers as it should, or breaks one
 * rule. */
#include "breaks.h" /* first: it says _GNU_SOURCE */

#include "calls.h"

#include <hakmem/hakmem.h>

enum { BYTES = 112 };

static _Alignas(4096) unsigned char memory[4096];
static struct model model;

/* ---- the allocator --------------------------------------------------------------------------------------------- */

static struct {
    int error; /* that every call leaves; 0: what was there */
    size_t of_null, power_factor;
    int trimmed, refusal;
    bool writes_results;
} says;

static size_t answer(size_t number) {
    if (says.error != 0) errno = says.error;
    return number;
}

static void *block(size_t bytes) { return answer(bytes) <= BYTES ? memory : NULL; }

void *hak_malloc(size_t bytes) { return block(bytes); }
void *hak_calloc(size_t count, size_t bytes) { return memset(block(count * bytes), 0, BYTES); }
void *hak_realloc(void *old, size_t bytes) { return old != NULL && bytes == 0 ? NULL : block(bytes); }
void *hak_reallocarray(void *old, size_t count, size_t bytes) { return hak_realloc(old, count * bytes); }
void *hak_aligned_alloc(size_t alignment, size_t bytes) { return block(bytes + 0 * alignment); }
void *hak_memalign(size_t alignment, size_t bytes) { return block(bytes + 0 * alignment); }
void *hak_valloc(size_t bytes) { return block(bytes); }
void *hak_pvalloc(size_t bytes) { return block(bytes); }
void hak_free(void *old) { answer((uintptr_t)old); }
void hak_free_sized(void *old, size_t bytes) { answer((uintptr_t)old + bytes); }
void hak_free_aligned_sized(void *old, size_t alignment, size_t bytes) { answer((uintptr_t)old + bytes + alignment); }
size_t hak_usable_size(const void *old) { return answer(old == NULL ? says.of_null : BYTES); }
size_t hak_good_size(size_t bytes) { return answer(bytes <= BYTES ? BYTES : bytes); }
size_t hak_try_expand(void *old, size_t bytes) { return answer(old == NULL ? says.of_null : bytes <= BYTES ? BYTES : 0); }
size_t hak_collect(void) { return answer(0); }

int hak_posix_memalign(void **result, size_t alignment, size_t bytes) {
    if (says.refusal == 0 || says.writes_results) *result = block(bytes + 0 * alignment);
    return says.refusal;
}

size_t hak_memalignment(const void *address) {
    const uintptr_t bits = (uintptr_t)address;
    return answer(address == NULL ? says.of_null : (bits & -bits) * says.power_factor);
}

int hak_malloc_trim(size_t pad) {
    answer(pad);
    return says.trimmed;
}

/* ---- the judge ------------------------------------------------------------------------------------------------- */

static struct request a(enum spec_call call, size_t bytes) { return (struct request){call, 16, 1, bytes}; }

static void begin(void) {
    note_breaches();
    memset(&model, 0, sizeof model);
    memset(&says, 0, sizeof says);
    says.power_factor = 1;
}

/* A block in slot 0. */
static void begin_with_a_block(void) {
    begin();
    spec_allocate(&model, 0, a(CALL_MALLOC, 100));
}

TEST(calls_that_are_as_they_should_be) {
    for (int call = 0; call < CALL_VALLOC; call++) {
        begin();
        spec_allocate(&model, 0, a((enum spec_call)call, 100));
        spec_resize(&model, 0, a(CALL_REALLOC, 50));
        spec_expand(&model, 0, 100);
        spec_check_all(&model);
        for (int how = 0; how < SPEC_FREES; how++) {
            spec_free(&model, 0, (enum spec_free)how);
            spec_allocate(&model, 0, a(CALL_MALLOC, 1));
        }
        spec_resize(&model, 0, a(CALL_REALLOC, 0));
        spec_expand(&model, 0, 100);
    }
    spec_good_size(100);
    spec_null();
    for (size_t address = 1; address < 100; address++) spec_memalignment((void *)address);
    spec_collect();
    for (says.trimmed = 0; says.trimmed < 2; says.trimmed++) spec_trim();
}

TEST(errno_is_kept) {
    begin_with_a_block();
    says.error = ENOMEM;
    CHECK_BREAKS(errno_kept, spec_allocate(&model, 1, a(CALL_MALLOC, 100)));
    CHECK_BREAKS(errno_kept, spec_allocate(&model, 1, a(CALL_POSIX_MEMALIGN, 100)));
    CHECK_BREAKS(errno_kept, spec_resize(&model, 0, a(CALL_REALLOC, 0)));
    CHECK_BREAKS(errno_kept, spec_expand(&model, 0, 50));
    CHECK_BREAKS(errno_kept, spec_check(&model, 0));
    CHECK_BREAKS(errno_kept, spec_good_size(100));
    CHECK_BREAKS(errno_kept, spec_null());
    CHECK_BREAKS(errno_kept, spec_collect());
    CHECK_BREAKS(errno_kept, spec_trim());
}

TEST(what_is_no_block) {
    begin();
    says.of_null = 16;
    CHECK_BREAKS(null, spec_null());
    CHECK_BREAKS(null, spec_expand(&model, 0, 16));
    begin();
    says.power_factor = 2;
    CHECK_BREAKS(power, spec_memalignment((void *)48));
}

TEST(other_answers) {
    begin();
    says.trimmed = 2;
    CHECK_BREAKS(trims, spec_trim());
    says.trimmed = -1;
    CHECK_BREAKS(trims, spec_trim());
    says.refusal = EINVAL;
    model.may_refuse = true;
    CHECK_BREAKS(says_why, spec_allocate(&model, 0, a(CALL_POSIX_MEMALIGN, 100)));
    says.refusal = ENOMEM;
    spec_allocate(&model, 0, a(CALL_POSIX_MEMALIGN, 100));
    says.writes_results = true;
    CHECK_BREAKS(says_why, spec_allocate(&model, 0, a(CALL_POSIX_MEMALIGN, 100)));
}
