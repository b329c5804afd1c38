/* lanes.h - threads that take turns: one runs, the others wait for it. What a program does is the same each time it is run,
 * although it does it in several threads. Lane 0 is the thread that called lanes_run. */
#ifndef HAK_TESTS_LANES_H
#define HAK_TESTS_LANES_H

#include <stdbool.h>

enum { LANES = 4 };

/* Calls STEP, which returns false when it is done, in the lane whose turn it is, until it is done. Then lane 0 goes on, and
 * the others still wait. */
void lanes_run(bool (*step)(void));

/* In STEP: LANE has the next turn. It is started if need be; where it cannot, the turn stays. */
void lanes_switch(unsigned lane);

/* Ends LANE, unless it is lane 0 or does not run: FAREWELL is called in it when its heap is gone already. If it is the
 * caller's, lane 0 has the next turn. */
void lanes_end(unsigned lane, void (*farewell)(void));

/* Whose turn it is. */
unsigned lanes_current(void);

/* In the child of a fork: it is the only lane. */
void lanes_forget(void);

#endif
