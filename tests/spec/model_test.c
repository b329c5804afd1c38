/* model_test.c - the judge judged: each rule that model.c judges by is broken by an answer that only it forbids, and answers that break
 * none pass. There is no allocator here; blocks lie where the test says. The rules errno_kept, null, power and trims are calls.c's
 * (calls_test.c); conserved and child are of whole processes: planted defects show that they can be broken. */
#include "breaks.h" /* first: it says _GNU_SOURCE */

static struct model model;
static _Alignas(4096) unsigned char memory[4 * 4096];

/* Each test begins with an empty model. */
static void begin(void) {
    note_breaches();
    memset(&model, 0, sizeof model);
    memset(memory, 0, sizeof memory);
}

static void is_given(unsigned slot, struct request request, size_t place, size_t usable) {
    model_allocated(&model, slot, request, (struct answer){memory + place, 0, usable});
}

static void is_refused(struct request request, int error) {
    model_allocated(&model, 9, request, (struct answer){NULL, error, 0});
}

static struct request a(enum spec_call call, size_t bytes) { return (struct request){call, 0, 1, bytes}; }

static struct request aligned(enum spec_call call, size_t alignment, size_t bytes) {
    return (struct request){call, alignment, 1, bytes};
}

TEST(blocks_that_are_as_they_should_be) {
    begin();
    is_given(0, a(CALL_MALLOC, 100), 0, 112);
    is_given(1, a(CALL_MALLOC, 0), 112, 16);
    is_given(2, a(CALL_CALLOC, 300), 128, 320);
    is_given(3, aligned(CALL_MEMALIGN, 1000, 24), 1024, 1024);
    is_given(4, a(CALL_PVALLOC, 1), 4096, 4096);
    for (unsigned slot = 0; slot < 5; slot++) model_check(&model, slot, model.blocks[slot].usable);
    model_freed(&model, 0, 112);
    is_given(0, a(CALL_MALLOC, 112), 0, 112);
    CHECK_EQ(model.asked_bytes, 112 + 300 + 24 + 1);
    model_expanded(&model, 4, 8000, 8192, 8192);
    model_resized(&model, 1, a(CALL_REALLOC, SIZE_MAX), (struct answer){NULL, ENOMEM, 16});
    model_resized_to_nothing(&model, 1, (struct answer){NULL, 0, 0});
    model.may_refuse = true;
    is_refused(a(CALL_MALLOC, 100), ENOMEM);
}

TEST(places_and_lengths) {
    begin();
    is_given(0, a(CALL_MALLOC, 100), 256, 112);
    CHECK_BREAKS(apart, is_given(1, a(CALL_MALLOC, 100), 352, 112));
    begin();
    is_given(0, a(CALL_MALLOC, 100), 256, 112);
    CHECK_BREAKS(apart, is_given(1, a(CALL_MALLOC, 100), 160, 112));
    begin();
    CHECK_BREAKS(aligned, is_given(0, a(CALL_MALLOC, 8), 8, 16));
    CHECK_BREAKS(aligned, is_given(0, aligned(CALL_ALIGNED_ALLOC, 256, 8), 128, 256));
    CHECK_BREAKS(aligned, is_given(0, a(CALL_VALLOC, 8), 128, 4096));
    CHECK_BREAKS(enough, is_given(0, a(CALL_MALLOC, 100), 0, 96));
    CHECK_BREAKS(enough, is_given(0, a(CALL_MALLOC, 0), 0, 0));
    CHECK_BREAKS(enough, is_given(0, a(CALL_PVALLOC, 100), 0, 128));
    begin();
    is_given(0, a(CALL_MALLOC, 100), 0, 112);
    CHECK_BREAKS(stable, model_freed(&model, 0, 128));
    CHECK_BREAKS(good, model_good_enough(100, 112, 96));
    CHECK_BREAKS(good, model_good_enough(100, 112, 128));
    CHECK_BREAKS(good, model_good_enough(100000, 126976, 126912));
    CHECK_BREAKS(good, model_good_size(100, 96, 96));
    CHECK_BREAKS(good, model_good_size(100, 112, 128));
    CHECK_BREAKS(too_large, model_good_size(SIZE_MAX, 16, 16));
}

static _Alignas(16) unsigned char much[300000];
static const struct answer all_of_it = {much, 0, sizeof much};

/* A long block that lost a byte at PLACE, and one that is zero but for that byte. */
static void lose_byte(size_t place) {
    begin();
    model_allocated(&model, 0, a(CALL_MALLOC, sizeof much), all_of_it);
    much[place] ^= 1;
    CHECK_BREAKS(kept, model_check(&model, 0, sizeof much));
    begin();
    memset(much, 0, sizeof much);
    much[place] = 1;
    CHECK_BREAKS(zero, model_allocated(&model, 0, a(CALL_CALLOC, sizeof much), all_of_it));
    memset(much, 0, sizeof much);
}

