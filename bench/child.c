/* child.c - see child.h. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

extern char **environ;

void child_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

static char **environment_make(const char *preload) {
    size_t count = 0;
    while (environ[count] != NULL) count++;
    char **copy = calloc(count + 2, sizeof *copy);
    if (copy == NULL) child_fail("no memory");
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(environ[i], "LD_PRELOAD=", strlen("LD_PRELOAD=")) != 0) copy[used++] = environ[i];
    }
    if (preload != NULL && asprintf(&copy[used], "LD_PRELOAD=%s", preload) < 0) child_fail("no memory");
    return copy;
}

void child_command_read(struct child_command *command, int first, char **argv, const char *usage) {
    *command = (struct child_command){0};
    char **rest = argv + first;
    if (*rest != NULL && strcmp(*rest, "--preload") == 0 && rest[1] != NULL) {
        command->preload = rest[1];
        rest += 2;
    }
    if (*rest != NULL && strcmp(*rest, "--") == 0) rest++;
    if (*rest == NULL || **rest == '-') {
        fprintf(stderr, "usage: %s\n", usage);
        exit(2);
    }
    if (command->preload != NULL && access(command->preload, R_OK) != 0) {
        child_fail("cannot read %s: %s", command->preload, strerror(errno));
    }
    command->argv = rest;
    command->environment = environment_make(command->preload);
}

static pid_t child_start_traced(const struct child_command *command) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) child_fail("cannot fork: %s", strerror(errno));
    if (pid > 0) return pid;
    int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0) execvpe(command->argv[0], command->argv, command->environment);
    fprintf(stderr, "%s: cannot run %s: %s\n", program_invocation_short_name, command->argv[0], strerror(errno));
    _exit(127);
}

/* The file that posix_spawnp finds for NAME, to be freed; NULL: none. */
static char *program_find(const char *name) {
    if (strchr(name, '/') != NULL) return strdup(name);
    const char *folders = getenv("PATH");
    char *copy = strdup(folders != NULL ? folders : "/bin:/usr/bin"), *rest = copy, *folder, *found = NULL;
    while (found == NULL && (folder = strsep(&rest, ":")) != NULL) {
        if (asprintf(&found, "%s/%s", *folder != '\0' ? folder : ".", name) < 0) child_fail("no memory");
        struct stat file;
        if (access(found, X_OK) == 0 && stat(found, &file) == 0 && S_ISREG(file.st_mode)) break;
        free(found);
        found = NULL;
    }
    free(copy);
    return found;
}

/* As execvp does it: with the shell that gets the file as its first argument. */
static int shell_spawn(pid_t *pid, const posix_spawnattr_t *how, const struct child_command *command) {
    size_t count = 0;
    while (command->argv[count] != NULL) count++;
    char **argv = calloc(count + 2, sizeof *argv);
    char *program = program_find(command->argv[0]);
    if (argv == NULL || program == NULL) child_fail("cannot run %s: %s", command->argv[0], strerror(ENOEXEC));
    argv[0] = (char[]){"sh"};
    argv[1] = program;
    for (size_t i = 1; i < count; i++) argv[i + 1] = command->argv[i];
    int error = posix_spawn(pid, "/bin/sh", NULL, how, argv, command->environment);
    free(program);
    free(argv);
    return error;
}

pid_t child_start(const struct child_command *command, bool traced) {
    if (traced) return child_start_traced(command);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    if (command->own_group) posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP); /* of its own number */
    pid_t pid;
    int error = posix_spawnp(&pid, command->argv[0], NULL, &how, command->argv, command->environment);
    if (error == ENOEXEC) error = shell_spawn(&pid, &how, command);
    posix_spawnattr_destroy(&how);
    if (error != 0) child_fail("cannot run %s: %s", command->argv[0], strerror(error));
    return pid;
}

/* By device and inode: the kernel resolves links in the names it prints. */
bool child_is_served(const struct child_command *command, pid_t pid) {
    if (command->preload == NULL) return true;
    struct stat library;
    if (stat(command->preload, &library) != 0) return false;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (maps == NULL) return false;
    bool found = false;
    char *line = NULL;
    size_t room = 0;
    while (!found && getline(&line, &room, maps) >= 0) {
        unsigned device_major, device_minor;
        unsigned long long inode;
        if (sscanf(line, "%*s %*s %*s %x:%x %llu", &device_major, &device_minor, &inode) != 3) continue;
        found = inode == library.st_ino && makedev(device_major, device_minor) == library.st_dev;
    }
    free(line);
    fclose(maps);
    return found;
}
