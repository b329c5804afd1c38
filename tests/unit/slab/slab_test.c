/* slab_test.c - a slab of every class against a model of one byte a block; misuse in children that must
 * say a line and abort.
 *
 * Planted defects it was seen to catch:
 *   low_word is not lowered by a put             every_class_against_a_model
 *   carving before blocks that came back         every_class_against_a_model
 *   a drain forgets to count                     every_class_against_a_model
 *   the last word of a remote batch is lost      every_class_against_a_model
 *   one class's inverse is off by one bit        offsets_divide_exactly
 *   a block is put twice in one batch, unseen    misuse_ends_the_process
 *   a released slab keeps its bits or its words  slabs_come_and_go
 */
#include "blocks.h"
#include "no_purger.h"
#include "slab/slab.h"

#include <sys/wait.h>

enum { MOST_BLOCKS = 4096 };

/* Where a block is. */
enum place { FREE, IN_USE, REMOTE };

static struct {
    uint32_t first, blocks, bytes;
    char *start;
    uint8_t place[MOST_BLOCKS];
    uint32_t carved; /* blocks below were handed out once */
} model;

static struct heap *const nobody = (struct heap *)0x1000;

/* Of a slab in which blocks start: a medium block has its whole slab. */
static uint32_t named_pages(unsigned class) { return class_is_medium(class) ? 1 : slab_classes[class].pages; }

static void create(unsigned class) {
    const struct slab_class *shape = &slab_classes[class];
    memset(&model, 0, sizeof model);
    model.first = slab_create(class, ACE_SPARSE);
    CHECK(model.first != 0);
    model.blocks = shape->blocks;
    model.bytes = shape->block_bytes;
    model.start = page_address(model.first);
    for (uint32_t page = model.first; page < model.first + shape->pages; page++) {
        if (page < model.first + named_pages(class)) CHECK_EQ(slab_head(page), model.first);
        CHECK_EQ(page_word(page), 0);
    }
    CHECK_EQ(slab_at(model.first)->free, shape->blocks);
    CHECK_EQ(slab_at(model.first)->span.class, class);
    slab_set_owner(model.first, nobody, 640 + class);
    for (uint32_t page = model.first; page < model.first + shape->pages; page++)
        CHECK_EQ(page_word(page), page < model.first + named_pages(class) ? 640 + class : 0);
}

static uint32_t count(enum place place) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < model.blocks; i++) sum += model.place[i] == place;
    return sum;
}

static void take(uint32_t want) {
    static void *stack[MOST_BLOCKS + 1];
    void **end = stack + want;
    uint32_t got = slab_take(model.first, end, want), next = 0;
    uint32_t available = count(FREE);
    CHECK_EQ(got, want < available ? want : available);
    for (uint32_t i = 0; i < got; i++) { /* lowest first, downward from the end */
        while (model.place[next] != FREE) next++;
        CHECK_AT(*--end == model.start + (size_t)next * model.bytes, next);
        model.place[next] = IN_USE;
        memset(*end, (int)next, model.bytes < 64 ? model.bytes : 64);
        if (next >= model.carved) model.carved = next + 1;
    }
}

/* Up to COUNT random blocks that are in use; those near each other often together. */
static size_t choose_used(struct rng *rng, void **blocks, size_t most, enum place become) {
    size_t chosen = 0;
    uint32_t at = (uint32_t)rng_below(rng, model.blocks), step = rng_below(rng, 2) ? 1 : 67;
    for (uint32_t tried = 0; tried < model.blocks && chosen < most; tried++) {
        at = (at + step) % model.blocks;
        if (model.place[at] != IN_USE) continue;
        model.place[at] = (uint8_t)become;
        blocks[chosen++] = model.start + (size_t)at * model.bytes;
    }
    return chosen;
}

static void check_counts(void) {
    const struct slab *slab = slab_at(model.first);
    CHECK_EQ(slab->free, count(FREE));
    CHECK_EQ(slab->carved, model.carved);
    for (uint32_t word = 0; word < slab->low_word && word * 64 < model.carved; word++)
        CHECK_AT(slab->bits[word] == 0, word);
}

static void drain(void) {
    CHECK_EQ(slab_drain(model.first), count(REMOTE));
    for (uint32_t i = 0; i < model.blocks; i++)
        if (model.place[i] == REMOTE) model.place[i] = FREE;
}

