/* launch.c - starts a program on hakmem and makes sure that hakmem served it.
 *
 *     hakmem-launch [--stats] [--profile NAME] [--no-deepbind] LIBRARY -- COMMAND [ARGUMENT...]
 *
 * A preload that does not take is silent: the program runs, on the allocator it always had. So the
 * file is looked at before the start (what the dynamic loader would ignore is refused), and the
 * library's word is read after the end: its constructor appends one line to the file that HAKMEM_PROOF
 * names, "<pid> served", or "<pid> other <object that owns malloc>". Where no word could be left there, none
 * proves nothing: that is said, and the program's status is passed on.
 *
 * Exit status: the program's own; if a signal ended it, the same signal ends the launcher. 125 when
 * hakmem did not or would not serve it, 126 when it cannot be executed, 127 when it is not found, 2 for
 * a mistake in the launcher's own arguments. Every message is one line on standard error. */
#include "elf_image.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_NOT_SERVED = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };
enum { INTERPRETER_DEPTH = 5, LINE_BYTES = 256 }; /* both as the kernel has them */
enum { PROFILE_BYTES = 192 };                     /* as the library has them: OPTION_PATH_BYTES */

struct request {
    const char *library;
    const char *profile; /* NULL: not given */
    bool stats;
    bool no_deepbind;
    char **command; /* NULL-terminated */
};

_Noreturn __attribute__((format(printf, 2, 3))) static void fail(int status, const char *format, ...) {
    va_list values;
    fputs("hakmem: ", stderr);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(status);
}

/* ---- arguments ------------------------------------------------------------------------------------ */

static struct request parse_arguments(char **argument) {
    struct request request = {NULL, NULL, false, false, NULL};
    for (argument++; *argument != NULL && strncmp(*argument, "--", 2) == 0; argument++) {
        if (strcmp(*argument, "--stats") == 0) {
            request.stats = true;
        } else if (strcmp(*argument, "--profile") == 0 && argument[1] != NULL) {
            request.profile = *++argument;
        } else if (strcmp(*argument, "--no-deepbind") == 0) {
            request.no_deepbind = true;
        } else {
            fail(EXIT_USAGE, "launcher: unknown or incomplete option %s", *argument);
        }
    }
    if (argument[0] == NULL || argument[1] == NULL || strcmp(argument[1], "--") != 0 || argument[2] == NULL)
        fail(
            EXIT_USAGE,
            "usage: hakmem-launch [--stats] [--profile NAME] [--no-deepbind] LIBRARY -- COMMAND [ARGUMENT...]");
    request.library = argument[0];
    request.command = argument + 2;
    return request;
}

/* ---- finding the program, as a shell does --------------------------------------------------------- */

static bool is_file_to_execute(const char *path) {
    struct stat file;
    if (stat(path, &file) != 0) return false;
    if (!S_ISREG(file.st_mode)) {
        errno = EACCES;
        return false;
    }
    return access(path, X_OK) == 0;
}

static char *search_path(const char *name) {
    static char candidate[PATH_MAX];
    const char *path = getenv("PATH");
    bool found_other = false;
    for (const char *from = path != NULL ? path : "/bin:/usr/bin"; from != NULL;) {
        const char *end = strchr(from, ':');
        int length = end != NULL ? (int)(end - from) : (int)strlen(from);
        int used =
            snprintf(candidate, sizeof candidate, "%.*s%s%s", length, from, length == 0 ? "./" : "/", name);
        if (used > 0 && (size_t)used < sizeof candidate) {
            if (is_file_to_execute(candidate)) return candidate;
            if (errno == EACCES && access(candidate, F_OK) == 0) found_other = true; /* or the folder may not be searched */
        }
        from = end != NULL ? end + 1 : NULL;
    }
    if (found_other) fail(EXIT_NOT_EXECUTABLE, "%s: found in PATH, but not executable", name);
    fail(EXIT_NOT_FOUND, "%s: command not found", name);
}

static const char *find_program(char *name) {
    if (name[0] == '\0') fail(EXIT_NOT_FOUND, "the name of the program is empty");
    if (strchr(name, '/') == NULL) return search_path(name);
    if (is_file_to_execute(name)) return name;
    int missing = errno == ENOENT || errno == ENOTDIR;
    fail(missing ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE, "%s: %s", name, strerror(errno));
}

/* ---- what the dynamic loader would ignore --------------------------------------------------------- */

