/* os.h - the contract with the kernel. Of the other layers only watch makes a system call of its own: getpid.
 *
 * Every primitive may be called from any thread, keeps errno when it succeeds, and reports failure by its
 * result; none aborts except os_panic, and none but os_sleep_ms is a cancellation point: malloc is none. They call libc's
 * functions, or its syscall, so that tests can interpose them.
 * Calls of the kinds of enum os_call are counted, and so are their refusals.
 */
#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include "base/attributes.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- memory (memory.c): addresses and sizes are multiples of the kernel's page ------------------ */

/* Bytes of a kernel page, 4 KiB to 64 KiB; the same for the life of the process. */
size_t os_page_bytes(void);

/* Inaccessible address space, anywhere; NULL if refused. Costs no memory. */
void *os_reserve(size_t bytes);

/* The same at ADDRESS and nowhere else. Taken: something lies there. */
enum os_place { OS_PLACE_RESERVED, OS_PLACE_TAKEN, OS_PLACE_REFUSED };
enum os_place os_reserve_at(void *address, size_t bytes);

/* Readable, writable, zeroed memory at ADDRESS and nowhere else; false if refused or if something lies there. */
bool os_map_at(void *address, size_t bytes);

/* Address space that reads as zero and must not be written, anywhere; NULL if refused. */
void *os_reserve_readable(size_t bytes);

/* Makes reserved memory readable and writable. It reads as zero until written. False if refused: then
 * the range is as it was, or partly committed, which is harmless. */
bool os_commit(void *address, size_t bytes);

/* Returns the memory behind a committed range to the kernel; the range stays usable. True when it now reads as
 * zero; false when the contents may have stayed (refused, locked, or an emulator that keeps them). */
bool os_purge(void *address, size_t bytes);

/* Prefaults the pages of a committed range in one call rather than one fault at a time, where the kernel can.
 * Any range: it is widened to whole pages. */
void os_populate(void *address, size_t bytes);

/* Asks for huge pages in a committed range, or asks for none; false if refused. What was refused once for want of
 * support is not asked for again. */
bool os_prefer_huge(void *address, size_t bytes);
bool os_avoid_huge(void *address, size_t bytes);

/* Whether memory may be collapsed: not where the system wants no huge pages, which the kernel would overlook, or does not say. Two files
 * are read the first time: the text of each says whether some are wanted. */
bool os_collapses(void);
bool os_setting_wants_huge(const char *text);

/* Brings a committed range, as long and as aligned as a huge page, into one: what is not resident of it is then. False if refused, as
 * where none is to be used (os_avoid_huge) and before Linux 6.1. Where two mappings meet nothing is brought into one, whatever the
 * result. */
bool os_collapse(void *address, size_t bytes);

/* Breaks the huge page, if there is one, that a committed range lies in, so that parts of it can be returned. */
void os_split_huge(void *address, size_t bytes);

enum os_moved {
    OS_MOVED,        /* FROM reads as zero */
    OS_NOT_MOVED,    /* FROM is as it was */
    OS_MOVE_RENEWED, /* the same, but TO is a fresh mapping */
    OS_MOVE_LOST,    /* the same, but TO is perhaps not mapped and must not be used any more */
};

/* As os_purge, but by a fresh mapping in place of the old one: OS_MOVE_RENEWED. The kernel merges it with neighbours that were
 * advised alike. OS_NOT_MOVED: the range is as it was. OS_MOVE_LOST: it is perhaps not mapped. */
enum os_moved os_renew(void *address, size_t bytes);

/* Moves the memory behind a committed range to another range of the same length, by its page tables alone. The contents of
 * the second are lost, whatever the result. OS_NOT_MOVED also where TO is locked. */
enum os_moved os_move(void *from, void *to, size_t bytes);

/* Gives mappings a name in /proc/PID/maps, where the kernel can (Linux 5.17, if configured). It does not merge mappings of different
 * names. NAME is a constant. */