TEST(every_class_against_a_model) {
    static void *blocks[MOST_BLOCKS + 1];
    char elsewhere;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        struct rng rng = {check_now.seed + class};
        create(class);
        for (size_t i = 0; i < check_count(600); i++) {
            size_t most = 1 + rng_below(&rng, rng_below(&rng, 4) ? 70 : model.blocks);
            size_t dice = rng_below(&rng, 5), chosen;
            if (dice < 2) {
                take((uint32_t)most);
            } else if (dice == 2) {
                chosen = choose_used(&rng, blocks, most, FREE);
                blocks[chosen] = &elsewhere; /* a block of another slab ends the batch */
                if (chosen != 0) CHECK_EQ(slab_put(model.first, blocks, chosen + 1), chosen);
            } else if (dice == 3) {
                chosen = choose_used(&rng, blocks, most, REMOTE);
                blocks[chosen] = page_address(model.first + slab_classes[class].pages);
                CHECK_EQ(slab_put_remote(model.first, blocks, chosen + 1), chosen);
            } else {
                drain();
            }
            check_counts();
        }
        drain();
        size_t rest = choose_used(&rng, blocks, model.blocks, FREE);
        if (rest != 0) CHECK_EQ(slab_put(model.first, blocks, rest), rest);
        check_counts();
        slab_release(model.first);
    }
}

/* Only the starts of blocks may have a number below the number of blocks: offsets in the slab, and as far
 * again on both sides. */
TEST(offsets_divide_exactly) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        const struct slab_class *shape = &slab_classes[class];
        int64_t slab_bytes = (int64_t)(shape->pages * PAGE_BYTES), block_bytes = shape->block_bytes;
        for (int64_t offset = -slab_bytes; offset < 2 * slab_bytes; offset++) {
            uint64_t product = (uint64_t)offset * shape->inverse;
            uint64_t number = product >> shape->inverse_shift | product << (64 - shape->inverse_shift);
            bool is_start = offset >= 0 && offset % block_bytes == 0 && offset / block_bytes < shape->blocks;
            CHECK_AT(is_start ? number == (uint64_t)(offset / block_bytes) : number >= shape->blocks, offset);
        }
    }
}

TEST(slabs_come_and_go) {
    static void *stack[MOST_BLOCKS];
    struct span_counts before, after;
    span_counts_read(&before);
    for (int round = 0; round < 3; round++) {
        for (unsigned class = 0; class < SIZE_CLASSES; class++) {
            create(class);
            uint32_t first = model.first, blocks = model.blocks;
            CHECK_EQ(slab_take(first, stack + blocks, blocks), blocks);
            CHECK_EQ(slab_put(first, stack, blocks), blocks);
            slab_release(first);
            CHECK(atomic_load(&slab_at(first)->owner) == NULL);
            for (uint32_t page = first; page < first + slab_classes[class].pages; page++)
                CHECK_EQ(page_word(page), 0);
        }
    }
    span_counts_read(&after);
    CHECK_EQ(after.used_pages, before.used_pages);
    CHECK_EQ(after.taken - before.taken, after.given - before.given);
}

/* ---- several threads give back what one takes ---------------------------------------------------- */

enum { THREADS = 3 };
static void *handed[THREADS][MOST_BLOCKS];
static size_t handed_count[THREADS];

static void *give_back(void *argument) {
    size_t which = (size_t)(uintptr_t)argument;
    for (size_t at = 0; at < handed_count[which];) {
        size_t batch = handed_count[which] - at < 7 ? handed_count[which] - at : 7;
        for (size_t i = at; i < at + batch; i++) *(char *)handed[which][i] = (char)which;
        CHECK_EQ(slab_put_remote(model.first, &handed[which][at], batch), batch);
        at += batch;
    }
    return NULL;
}

TEST(several_threads_give_back) {
    static void *stack[MOST_BLOCKS];
    for (size_t round = 0; round < check_count(300); round++) {
        create((unsigned)(round * 7) % SIZE_CLASSES);
        CHECK_EQ(slab_take(model.first, stack + model.blocks, model.blocks), model.blocks);
        memset(handed_count, 0, sizeof handed_count);
        for (size_t i = 0; i < model.blocks; i++)
            handed[i % THREADS][handed_count[i % THREADS]++] = stack[model.blocks - 1 - i];
        pthread_t threads[THREADS];
        for (size_t i = 0; i < THREADS; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, give_back, (void *)(uintptr_t)i), 0);
        uint32_t drained = 0;
        while (drained < model.blocks) drained += slab_drain(model.first);
        CHECK_EQ(drained, model.blocks);
        CHECK_EQ(slab_at(model.first)->free, model.blocks);
        for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(slab_drain(model.first), 0);
        slab_release(model.first);
    }
}

