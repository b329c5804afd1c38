/* start.c - what happens once. The first operation of any kind that takes a slow path, or the
 * constructor, whichever comes first, resolves the options into data that the layers below read; they never
 * look at an option. */
#include "api/start.h"

#include "ace/huge.h"
#include "api/options.h"
#include "api/setting.h"
#include "api/settings.h"
#include "hakmem/hakmem.h"
#include "heap/alloc.h"
#include "heap/enter.h"
#include "os/os.h"
#include "region/books.h"
#include "region/window.h"
#include "span/span.h"
#include "watch/decisions.h"
#include "watch/deliver.h"
#include "watch/failures.h"
#include "watch/foreign.h"
#include "watch/served.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

_Atomic uint32_t start_done;

static struct os_lock start_lock;
struct hak_options start_settings;

#ifdef HAK_NO_LIBC_NAMES
static bool has_sanitizer(void) { return false; }
static bool is_interposed(void) { return false; }
static bool serves_process(void) { return false; }
#else
#define SANITIZER_STARTS(name) extern void name(void) __attribute__((weak))
SANITIZER_STARTS(__asan_init);
SANITIZER_STARTS(__lsan_init);
SANITIZER_STARTS(__tsan_init);

/* One with a malloc of its own: it finds nothing in blocks of ours. */
static bool has_sanitizer(void) { return &__asan_init != NULL || &__lsan_init != NULL || &__tsan_init != NULL; }

/* ThreadSanitizer interposes libc's functions. Its own must not be called before it is ready, which is later than the start of this
 * library. */
static bool is_interposed(void) { return &__tsan_init != NULL; }

/* Whether the malloc of this process is ours. */
static bool serves_process(void) { return (void *(*)(size_t))malloc == hak_malloc; }
#endif

static uint64_t pages_of(uint64_t bytes) { return bytes == OPTION_NEVER ? 0 : bytes / PAGE_BYTES; }

/* A huge page has as many kernel pages as one of these holds words: it is 2 MiB for pages of 4 KiB, 32 MiB for 16 KiB, and 512 MiB for
 * 64 KiB. The latter two are too large for a rule that weighs 2 MiB. */
static bool huge_pages_are_chunks(void) {
    const size_t page = os_page_bytes();
    return page / sizeof(uint64_t) * page == CHUNK_PAGES * PAGE_BYTES;
}

static uint64_t huge_from_pages_of(const struct hak_options *from) {
    if (from->huge_pages == HUGE_PAGES_ALWAYS) return 0;
    if (from->huge_pages == HUGE_PAGES_NEVER || !huge_pages_are_chunks()) return UINT64_MAX;
    return ace_huge_from_bytes(options_objective(from)) / PAGE_BYTES;
}

static struct span_settings span_settings_of(const struct hak_options *from) {
    return (struct span_settings){
        .decay_half_life_ms = from->decay,
        .huge_from_pages = huge_from_pages_of(from),
        .objective = options_objective(from),
        .soft_pages = pages_of(from->soft_limit),
        .hard_pages = pages_of(from->hard_limit),
        .fixed = !from->adapt,
        .keeper = decision_note,
    };
}

static struct heap_options heap_options_of(const struct hak_options *from) {
    return (struct heap_options){
        .thread_cache_bytes = from->thread_cache,
        .bin_depth = from->bin_depth,
        .fixed = !from->adapt,
        .populate = from->populate,
        .objective = options_objective(from),
        .decay = from->decay,
        .purge_thread = from->purge_thread,
        .pressure = from->pressure,
        .foreign = foreign_handle,
        .keeper = decision_note,
    };
}

static void configure_watch(void) {
    static const enum foreign_policy foreign_policies[] = {
        [FOREIGN_FREE_ABORT] = FOREIGN_ABORT,
        [FOREIGN_FREE_COUNT] = FOREIGN_COUNT,
        [FOREIGN_FREE_LIBC] = FOREIGN_LIBC,
    };
    static const enum report_form forms[] = {
        [STATS_OFF] = REPORT_TEXT,
        [STATS_TEXT] = REPORT_TEXT,
        [STATS_JSON] = REPORT_JSON,
        [STATS_OPENMETRICS] = REPORT_OPENMETRICS,
    };
    foreign_configure(foreign_policies[start_settings.foreign_free]);
    failures_configure(start_settings.trace_failures);
    deliver_configure(&(struct deliver_settings){
        .wanted = start_settings.stats != STATS_OFF,
        .form = forms[start_settings.stats],
        .path = start_settings.stats_file,
    });
}

