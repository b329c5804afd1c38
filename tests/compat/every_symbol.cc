/* every_symbol.cc - every name that allocates against every name that frees: each pair that a program may legally make is
 * made, for sizes of every kind, with the contents checked; so are those that work here though the standards do not
 * promise it (new and free). `every_symbol table` prints the pairs.
 *
 * The names are looked up at run time: no C library has all of them. The nothrow forms of new are the C++ library's,
 * which call ours.
 *
 * Planted defects it was seen to catch:
 *   a name is not exported (cfree)                   every_name_is_there
 *   free_aligned_sized takes its size for a block    every_pair
 *   valloc aligns as malloc does                     every_pair
 *   mallinfo2 forgets large blocks                   statistics_follow_the_program
 *   mallinfo2 counts large blocks twice              statistics_follow_the_program
 *   malloc_info takes any option                     malloc_info_writes_a_document
 *   malloc_info counts large blocks twice            malloc_info_writes_a_document
 */
#include "preload/served.h"

#include <malloc.h>

#include <new>

namespace {

template <typename F> F *find(const char *name) { return (F *)dlsym(RTLD_DEFAULT, name); }

using plain_alloc = void *(size_t);
using pair_alloc = void *(size_t, size_t);

/* ---- allocators ------------------------------------------------------------------------------------ */

struct allocator {
    const char *name;
    enum kind { C, C_ALIGNED, NEW, NEW_ALIGNED } kind;
    void *(*make)(const char *symbol, size_t bytes, size_t alignment);
    size_t alignment; /* of what it makes when it is not told; 0: it is told */
};

void *make_plain(const char *symbol, size_t bytes, size_t) { return find<plain_alloc>(symbol)(bytes); }
void *make_counted(const char *symbol, size_t bytes, size_t) { return find<pair_alloc>(symbol)(1, bytes); }
void *make_aligned(const char *symbol, size_t bytes, size_t a) { return find<pair_alloc>(symbol)(a, bytes); }
void *make_resized(const char *symbol, size_t bytes, size_t) {
    return find<void *(void *, size_t)>(symbol)(nullptr, bytes);
}
void *make_array(const char *symbol, size_t bytes, size_t) {
    return find<void *(void *, size_t, size_t)>(symbol)(nullptr, bytes, 1);
}
void *make_stored(const char *symbol, size_t bytes, size_t a) {
    void *block = nullptr;
    return find<int(void **, size_t, size_t)>(symbol)(&block, a, bytes) == 0 ? block : nullptr;
}
void *make_nothrow(const char *symbol, size_t bytes, size_t) {
    return find<void *(size_t, const std::nothrow_t &)>(symbol)(bytes, std::nothrow);
}
void *make_new_aligned(const char *symbol, size_t bytes, size_t a) {
    return find<pair_alloc>(symbol)(bytes, a);
}
void *make_nothrow_aligned(const char *symbol, size_t bytes, size_t a) {
    return find<void *(size_t, size_t, const std::nothrow_t &)>(symbol)(bytes, a, std::nothrow);
}

const allocator allocators[] = {
    {"malloc", allocator::C, make_plain, 16},
    {"calloc", allocator::C, make_counted, 16},
    {"realloc", allocator::C, make_resized, 16},
    {"reallocarray", allocator::C, make_array, 16},
    {"aligned_alloc", allocator::C_ALIGNED, make_aligned, 0},
    {"posix_memalign", allocator::C_ALIGNED, make_stored, 0},
    {"memalign", allocator::C_ALIGNED, make_aligned, 0},
    {"valloc", allocator::C_ALIGNED, make_plain, 4096},
    {"pvalloc", allocator::C_ALIGNED, make_plain, 4096},
    {"_Znwm", allocator::NEW, make_plain, 16},
    {"_Znam", allocator::NEW, make_plain, 16},
    {"_ZnwmRKSt9nothrow_t", allocator::NEW, make_nothrow, 16},
    {"_ZnamRKSt9nothrow_t", allocator::NEW, make_nothrow, 16},
    {"_ZnwmSt11align_val_t", allocator::NEW_ALIGNED, make_new_aligned, 0},
    {"_ZnamSt11align_val_t", allocator::NEW_ALIGNED, make_new_aligned, 0},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", allocator::NEW_ALIGNED, make_nothrow_aligned, 0},
    {"_ZnamSt11align_val_tRKSt9nothrow_t", allocator::NEW_ALIGNED, make_nothrow_aligned, 0},
};

/* ---- deallocators ---------------------------------------------------------------------------------- */

struct deallocator {
    const char *name;
    void (*release)(const char *symbol, void *block, size_t bytes, size_t alignment);
};

void by_block(const char *symbol, void *block, size_t, size_t) { find<void(void *)>(symbol)(block); }
void by_size(const char *symbol, void *block, size_t bytes, size_t) {
    find<void(void *, size_t)>(symbol)(block, bytes);
}
void by_alignment(const char *symbol, void *block, size_t, size_t a) {
    find<void(void *, size_t)>(symbol)(block, a);
}
void by_alignment_size(const char *symbol, void *block, size_t bytes, size_t a) {
    find<void(void *, size_t, size_t)>(symbol)(block, a, bytes);
}
void by_size_alignment(const char *symbol, void *block, size_t bytes, size_t a) {
    find<void(void *, size_t, size_t)>(symbol)(block, bytes, a);
}
void by_nothrow(const char *symbol, void *block, size_t, size_t) {
    find<void(void *, const std::nothrow_t &)>(symbol)(block, std::nothrow);
}
void by_alignment_nothrow(const char *symbol, void *block, size_t, size_t a) {
    find<void(void *, size_t, const std::nothrow_t &)>(symbol)(block, a, std::nothrow);
}
void by_zero(const char *symbol, void *block, size_t, size_t) {
    find<void *(void *, size_t)>(symbol)(block, 0);
}
void by_array_of_none(const char *symbol, void *block, size_t, size_t) {
    find<void *(void *, size_t, size_t)>(symbol)(block, 0, 8);
}

const deallocator deallocators[] = {
    {"free", by_block},
    {"cfree", by_block},
    {"realloc", by_zero},
    {"reallocarray", by_array_of_none},
    {"free_sized", by_size},
    {"free_aligned_sized", by_alignment_size},
    {"_ZdlPv", by_block},
    {"_ZdlPvm", by_size},
    {"_ZdlPvRKSt9nothrow_t", by_nothrow},
    {"_ZdlPvSt11align_val_t", by_alignment},
    {"_ZdlPvmSt11align_val_t", by_size_alignment},
    {"_ZdlPvSt11align_val_tRKSt9nothrow_t", by_alignment_nothrow},
    {"_ZdaPv", by_block},
    {"_ZdaPvm", by_size},
    {"_ZdaPvRKSt9nothrow_t", by_nothrow},
    {"_ZdaPvSt11align_val_t", by_alignment},
    {"_ZdaPvmSt11align_val_t", by_size_alignment},
    {"_ZdaPvSt11align_val_tRKSt9nothrow_t", by_alignment_nothrow},
};

bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* Whether C23 and C++ allow the pair. */
bool is_legal(const allocator &from, const deallocator &to) {
    const bool aligned = strstr(to.name, "align") != nullptr;
    if (!begins(to.name, "_Zd")) {
        if (strcmp(to.name, "free_sized") == 0)
            return from.kind == allocator::C && strcmp(from.name, "reallocarray") != 0;
        if (aligned) return strcmp(from.name, "aligned_alloc") == 0;
        return from.kind == allocator::C || from.kind == allocator::C_ALIGNED;
    }
    const bool array = begins(to.name, "_ZdaP"), made_array = begins(from.name, "_Zna");
    return array == made_array && from.kind == (aligned ? allocator::NEW_ALIGNED : allocator::NEW);
}

const size_t sizes[] = {0, 1, 8, 16, 24, 100, 1000, 1024, 4096, 10000, 65536, 65537, 300000, 3000000};

void try_pair(const allocator &from, const deallocator &to, size_t bytes, size_t alignment) {
    if (from.alignment != 0) alignment = from.alignment;
    auto *block = (unsigned char *)from.make(from.name, bytes, alignment);
    if (block == nullptr || (uintptr_t)block % alignment != 0)
        check_say("     %s(%zu, %zu)", from.name, bytes, alignment);
    CHECK(block != nullptr && (uintptr_t)block % alignment == 0);
    memset(block, (int)bytes + 1, bytes);
    auto *other = (unsigned char *)malloc(bytes);
    memset(other, 0x77, bytes);
    for (size_t i = 0; i < bytes; i++) CHECK_AT(block[i] == (unsigned char)(bytes + 1), i);
    errno = 4711;
    to.release(to.name, block, bytes, alignment);
    CHECK_EQ(errno, 4711);
    for (size_t i = 0; i < bytes; i++) CHECK_AT(other[i] == 0x77, i);
    free(other);
}

} // namespace

