/* start.h - the process's first operation: options, window, heaps, fork handlers. */
#ifndef HAK_API_START_H
#define HAK_API_START_H

#include "api/options.h"
#include "base/attributes.h"
#include "hakmem/stats_page.h"

#include <stdatomic.h>
#include <stdint.h>

extern HAK_HIDDEN _Atomic uint32_t start_done;

/* Starts the allocator unless it has been started. Any thread; before libc is ready too. */
void start_now(void);

/* The options in force; changed by start_change_option alone. */
extern HAK_HIDDEN struct hak_options start_settings;

/* For other processes: page.c. */
extern HAK_HIDDEN const struct hak_page start_page;

/* Changes one, after the start: see options_change. Any thread. */
int start_change_option(const char *name, const char *value);

/* The value of one as text, even while another thread changes it: see options_value. */
void start_read_option(enum option_id id, char *text, size_t bytes);

HAK_INLINE void start_once(void) {
    /* acquire: pairs with the release at the end of the start. */
    if (HAK_UNLIKELY(!atomic_load_explicit(&start_done, memory_order_acquire))) start_now();
}

#endif