static void refuse_elf(const char *path, struct image image, struct image library) {
    if (!image_same_machine(image, library))
        fail(EXIT_NOT_SERVED, "%s is built for another machine than libhakmem", path);
    if (image_is_loader(image)) return; /* it preloads into what it is told to load */
    if (!image_names_interpreter(image))
        fail(EXIT_NOT_SERVED, "%s is a static binary: nothing can be preloaded into it", path);
    if (image_defines_malloc(image)) fail(EXIT_NOT_SERVED, "%s brings its own allocator: it defines malloc", path);
    const char *sanitizer = image_sanitizer(image);
    if (sanitizer != NULL)
        fail(EXIT_NOT_SERVED, "%s brings its own allocator: it is built with %s", path, sanitizer);
}

/* The loader ignores LD_PRELOAD where a program gains rights that its caller does not have. */
static void refuse_gained_rights(const char *path) {
    struct stat file;
    if (stat(path, &file) != 0) return;
    bool other_user = (file.st_mode & S_ISUID) != 0 && file.st_uid != getuid();
    bool other_group =
        (file.st_mode & S_ISGID) != 0 && (file.st_mode & S_IXGRP) != 0 && file.st_gid != getgid();
    if (other_user || other_group)
        fail(EXIT_NOT_SERVED, "%s is set%s: the loader preloads nothing into it", path,
             other_user ? "uid" : "gid");
    if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
        fail(EXIT_NOT_SERVED, "%s has file capabilities: the loader preloads nothing into it", path);
}

/* Puts the interpreter that the first line of a script names into INTERPRETER; false if it names none. */
static bool read_interpreter(struct image image, char interpreter[LINE_BYTES]) {
    if (image.size < 3 || memcmp(image.bytes, "#!", 2) != 0) return false;
    size_t limit = image.size - 2 < LINE_BYTES - 1 ? image.size - 2 : LINE_BYTES - 1;
    memcpy(interpreter, image.bytes + 2, limit);
    interpreter[limit] = '\0';
    char *start = interpreter + strspn(interpreter, " \t");
    start[strcspn(start, " \t\r\n")] = '\0';
    memmove(interpreter, start, strlen(start) + 1);
    return interpreter[0] != '\0';
}

/* Looks at PROGRAM, or at the interpreter that would run it. What is neither ELF nor a script is left
 * to the kernel. */
static void refuse_unservable(const char *program, struct image library) {
    char path[PATH_MAX], interpreter[LINE_BYTES];
    snprintf(path, sizeof path, "%s", program);
    for (int depth = 0; depth < INTERPRETER_DEPTH; depth++) {
        struct image image = image_map(path);
        bool script = read_interpreter(image, interpreter);
        if (!script) refuse_gained_rights(path); /* Linux ignores the bits of scripts */
        if (image_is_elf(image)) refuse_elf(path, image, library);
        image_unmap(image);
        if (!script) return;
        if (!is_file_to_execute(interpreter))
            fail(EXIT_NOT_EXECUTABLE, "%s: its interpreter %s cannot be executed", program, interpreter);
        snprintf(path, sizeof path, "%s", interpreter);
    }
}

/* ---- starting ------------------------------------------------------------------------------------- */

static char proof_path[PATH_MAX];

static void remove_proof(void) { unlink(proof_path); }

/* An empty file that only this user may write. Removed however the launcher leaves by exit. Returns its descriptor, which
 * stays open: the program may remove the file. */
static int create_proof(void) {
    const char *folder = getenv("TMPDIR");
    if (folder == NULL || folder[0] != '/') folder = "/tmp";
    snprintf(proof_path, sizeof proof_path, "%s/hakmem-proof-XXXXXX", folder);
    int fd = mkostemp(proof_path, O_APPEND | O_CLOEXEC);
    if (fd < 0) fail(EXIT_NOT_SERVED, "no temporary file in %s: %s", folder, strerror(errno));
    atexit(remove_proof);
    return fd;
}

/* The wrapper of dlopen, which lies beside the library: its path, or nothing where it is not asked for. */
static void find_wrapper(const struct request *request, const char *library, char path[PATH_MAX]) {
    path[0] = '\0';
    if (!request->no_deepbind) return;
    int folder = (int)(strrchr(library, '/') - library); /* a resolved path */
    snprintf(path, PATH_MAX, "%.*s/libhakmem-no-deepbind.so", folder, library);
    if (access(path, R_OK) != 0) fail(EXIT_NOT_SERVED, "--no-deepbind: %s: %s", path, strerror(errno));
}