TEST(every_name_is_there) {
    if (!is_hakmem_expected()) OMIT("no C library has all of them");
    static const char *const others[] = {"malloc_usable_size", "memalignment", "mallinfo",    "mallinfo2",
                                         "malloc_trim",        "malloc_stats", "malloc_info", "mallopt"};
    for (const auto &from : allocators) {
        if (dlsym(RTLD_DEFAULT, from.name) == nullptr) check_say("     %s", from.name);
        CHECK(dlsym(RTLD_DEFAULT, from.name) != nullptr);
    }
    Dl_info ours, its;
    CHECK(dladdr((void *)(uintptr_t)&hak_version, &ours) != 0);
    auto is_ours = [&](const char *name) {
        void *function = dlsym(RTLD_DEFAULT, name);
        bool is = function != nullptr && dladdr(function, &its) != 0 && its.dli_fbase == ours.dli_fbase;
        if (!is) check_say("     %s", name);
        return is;
    };
    for (const auto &to : deallocators) CHECK(is_ours(to.name));
    for (const char *name : others) CHECK(is_ours(name));
}

TEST(every_pair) {
    for (const auto &from : allocators)
        for (const auto &to : deallocators) {
            if (dlsym(RTLD_DEFAULT, from.name) == nullptr || dlsym(RTLD_DEFAULT, to.name) == nullptr)
                continue;
            if (!is_legal(from, to) && !is_hakmem_expected()) continue;
            for (size_t bytes : sizes)
                for (size_t alignment = 16; alignment <= 65536 * 4;
                     alignment *= from.alignment != 0 ? 1u << 20 : 16)
                    try_pair(from, to, bytes, alignment);
        }
}

