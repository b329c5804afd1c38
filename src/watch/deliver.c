/* deliver.c - see deliver.h. A signal handler runs this, too: no locks, no allocation. */
#include "watch/deliver.h"

#include "heap/enter.h"
#include "os/os.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* Two copies: one is in force while the other is written, so a signal handler finds a complete one. */
static struct deliver_settings settings[2];
static char paths[2][DELIVER_PATH_BYTES];
static _Atomic unsigned current;

void deliver_configure(const struct deliver_settings *wanted) {
    unsigned next = 1 - atomic_load_explicit(&current, memory_order_relaxed); /* one thread at a time configures */
    size_t length = 0; /* by hand: libc may not be ready at the start */
    for (; length < DELIVER_PATH_BYTES - 1 && wanted->path[length] != '\0'; length++) paths[next][length] = wanted->path[length];
    paths[next][length] = '\0';
    settings[next] = *wanted;
    settings[next].path = paths[next];
    atomic_store_explicit(&current, next, memory_order_release); /* pairs with deliver */
}

/* PATH with the process's number in place of each %p. False when it is too long. */
static bool expand(const char *path, char *expanded, size_t bytes) {
    size_t used = 0;
    for (; *path != '\0' && used < bytes; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            used += (size_t)snprintf(expanded + used, bytes - used, "%d", (int)getpid());
            path++;
        } else {
            expanded[used++] = *path;
        }
    }
    if (used >= bytes) return false;
    expanded[used] = '\0';
    return true;
}

static bool write_file(const char *path, enum report_form form) {
    struct os_file file;
    return os_file_create(&file, path) && os_file_finish(&file, report_write(file.fd, form));
}

void deliver(void) {
    /* acquire: pairs with deliver_configure. */
    const struct deliver_settings *now = &settings[atomic_load_explicit(&current, memory_order_acquire)];
    int saved = errno;
    char path[256], error[12];
    thread_state.reporting = true;
    atomic_signal_fence(memory_order_seq_cst); /* the mark is set before the file is there, and cleared after it has its name */
    if (now->wanted && now->path[0] == '\0') {
        report_write(os_message_fd(), now->form);
    } else if (now->wanted) {
        bool fits = expand(now->path, path, sizeof path);
        if (!fits) errno = ENAMETOOLONG;
        if (!fits || !write_file(path, now->form))
            os_message("statistics cannot be written to %s: %s", now->path, os_error_name(errno, error));
    }
    atomic_signal_fence(memory_order_seq_cst);
    thread_state.reporting = false;
    errno = saved;
}

/* In the middle of a report of this thread another one would take away its file; the first one tells as much. */
static void on_signal(int number) {
    (void)number;
    if (!thread_state.reporting) deliver();
}

void deliver_on_signal(int number) {
    if (!os_on_signal(number, on_signal))
        os_message("signal %d is in use or cannot be had: it will not have statistics written", number);
}
