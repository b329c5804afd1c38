/* A burst of 160000 blocks of 256 bytes, of which one of sixteen lives on: scattered over all their pages. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 160000, BYTES = 256, ONE_OF = 16, SECONDS = 30 };

static char *blocks[BLOCKS];

int main(void) {
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BYTES);
        if (blocks[i] == NULL) return 1;
        memset(blocks[i], 1, BYTES);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (i % ONE_OF != 0) free(blocks[i]);
    sleep(SECONDS);
    return 0;
}