TEST(what_allocators_promise) {
    for (size_t bytes : sizes) {
        void *paged = find<plain_alloc>("pvalloc")(bytes), *zeroed = calloc(bytes, 1);
        CHECK(malloc_usable_size(paged) >= (bytes + 4095) / 4096 * 4096);
        for (size_t i = 0; i < bytes; i++) CHECK_AT(((char *)zeroed)[i] == 0, bytes);
        free(paged);
        free(zeroed);
    }
    if (!is_hakmem_expected()) return;
    auto *memalignment = find<size_t(const void *)>("memalignment");
    CHECK_EQ(memalignment(nullptr), 0);
    for (size_t bit = 0; bit < 64; bit++) {
        CHECK_EQ(memalignment((void *)((uintptr_t)1 << bit)), (uintptr_t)1 << bit);
        CHECK_EQ(memalignment((void *)(~(uintptr_t)0 << bit)), (uintptr_t)1 << bit);
    }
}

TEST(statistics_follow_the_program) {
    if (!is_hakmem_expected()) OMIT("glibc counts otherwise");
    const size_t large = (size_t)20 << 20, small = 100, many = 100000;
    struct mallinfo2 before = mallinfo2();
    void *block = malloc(large);
    static void *blocks[100000];
    for (auto &one : blocks) one = malloc(small);
    struct mallinfo2 with = mallinfo2();
    CHECK_EQ(with.hblks - before.hblks, 1);
    CHECK_EQ(with.hblkhd - before.hblkhd, large);
    /* As in glibc, no other field has what hblkhd has: readers add them. */
    CHECK(with.uordblks - before.uordblks >= small * many);
    CHECK(with.uordblks - before.uordblks <= 2 * small * many);
    CHECK(with.arena <= before.arena + 2 * small * many);
    CHECK(with.arena >= with.uordblks && with.arena - with.uordblks == with.fordblks);
    CHECK_EQ(with.smblks + with.usmblks + with.fsmblks, 0);
    free(block);
    for (auto &one : blocks) free(one);
    struct mallinfo2 after = mallinfo2();
    CHECK_EQ(after.hblks, before.hblks);
    CHECK(after.uordblks < with.uordblks - small * many / 2);
    CHECK(after.keepcost <= after.fordblks);
    malloc_trim(0);
    CHECK(mallinfo2().keepcost < large);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* it is what old programs call */
    block = malloc((size_t)3 << 30);
    struct mallinfo narrow = mallinfo();
#pragma GCC diagnostic pop
    CHECK_EQ(narrow.hblkhd, INT32_MAX);
    CHECK_EQ(narrow.hblks, (long long)before.hblks + 1);
    free(block);
}

