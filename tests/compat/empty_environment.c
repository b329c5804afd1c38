/* empty_environment.c - no environment at all: the program starts itself anew with none, and with no arguments either.
 * Preloaded, LD_PRELOAD is all there is.
 *
 * Planted defect that it catches: tests/defects/environment_is_expected.toml.
 */
#define CHECK_NO_MAIN
#include "../preload/served.h"

#include <sys/wait.h>

extern char **environ;

enum { NOT_SERVED = 2, NOT_EMPTY, NO_MEMORY, NO_EXEC };

static void *early;

__attribute__((constructor(101))) static void allocate_early(void) { early = calloc(10, 100); }

static void *use_memory(void *unused) {
    void *blocks[24];
    for (size_t i = 0; i < 24; i++) {
        if ((blocks[i] = malloc((size_t)1 << i)) == NULL) _exit(NO_MEMORY);
        memset(blocks[i], 1, (size_t)1 << i);
    }
    for (size_t i = 0; i < 24; i++) free(blocks[i]);
    return unused;
}

/* LD_PRELOAD apart, which the first process needs, too. */
static int work_with(size_t variables) {
    pthread_t thread;
    size_t count = 0;
    while (environ != NULL && environ[count] != NULL) count++;
    if (count != variables) return NOT_EMPTY;
    if (!is_served_by_hakmem()) return NOT_SERVED;
    use_memory(NULL);
    if (pthread_create(&thread, NULL, use_memory, NULL) == 0) pthread_join(thread, NULL);
    if (setenv("NEW", "1", 1) != 0 || getenv("NEW") == NULL) return NO_MEMORY;
    free(early);
    return 0;
}

int main(int argc, char **argv) {
    static char preload[8192];
    const char *library = getenv("LD_PRELOAD");
    char *variables[] = {library ? preload : NULL, NULL}, *one[] = {(char[]){"child"}, NULL},
         *none[] = {NULL};
    check_now.name = "empty_environment";
    if (!is_hakmem_expected()) { /* a child: it has not even that */
        (void)argc;
        (void)argv;
        return work_with(library ? 1 : 0);
    }
    CHECK(is_served_by_hakmem());
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library ? library : "");
    for (int i = 0; i < 2; i++) {
        int status = -1;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            execve("/proc/self/exe", i == 0 ? one : none, variables);
            _exit(NO_EXEC);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
    check_say("ok empty_environment");
    return 0;
}