TEST(contents) {
    static const size_t places[] = {0, 7, 16384, 65536, 262144, 299999};
    begin();
    is_given(0, a(CALL_MALLOC, 100), 0, 112);
    memory[111] ^= 1;
    CHECK_BREAKS(kept, model_check(&model, 0, 112));
    begin();
    memory[99] = 1;
    CHECK_BREAKS(zero, is_given(0, a(CALL_CALLOC, 100), 0, 112));
    is_given(0, a(CALL_CALLOC, 99), 0, 112);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) lose_byte(places[i]);
}

/* A block that moved, with its contents or without its last word. */
static void move(size_t to, size_t kept, size_t asked, size_t usable) {
    memcpy(memory + to, memory, kept);
    model_resized(&model, 0, a(CALL_REALLOC, asked), (struct answer){memory + to, 0, usable});
}

TEST(resizing) {
    begin();
    is_given(0, a(CALL_MALLOC, 100), 0, 112);
    move(1024, 112, 200, 208);
    begin();
    is_given(0, a(CALL_MALLOC, 100), 0, 112);
    CHECK_BREAKS(kept, move(1024, 104, 200, 208));
    CHECK_BREAKS(kept, move(2048, 56, 64, 64));
    CHECK_BREAKS(shrinks, model_resized(&model, 0, a(CALL_REALLOC, 112), (struct answer){NULL, ENOMEM, 112}));
    CHECK_BREAKS(reason, model_resized(&model, 0, a(CALL_REALLOC, 113), (struct answer){NULL, ENOMEM, 112}));
    CHECK_BREAKS(too_large, model_resized(&model, 0, a(CALL_REALLOC, SIZE_MAX), (struct answer){memory, 0, 112}));
    CHECK_BREAKS(resized, model_resized_to_nothing(&model, 0, (struct answer){memory, 0, 16}));
    model.may_refuse = true;
    CHECK_BREAKS(stays, model_resized(&model, 0, a(CALL_REALLOC, 500), (struct answer){NULL, ENOMEM, 96}));
    CHECK_BREAKS(expands, model_expanded(&model, 0, 100, 0, 112));
    CHECK_BREAKS(expands, model_expanded(&model, 0, 200, 150, 150));
    CHECK_BREAKS(expands, model_expanded(&model, 0, 50, 96, 96));
    CHECK_BREAKS(stays, model_expanded(&model, 0, 200, 0, 208));
    memory[3] ^= 1;
    CHECK_BREAKS(stays, model_resized(&model, 0, a(CALL_REALLOC, 500), (struct answer){NULL, ENOMEM, 112}));
    CHECK_BREAKS(kept, model_expanded(&model, 0, 50, 112, 112));
}

TEST(refusals) {
    begin();
    CHECK_BREAKS(reason, is_refused(a(CALL_MALLOC, 100), ENOMEM));
    CHECK_BREAKS(reason, is_refused(aligned(CALL_MEMALIGN, 3, 100), EINVAL));
    CHECK_BREAKS(says_why, is_refused(a(CALL_MALLOC, SIZE_MAX), EINVAL));
    CHECK_BREAKS(says_why, is_refused(aligned(CALL_ALIGNED_ALLOC, 3, SIZE_MAX), ENOMEM));
    CHECK_BREAKS(says_why, is_refused((struct request){CALL_CALLOC, 0, SIZE_MAX, 2}, 0));
    CHECK_BREAKS(too_large, is_given(0, a(CALL_VALLOC, (size_t)PTRDIFF_MAX + 1), 0, 4096));
    CHECK_BREAKS(too_large, is_given(0, (struct request){CALL_CALLOC, 0, (size_t)1 << 63, 2}, 0, 16));
    CHECK_BREAKS(bad_alignment, is_given(0, aligned(CALL_ALIGNED_ALLOC, 0, 1), 0, 16));
    CHECK_BREAKS(bad_alignment, is_given(0, aligned(CALL_POSIX_MEMALIGN, 4, 1), 0, 16));
    CHECK_BREAKS(bad_alignment, is_given(0, aligned(CALL_MEMALIGN, SIZE_MAX, 1), 0, 16));
    is_refused(aligned(CALL_ALIGNED_ALLOC, 48, 1), EINVAL);
    is_refused(aligned(CALL_POSIX_MEMALIGN, 4, 1), EINVAL);
    is_refused(aligned(CALL_MEMALIGN, (size_t)1 << 63, 1), ENOMEM);
    is_refused(a(CALL_MALLOC, (size_t)1 << 46), ENOMEM);
    model.may_refuse = true;
    CHECK_BREAKS(says_why, is_refused(a(CALL_MALLOC, 100), 0));
}
