/* no_purger.h - whoever includes this keeps the library's own giving back, by its thread and by slow paths, out of the
 * process: the test works on spans, slabs or heaps by hand, mostly without their locks. */
#ifndef HAK_TESTS_NO_PURGER_H
#define HAK_TESTS_NO_PURGER_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include "ace/decay.h"
#include "heap/purger.h"

/* After the library's own constructor, which has a priority. */
__attribute__((constructor)) static void keep_purger_out(void) { purger_configure(ACE_NEVER, false); }

#endif
