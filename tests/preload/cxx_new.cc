/* cxx_new.cc - every form of new and delete, bad_alloc, the new handler, exceptions and containers.
 *
 * Planted defects it was seen to catch (an operator of the program's own in place of hakmem's):
 *   new returns NULL instead of throwing      impossible_sizes_throw
 *   nothrow new throws                        nothrow_forms_return_null
 *   the new handler is not called             the_new_handler_is_called_until_it_gives_up
 *   aligned new ignores the alignment         aligned_forms
 */
#include "served.h"

#include <malloc.h>

#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static volatile size_t impossible = (size_t)PTRDIFF_MAX;

/* libstdc++'s own aligned forms round such a size up past zero, and succeed. */
static const size_t near_the_top = hak_version ? SIZE_MAX - 3 : (size_t)PTRDIFF_MAX + 3;

/* clang declares these only with -fsized-deallocation. */
void operator delete(void *, std::size_t) noexcept;
void operator delete[](void *, std::size_t) noexcept;
void operator delete(void *, std::size_t, std::align_val_t) noexcept;
void operator delete[](void *, std::size_t, std::align_val_t) noexcept;

/* The compiler may leave out a pair of new and delete that it sees through. */
template <typename T> static T *keep(T *block) {
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

static bool is_usable(void *block, size_t size, size_t alignment) {
    if (keep(block) == nullptr || (uintptr_t)block % alignment != 0) return false;
    if (malloc_usable_size(block) < size) return false;
    memset(block, 0x5a, size);
    return true;
}

TEST(scalar_and_array_forms) {
    for (size_t size = 0; size < 200000; size += 1 + size / 8) {
        void *one = ::operator new(size), *many = ::operator new[](size);
        CHECK(one != many);
        CHECK_AT(is_usable(one, size, 16), size);
        CHECK_AT(is_usable(many, size, 16), size);
        ::operator delete(one);
        ::operator delete[](many);
    }
    delete keep(new int(5));
    delete[] keep(new std::string[100]);
    ::operator delete(nullptr);
    ::operator delete[](nullptr);
}

TEST(sized_forms) {
    for (size_t size = 0; size < 200000; size += 1 + size / 8) {
        void *one = ::operator new(size), *many = ::operator new[](size);
        CHECK_AT(is_usable(one, size, 16) && is_usable(many, size, 16), size);
        ::operator delete(one, size);
        ::operator delete[](many, size);
    }
    ::operator delete(nullptr, (size_t)10);
    ::operator delete[](nullptr, (size_t)10);
}

TEST(nothrow_forms) {
    for (size_t size = 0; size < 200000; size += 1 + size / 8) {
        void *one = ::operator new(size, std::nothrow), *many = ::operator new[](size, std::nothrow);
        CHECK_AT(is_usable(one, size, 16) && is_usable(many, size, 16), size);
        ::operator delete(one, std::nothrow);
        ::operator delete[](many, std::nothrow);
    }
}

TEST(aligned_forms) {
    for (size_t a = 1; a <= (size_t)1 << 22; a *= 2) {
        const std::align_val_t alignment = std::align_val_t(a);
        for (size_t size = 0; size < 100000; size = size * 5 + 1) {
            void *blocks[6];
            for (int i = 0; i < 3; i++) {
                blocks[i] =
                    i == 2 ? ::operator new(size, alignment, std::nothrow) : ::operator new(size, alignment);
                blocks[i + 3] = i == 2 ? ::operator new[](size, alignment, std::nothrow)
                                       : ::operator new[](size, alignment);
            }
            for (void *block : blocks) CHECK_AT(is_usable(block, size, a), a);
            ::operator delete(blocks[0], alignment);
            ::operator delete(blocks[1], size, alignment);
            ::operator delete(blocks[2], alignment, std::nothrow);
            ::operator delete[](blocks[3], alignment);
            ::operator delete[](blocks[4], size, alignment);
            ::operator delete[](blocks[5], alignment, std::nothrow);
        }
    }
}

struct alignas(128) Wide {
    char bytes[200];
};

TEST(types_with_an_alignment_of_their_own) {
    for (int i = 0; i < 100; i++) {
        std::unique_ptr<Wide> one(keep(new Wide));
        std::unique_ptr<Wide[]> many(keep(new Wide[7]));
        std::vector<Wide> more((size_t)i + 1);
        CHECK((uintptr_t)one.get() % 128 == 0);
        CHECK((uintptr_t)many.get() % 128 == 0);
        CHECK((uintptr_t)more.data() % 128 == 0);
    }
}

template <typename Body> static bool throws_bad_alloc(Body body) {
    try {
        body();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

TEST(impossible_sizes_throw) {
    const std::align_val_t alignment = std::align_val_t(64);
    for (size_t size : {(size_t)impossible, (size_t)impossible + 1, near_the_top, SIZE_MAX - 4096}) {
        CHECK(throws_bad_alloc([&] { keep(::operator new(size)); }));
        CHECK(throws_bad_alloc([&] { keep(::operator new[](size)); }));
        CHECK(throws_bad_alloc([&] { keep(::operator new(size, alignment)); }));
        CHECK(throws_bad_alloc([&] { keep(::operator new[](size, alignment)); }));
    }
    CHECK(throws_bad_alloc([&] { keep(new int[impossible]); })); /* or bad_array_new_length */
    delete keep(new int);
}

TEST(nothrow_forms_return_null) {
    const std::align_val_t alignment = std::align_val_t(64);
    for (size_t size : {(size_t)impossible, (size_t)impossible + 1, near_the_top, SIZE_MAX - 4096}) {
        CHECK(::operator new(size, std::nothrow) == nullptr);
        CHECK(::operator new[](size, std::nothrow) == nullptr);
        CHECK(::operator new(size, alignment, std::nothrow) == nullptr);
        CHECK(::operator new[](size, alignment, std::nothrow) == nullptr);
    }
}

static int handler_calls;

static void give_up_after_three() {
    if (++handler_calls == 3) std::set_new_handler(nullptr);
}

struct own_error : std::bad_alloc {};

static void throw_own_error() {
    handler_calls++;
    throw own_error();
}

TEST(the_new_handler_is_called_until_it_gives_up) {
    handler_calls = 0;
    std::set_new_handler(give_up_after_three);
    CHECK(throws_bad_alloc([] { keep(::operator new(impossible)); }));
    CHECK_EQ(handler_calls, 3);
    handler_calls = 0;
    std::set_new_handler(give_up_after_three);
    CHECK(::operator new[](impossible, std::nothrow) == nullptr);
    CHECK_EQ(handler_calls, 3);
    handler_calls = 0;
    std::set_new_handler(give_up_after_three);
    CHECK(throws_bad_alloc([] { keep(::operator new(impossible, std::align_val_t(4096))); }));
    CHECK_EQ(handler_calls, 3);
    std::set_new_handler(nullptr);
}

TEST(what_the_new_handler_throws_arrives) {
    handler_calls = 0;
    std::set_new_handler(throw_own_error);
    bool arrived = false;
    try {
        keep(::operator new(impossible));
    } catch (const own_error &) {
        arrived = true;
    }
    CHECK(arrived);
    CHECK(::operator new(impossible, std::nothrow) == nullptr);
    CHECK(::operator new(impossible, std::align_val_t(4096), std::nothrow) == nullptr);
    CHECK(::operator new[](impossible, std::align_val_t(4096), std::nothrow) == nullptr);
    CHECK_EQ(handler_calls, 4);
    std::set_new_handler(nullptr);
}

TEST(the_new_handler_is_not_called_by_success_or_malloc) {
    handler_calls = 0;
    std::set_new_handler(throw_own_error);
    for (size_t size = 1; size < 10000000; size *= 3) ::operator delete(keep(::operator new(size)));
    CHECK(malloc(impossible) == nullptr);
    CHECK_EQ(handler_calls, 0);
    std::set_new_handler(nullptr);
}

TEST(containers_threads_and_exceptions) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([t] {
            std::map<int, std::string> map;
            for (int i = 0; i < 20000; i++) {
                map[i % 1000].append((size_t)(i % 50), (char)('a' + t));
                if (map[i % 1000].size() > 5000) map.erase(i % 1000);
                try {
                    if (i % 100 == 0) throw std::runtime_error(std::string(200, 'x'));
                } catch (const std::runtime_error &error) {
                    CHECK(strlen(error.what()) == 200);
                }
            }
            for (auto &entry : map)
                for (char letter : entry.second) CHECK(letter == (char)('a' + t));
        });
    }
    for (auto &thread : threads) thread.join();
}
