/* front.c - the constants behind front.h. */
#include "heap/front.h"

const struct front_constants front_constants = {
    .classes = {SIZE_CLASS_LOOKUP},
    .medium_classes = {MEDIUM_CLASS_LOOKUP},
    .aligned_classes = {ALIGNED_CLASS_LOOKUP},
};