/* ---- misuse ------------------------------------------------------------------------------------- */

static void put(void *block) { slab_put(model.first, &block, 1); }
static void put_remote(void *block) { slab_put_remote(model.first, &block, 1); }
static char *block_at(uint32_t number) { return model.start + (size_t)number * model.bytes; }

static void put_twice(void) {
    put(block_at(2));
    put(block_at(2));
}
static void put_twice_in_a_batch(void) {
    void *blocks[] = {block_at(1), block_at(2), block_at(1)};
    slab_put(model.first, blocks, 3);
}
static void put_misaligned(void) { put(block_at(2) + 1); }
static void put_misaligned_in_a_batch(void) {
    void *blocks[] = {block_at(1), block_at(2) + 16, block_at(3)};
    slab_put(model.first, blocks, 3);
}
static void remote_misaligned_in_a_batch(void) {
    void *blocks[] = {block_at(1), block_at(2) + 16, block_at(3)};
    slab_put_remote(model.first, blocks, 3);
}
static void put_half_way(void) { put(block_at(2) + model.bytes / 2); }
static void put_before_the_end(void) { put(block_at(3) - 1); }
static void put_what_was_never_taken(void) { put(block_at(6)); }
static void put_the_tail(void) { put(block_at(model.blocks)); }
static void remote_of_what_was_never_taken(void) {
    put_remote(block_at(6));
    slab_drain(model.first);
}
static void remote_twice(void) {
    put_remote(block_at(2));
    put_remote(block_at(2));
}
static void remote_twice_in_a_batch(void) {
    void *blocks[] = {block_at(1), block_at(2), block_at(1)};
    slab_put_remote(model.first, blocks, 3);
}
static void remote_misaligned(void) { put_remote(block_at(2) + 8); }
static void remote_tail(void) { put_remote(block_at(model.blocks)); }
static void remote_and_own(void) {
    put_remote(block_at(2));
    put(block_at(2));
    slab_drain(model.first);
}

/* The child must end by SIGABRT after one line that begins with "hakmem: " and holds WORDS. */
static void check_dies(size_t number, void (*misuse)(void), const char *words) {
    char text[600];
    size_t length = 0;
    int ends[2], status = -1;
    CHECK_EQ(pipe(ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        dup2(ends[1], STDERR_FILENO);
        misuse();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t more; (more = read(ends[0], text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)more;
    text[length] = '\0';
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK_AT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, number);
    CHECK(strncmp(text, "hakmem: free of 0x", 18) == 0);
    CHECK_AT(strstr(text, words) != NULL, number);
    const char *end = strchr(text, '\n');
    CHECK(end != NULL && strstr(end, "hakmem:") == NULL); /* one line; an emulator may add its own */
}

TEST(misuse_ends_the_process) {
    static const struct {
        void (*run)(void);
        const char *words;
        bool needs_a_tail;
    } cases[] = {
        {put_twice, "already free", false},
        {put_twice_in_a_batch, "already free", false},
        {put_misaligned, "not to the start", false},
        {put_misaligned_in_a_batch, "not to the start", false},
        {remote_misaligned_in_a_batch, "not to the start", false},
        {put_half_way, "not to the start", false},
        {put_before_the_end, "not to the start", false},
        {put_what_was_never_taken, "not to the start", false},
        {put_the_tail, "not to the start", true},
        {remote_twice, "already free", false},
        {remote_twice_in_a_batch, "already free", false},
        {remote_of_what_was_never_taken, "not to the start", false},
        {remote_misaligned, "not to the start", false},
        {remote_tail, "not to the start", true},
        {remote_and_own, "already free", false},
    };
    const unsigned classes[] = {1, 2, 15, 41, 63}; /* bitmaps of their own and inline ones, with and without a tail */
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        create(classes[i]);
        take(6);
        bool has_tail = (size_t)model.blocks * model.bytes < slab_classes[classes[i]].pages * PAGE_BYTES;
        for (size_t j = 0; j < sizeof cases / sizeof cases[0]; j++)
            if (has_tail || !cases[j].needs_a_tail) check_dies(j, cases[j].run, cases[j].words);
    }
}
