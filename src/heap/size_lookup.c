/* size_lookup.c - the table behind size_class_of. */
#include "heap/front.h"

const unsigned char size_class_lookup[SMALL_MAX_BYTES / SMALLEST_BLOCK_BYTES + 1] = {SIZE_CLASS_LOOKUP};
