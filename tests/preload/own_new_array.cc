/* own_new_array.cc - a program that replaces new and delete of arrays alone: the forms that do not throw are to lead to these, and
 * those of single objects to hakmem's as ever.
 *
 * Planted defect it was seen to catch: whoever has left new as it is has left that of arrays, too (arrays_are_the_programs_own).
 */
#include "served.h"

#include <new>

/* Of delete, too, the forms that are told a size are to lead to these. */
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wsized-deallocation"

static int taken, taken_aligned;

static void *take(size_t bytes, size_t alignment, int &count) {
    void *block = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (block == nullptr) throw std::bad_alloc();
    count++;
    return block;
}

void *operator new[](size_t bytes) { return take(bytes, 16, taken); }
void *operator new[](size_t bytes, std::align_val_t alignment) { return take(bytes, (size_t)alignment, taken_aligned); }
void operator delete[](void *block) noexcept { free(block); }
void operator delete[](void *block, std::align_val_t) noexcept { free(block); }

TEST(arrays_are_the_programs_own) {
    const auto align = std::align_val_t(64);
    const int before = taken, aligned_before = taken_aligned;
    ::operator delete[](::operator new[](100, std::nothrow));
    ::operator delete[](::operator new[](100, align, std::nothrow), align);
    CHECK_EQ(taken, before + 1);
    CHECK_EQ(taken_aligned, aligned_before + 1);
    ::operator delete(::operator new(100, std::nothrow));
    ::operator delete(::operator new(100, align, std::nothrow), align);
    CHECK_EQ(taken, before + 1);
    CHECK_EQ(taken_aligned, aligned_before + 1);
}
