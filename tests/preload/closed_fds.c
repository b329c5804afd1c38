/* closed_fds.c - descriptors 0 to 2 are closed, later or from the first instruction on.
 *
 *     closed_fds          closes them itself, then runs itself anew with them closed
 *
 * The allocator must work, must not keep a descriptor that it got there, and must not write into the
 * files that the program opens in their place, even when it has something to say (an option that it
 * does not know). Failures are exit codes, since there is nowhere to write: see fail().
 *
 * Planted defects it was seen to catch: an allocator that keeps /proc/self/maps open (3), one that
 * writes a line to descriptor 2 at its first operation (5).
 */
#define CHECK_NO_MAIN
#include "served.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { NO_MEMORY = 2, KEPT_DESCRIPTOR, NO_FILES, WROTE, NOT_SERVED, NO_EXEC };

static void fail(int code) { _exit(code); }

static void *use_memory(void *unused) {
    static __thread void *blocks[300];
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 300; i++) {
            size_t size = (i + 1) * (i + (size_t)round + 1);
            if ((blocks[i] = malloc(size)) == NULL) fail(NO_MEMORY);
            memset(blocks[i], 1, size);
        }
        for (size_t i = 0; i < 300; i++) free(blocks[i]);
    }
    return unused;
}

static void use_memory_and_threads(void) {
    pthread_t thread;
    use_memory(NULL);
    if (pthread_create(&thread, NULL, use_memory, NULL) == 0) pthread_join(thread, NULL);
}

static bool all_are_closed(void) {
    for (int file = 0; file < 3; file++)
        if (fcntl(file, F_GETFD) != -1) return false;
    return true;
}

static bool take_all(void) {
    const int first = memfd_create("closed_fds", MFD_CLOEXEC), second = dup(first), third = dup(first);
    if (first == 0 && second == 1 && third == 2) return true;
    close(first);
    close(second);
    close(third);
    return false;
}

/* Otherwise it is CODE. The purge thread may have a file open at any moment, but not for long. */
static void become_true(bool (*condition)(void), int code) {
    for (int tries = 0; !condition(); tries++) {
        if (tries == 2000) fail(code);
        usleep(1000);
    }
}

/* Nothing but the kernel is asked here, so that nobody else opens anything. */
static void work_without_descriptors(void) {
    use_memory_and_threads();
    become_true(all_are_closed, KEPT_DESCRIPTOR);
    become_true(take_all, NO_FILES);
    use_memory_and_threads();
    struct stat now;
    if (fstat(0, &now) != 0 || now.st_size != 0) fail(WROTE);
}

int main(int argc, char **argv) {
    if (is_hakmem_expected() && !is_served_by_hakmem()) fail(NOT_SERVED);
    if (argc > 1) {
        work_without_descriptors();
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        for (int file = 0; file < 3; file++) close(file);
        setenv("HAKMEM_NO_SUCH_OPTION", "1", 1);
        execl("/proc/self/exe", argv[0], "closed from the start", (char *)NULL);
        fail(NO_EXEC);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) fail(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    for (int file = 0; file < 3; file++) close(file);
    work_without_descriptors();
    return 0;
}