/* The profile as the program and all that it starts can find it, whichever their folder. As it was given if it is not there, or where the
 * library would take no path that long. */
static const char *name_everywhere(const char *profile) {
    if (profile == NULL || profile[0] == '/' || strchr(profile, '/') == NULL) return profile;
    const char *path = realpath(profile, NULL);
    return path != NULL && strlen(path) < PROFILE_BYTES ? path : profile;
}

static void set_environment(const struct request *request, const char *library) {
    const char *others = getenv("LD_PRELOAD");
    bool alone = others == NULL || others[0] == '\0';
    const char *profile = name_everywhere(request->profile);
    char *preload = NULL, wrapper[PATH_MAX];
    find_wrapper(request, library, wrapper);
    if (asprintf(&preload, "%s%s%s%s%s", library, wrapper[0] == '\0' ? "" : ":", wrapper, alone ? "" : ":",
                 alone ? "" : others) < 0 ||
        setenv("LD_PRELOAD", preload, 1) != 0 || setenv("HAKMEM_PROOF", proof_path, 1) != 0 ||
        (request->stats && setenv("HAKMEM_STATS", "1", 1) != 0) ||
        (profile != NULL && setenv("HAKMEM_PROFILE", profile, 1) != 0))
        fail(EXIT_NOT_SERVED, "no memory for the environment");
    free(preload);
}

/* What is neither ELF nor a script with an interpreter is run by the shell, as execvp and shells do. */
static void execute(const char *program, char **command) {
    execv(program, command);
    if (errno != ENOEXEC) return;
    size_t count = 0;
    while (command[count] != NULL) count++;
    char **shell = calloc(count + 2, sizeof *shell);
    if (shell == NULL) return;
    shell[0] = (char[]){"sh"};
    shell[1] = (char *)(uintptr_t)program;
    for (size_t i = 1; i < count; i++) shell[i + 1] = command[i];
    execv("/bin/sh", shell);
}

/* A number that is shared with the child until that executes the program: why it could not. No descriptor is needed
 * for that, of which there may be few. */
static int *share_error(void) {
    void *page = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) fail(EXIT_NOT_SERVED, "mmap: %s", strerror(errno));
    return page;
}

/* Starts PROGRAM and returns its process id. If it cannot be executed, ERROR is errno when the child has ended. */
static pid_t start(const char *program, char **command, const sigset_t *old_mask,
                   struct sigaction *old_child, int *error) {
    const pid_t launcher = getpid();
    pid_t child = fork();
    if (child < 0) fail(EXIT_NOT_SERVED, "fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG,
              SIGKILL); /* SIGKILL cannot be passed on; whoever sends it means the program */
        const pid_t parent = getppid(); /* 0: in another namespace, after unshare --pid */
        if (parent != launcher && parent != 0) _exit(EXIT_NOT_SERVED); /* it was killed before */
        sigaction(SIGCHLD, old_child, NULL);
        sigprocmask(SIG_SETMASK, old_mask, NULL);
        execute(program, command);
        *error = errno;
        _exit(EXIT_NOT_EXECUTABLE);
    }
    return child;
}

/* ---- waiting -------------------------------------------------------------------------------------- */

/* The terminal stopped the child: stop as well, so that the shell sees it, and go on together. Whoever
 * sent SIGSTOP to the child alone will continue the child alone. */
static void stop_with(pid_t child, int signal_number) {
    if (signal_number == SIGSTOP) return;
    raise(SIGSTOP);
    kill(child, SIGCONT);
}

/* Whether CHILD is to have a signal as well: what another process sent; and alarms that were set before the launcher
 * was executed, since no fork inherits these. What the terminal sends goes to the whole foreground group, the program
 * included; and so does what the program itself sends to its group, which is not told from what it sends to its
 * parent. What others send to that group arrives twice: nothing tells it from what was sent to the launcher alone. */
static bool is_to_pass_on(pid_t child, const siginfo_t *info) {
    const bool names_sender = info->si_code == SI_USER || info->si_code == SI_QUEUE;
    if (names_sender && info->si_pid == child) return false;
    const bool alarm = info->si_signo == SIGALRM || info->si_signo == SIGVTALRM || info->si_signo == SIGPROF;
    return info->si_code <= 0 || alarm;
}

