/* distinct.h - whether every execution was another one: what the search promises. */
#ifndef EXPLORE_DISTINCT_H
#define EXPLORE_DISTINCT_H

#include "graph.h"

/* Whether the graph, whole, was not seen before. */
bool distinct_add(void);
void distinct_forget(void);

#endif
