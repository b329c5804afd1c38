/* late_end.cc - free and malloc at the end: destructors of statics and of the main thread's
 * thread_locals, atexit, and detached threads that allocate until the process is gone.
 *
 * Each of some rounds is a child that returns from its main; it must end with status 0 after the last
 * destructor said through a pipe that every stage was seen.
 *
 * Planted defect it was seen to catch: an allocator that takes itself down in its own destructor.
 */
#define CHECK_NO_MAIN
#include "served.h"

#include <sys/wait.h>

#include <string>
#include <vector>

static bool is_child;
static int pipe_ends[2];
static int seen_static, seen_local_static, seen_thread_local, seen_atexit, seen_destructor;

static void allocate_and_free() {
    std::vector<void *> blocks;
    for (size_t size = 1; size < 3000000; size = size * 2 + 1) {
        void *block = malloc(size);
        CHECK(block != nullptr);
        memset(block, 7, size);
        blocks.push_back(block);
    }
    for (void *block : blocks) free(block);
}

struct Holder {
    int *seen;
    std::vector<std::string> texts;
    explicit Holder(int *where) : seen(where), texts(300, std::string(100, 'h')) {}
    ~Holder() {
        for (auto &text : texts) CHECK(text == std::string(100, 'h'));
        texts.clear();
        texts.shrink_to_fit();
        allocate_and_free();
        ++*seen;
    }
};

static Holder in_static(&seen_static);
static thread_local Holder in_thread_local(&seen_thread_local);

/* Blocks that only the very last destructor frees. */
static void *last_blocks[200];

__attribute__((destructor(101))) static void be_last() {
    seen_destructor++;
    for (void *block : last_blocks) free(block);
    allocate_and_free();
    bool all = seen_static == 1 && seen_local_static == 1 && seen_thread_local == 1 && seen_atexit == 2 &&
               seen_destructor == 2;
    if (!is_child) return;
    CHECK(all);
    CHECK_EQ(write(pipe_ends[1], "x", 1), 1);
}

__attribute__((destructor)) static void be_late() {
    seen_destructor++;
    allocate_and_free();
}

static void at_exit() {
    seen_atexit++;
    allocate_and_free();
}

static void *allocate_for_ever(void *) {
    for (;;) allocate_and_free();
}

static int end_late() {
    is_child = true;
    static Holder in_local_static(&seen_local_static);
    CHECK(in_thread_local.texts.size() == 300);
    for (size_t i = 0; i < 200; i++) last_blocks[i] = malloc(i * 500);
    CHECK_EQ(atexit(at_exit), 0);
    CHECK_EQ(atexit(at_exit), 0);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, nullptr, allocate_for_ever, nullptr), 0);
        pthread_detach(thread);
    }
    allocate_and_free();
    return 0;
}

int main() {
    check_now.name = "late_end";
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    for (int round = 0; round < 20; round++) {
        char said = 0;
        int status = -1;
        CHECK_EQ(pipe(pipe_ends), 0);
        pid_t child = fork();
        CHECK(child >= 0);
        alarm(60);
        if (child == 0) return end_late();
        close(pipe_ends[1]);
        CHECK_EQ(read(pipe_ends[0], &said, 1), 1);
        close(pipe_ends[0]);
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
    check_say("ok late_end");
    return 0;
}