static void pass_on(pid_t child, const siginfo_t *info) {
    if (info->si_code == SI_QUEUE)
        sigqueue(child, info->si_signo, info->si_value);
    else
        kill(child, info->si_signo);
}

/* Waits for CHILD and passes signals on. As process 1 of a container, the launcher also takes in processes whose parent has ended. */
static int wait_for(pid_t child, const sigset_t *signals) {
    for (;;) {
        int status;
        pid_t ended;
        siginfo_t info;
        int signal_number = sigwaitinfo(signals, &info);
        if (signal_number < 0) continue;
        if (signal_number != SIGCHLD) {
            if (is_to_pass_on(child, &info)) pass_on(child, &info);
            continue;
        }
        while ((ended = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
            if (ended != child) continue;
            if (!WIFSTOPPED(status)) return status;
            stop_with(child, WSTOPSIG(status));
        }
    }
}

/* ---- proof ---------------------------------------------------------------------------------------- */

/* Whether the library could have left its word in the file: it has its name, and the launcher itself can write to it. A limit of
 * file sizes, or a full disk, forbids that. */
static bool is_writable(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 && file.st_nlink > 0 && write(fd, "\n", 1) == 1;
}

/* Ends with EXIT_NOT_SERVED unless the last word on CHILD is that hakmem serves it: exec keeps the
 * process id, so a wrapper may have spoken before the program. */
static void require_proof(int fd, pid_t child, const char *program) {
    char *line = NULL, *reason = NULL;
    size_t room = 0;
    bool served = false;
    FILE *proof = fdopen(fd, "r"); /* nothing was read or written here: it begins at the first line */
    while (proof != NULL && getline(&line, &room, proof) > 0) {
        char *word;
        if (strtol(line, &word, 10) != child || *word != ' ') continue;
        word[strcspn(word, "\n")] = '\0';
        served = strcmp(word, " served") == 0;
        free(reason);
        reason = strncmp(word, " other ", 7) == 0 ? strdup(word + 7) : NULL;
    }
    free(line);
    if (served) return;
    if (reason != NULL)
        fail(EXIT_NOT_SERVED, "%s was not served by hakmem: its malloc is that of %s", program, reason);
    if (proof == NULL || !is_writable(fd)) {
        fprintf(stderr, "hakmem: it is not known whether hakmem served %s: its word could not be written to %s\n",
                program, proof_path);
        return;
    }
    fail(EXIT_NOT_SERVED, "%s was not served by hakmem: the library was never loaded", program);
}

/* Ends as the child did. The core file, if any, is the child's. */
_Noreturn static void end_like(int status) {
    if (!WIFSIGNALED(status)) exit(WEXITSTATUS(status));
    int signal_number = WTERMSIG(status);
    sigset_t set;
    remove_proof();
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_DUMPABLE, 0); /* a core handler that is a program ignores the limit */
    signal(signal_number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    raise(signal_number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + signal_number);
}

static char *resolve_library(const char *name, struct image *image) {
    char *library = realpath(name, NULL);
    if (library == NULL) fail(EXIT_NOT_SERVED, "no library %s: %s", name, strerror(errno));
    if (strpbrk(library, " :") != NULL)
        fail(EXIT_NOT_SERVED, "LD_PRELOAD cannot name %s: its path holds a space or a colon", library);
    *image = image_map(library);
    if (!image_is_elf(*image)) fail(EXIT_NOT_SERVED, "%s is not a shared object", library);
    return library;
}

int main(int argc, char **argv) {
    (void)argc;
    struct request request = parse_arguments(argv);
    struct image image;
    struct sigaction old_child;
    sigset_t signals, old_mask;

    char *library = resolve_library(request.library, &image);
    const char *program = find_program(request.command[0]);
    refuse_unservable(program, image);
    const int proof = create_proof();
    int *error = share_error();
    set_environment(&request, library);
    free(library);

    sigfillset(&signals);
    sigprocmask(SIG_BLOCK, &signals, &old_mask);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, &old_child);
    pid_t child = start(program, request.command, &old_mask, &old_child, error);
    int status = wait_for(child, &signals);
    if (*error != 0) fail(EXIT_NOT_EXECUTABLE, "%s: %s", program, strerror(*error));
    require_proof(proof, child, request.command[0]);
    end_like(status);
}
