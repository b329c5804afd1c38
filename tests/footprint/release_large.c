/* release_large.c - large blocks freed by a process of one thread that then sleeps: no call of malloc or
 * free reminds the allocator of anything.
 *
 *     release_large [MIB]
 *
 * Planted defect it is to catch: decay that is only looked at in calls of malloc and free.
 */
#define CHECK_NO_MAIN
#include "footprint.h"

#define MOST_BLOCKS 4096
#define SLACK_BYTES MIB(8)

static struct {
    void *block;
    size_t size;
} blocks[MOST_BLOCKS];

int main(int argc, char **argv) {
    check_now.name = "release_large";
    size_t bytes = MIB(argc > 1 ? strtoul(argv[1], NULL, 10) : 1024), held = 0, count = 0;
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    alarm(120);
    struct rng rng = {11};
    memset(blocks, 0, sizeof blocks); /* resident before the first measurement */
    size_t start = rss_bytes();
    for (; held < bytes; count++) {
        size_t size = MIB(1) + rng_below(&rng, MIB(31) + 1);
        CHECK(count < MOST_BLOCKS);
        CHECK((blocks[count].block = malloc(size)) != NULL);
        blocks[count].size = size;
        block_fill(blocks[count].block, size, block_key(blocks[count].block, 11));
        held += size;
    }
    size_t peak = rss_bytes();
    CHECK(peak >= start + held);
    for (size_t i = 0; i < count; i++) {
        CHECK_AT(block_holds(blocks[i].block, blocks[i].size, block_key(blocks[i].block, 11)), i);
        free(blocks[i].block);
    }
    sleep_ms(IDLE_MILLISECONDS);
    size_t after = wait_for_rss(start + SLACK_BYTES, LATE_MILLISECONDS);
    check_say("release_large: start %zu KiB, peak %zu, after %zu, bound %zu", start >> 10, peak >> 10,
              after >> 10, (start + SLACK_BYTES) >> 10);
    CHECK(after <= start + SLACK_BYTES);
    check_say("ok release_large");
    return 0;
}