static void configure(void) {
    options_read_process(&start_settings);
    configure_watch();
    report_configure(hak_version(), settings_read);
    window_start((size_t)start_settings.window);
    books_start();
    struct span_settings spans = span_settings_of(&start_settings);
    struct heap_options heap = heap_options_of(&start_settings);
    span_configure(&spans);
    heap_start(&heap);
}

static void configure_again(void) {
    struct span_settings spans = span_settings_of(&start_settings);
    struct heap_options heap = heap_options_of(&start_settings);
    configure_watch();
    span_configure(&spans);
    heap_configure(&heap);
}

/* False in a signal handler that interrupted the allocator: its thread may hold this lock, or one that settings need, and would wait
 * for itself forever. */
static bool settings_lock(void) {
    if (!slow_enter()) return false;
    os_lock_take(&start_lock);
    return true;
}

static void settings_unlock(void) {
    os_lock_drop(&start_lock);
    slow_leave();
}

static bool wants_reports(void) { return start_settings.stats != STATS_OFF; }

/* A look at standard error is a system call, made only in programs that asked for messages. In all others hakmem prints
 * something after the start only when it ends the process; like libc's malloc, it then writes to whatever is 2. */
static bool wants_messages(void) {
    return wants_reports() || start_settings.trace_failures || start_settings.foreign_free == FOREIGN_FREE_COUNT;
}

int start_change_option(const char *name, const char *value) {
    if (!settings_lock()) return EAGAIN;
    int error = options_change(&start_settings, name, value);
    if (error == 0) {
        if (wants_messages()) os_message_keep_late();
        configure_again();
    }
    settings_unlock();
    foreign_prepare();
    return error;
}

/* A handler that cannot lock reads without the lock: while a path is being set, it may get parts of both paths. */
void start_read_option(enum option_id id, char *text, size_t bytes) {
    const bool locked = settings_lock();
    options_value(&start_settings, id, text, bytes);
    if (locked) settings_unlock();
}

/* The loader sets up the variables of the first thread after it has relocated everything; until then they are zero, and the program's
 * settings perhaps no address yet: a library's IFUNC resolver allocates. */
static bool comes_before_the_settings(void) { return options_has_program() && thread_state.front == NULL; }

HAK_COLD void start_now(void) {
    if (has_sanitizer() && serves_process())
        os_leave("hakmem: this program is built with a sanitizer, which needs a malloc of its own\n");
    /* A signal handler in the middle of the start is served outside the window. */
    if (!slow_enter()) return;
    /* The mark stays until the loader clears it, or start_process: so long this thread is served like a handler. */
    if (comes_before_the_settings()) return;
    int saved = errno;
    os_lock_take(&start_lock);
    if (!atomic_load_explicit(&start_done, memory_order_relaxed)) { /* under the lock */
        configure();
        /* release: a thread that sees it sees the settings and the window. */
        atomic_store_explicit(&start_done, 1, memory_order_release);
    }
    os_lock_drop(&start_lock);
    errno = saved;
    slow_leave();
}

static HAK_ENTRY void fork_child(void) {
    os_lock_reset(&start_lock);
    os_message_fork_child();
    heap_fork_child();
}

/* The shared object is linked to be initialised before all others (-z initfirst): the fork handlers of other
 * libraries are registered later, so they are prepared before ours and find an allocator that works. */
__attribute__((constructor(101))) static HAK_ENTRY void start_process(void) {
    if (is_interposed()) return;
    slow_leave(); /* if start_now left the mark, and the loader has not cleared it */
    start_once();
    os_find_libc();
    os_note_filter();
    os_stay_loaded(); /* threads, their keys and the fork handlers point into it */
    pthread_atfork(heap_fork_prepare, heap_fork_parent, fork_child);
    foreign_prepare();
    if (wants_messages()) os_message_keep(wants_reports() && start_settings.stats_file[0] == '\0');
    if (start_settings.stats_signal != 0) deliver_on_signal((int)start_settings.stats_signal);
    served_report();
    settings_show();
    os_drop_variables(OPTION_PREFIX);
}

__attribute__((destructor(101))) static HAK_ENTRY void end_process(void) {
    deliver();
}