void os_name(void *address, size_t bytes, const char *name);
#define OS_NAME_BLOCKS "hakmem blocks" /* of what is memory for blocks or may become some; os_commit and os_renew give it */
#define OS_NAME_BOOKS "hakmem books"

/* Readable, writable, zeroed memory anywhere, aligned to ALIGNMENT (a power of two); NULL if refused. */
void *os_map(size_t bytes, size_t alignment);

/* Removes a mapping made by the functions above, or a part of one. A refusal leaves it in place, and is counted: false. */
bool os_unmap(void *address, size_t bytes);

/* Bytes of address space that RLIMIT_AS allows in all, and of writable memory that RLIMIT_DATA does; SIZE_MAX when unlimited. */
size_t os_address_limit(void);
size_t os_data_limit(void);
bool os_is_limited(void); /* by either */

/* Whether the machine counts all memory that may be written, touched or not, and refuses more than it has (vm.overcommit_memory is 2). A file
 * is read, once, but not under a filter of the program's own. */
bool os_charges_all(void);

/* 64 bits that differ from process to process, without a system call. */
uint64_t os_random_seed(void);

/* ---- seccomp filters (filter.c) ------------------------------------------------------------------- */

/* Notes whether one is in force; once, from a constructor: before that, and if it is not called, all filters are taken to be the
 * program's own. */
void os_note_filter(void);

/* Whether one was in force from the start. */
bool os_was_filtered(void);

/* Whether the program made one itself, which may end it for a call that it does not expect, such as one that opens a file. */
bool os_has_own_filter(void);

/* ---- what is resident (resident.c) -------------------------------------------------------------- */

/* How many bytes of a mapped range, which begins at a page, are resident; all, where the kernel does not say or cannot be
 * asked safely. */
size_t os_resident_bytes(void *address, size_t bytes);

/* The same in *RESIDENT_BYTES; false where the kernel does not say or cannot be asked safely. */
bool os_tells_resident(void *address, size_t bytes, size_t *resident_bytes);

/* ---- environment (environment.c) ---------------------------------------------------------------- */

/* NAME=value strings, ended by NULL; or NULL where there is none. Before libc's own start too. */
char **os_environment(void);

/* The value of the variable NAME; NULL when it is not set, and in a privileged process. */
const char *os_variable(const char *name);

/* In a privileged process, takes the variables whose names begin with PREFIX out of the environment, as the loader does with its own: a
 * program that it starts could not tell that an unprivileged user set them. Once, from a constructor. */
void os_drop_variables(const char *prefix);

/* ---- clock (clock.c) ---------------------------------------------------------------------------- */

/* Milliseconds since an arbitrary start; never goes back. Coarse (a few ms) and cheap (no system
 * call where the vDSO serves). */
uint64_t os_clock_ms(void);

/* Sleeps. A signal may cut it short. False if refused. */
bool os_sleep_ms(uint64_t ms);

/* ---- threads (thread.c) ------------------------------------------------------------------------- */

/* Starts a detached thread called NAME (at most 15 bytes) that runs BODY with all signals blocked but those of its own faults, which are
 * as in the caller. BODY returns true if its thread is the last of the process. The thread then takes the signal mask of the caller of
 * this function, since libc calls exit as the thread ends. False if refused. */
bool os_thread_start(bool (*body)(void), const char *name);

/* The kernel's number of this thread. */
uint32_t os_thread_id(void);

/* That of the first thread of this process, which in the child of a fork is the only one. Not by libc's syscall: a library that wraps
 * that may have a lock of its own taken in a fork handler. */
uint32_t os_first_thread_id(void);

/* The processor that this thread runs on, or did a moment ago: a hint. Any number; where the kernel does not say, always the
 * same. */
uint32_t os_cpu(void);

/* How many processors this thread may run on; UINT32_MAX where the kernel does not say. A system call. */
uint32_t os_processors(void);

