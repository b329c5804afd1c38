/* deliver.c - see deliver.h. A signal handler runs this, too: no locks, no allocation. */
#include "watch/deliver.h"

#include "base/counter.h"
#include "heap/enter.h"
#include "os/os.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* The settings as words, since a reader copies what may just be written. */
union delivery {
    struct {
        bool wanted;
        enum report_form form;
        char path[DELIVER_PATH_BYTES];
    };
    uint64_t words[2 + DELIVER_PATH_BYTES / sizeof(uint64_t)];
};

/* Settings number VERSION are in the copy of that parity: while the next are written, a signal handler finds these complete. */
enum { COPIES = 2, WORDS = sizeof(union delivery) / sizeof(uint64_t) };
static _Atomic uint64_t copies[COPIES][WORDS];
static counter version;

void deliver_configure(const struct deliver_settings *wanted) {
    const uint64_t next = counter_read(&version) + 1; /* one thread at a time configures */
    union delivery fresh;
    for (size_t i = 0; i < WORDS; i++) fresh.words[i] = 0; /* by hand, here and below: libc may not be ready at the start */
    fresh.wanted = wanted->wanted;
    fresh.form = wanted->form;
    for (size_t i = 0; i < DELIVER_PATH_BYTES - 1 && wanted->path[i] != '\0'; i++) fresh.path[i] = wanted->path[i];
    /* release, all: a thread that sees a word sees the version before, whose copy is another. */
    for (size_t i = 0; i < WORDS; i++) atomic_store_explicit(&copies[next % COPIES][i], fresh.words[i], memory_order_release);
    atomic_store_explicit(&version, next, memory_order_release);
}

/* Anew where two changes came meanwhile: the second is written over what is read. */
static void read_settings(union delivery *now) {
    uint64_t read;
    do {
        /* acquire, all: pairs with deliver_configure. */
        read = atomic_load_explicit(&version, memory_order_acquire);
        for (size_t i = 0; i < WORDS; i++) now->words[i] = atomic_load_explicit(&copies[read % COPIES][i], memory_order_acquire);
    } while (counter_read(&version) != read);
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
    int saved = errno;
    char path[256], error[12];
    union delivery now;
    read_settings(&now);
    thread_state.reporting = true;
    atomic_signal_fence(memory_order_seq_cst); /* the mark is set before the file is there, and cleared after it has its name */
    if (now.wanted && now.path[0] == '\0') {
        report_write(os_message_fd(), now.form);
    } else if (now.wanted) {
        bool fits = expand(now.path, path, sizeof path);
        if (!fits) errno = ENAMETOOLONG;
        if (!fits || !write_file(path, now.form))
            os_message("statistics cannot be written to %s: %s", now.path, os_error_name(errno, error));
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