TEST(malloc_info_writes_a_document) {
    const size_t large = (size_t)300 << 20;
    malloc_trim(0); /* what the tests before left free, and is not given back, would count */
    void *block = malloc(large);
    char *text = nullptr;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    errno = 0;
    CHECK(malloc_info(1, stream) != 0);
    CHECK_EQ(malloc_info(0, stream), 0);
    fclose(stream);
    CHECK(begins(text, "<malloc version=\"1\">\n"));
    CHECK(strstr(text, "<system type=\"current\" size=\"") != nullptr);
    if (is_hakmem_expected()) {
        const char *mapped = strstr(text, "<total type=\"mmap\" count=\"");
        size_t count = 0, mapped_bytes = 0, system_bytes = 0;
        CHECK(mapped != nullptr && sscanf(mapped, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n<system type=\"current\" size=\"%zu\"",
                                          &count, &mapped_bytes, &system_bytes) == 3);
        CHECK(count >= 1 && mapped_bytes >= large && system_bytes < large);
    }
    CHECK(strcmp(text + bytes - strlen("</malloc>\n"), "</malloc>\n") == 0);
    free(text);
    free(block);
}

TEST(malloc_info_says_when_it_cannot_be_written) {
    FILE *full = fopen("/dev/full", "w");
    if (full == nullptr) SKIP("no /dev/full");
    setvbuf(full, nullptr, _IONBF, 0);
    CHECK_EQ(malloc_info(0, full), -1);
    fclose(full);
}

TEST(malloc_stats_writes_to_standard_error) {
    FILE *file = tmpfile();
    if (file == nullptr) SKIP("no place for a file");
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    malloc_stats();
    dup2(saved, STDERR_FILENO);
    close(saved);
    char text[100] = "";
    rewind(file);
    CHECK(fgets(text, sizeof text, file) != nullptr && begins(text, "hakmem: statistics of "));
    fclose(file);
}

TEST(mallopt_takes_what_changes_nothing) {
    CHECK_EQ(mallopt(M_MMAP_THRESHOLD, 1 << 20), 1);
    CHECK_EQ(mallopt(M_TRIM_THRESHOLD, -1), 1);
    if (is_hakmem_expected()) {
        CHECK_EQ(mallopt(M_PERTURB, 1), 0);
        CHECK_EQ(mallopt(12345, 1), 0);
    }
    free(malloc(100));
}

HELPER(table) {
    printf("| allocated by \\ freed by |");
    for (const auto &to : deallocators) printf(" `%s` |", to.name);
    printf("\n|---|");
    for (size_t i = 0; i < sizeof deallocators / sizeof *deallocators; i++) printf(":-:|");
    for (const auto &from : allocators) {
        printf("\n| `%s` |", from.name);
        for (const auto &to : deallocators) printf(" %s |", is_legal(from, to) ? "legal" : "works");
    }
    printf("\n");
}
