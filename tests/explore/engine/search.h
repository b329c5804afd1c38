/* search.h - which executions are still to be run, and the choices of the one that runs.
 *
 * The search is TruSt (Kokologiannakis et al., POPL 2022): a read takes its value from the newest write, and a graph
 * for every other write that is consistent is put aside; a write comes last in its modification order, and put aside
 * are a graph for every other place and one for every earlier read that could read from it instead. Such a graph keeps what
 * the write depends on and what came before the read. It is made only from the one graph in which all that it
 * leaves out was chosen in the newest way, so every consistent graph is run exactly once. */
#ifndef EXPLORE_SEARCH_H
#define EXPLORE_SEARCH_H

#include "graph.h"

/* Adds the next event of THREAD. A read whose thread may not go on with the newest value has it nevertheless: a
 * later write revisits it. */
struct event *search_add_read(unsigned thread, int order, unsigned location, enum awaits awaits, uint64_t wanted);

/* NULL: two read-modify-writes took the same value; there is no such execution. */
struct event *search_add_write(unsigned thread, int order, unsigned location, uint64_t value, bool exclusive);
struct event *search_add_fence(unsigned thread, int order);

/* The next graph to run, which is then loaded; false when there is none. */
bool search_next(void);

/* Forgets all, for another search. */
void search_begin(void);

#endif
