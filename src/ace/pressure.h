/* pressure.h - whether memory is short on the machine, so that free memory should be returned immediately. A pure function; any
 * thread. */
#ifndef HAK_ACE_PRESSURE_H
#define HAK_ACE_PRESSURE_H

#include "ace/objective.h"

#include <stdint.h>

/* UINT64_MAX: no such limit, or nothing is known. */
struct ace_pressure_input {
    uint64_t limit_bytes; /* beyond which the kernel kills */
    uint64_t high_bytes;  /* beyond which it slows the process down */
    uint64_t used_bytes;  /* the use that both limits apply to */
    uint64_t stalled;     /* the share of the last ten seconds in which some task waited for memory, in hundredths of a per cent */
    enum ace_objective objective;
};

enum ace_pressure_reason {
    ACE_PRESSURE_NONE,
    ACE_PRESSURE_LIMIT, /* little is left below the limit */
    ACE_PRESSURE_HIGH,  /* or below the mark beyond which the process is slowed down */
    ACE_PRESSURE_STALLS /* tasks wait for memory */
};

enum ace_pressure_reason ace_pressure(struct ace_pressure_input input);

/* For a process that returns what is free before it grows, rather than once it was seen to have grown: from what use on it does. UINT64_MAX
 * where there is no limit. And how much it may grow before it asks for the use again. */
uint64_t ace_pressure_mark_bytes(struct ace_pressure_input input);
uint64_t ace_pressure_unasked_bytes(struct ace_pressure_input input);

#endif
