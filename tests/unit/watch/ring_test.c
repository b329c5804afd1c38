/* ring_test.c - what is read of a ring is whole, and the last; whoever writes meanwhile.
 *
 * Planted defects it was seen to catch:
 *   a record is read while it is written     records_are_whole, a_record_is_read_as_it_was_or_not_at_all
 *   two writers share a slot                 a_slot_has_one_writer, an_overtaken_writer_spoils_nothing
 *   an overtaken writer puts its old back    an_overtaken_writer_spoils_nothing
 */
#include "watch/ring.h"

#include "child.h"
#include "interrupted.h"

#include <pthread.h>
#include <stdatomic.h>

struct record {
    uint64_t number, values[6];
};

enum { KEPT = 8 };
static struct ring_slot slots[KEPT];
static counter last_number;
static const struct ring ring = {slots, &last_number, KEPT, sizeof(struct record) / sizeof(uint64_t)};

static uint64_t add(uint64_t value) {
    return ring_add(&ring, &(struct record){.values = {value, value + 1, value + 2, value + 3, value + 4, value + 5}});
}

static bool is_whole(const struct record *record) {
    for (uint64_t i = 1; i < 6; i++)
        if (record->values[i] != record->values[0] + i) return false;
    return true;
}

static bool is_read(uint64_t number, struct record *record) {
    if (!ring_read(&ring, number, record)) return false;
    CHECK(record->number == number && is_whole(record));
    return true;
}

static void fill(void) {
    struct record record;
    CHECK(!is_read(1, &record));
    for (uint64_t i = 1; i <= 3 * KEPT; i++) {
        CHECK_EQ(add(10 * i), i);
        CHECK(!is_read(i + 1, &record) && is_read(i, &record));
        CHECK_EQ(record.values[0], 10 * i);
    }
    for (uint64_t i = 1; i <= 3 * KEPT; i++) CHECK_AT(is_read(i, &record) == (i > 2 * KEPT), i);
}

TEST(the_last_are_kept) { IN_CHILD(fill); }

/* ---- at once -------------------------------------------------------------------------------------------- */

/* Many threads, while others read: each that is read is whole, and of one of them. */
enum { WRITERS = 4, EACH = CHECK_SHADOWED ? 2000 : 100000 };
static atomic_bool over;
static atomic_ulong read_well;

static void *add_often(void *unused) {
    for (uint64_t i = 0; i < EACH; i++) add(8 * i);
    return unused;
}

static void *read_often(void *unused) {
    struct record record;
    while (!atomic_load(&over)) {
        const uint64_t made = counter_read(&last_number);
        for (uint64_t number = made > KEPT ? made - KEPT + 1 : 1; number <= made; number++)
            if (is_read(number, &record)) atomic_fetch_add(&read_well, 1);
    }
    return unused;
}

static void write_and_read(void) {
    pthread_t writers[WRITERS], reader;
    CHECK_EQ(pthread_create(&reader, NULL, read_often, NULL), 0);
    for (int i = 0; i < WRITERS; i++) CHECK_EQ(pthread_create(&writers[i], NULL, add_often, NULL), 0);
    for (int i = 0; i < WRITERS; i++) pthread_join(writers[i], NULL);
    while (atomic_load(&read_well) == 0) sched_yield();
    atomic_store(&over, true);
    pthread_join(reader, NULL);
    CHECK_EQ(counter_read(&last_number), (uint64_t)WRITERS * EACH);
}

TEST(records_are_whole) { IN_CHILD(write_and_read); }

/* All slots are written anew, and once more. */
static void overtake(void) {
    static uint64_t value;
    for (int i = 0; i < 2 * KEPT; i++) add(value += 8);
}

static void read_newest(void) {
    struct record record;
    is_read(counter_read(&last_number), &record);
}

static void read_while_they_change(void) {
    overtake();
    interrupted(read_newest, overtake);
}

TEST(a_record_is_read_as_it_was_or_not_at_all) { IN_CHILD(read_while_they_change); }

static counter newest[KEPT];

static void overtake_and_look(void) {
    overtake();
    for (int i = 0; i < KEPT; i++) counter_raise(&newest[i], counter_read(&slots[i].values[0]));
}

static void write_and_look(void) {
    struct record record;
    add(1000);
    for (int i = 0; i < KEPT; i++) {
        const uint64_t least = counter_read(&newest[i]), number = counter_read(&slots[i].values[0]);
        CHECK(number >= least);
        if (number != 0) is_read(number, &record);
    }
}

static void write_while_others_do(void) { interrupted(write_and_look, overtake_and_look); }

TEST(an_overtaken_writer_spoils_nothing) { IN_CHILD(write_while_others_do); }

/* A slot that a writer has taken is left alone. */
static void find_a_taken_slot(void) {
    struct record record;
    const uint64_t number = add(1), next = number + KEPT;
    atomic_store(&slots[(number - 1) % KEPT].taken, 1);
    for (uint64_t i = 1; i <= KEPT; i++) add(100 + i);
    CHECK(is_read(number, &record) && record.values[0] == 1);
    CHECK(!is_read(next, &record));
    CHECK(is_read(next - 1, &record));
    atomic_store(&slots[(number - 1) % KEPT].taken, 0);
}

TEST(a_slot_has_one_writer) { IN_CHILD(find_a_taken_slot); }