/* The signals that this thread has blocked: bit N - 1 for signal N. */
uint64_t os_signal_mask(void);

/* Finds where libc and the dynamic loader lie; once, from a constructor. */
void os_find_libc(void);

/* Whether ADDRESS may be code of libc or the dynamic loader. True before os_find_libc, and for the code of a program
 * that holds libc itself. */
bool os_is_libc(const void *address);

/* Whether it is that, and no code of a program that holds libc itself. False before os_find_libc. */
bool os_is_libc_alone(const void *address);

/* Whether ADDRESS is code of the dynamic loader. False before os_find_libc, and in musl, whose loader is libc itself. */
bool os_is_loader(const void *address);

/* Keeps the library that holds this code loaded for good, also where it was linked into one that may be closed; once,
 * from a constructor. */
void os_stay_loaded(void);

/* Whether this thread may be inside a callback of dl_iterate_phdr. It then holds a lock of the loader and must not start a thread:
 * that waits for a second lock, and dlopen takes the two in reverse order. Looks at 1 MiB of the stack, which takes up to a tenth of a
 * millisecond. True where nobody knows where the stack ends: on a fibre's; deeper than 1 MiB in a thread's; deeper than 64 MiB in the
 * first thread's, or anywhere in it if another thread loaded this library; and before os_find_libc. */
bool os_may_be_loader_callback(void);

/* For fork: keeps other threads out of libc's list of open streams, which its fork would lock only after all locks of
 * this library. Nothing where libc does not let it be locked. Reset: in the child. */
void os_stdio_lock(void);
void os_stdio_unlock(void);
void os_stdio_reset(void);

/* After it every other running thread of the process has passed a full barrier, too: the expensive half of an asymmetric
 * barrier, whose cheap half is a compiler barrier. False where the kernel has no such call. */
bool os_barrier_others(void);

/* ---- locks (lock.c): three states and a futex; usable when all bits are zero -------------------- */

struct os_lock {
    _Atomic uint32_t state; /* 0 free, 1 held, 2 held and a waiter may sleep */
};

void os_lock_wait(struct os_lock *lock);
void os_lock_wake(struct os_lock *lock);

