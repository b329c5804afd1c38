/* own_new.cc - a program that replaces the plain forms of new and delete and no others. The others are to call these: a
 * program's blocks need not be blocks of malloc. Here a header lies before each.
 *
 * Planted defects it was seen to catch:
 *   delete with a size frees by itself           every_delete_leads_to_the_programs_own
 *   new of an array allocates by itself          every_new_leads_to_the_programs_own
 *
 * If the operators were not weak, this program could not be linked with the archive.
 */
#include "served.h"

#include <memory>
#include <new>
#include <string>
#include <vector>

/* clang declares these only with -fsized-deallocation. That they are not defined here is the point. */
void operator delete(void *, std::size_t) noexcept;
void operator delete[](void *, std::size_t) noexcept;
void operator delete(void *, std::size_t, std::align_val_t) noexcept;
void operator delete[](void *, std::size_t, std::align_val_t) noexcept;
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wsized-deallocation"

static const size_t HEADER = 64;
static const uint64_t PLAIN = 0x706c61696e706c61, ALIGNED = 0x616c69676e656421, GONE = 0;

static int plain_blocks, aligned_blocks;

/* Not inline: the compiler would see that what is deleted is not the start of a block of malloc, and say so. */
__attribute__((noinline)) static void *take(size_t bytes, uint64_t kind, int &blocks) {
    char *memory = static_cast<char *>(aligned_alloc(HEADER, (HEADER + bytes + HEADER - 1) / HEADER * HEADER));
    if (memory == nullptr) throw std::bad_alloc();
    memcpy(memory, &kind, sizeof kind);
    blocks++;
    return memory + HEADER;
}

static void give(void *block, uint64_t kind, int &blocks) {
    if (block == nullptr) return;
    char *memory = static_cast<char *>(block) - HEADER;
    CHECK(memcmp(memory, &kind, sizeof kind) == 0);
    memcpy(memory, &GONE, sizeof GONE);
    free(memory);
    blocks--;
}

void *operator new(size_t bytes) { return take(bytes, PLAIN, plain_blocks); }
void operator delete(void *block) noexcept { give(block, PLAIN, plain_blocks); }
void *operator new(size_t bytes, std::align_val_t) { return take(bytes, ALIGNED, aligned_blocks); }
void operator delete(void *block, std::align_val_t) noexcept { give(block, ALIGNED, aligned_blocks); }

TEST(every_new_leads_to_the_programs_own) {
    const int before = plain_blocks, aligned_before = aligned_blocks;
    const auto align = std::align_val_t(64);
    ::operator delete(::operator new[](100));
    ::operator delete(::operator new(100, std::nothrow));
    ::operator delete(::operator new[](100, std::nothrow));
    ::operator delete(::operator new[](100, align), align);
    ::operator delete(::operator new(100, align, std::nothrow), align);
    ::operator delete(::operator new[](100, align, std::nothrow), align);
    CHECK_EQ(plain_blocks, before);
    CHECK_EQ(aligned_blocks, aligned_before);
}

TEST(every_delete_leads_to_the_programs_own) {
    const int before = plain_blocks, aligned_before = aligned_blocks;
    const auto align = std::align_val_t(64);
    for (size_t bytes = 1; bytes < 100000; bytes *= 3) {
        ::operator delete(::operator new(bytes), bytes);
        ::operator delete(::operator new(bytes), std::nothrow);
        ::operator delete[](::operator new[](bytes));
        ::operator delete[](::operator new[](bytes), bytes);
        ::operator delete[](::operator new[](bytes), std::nothrow);
        ::operator delete(::operator new(bytes, align), bytes, align);
        ::operator delete(::operator new(bytes, align), align, std::nothrow);
        ::operator delete[](::operator new[](bytes, align), align);
        ::operator delete[](::operator new[](bytes, align), bytes, align);
        ::operator delete[](::operator new[](bytes, align), align, std::nothrow);
    }
    CHECK_EQ(plain_blocks, before);
    CHECK_EQ(aligned_blocks, aligned_before);
}

/* The compiler may leave out a new whose block nobody sees. */
static void show(const void *block) { __asm__ volatile("" : : "r"(block) : "memory"); }

struct alignas(64) wide {
    int numbers[16];
};

/* As programs come to them: the compiler chooses the form, and the C++ library has code of its own that was compiled long ago. */
TEST(objects_arrays_and_the_library) {
    const int before = plain_blocks, aligned_before = aligned_blocks;
    {
        std::unique_ptr<int> one(new int(1));
        std::unique_ptr<std::string[]> several(new std::string[7]);
        std::unique_ptr<wide> aligned(new wide());
        std::unique_ptr<wide[]> arrays(new wide[3]);
        show(one.get());
        show(several.get());
        show(aligned.get());
        show(arrays.get());
        std::vector<std::string> texts(100, std::string(1000, 'x'));
        texts.push_back(std::to_string(before) + std::string(100, 'y'));
        std::shared_ptr<int> shared = std::make_shared<int>(2);
        show(shared.get());
        CHECK(plain_blocks >= before + 104);
        CHECK_EQ(aligned_blocks, aligned_before + 2);
    }
    CHECK_EQ(plain_blocks, before);
    CHECK_EQ(aligned_blocks, aligned_before);
}
