/* contents.h - what the model writes into blocks, and finds there again. Each word is derived from a key and the word's
 * place, so that a block which overlaps another, lost bytes in a move or was written to by the allocator shows it.
 *
 * Blocks as long as slabs have them are written in full. Of longer ones, which consist of pages, both ends and a few words
 * of each page are: enough to see a page that was lost, and fast enough for a fuzzer. */
#ifndef HAK_TESTS_CONTENTS_H
#define HAK_TESTS_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void contents_write(void *start, size_t bytes, uint64_t key);

/* Whether what contents_write(START, BYTES, KEY) wrote below offset LIMIT is still there, perhaps elsewhere. */
bool contents_hold(const void *start, size_t bytes, size_t limit, uint64_t key);

/* Whether all is zero: the last byte too; of a long block what contents_write would have left there, at any place. */
bool contents_are_zero(const void *start, size_t bytes);

#endif