HAK_INLINE bool os_lock_try(struct os_lock *lock) {
    uint32_t expected = 0;
    /* acquire: what the last holder wrote is seen after this. */
    return atomic_compare_exchange_strong_explicit(&lock->state, &expected, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

HAK_INLINE void os_lock_take(struct os_lock *lock) {
    if (HAK_UNLIKELY(!os_lock_try(lock))) os_lock_wait(lock);
}

HAK_INLINE void os_lock_drop(struct os_lock *lock) {
    /* release: pairs with the acquire of the next holder. */
    if (HAK_UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2))
        os_lock_wake(lock);
}

/* For a holder of many short steps, between two of them: a thread that sleeps for LOCK has it in between, if it gets a processor
 * soon. Who drops a lock and takes it again at once is mostly faster than the thread that this wakes. */
void os_lock_pass(struct os_lock *lock);

/* The child of a fork owns every lock that prepare took; no thread waits in it. */
HAK_INLINE void os_lock_reset(struct os_lock *lock) {
    atomic_store_explicit(&lock->state, 0, memory_order_relaxed); /* the only thread there is */
}

/* ---- messages (message.c) ----------------------------------------------------------------------- */

/* Writes "hakmem: " and the formatted line to the message descriptor. Never allocates. Knows
 * %s %d %u %zu %llu %x %p and %%. */
void os_message(const char *format, ...) HAK_PRINTF(1, 2);

/* Writes all of TEXT to FD. Returns false with errno from write(2): for a broken pipe EPIPE, beyond RLIMIT_FSIZE EFBIG, both without
 * the signal. EAGAIN: FD does not block, and its reader took nothing for a second. No cancellation point. */
bool os_write(int fd, const char *text, size_t bytes);

/* A message, then the end of the process by SIGABRT. */
_Noreturn void os_panic(const char *format, ...) HAK_PRINTF(1, 2);

/* Writes LINE to standard error and ends the process with status 1, by system calls alone: for places where no other function of
 * libc may be called. */
_Noreturn void os_leave(const char *line);

enum { OS_KEPT_DESCRIPTOR_MIN = 200 }; /* descriptors that stay open have numbers from here on: programs count on low ones */

/* At the start: from now on only what is standard error now gets messages, whatever is descriptor 2 later. If there is none, no message
 * is written, since the next file that the program opens may be 2. COPIED: a duplicate of it is kept open, since many programs close theirs
 * before the library's last message; but not of a pipe or a socket, whose reader would wait. A system call; COPIED: two. */
void os_message_keep(bool copied);

/* In the child of a fork, in its handler: closes the duplicate of a terminal, or of another character device. Its reader would wait for a
 * daemon. */
void os_message_fork_child(void);

/* The same later, without a duplicate, if it was not done at the start; but not if descriptor 2 is by now a file of the program's own: one
 * open for reading and writing without O_APPEND. One thread at a time. */
void os_message_keep_late(void);

/* The descriptor for messages: 2, or the duplicate that was kept; -1 if there is none. */
int os_message_fd(void);

/* ---- the control group (group.c) -------------------------------------------------------------------- */

#define OS_UNLIMITED UINT64_MAX /* no limit, or not known */

struct os_group {
    uint64_t memory_limit_bytes; /* of the group, or of the one above it whose limit is nearest; beyond it the kernel kills */
    uint64_t memory_high_bytes;  /* beyond it the kernel slows the process down */
    uint64_t memory_used_bytes;  /* by that group, without its cache of files */
    uint64_t stalled;            /* share of the last 10 s in which some task waited for memory, in hundredths of a per cent */
};

/* Reads it from the files of /proc and /sys under ROOT: "", or a tree that a test made. Takes some 100 microseconds; for one thread at a
 * time. At most three files stay open, under numbers from 200 on. */
void os_group_read(const char *root, struct os_group *group);

/* The same without stalls, whose file stays as it is: where there is no limit none stays open. */
void os_group_read_limits(const char *root, struct os_group *group);

/* What changes all the time, through the files that stayed open: what is used, where there is a limit, and stalls. Opens and closes nothing.
 * OS_UNLIMITED where the program has closed one. */
void os_group_read_again(struct os_group *group);

/* ---- files and signals (file.c) ------------------------------------------------------------------- */

/* open, read and close, by the kernel's numbers: libc's are cancellation points. A thread that ended in one, in malloc or in a
 * handler that interrupted it, would leave locks behind. A file is opened under a number from 3 on, where that
 * can be had: those below are the program's. */
int os_open(const char *path, int flags, unsigned mode);
long os_read_at(int fd, void *bytes, size_t count, size_t offset); /* without moving the file's position */
bool os_close(int fd);

/* fstat, and geteuid, by number as well: they are called before libc is initialised. fakeroot's functions look for its variables in the
 * environment when they are first called, would find none then, and would do nothing for as long as the process lives. */
struct stat;
bool os_fstat(int fd, struct stat *file);
unsigned os_effective_user(void);

/* The beginning of a file, at most BYTES - 1 bytes, as a string; returns its length, or -1 when it cannot be read. */
long os_read_file(const char *path, char *text, size_t bytes);

/* A file that is read line by line. */
struct os_lines {
    int fd;
    size_t used, length; /* of the piece */
    char piece[1024];
};
bool os_lines_open(struct os_lines *lines, const char *path);

/* The beginning of the next line, at most BYTES - 1 bytes, as a string; false when no whole one is left. */
bool os_lines_next(struct os_lines *lines, char *line, size_t bytes);
void os_lines_close(struct os_lines *lines);

/* A file that is being written; PATH must stay valid. */
struct os_file {
    int fd;
    const char *path;
    char temporary[256];
};

/* Opens it for writing. It appears under its name when it is finished, in place of what was there. The target of a link is instead
 * emptied and rewritten in place. What is written to a link to a descriptor, or to anything else that is no regular file, is
 * appended. Links and FIFOs of users other than this one and root are refused (EACCES). False with errno. */
bool os_file_create(struct os_file *file, const char *path);

/* WRITTEN: whether everything was written. False with errno if it was not, or if the file cannot be put in its place. */
bool os_file_finish(struct os_file *file, bool written);

/* Installs HANDLER for signal NUMBER, unless the program handles or ignores that signal, or it reports a fault. False if refused. */
bool os_on_signal(int number, void (*handler)(int number));

/* Ends the process immediately, without exit handlers. */
_Noreturn void os_exit(int status);

/* ---- counters (memory.c) ------------------------------------------------------------------------ */

enum os_call {
    OS_CALL_MMAP,
    OS_CALL_MUNMAP,
    OS_CALL_MPROTECT,
    OS_CALL_MADVISE_FREE, /* returns memory */
    OS_CALL_MADVISE_HUGE, /* asks for huge pages or for none, makes one at once, or breaks one */
    OS_CALL_MADVISE_POPULATE,
    OS_CALL_MREMAP,
    OS_CALL_THREAD,
    OS_CALL_MEMBARRIER,
    OS_CALL_MINCORE,
    OS_CALL_KINDS
};

struct os_counters {
    _Atomic uint64_t calls[OS_CALL_KINDS];
    _Atomic uint64_t refusals[OS_CALL_KINDS];
    _Atomic uint64_t reserved_bytes;  /* address space asked of the kernel, in all */
    _Atomic uint64_t committed_bytes; /* memory made usable, in all */
    _Atomic uint64_t purged_bytes;    /* memory returned, in all */
    _Atomic uint64_t unmapped_bytes;  /* address space returned, in all */
};

extern HAK_HIDDEN struct os_counters os_counters;

/* Counts one call and its refusal, and restores errno: a refusal is reported by the result alone. Returns SUCCEEDED. */
bool os_counted(enum os_call call, bool succeeded, int saved_errno);

extern HAK_HIDDEN const char *const os_call_names[OS_CALL_KINDS];
const char *os_call_name(enum os_call call);

/* The last refusal of memory to this thread since os_refusal_forget: which call, and the kernel's error; error 0: none. 4 bytes
 * of static TLS. */
struct os_refusal {
    uint16_t call; /* an enum os_call: OS_CALL_MMAP, OS_CALL_MPROTECT */
    uint16_t error;
};
extern HAK_HIDDEN _Thread_local struct os_refusal os_refusal __attribute__((tls_model("initial-exec")));

HAK_INLINE void os_refusal_forget(void) { os_refusal.error = 0; }

/* "ENOMEM" and the like; the number of an error that none of our calls is known to return. */
const char *os_error_name(int error, char buffer[12]);

/* What the kernel says of this process; zero where it does not say. Here and below it says nothing of what stands in files under a filter
 * of the program's own. */
struct os_usage {
    uint64_t peak_rss_bytes;
    uint64_t rss_bytes;
    uint64_t minor_faults;
    uint64_t major_faults;
};
void os_usage_read(struct os_usage *usage);

/* A range of addresses as the kernel has it. */
struct os_mapping {
    uintptr_t start, end;
    char name[128]; /* a file's path, "[heap]", "[stack]" and the like, cut at the front; "" for anonymous ones */
};

/* Fills *MAPPING with the one that ADDRESS lies in; false when it lies in none, or the kernel does not say: then its end is 0. */
bool os_find_mapping(const void *address, struct os_mapping *mapping);

/* How many mappings the process has; 0 where the kernel does not say. */
uint64_t os_count_mappings(void);

/* The name of the program, at most BYTES - 1 bytes of it; empty where the kernel does not say. */
void os_process_name(char *name, size_t bytes);

#endif
