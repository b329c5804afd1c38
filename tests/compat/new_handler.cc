/* new_handler.cc - what programs do when new finds no memory: a handler that frees what was put aside, one that throws,
 * none; in the middle of real exhaustion, under a limit of address space, and in several threads.
 *
 * What each form of new does at an impossible size is tests/preload/cxx_new.cc. This file is also built with libc++.
 *
 * Planted defect it was seen to catch: new gives up after one call of its handler (a_handler_that_frees_memory).
 */
#include "child.h"
#include "preload/served.h"

#include <sys/resource.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static const size_t MEBIBYTE = (size_t)1 << 20;

static size_t address_space() {
    char text[128] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == nullptr) SKIP("no /proc");
    if (fgets(text, sizeof text, file) == nullptr) text[0] = '\0';
    fclose(file);
    return strtoul(text, nullptr, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit_growth(size_t bytes) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = address_space() + bytes;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

/* Blocks that hold each other, so that holding them needs no memory. */
struct link_of_chain {
    link_of_chain *next;
};

static void free_chain(link_of_chain *first) {
    while (first != nullptr) {
        link_of_chain *next = first->next;
        ::operator delete(first);
        first = next;
    }
}

/* Adds a block; what new throws goes through. */
static void extend_chain(link_of_chain *&first, size_t size) {
    void *block = ::operator new(size);
    memset(block, 1, size);
    first = ::new (block) link_of_chain{first};
}

/* Blocks of SIZE until new throws ERROR; returns how many, and frees them. */
template <typename Error> static size_t take_until_thrown(size_t size) {
    link_of_chain *first = nullptr;
    size_t count = 0;
    try {
        for (; count < 1000000; count++) extend_chain(first, size);
    } catch (const Error &error) {
        CHECK(error.what()[0] != '\0');
        free_chain(first);
        return count;
    }
    CHECK(false);
    return 0;
}

static void *reserve;
static std::atomic<int> calls;

static void free_the_reserve() {
    calls++;
    if (reserve == nullptr) {
        std::set_new_handler(nullptr);
        return;
    }
    free(reserve);
    reserve = nullptr;
}

static void live_on_a_reserve() {
    const size_t size = 8 * MEBIBYTE;
    reserve = malloc(64 * MEBIBYTE);
    CHECK(reserve != nullptr);
    memset(reserve, 1, 64 * MEBIBYTE);
    limit_growth(100 * MEBIBYTE);
    std::set_new_handler(free_the_reserve);
    link_of_chain *first = nullptr;
    size_t count = 0;
    for (; reserve != nullptr; count++) {
        CHECK(count < 1000);
        extend_chain(first, size); /* the last is of what the handler freed */
    }
    CHECK_EQ(calls.load(), 1);
    extend_chain(first, size);
    free_chain(first);
    CHECK_AT(take_until_thrown<std::bad_alloc>(size) >= count,
             count); /* the handler has nothing left, and goes */
    CHECK_EQ(calls.load(), 2);
}

TEST(a_handler_that_frees_memory) { IN_CHILD(live_on_a_reserve); }

struct own_error : std::bad_alloc {
    const char *what() const noexcept override { return "own"; }
};

static void throw_own() {
    calls++;
    throw own_error();
}

static void exhaust_with_throwing_handler() {
    limit_growth(64 * MEBIBYTE);
    std::set_new_handler(throw_own);
    for (size_t size : {(size_t)1000, (size_t)100000, 4 * MEBIBYTE}) {
        CHECK_AT(take_until_thrown<own_error>(size) > 0, size);
        CHECK(::operator new((size_t)1 << 46, std::nothrow) == nullptr);
    }
    CHECK_EQ(calls.load(), 6);
}

TEST(a_handler_that_throws) { IN_CHILD(exhaust_with_throwing_handler); }

static void exhaust_without_handler() {
    limit_growth(64 * MEBIBYTE);
    for (int round = 0; round < 3; round++) CHECK(take_until_thrown<std::bad_alloc>(MEBIBYTE) > 8);
    std::string text;
    bool thrown = false;
    try {
        while (text.size() < (size_t)1 << 34) text.append(text.size() + 1000, 'x');
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown && text.size() >= 1000);
}

TEST(no_handler) { IN_CHILD(exhaust_without_handler); }

static void exhaust_in_threads() {
    limit_growth(160 * MEBIBYTE);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([] {
            for (int round = 0; round < 5; round++) take_until_thrown<std::bad_alloc>(200000);
        });
    for (auto &thread : threads) thread.join();
}

TEST(in_four_threads) { IN_CHILD(exhaust_in_threads); }
