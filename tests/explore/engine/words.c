/* words.c - which atomic words are locations, whose accesses are steps.
 *
 * A word that only one thread ever touched is no step at all, but plain memory of that thread. When another touches it
 * after all, the search begins anew, with one more location that is shared. */
#include "fibre.h"

enum { ACCESSES_MOST = 1000 * 1000 };

enum { WORDS_LOG = 14, WORDS = 1 << WORDS_LOG };

static struct word {
    uintptr_t address;
    unsigned bytes;
    uint8_t users;
    int location; /* -1: none */
} words[WORDS];
static unsigned words_used;

static struct word *word_of(uintptr_t address, unsigned bytes) {
    uintptr_t i = address * 0x9e3779b97f4a7c15u >> (64 - WORDS_LOG);
    while (words[i % WORDS].bytes != 0 && words[i % WORDS].address != address) i++;
    struct word *word = &words[i % WORDS];
    if (word->bytes == 0) {
        if (++words_used > WORDS / 2) explore_fail("more than %d atomic words", WORDS / 2);
        *word = (struct word){.address = address, .bytes = bytes, .location = -1};
    }
    if (word->bytes != bytes) explore_fail("%p is accessed as %u and as %u bytes", (void *)address, bytes, word->bytes);
    return word;
}

/* Which words may be shared locations: a plain access asks it first. */
static uint8_t may_be_shared[1 << 12];

static unsigned filter_of(uintptr_t address) { return (unsigned)(address >> 3) % (sizeof may_be_shared); }

static void share_word(struct word *word) {
    if (word->location >= 0) return;
    if (graph.locations == LOCATIONS) explore_fail("more than %d shared locations", LOCATIONS);
    word->location = (int)graph.locations;
    graph.location[graph.locations] = (struct location){.address = word->address, .bytes = word->bytes};
    graph.locations++;
    may_be_shared[filter_of(word->address)] = true;
    now.anew = true;
}

int location_of(uintptr_t address, unsigned bytes) {
    if (++now.accesses > ACCESSES_MOST) explore_fail("more than %d accesses: an endless loop?", ACCESSES_MOST);
    struct word *word = word_of(address, bytes);
    int location = word->location;
    word->users |= (uint8_t)(1u << now.current);
    if ((word->users & (word->users - 1)) != 0) share_word(word);
    return now.anew ? -1 : location;
}

void run_share(uintptr_t address, unsigned bytes) { share_word(word_of(address, bytes)); }

bool run_is_shared(uintptr_t address, unsigned bytes) { return word_of(address, bytes)->location >= 0; }

int shared_location_of(uintptr_t address, unsigned bytes) {
    share_word(word_of(address, bytes));
    if (now.anew) run_cut();
    return location_of(address, bytes);
}

void for_each_shared(uintptr_t address, size_t bytes, void (*visit)(unsigned location, uintptr_t code), uintptr_t code) {
    bool any = false;
    for (uintptr_t word = address & ~(uintptr_t)7; word < address + bytes && !any; word += 8)
        any = may_be_shared[filter_of(word)];
    for (unsigned i = 0; any && i < graph.locations && !now.anew; i++) {
        const struct location *at = &graph.location[i];
        if (at->address + at->bytes > address && address + bytes > at->address) visit(i, code);
    }
}
