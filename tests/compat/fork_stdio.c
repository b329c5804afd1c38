/* fork_stdio.c - forks while one thread reads lines, which allocates with a stream locked, and another flushes all streams: it holds
 * the list of them and waits for that stream. glibc's fork waits for the list after all fork handlers; whoever holds
 * the allocator's locks by then waits for ever. A watchdog ends that.
 *
 * Planted defect it was seen to catch: the allocator's locks before that of the list (a deadlock, by the watchdog).
 */
#define CHECK_NO_MAIN
#include "work.h"

#include <stdatomic.h>
#include <sys/wait.h>

enum { FORKS = 100, WATCHDOG_SECONDS = 60, LINE_BYTES = 1 << 22 };

static atomic_bool stop;
static atomic_size_t lines, flushes;

static FILE *make_line(void) {
    FILE *file = tmpfile();
    CHECK(file != NULL);
    for (size_t i = 1; i < LINE_BYTES; i++) putc('x', file);
    CHECK_EQ(putc('\n', file), '\n');
    return file;
}

static void *read_lines(void *unused) {
    FILE *file = make_line();
    while (!atomic_load(&stop)) {
        char *line = NULL;
        size_t room = 0;
        rewind(file);
        CHECK_EQ(getline(&line, &room, file), LINE_BYTES);
        free(line);
        atomic_fetch_add(&lines, 1);
    }
    CHECK_EQ(fclose(file), 0);
    return unused;
}

static void *flush_all(void *unused) {
    while (!atomic_load(&stop)) {
        CHECK_EQ(fflush(NULL), 0);
        atomic_fetch_add(&flushes, 1);
    }
    return unused;
}

/* The child uses streams and the allocator, too. */
static void fork_once(int number) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FILE *file = fopen("/dev/null", "w");
        const bool done = file != NULL && fprintf(file, "%d", number) > 0 && fclose(file) == 0;
        _exit(done && work((uint64_t)number, 20) == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

int main(void) {
    check_now.name = "fork_stdio";
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    alarm(WATCHDOG_SECONDS);
    pthread_t reader, flusher;
    CHECK_EQ(pthread_create(&reader, NULL, read_lines, NULL), 0);
    CHECK_EQ(pthread_create(&flusher, NULL, flush_all, NULL), 0);
    while (atomic_load(&lines) == 0 || atomic_load(&flushes) == 0) sched_yield();
    for (int i = 0; i < FORKS; i++) fork_once(i);
    atomic_store(&stop, true);
    CHECK_EQ(pthread_join(reader, NULL), 0);
    CHECK_EQ(pthread_join(flusher, NULL), 0);
    check_say("ok fork_stdio");
    return 0;
}
