/* books_test.c - memory for the allocator's own books.
 *
 * Planted defects it was seen to catch:
 *   sizes are not rounded to lines               pieces_are_zero_apart_and_counted
 *   the lock is not taken                        threads_get_pieces_of_their_own
 *   no smaller mapping when 1 MiB is refused     refusals
 *   a refused take is counted                    refusals
 */
#include "blocks.h"
#include "faults/fail_calls.h"
#include "region/books.h"

enum { PIECES = 2000, THREADS = 4, LINE = 64 };

struct piece {
    char *start;
    size_t bytes;
};

static int by_address(const void *a, const void *b) {
    const struct piece *left = a, *right = b;
    return left->start < right->start ? -1 : left->start > right->start;
}

/* Sorts by exchange: qsort may allocate, and then from books. */
static void check_apart(struct piece *pieces, size_t count) {
    for (size_t gap = count / 2; gap > 0; gap /= 2) {
        for (size_t i = gap; i < count; i++) {
            struct piece piece = pieces[i];
            size_t j = i;
            for (; j >= gap && by_address(&pieces[j - gap], &piece) > 0; j -= gap) pieces[j] = pieces[j - gap];
            pieces[j] = piece;
        }
    }
    for (size_t i = 0; i + 1 < count; i++)
        CHECK_AT(pieces[i].start + pieces[i].bytes <= pieces[i + 1].start, i);
}

static struct piece take(size_t bytes) {
    struct piece piece = {books_take(bytes), bytes};
    CHECK(piece.start != NULL);
    CHECK(is_aligned(piece.start, LINE));
    CHECK(block_is_zero(piece.start, bytes));
    memset(piece.start, 0xaa, bytes);
    return piece;
}

TEST(pieces_are_zero_apart_and_counted) {
    static struct piece pieces[PIECES];
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < PIECES; i++) {
        size_t bytes = 1 + rng_below(&rng, i % 100 == 0 ? MIB(3) : i % 10 == 0 ? KIB(40) : 300);
        uint64_t before = books_bytes();
        pieces[i] = take(bytes);
        CHECK_EQ(books_bytes() - before, (bytes + LINE - 1) / LINE * LINE);
    }
    check_apart(pieces, PIECES);
}

static struct piece of_threads[THREADS][PIECES];

static void *take_many(void *argument) {
    struct piece *mine = argument;
    for (size_t i = 0; i < PIECES; i++) mine[i] = take(1 + i * 37 % 1000);
    return NULL;
}

TEST(threads_get_pieces_of_their_own) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, take_many, of_threads[i]), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    check_apart(of_threads[0], THREADS * (size_t)PIECES);
}

TEST(refusals) {
    /* Whatever is left of the mapping now, two MiB do not fit in it. */
    fail_arm(FAIL_MMAP, 1, true, 0);
    uint64_t before = books_bytes();
    errno = 4711;
    CHECK(books_take(MIB(2)) == NULL);
    while (books_take(KIB(16)) != NULL) {}
    uint64_t used_up = books_bytes();
    CHECK(books_take(KIB(16)) == NULL);
    CHECK_EQ(books_bytes(), used_up);
    CHECK(used_up - before <= MIB(1));
    /* 1 MiB is refused, the 16 KiB that are needed are not. */
    fail_arm(FAIL_MMAP, 1, false, 0);
    take(KIB(16));
    CHECK_EQ(fail_counted(FAIL_MMAP), 2);
    fail_disarm();
    CHECK_EQ(errno, 4711);
    take(MIB(2));
}
